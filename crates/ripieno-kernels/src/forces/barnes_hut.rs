//! Repulsion between all points, with distant points approximated by their center (Barnes and Hut).
//!
//! Points that are near each other in a tree traverse it as a group. A node that appears small enough from the bounding
//! box of the group counts as one weighted point. Other nodes are opened, down to single points. The requested points
//! of the group then interact with the collected nodes and points, in strips. The traversal uses the whole group,
//! independent of the requested points. So the bits of a sum depend only on all positions, the angle and the SIMD
//! level.
//!
//! A node acts from its center, so the error starts with the second moments of its points. Their mean over all
//! dimensions does not cancel in any direction and is corrected: `r/d²` becomes `r/(d² + (k − 2)·s²)` for points of
//! variance `s²` in each dimension. (In two dimensions `r/d²` is harmonic, so the correction is zero.)
//!
//! Cost: `n·log(n)` for the tree and the traversals; `3·k + 5` operations for each pair of a point and an element of
//! its group's list.
//! Sources: Barnes and Hut, "A hierarchical O(N log N) force-calculation algorithm", Nature 324, 1986; Barnes, "A
//! modified tree code", J. Comput. Phys. 87, 1990.

use super::strip::{STRIP_POINTS, Strip, Weights, repel};
use super::tree::{PointTree, TreeNode};
use crate::panels::{PanelLine, floats, floats_mut};
use crate::simd::{Vector, VectorJob};
use crate::{Matrix, Threads};
use std::ops::Range;

/// Estimated cost of a traversal and its interactions per point of a group, in operations.
const POINT_OPERATIONS: usize = 1 << 14;

/// Compute for each of the points `own` the sum of `(x − y)/‖x − y‖²` over all points `y`. Distances below 0.01 count
/// as 0.01.
///
/// A node counts as one point if its bounding box is smaller than `theta` times its distance. Return the number of
/// computed pairs of a point and a node or another point.
///
/// # Panics
/// If the shapes do not fit, or points have neither two nor three dimensions.
pub fn barnes_hut(theta: f32, own: Range<usize>, all: Matrix<f32>, out: &mut [f64], threads: &Threads) -> u64 {
    match all.columns() {
        2 => repulsion_in::<2>(theta, own, all, out, threads),
        3 => repulsion_in::<3>(theta, own, all, out, threads),
        k => panic!("{k} dimensions: the tree has two or three"),
    }
}

fn repulsion_in<const K: usize>(
    theta: f32,
    own: Range<usize>,
    all: Matrix<f32>,
    out: &mut [f64],
    threads: &Threads,
) -> u64 {
    assert!(own.end <= all.rows(), "own points are some of all");
    assert_eq!(out.len(), own.len() * K, "a sum for every own point and dimension");
    if own.is_empty() {
        return 0;
    }
    let tree = PointTree::<K>::of(all, threads);
    let mut groups: Vec<_> = tree.groups().into_iter().map(|node| TraversalGroup::of(node, &tree, &own)).collect();
    groups.retain(|group| !group.own.is_empty());
    threads.for_each(groups.iter_mut().collect(), POINT_OPERATIONS, InteractionList::default, |list, group| {
        threads.simd().run(Traversal { theta, tree: &tree, all, group, list });
    });
    for (&point, sums) in groups.iter().flat_map(|group| group.own.iter().zip(&group.sums)) {
        out[(point as usize - own.start) * K..][..K].copy_from_slice(sums);
    }
    groups.iter().map(|group| group.pair_count).sum()
}

/// Points that traverse the tree together.
struct TraversalGroup<const K: usize> {
    node: TreeNode<K>,
    /// The requested points of the group.
    own: Vec<u32>,
    /// The repulsion on these points.
    sums: Vec<[f64; K]>,
    pair_count: u64,
}

impl<const K: usize> TraversalGroup<K> {
    fn of(node: TreeNode<K>, tree: &PointTree<K>, requested: &Range<usize>) -> TraversalGroup<K> {
        let points = &tree.order[node.first as usize..node.last as usize];
        let own: Vec<u32> = points.iter().copied().filter(|&point| requested.contains(&(point as usize))).collect();
        TraversalGroup { node, sums: vec![[0.0; K]; own.len()], own, pair_count: 0 }
    }
}

/// Nodes and points collected by a traversal and not processed yet, dimension by dimension.
struct InteractionList {
    positions: Vec<PanelLine>,
    counts: Vec<PanelLine>,
    spreads: Vec<PanelLine>,
    count: usize,
}

impl Default for InteractionList {
    fn default() -> InteractionList {
        let lines = |values: usize| vec![PanelLine::default(); values / PanelLine::LEN];
        InteractionList {
            positions: lines(3 * STRIP_POINTS),
            counts: lines(STRIP_POINTS),
            spreads: lines(STRIP_POINTS),
            count: 0,
        }
    }
}

/// The traversal of one group.
struct Traversal<'a, const K: usize> {
    theta: f32,
    tree: &'a PointTree<K>,
    all: Matrix<'a, f32>,
    group: &'a mut TraversalGroup<K>,
    list: &'a mut InteractionList,
}

impl<const K: usize> VectorJob for Traversal<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(mut self) {
        let square = self.theta * self.theta;
        let mut at = 0;
        while let Some(node) = self.tree.nodes.get(at) {
            let is_around = node.has(self.group.node.first);
            let (size, distance) = (node.size(), self.group.node.squared_distance_to(&node.center));
            if !is_around && size * size < square * distance {
                self.take_node::<V>(node);
            } else if node.is_leaf() {
                self.take_points::<V>(node);
            } else {
                at += 1;
                continue;
            }
            at += node.nodes as usize;
        }
        self.repel_all::<V>();
    }
}

impl<const K: usize> Traversal<'_, K> {
    #[inline(always)]
    fn take_node<V: Vector>(&mut self, node: &TreeNode<K>) {
        self.reserve::<V>(1);
        let at = self.list.count;
        let positions = floats_mut(&mut self.list.positions);
        (0..K).for_each(|axis| positions[axis * STRIP_POINTS + at] = node.center[axis]);
        floats_mut(&mut self.list.counts)[at] = node.len() as f32;
        floats_mut(&mut self.list.spreads)[at] = node.spread;
        self.list.count += 1;
    }

    #[inline(always)]
    fn take_points<V: Vector>(&mut self, leaf: &TreeNode<K>) {
        self.reserve::<V>(leaf.len());
        let taken = self.list.count..self.list.count + leaf.len();
        let positions = floats_mut(&mut self.list.positions);
        for axis in 0..K {
            let from = &floats(&self.tree.lines)[axis * self.tree.stride..];
            let from = &from[leaf.first as usize..leaf.last as usize];
            positions[axis * STRIP_POINTS..][taken.clone()].copy_from_slice(from);
        }
        floats_mut(&mut self.list.counts)[taken.clone()].fill(1.0);
        floats_mut(&mut self.list.spreads)[taken.clone()].fill(0.0);
        self.list.count = taken.end;
    }

    #[inline(always)]
    fn reserve<V: Vector>(&mut self, count: usize) {
        if self.list.count + count > STRIP_POINTS {
            self.repel_all::<V>();
        }
    }

    /// Compute the repulsion of all collected nodes and points on the requested points of the group.
    #[inline(always)]
    fn repel_all<V: Vector>(&mut self) {
        let count = self.list.count;
        let padded = count.next_multiple_of(PanelLine::LEN);
        // Padding values of the last line have zero weight.
        floats_mut(&mut self.list.counts)[count..padded].fill(0.0);
        let strip = Strip { positions: floats(&self.list.positions), stride: STRIP_POINTS, padded };
        let weights = Weights { counts: floats(&self.list.counts), spreads: floats(&self.list.spreads) };
        let TraversalGroup { own, sums, .. } = &mut *self.group;
        let mut groups_of_four = own.chunks_exact(4).zip(sums.chunks_exact_mut(4));
        for (points, sums) in &mut groups_of_four {
            let targets = std::array::from_fn(|at| self.all.row(points[at] as usize));
            add(sums, &repel::<V, K, 4, false, true>(targets, &strip, weights, &mut []));
        }
        let rest = own.len() / 4 * 4;
        for (&point, sums) in own[rest..].iter().zip(sums[rest..].chunks_mut(1)) {
            add(sums, &repel::<V, K, 1, false, true>([self.all.row(point as usize)], &strip, weights, &mut []));
        }
        self.group.pair_count += (own.len() * count) as u64;
        self.list.count = 0;
    }
}

#[inline(always)]
fn add<const K: usize>(sums: &mut [[f64; K]], forces: &[[f32; K]]) {
    for (sums, forces) in sums.iter_mut().zip(forces) {
        sums.iter_mut().zip(forces).for_each(|(sum, &value)| *sum += f64::from(value));
    }
}
