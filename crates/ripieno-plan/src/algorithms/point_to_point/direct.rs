//! Point to point: the receiver ends with the sender's vector.
//!
//! One message.
//!
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "direct",
    PlanFunction::PointToPoint(plan),
    Theory {
        sent_bytes: |case, rank| case.out_bytes(rank),
        hops: |case| exactly(case.peer_count()),
        rounds: |case| exactly(case.peer_count()),
        cost: Cost::Exactly("alpha + n·beta"),
        source: "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I (direct sending)",
    },
);

/// Plan the sender's part in moving `vector` to rank `to`.
pub fn send(to: usize, vector: Span) -> Plan {
    let mut plan = Plan::new();
    plan.send(to, vector);
    plan
}

/// Plan the receiver's part in moving `vector` from rank `from`.
pub fn receive(from: usize, vector: Span) -> Plan {
    let mut plan = Plan::new();
    plan.receive(from, vector);
    plan
}

/// Plan this rank's part, if any, in moving `vector` from rank `from` to rank `to`.
pub fn plan(group: &Group, from: usize, to: usize, vector: Span) -> Plan {
    match group.rank() {
        _ if from == to => Plan::new(),
        rank if rank == from => send(to, vector),
        rank if rank == to => receive(from, vector),
        _ => Plan::new(),
    }
}
