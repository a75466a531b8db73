//! Binary-tree broadcast: every rank ends with the root's vector.
//!
//! The vector moves down a binary tree. The executor forwards segments as they arrive, so each level costs a segment
//! and not a vector. Every inner rank sends all bytes twice.
//!
//! Cost for long vectors: `2·n·beta`.
//! General cost and source: see [`ENTRY`].

use crate::algorithms::tree::{self, binary};
use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "binary",
    PlanFunction::Broadcast(plan),
    Theory {
        sent_bytes: |case, rank| case.n * tree::binary_degree(case.distance(rank), case.p),
        hops: |case| exactly(case.p.ilog2() as usize),
        rounds: |case| ceil_log2(case.p)..=2 * case.p.ilog2() as usize,
        cost: Cost::AtMost("2(floor(log2 p) - 1 + k)·(alpha + n/k·beta)"),
        source: "Pješivac-Grbović et al., \"Performance analysis of MPI collective operations\", Cluster Computing \
                 2007 (binary tree)",
    },
)
.ordered();

/// Plan this rank's part in a binary-tree broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    binary(group, root).broadcast(vector)
}
