//! Measures a regroup between threads, without Python: the aggregation and the stages of the exchange.
//!
//!     regroup [RANKS [ROWS [KEYS [THREADS [WAVE_MIB [sum|concat [ROUNDS]]]]]]]      2 10000000 1000000 1 0 sum 5
//!
//! Each rank has ROWS rows: an int64 key, random among KEYS, and a float64. With `sum`, equal keys are summed before
//! the exchange; with `concat`, at the receiver. A wave size of 0 MiB means the default. Prints the maximum times over
//! the ranks in seconds, and the bytes that all ranks sent. The sum of all values is checked.

use ripieno::keyed::{Aggregation, KeyColumn, KeyKind, KeyedBlock, KeyedCombine, KeyedSchema, Regroup, Regrouped};
use ripieno::net::ThreadFabric;
use ripieno::{Communicator, Element, Op};
use ripieno_kernels::Threads;
use std::error::Error;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::{Duration, Instant};

type RegroupResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

struct RegroupCase {
    row_count: usize,
    key_count: u64,
    threads: NonZeroUsize,
    combine: KeyedCombine,
    options: Regroup,
    round_count: usize,
}

/// One round of one rank.
struct RegroupRound {
    adding: Duration,
    regrouped: Regrouped,
    sum: f64,
}

fn main() -> RegroupResult<()> {
    let (p, threads) = (argument(1, 2)?, argument(4, NonZeroUsize::MIN)?);
    let sum = KeyedCombine::Op(Op::Sum);
    let combine = match argument(6, "sum".to_string())?.as_str() {
        "sum" => sum,
        "concat" => KeyedCombine::Concat,
        other => return Err(format!("{other}: expected sum or concat").into()),
    };
    let default = Regroup { threads, ..Regroup::new(sum) };
    let options = match argument(5, 0)? {
        0 => default,
        mebibytes => default.in_waves_of(mebibytes << 20),
    };
    let (row_count, key_count, round_count) = (argument(2, 10_000_000)?, argument(3, 1_000_000)?, argument(7, 5)?);
    let case = RegroupCase { row_count, key_count, threads, combine, options, round_count };
    let fabrics = ThreadFabric::group(p)?;
    let ranks: Vec<RegroupResult<Vec<RegroupRound>>> = std::thread::scope(|scope| {
        let ranks: Vec<_> =
            fabrics.into_iter().map(|fabric| scope.spawn(|| case.run(&Communicator::new(Box::new(fabric))))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    let ranks = ranks.into_iter().collect::<RegroupResult<Vec<_>>>()?;
    println!("{p} ranks × {row_count} rows, {key_count} keys, {threads} threads, {:?}", case.options);
    println!(" add      seal     sizes    exchange merge    all      waves  MB sent");
    for round in 0..round_count {
        let rounds: Vec<&RegroupRound> = ranks.iter().map(|rounds| &rounds[round]).collect();
        let seconds = |of: &dyn Fn(&RegroupRound) -> Duration| {
            rounds.iter().map(|round| of(round)).fold(Duration::ZERO, Duration::max).as_secs_f64()
        };
        let all = |of: &dyn Fn(&RegroupRound) -> f64| rounds.iter().map(|round| of(round)).sum::<f64>();
        assert_eq!(all(&|round| round.sum), (p * row_count) as f64, "no row is lost");
        println!(
            " {:<8.4} {:<8.4} {:<8.4} {:<8.4} {:<8.4} {:<8.4} {:<6} {:.1}",
            seconds(&|round| round.adding),
            seconds(&|round| round.regrouped.sealing),
            seconds(&|round| round.regrouped.sizes),
            seconds(&|round| round.regrouped.exchange),
            seconds(&|round| round.regrouped.merge),
            seconds(&|round| {
                let Regrouped { sealing, sizes, exchange, merge, .. } = round.regrouped;
                round.adding + sealing + sizes + exchange + merge
            }),
            rounds[0].regrouped.waves,
            all(&|round| round.regrouped.bytes_sent as f64) / 1e6,
        );
    }
    Ok(())
}

/// Return the argument at this position, or `default`.
fn argument<T: FromStr>(position: usize, default: T) -> RegroupResult<T>
where
    T::Err: Error + Send + Sync + 'static,
{
    Ok(std::env::args().nth(position).map(|text| text.parse()).transpose()?.unwrap_or(default))
}

impl RegroupCase {
    fn run(&self, comm: &Communicator) -> RegroupResult<Vec<RegroupRound>> {
        let keys = self.keys(comm.rank());
        let values: Vec<u8> = keys.iter().flat_map(|_| 1f64.to_ne_bytes()).collect();
        (0..self.round_count).map(|_| self.round(comm, &keys, &values)).collect()
    }

    fn round(&self, comm: &Communicator, keys: &[i64], values: &[u8]) -> RegroupResult<RegroupRound> {
        let schema =
            KeyedSchema { keys: KeyKind::Int64, element: Element::F64, width: 1, combine: self.combine, label: 0 };
        let threads = Threads::new(self.threads.get());
        comm.barrier(None)?;
        let started = Instant::now();
        let mut aggregation = Aggregation::new(schema, comm.world_size(), None)?;
        aggregation.add(KeyColumn::Int64(keys), values, None, &threads)?;
        let adding = started.elapsed();
        comm.barrier(None)?;
        let mut sum = 0.0;
        let mut keep = |_: &KeyedSchema, block: KeyedBlock| {
            sum += block.values.as_chunks().0.iter().map(|value| f64::from_ne_bytes(*value)).sum::<f64>();
            Ok(())
        };
        let regrouped = comm.regroup(aggregation, &self.options, &mut keep)?;
        Ok(RegroupRound { adding, regrouped, sum })
    }

    /// Return the keys of a rank; the same in each run.
    fn keys(&self, rank: usize) -> Vec<i64> {
        let mut state = rank as u64;
        let mut random = move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        (0..self.row_count).map(|_| (random() % self.key_count) as i64).collect()
    }
}
