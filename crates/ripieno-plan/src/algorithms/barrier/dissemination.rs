//! Dissemination barrier: no rank continues before all ranks have arrived.
//!
//! In round `i` every rank notifies the rank `2^i` after it. The token is one byte that every message reads and
//! changes. Because all messages use the same byte, the rounds are ordered.
//!
//! Cost and source: see [`ENTRY`].

use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "dissemination",
    PlanFunction::Barrier(plan),
    Theory {
        sent_bytes: |case, _| ceil_log2(case.p) * case.n,
        hops: |case| exactly(ceil_log2(case.p)),
        rounds: |case| exactly(ceil_log2(case.p)),
        cost: Cost::Exactly("ceil(log2 p)·(alpha + n·beta + n·gamma)"),
        source: "Hensgen, Finkel, Manber, \"Two algorithms for barrier synchronization\", IJPP 1988",
    },
)
.buffered();

/// Plan this rank's part in a dissemination barrier; `token` is one byte of scratch.
pub fn plan(group: &Group, token: Span) -> Plan {
    let mut plan = Plan::new();
    let mut distance = 1;
    while distance < group.size() {
        plan.send(group.after(distance), token);
        // Idempotent, because a notification may arrive twice if p is not a power of two.
        plan.reduce(group.before(distance), token, Op::Or);
        distance *= 2;
    }
    plan
}
