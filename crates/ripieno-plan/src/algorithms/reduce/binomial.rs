//! Binomial reduce: the root ends with the combination of all vectors.
//!
//! Vectors move up a binomial tree, smallest subtree first, and are combined at every node.
//!
//! Requires a commutative operation; the tree fixes the order.
//! Cost and source: see [`ENTRY`].

use crate::algorithms::tree::NomialNode;
use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "binomial",
    PlanFunction::Reduce(plan),
    Theory {
        sent_bytes: |case, rank| if rank == case.root { 0 } else { case.n },
        hops: |case| exactly(case.p.ilog2() as usize),
        rounds: |case| exactly(ceil_log2(case.p)),
        cost: Cost::Exactly("ceil(log2 p)·(alpha + n·beta + n·gamma)"),
        source: "Thakur et al., \"Optimization of collective communication operations in MPICH\", IJHPCA 2005",
    },
)
.ordered();

/// Plan this rank's part in a binomial reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    NomialNode::of(group, root, 2).position().reduce(vector, op)
}
