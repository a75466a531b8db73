//! Closed-form costs of the papers, compared with the plans. The crate itself contains only the plans.

use crate::common::{DataLayout, ELEMENT_BYTES};
use ripieno_plan::simulate::{Model, cost_s, segmented};
use ripieno_plan::{Algorithm, Collective};

// Powers of two, so that sums are exact and can be compared for equality.
const ALPHA: f64 = 4.0;
const BETA: f64 = 0.25;
const GAMMA: f64 = 0.125;
const MODEL: Model = Model { alpha_s: ALPHA, beta_s_per_byte: BETA, gamma_s_per_byte: GAMMA };

/// Return the cost for vectors, or all chunks together, of `n` bytes.
fn cost(collective: Collective, name: &str, p: usize, n: usize) -> f64 {
    let algorithm = Algorithm::by_name(collective, name).unwrap();
    cost_s(&DataLayout::even(p, n / ELEMENT_BYTES).plans(algorithm, 0), &MODEL).unwrap()
}

fn pipelined(collective: Collective, name: &str, p: usize, n: usize, k: usize) -> f64 {
    let algorithm = Algorithm::by_name(collective, name).unwrap();
    let plans = DataLayout::even(p, n / ELEMENT_BYTES).plans(algorithm, 0);
    cost_s(&segmented(&plans, n / k), &MODEL).unwrap()
}

/// World sizes, each with a number of bytes that can be divided into whole elements per rank.
fn cases() -> impl Iterator<Item = (usize, usize)> {
    (2..=24).map(|p| (p, p * 64 * ELEMENT_BYTES))
}

fn ceil_log2(p: usize) -> f64 {
    p.next_power_of_two().ilog2().into()
}

/// Eq. 1 counts `p` ranks including the driver.
#[test]
fn binomial_broadcast_costs_twisters_equation_1() {
    for (p, n) in cases() {
        let expected = ceil_log2(p) * (ALPHA + n as f64 * BETA);
        assert_eq!(cost(Collective::Broadcast, "binomial", p, n), expected, "p {p}");
    }
}

#[test]
fn scatter_allgather_broadcast_costs_twisters_equation_2() {
    for (p, n) in cases() {
        let chunk = (n / p) as f64;
        let expected = (ceil_log2(p) + p as f64 - 1.0) * ALPHA + 2.0 * (p - 1) as f64 * chunk * BETA;
        assert_eq!(cost(Collective::Broadcast, "scatter-allgather", p, n), expected, "p {p}");
    }
}

/// Eq. 3 with `p` ranks including the driver: the first of `k` segments makes `p-1` hops, the others follow.
#[test]
fn chain_broadcast_costs_twisters_equation_3() {
    for (p, n) in cases() {
        for k in [1, 2, 8, 64] {
            let expected = (p + k - 2) as f64 * (ALPHA + (n / k) as f64 * BETA);
            assert_eq!(pipelined(Collective::Broadcast, "chain", p, n, k), expected, "p {p}, k {k}");
        }
    }
}

#[test]
fn chain_reduce_costs_equation_3_plus_the_combining_time() {
    for (p, n) in cases() {
        let k = 16;
        let expected = (p + k - 2) as f64 * (ALPHA + (n / k) as f64 * (BETA + GAMMA));
        assert_eq!(pipelined(Collective::Reduce, "chain", p, n, k), expected, "p {p}");
    }
}

/// Harp's table I omits alpha and gamma and rounds `p-1` to `p`. Its `n` is the data of one process.
mod harp_table_1 {
    use super::*;

    const BETA_ONLY: Model = Model { alpha_s: 0.0, beta_s_per_byte: BETA, gamma_s_per_byte: 0.0 };

    fn beta_cost(collective: Collective, name: &str, p: usize, total_bytes: usize) -> f64 {
        let algorithm = Algorithm::by_name(collective, name).unwrap();
        cost_s(&DataLayout::even(p, total_bytes / ELEMENT_BYTES).plans(algorithm, 0), &BETA_ONLY).unwrap()
    }

    #[test]
    fn chain_broadcast_costs_n_beta() {
        let (p, n, k) = (16, 1 << 16, 1 << 12);
        let algorithm = Algorithm::by_name(Collective::Broadcast, "chain").unwrap();
        let plans = DataLayout::even(p, n / ELEMENT_BYTES).plans(algorithm, 0);
        let found = cost_s(&segmented(&plans, n / k), &BETA_ONLY).unwrap();
        let limit = n as f64 * BETA;
        assert!(found >= limit && found <= limit * (1.0 + p as f64 / k as f64), "{found} for {limit}");
    }

    #[test]
    fn bucket_allgather_costs_p_n_beta() {
        for (p, n) in cases() {
            let expected = (p - 1) as f64 * n as f64 * BETA;
            assert_eq!(beta_cost(Collective::Allgather, "ring", p, p * n), expected, "p {p}");
        }
    }

    #[test]
    fn bidirectional_exchange_costs_log_p_n_beta() {
        for p in [2, 4, 8, 16, 32] {
            let n = 1 << 12;
            let expected = ceil_log2(p) * n as f64 * BETA;
            assert_eq!(beta_cost(Collective::Allreduce, "bidirectional-exchange", p, n), expected, "p {p}");
        }
    }

    #[test]
    fn regroup_allgather_costs_2_n_beta() {
        for (p, n) in cases() {
            let expected = 2.0 * (p - 1) as f64 * (n / p) as f64 * BETA;
            assert_eq!(beta_cost(Collective::Allreduce, "regroup-allgather", p, n), expected, "p {p}");
        }
    }

    #[test]
    fn regroup_costs_n_beta() {
        for (p, n) in cases() {
            let expected = (p - 1) as f64 * (n / p) as f64 * BETA;
            assert_eq!(beta_cost(Collective::ReduceScatter, "direct", p, n), expected, "p {p}");
        }
    }
}
