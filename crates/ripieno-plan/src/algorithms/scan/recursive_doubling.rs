//! Recursive-doubling scan: every rank ends with the combination of the vectors of all ranks up to it.
//!
//! In round `i` every rank sends what it has, the combination of the `2^i` ranks up to it, to the rank `2^i` after it.
//!
//! Cost: `ceil(log2 p)·(alpha + n·beta + n·gamma)`.
//! Needs a commutative operation; the rounds fix the order.
//! Source: Hillis and Steele, "Data parallel algorithms", CACM 1986 (all partial sums).

use crate::{Group, Op, Plan, Span};

/// This rank's part in a recursive-doubling scan of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let (rank, p) = (group.rank(), group.size());
    let mut plan = Plan::new();
    let mut distance = 1;
    while distance < p {
        if rank + distance < p {
            plan.send(rank + distance, vector);
        }
        if rank >= distance {
            plan.reduce(rank - distance, vector, op);
        }
        distance *= 2;
    }
    plan
}
