//! Direct rotate: every rank ends with the block of the rank a given distance before it.
//!
//! The largest block sets the pace where sizes differ.
//! One message from each rank to the one it concerns; blocks may differ in size or be empty.

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Its entry in the catalogue.
pub const ENTRY: Entry = Entry::new(
    "direct",
    PlanFunction::Rotate(plan),
    Theory {
        sent_bytes: |case, rank| case.given_bytes(rank),
        hops: |case| exactly(case.peer_count()),
        rounds: |case| exactly(case.peer_count()),
        cost: Cost::Exactly("alpha + n·beta"),
        source: "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I (direct sending)",
    },
);

/// This rank's part in a rotation by `distance`: `out` goes to the rank that far after it, `into` comes from the one
/// that far before it.
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
