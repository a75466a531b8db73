//! Bruck's alltoall: every rank ends with the chunk that each rank had for it, in `ceil(log2 p)` rounds.
//!
//! The chunk for the rank `d` after this one has the distance `d`. In round `i` every rank packs all chunks that have
//! bit `i` set in their distance. It sends them to the rank `2^i` after it in one message. The received chunks replace
//! the sent chunks. At the end the chunks are unpacked.
//!
//! There are fewer messages with more bytes, and two local copies for each message.
//! Requires chunks of equal length on all ranks, because a rank does not know the sizes of the chunks that it forwards.
//! Scratch: `n/2` bytes for every round and `n/2` more.
//!
//! Cost and source: see [`ENTRY`].

use crate::theory::{ceil_log2, exactly};
use crate::{Buffer, Cost, Entry, Group, Needs, Plan, PlanFunction, Span, Theory, TheoryCase};
use alloc::vec::Vec;

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "bruck",
    PlanFunction::Alltoall(plan),
    Theory {
        sent_bytes,
        hops: |case| case.p.ilog2() as usize..=ceil_log2(case.p),
        rounds: |case| exactly(ceil_log2(case.p)),
        cost: Cost::AtMost("ceil(log2 p)·(alpha + n/2·beta)"),
        source: "Bruck et al., \"Efficient algorithms for all-to-all communications in multiport message-passing \
                 systems\", TPDS 1997, section 3 (index)",
    },
)
.needing(Needs::EqualChunks);

/// Plan this rank's part in Bruck's alltoall from `out_chunks` (for each rank) to `in_chunks` (from each rank).
pub fn plan(group: &Group, out_chunks: &[Span], in_chunks: &[Span]) -> Plan {
    let p = group.size();
    let chunk = out_chunks[0];
    let slots = |first: usize, count: usize| Span {
        length_bytes: count * chunk.length_bytes,
        ..chunk.placed(Buffer::SCRATCH, first * chunk.length_bytes)
    };
    // Location of the chunk with distance `d`. After all rounds it is the chunk received from this distance.
    let mut locations: Vec<Span> = (0..p).map(|offset| out_chunks[group.after(offset)]).collect();
    let mut used_count = p / 2;

    let mut plan = Plan::new();
    let mut distance = 1;
    while distance < p {
        let sent_offsets: Vec<usize> = (0..p).filter(|offset| offset & distance != 0).collect();
        for (slot, &offset) in sent_offsets.iter().enumerate() {
            plan.copy(locations[offset], slots(slot, 1));
            locations[offset] = slots(used_count + slot, 1);
        }
        plan.send(group.after(distance), slots(0, sent_offsets.len()));
        plan.receive(group.before(distance), slots(used_count, sent_offsets.len()));
        used_count += sent_offsets.len();
        distance *= 2;
    }
    for (offset, &received) in locations.iter().enumerate() {
        plan.copy(received, in_chunks[group.before(offset)]);
    }
    plan
}

/// A chunk makes one hop for every set bit of its distance.
fn sent_bytes(case: &TheoryCase, _: usize) -> usize {
    (0..case.p).map(|offset| offset.count_ones() as usize).sum::<usize>() * (case.n / case.p)
}
