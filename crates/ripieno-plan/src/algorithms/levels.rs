//! A group in two levels: the ranks of every node, and between the nodes one rank of each or several.
//!
//! The local ranks of a node are numbered in the order of their ranks. A node has as many *leaders* as the smallest
//! node has ranks: its first ones. The `j`-th leaders of all nodes work among themselves. A part of a plan that some
//! ranks run among themselves is the plan of whatever algorithm [`choose`] takes for them, its peers named back.

use crate::catalogue::Algorithm;
use crate::choice::{choose, choose_for_scattered};
use crate::plan::Plan;
use crate::request::Request;
use crate::{Cost, Group, Span, Theory};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The theory of an algorithm in two levels: where each rank is a node of its own, it is that of what is chosen there.
/// What nodes carry where they have more ranks is counted by `tests/plans/two_levels.rs`.
pub(crate) const fn theory(source: &'static str) -> Theory {
    Theory {
        sent_bytes: |case, rank| (case.chosen().theory.sent_bytes)(case, rank),
        hops: |case| (case.chosen().theory.hops)(case),
        rounds: |case| (case.chosen().theory.rounds)(case),
        cost: Cost::AsChosen,
        source,
    }
}

/// The two levels of a group, seen from one rank.
pub(crate) struct Levels<'a> {
    group: &'a Group,
    members: Vec<Vec<usize>>,
    /// This rank's node, and its number there.
    pub(crate) node: usize,
    pub(crate) place: usize,
}

impl Levels<'_> {
    /// The levels of `group`.
    pub(crate) fn of(group: &Group) -> Levels<'_> {
        let members = group.topology().members();
        let node = group.topology().node(group.rank());
        let place = members[node].partition_point(|&rank| rank < group.rank());
        Levels { group, members, node, place }
    }

    /// The ranks of every node, ascending.
    pub(crate) fn members(&self) -> &[Vec<usize>] {
        &self.members
    }

    /// The ranks of this rank's node.
    pub(crate) fn locals(&self) -> &[usize] {
        &self.members[self.node]
    }

    /// How many leaders each node has.
    pub(crate) fn leader_count(&self) -> usize {
        self.members.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// The leaders of all nodes that have the number of this one, if this rank is one.
    pub(crate) fn co_leaders(&self) -> Option<Vec<usize>> {
        (self.place < self.leader_count()).then(|| self.members.iter().map(|locals| locals[self.place]).collect())
    }

    /// One rank of every node: `root` of its own, the first of the others.
    pub(crate) fn leaders_with(&self, root: usize) -> Vec<usize> {
        let mut leaders: Vec<usize> = self.members.iter().map(|locals| locals[0]).collect();
        leaders[self.group.topology().node(root)] = root;
        leaders
    }

    /// What this rank does for `request` of `ranks`, of which it is one. The request names ranks by their place in
    /// `ranks`, and its chunks are consecutive.
    pub(crate) fn among(&self, ranks: &[usize], request: &Request) -> Plan {
        self.planned(ranks, request, choose)
    }

    /// The same for chunks that lie anywhere.
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
        let plan = algorithm.plan(&group, request).expect("the choice takes what needs nothing");
        plan.with_peers(|place| ranks[place])
    }

    /// Round `round` of the leaders over `chunks`, one per rank: for every leader of `node` the chunk of the local rank
    /// that stands `round` times the number of leaders behind it, none where there is no such rank.
    pub(crate) fn leader_chunks(&self, node: usize, round: usize, chunks: &[Span]) -> Vec<Span> {
        let rank = |leader: usize| self.members[node].get(leader + round * self.leader_count());
        (0..self.leader_count())
            .map(|leader| rank(leader).map_or(chunks[0].elements(0, 0), |&rank| chunks[rank]))
            .collect()
    }

    /// How many rounds bring every rank of every node into some leader's hands.
    pub(crate) fn round_count(&self) -> usize {
        let largest = self.members.iter().map(Vec::len).max().unwrap_or(0);
        largest.div_ceil(self.leader_count())
    }

    /// One span for every local rank: those of the leaders, and nothing for the others.
    pub(crate) fn for_locals(&self, mut of_leaders: Vec<Span>) -> Vec<Span> {
        let last = of_leaders[of_leaders.len() - 1];
        of_leaders.resize(self.locals().len(), last.elements(last.element_count(), 0));
        of_leaders
    }
}

/// Whether the chunks of `request` happen to lie one after the other.
fn is_consecutive(request: &Request) -> bool {
    let (Request::Allgather { chunks } | Request::ReduceScatter { chunks, .. }) = request else { return true };
    let follows = |pair: &[Span]| pair[0].buffer == pair[1].buffer && pair[0].end_bytes() == pair[1].start_bytes;
    chunks.windows(2).all(follows)
}
