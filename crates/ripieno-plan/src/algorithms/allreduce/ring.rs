//! Ring allreduce: every rank ends with the combination of all vectors.
//!
//! A ring reduce-scatter of `p` equal chunks, then a ring allgather of the finished ones.
//!
//! Cost: `2(p-1)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma`.
//! Needs a commutative operation. One rank finishes each chunk, so the result is the same bits on every rank.
//! Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.

use crate::algorithms::{allgather, reduce_scatter};
use crate::{Group, Op, Plan, Span};

/// This rank's part in a ring allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let chunks = vector.chunks(group.size());
    reduce_scatter::ring::plan(group, &chunks, op).then(allgather::ring::plan(group, &chunks))
}
