//! Direct rotate: every rank ends with the block of the rank a given distance before it.
//!
//! Each rank sends one message to the rank at this distance. Blocks may differ in size or be empty; the largest block
//! determines the time.
//!
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "direct",
    PlanFunction::Rotate(plan),
    Theory {
        sent_bytes: |case, rank| case.out_bytes(rank),
        hops: |case| exactly(case.peer_count()),
        rounds: |case| exactly(case.peer_count()),
        cost: Cost::Exactly("alpha + n·beta"),
        source: "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I (direct sending)",
    },
);

/// Plan this rank's part in a rotation by `distance`: `out` is sent to the rank at this distance after it, and `into`
/// is received from the rank at this distance before it.
pub fn plan(group: &Group, distance: usize, out: Span, into: Span) -> Plan {
    let (to, from) = (group.after(distance), group.before(distance));
    let mut plan = Plan::new();
    if to == group.rank() {
        plan.copy(out, into);
        return plan;
    }
    plan.send(to, out);
    plan.receive(from, into);
    plan
}
