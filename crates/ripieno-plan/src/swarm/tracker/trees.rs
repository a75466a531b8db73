//! Stripe trees: the source of each member per stripe, and replacements for lost sources.

use crate::algorithms::tree::stripe_parent;
use crate::swarm::{BlockManifest, Discipline};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// The trees of one value, one per stripe. In a chain each member has at most one child.
#[derive(Debug)]
pub(super) struct StripeTrees {
    root: usize,
    discipline: Discipline,
    stripe_count: usize,
    /// The members other than the root in chain order, and the position of each.
    order: Vec<usize>,
    positions: BTreeMap<usize, usize>,
    /// Parent by stripe and member.
    parents: BTreeMap<(usize, usize), usize>,
    children: BTreeMap<(usize, usize), BTreeSet<usize>>,
    /// Number of children of each live member in all trees.
    loads: BTreeMap<usize, usize>,
    lost: BTreeSet<usize>,
}

impl StripeTrees {
    pub(super) fn new(root: usize, manifest: &BlockManifest, order: Vec<usize>) -> StripeTrees {
        let size = order.len() + 1;
        let mut trees = StripeTrees {
            root,
            discipline: manifest.discipline,
            stripe_count: if manifest.discipline.is_streamed() { manifest.stripe_count } else { 0 },
            positions: order.iter().enumerate().map(|(position, &rank)| (rank, position)).collect(),
            loads: order.iter().map(|&rank| (rank, 0)).chain([(root, 0)]).collect(),
            order,
            parents: BTreeMap::new(),
            children: BTreeMap::new(),
            lost: BTreeSet::new(),
        };
        for stripe in 0..trees.stripe_count {
            for position in 0..trees.order.len() {
                let distance = match trees.discipline {
                    Discipline::Chain => position,
                    Discipline::Flat => 0,
                    // In a binomial tree the parent's number is the member's number without its lowest set bit.
                    Discipline::Tree => (position + 1) & position,
                    _ => stripe_parent(position + 1, size, stripe),
                };
                let parent = if distance == 0 { root } else { trees.order[distance - 1] };
                trees.link(stripe, trees.order[position], parent);
            }
        }
        trees
    }

    /// Return the sources of a member by stripe. A member that joins late is linked to new parents.
    pub(super) fn sources(&mut self, rank: usize) -> Vec<usize> {
        if rank != self.root && !self.positions.contains_key(&rank) {
            self.positions.insert(rank, self.order.len());
            self.order.push(rank);
            self.loads.insert(rank, 0);
        }
        (0..self.stripe_count)
            .map(|stripe| match self.parents.get(&(stripe, rank)) {
                Some(&parent) => parent,
                None => self.replace(stripe, rank, &BTreeSet::new()),
            })
            .collect()
    }

    /// Whether the only tree is a chain.
    pub(super) fn is_chain(&self) -> bool {
        self.discipline == Discipline::Chain
    }

    /// Return the stripes that a member streams from `source`.
    pub(super) fn stripes_from(&self, source: usize, rank: usize) -> impl Iterator<Item = usize> {
        (0..self.stripe_count).filter(move |&stripe| self.source(stripe, rank) == Some(source))
    }

    /// Return the stripes and children of a member that the children should not stream from. A chain continues with
    /// the member at its end.
    pub(super) fn bypass(&mut self, rank: usize) -> Vec<(usize, usize)> {
        if self.is_chain()
            && let Some(&position) = self.positions.get(&rank)
        {
            self.order[position..].rotate_left(1);
            self.positions = self.order.iter().enumerate().map(|(position, &rank)| (rank, position)).collect();
        }
        let children = |stripe| self.children.get(&(stripe, rank)).into_iter().flatten().copied();
        (0..self.stripe_count).flat_map(|stripe| children(stripe).map(move |child| (stripe, child))).collect()
    }

    /// Return the source of a member for a stripe.
    pub(super) fn source(&self, stripe: usize, rank: usize) -> Option<usize> {
        self.parents.get(&(stripe, rank)).copied()
    }

    /// Link a member to a new source outside of `avoided` and return it. In a chain it is the nearest usable
    /// predecessor, in a flat tree the root. In other trees it is the member with the fewest children that does not
    /// stream from this member.
    pub(super) fn replace(&mut self, stripe: usize, rank: usize, avoided: &BTreeSet<usize>) -> usize {
        let is_able = |other: &usize| *other != rank && !avoided.contains(other) && !self.lost.contains(other);
        let source = match self.discipline {
            Discipline::Flat => None,
            Discipline::Chain => {
                let before = &self.order[..self.positions.get(&rank).copied().unwrap_or(self.order.len())];
                before.iter().rev().copied().find(is_able)
            }
            _ => {
                let able = self.loads.iter().filter(|(other, _)| is_able(other)).map(|(&other, &load)| (load, other));
                let mut by_load: Vec<(usize, usize)> = able.collect();
                by_load.sort_unstable();
                by_load.into_iter().map(|(_, other)| other).find(|&other| !self.is_below(stripe, other, rank))
            }
        };
        let source = source.unwrap_or(self.root);
        self.link(stripe, rank, source);
        source
    }

    /// Remove a lost member and return the stripes and members that need another source.
    pub(super) fn remove(&mut self, rank: usize) -> Vec<(usize, usize)> {
        self.lost.insert(rank);
        let mut orphans = Vec::new();
        for stripe in 0..self.stripe_count {
            self.unlink(stripe, rank);
            let children = self.children.remove(&(stripe, rank)).unwrap_or_default();
            orphans.extend(children.into_iter().map(|child| (stripe, child)));
        }
        self.loads.remove(&rank);
        orphans
    }

    fn link(&mut self, stripe: usize, rank: usize, parent: usize) {
        self.unlink(stripe, rank);
        self.parents.insert((stripe, rank), parent);
        self.children.entry((stripe, parent)).or_default().insert(rank);
        *self.loads.entry(parent).or_default() += 1;
    }

    fn unlink(&mut self, stripe: usize, rank: usize) {
        let Some(parent) = self.parents.remove(&(stripe, rank)) else { return };
        if self.children.get_mut(&(stripe, parent)).is_some_and(|children| children.remove(&rank))
            && let Some(load) = self.loads.get_mut(&parent)
        {
            *load -= 1;
        }
    }

    /// Whether `rank` streams from `above`, directly or through other members.
    fn is_below(&self, stripe: usize, rank: usize, above: usize) -> bool {
        let up = core::iter::successors(Some(rank), |rank| self.parents.get(&(stripe, *rank)).copied());
        // An orphan keeps its old parent until all orphans are relinked. The bound ends the walk: no path is longer
        // than the number of members.
        up.take(self.order.len() + 2).any(|rank| rank == above)
    }
}
