//! Scatter-allgather broadcast: every rank ends with the root's vector.
//!
//! The vector is cut into `p` chunks, scattered down a binomial tree and gathered on a ring. Chunk `i` belongs to the
//! rank at distance `i` from the root, so the chunks of a subtree are one span for any root. A rank does not receive
//! the chunks of the scatter again in the allgather. Every rank except the root receives `n` bytes in total, and the
//! root receives none.
//!
//! Cost and source: see [`ENTRY`].

use crate::algorithms::tree::NomialNode;
use crate::algorithms::{scatter, tree};
use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory, TheoryCase};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "scatter-allgather",
    PlanFunction::Broadcast(plan),
    Theory {
        sent_bytes,
        hops: |case| case.p - 1..=ceil_log2(case.p) + case.p - 1,
        rounds: |case| exactly(ceil_log2(case.p) + case.p - 1),
        cost: Cost::Exactly("(ceil(log2 p) + p-1)·alpha + 2(p-1)/p·n·beta"),
        source: "Zhang and Qiu, \"Clustering social images with MapReduce and high performance collective \
                 communication\" (Twister), section 4.1, eq. 2; Zhou et al., \"A bandwidth-saving optimization for \
                 MPI broadcast collective operation\", ICPPW 2015",
    },
)
.ordered();

/// Plan this rank's part in a scatter-allgather broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    // In this group every rank's number equals its distance from the root.
    let group = Group::new(group.distance_from(root), group.size());
    let chunks = vector.chunks(group.size());
    let scattered = scatter::binomial::plan(&group, 0, &chunks);
    scattered.then(gathered(&group, &chunks)).with_peers(|distance| group.at_distance(root, distance))
}

/// Plan a ring allgather without the chunks of each rank's subtree, which the scatter has delivered.
fn gathered(group: &Group, chunks: &[Span]) -> Plan {
    let missing_count = |rank| group.size() - NomialNode::of(&Group::new(rank, group.size()), 0, 2).subtree().len();
    let (to_send, to_receive) = (missing_count(group.right()), missing_count(group.rank()));
    let mut plan = Plan::new();
    for round in 0..to_send.max(to_receive) {
        if round < to_send {
            plan.send(group.right(), chunks[group.before(round)]);
        }
        if round < to_receive {
            plan.receive(group.left(), chunks[group.before(round + 1)]);
        }
    }
    plan
}

/// A rank sends the chunks of its subtree, except its own, down the tree. On the ring it sends the chunks that the
/// right neighbor does not have.
fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    let (p, distance) = (case.p, case.distance(rank));
    let ring_count = p - tree::subtree_size((distance + 1) % p, p);
    case.chunks(distance + 1, tree::subtree_size(distance, p) - 1)
        + case.chunks(distance + p + 1 - ring_count, ring_count)
}
