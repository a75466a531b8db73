//! Regroup-allgather allreduce: every rank ends with the combination of all vectors.
//!
//! A direct reduce-scatter (Harp's regroup) of `p` equal chunks, then a direct allgather. Direct also the second time:
//! the links are open already, the bytes are as few as around the ring, and a chunk that is late holds up no other.
//!
//! Cost: `2(p-1)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma`, in two hops.
//! Needs a commutative operation. One rank finishes each chunk, so the result is the same bits on every rank.
//! Source: Zhang, Ruan, Qiu, "Harp: collective communication on Hadoop", IC2E 2015, table I (regroup-allgather).

use crate::algorithms::{allgather, reduce_scatter};
use crate::{Group, Op, Plan, Span};

/// This rank's part in a regroup-allgather allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let chunks = vector.chunks(group.size());
    reduce_scatter::direct::plan(group, &chunks, op).then(allgather::direct::plan(group, &chunks))
}
