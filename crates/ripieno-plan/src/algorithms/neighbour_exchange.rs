//! Direct neighbour exchange: every rank ends with what each of its neighbours had for it.
//!
//! One message to each neighbour, the nearest after this rank first, so that where all have alike neighbours no rank is
//! everybody's next; what is for the rank itself is copied.
//!
//! Cost: `d·alpha + n·beta` for `d` neighbours and `n` bytes to them all; no message waits for another: one hop.
//! Source: Zhang, Ruan, Qiu, "Harp: collective communication on Hadoop", IC2E 2015, table I (direct sending).

use crate::{Group, PeerSpan, Plan};
use alloc::vec::Vec;

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
