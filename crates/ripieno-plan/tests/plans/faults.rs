//! Fault detection of the plan checker: one invalid set of plans per kind of fault, with the position of the fault.

use crate::common::DataLayout;
use ripieno_plan::check::{check, check_common_elements, check_rendezvous_unless, check_unless};
use ripieno_plan::simulate::{Model, cost_s};
use ripieno_plan::{
    Algorithm, Buffer, Collective, FaultKind, Needs, Op, Plan, PlanFault, PlanRequest, Promise, PromisedSpan, Span,
    promises,
};
use std::cell::Cell;

fn vector() -> Span {
    Span::whole(Buffer::MAIN, 4, 4)
}

/// Return the fault that the checker finds in the plans of two ranks, which `write` fills and which must compute a sum.
fn fault_of_a_sum(write: impl Fn(&mut Plan, &mut Plan)) -> PlanFault {
    let (mut first, mut second) = (Plan::new(), Plan::new());
    write(&mut first, &mut second);
    let promise = Promise::combination(vector(), 2, Op::Sum);
    check(&[first, second], &[promise.clone(), promise]).unwrap_err()
}

#[test]
fn a_doubled_contribution_is_found() {
    let fault = fault_of_a_sum(|first, second| {
        first.reduce(1, vector(), Op::Sum);
        second.send(0, vector());
        second.reduce(0, vector(), Op::Sum);
        first.send(1, vector());
    });
    assert_eq!((fault.rank, fault.operation), (1, Some(1)));
    assert_eq!(fault.kind, FaultKind::Repeated { source: 1, count: 2 });
}

#[test]
fn a_missing_contribution_is_found() {
    let fault = fault_of_a_sum(|first, second| {
        first.reduce(1, vector(), Op::Sum);
        second.send(0, vector());
    });
    assert_eq!((fault.rank, fault.operation), (1, None));
    assert_eq!(fault.kind, FaultKind::Missing { source: 0 });
    assert_eq!(fault.to_string(), "rank 1, buffer 0 bytes 0..16: the contribution of rank 0 is missing");
}

#[test]
fn a_contribution_that_misses_one_element_is_found() {
    let fault = fault_of_a_sum(|first, second| {
        let part = vector().elements(0, 3);
        first.send(1, part);
        first.reduce(1, part, Op::Sum);
        second.send(0, part);
        second.reduce(0, part, Op::Sum);
    });
    assert_eq!(
        (fault.kind, fault.span.start_bytes..fault.span.end_bytes()),
        (FaultKind::Missing { source: 1 }, 12..16)
    );
}

#[test]
fn a_deadlock_is_found() {
    // Both ranks receive before they send.
    let fault = fault_of_a_sum(|first, second| {
        first.receive(1, vector());
        first.send(1, vector());
        second.receive(0, vector());
        second.send(0, vector());
    });
    assert_eq!((fault.rank, fault.operation), (0, Some(0)));
    assert_eq!(fault.kind, FaultKind::Deadlock { blocked: vec![(0, 0), (1, 0)] });
}

#[test]
fn a_deadlock_has_no_cost() {
    let mut plans = [Plan::new(), Plan::new()];
    for (rank, plan) in plans.iter_mut().enumerate() {
        plan.receive(1 - rank, vector());
        plan.send(1 - rank, vector());
    }
    let fault = cost_s(&plans, &Model::ROUNDS).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Deadlock { blocked: vec![(0, 0), (1, 0)] });
}

#[test]
fn a_deadlock_without_buffering_is_found() {
    // Rank 1 accepts the first element of rank 0 only after the second element of rank 2 has arrived. That element
    // waits until the second element of rank 0 has left. A link with a capacity of two elements would suffice, but
    // plans may only rely on one.
    let (pair, shifted) = (vector().elements(0, 2), vector().elements(1, 2));
    let mut plans = [Plan::new(), Plan::new(), Plan::new()];
    plans[0].send(1, pair);
    plans[0].receive(2, pair);
    plans[0].send(2, pair);
    plans[1].receive(2, pair);
    plans[1].receive(0, shifted);
    plans[2].send(0, pair);
    plans[2].receive(0, pair);
    plans[2].send(1, pair);
    let fault = check(&plans, &vec![Promise::nothing(); 3]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Deadlock { blocked: vec![(0, 0), (1, 0), (2, 1)] });
}

#[test]
fn different_sizes_are_found() {
    let fault = fault_of_a_sum(|first, second| {
        first.reduce(1, vector(), Op::Sum);
        second.send(0, vector().elements(0, 3));
    });
    assert_eq!((fault.rank, fault.operation), (0, Some(0)));
    assert_eq!(fault.kind, FaultKind::SizeMismatch { from: 1, send: 0, sent_bytes: 12 });
}

#[test]
fn bytes_that_are_never_received_are_found() {
    let fault = fault_of_a_sum(|first, _| first.send(1, vector()));
    assert_eq!((fault.rank, fault.operation, fault.kind), (0, Some(0), FaultKind::Undelivered { to: 1 }));
}

#[test]
fn bytes_that_are_never_sent_are_found() {
    let fault = fault_of_a_sum(|_, second| second.receive(0, vector()));
    assert_eq!((fault.rank, fault.operation, fault.kind), (1, Some(0), FaultKind::NeverSent { from: 0 }));
}

#[test]
fn a_peer_outside_the_group_is_found() {
    let fault = fault_of_a_sum(|_, second| second.send(2, vector()));
    assert_eq!((fault.rank, fault.kind), (1, FaultKind::NoSuchPeer { peer: 2 }));
    let fault = fault_of_a_sum(|_, second| second.send(1, vector()));
    assert_eq!((fault.rank, fault.kind), (1, FaultKind::NoSuchPeer { peer: 1 }));
}

#[test]
fn another_operation_than_promised_is_found() {
    let fault = fault_of_a_sum(|first, second| {
        for (plan, peer) in [(first, 1), (second, 0)] {
            plan.send(peer, vector());
            plan.reduce(peer, vector(), Op::Xor);
        }
    });
    assert_eq!(fault.kind, FaultKind::WrongOperation { found: Some(Op::Xor) });
}

#[test]
fn a_mixture_of_operations_is_found() {
    let mut plans = [Plan::new(), Plan::new(), Plan::new()];
    plans[0].reduce(1, vector(), Op::Sum);
    plans[0].reduce(2, vector(), Op::Prod);
    plans[1].send(0, vector());
    plans[2].send(0, vector());
    let fault = check(&plans, &vec![Promise::nothing(); 3]).unwrap_err();
    assert_eq!((fault.operation, fault.kind), (Some(1), FaultKind::MixedOperations { op: Op::Prod }));
}

#[test]
fn bytes_from_the_wrong_place_are_found() {
    let mut plans = [Plan::new(), Plan::new()];
    plans[0].send(1, vector().elements(1, 1));
    plans[1].receive(0, vector().elements(0, 1));
    let promise = Promise::copy(vector().elements(0, 1), 0, vector().elements(0, 1));
    let fault = check(&plans, &[Promise::nothing(), promise]).unwrap_err();
    assert_eq!((fault.rank, fault.kind), (1, FaultKind::Foreign { source: 0 }));
}

#[test]
fn a_copy_to_an_overlapping_span_is_found() {
    let mut plan = Plan::new();
    plan.copy(vector().elements(0, 2), vector().elements(1, 2));
    let fault = check(&[plan], &[Promise::nothing()]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Overlapping);
}

#[test]
fn results_that_round_differently_are_found() {
    // Every rank sends its vector to all others, and each rank combines in the order of the preceding ranks on the
    // ring.
    let scratch = |rank: usize| Span { buffer: Buffer(2 + rank as u16), ..vector() };
    let plan = |rank: usize| {
        let mut plan = Plan::new();
        plan.copy(vector(), scratch(rank));
        for distance in 1..3 {
            plan.send((rank + distance) % 3, scratch(rank));
            plan.reduce((rank + 3 - distance) % 3, vector(), Op::Sum);
        }
        plan
    };
    let promise = Promise::combination(vector(), 3, Op::Sum);
    let fault = check(&[plan(0), plan(1), plan(2)], &vec![promise; 3]).unwrap_err();
    assert_eq!((fault.rank, fault.kind), (1, FaultKind::DifferentBits { other: 0 }));
}

#[test]
fn a_local_combination_is_counted_once() {
    let (first, second) = (vector().elements(0, 2), vector().elements(2, 2));
    let both = |op| Promise {
        spans: vec![PromisedSpan { span: first, sources: vec![(0, first), (0, second)], op: Some(op) }],
    };
    let mut plan = Plan::new();
    plan.combine(second, first, Op::Sum);
    assert_eq!(check(&[plan.clone()], &[both(Op::Sum)]).unwrap().round_count, 0);
    assert_eq!(
        check(&[plan.clone()], &[both(Op::Min)]).unwrap_err().kind,
        FaultKind::WrongOperation { found: Some(Op::Sum) }
    );

    plan.combine(second, first, Op::Sum);
    assert_eq!(check(&[plan], &[both(Op::Sum)]).unwrap_err().kind, FaultKind::Repeated { source: 0, count: 2 });
}

/// The checker rejects the plans of every algorithm if one operation of one rank is removed.
#[test]
fn removing_any_operation_is_found() {
    for algorithm in ripieno_plan::catalogue::ALGORITHMS {
        let p = if algorithm.needs == Needs::EvenWorld { 6 } else { 5 };
        let layout = DataLayout::for_algorithm(algorithm, p, 13);
        let requests = layout.requests(algorithm.collective(), 1, 3, Op::Sum);
        let plans = algorithm.plans(&requests).unwrap();
        for rank in 0..p {
            for removed in 0..plans[rank].operations().len() {
                let mut broken = plans.clone();
                broken[rank] = without(&plans[rank], removed);
                let result = check(&broken, &promises(&requests));
                assert!(result.is_err(), "{} rank {rank} without {removed}", algorithm.name);
            }
        }
    }
}

fn without(plan: &Plan, removed: usize) -> Plan {
    let mut rest = Plan::new();
    for (index, operation) in plan.operations().iter().enumerate() {
        if index != removed {
            rest.push(operation.clone());
        }
    }
    rest
}

#[test]
fn a_read_of_unwritten_scratch_names_its_step() {
    let scratch = vector().placed(Buffer::SCRATCH, 0);
    let mut sender = Plan::new();
    sender.send(1, scratch);
    let mut receiver = Plan::new();
    receiver.receive(0, vector());

    let fault = check(&[sender, receiver], &[Promise::nothing(), Promise::nothing()]).unwrap_err();

    assert_eq!((fault.rank, fault.operation, fault.kind), (0, Some(0), FaultKind::Uninitialized));

    for local in [
        |plan: &mut Plan, span| plan.combine(span, vector(), Op::Sum),
        |plan: &mut Plan, span| plan.combine(vector(), span, Op::Sum),
    ] {
        let mut plan = Plan::new();
        local(&mut plan, scratch);
        assert_eq!(check(&[plan], &[Promise::nothing()]).unwrap_err().kind, FaultKind::Uninitialized);
    }
}

#[test]
fn plans_share_one_operation_and_one_element_size() {
    let mut plan = Plan::new();
    plan.reduce(1, vector(), Op::Sum);
    let mut other = Plan::new();
    other.send(0, vector());
    other.reduce(0, vector(), Op::Max);

    let fault = check_common_elements(&[plan.clone(), other]).unwrap_err();
    assert_eq!((fault.rank, fault.operation, fault.kind), (1, Some(1), FaultKind::OtherOperation { first: Op::Sum }));

    let mut wide = Plan::new();
    wide.send(0, Span { element_bytes: 2 * vector().element_bytes, ..vector() });
    let fault = check_common_elements(&[plan, wide]).unwrap_err();
    assert_eq!((fault.rank, fault.kind), (1, FaultKind::OtherElements { first_bytes: vector().element_bytes }));
}

#[test]
fn every_phase_of_a_check_can_be_interrupted() {
    let requests = vec![PlanRequest::Allreduce { vector: vector(), op: Op::Sum }; 24];
    let plans = Algorithm::by_name(Collective::Allreduce, "ring").unwrap().plans(&requests).unwrap();
    let promises = promises(&requests);
    // Return whether both checks end when `is_interrupted` holds from call `first` on, and the numbers of its calls.
    let ends = |first: usize| {
        let count = Cell::new(0);
        let is_interrupted = || count.replace(count.get() + 1) >= first;
        let checked = check_unless(&plans, &promises, &is_interrupted).unwrap().is_none();
        let checked_count = count.replace(0);
        (checked, !check_rendezvous_unless(&plans, &is_interrupted).unwrap(), checked_count, count.get())
    };
    let (is_interrupted, is_unbuffered_interrupted, count, unbuffered_count) = ends(usize::MAX);
    assert!(!is_interrupted && !is_unbuffered_interrupted && count > plans.len() && unbuffered_count > plans.len());
    assert!((0..count).all(|first| ends(first).0));
    assert!((0..unbuffered_count).all(|first| ends(first).1));
}
