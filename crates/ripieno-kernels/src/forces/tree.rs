//! Balanced tree of points, with the bounding box and the center of each node.
//!
//! Points are repeatedly halved by the median along the longest side of their bounding box (recursive coordinate
//! bisection). So the tree is balanced for any distribution of points, including duplicates and outliers. Bounding
//! boxes are tight.
//!
//! Cost: `n·log(n)`.
//! Sources: Stadel, "Cosmological N-body simulations and their analysis", thesis, Washington 2001 (a binary tree for
//! the method of Barnes and Hut); Barnes, "A modified tree code", J. Comput. Phys. 87, 1990 (one traversal for a group
//! of points).

use crate::panels::{PanelLine, floats_mut};
use crate::{Matrix, Threads};

/// Largest number of points in a leaf. Leaves start at multiples of it.
const LEAF_POINTS: usize = 32;
/// Largest number of points in a group.
const GROUP_POINTS: usize = 128;
/// Number of subtrees per thread that are split off before threads build them in parallel.
const PARTS_PER_THREAD: usize = 4;
/// Estimated cost of a point on each level of the tree, in operations.
const POINT_OPERATIONS: usize = 16;

/// A node of the tree: a range of consecutive points.
#[derive(Clone, Copy)]
pub(super) struct TreeNode<const K: usize> {
    pub low: [f32; K],
    pub high: [f32; K],
    /// The mean of its points.
    pub center: [f32; K],
    /// `K − 2` times the variance of its points, averaged over the dimensions.
    pub spread: f32,
    pub first: u32,
    pub last: u32,
    /// Number of nodes in the subtree of this node, including the node.
    pub nodes: u32,
}

impl<const K: usize> TreeNode<K> {
    const EMPTY: TreeNode<K> =
        TreeNode { low: [0.0; K], high: [0.0; K], center: [0.0; K], spread: 0.0, first: 0, last: 0, nodes: 0 };

    pub fn len(&self) -> usize {
        (self.last - self.first) as usize
    }

    pub fn is_leaf(&self) -> bool {
        self.nodes == 1
    }

    pub fn has(&self, point: u32) -> bool {
        (self.first..self.last).contains(&point)
    }

    /// Return the longest side of the bounding box.
    pub fn size(&self) -> f32 {
        self.high[self.longest()] - self.low[self.longest()]
    }

    fn longest(&self) -> usize {
        let side = |axis: usize| self.high[axis] - self.low[axis];
        (1..K).fold(0, |best, axis| if side(axis) > side(best) { axis } else { best })
    }

    /// Return the squared distance of a position from the bounding box.
    pub fn squared_distance_to(&self, place: &[f32; K]) -> f32 {
        let gap = |axis: usize| (self.low[axis] - place[axis]).max(place[axis] - self.high[axis]).max(0.0);
        (0..K).map(|axis| gap(axis) * gap(axis)).sum()
    }
}

/// A point and its index.
#[derive(Clone, Copy)]
struct IndexedPoint<const K: usize> {
    at: [f32; K],
    index: u32,
}

/// A tree over all points.
pub(super) struct PointTree<const K: usize> {
    /// The nodes in preorder.
    pub nodes: Vec<TreeNode<K>>,
    /// The index of the point at each position of the tree.
    pub order: Vec<u32>,
    /// Positions in tree order, dimension by dimension, in whole lines.
    pub lines: Vec<PanelLine>,
    pub stride: usize,
}

impl<const K: usize> PointTree<K> {
    /// Build the tree of at least one point.
    pub fn of(all: Matrix<f32>, threads: &Threads) -> PointTree<K> {
        let count = all.rows();
        let point =
            |index: usize| IndexedPoint { at: std::array::from_fn(|axis| all.row(index)[axis]), index: index as u32 };
        let mut items: Vec<_> = (0..count).map(point).collect();
        let mut nodes = vec![TreeNode::EMPTY; node_count_for(count)];
        let mut parts = Vec::new();
        let part = Branch { items: &mut items, nodes: &mut nodes, first: 0 };
        let part_points = count / (PARTS_PER_THREAD * threads.count()).next_power_of_two();
        part.halve(part_points, &mut parts);
        let operations = POINT_OPERATIONS * part_points * part_points.max(1).ilog2() as usize;
        threads.for_each(parts, operations, || (), |(), part| part.halve(0, &mut Vec::new()));
        compute_moments(&mut nodes);

        let stride = count.next_multiple_of(LEAF_POINTS);
        let mut lines = vec![PanelLine::default(); stride / PanelLine::LEN * K];
        for (axis, to) in floats_mut(&mut lines).chunks_exact_mut(stride).enumerate() {
            to.iter_mut().zip(&items).for_each(|(to, item)| *to = item.at[axis]);
        }
        PointTree { nodes, order: items.iter().map(|item| item.index).collect(), lines, stride }
    }

    /// Return the group nodes in order. Each point is in exactly one group.
    pub fn groups(&self) -> Vec<TreeNode<K>> {
        let mut groups = Vec::new();
        let mut at = 0;
        while at < self.nodes.len() {
            let node = self.nodes[at];
            if node.len() <= GROUP_POINTS {
                groups.push(node);
                at += node.nodes as usize;
            } else {
                at += 1;
            }
        }
        groups
    }
}

/// Some points and the nodes of their subtree.
struct Branch<'a, const K: usize> {
    items: &'a mut [IndexedPoint<K>],
    nodes: &'a mut [TreeNode<K>],
    first: usize,
}

impl<'a, const K: usize> Branch<'a, K> {
    /// Halve the points until a part has at most `max_points` points or is a leaf. The former are appended to `parts`.
    fn halve(self, max_points: usize, parts: &mut Vec<Branch<'a, K>>) {
        let Branch { items, nodes, first } = self;
        if items.len() <= max_points {
            return parts.push(Branch { items, nodes, first });
        }
        let node_count = nodes.len() as u32;
        let (node, below) = nodes.split_first_mut().expect("there are points, so there is a node");
        *node = with_bounding_box(items);
        (node.first, node.last, node.nodes) = (first as u32, (first + items.len()) as u32, node_count);
        if node.is_leaf() {
            (node.center, node.spread) = moments(items);
            return;
        }
        let middle = (items.len() / 2).next_multiple_of(LEAF_POINTS);
        let axis = node.longest();
        items.select_nth_unstable_by(middle, |a, b| a.at[axis].total_cmp(&b.at[axis]).then(a.index.cmp(&b.index)));
        let (left, right) = items.split_at_mut(middle);
        let (left_nodes, right_nodes) = below.split_at_mut(node_count_for(middle));
        Branch { items: left, nodes: left_nodes, first }.halve(max_points, parts);
        Branch { items: right, nodes: right_nodes, first: first + middle }.halve(max_points, parts);
    }
}

/// Return the number of nodes of a tree with this number of points.
fn node_count_for(points: usize) -> usize {
    2 * points.div_ceil(LEAF_POINTS) - 1
}

/// Create a node with only the bounding box of the points.
fn with_bounding_box<const K: usize>(items: &[IndexedPoint<K>]) -> TreeNode<K> {
    let mut node = TreeNode { low: items[0].at, high: items[0].at, ..TreeNode::EMPTY };
    for item in items {
        for axis in 0..K {
            node.low[axis] = node.low[axis].min(item.at[axis]);
            node.high[axis] = node.high[axis].max(item.at[axis]);
        }
    }
    node
}

/// Return the center and the spread of points.
fn moments<const K: usize>(items: &[IndexedPoint<K>]) -> ([f32; K], f32) {
    let count = items.len() as f64;
    let center = std::array::from_fn(|axis| {
        let sum: f64 = items.iter().map(|item| f64::from(item.at[axis])).sum();
        (sum / count) as f32
    });
    let squares: f64 = items.iter().map(|item| squared_distance(&item.at, &center)).sum();
    (center, spread::<K>(squares / count))
}

fn squared_distance<const K: usize>(a: &[f32; K], b: &[f32; K]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum()
}

/// Return the spread for a mean squared distance from the center.
fn spread<const K: usize>(mean_square: f64) -> f32 {
    (mean_square * (K as f64 - 2.0) / K as f64) as f32
}

/// Compute the centers and spreads of the inner nodes from their children.
fn compute_moments<const K: usize>(nodes: &mut [TreeNode<K>]) {
    for at in (0..nodes.len()).rev() {
        if nodes[at].is_leaf() {
            continue;
        }
        let left = nodes[at + 1];
        let right = nodes[at + 1 + left.nodes as usize];
        let share = left.len() as f64 / (left.len() + right.len()) as f64;
        let mean = |left: f64, right: f64| share * left + (1.0 - share) * right;
        let node = &mut nodes[at];
        node.center = std::array::from_fn(|axis| mean(left.center[axis].into(), right.center[axis].into()) as f32);
        let difference =
            mean(squared_distance(&left.center, &node.center), squared_distance(&right.center, &node.center));
        node.spread = mean(left.spread.into(), right.spread.into()) as f32 + spread::<K>(difference);
    }
}
