//! Binary-tree reduce: the root ends with the combination of all vectors.
//!
//! Vectors move up a binary tree and are combined at every node. The executor forwards segments as they arrive, so each
//! level costs a segment and not a vector. Every inner rank receives and combines all bytes twice.
//!
//! Requires a commutative operation; the tree fixes the order.
//! Cost and source: see [`ENTRY`].

use crate::algorithms::tree::binary;
use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "binary",
    PlanFunction::Reduce(plan),
    Theory {
        sent_bytes: |case, rank| if rank == case.root { 0 } else { case.n },
        hops: |case| exactly(case.p.ilog2() as usize),
        rounds: |case| ceil_log2(case.p)..=2 * case.p.ilog2() as usize,
        cost: Cost::AtMost("2(floor(log2 p) - 1 + k)·(alpha + n/k·beta + n/k·gamma)"),
        source: "Pješivac-Grbović et al., \"Performance analysis of MPI collective operations\", Cluster Computing \
                 2007 (binary tree)",
    },
)
.ordered();

/// Plan this rank's part in a binary-tree reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    binary(group, root).reduce(vector, op)
}
