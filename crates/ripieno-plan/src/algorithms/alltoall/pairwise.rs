//! Pairwise alltoall: every rank receives one chunk from each rank, with one send and one receive at a time.
//!
//! In round `i` rank `r` sends to rank `r + i`, and receives from rank `r - i`. A data dependency keeps the rounds in
//! order: chunks are sent from the scratch buffer, where the first element of a chunk overlaps the last element of the
//! previous chunk. So a chunk cannot be copied there until the previous chunk has been sent.
//!
//! Copying to scratch takes one pass over the input. Direct sending would have `p-1` concurrent streams in each
//! direction instead of one. Scratch: `(p-1)/p·n` bytes.
//!
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Buffer, Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "pairwise",
    PlanFunction::Alltoall(plan),
    Theory {
        sent_bytes: |case, rank| case.out_bytes(rank),
        hops: |case| exactly((case.p - 1).min(1)),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::Exactly("(p-1)·alpha + (p-1)/p·n·beta"),
        source: "Thakur et al., \"Optimization of collective communication operations in MPICH\", IJHPCA 2005, \
                 section 4.3",
    },
);

/// Plan this rank's part in a pairwise alltoall from `out_chunks` (for each rank) to `in_chunks` (from each rank).
pub fn plan(group: &Group, out_chunks: &[Span], in_chunks: &[Span]) -> Plan {
    let mut plan = Plan::new();
    plan.copy(out_chunks[group.rank()], in_chunks[group.rank()]);
    let mut start_bytes = 0;
    for round in 1..group.size() {
        let out = out_chunks[group.after(round)];
        let staged = out.placed(Buffer::SCRATCH, start_bytes);
        plan.copy(out, staged);
        plan.send(group.after(round), staged);
        if out.length_bytes > 0 {
            start_bytes = staged.end_bytes() - out.element_bytes;
        }
        plan.receive(group.before(round), in_chunks[group.before(round)]);
    }
    plan
}
