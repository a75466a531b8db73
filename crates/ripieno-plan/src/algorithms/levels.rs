//! Two-level groups: the ranks of every node, and one or more leader ranks of each node.
//!
//! The local ranks of a node are numbered in rank order. The leaders of a node are its first ranks, as many as the
//! smallest node has ranks. The `j`-th leaders of all nodes communicate with each other. A part of a plan for a subset
//! of ranks uses the algorithm that [`choose`] selects for the subset, with its peers mapped back.

use crate::catalogue::Algorithm;
use crate::choice::{choose, choose_for_scattered};
use crate::plan::Plan;
use crate::request::Request;
use crate::{Cost, Group, Span, Theory};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Return the theory of a two-level algorithm. If each rank is on its own node, it is the theory of the algorithm
/// selected between the nodes. For nodes with more ranks, `tests/plans/two_levels.rs` counts the traffic.
pub(crate) const fn theory(source: &'static str) -> Theory {
    Theory {
        sent_bytes: |case, rank| (case.chosen().theory.sent_bytes)(case, rank),
        hops: |case| (case.chosen().theory.hops)(case),
        rounds: |case| (case.chosen().theory.rounds)(case),
        cost: Cost::AsChosen,
        source,
    }
}

/// The two levels of a group from the view of one rank.
pub(crate) struct Levels<'a> {
    group: &'a Group,
    members: Vec<Vec<usize>>,
    /// This rank's node, and its position in the node.
    pub(crate) node: usize,
    pub(crate) place: usize,
}

impl Levels<'_> {
    /// Compute the levels of `group`.
    pub(crate) fn of(group: &Group) -> Levels<'_> {
        let members = group.topology().members();
        let node = group.topology().node(group.rank());
        let place = members[node].partition_point(|&rank| rank < group.rank());
        Levels { group, members, node, place }
    }

    /// Return the ranks of every node, ascending.
    pub(crate) fn members(&self) -> &[Vec<usize>] {
        &self.members
    }

    /// Return the ranks of this rank's node.
    pub(crate) fn locals(&self) -> &[usize] {
        &self.members[self.node]
    }

    /// Return the number of leaders per node.
    pub(crate) fn leader_count(&self) -> usize {
        self.members.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// Return the leaders of all nodes with the same position as this rank, if this rank is a leader.
    pub(crate) fn co_leaders(&self) -> Option<Vec<usize>> {
        (self.place < self.leader_count()).then(|| self.members.iter().map(|locals| locals[self.place]).collect())
    }

    /// Return one rank per node: `root` for its own node, and the first rank of every other node.
    pub(crate) fn leaders_with(&self, root: usize) -> Vec<usize> {
        let mut leaders: Vec<usize> = self.members.iter().map(|locals| locals[0]).collect();
        leaders[self.group.topology().node(root)] = root;
        leaders
    }

    /// Plan this rank's part in `request` among `ranks`, which include this rank. The request refers to ranks by their
    /// position in `ranks`, and its chunks are consecutive.
    pub(crate) fn among(&self, ranks: &[usize], request: &Request) -> Plan {
        self.planned(ranks, request, choose)
    }

    /// Plan this rank's part in a request with chunks at any positions.
    pub(crate) fn among_scattered(&self, ranks: &[usize], request: &Request) -> Plan {
        self.planned(ranks, request, if is_consecutive(request) { choose } else { choose_for_scattered })
    }

    fn planned(
        &self,
        ranks: &[usize],
        request: &Request,
        choose: fn(crate::Collective, &Group, usize) -> &'static Algorithm,
    ) -> Plan {
        let Some(place) = ranks.iter().position(|&rank| rank == self.group.rank()) else {
            return Plan::new();
        };
        let topology = Arc::new(self.group.topology().of(ranks));
        let group = Group::with_topology(place, topology).in_order(self.group.order());
        let algorithm = choose(request.collective(), &group, request.length_bytes());
        let plan = algorithm.plan(&group, request).expect("the choice uses algorithms without requirements");
        plan.with_peers(|place| ranks[place])
    }

    /// Return the chunks that the leaders of `node` handle in round `round`, one per leader. A leader handles the chunk
    /// of the local rank that is `round` times the number of leaders behind it. Its span is empty if no such rank
    /// exists.
    pub(crate) fn leader_chunks(&self, node: usize, round: usize, chunks: &[Span]) -> Vec<Span> {
        let rank = |leader: usize| self.members[node].get(leader + round * self.leader_count());
        (0..self.leader_count())
            .map(|leader| rank(leader).map_or(chunks[0].elements(0, 0), |&rank| chunks[rank]))
            .collect()
    }

    /// Return the number of rounds until leaders have handled the chunk of every rank.
    pub(crate) fn round_count(&self) -> usize {
        let largest = self.members.iter().map(Vec::len).max().unwrap_or(0);
        largest.div_ceil(self.leader_count())
    }

    /// Return one span per local rank: the leaders' spans, and empty spans for the other ranks.
    pub(crate) fn for_locals(&self, mut of_leaders: Vec<Span>) -> Vec<Span> {
        let last = of_leaders[of_leaders.len() - 1];
        of_leaders.resize(self.locals().len(), last.elements(last.element_count(), 0));
        of_leaders
    }
}

/// Whether the chunks of `request` are contiguous.
fn is_consecutive(request: &Request) -> bool {
    let (Request::Allgather { chunks } | Request::ReduceScatter { chunks, .. }) = request else { return true };
    let follows = |pair: &[Span]| pair[0].buffer == pair[1].buffer && pair[0].end_bytes() == pair[1].start_bytes;
    chunks.windows(2).all(follows)
}
