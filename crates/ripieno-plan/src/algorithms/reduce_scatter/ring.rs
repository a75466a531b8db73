//! Ring reduce-scatter: every rank ends with its chunk of the combination of all vectors.
//!
//! Each chunk travels the ring, from the rank after its owner to its owner, and is combined at every stop.
//!
//! Cost: `(p-1)·alpha + (p-1)/p·n·beta + (p-1)/p·n·gamma`.
//! Needs a commutative operation: chunk `c` is combined in the order `c+1, c+2, …, c`.
//! Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.

use crate::{Group, Op, Plan, Span};

/// This rank's part in a ring reduce-scatter of `chunks`, one per rank.
pub fn plan(group: &Group, chunks: &[Span], op: Op) -> Plan {
    let mut plan = Plan::new();
    for round in 1..group.size() {
        plan.send(group.right(), chunks[group.before(round)]);
        plan.reduce(group.left(), chunks[group.before(round + 1)], op);
    }
    plan
}
