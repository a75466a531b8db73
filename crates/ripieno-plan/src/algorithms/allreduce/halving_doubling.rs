//! Halving-doubling allreduce (Rabenseifner): every rank ends with the combination of all vectors.
//!
//! This is a recursive-halving reduce-scatter of `p` equal chunks, then a recursive-doubling allgather of the results.
//! It works for any `p` without folding ranks.
//!
//! Requires a commutative operation. One rank completes each chunk, so the result has the same bits on every rank.
//! Cost and source: see [`ENTRY`].

use crate::algorithms::{allgather, cyclic, reduce_scatter};
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory, TheoryCase};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "halving-doubling",
    PlanFunction::Allreduce(plan),
    Theory {
        sent_bytes,
        hops: |case| cyclic::hops(2, case.p),
        rounds: |case| cyclic::rounds(2, case.p),
        cost: Cost::ForPowersOfTwo("2·ceil(log2 p)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma"),
        source: "Rabenseifner, \"Optimization of collective reduction operations\", ICCS 2004",
    },
)
.ordered();

/// Plan this rank's part in a halving-doubling allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let chunks = vector.chunks(group.size());
    reduce_scatter::halving::plan(group, &chunks, op).then(allgather::recursive_doubling::plan(group, &chunks))
}

fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    (reduce_scatter::halving::ENTRY.theory.sent_bytes)(case, rank)
        + (allgather::recursive_doubling::ENTRY.theory.sent_bytes)(case, rank)
}
