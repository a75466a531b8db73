//! The cost formulae of the trees, of Bruck, and of halving and doubling, found again in the plans: exactly where they are
//! exact, never exceeded where they say "at most", nearly reached where they say "about".

mod common;

use common::{ELEMENT_BYTES, Layout};
use ripieno_plan::cost::{Model, cost_s, segmented};
use ripieno_plan::{Algorithm, Collective};

// Powers of two, so that sums are exact and equal means equal.
const ALPHA: f64 = 4.0;
const BETA: f64 = 0.25;
const GAMMA: f64 = 0.125;
const MODEL: Model = Model { alpha_s: ALPHA, beta_s_per_byte: BETA, gamma_s_per_byte: GAMMA };

/// The cost for vectors of `n` bytes in `k` segments; in an alltoall every chunk has `n` bytes.
fn cost(collective: Collective, name: &str, p: usize, n: usize, k: usize) -> f64 {
    let algorithm = Algorithm::by_name(collective, name).unwrap();
    let plans = Layout::equal(p, n / ELEMENT_BYTES).plans(algorithm, 0);
    let plans = if k == 1 { plans } else { segmented(&plans, n / k) };
    cost_s(&plans, &MODEL).unwrap()
}

/// World sizes, and a number of bytes that all of them divide into whole elements.
fn cases() -> impl Iterator<Item = (usize, usize)> {
    (2..=24).map(|p| (p, p * 64 * ELEMENT_BYTES))
}

fn ceil_log2(p: usize) -> f64 {
    p.next_power_of_two().ilog2().into()
}

fn ceil_log4(p: usize) -> f64 {
    (ceil_log2(p) / 2.0).ceil()
}

fn assert_equal(found: f64, expected: f64, case: &str) {
    assert!((found - expected).abs() <= 1e-9 * expected, "{case}: {found}, expected {expected}");
}

#[test]
fn halving_and_doubling_cost_what_their_headers_say_for_powers_of_two() {
    for (p, n) in cases().filter(|(p, _)| p.is_power_of_two()) {
        let part = (p - 1) as f64 * (n / p) as f64;
        let (there, work) = (ceil_log2(p) * ALPHA + part * BETA, part * GAMMA);
        let expected = [
            (Collective::ReduceScatter, "halving", there + work),
            (Collective::Allgather, "recursive-doubling", there),
            (Collective::Allreduce, "halving-doubling", 2.0 * there + work),
            (Collective::Reduce, "reduce-scatter-gather", 2.0 * there + work),
        ];
        for (collective, name, expected) in expected {
            assert_equal(cost(collective, name, p, n, 1), expected, &format!("{name}, p {p}"));
        }
    }
}

#[test]
fn for_other_world_sizes_runs_that_wrap_around_cost_up_to_six_tenths_more() {
    for (p, n) in cases() {
        let part = (p - 1) as f64 * (n / p) as f64;
        let (there, work) = (ceil_log2(p) * 2.0 * ALPHA + part * BETA, part * GAMMA);
        let at_most = [
            (Collective::ReduceScatter, "halving", there + work),
            (Collective::Allgather, "bruck", there),
            (Collective::Allgather, "recursive-doubling", there),
            (Collective::Allreduce, "halving-doubling", 2.0 * there + work),
            (Collective::Reduce, "reduce-scatter-gather", 2.0 * there + work),
        ];
        for (collective, name, limit) in at_most {
            // Ranks whose run is in two messages make the others wait, and later messages overtake the second.
            let found = cost(collective, name, p, n, 1);
            assert!(found <= 1.6 * limit, "{} {name}, p {p}: {found}, about {limit}", collective.name());
        }
    }
}

#[test]
fn alltoall_and_neighbours_cost_what_their_headers_say() {
    for (p, n) in cases() {
        let (others, chunk, all) = ((p - 1) as f64, n as f64, (p * n) as f64);
        let case = format!("p {p}");
        for name in ["direct", "pairwise"] {
            assert_equal(cost(Collective::Alltoall, name, p, n, 1), others * (ALPHA + chunk * BETA), &case);
        }
        if p.is_power_of_two() {
            let expected = ceil_log2(p) * (ALPHA + all / 2.0 * BETA);
            assert_equal(cost(Collective::Alltoall, "bruck", p, n, 1), expected, &case);
        }
        if p % 2 == 0 {
            let expected = (p / 2) as f64 * ALPHA + others * (n / p) as f64 * BETA;
            assert_equal(cost(Collective::Allgather, "neighbour-exchange", p, n, 1), expected, &case);
        }
    }
}

#[test]
fn scans_cost_what_their_headers_say() {
    for (p, n) in cases() {
        let case = format!("p {p}");
        let (bytes, message) = (n as f64, ALPHA + n as f64 * (BETA + GAMMA));
        assert_equal(cost(Collective::Scan, "recursive-doubling", p, n, 1), ceil_log2(p) * message, &case);
        let at_most = ceil_log2(p) * (message + bytes * GAMMA);
        assert!(cost(Collective::Exscan, "recursive-doubling", p, n, 1) <= at_most, "{case}");
        for k in [1, 16, 64] {
            let expected = (p + k - 2) as f64 * (ALPHA + (n / k) as f64 * (BETA + GAMMA));
            assert_equal(cost(Collective::Scan, "chain", p, n, k), expected, &case);
            assert!(cost(Collective::Exscan, "chain", p, n, k) <= expected, "{case}");
        }
    }
}

#[test]
fn trees_cost_no_more_than_their_headers_say() {
    for (p, n) in cases() {
        let (bytes, hops) = (n as f64, 3.0 * ceil_log4(p));
        let (there, back) = (ALPHA + bytes * BETA, ALPHA + bytes * (BETA + GAMMA));
        let at_most = [
            (Collective::Broadcast, "k-nomial", hops * there),
            (Collective::Reduce, "k-nomial", hops * back),
            (Collective::Allreduce, "tree", hops * (there + back)),
            (Collective::Allreduce, "one-round", (p - 1) as f64 * back),
            (Collective::Barrier, "tree", 2.0 * hops * (ALPHA + BETA + GAMMA)),
        ];
        for (collective, name, limit) in at_most {
            let found = cost(collective, name, p, n, 1);
            assert!(found <= limit, "{} {name}, p {p}: {found}, at most {limit}", collective.name());
        }
        for k in [1, 8, 64] {
            let segments = 2.0 * (f64::from(p.ilog2()) - 1.0 + k as f64);
            let (segment, work) = (ALPHA + (n / k) as f64 * BETA, (n / k) as f64 * GAMMA);
            let found = cost(Collective::Broadcast, "binary", p, n, k);
            assert!(found <= segments * segment, "p {p}, k {k}: {found}, at most {}", segments * segment);
            let found = cost(Collective::Reduce, "binary", p, n, k);
            assert!(found <= segments * (segment + work), "p {p}, k {k}: {found}");
        }
    }
}

/// Pipelined, all of a rank's links are busy all the time, up and down: half the time of a single binary tree.
#[test]
fn double_trees_cost_about_what_their_headers_say() {
    for (p, n) in cases().filter(|(p, _)| *p > 2) {
        for k in [16, 64] {
            let (depth, k) = (2.0 * ceil_log2(p), k);
            let (segment, work) = (ALPHA + (n / k) as f64 * BETA, (n / k) as f64 * GAMMA);
            let segments = depth + k as f64;
            let about = [
                (Collective::Broadcast, segments * segment),
                (Collective::Reduce, segments * (segment + work)),
                (Collective::Allreduce, 2.0 * segments * segment + segments * work),
            ];
            for (collective, expected) in about {
                let ratio = cost(collective, "double-tree", p, n, k) / expected;
                assert!((0.5..1.2).contains(&ratio), "{} p {p}, k {k}: {ratio}", collective.name());
            }
        }
    }
}
