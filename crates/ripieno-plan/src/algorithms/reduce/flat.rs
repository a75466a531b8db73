//! Flat reduce: the root ends with the combination of all vectors.
//!
//! Every rank sends its vector to the root, which combines the vectors in the order of the distances from it. The root
//! receives all vectors, in one hop: the best algorithm for two or three ranks.
//!
//! Requires a commutative operation.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "flat",
    PlanFunction::Reduce(plan),
    Theory {
        sent_bytes: |case, rank| if rank == case.root { 0 } else { case.n },
        hops: |case| exactly((case.p - 1).min(1)),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::Exactly("(p-1)·(alpha + n·beta + n·gamma)"),
        source: "Pješivac-Grbović et al., \"Performance analysis of MPI collective operations\", Cluster Computing \
                 2007 (flat tree)",
    },
);

/// Plan this rank's part in a flat reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    let mut plan = Plan::new();
    if group.rank() != root {
        plan.send(root, vector);
        return plan;
    }
    for distance in 1..group.size() {
        plan.reduce(group.after(distance), vector, op);
    }
    plan
}
