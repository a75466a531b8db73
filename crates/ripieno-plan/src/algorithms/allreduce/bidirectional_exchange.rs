//! Bidirectional-exchange allreduce (recursive doubling): every rank ends with the combination of all vectors.
//!
//! In round `i` ranks whose numbers differ in bit `i` exchange all they have and combine it. Ranks beyond the largest
//! power of two hand their vector to a partner before and get the result after.
//!
//! Cost: `log2 p·(alpha + n·beta + n·gamma)`; `floor(log2 p)` of these and two messages more if `p` is no power of two.
//! Needs a commutative operation: both ends combine the same two operands, so the result is the same bits on every rank.
//! Source: Zhang, Ruan, Qiu, "Harp: collective communication on Hadoop", IC2E 2015, table I (bi-directional exchange);
//! Thakur et al., "Optimization of collective communication operations in MPICH", IJHPCA 2005.

use crate::{Group, Op, Plan, Span};

/// This rank's part in a bidirectional-exchange allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let (rank, p) = (group.rank(), group.size());
    let core_size = 1 << p.ilog2();

    let mut plan = Plan::new();
    if rank >= core_size {
        plan.send(rank - core_size, vector);
        plan.receive(rank - core_size, vector);
        return plan;
    }
    let surplus = Some(rank + core_size).filter(|&surplus| surplus < p);
    if let Some(surplus) = surplus {
        plan.reduce(surplus, vector, op);
    }
    for bit in 0..p.ilog2() {
        plan.send(rank ^ (1 << bit), vector);
        plan.reduce(rank ^ (1 << bit), vector, op);
    }
    if let Some(surplus) = surplus {
        plan.send(surplus, vector);
    }
    plan
}
