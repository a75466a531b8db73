//! Hand-written sparse reductions: spans of rows, and plans for one rank and for two ranks.

use ripieno_plan::{Buffer, Constant, Op, Plan, Promise, Rows, Span};

/// Size of a row: two elements of 4 bytes.
pub const ROW_BYTES: usize = 8;

pub fn span(buffer: Buffer, first: usize, row_count: usize) -> Span {
    Span { buffer, start_bytes: first * ROW_BYTES, length_bytes: row_count * ROW_BYTES, element_bytes: 4 }
}

pub fn main(first: usize, row_count: usize) -> Span {
    span(Buffer::MAIN, first, row_count)
}

pub fn scratch(first: usize, row_count: usize) -> Span {
    span(Buffer::SCRATCH, first, row_count)
}

pub fn output(first: usize, row_count: usize) -> Span {
    span(Buffer::OUTPUT, first, row_count)
}

pub fn rows<const COUNT: usize>(numbers: [u32; COUNT]) -> Rows {
    Rows::new(numbers.into(), ROW_BYTES)
}

/// Return the promised outputs of all ranks by key.
pub fn sparse<const P: usize>(out_keys: [&[u64]; P], in_keys: [&[u64]; P]) -> Vec<Promise> {
    let out_keys = out_keys.map(<[u64]>::to_vec);
    in_keys.map(|keys| Promise::sparse(&out_keys, keys, main(0, 1), Op::Sum)).into()
}

/// Plan of one rank that holds keys 2, 5, 7 and requests 5, 9, 7, over the union 2, 5, 7, 9.
pub fn one_rank_plan() -> Plan {
    let mut plan = Plan::new();
    plan.fill(scratch(0, 4), Constant::Identity(Op::Sum));
    plan.combine_rows(main(0, 3), scratch(0, 4), rows([0, 1, 2]), Op::Sum);
    plan.fill(output(1, 1), Constant::Zero);
    plan.copy_rows(scratch(0, 4), rows([1]), output(0, 1));
    plan.copy_rows(scratch(0, 4), rows([2]), output(2, 1));
    plan
}

/// Plans of two ranks. Rank 0 holds keys 1, 4, 6 and requests 2, 4; rank 1 holds 2, 4, 7 and requests 1, 4, 6. Keys
/// below 5 belong to rank 0, as rows 0 (1), 1 (2), 2 (4). Keys 6 and 7 are rows 0 and 1 of rank 1.
pub fn two_rank_plans() -> [Plan; 2] {
    let (mut first, mut second) = (Plan::new(), Plan::new());
    first.send(1, main(2, 1));
    first.fill(scratch(0, 3), Constant::Identity(Op::Sum));
    first.combine_rows(main(0, 2), scratch(0, 3), rows([0, 2]), Op::Sum);
    first.reduce_rows(1, scratch(0, 3), rows([1, 2]), Op::Sum);
    first.send_rows(1, scratch(0, 3), rows([0, 2]));
    first.copy(scratch(1, 2), output(0, 2));
    second.send(0, main(0, 2));
    second.fill(scratch(0, 2), Constant::Identity(Op::Sum));
    second.combine_rows(main(2, 1), scratch(0, 2), rows([1]), Op::Sum);
    second.reduce_rows(0, scratch(0, 2), rows([0]), Op::Sum);
    second.receive(0, output(0, 2));
    second.copy_rows(scratch(0, 2), rows([0]), output(2, 1));
    [first, second]
}

pub fn two_rank_promises() -> Vec<Promise> {
    sparse([&[1, 4, 6], &[2, 4, 7]], [&[2, 4], &[1, 4, 6]])
}
