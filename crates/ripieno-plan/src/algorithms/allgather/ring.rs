//! Ring (bucket) allgather: every rank ends with every rank's chunk.
//!
//! In each of `p-1` rounds a rank passes the chunk it got last to its right neighbour.
//!
//! Cost: `(p-1)·alpha + (p-1)/p·n·beta`; the largest chunk sets the pace where sizes differ.
//! Needs each rank's own chunk in place.
//! Source: Zhang, Ruan, Qiu, "Harp: collective communication on Hadoop", IC2E 2015, table I (bucket).

use crate::{Group, Plan, Span};

/// This rank's part in a ring allgather of `chunks`, one per rank.
pub fn plan(group: &Group, chunks: &[Span]) -> Plan {
    let mut plan = Plan::new();
    for round in 0..group.size() - 1 {
        plan.send(group.right(), chunks[group.before(round)]);
        plan.receive(group.left(), chunks[group.before(round + 1)]);
    }
    plan
}
