//! The predicted cost of every entry agrees with its plans: equal if exact, not exceeded for `Cost::AtMost`, and close
//! for `Cost::About`.

use crate::common::{DataLayout, ELEMENT_BYTES};
use ripieno_plan::catalogue::ALGORITHMS;
use ripieno_plan::simulate::Model;
use ripieno_plan::{Algorithm, Collective, Cost, Op, TheoryCase};

// Powers of two, so that sums are exact and equal means equal.
const MODEL: Model = Model { alpha_s: 4.0, beta_s_per_byte: 0.25, gamma_s_per_byte: 0.125 };

/// World sizes, each with a number of bytes that can be divided into whole elements per rank and into 64 segments.
fn cases() -> impl Iterator<Item = (usize, usize)> {
    (2..=33).map(|p| (p, p * 64 * ELEMENT_BYTES))
}

/// Check the cost of `algorithm` for vectors of `n` bytes. In an alltoall every chunk has `n` bytes.
fn check_cost(algorithm: &Algorithm, cost: Cost, p: usize, n: usize) -> Result<(), String> {
    let collective = algorithm.collective();
    // A rotation by 0 sends nothing.
    let root = usize::from(collective == Collective::Rotate);
    let layout = DataLayout::equal(p, n / ELEMENT_BYTES);
    let requests = layout.requests(collective, root, 1, Op::Sum);
    let Ok(plans) = algorithm.plans(&requests) else { return Ok(()) };
    let mut theory = algorithm.theory;
    theory.cost = cost;
    let checked = theory.check_cost(&TheoryCase::of(&requests), &plans, &MODEL);
    checked.map_err(|error| format!("{} {}: {error}", collective.name(), algorithm.name))
}

#[test]
fn every_algorithm_has_its_predicted_cost() {
    let wrong: Vec<String> = cases()
        .flat_map(|(p, n)| ALGORITHMS.iter().map(move |algorithm| check_cost(algorithm, algorithm.theory.cost, p, n)))
        .filter_map(Result::err)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_wrong_cost_is_reported_with_the_cost_of_the_plans() {
    let ring = Algorithm::by_name(Collective::Allreduce, "ring").unwrap();
    let reported = |cost| check_cost(ring, cost, 5, 5 * 256).unwrap_err();
    assert_eq!(
        reported(Cost::AtMost("(p-1)·alpha + (p-1)/p·n·beta")),
        "allreduce ring: expected 0 to 272.000000272 s, the plans take 672 (k 1, p 5, n 1280, root 0)"
    );
}
