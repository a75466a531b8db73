//! Two-level groups: the ranks of every node, and one or more leader ranks of each node.
//!
//! The local ranks of a node are numbered in rank order. The leaders of a node are its first ranks, as many as the
//! smallest node has ranks. The `j`-th leaders of all nodes communicate with each other. Within a subset of ranks, a
//! plan uses the algorithm that [`choose`] selects for the subset.

use crate::catalogue::Algorithm;
use crate::choice::{choose, choose_for_scattered};
use crate::plan::Plan;
use crate::request::PlanRequest;
use crate::{Cost, Group, Span, Theory};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Return the theory of a two-level algorithm for one rank per node: the theory of the algorithm selected between the
/// nodes. For nodes with more ranks, `tests/plans/two_levels.rs` counts the traffic.
pub(crate) const fn theory(source: &'static str) -> Theory {
    Theory {
        sent_bytes: |case, rank| (case.default_algorithm().theory.sent_bytes)(case, rank),
        hops: |case| (case.default_algorithm().theory.hops)(case),
        rounds: |case| (case.default_algorithm().theory.rounds)(case),
        cost: Cost::AsChosen,
        source,
    }
}

/// The two levels of a group from the view of one rank.
pub(crate) struct Levels<'a> {
    group: &'a Group,
    nodes: Vec<Vec<usize>>,
    /// This rank's node.
    pub(crate) node: usize,
    /// This rank's number in its node.
    pub(crate) local_rank: usize,
    /// Number of leaders per node.
    pub(crate) leader_count: usize,
}

impl Levels<'_> {
    /// Compute the levels of `group`.
    pub(crate) fn of(group: &Group) -> Levels<'_> {
        let nodes = group.topology().ranks_by_node();
        let node = group.topology().node(group.rank());
        let local_rank = nodes[node].partition_point(|&rank| rank < group.rank());
        let leader_count = nodes.iter().map(Vec::len).min().unwrap_or(0);
        Levels { group, nodes, node, local_rank, leader_count }
    }

    /// Return the ranks of every node, ascending.
    pub(crate) fn nodes(&self) -> &[Vec<usize>] {
        &self.nodes
    }

    /// Return the ranks of this rank's node.
    pub(crate) fn local_ranks(&self) -> &[usize] {
        &self.nodes[self.node]
    }

    /// Return the leaders of all nodes with the same local rank as this rank, if this rank is a leader.
    pub(crate) fn co_leaders(&self) -> Option<Vec<usize>> {
        (self.local_rank < self.leader_count).then(|| self.nodes.iter().map(|ranks| ranks[self.local_rank]).collect())
    }

    /// Return one rank per node: `root` for its own node, and the first rank of every other node.
    pub(crate) fn leaders_with(&self, root: usize) -> Vec<usize> {
        let mut leaders: Vec<usize> = self.nodes.iter().map(|ranks| ranks[0]).collect();
        leaders[self.group.topology().node(root)] = root;
        leaders
    }

    /// Plan this rank's part in `request` among `ranks`, which include this rank. The request refers to ranks by their
    /// position in `ranks`, and its chunks are consecutive.
    pub(crate) fn plan(&self, ranks: &[usize], request: &PlanRequest) -> Plan {
        self.plan_with(ranks, request, choose)
    }

    /// Plan this rank's part in `request` among `ranks`. The chunks of the request may be at any positions.
    pub(crate) fn plan_scattered(&self, ranks: &[usize], request: &PlanRequest) -> Plan {
        self.plan_with(ranks, request, if is_consecutive(request) { choose } else { choose_for_scattered })
    }

    fn plan_with(
        &self,
        ranks: &[usize],
        request: &PlanRequest,
        choose: fn(crate::Collective, &Group, usize) -> &'static Algorithm,
    ) -> Plan {
        let Some(position) = ranks.iter().position(|&rank| rank == self.group.rank()) else {
            return Plan::new();
        };
        let topology = Arc::new(self.group.topology().of(ranks));
        let group = Group::with_topology(position, topology).in_order(self.group.order());
        let algorithm = choose(request.collective(), &group, request.length_bytes());
        let plan = algorithm.plan(&group, request).expect("the choice uses algorithms without requirements");
        plan.with_peers(|position| ranks[position])
    }

    /// Return the chunks that the leaders of `node` handle in round `round`, one per leader. Leader `j` of `l` handles
    /// the chunk of local rank `j + round·l`, or an empty span if this rank does not exist.
    pub(crate) fn leader_chunks(&self, node: usize, round: usize, chunks: &[Span]) -> Vec<Span> {
        let rank = |leader: usize| self.nodes[node].get(leader + round * self.leader_count);
        (0..self.leader_count)
            .map(|leader| rank(leader).map_or(chunks[0].elements(0, 0), |&rank| chunks[rank]))
            .collect()
    }

    /// Return the number of rounds until leaders have handled the chunk of every rank.
    pub(crate) fn round_count(&self) -> usize {
        let largest = self.nodes.iter().map(Vec::len).max().unwrap_or(0);
        largest.div_ceil(self.leader_count)
    }

    /// Return one span per local rank: the leaders' spans, and empty spans for the other ranks.
    pub(crate) fn pad_to_local_ranks(&self, mut leader_spans: Vec<Span>) -> Vec<Span> {
        let last = leader_spans[leader_spans.len() - 1];
        leader_spans.resize(self.local_ranks().len(), last.elements(last.element_count(), 0));
        leader_spans
    }
}

/// Whether the chunks of `request` are contiguous.
fn is_consecutive(request: &PlanRequest) -> bool {
    let (PlanRequest::Allgather { chunks } | PlanRequest::ReduceScatter { chunks, .. }) = request else { return true };
    let follows = |pair: &[Span]| pair[0].buffer == pair[1].buffer && pair[0].end_bytes() == pair[1].start_bytes;
    chunks.windows(2).all(follows)
}
