//! Plans with index maps and constants: correct hand-written sparse reductions, and the order of operations on bytes
//! between rows.

use crate::common::sparse::{
    ROW_BYTES, main, one_rank_plan, output, rows, scratch, sparse, two_rank_plans, two_rank_promises,
};
use ripieno_plan::check::{check, check_rendezvous};
use ripieno_plan::simulate::{Model, cost_s, segmented};
use ripieno_plan::table::table;
use ripieno_plan::{Constant, FaultKind, Op, Plan, PlanFault, Promise, PromisedSpan};

/// Check plans over links of one piece and over unbuffered links, without segments and in segments that divide rows.
fn check_all(plans: &[Plan], promises: &[Promise]) {
    check(plans, promises).unwrap();
    check_rendezvous(plans).unwrap();
    for segment_bytes in [4, 12, 16] {
        check(&segmented(plans, segment_bytes), promises).unwrap();
    }
}

fn fault(plans: &[Plan], promises: &[Promise]) -> PlanFault {
    check(plans, promises).unwrap_err()
}

#[test]
fn a_single_rank_gets_its_own_rows_and_zeros() {
    check_all(&[one_rank_plan()], &sparse([&[2, 5, 7]], [&[5, 9, 7]]));
}

#[test]
fn two_ranks_exchange_rows() {
    check_all(&two_rank_plans(), &two_rank_promises());
    let report = check(&two_rank_plans(), &two_rank_promises()).unwrap();
    let (first, second) = (report.ranks[0], report.ranks[1]);
    assert_eq!((first.sent_count, first.sent_bytes, first.reduced_bytes), (2, 3 * ROW_BYTES, 2 * ROW_BYTES));
    assert_eq!((second.sent_count, second.sent_bytes, second.reduced_bytes), (1, 2 * ROW_BYTES, ROW_BYTES));
    assert_eq!(report.round_count, 2);
}

/// Rank 0 is the hub of three ranks: it knows the union of 0, 3, 5, 8, and every other rank knows its own keys.
#[test]
fn three_ranks_exchange_through_a_hub() {
    let keys: [&[u64]; 3] = [&[3, 8], &[0, 3, 5], &[5, 8]];
    let maps = [rows([1, 3]), rows([0, 1, 2]), rows([2, 3])];
    let mut plans = [Plan::new(), Plan::new(), Plan::new()];
    plans[0].fill(scratch(0, 4), Constant::Identity(Op::Sum));
    plans[0].combine_rows(main(0, 2), scratch(0, 4), maps[0].clone(), Op::Sum);
    for (peer, map) in maps.iter().enumerate().skip(1) {
        plans[0].reduce_rows(peer, scratch(0, 4), map.clone(), Op::Sum);
    }
    plans[0].copy_rows(scratch(0, 4), maps[0].clone(), output(0, 2));
    for (peer, map) in maps.iter().enumerate().skip(1) {
        plans[0].send_rows(peer, scratch(0, 4), map.clone());
        plans[peer].send(0, main(0, keys[peer].len()));
        plans[peer].receive(0, output(0, keys[peer].len()));
    }
    check_all(&plans, &sparse(keys, keys));
}

/// A butterfly of 2x2 on keys 0..4. In the first layer ranks 0, 1 and ranks 2, 3 form pairs and separate keys 0, 1 from
/// 2, 3. In the second layer ranks 0, 2 and ranks 1, 3 separate single keys. Rank r holds every key except r and
/// requests only key (r + 1) % 4.
#[test]
fn four_ranks_exchange_in_two_layers() {
    let out_keys: [&[u64]; 4] = [&[1, 2, 3], &[0, 2, 3], &[0, 1, 3], &[0, 1, 2]];
    let in_keys: [&[u64]; 4] = [&[1], &[2], &[3], &[0]];
    let lower = [1, 1, 2, 2];
    let plan = |rank: usize| {
        let (near, far) = (rank ^ 1, rank ^ 2);
        // This rank's rows of main in the first layer, its partner's rows, and the position of both in the half.
        let halves = |holder: usize| [main(0, lower[holder]), main(lower[holder], 3 - lower[holder])];
        let placed = |holder: usize| match (rank & 1, holder) {
            (0, 0) | (1, 2) => rows([1]),
            (0, 1) | (1, 3) => rows([0]),
            _ => rows([0, 1]),
        };
        let mut plan = Plan::new();
        plan.send(near, halves(rank)[near & 1]);
        plan.fill(scratch(0, 2), Constant::Identity(Op::Sum));
        plan.combine_rows(halves(rank)[rank & 1], scratch(0, 2), placed(rank), Op::Sum);
        plan.reduce_rows(near, scratch(0, 2), placed(near), Op::Sum);
        plan.send(far, scratch(far >> 1, 1));
        plan.reduce(far, scratch(rank >> 1, 1), Op::Sum);
        plan
    };
    let mut plans: Vec<Plan> = (0..4).map(plan).collect();
    // Keys 0, 2, 1, 3 are now on ranks 0, 1, 2, 3: 0 -> rank 3, 2 -> rank 1 (its own), 1 -> rank 0, 3 -> rank 2.
    plans[0].send_rows(1, scratch(0, 2), rows([0]));
    plans[1].receive(0, scratch(2, 1));
    plans[1].send(3, scratch(2, 1));
    plans[3].receive(1, output(0, 1));
    plans[1].copy_rows(scratch(0, 2), rows([0]), output(0, 1));
    plans[2].send_rows(0, scratch(0, 2), rows([1]));
    plans[0].receive(2, output(0, 1));
    plans[3].send_rows(2, scratch(0, 2), rows([1]));
    plans[2].receive(3, output(0, 1));
    check_all(&plans, &sparse(out_keys, in_keys));
}

/// Rank 0 reduces two rows into `reduced` and sends row 1. Rank 1 has one of the two rows from the start, and the other
/// once row 1 has arrived.
fn between(reduced: [u32; 2], awaited: usize) -> [Plan; 2] {
    let (mut first, mut second) = (Plan::new(), Plan::new());
    first.reduce_rows(1, main(0, 4), rows(reduced), Op::Sum);
    first.send(1, main(1, 1));
    second.copy(main(0, 1), scratch(1 - awaited, 1));
    second.receive(0, scratch(awaited, 1));
    second.send(0, scratch(0, 2));
    [first, second]
}

#[test]
fn bytes_between_rows_are_available_once_the_preceding_row_is_done() {
    for plans in [between([0, 3], 1), between([2, 3], 0)] {
        check(&plans, &[Promise::nothing(), Promise::nothing()]).unwrap();
        check_rendezvous(&plans).unwrap();
    }
}

#[test]
fn a_deadlock_over_bytes_between_rows_is_found() {
    let plans = between([0, 3], 0);
    let deadlock = FaultKind::Deadlock { blocked: vec![(0, 0), (1, 1)] };
    assert_eq!(fault(&plans, &[Promise::nothing(), Promise::nothing()]).kind, deadlock);
    assert_eq!(check_rendezvous(&plans).unwrap_err().kind, deadlock);
}

#[test]
fn rows_wait_for_the_bytes_before_them() {
    // Row 3 is combined after row 1 was sent, although no byte of row 1 changes.
    let waiting = |row: usize| {
        let (mut first, mut second) = (Plan::new(), Plan::new());
        first.receive(1, main(row, 1));
        first.combine_rows(output(0, 2), main(0, 4), rows([0, 2]), Op::Sum);
        first.send(1, main(2, 1));
        second.receive(0, main(0, 1));
        second.send(0, main(0, 1));
        check(&[first, second], &[Promise::nothing(), Promise::nothing()])
    };
    assert!(waiting(1).is_err());
    assert!(waiting(3).is_ok());
}

#[test]
fn a_fill_changes_only_its_rows() {
    let mut plan = Plan::new();
    plan.fill_rows(main(0, 4), rows([0, 2]), Constant::Zero);
    plan.copy(main(1, 2), output(0, 2));
    let zeros = PromisedSpan { span: output(1, 1), sources: Vec::new(), op: None };
    let promise = Promise::copy(output(0, 1), 0, main(1, 1)).and(Promise { spans: vec![zeros] });
    check_all(&[plan], &[promise]);
}

#[test]
fn passing_a_gap_early_keeps_the_order_of_other_operations() {
    // The reductions of rank 0 finish before rank 2 sends. The copy still follows the data of rank 2, and the last
    // operation follows all others.
    let mut plans = [Plan::new(), Plan::new(), Plan::new()];
    plans[0].receive(2, main(3, 1));
    plans[0].copy(output(0, 1), main(3, 1));
    for _ in 0..2 {
        plans[0].reduce_rows(1, main(0, 5), rows([0, 4]), Op::Sum);
        plans[1].send(0, main(0, 2));
    }
    plans[0].combine(output(1, 1), main(3, 1), Op::Sum);
    plans[1].send(2, main(0, 1));
    plans[2].receive(1, main(0, 1));
    plans[2].send(0, main(0, 1));
    let mut promises = vec![Promise::nothing(); 3];
    let sources = vec![(0, output(0, 1)), (0, output(1, 1))];
    promises[0] = Promise { spans: vec![PromisedSpan { span: main(3, 1), sources, op: Some(Op::Sum) }] };
    check_all(&plans, &promises);
}

#[test]
fn a_table_shows_the_rows_of_both_ends() {
    let (mut first, mut second) = (Plan::new(), Plan::new());
    first.send_rows(1, main(0, 4), rows([0, 1, 3]));
    second.reduce_rows(0, scratch(0, 6), rows([1, 2, 5]), Op::Sum);
    assert_eq!(table(&[first, second]).unwrap(), "round 1: 0 +> 1 [0..4, 6..8] at b2[2..6, 10..12]\n");
}

#[test]
fn only_selected_rows_have_a_cost() {
    let model = Model { alpha_s: 4.0, beta_s_per_byte: 0.5, gamma_s_per_byte: 0.25 };
    let (mut first, mut second) = (Plan::new(), Plan::new());
    first.combine_rows(scratch(0, 2), main(0, 9), rows([3, 7]), Op::Sum);
    first.send_rows(1, main(0, 9), rows([0, 2, 7]));
    second.reduce_rows(0, main(0, 9), rows([1, 4, 5]), Op::Sum);
    let (combined_bytes, sent_bytes) = (2.0 * ROW_BYTES as f64, 3.0 * ROW_BYTES as f64);
    let expected_s = combined_bytes * 0.25 + 4.0 + sent_bytes * (0.5 + 0.25);
    assert_eq!(cost_s(&[first, second], &model).unwrap(), expected_s);
}
