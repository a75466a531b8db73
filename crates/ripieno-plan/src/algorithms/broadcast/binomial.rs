//! Binomial broadcast: every rank ends with the root's vector.
//!
//! The vector moves down a binomial tree, to the largest subtree first. So the number of ranks that have the vector
//! doubles in every round. Twister calls it MST (minimum spanning tree).
//!
//! Cost and source: see [`ENTRY`].

use crate::algorithms::tree::{self, NomialNode};
use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "binomial",
    PlanFunction::Broadcast(plan),
    Theory {
        sent_bytes: |case, rank| case.n * tree::degree(2, case.distance(rank), case.p),
        hops: |case| exactly(case.p.ilog2() as usize),
        rounds: |case| exactly(ceil_log2(case.p)),
        cost: Cost::Exactly("ceil(log2 p)·(alpha + n·beta)"),
        source: "Zhang and Qiu, \"Clustering social images with MapReduce and high performance collective \
                 communication\" (Twister), section 4.1, eq. 1",
    },
)
.ordered();

/// Plan this rank's part in a binomial broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    NomialNode::of(group, root, 2).position().broadcast(vector)
}
