//! SplitStream broadcast: every rank ends with the root's vector.
//!
//! The vector is cut into stripes, and each stripe moves down its own tree. A rank has children in at most one tree, so
//! no rank sends more than the vector. If a rank fails, at most one stripe is interrupted for other ranks.
//!
//! Cost for long vectors: `n·beta`.
//! General cost and source: see [`ENTRY`].

use crate::algorithms::tree::{stripe_count, stripe_degree, stripe_depth, stripe_tree};
use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory, TheoryCase};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "splitstream",
    PlanFunction::Broadcast(plan),
    Theory {
        sent_bytes,
        hops: |case| exactly(stripe_depth(case.p)),
        rounds: |case| ceil_log2(case.p)..=stripe_count(case.p) * (1 + stripe_depth(case.p)),
        cost: Cost::AtMost("8(ceil(log2 p) + k)·(alpha + n/k·beta)"),
        source: "Castro et al., \"SplitStream: high-bandwidth multicast in cooperative environments\", SOSP 2003, \
                 section 3; as proposed by Chowdhury et al. for Spark (SplitStream Broadcast, section 5.4)",
    },
);

/// Plan this rank's part in a SplitStream broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    let stripes = stripe_count(group.size());
    let part = |stripe| stripe_tree(group, root, stripe).broadcast(vector.chunk(stripe, stripes));
    (0..stripes).map(part).fold(Plan::new(), Plan::then)
}

fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    let stripes = stripe_count(case.p);
    let of_stripe = |stripe| stripe_degree(case.distance(rank), case.p, stripe) * case.part(stripe, stripes);
    (0..stripes).map(of_stripe).sum()
}
