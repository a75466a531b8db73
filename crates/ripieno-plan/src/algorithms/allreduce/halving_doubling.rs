//! Halving-doubling allreduce (Rabenseifner): every rank ends with the combination of all vectors.
//!
//! A recursive-halving reduce-scatter of `p` equal chunks, then a recursive-doubling allgather of the finished ones, for any
//! `p` without folding ranks away.
//!
//! Cost: `2·ceil(log2 p)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma`; where `p` is no power of two, one `alpha` more in each
//! round in which a run of chunks wraps around.
//! Needs a commutative operation. One rank finishes each chunk, so the result is the same bits on every rank.
//! Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.

use crate::algorithms::{allgather, reduce_scatter};
use crate::{Group, Op, Plan, Span};

/// This rank's part in a halving-doubling allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let chunks = vector.chunks(group.size());
    reduce_scatter::halving::plan(group, &chunks, op).then(allgather::recursive_doubling::plan(group, &chunks))
}
