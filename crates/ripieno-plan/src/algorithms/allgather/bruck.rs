//! Bruck's allgather: every rank ends with every rank's chunk, in `ceil(log2 p)` rounds for any `p`.
//!
//! In round `i` every rank holds the chunks of `2^i` ranks, starting with its own, and sends them to the rank `2^i`
//! before it. In the last round it sends only the missing chunks. All chunks are in their final place from the start,
//! so no final rotation is needed. A run of chunks that wraps around needs two messages, and other ranks wait for the
//! second.
//!
//! Requires each rank's own chunk in place.
//! Cost and source: see [`ENTRY`].

use crate::algorithms::cyclic;
use crate::theory::ceil_log2;
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory, TheoryCase};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "bruck",
    PlanFunction::Allgather(plan),
    Theory {
        sent_bytes,
        hops: |case| case.p.ilog2() as usize..=2 * ceil_log2(case.p),
        rounds: |case| ceil_log2(case.p)..=3 * ceil_log2(case.p),
        cost: Cost::AtMost("2·ceil(log2 p)·alpha + 2(p-1)/p·n·beta"),
        source: "Bruck et al., \"Efficient algorithms for all-to-all communications in multiport message-passing \
                 systems\", TPDS 1997, section 4 (concatenation)",
    },
)
.joining();

/// Plan this rank's part in Bruck's allgather of `chunks`, one per rank.
pub fn plan(group: &Group, chunks: &[Span]) -> Plan {
    let p = group.size();
    let mut plan = Plan::new();
    let mut distance = 1;
    while distance < p {
        let count = distance.min(p - distance);
        let (to, from) = (group.before(distance), group.after(distance));
        cyclic::spans(chunks, group.rank(), count).into_iter().for_each(|span| plan.send(to, span));
        cyclic::spans(chunks, from, count).into_iter().for_each(|span| plan.receive(from, span));
        distance *= 2;
    }
    plan
}

fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    let distances = (0..ceil_log2(case.p)).map(|round| 1 << round);
    distances.map(|distance| case.chunks(rank, distance.min(case.p - distance))).sum()
}
