//! Faults found by the checker in plans with index maps and constants: one broken set of plans for every kind of fault.

use crate::common::sparse::{
    ROW_BYTES, main, one_rank_plan, output, rows, scratch, sparse, two_rank_plans, two_rank_promises,
};
use ripieno_plan::check::{Report, check};
use ripieno_plan::simulate::{Model, cost_s};
use ripieno_plan::{Constant, FaultKind, Op, Operation, Plan, PlanFault, Promise, PromisedSpan, Rows, Span};

fn fault(plans: &[Plan], promises: &[Promise]) -> PlanFault {
    check(plans, promises).unwrap_err()
}

#[test]
fn a_row_in_the_wrong_place_is_found() {
    let [mut first, second] = two_rank_plans();
    first = replaced(&first, 2, |rows| *rows = self::rows([0, 1]));
    let fault = fault(&[first, second], &two_rank_promises());
    // Key 2, row 1 of the union, now has a contribution of rank 0.
    assert_eq!((fault.rank, fault.span.start_bytes, fault.kind), (0, 0, FaultKind::Foreign { source: 0 }));
}

#[test]
fn a_missing_row_is_found() {
    let mut plan = one_rank_plan();
    plan = replaced(&plan, 3, |rows| *rows = self::rows([3]));
    let fault = fault(&[plan], &sparse([&[2, 5, 7]], [&[5, 9, 7]]));
    assert_eq!((fault.operation, fault.kind), (Some(3), FaultKind::Missing { source: 0 }));
}

#[test]
fn a_doubled_row_is_found_with_the_operation_that_wrote_it_last() {
    let [mut first, second] = two_rank_plans();
    first.combine_rows(main(1, 1), scratch(0, 3), rows([2]), Op::Sum);
    first.combine_rows(main(0, 1), scratch(0, 3), rows([0]), Op::Sum);
    let promise = Promise { spans: vec![PromisedSpan { span: scratch(2, 1), sources: key_4(), op: Some(Op::Sum) }] };
    let fault = fault(&[first, second], &[promise, Promise::nothing()]);
    assert_eq!((fault.operation, fault.kind), (Some(6), FaultKind::Repeated { source: 0, count: 2 }));
}

/// The sources of key 4 in [`two_rank_plans`].
fn key_4() -> Vec<(usize, Span)> {
    vec![(0, main(1, 1)), (1, main(1, 1))]
}

#[test]
fn another_operation_is_found() {
    let with = |op: Op| {
        let mut plan = Plan::new();
        plan.fill(scratch(0, 2), Constant::Identity(op));
        plan.combine_rows(main(0, 1), scratch(0, 2), rows([1]), op);
        plan.combine_rows(main(1, 1), scratch(0, 2), rows([1]), op);
        plan
    };
    let sources = vec![(0, main(0, 1)), (0, main(1, 1))];
    let promise = Promise { spans: vec![PromisedSpan { span: scratch(1, 1), sources, op: Some(Op::Sum) }] };
    check(&[with(Op::Sum)], std::slice::from_ref(&promise)).unwrap();
    assert_eq!(fault(&[with(Op::Prod)], &[promise]).kind, FaultKind::WrongOperation { found: Some(Op::Prod) });
}

#[test]
fn an_identity_of_another_operation_is_found() {
    let filled = |with: Constant| {
        let mut plan = Plan::new();
        plan.fill(scratch(0, 2), with);
        plan.combine_rows(main(0, 1), scratch(0, 2), rows([1]), Op::Min);
        check(&[plan], &[Promise::copy(scratch(1, 1), 0, main(0, 1))])
    };
    filled(Constant::Identity(Op::Min)).unwrap();
    for with in [Constant::Zero, Constant::Identity(Op::Max)] {
        let fault = filled(with).unwrap_err();
        assert_eq!((fault.operation, fault.kind), (Some(1), FaultKind::MixedOperations { op: Op::Min }));
    }
    let mut plan = Plan::new();
    plan.fill(scratch(0, 1), Constant::Identity(Op::Max));
    plan.combine_rows(scratch(0, 1), main(0, 2), rows([1]), Op::Min);
    assert_eq!(fault(&[plan], &[Promise::nothing()]).kind, FaultKind::MixedOperations { op: Op::Min });
}

#[test]
fn another_constant_is_found() {
    let mut plan = Plan::new();
    plan.fill(output(0, 1), Constant::Identity(Op::Min));
    let constant = |op| [Promise { spans: vec![PromisedSpan { span: output(0, 1), sources: Vec::new(), op }] }];
    check(std::slice::from_ref(&plan), &constant(Some(Op::Min))).unwrap();
    assert_eq!(fault(&[plan], &constant(None)).kind, FaultKind::WrongOperation { found: Some(Op::Min) });
    assert_eq!(fault(&[Plan::new()], &constant(None)).kind, FaultKind::Foreign { source: 0 });
    // Zeros are the identity of a sum.
    let mut plan = Plan::new();
    plan.fill(output(0, 1), Constant::Zero);
    check(std::slice::from_ref(&plan), &constant(Some(Op::Sum))).unwrap();
    assert_eq!(fault(&[plan], &constant(Some(Op::Max))).kind, FaultKind::WrongOperation { found: None });
}

#[test]
fn missing_indices_get_zeros() {
    let filled = |with: Constant| {
        let mut plan = Plan::new();
        plan.fill(output(0, 1), with);
        check(&[plan], &[Promise::sparse(&[vec![3, 9]], &[5], main(0, 1), Op::Min)])
    };
    filled(Constant::Zero).unwrap();
    assert!(filled(Constant::Identity(Op::Min)).is_err());
}

/// Check two ranks that combine the same three rows with different plans.
fn combined_by(plans: [Plan; 2], op: Op) -> Result<Report, PlanFault> {
    let [first, second] = plans;
    let (mut sender, mut receiver) = (Plan::new(), Plan::new());
    sender.send(1, main(0, 3));
    receiver.receive(0, main(0, 3));
    let plans = [sender.then(first), receiver.then(second)];
    let sources = (0..3).map(|row| (0, main(row, 1))).collect();
    let promise = Promise { spans: vec![PromisedSpan { span: scratch(1, 1), sources, op: Some(op) }] };
    check(&plans, &[promise.clone(), promise])
}

#[test]
fn rows_that_round_differently_are_found() {
    let plan = |order: [usize; 3]| {
        let mut plan = Plan::new();
        plan.fill(scratch(0, 3), Constant::Identity(Op::Sum));
        for row in order {
            plan.combine_rows(main(row, 1), scratch(0, 3), rows([1]), Op::Sum);
        }
        plan
    };
    combined_by([plan([0, 1, 2]), plan([0, 1, 2])], Op::Sum).unwrap();
    let fault = combined_by([plan([0, 1, 2]), plan([1, 2, 0])], Op::Sum).unwrap_err();
    assert_eq!((fault.rank, fault.operation, fault.kind), (1, Some(4), FaultKind::DifferentBits { other: 0 }));
}

#[test]
fn an_added_zero_is_found() {
    // Zero added to -0.0 gives 0.0. A product with one leaves any value unchanged.
    let combined = |op| {
        let [mut filled, mut copied] = [Plan::new(), Plan::new()];
        filled.fill(scratch(1, 1), Constant::Identity(op));
        filled.combine(main(0, 1), scratch(1, 1), op);
        copied.copy(main(0, 1), scratch(1, 1));
        for row in 1..3 {
            filled.combine(main(row, 1), scratch(1, 1), op);
            copied.combine(main(row, 1), scratch(1, 1), op);
        }
        combined_by([filled, copied], op)
    };
    assert_eq!(combined(Op::Sum).unwrap_err().kind, FaultKind::DifferentBits { other: 0 });
    combined(Op::Prod).unwrap();
}

#[test]
fn another_number_of_rows_is_found() {
    let [mut first, second] = two_rank_plans();
    first = replaced(&first, 4, |rows| *rows = self::rows([0, 1, 2]));
    let fault = fault(&[first, second], &two_rank_promises());
    assert_eq!((fault.rank, fault.operation), (1, Some(4)));
    assert_eq!(fault.kind, FaultKind::SizeMismatch { from: 0, send: 4, sent_bytes: 3 * ROW_BYTES });
}

#[test]
fn a_local_copy_between_different_lengths_is_found() {
    let mut plan = Plan::new();
    plan.push(Operation::Copy { from: main(0, 4), to: scratch(0, 4), rows: Some(rows([0, 2])) });
    let fault = fault(&[plan], &[Promise::nothing()]);
    assert_eq!(fault.kind, FaultKind::SizeMismatch { from: 0, send: 0, sent_bytes: 2 * ROW_BYTES });
}

#[test]
fn a_row_beyond_its_span_is_found() {
    let plans = |row: u32| {
        let (mut first, mut second) = (Plan::new(), Plan::new());
        first.send_rows(1, main(0, 3), rows([0, row]));
        second.receive(0, output(0, 2));
        [first, second]
    };
    check(&plans(2), &vec![Promise::nothing(); 2]).unwrap();
    let fault = fault(&plans(3), &vec![Promise::nothing(); 2]);
    assert_eq!(fault.kind, FaultKind::NoSuchRow { row: 3, row_count: 3 });
    assert_eq!(fault.to_string(), "rank 0, operation 0, buffer 0 bytes 0..24: there is no row 3 among 3");
    assert!(cost_s(&plans(3), &Model::ROUNDS).is_err());
}

/// Return `plan` with the rows of one operation changed.
fn replaced(plan: &Plan, index: usize, change: impl Fn(&mut Rows)) -> Plan {
    let mut changed = Plan::new();
    for (number, mut operation) in plan.operations().iter().cloned().enumerate() {
        if let Operation::Send { rows: Some(rows), .. }
        | Operation::Reduce { rows: Some(rows), .. }
        | Operation::Copy { rows: Some(rows), .. }
        | Operation::Combine { rows: Some(rows), .. } = &mut operation
            && number == index
        {
            change(rows);
        }
        changed.push(operation);
    }
    changed
}
