//! Recursive-doubling exscan: every rank except the first ends with the combination of the vectors of all lower ranks.
//!
//! This works like the recursive-doubling scan. A rank that sends again also keeps, in scratch, the combination that
//! includes its own vector. So it combines twice in these rounds.
//!
//! Requires a commutative operation; the rounds fix the order. Scratch: `2n` bytes.
//! Cost and source: see [`ENTRY`].

use crate::theory::{ceil_log2, exactly};
use crate::{Buffer, Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "recursive-doubling",
    PlanFunction::Exscan(plan),
    Theory {
        sent_bytes: |case, rank| ceil_log2(case.p - rank) * case.n,
        hops: |case| exactly(case.p.ilog2() as usize),
        rounds: |case| exactly(ceil_log2(case.p)),
        cost: Cost::AtMost("ceil(log2 p)·(alpha + n·beta + 2·n·gamma)"),
        source: "Hillis and Steele, \"Data parallel algorithms\", CACM 1986 (all partial sums)",
    },
);

/// Plan this rank's part in a recursive-doubling exscan of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let (rank, p) = (group.rank(), group.size());
    let prefix = vector.placed(Buffer::SCRATCH, 0);
    let received = vector.placed(Buffer::SCRATCH, vector.length_bytes);
    let mut plan = Plan::new();
    let mut distance = 1;
    while distance < p {
        let sends_again = rank + 2 * distance < p;
        if rank + distance < p {
            // Rank 0 has no lower ranks, and in the first round every rank has only its own vector.
            plan.send(rank + distance, if rank == 0 || distance == 1 { vector } else { prefix });
        }
        if rank >= distance {
            let from = rank - distance;
            match (distance, sends_again) {
                (1, false) => plan.receive(from, vector),
                (1, true) => {
                    plan.copy(vector, prefix);
                    plan.receive(from, vector);
                    plan.combine(vector, prefix, op);
                }
                (_, false) => plan.reduce(from, vector, op),
                (_, true) => {
                    plan.receive(from, received);
                    plan.combine(received, vector, op);
                    plan.combine(received, prefix, op);
                }
            }
        }
        distance *= 2;
    }
    plan
}
