//! Neighbor-exchange allgather: every rank ends with every rank's chunk and communicates only with its two neighbors.
//!
//! In the first round the ranks of each pair `2i`, `2i+1` exchange their chunks. Then every rank exchanges alternately
//! with the neighbor outside its pair and the neighbor inside it. It sends both chunks of the pair that it received
//! last. This takes half the rounds of a ring.
//!
//! Requires an even `p`, and each rank's own chunk in place.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Needs, Plan, PlanFunction, Span, Theory, TheoryCase};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "neighbour-exchange",
    PlanFunction::Allgather(plan),
    Theory {
        sent_bytes,
        hops: |case| exactly(case.p / 2),
        rounds: |case| exactly(case.p / 2),
        cost: Cost::Exactly("p/2·alpha + (p-1)/p·n·beta"),
        source: "Chen, Zhang, Zhang, Yuan, \"Performance evaluation of allgather algorithms on terascale Linux \
                 cluster with fast Ethernet\", HPC Asia 2005",
    },
)
.joining()
.needing(Needs::EvenWorld);

/// Plan this rank's part in a neighbour-exchange allgather of `chunks`, one per rank.
pub fn plan(group: &Group, chunks: &[Span]) -> Plan {
    let (rank, p) = (group.rank(), group.size());
    let mut plan = Plan::new();
    if p == 1 {
        return plan;
    }
    let pair_count = p / 2;
    let pair = |number: usize| Span::joined(&chunks[2 * (number % pair_count)..][..2]);
    let (inside, outside) = (rank ^ 1, if rank % 2 == 0 { group.left() } else { group.right() });
    plan.send(inside, chunks[rank]);
    plan.receive(inside, chunks[inside]);

    // The received pairs are alternately the next pair before the known pairs and the next pair after them.
    let (mut latest, mut peer) = (rank / 2, outside);
    for round in 1..pair_count {
        let distance = round.div_ceil(2);
        let from_before = (round % 2 == 1) == (rank % 2 == 0);
        let next = if from_before { rank / 2 + pair_count - distance } else { rank / 2 + distance };
        plan.send(peer, pair(latest));
        plan.receive(peer, pair(next));
        latest = next;
        peer = if peer == outside { inside } else { outside };
    }
    plan
}

/// A rank sends its own chunk, and all pairs except the pair that it receives last.
fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    if case.p == 1 {
        return 0;
    }
    let last = case.p / 2 - 1;
    let distance = last.div_ceil(2);
    let is_before = last.is_multiple_of(2) != rank.is_multiple_of(2);
    let pair = if is_before { rank / 2 + case.p / 2 - distance } else { rank / 2 + distance };
    case.n + case.chunk(rank) - case.chunks(2 * pair, 2)
}
