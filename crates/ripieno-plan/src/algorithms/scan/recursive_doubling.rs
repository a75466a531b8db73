//! Recursive-doubling scan: every rank ends with the combination of its own vector and the vectors of all lower ranks.
//!
//! In round `i` every rank holds the combination of the `2^i` ranks up to itself and sends it to the rank `2^i` after
//! it.
//!
//! Requires a commutative operation; the rounds fix the order.
//! Cost and source: see [`ENTRY`].

use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "recursive-doubling",
    PlanFunction::Scan(plan),
    Theory {
        sent_bytes: |case, rank| ceil_log2(case.p - rank) * case.n,
        hops: |case| exactly(case.p.ilog2() as usize),
        rounds: |case| exactly(ceil_log2(case.p)),
        cost: Cost::Exactly("ceil(log2 p)·(alpha + n·beta + n·gamma)"),
        source: "Hillis and Steele, \"Data parallel algorithms\", CACM 1986 (all partial sums)",
    },
);

/// Plan this rank's part in a recursive-doubling scan of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let (rank, p) = (group.rank(), group.size());
    let mut plan = Plan::new();
    let mut distance = 1;
    while distance < p {
        if rank + distance < p {
            plan.send(rank + distance, vector);
        }
        if rank >= distance {
            plan.reduce(rank - distance, vector, op);
        }
        distance *= 2;
    }
    plan
}
