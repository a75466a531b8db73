//! Bruck's allgather: every rank ends with every rank's chunk, in `ceil(log2 p)` rounds for any `p`.
//!
//! In round `i` every rank sends the chunks it has, those of the `2^i` ranks from itself on, to the rank `2^i` before it; in the
//! last only those that are missing there. All lie where they belong from the start, so nothing is rotated in the end.
//!
//! Cost: `ceil(log2 p)·alpha + (p-1)/p·n·beta`, one `alpha` more in each round in which a run of chunks wraps around.
//! Needs each rank's own chunk in place.
//! Source: Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems", TPDS
//! 1997, section 4 (concatenation).

use crate::algorithms::cyclic;
use crate::{Group, Plan, Span};

/// This rank's part in Bruck's allgather of `chunks`, one per rank.
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
