//! Direct scatter: every rank ends with its chunk of the root's vector.
//!
//! The root sends each chunk to its rank, so all bytes leave the root.
//!
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "direct",
    PlanFunction::Scatter(plan),
    Theory {
        sent_bytes: |case, rank| if rank == case.root { case.n - case.chunk(rank) } else { 0 },
        hops: |case| exactly((case.p - 1).min(1)),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::Exactly("(p-1)·alpha + (p-1)/p·n·beta"),
        source: "Thakur et al., \"Optimization of collective communication operations in MPICH\", IJHPCA 2005",
    },
);

/// Plan this rank's part in a direct scatter of `chunks`, one per rank, from `root`.
pub fn plan(group: &Group, root: usize, chunks: &[Span]) -> Plan {
    let mut plan = Plan::new();
    if group.rank() != root {
        plan.receive(root, chunks[group.rank()]);
        return plan;
    }
    for distance in 1..group.size() {
        plan.send(group.after(distance), chunks[group.after(distance)]);
    }
    plan
}
