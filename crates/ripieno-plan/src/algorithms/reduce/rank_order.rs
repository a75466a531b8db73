//! Rank-order reduce: the root ends with the combination of all vectors.
//!
//! This is a chain in rank order: each rank combines its own vector into the combination of the lower ranks and sends
//! the result to the next rank. The last rank sends it to the root. The executor forwards segments as they arrive.
//!
//! Combines in rank order, so the operation need not be commutative. Scratch: `n` bytes on all ranks except the first.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Buffer, Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "rank-order",
    PlanFunction::Reduce(plan),
    Theory {
        sent_bytes: |case, rank| if rank + 1 == case.p && case.root == rank { 0 } else { case.n },
        hops: |case| exactly(case.p - usize::from(case.root + 1 == case.p)),
        rounds: |case| exactly(case.p - usize::from(case.root + 1 == case.p)),
        cost: Cost::AtMost("(p-1+k)·(alpha + n/k·beta + n/k·gamma)"),
        source: "Zhang and Qiu, \"Clustering social images with MapReduce and high performance collective \
                 communication\" (Twister), section 4.4, eq. 3, reversed",
    },
)
.in_rank_order();

/// Plan this rank's part in a rank-order reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    let (rank, last) = (group.rank(), group.size() - 1);
    let mut plan = Plan::new();
    let mut combined = vector;
    if rank > 0 {
        combined = vector.placed(Buffer::SCRATCH, 0);
        plan.receive(rank - 1, combined);
        plan.combine(vector, combined, op);
    }
    if rank < last {
        plan.send(rank + 1, combined);
    } else if root < last {
        plan.send(root, combined);
    } else if rank > 0 {
        plan.copy(combined, vector);
    }
    if rank == root && root < last {
        plan.receive(last, vector);
    }
    plan
}
