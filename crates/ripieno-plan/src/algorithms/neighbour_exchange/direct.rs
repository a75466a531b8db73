//! Direct neighbour exchange: every rank ends with what each of its neighbours had for it.
//!
//! No message waits for another: one hop.
//! One message to each neighbour, the nearest after this rank first, so that where all have alike neighbours no rank is
//! everybody's next; what is for the rank itself is copied.

use crate::theory::exactly;
use crate::{Cost, Entry, Group, PeerSpan, Plan, PlanFunction, Theory};
use alloc::vec::Vec;

/// Its entry in the catalogue.
pub const ENTRY: Entry = Entry::new(
    "direct",
    PlanFunction::NeighbourExchange(plan),
    Theory {
        sent_bytes: |case, rank| case.given_bytes(rank),
        hops: |case| exactly(case.peer_count().min(1)),
        rounds: |case| exactly(case.peer_count()),
        cost: Cost::Exactly("d·alpha + n·beta"),
        source: "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I (direct sending)",
    },
);

/// This rank's part in an exchange that sends each span of `out` to its peer and receives each of `into` from its peer.
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
