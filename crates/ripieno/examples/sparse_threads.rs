//! Measures the local computation of a rank while it configures a sparse reduction, by thread count. Sends nothing.
//!
//!     sparse_threads [THREADS [FEATURES [DENSITY [DEGREE [ROUNDS]]]]]        (default: 2 60000000 0.21 8 5)
//!
//! The rank belongs to a group of DEGREE ranks. Each rank has random features with the given density; the messages of
//! the other ranks are prepared beforehand. Rounds with one thread and with THREADS threads alternate, and their
//! results are compared. Prints the median and the best of the rounds.

use ripieno_kernels::Threads;
use ripieno_plan::Op;
use ripieno_plan::sparse::sets::Sorted;
use ripieno_plan::sparse::team::{SingleThread, WorkPiece, WorkTeam, cut, each, ranges};
use ripieno_plan::sparse::{Configurator, DENSE_ABOVE, Degrees, Permutation};
use std::ops::Range;
use std::str::FromStr;
use std::time::Instant;

const STAGES: [&str; 6] =
    ["computing keys", "sorting", "copying", "writing messages", "reading messages", "computing routes"];

struct ThreadTeam(Threads);

impl WorkTeam for ThreadTeam {
    fn piece_count(&self, operations: usize) -> usize {
        self.0.part_count(operations)
    }

    fn compute(&self, operations: usize, pieces: Vec<WorkPiece<'_>>) {
        let of_each = operations / pieces.len().max(1);
        self.0.for_each(pieces, of_each, || (), |(), piece| piece());
    }
}

fn main() {
    let (threads, features, density) = (argument(1, 2), argument(2, 60_000_000), argument(3, 0.21));
    let (degree, rounds) = (argument(4, 8), argument(5, 5));
    let (permutation, degrees) = (Permutation::new(features), Degrees::direct(degree));
    let machine =
        |rank: usize, keys: Vec<u64>| Configurator::new(rank, &degrees, features, keys.clone(), keys, DENSE_ABOVE);
    let message = |rank: usize| {
        let keys: Vec<u64> = random_features(rank, features, density).map(|index| permutation.key(index)).collect();
        let messages = machine(rank, Sorted::of(&keys, false, &SingleThread).keys).outgoing(0, &SingleThread);
        (rank, messages.into_iter().find(|(to, _)| *to == 0).expect("a message to each other rank").1)
    };
    let messages: Vec<(usize, Vec<u8>)> = (1..degree).map(message).collect();
    let indices: Vec<u64> = random_features(0, features, density).collect();
    println!("{} of {features} features, a group of {degree}, {rounds} alternating rounds", indices.len());

    let (mut times, mut plans) = ([Vec::new(), Vec::new()], Vec::new());
    for _ in 0..rounds {
        for (count, times) in [1, threads].into_iter().zip(&mut times) {
            let team = ThreadTeam(Threads::new(count));
            let mut times_s = [0.0; STAGES.len()];
            let (mut started, mut next) = (Instant::now(), 0);
            let mut done = || {
                (times_s[next], next, started) = (started.elapsed().as_secs_f64(), next + 1, Instant::now());
            };
            let keys = keys_of(&indices, &permutation, &team);
            done();
            let sorted = Sorted::of(&keys, true, &team);
            done();
            let mut machine = machine(0, sorted.keys);
            done();
            drop(machine.outgoing(0, &team));
            done();
            machine.absorb(0, &messages, &team).expect("the messages are valid");
            done();
            let (routes, missing) = machine.finish(&team);
            done();
            times.push(times_s);
            let plan = (routes.plan(4, 4, Op::Sum), missing, sorted.positions, sorted.order);
            plans.push(plan);
            assert!(plans[0] == plans[plans.len() - 1], "the plan does not depend on the number of threads");
            plans.truncate(1);
        }
    }
    let all = |times_s: &[f64; STAGES.len()]| times_s.iter().sum();
    for stage in 0..=STAGES.len() {
        let of = |times: &[[f64; STAGES.len()]]| {
            let mut seconds: Vec<f64> =
                times.iter().map(|times_s| times_s.get(stage).copied().unwrap_or_else(|| all(times_s))).collect();
            seconds.sort_by(f64::total_cmp);
            (1e3 * seconds[0], 1e3 * seconds[seconds.len() / 2])
        };
        let [single, several] = [of(&times[0]), of(&times[1])];
        println!(
            "{:<22} 1 thread {:7.1} ms (best {:7.1})   {threads} threads {:7.1} ms (best {:7.1})   {:.2} times",
            STAGES.get(stage).unwrap_or(&"all"),
            single.1,
            single.0,
            several.1,
            several.0,
            single.1 / several.1
        );
    }
}

fn keys_of(indices: &[u64], permutation: &Permutation, team: &dyn WorkTeam) -> Vec<u64> {
    let (mut keys, operations) = (vec![0; indices.len()], 16 * indices.len());
    let pieces = ranges(team, operations, indices.len(), 1);
    let pieces = cut(&mut keys, pieces.iter().map(Range::len)).into_iter().zip(pieces).collect();
    each(team, operations, pieces, |(keys, piece): (&mut [u64], Range<usize>)| {
        keys.iter_mut().zip(&indices[piece]).for_each(|(key, &index)| *key = permutation.key(index));
    });
    keys
}

/// Return the features of a rank, ascending; the same in each run.
fn random_features(rank: usize, features: u64, density: f64) -> impl Iterator<Item = u64> {
    let mut state = rank as u64;
    let mut random = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..features).filter(move |_| random() < density)
}

/// Return the argument at this position, or `default`.
fn argument<T: FromStr>(position: usize, default: T) -> T {
    std::env::args().nth(position).map_or(default, |text| text.parse().ok().expect("arguments are numbers"))
}
