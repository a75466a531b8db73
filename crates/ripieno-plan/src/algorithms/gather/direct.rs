//! Direct gather: the root ends with every rank's chunk.
//!
//! Every rank sends its chunk to the root, which receives all bytes.
//!
//! Requires each rank's own chunk in place.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "direct",
    PlanFunction::Gather(plan),
    Theory {
        sent_bytes: |case, rank| if rank == case.root { 0 } else { case.chunk(rank) },
        hops: |case| exactly((case.p - 1).min(1)),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::Exactly("(p-1)·alpha + (p-1)/p·n·beta"),
        source: "Thakur et al., \"Optimization of collective communication operations in MPICH\", IJHPCA 2005",
    },
);

/// Plan this rank's part in a direct gather of `chunks`, one per rank, to `root`.
pub fn plan(group: &Group, root: usize, chunks: &[Span]) -> Plan {
    let mut plan = Plan::new();
    if group.rank() != root {
        plan.send(root, chunks[group.rank()]);
        return plan;
    }
    for distance in 1..group.size() {
        plan.receive(group.after(distance), chunks[group.after(distance)]);
    }
    plan
}
