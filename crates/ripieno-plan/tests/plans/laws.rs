//! Laws of all algorithms in the catalogue, for world sizes up to 64 (`common::world_sizes`) and every root. Here every
//! rank is its own node, so a two-level algorithm equals the algorithm selected between nodes. `two_levels.rs` tests
//! nodes with several ranks.

use crate::common::{DataLayout, roots, world_sizes};
use ripieno_plan::catalogue::ALGORITHMS;
use ripieno_plan::check::check;
use ripieno_plan::theory::TheoryError;
use ripieno_plan::{
    Algorithm, Buffer, Collective, FaultKind, Group, Needs, Op, Plan, PlanFault, Promise, Span, Theory, TheoryCase,
    choose_in_rank_order, promises,
};

const WORLD_SIZE_MAX: usize = 64;
/// Smaller than for the other laws, because the cost simulation of a plan takes longer than its check.
const COST_WORLD_SIZE_MAX: usize = 33;

/// Check all algorithms of a collective, and their bytes and hops against their theory.
fn law(collective: Collective) {
    for algorithm in Algorithm::of(collective) {
        for p in world_sizes(1, WORLD_SIZE_MAX) {
            for element_count in [2 * p + 3, p / 2, 0] {
                check_all_roots(algorithm, p, element_count, |case, plans| {
                    algorithm.theory.check(case, plans).map(|_| ())
                });
            }
        }
    }
}

/// Apply `check` to an algorithm for every root that it supports.
fn check_all_roots(
    algorithm: &Algorithm,
    p: usize,
    element_count: usize,
    check: impl Fn(&TheoryCase, &[Plan]) -> Result<(), TheoryError>,
) {
    let layout = DataLayout::for_algorithm(algorithm, p, element_count);
    for root in roots(algorithm.collective(), p) {
        let requests = layout.requests(algorithm.collective(), root, (root + 1 + p / 3) % p, Op::Sum);
        let Ok(plans) = algorithm.plans(&requests) else {
            assert_ne!(algorithm.needs, Needs::Nothing);
            return;
        };
        if let Err(error) = check(&TheoryCase::of(&requests), &plans) {
            panic!("{} {}, p {p}, root {root}: {error}", algorithm.collective().name(), algorithm.name);
        }
    }
}

#[test]
fn every_rank_ends_with_the_roots_vector() {
    law(Collective::Broadcast);
}

#[test]
fn every_contribution_reaches_the_root_exactly_once() {
    law(Collective::Reduce);
}

#[test]
fn every_contribution_reaches_every_rank_exactly_once_and_in_the_same_order() {
    law(Collective::Allreduce);
}

#[test]
fn every_chunk_reaches_every_rank() {
    law(Collective::Allgather);
}

#[test]
fn every_contribution_to_a_chunk_reaches_its_rank_exactly_once() {
    law(Collective::ReduceScatter);
}

#[test]
fn every_chunk_reaches_the_root() {
    law(Collective::Gather);
}

#[test]
fn every_chunk_reaches_its_rank() {
    law(Collective::Scatter);
}

#[test]
fn ranks_other_than_the_root_need_their_own_chunk_alone() {
    for algorithm in Algorithm::of(Collective::Gather).chain(Algorithm::of(Collective::Scatter)) {
        for p in world_sizes(1, COST_WORLD_SIZE_MAX) {
            for element_count in [2 * p + 3, p / 2, 0] {
                let layout = DataLayout::even(p, element_count);
                for root in 0..p {
                    if let Err(fault) = check_own_chunks(algorithm, &layout, root) {
                        let collective = algorithm.collective().name();
                        panic!("{collective} {}, p {p}, root {root}: {fault}", algorithm.name);
                    }
                }
            }
        }
    }
}

/// Check a gather or scatter in which ranks other than the root have their own chunk alone.
fn check_own_chunks(algorithm: &Algorithm, layout: &DataLayout, root: usize) -> Result<(), PlanFault> {
    let is_gather = algorithm.collective() == Collective::Gather;
    let mut plans = layout.plans(algorithm, root);
    let mut promises = vec![Promise::nothing(); plans.len()];
    for rank in (0..plans.len()).filter(|&rank| rank != root) {
        let (chunk, own) = (layout.chunks[rank], layout.chunks[rank].placed(Buffer::MAIN, 0));
        plans[rank] = std::mem::take(&mut plans[rank]).on_part(chunk);
        let in_main = |span: &Span| span.buffer == Buffer::MAIN;
        for operation in plans[rank].operations() {
            let spans = [operation.reads(), operation.writes()];
            assert!(
                spans.iter().flatten().filter(|span| in_main(span)).all(|span| span.end_bytes() <= own.end_bytes())
            );
            let changes = operation.writes().is_some_and(|span| in_main(&span) && span.length_bytes > 0);
            assert!(!(is_gather && changes), "a gather only reads the chunk of another rank");
        }
        match is_gather {
            true => promises[root] = std::mem::take(&mut promises[root]).and(Promise::copy(chunk, rank, own)),
            false => promises[rank] = Promise::copy(own, root, chunk),
        }
    }
    check(&plans, &promises).map(|_| ())
}

#[test]
fn every_chunk_reaches_its_receiver() {
    law(Collective::Alltoall);
}

#[test]
fn every_rank_waits_for_all_other_ranks() {
    law(Collective::Barrier);
}

#[test]
fn the_vector_reaches_the_receiver() {
    law(Collective::PointToPoint);
}

#[test]
fn every_contribution_reaches_its_own_and_all_higher_ranks_exactly_once() {
    law(Collective::Scan);
}

#[test]
fn every_contribution_reaches_all_higher_ranks_exactly_once() {
    law(Collective::Exscan);
}

#[test]
fn every_block_moves_by_the_distance() {
    law(Collective::Rotate);
}

#[test]
fn every_span_reaches_its_neighbor() {
    law(Collective::NeighbourExchange);
}

#[test]
fn every_algorithm_takes_the_predicted_number_of_rounds() {
    for algorithm in ALGORITHMS {
        for p in world_sizes(1, COST_WORLD_SIZE_MAX) {
            check_all_roots(algorithm, p, 2 * p + 3, |case, plans| algorithm.theory.check_rounds(case, plans));
        }
    }
}

#[test]
fn a_wrong_theory_is_reported_with_the_figures_of_the_plans() {
    let layout = DataLayout::even(5, 13);
    let reported = |change: fn(&mut Theory)| {
        let ring = Algorithm::by_name(Collective::Allreduce, "ring").unwrap();
        let mut theory = ring.theory;
        change(&mut theory);
        let requests = layout.requests(Collective::Allreduce, 0, 0, Op::Sum);
        let (case, plans) = (TheoryCase::of(&requests), ring.plans(&requests).unwrap());
        let checked = theory.check(&case, &plans).and_then(|_| theory.check_rounds(&case, &plans));
        checked.unwrap_err().to_string()
    };
    assert_eq!(
        reported(|theory| theory.sent_bytes = |case, _| 2 * (case.p - 1) * case.n / case.p),
        "expected 83 bytes, the plans send 80 (rank 0, p 5, n 52, root 0)"
    );
    assert_eq!(
        reported(|theory| theory.hops = |case| case.p..=case.p),
        "expected 5 hops, the plans take 8 (p 5, n 52, root 0)"
    );
    assert_eq!(
        reported(|theory| theory.rounds = |case| 1..=case.p),
        "expected 1 to 5 rounds, the plans take 8 (p 5, n 52, root 0)"
    );
}

#[test]
fn plans_that_break_their_promise_are_reported_before_their_theory() {
    let ring = Algorithm::by_name(Collective::Allreduce, "ring").unwrap();
    let layout = DataLayout::even(3, 6);
    let requests = layout.requests(Collective::Allreduce, 0, 0, Op::Sum);
    let nothing = vec![Plan::new(); 3];
    let error = ring.theory.check(&TheoryCase::of(&requests), &nothing).unwrap_err();
    assert!(matches!(error, TheoryError::Plans(PlanFault { kind: FaultKind::Missing { .. }, .. })), "{error}");
}

#[test]
fn every_operation_is_used_as_requested() {
    for op in Op::ALL {
        let combining = [Collective::Reduce, Collective::Allreduce, Collective::ReduceScatter];
        for collective in combining.into_iter().chain([Collective::Scan, Collective::Exscan]) {
            for algorithm in Algorithm::of(collective) {
                let layout = DataLayout::even(6, 15);
                let requests = layout.requests(collective, 2, 0, op);
                check(&algorithm.plans(&requests).unwrap(), &promises(&requests)).unwrap();
            }
        }
    }
}

/// The checker rejects operands that are not in rank order.
#[test]
fn a_function_combines_in_rank_order_or_is_rejected() {
    let combining = [Collective::Reduce, Collective::Allreduce, Collective::ReduceScatter];
    for collective in combining.into_iter().chain([Collective::Scan, Collective::Exscan]) {
        let chosen = choose_in_rank_order(collective).unwrap();
        for algorithm in Algorithm::of(collective) {
            assert_eq!(algorithm.in_rank_order, std::ptr::eq(algorithm, chosen), "{}", algorithm.name);
            for p in world_sizes(1, COST_WORLD_SIZE_MAX) {
                for root in roots(collective, p) {
                    let layout = DataLayout::even(p, 2 * p + 3);
                    let requests = layout.requests(collective, root, 0, Op::Function);
                    match algorithm.plans(&requests) {
                        Ok(plans) => drop(check(&plans, &promises(&requests)).unwrap()),
                        Err(rejected) => assert!(rejected.to_string().contains("needs a commutative operation")),
                    }
                }
            }
        }
    }
}

#[test]
fn operands_that_are_not_in_rank_order_are_a_fault() {
    let vector = Span::whole(Buffer::MAIN, 4, 1);
    let (mut first, mut second) = (Plan::new(), Plan::new());
    first.send(1, vector);
    second.reduce(0, vector, Op::Function);
    let fault =
        check(&[first, second], &[Promise::nothing(), Promise::combination(vector, 2, Op::Function)]).unwrap_err();
    assert!(fault.to_string().contains("not in rank order"), "{fault}");
}

#[test]
fn a_single_rank_sends_nothing() {
    for algorithm in ALGORITHMS {
        let layout = DataLayout::for_algorithm(algorithm, 1, 5);
        let plan = &layout.plans(algorithm, 0)[0];
        let to_itself = [Collective::Alltoall, Collective::Rotate, Collective::NeighbourExchange];
        let copy_count = usize::from(to_itself.contains(&algorithm.collective()));
        assert_eq!(plan.operations().len(), copy_count, "{}", algorithm.name);
    }
}

#[test]
fn an_unsupported_request_is_reported() {
    let bruck = Algorithm::by_name(Collective::Alltoall, "bruck").unwrap();
    let requested = |layout: &DataLayout| bruck.plans(&layout.requests(Collective::Alltoall, 0, 0, Op::Sum));
    assert!(requested(&DataLayout::equal(5, 3)).is_ok());
    let rejected = requested(&DataLayout::even(5, 3)).unwrap_err();
    assert_eq!(rejected.to_string(), "bruck needs equally long chunks on all ranks");

    let by_neighbors = Algorithm::by_name(Collective::Allgather, "neighbour-exchange").unwrap();
    let requested =
        |p: usize| by_neighbors.plans(&DataLayout::even(p, 9).requests(Collective::Allgather, 0, 0, Op::Sum));
    assert!((1..=8).filter(|&p| requested(p).is_ok()).eq([1, 2, 4, 6, 8]));
}

/// If chunks are not in rank order, only algorithms that send several chunks in one message fail.
#[test]
fn an_algorithm_that_joins_no_chunks_accepts_chunks_at_any_position() {
    let placed =
        |p: usize| -> Vec<Span> { (0..p).map(|rank| DataLayout::even(p, 3 * p).chunks[p - 1 - rank]).collect() };
    for collective in [Collective::Allgather, Collective::ReduceScatter] {
        for algorithm in Algorithm::of(collective).filter(|algorithm| !algorithm.joins_chunks) {
            for p in 1..=9 {
                let layout = DataLayout { chunks: placed(p), ..DataLayout::even(p, 3 * p) };
                let requests = layout.requests(collective, 0, 0, Op::Sum);
                let result = check(&algorithm.plans(&requests).unwrap(), &promises(&requests));
                assert!(result.is_ok(), "{} {}, p {p}: {result:?}", collective.name(), algorithm.name);
            }
        }
    }
}

#[test]
fn names_and_indices_are_unique_within_a_collective() {
    for algorithm in ALGORITHMS {
        let collective = algorithm.collective();
        let by_name = Algorithm::by_name(collective, algorithm.name).unwrap();
        let by_index = Algorithm::by_index(collective, algorithm.index).unwrap();
        assert!(std::ptr::eq(by_name, algorithm) && std::ptr::eq(by_index, algorithm), "{}", algorithm.name);
    }
}

/// A file that is not in the list is not compiled, so no other check detects it.
#[test]
fn every_file_of_an_algorithm_is_in_the_list() {
    let files = |folder: &str| {
        let path = format!("{}/src/algorithms/{folder}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_dir(path).unwrap_or_else(|error| panic!("algorithms/{folder}: {error}")).count()
    };
    for collective in Collective::catalogued() {
        let listed = Algorithm::of(collective).count();
        assert_eq!(files(&collective.name().replace('-', "_")), listed, "{}", collective.name());
    }
}

#[test]
fn every_choice_is_an_algorithm_of_its_collective() {
    for collective in Collective::catalogued() {
        for p in world_sizes(1, WORLD_SIZE_MAX) {
            for bytes in [0, 1, 1 << 14, (1 << 14) + 1, 1 << 20, 1 << 30] {
                assert_eq!(ripieno_plan::choose(collective, &Group::new(0, p), bytes).collective(), collective);
            }
        }
    }
}
