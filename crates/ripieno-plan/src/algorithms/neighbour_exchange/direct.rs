//! Direct neighbor exchange: every rank ends with the data that each of its neighbors had for it.
//!
//! Every rank sends one message to each neighbor, starting with the nearest after it. So the ranks do not all send to
//! the same rank at once if they have similar neighbors. Data for the rank itself is copied. No message waits for
//! another: one hop.
//!
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, PeerSpan, Plan, PlanFunction, Theory};
use alloc::vec::Vec;

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "direct",
    PlanFunction::NeighbourExchange(plan),
    Theory {
        sent_bytes: |case, rank| case.out_bytes(rank),
        hops: |case| exactly(case.peer_count().min(1)),
        rounds: |case| exactly(case.peer_count()),
        cost: Cost::Exactly("d·alpha + n·beta"),
        source: "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I (direct sending)",
    },
);

/// Plan this rank's part in an exchange that sends each span of `out` to its peer and receives each span of `into` from
/// its peer.
pub fn plan(group: &Group, out: &[PeerSpan], into: &[PeerSpan]) -> Plan {
    let by_distance = |spans: &[PeerSpan], distance: &dyn Fn(usize) -> usize| {
        let mut spans: Vec<_> = spans.iter().map(|&(peer, span)| (distance(peer), peer, span)).collect();
        spans.sort_unstable_by_key(|&(distance, ..)| distance);
        spans
    };
    let (rank, p) = (group.rank(), group.size());
    let out = by_distance(out, &|to| (to + p - rank) % p);
    let into = by_distance(into, &|from| (rank + p - from) % p);

    let mut plan = Plan::new();
    if let (Some(&(0, _, from)), Some(&(0, _, to))) = (out.first(), into.first()) {
        plan.copy(from, to);
    }
    for &(_, to, span) in out.iter().filter(|(distance, ..)| *distance > 0) {
        plan.send(to, span);
    }
    for &(_, from, span) in into.iter().filter(|(distance, ..)| *distance > 0) {
        plan.receive(from, span);
    }
    plan
}
