//! Measures sparse reductions between threads, without Python: configuration, reduction, and both in one pass.
//!
//!     sparse [RANKS [FEATURES [DENSITY [DEGREES [ROUNDS [THREADS]]]]]]        (default: 4 1000000 0.1 direct 50 1)
//!
//! Each rank contributes and requests random features with the given density. A row is one float32; rows are summed.
//! Times are the maximum over the ranks. Each result is compared with a single-threaded sum.

use ripieno::ElementShape;
use ripieno::net::ThreadFabric;
use ripieno::sparse::{SparseOptions, SparseSchema};
use ripieno::{Communicator, Element, Op};
use std::error::Error;
use std::str::FromStr;
use std::time::{Duration, Instant};

type SparseResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

struct SparseBenchmark {
    feature_count: u64,
    density: f64,
    options: SparseOptions,
    round_count: usize,
}

/// Times of the rounds of one rank.
#[derive(Default)]
struct SparseTimes {
    configure: Vec<Duration>,
    reduce: Vec<Duration>,
    both: Vec<Duration>,
}

fn main() -> SparseResult<()> {
    let p = argument(1, 4)?;
    let degrees: String = argument(4, "direct".to_string())?;
    let options = SparseOptions::parse(None, Some(&degrees), true, ripieno::sparse::DENSE_ABOVE, p)?;
    let options = SparseOptions { threads: argument(6, options.threads)?, ..options };
    let (feature_count, density, round_count) = (argument(2, 1_000_000)?, argument(3, 0.1)?, argument(5, 50)?);
    let case = SparseBenchmark { feature_count, density, options, round_count };

    let random_features: Vec<Vec<i64>> = (0..p).map(|rank| case.random_features(rank)).collect();
    let mut sums = vec![0.0f32; feature_count as usize];
    for features in &random_features {
        features.iter().for_each(|&index| sums[index as usize] += value(index));
    }
    let fabrics = ThreadFabric::group(p)?;
    let times: Vec<SparseResult<SparseTimes>> = std::thread::scope(|scope| {
        let ranks: Vec<_> = fabrics
            .into_iter()
            .zip(&random_features)
            .map(|(fabric, features)| scope.spawn(|| case.run(&Communicator::new(Box::new(fabric)), features, &sums)))
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    let times = times.into_iter().collect::<SparseResult<Vec<SparseTimes>>>()?;
    println!(
        "{p} ranks × {} threads, {feature_count} features, density {density}, {degrees}: {} rows on rank 0",
        case.options.threads,
        random_features[0].len()
    );
    for (name, select) in [
        ("configure", (|times| &times.configure) as fn(&SparseTimes) -> &Vec<Duration>),
        ("reduce", |times| &times.reduce),
        ("both in one pass", |times| &times.both),
    ] {
        let mut slowest: Vec<f64> = (0..select(&times[0]).len())
            .map(|round| times.iter().map(|rank| select(rank)[round].as_secs_f64()).fold(0.0, f64::max))
            .collect();
        slowest.sort_by(f64::total_cmp);
        let median = slowest[slowest.len() / 2];
        println!("{name:<17} best {:8.3} ms   median {:8.3} ms", 1e3 * slowest[0], 1e3 * median);
    }
    Ok(())
}

/// Return the argument at this position, or `default`.
fn argument<T: FromStr>(position: usize, default: T) -> SparseResult<T>
where
    T::Err: Error + Send + Sync + 'static,
{
    Ok(std::env::args().nth(position).map(|text| text.parse()).transpose()?.unwrap_or(default))
}

fn value(index: i64) -> f32 {
    (index % 7) as f32
}

impl SparseBenchmark {
    /// Return the features of a rank, ascending; the same in each run.
    fn random_features(&self, rank: usize) -> Vec<i64> {
        let mut state = rank as u64;
        let mut random = move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..self.feature_count as i64).filter(|_| random() < self.density).collect()
    }

    fn run(&self, comm: &Communicator, features: &[i64], sums: &[f32]) -> SparseResult<SparseTimes> {
        let schema = SparseSchema { element: Element::F32, width: 1, op: Op::Sum, row: ElementShape::Vector };
        let values: Vec<u8> = features.iter().flat_map(|&index| value(index).to_ne_bytes()).collect();
        let expected: Vec<u8> = features.iter().flat_map(|&index| sums[index as usize].to_ne_bytes()).collect();
        let mut into = vec![0; values.len()];
        let mut times = SparseTimes::default();
        let mut configured = comm.sparse(features, features, &self.options)?;
        for _ in 0..self.round_count.div_ceil(10) {
            comm.barrier(None)?;
            let started = Instant::now();
            configured = comm.sparse(features, features, &self.options)?;
            times.configure.push(started.elapsed());
            comm.barrier(None)?;
            let started = Instant::now();
            comm.sparse_reduce(features, &values, features, &mut into, schema, &self.options)?;
            times.both.push(started.elapsed());
            assert_eq!(into, expected, "both in one pass");
        }
        for _ in 0..self.round_count {
            into.fill(0);
            comm.barrier(None)?;
            let started = Instant::now();
            configured.reduce(&values, &mut into, schema)?;
            times.reduce.push(started.elapsed());
            assert_eq!(into, expected, "reduce");
        }
        Ok(times)
    }
}
