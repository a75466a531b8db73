//! Simulated times compared with the cost of plans, the formulas of the papers, and the theoretical byte counts.

#[path = "../../ripieno-plan/tests/common/mod.rs"]
mod common;

use common::{DataLayout, ELEMENT_BYTES, roots, world_sizes};
use ripieno_plan::catalogue::ALGORITHMS;
use ripieno_plan::simulate::{Model, cost_s};
use ripieno_plan::{Algorithm, Collective, Op, Plan, TheoryCase};
use ripieno_sim::{Cluster, PlanSimulation, simulate};

// Powers of two: sums are exact and can be compared for equality.
const ALPHA: f64 = 4.0;
const BETA: f64 = 0.25;
const GAMMA: f64 = 0.125;
const MODEL: Model = Model { alpha_s: ALPHA, beta_s_per_byte: BETA, gamma_s_per_byte: GAMMA };
const BETA_ONLY: Model = Model { alpha_s: 0.0, gamma_s_per_byte: 0.0, ..MODEL };

/// Tolerance for sums of the same terms in a different order.
const ROUNDING: f64 = 1e-9;

fn simulated(cluster: &Cluster, plans: &[Plan]) -> PlanSimulation {
    simulate(cluster, plans.iter().cloned(), &|| false).unwrap()
}

#[track_caller]
pub(crate) fn assert_close(found_s: f64, expected_s: f64, case_text: &str) {
    let is_close = (found_s - expected_s).abs() <= ROUNDING * expected_s;
    assert!(is_close, "{case_text}: {found_s} s, expected {expected_s} s");
}

/// Return world sizes, each with a number of bytes that divides into whole elements per rank.
fn cases() -> impl Iterator<Item = (usize, usize)> {
    (2..=24).map(|p| (p, p * 64 * ELEMENT_BYTES))
}

fn time_s(collective: Collective, name: &str, p: usize, n: usize, model: &Model, segments: Option<usize>) -> f64 {
    let algorithm = Algorithm::by_name(collective, name).unwrap();
    let mut cluster = Cluster::uniform(p, model);
    cluster.segment_bytes = segments.map(|k| n / k);
    simulated(&cluster, &DataLayout::even(p, n / ELEMENT_BYTES).plans(algorithm, 0)).time_s().unwrap()
}

#[test]
fn on_equal_links_every_algorithm_takes_the_time_of_its_cost_formula() {
    for algorithm in ALGORITHMS {
        for p in world_sizes(1, 33) {
            let layout = DataLayout::for_algorithm(algorithm, p, p * 16 + 3);
            let roots = roots(algorithm.collective(), p);
            for root in [0, p / 2, p - 1].into_iter().filter(|root| roots.contains(root)) {
                let peer = (root + 1) % p;
                let requests = layout.requests(algorithm.collective(), root, peer, Op::Sum);
                let Ok(plans) = algorithm.plans(&requests) else { continue };
                let case_text = format!("{} {} p {p} root {root}", algorithm.collective().name(), algorithm.name);
                let found = simulated(&Cluster::uniform(p, &MODEL), &plans);
                assert!(found.time_s().is_some(), "{case_text}: it never completes");
                // The cost ends with the last message. Only the simulation includes the combining after it.
                let last_s = found.transfers.last().map_or(0.0, |transfer| transfer.end_s);
                assert_close(last_s, cost_s(&plans, &MODEL).unwrap(), &case_text);
            }
        }
    }
}

#[test]
fn every_rank_sends_and_receives_the_bytes_of_theory_for_any_network() {
    for algorithm in ALGORITHMS {
        for p in world_sizes(1, 33) {
            let layout = DataLayout::for_algorithm(algorithm, p, p * 16 + 3);
            let roots = roots(algorithm.collective(), p);
            for root in [0, p / 2, p - 1].into_iter().filter(|root| roots.contains(root)) {
                let peer = (root + 1) % p;
                let requests = layout.requests(algorithm.collective(), root, peer, Op::Sum);
                let Ok(plans) = algorithm.plans(&requests) else { continue };
                let case = TheoryCase::of(&requests);
                let mut cluster = Cluster::uniform(p, &MODEL);
                cluster.segment_bytes = Some(64);
                let found = simulated(&cluster, &plans);
                let case_text = format!("{} {} p {p} root {root}", algorithm.collective().name(), algorithm.name);
                assert!(found.time_s().is_some(), "{case_text}: it never completes");
                let theory: Vec<usize> = (0..p).map(|rank| (algorithm.theory.sent_bytes)(&case, rank)).collect();
                assert_eq!(found.sent_bytes, theory, "{case_text}");
                let arrived: usize = found.transfers.iter().map(|transfer| transfer.length_bytes).sum();
                assert_eq!(arrived, theory.iter().sum(), "{case_text}");
            }
        }
    }
}

/// The port of a rank must carry all its bytes, so segments cannot reduce the time below this bound.
#[test]
fn no_simulation_is_faster_than_its_busiest_wire() {
    for algorithm in ALGORITHMS {
        for p in [2, 3, 7, 16, 33] {
            let layout = DataLayout::for_algorithm(algorithm, p, p * 64);
            let requests = layout.requests(algorithm.collective(), 0, 1 % p, Op::Sum);
            let Ok(plans) = algorithm.plans(&requests) else { continue };
            for segment_bytes in [None, Some(32), Some(1 << 20)] {
                let mut cluster = Cluster::uniform(p, &MODEL);
                cluster.segment_bytes = segment_bytes;
                let found = simulated(&cluster, &plans);
                let busy_s = found.busiest().map_or(0.0, |load| load.busy_s);
                let case_text = format!("{} {} p {p}", algorithm.collective().name(), algorithm.name);
                assert!(found.time_s().unwrap() >= busy_s * (1.0 - ROUNDING), "{case_text}, {segment_bytes:?}");
            }
        }
    }
}

mod twister {
    use super::*;

    #[test]
    fn a_binomial_broadcast_takes_equation_1() {
        for (p, n) in cases() {
            let expected = f64::from(p.next_power_of_two().ilog2()) * (ALPHA + n as f64 * BETA);
            assert_close(time_s(Collective::Broadcast, "binomial", p, n, &MODEL, None), expected, &format!("p {p}"));
        }
    }

    #[test]
    fn a_scatter_allgather_broadcast_takes_equation_2() {
        for (p, n) in cases() {
            let rounds = f64::from(p.next_power_of_two().ilog2()) + p as f64 - 1.0;
            let expected = rounds * ALPHA + 2.0 * (p - 1) as f64 * (n / p) as f64 * BETA;
            let found = time_s(Collective::Broadcast, "scatter-allgather", p, n, &MODEL, None);
            assert_close(found, expected, &format!("p {p}"));
        }
    }

    #[test]
    fn a_chain_broadcast_takes_equation_3_in_any_number_of_segments() {
        for (p, n) in cases() {
            for k in [1, 2, 8, 64] {
                let expected = (p + k - 2) as f64 * (ALPHA + (n / k) as f64 * BETA);
                let found = time_s(Collective::Broadcast, "chain", p, n, &MODEL, Some(k));
                assert_close(found, expected, &format!("p {p}, k {k}"));
            }
        }
    }

    #[test]
    fn a_chain_reduction_takes_equation_3_plus_the_combining_time() {
        for (p, n) in cases() {
            let k = 16;
            let expected = (p + k - 2) as f64 * (ALPHA + (n / k) as f64 * (BETA + GAMMA));
            assert_close(time_s(Collective::Reduce, "chain", p, n, &MODEL, Some(k)), expected, &format!("p {p}"));
        }
    }
}

/// Harp's table I omits alpha and gamma and rounds `p-1` to `p`. There `n` is the data size of one process.
mod harp_table_1 {
    use super::*;

    #[test]
    fn a_chain_broadcast_takes_n_beta() {
        let (p, n, k) = (16, 1 << 16, 1 << 12);
        let found = time_s(Collective::Broadcast, "chain", p, n, &BETA_ONLY, Some(k));
        assert_close(found, n as f64 * BETA * (1.0 + (p - 2) as f64 / k as f64), "chain");
    }

    #[test]
    fn a_bucket_allgather_takes_p_n_beta() {
        for (p, n) in cases() {
            let expected = (p - 1) as f64 * n as f64 * BETA;
            assert_close(
                time_s(Collective::Allgather, "ring", p, p * n, &BETA_ONLY, None),
                expected,
                &format!("p {p}"),
            );
        }
    }

    #[test]
    fn a_bidirectional_exchange_takes_log_p_n_beta() {
        for p in [2_usize, 4, 8, 16, 32] {
            let n = 1_usize << 12;
            let expected = f64::from(p.ilog2()) * n as f64 * BETA;
            let found = time_s(Collective::Allreduce, "bidirectional-exchange", p, n, &BETA_ONLY, None);
            assert_close(found, expected, &format!("p {p}"));
        }
    }

    #[test]
    fn a_regroup_allgather_takes_2_n_beta() {
        for (p, n) in cases() {
            let expected = 2.0 * (p - 1) as f64 * (n / p) as f64 * BETA;
            let found = time_s(Collective::Allreduce, "regroup-allgather", p, n, &BETA_ONLY, None);
            assert_close(found, expected, &format!("p {p}"));
        }
    }

    #[test]
    fn a_regroup_takes_n_beta() {
        for (p, n) in cases() {
            let expected = (p - 1) as f64 * (n / p) as f64 * BETA;
            let found = time_s(Collective::ReduceScatter, "direct", p, n, &BETA_ONLY, None);
            assert_close(found, expected, &format!("p {p}"));
        }
    }
}
