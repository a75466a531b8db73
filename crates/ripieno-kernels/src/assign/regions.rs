//! Regions of space with the few centroids that can be nearest to a point in each: a search for few columns.
//!
//! The bounding box of all points is halved repeatedly. A region keeps the candidates of its parent that no other
//! centroid beats everywhere in the region's box ([`CandidateColumns::within`]). It is not halved further if its
//! candidates fit into one group of lanes, or if too few points would benefit. The first halvings form a grid, so a
//! point finds its cell by its coordinates. The later ones, where points are dense, form a tree below the cell. In its
//! leaf the point is compared with the candidates in f64, in the order of their indices. So labels equal the result of
//! a comparison with all centroids, for any regions.
//!
//! Cost: `k·log(k)` for the regions, and some `10·d` for a point with few candidates. This is the case in two or three
//! dimensions, and in more if the points lie near a low-dimensional surface. Otherwise no regions are created.
//! Memory: a few groups per centroid.
//! Source: Kanungo et al., "An efficient k-means clustering algorithm: analysis and implementation", IEEE TPAMI 24(7),
//! 2002, section 2 (a candidate that another one beats in the whole cell). Here cells contain space instead of points.

mod candidates;
mod grid;

use crate::simd::{FEW_COLUMNS, Vector, VectorJob, min_distance, prefetch};
use crate::{Centroid, Matrix, Point, Threads};
use candidates::{CandidateColumns, CandidateScratch};
use grid::{Grid, bounds};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of candidates compared with a point at once.
const LANES: usize = 8;
/// Number of points that search their regions in parallel, so that steps of one hide the memory latency of another.
const INTERLEAVED_POINTS: usize = 16;
/// Smallest number of points of a region for which halving is worthwhile.
const MIN_HALVING_POINTS: usize = 32;
/// Sample size for creating the regions: points per centroid, and minimum.
const SAMPLE_POINTS_PER_CENTROID: usize = 4;
const MIN_SAMPLE_POINTS: usize = 1 << 12;
/// With fewer centroids a comparison with all of them is as fast.
const MIN_CENTROIDS: usize = 64;
/// Cells of the grid per centroid, and maximum.
const CELLS_PER_CENTROID: usize = 4;
const MAX_CELLS: usize = 1 << 16;
/// Largest number of halvings of a cell: equal points are never separated.
const MAX_DEPTH: usize = 48;
/// Limit of the comparisons between centroids for creating the regions: one per this number of pairs of points and
/// centroids.
const PAIRS_PER_COMPARISON: usize = 64;
/// Cost of a group of candidates for a point, in comparisons of the search over all centroids.
const GROUP_COST: usize = 32;
/// Estimated cost of a point per column, in comparisons with centroids.
pub(super) const POINT_COST: usize = 64;
/// Number of halvings before threads process the parts in parallel.
const SEQUENTIAL_DEPTH: usize = 5;

/// The regions.
pub(super) struct Regions<C> {
    grid: Grid,
    /// The node of each cell.
    table: Vec<u32>,
    tree: RegionTree<C>,
}

/// The nodes below the cells, and the candidates of their leaves.
struct RegionTree<C> {
    columns: usize,
    nodes: Vec<RegionNode<C>>,
    /// Coordinates of the candidates: per group, column by column.
    coordinates: Vec<[C; LANES]>,
    /// Indices of the candidates, ascending. A group is padded with centroids at infinity.
    indices: Vec<[i32; LANES]>,
    /// Number of sample points, and of groups that they are compared with.
    sample_count: usize,
    compared_count: usize,
}

/// A node. An inner node has two children, a leaf has groups of candidates.
#[derive(Clone, Copy)]
struct RegionNode<C> {
    /// The last coordinate of the first child; infinite in a leaf.
    cut: C,
    column: u32,
    /// The first child, followed by the second one; the node itself in a leaf.
    next: u32,
    first_group: u32,
    group_count: u32,
}

/// Per column, the smallest and the greatest coordinate.
type ColumnRange = [(f64, f64); FEW_COLUMNS];

impl<C: Centroid> Regions<C> {
    /// Create the regions for these points and centroids if a search in them is worthwhile.
    pub(super) fn new<P: Point<Centroid = C>>(
        points: Matrix<P>,
        centroids: Matrix<C>,
        threads: &Threads,
    ) -> Option<Regions<C>> {
        let (count, columns) = (centroids.rows(), centroids.columns());
        let limit = points.rows().saturating_mul(count) / PAIRS_PER_COMPARISON;
        if columns > FEW_COLUMNS || count < MIN_CENTROIDS || limit < SEQUENTIAL_DEPTH * count {
            return None;
        }
        let regions = Regions::of(points, centroids, limit, threads)?;
        (regions.tree.compared_count * GROUP_COST < regions.tree.sample_count * count).then_some(regions)
    }

    /// Create the regions. `None` if they take more comparisons of centroids than `limit`, or if the bounding box
    /// overflows.
    fn of<P: Point<Centroid = C>>(
        points: Matrix<P>,
        centroids: Matrix<C>,
        limit: usize,
        threads: &Threads,
    ) -> Option<Regions<C>> {
        let (count, columns) = (centroids.rows(), centroids.columns());
        let cells = (CELLS_PER_CENTROID * count).min(MAX_CELLS);
        let grid = Grid::new(columns, bounds(points, threads)?, cells.ilog2() as usize)?;
        let step = (points.rows() / (SAMPLE_POINTS_PER_CENTROID * count).max(MIN_SAMPLE_POINTS)).max(1);
        let (cells, mut sample) = grid.sorted(points, step);
        let build = Build { centroids, grid: &grid, step, limit, comparison_count: AtomicUsize::new(0) };

        let mut table = vec![0; 1 << grid.depth()];
        let mut parts = vec![build.root_region(&mut table, &cells, &mut sample)];
        let mut scratch = CandidateScratch::default();
        for _ in 0..SEQUENTIAL_DEPTH {
            parts = parts.into_iter().flat_map(|part| build.halved(part, &mut scratch)).collect();
        }
        let entry_counts: Vec<usize> = parts.iter().map(OpenRegion::entry_count).collect();
        let mut trees: Vec<Option<RegionTree<C>>> = parts.iter().map(|_| None).collect();
        let operations = limit / parts.len();
        let both = trees.iter_mut().zip(parts).collect();
        threads.for_each(both, operations, CandidateScratch::default, |scratch, (tree, part)| {
            *tree = threads.simd().run(RegionGrower { build: &build, part, scratch });
        });
        let mut tree = RegionTree::new(columns);
        let mut entries = &mut table[..];
        for (part, count) in trees.into_iter().zip(entry_counts) {
            let own = entries.split_off_mut(..count).expect("parts share the cells");
            own.iter_mut().for_each(|entry| *entry += tree.nodes.len() as u32);
            tree.append(part?);
        }
        Some(Regions { grid, table, tree })
    }

    /// Return the leaves of at most [`INTERLEAVED_POINTS`] points.
    #[inline(always)]
    fn leaves<const COLUMNS: usize>(&self, points: &[[C; COLUMNS]]) -> [u32; INTERLEAVED_POINTS] {
        let mut leaves = [0; INTERLEAVED_POINTS];
        for (leaf, point) in leaves.iter_mut().zip(points) {
            *leaf = self.table[self.grid.cell(&point.map(Into::into))];
        }
        let mut remaining = true;
        while remaining {
            remaining = false;
            for (leaf, point) in leaves.iter_mut().zip(points) {
                let node = &self.tree.nodes[*leaf as usize];
                let next = node.next + u32::from(point[node.column as usize % COLUMNS] > node.cut);
                remaining |= next != *leaf;
                *leaf = next;
            }
        }
        leaves
    }
}

/// Input and state of the construction.
struct Build<'a, C> {
    centroids: Matrix<'a, C>,
    grid: &'a Grid,
    /// Number of rows per sample point.
    step: usize,
    /// Limit and count of comparisons between centroids.
    limit: usize,
    comparison_count: AtomicUsize,
}

/// A region without leaves yet.
struct OpenRegion<'a> {
    bounds: ColumnRange,
    candidates: CandidateColumns,
    /// The sample points of the region, sorted by cell if it has several cells.
    sample: &'a mut [f64],
    depth: usize,
    slot: NodeSlot<'a>,
}

/// The location of a region's node.
enum NodeSlot<'a> {
    /// The entries of several cells. Contains the first cell's number, the region's positions in the columns of the
    /// grid, and the cell of each sample point.
    Cells { entries: &'a mut [u32], first: u32, places: [(u32, u32); FEW_COLUMNS], of_sample: &'a [u32] },
    /// An existing node within a cell.
    Node(usize),
}

impl OpenRegion<'_> {
    /// Return the number of cells of the region; 0 within a cell.
    fn entry_count(&self) -> usize {
        match &self.slot {
            NodeSlot::Cells { entries, .. } => entries.len(),
            NodeSlot::Node(_) => 0,
        }
    }
}

impl<C: Centroid> Build<'_, C> {
    /// Return the region of all cells.
    fn root_region<'b>(&self, entries: &'b mut [u32], of_sample: &'b [u32], sample: &'b mut [f64]) -> OpenRegion<'b> {
        let places = self.grid.counts.map(|count| (0, count));
        let bounds = std::array::from_fn(|column| self.grid.around(column, places[column]));
        let candidates = CandidateColumns::all(self.centroids);
        OpenRegion {
            bounds,
            candidates,
            sample,
            depth: 0,
            slot: NodeSlot::Cells { entries, first: 0, places, of_sample },
        }
    }

    /// Whether a region should be halved further.
    #[inline(always)]
    fn is_worth_halving(&self, region: &OpenRegion) -> bool {
        region.candidates.len() > LANES
            && region.depth < MAX_DEPTH
            && region.sample.len() / self.grid.columns * self.step >= MIN_HALVING_POINTS
    }

    /// Count the comparisons for halving a region. Return false if the limit is exceeded.
    #[inline(always)]
    fn may_halve(&self, region: &OpenRegion) -> bool {
        let count = 2 * region.candidates.len();
        self.comparison_count.fetch_add(count, Ordering::Relaxed) + count <= self.limit
    }

    /// Return the halves of a region of cells, or the region itself if halving is not worthwhile.
    fn halved<'b>(&self, region: OpenRegion<'b>, scratch: &mut CandidateScratch) -> Vec<OpenRegion<'b>> {
        if region.entry_count() < 2 || !self.is_worth_halving(&region) {
            return vec![region];
        }
        self.may_halve(&region);
        self.halved_cells(region, scratch).into()
    }

    /// Return the halves of a region of several cells.
    #[inline(always)]
    fn halved_cells<'b>(&self, region: OpenRegion<'b>, scratch: &mut CandidateScratch) -> [OpenRegion<'b>; 2] {
        let NodeSlot::Cells { entries, first, places, of_sample } = region.slot else { unreachable!("several cells") };
        let column = self.grid.cuts[region.depth];
        let (low, high) = places[column];
        let middle = low.midpoint(high);
        let (low_entries, high_entries) = entries.split_at_mut(entries.len() / 2);
        let first_high = first + low_entries.len() as u32;
        let (low_cells, high_cells) = of_sample.split_at(of_sample.partition_point(|&cell| cell < first_high));
        let (low_sample, high_sample) = region.sample.split_at_mut(low_cells.len() * self.grid.columns);
        let low_slot = NodeSlot::Cells { entries: low_entries, first, places, of_sample: low_cells };
        let high_slot = NodeSlot::Cells { entries: high_entries, first: first_high, places, of_sample: high_cells };
        let outer = (&region.bounds, &region.candidates, region.depth);
        // One after the other: a closure would not be compiled with the instructions of this level.
        let low_half = self.half(outer, (column, (low, middle)), low_sample, low_slot, scratch);
        let high_half = self.half(outer, (column, (middle, high)), high_sample, high_slot, scratch);
        scratch.lists.push(region.candidates);
        [low_half, high_half]
    }

    /// Return the part of a region within some positions of a column. The region is given by its bounds, candidates and
    /// depth.
    #[inline(always)]
    fn half<'b>(
        &self,
        (bounds, candidates, depth): (&ColumnRange, &CandidateColumns, usize),
        (column, part): (usize, (u32, u32)),
        sample: &'b mut [f64],
        mut slot: NodeSlot<'b>,
        scratch: &mut CandidateScratch,
    ) -> OpenRegion<'b> {
        if let NodeSlot::Cells { places, .. } = &mut slot {
            places[column] = part;
        }
        let mut bounds = *bounds;
        bounds[column] = self.grid.around(column, part);
        let candidates = candidates.within(&bounds[..self.grid.columns], scratch);
        OpenRegion { bounds, candidates, sample, depth: depth + 1, slot }
    }

    /// Return the cut of a region within a cell, or `None` if all its points are equal.
    ///
    /// The bounding box of the points is halved, so that empty space is separated early. If nearly all points would be
    /// in one half, their number is halved instead.
    #[inline(always)]
    fn cut(&self, sample: &[f64]) -> Option<(usize, C)> {
        let columns = self.grid.columns;
        let mut bounds = [(f64::INFINITY, f64::NEG_INFINITY); FEW_COLUMNS];
        for point in sample.chunks_exact(columns) {
            for ((low, high), &x) in bounds.iter_mut().zip(point) {
                (*low, *high) = (low.min(x), high.max(x));
            }
        }
        let side = |column: usize| bounds[column].1 - bounds[column].0;
        let column = (0..columns).max_by(|&a, &b| side(a).total_cmp(&side(b)))?;
        let coordinates = || sample.iter().skip(column).step_by(columns).copied();
        let middle = C::from_f64(0.5 * bounds[column].0 + 0.5 * bounds[column].1);
        let count = sample.len() / columns;
        let low_count = coordinates().filter(|&x| x <= middle.into()).count();
        let cut = if (count / 16..=count - count / 16).contains(&low_count) {
            middle
        } else {
            let mut coordinates: Vec<f64> = coordinates().collect();
            C::from_f64(*coordinates.select_nth_unstable_by(count / 2, f64::total_cmp).1)
        };
        (bounds[column].0 <= cut.into() && cut.into() < bounds[column].1).then_some((column, cut))
    }
}

/// Partition the points by `is_low` and return both parts.
#[inline(always)]
fn partitioned(points: &mut [f64], columns: usize, is_low: impl Fn(&[f64]) -> bool) -> (&mut [f64], &mut [f64]) {
    let mut low_end = 0;
    for start in (0..points.len()).step_by(columns) {
        if is_low(&points[start..start + columns]) {
            (0..columns).for_each(|column| points.swap(low_end + column, start + column));
            low_end += columns;
        }
    }
    points.split_at_mut(low_end)
}

/// Job that creates all leaves of a region, unless this exceeds the limit of comparisons.
struct RegionGrower<'a, C> {
    build: &'a Build<'a, C>,
    part: OpenRegion<'a>,
    scratch: &'a mut CandidateScratch,
}

impl<C: Centroid> VectorJob for RegionGrower<'_, C> {
    type Output = Option<RegionTree<C>>;

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) -> Option<RegionTree<C>> {
        let RegionGrower { build, part, scratch } = self;
        let columns = build.grid.columns;
        let mut tree = RegionTree::new(columns);
        let mut open = vec![part];
        while let Some(region) = open.pop() {
            let is_worth_halving = build.is_worth_halving(&region);
            if is_worth_halving && !build.may_halve(&region) {
                return None;
            }
            if is_worth_halving && region.entry_count() > 1 {
                open.extend(build.halved_cells(region, scratch));
                continue;
            }
            let node = match region.slot {
                NodeSlot::Cells { entries, .. } => {
                    entries.fill(tree.nodes.len() as u32);
                    tree.add_node()
                }
                NodeSlot::Node(node) => node,
            };
            let Some((column, cut)) = is_worth_halving.then(|| build.cut(region.sample)).flatten() else {
                tree.fill(node, build.centroids, &region.candidates.indices);
                tree.sample_count += region.sample.len() / columns;
                tree.compared_count += region.sample.len() / columns * tree.nodes[node].group_count as usize;
                scratch.lists.push(region.candidates);
                continue;
            };
            let children = [tree.add_node(), tree.add_node()];
            let parent = &mut tree.nodes[node];
            (parent.cut, parent.column, parent.next) = (cut, column as u32, children[0] as u32);
            let cut: f64 = cut.into();
            let samples = partitioned(region.sample, columns, |point| point[column] <= cut);
            let (low, high) = region.bounds[column];
            let halves = [(samples.0, (low, cut)), (samples.1, (cut, high))];
            for (node, (sample, side)) in children.into_iter().zip(halves) {
                let mut bounds = region.bounds;
                bounds[column] = side;
                let candidates = region.candidates.within(&bounds[..columns], scratch);
                open.push(OpenRegion {
                    bounds,
                    candidates,
                    sample,
                    depth: region.depth + 1,
                    slot: NodeSlot::Node(node),
                });
            }
            scratch.lists.push(region.candidates);
        }
        Some(tree)
    }
}

impl<C: Centroid> RegionTree<C> {
    fn new(columns: usize) -> RegionTree<C> {
        let (nodes, coordinates, indices) = (Vec::new(), Vec::new(), Vec::new());
        RegionTree { columns, nodes, coordinates, indices, sample_count: 0, compared_count: 0 }
    }

    /// Add a leaf without candidates and return its number.
    fn add_node(&mut self) -> usize {
        let node = self.nodes.len();
        let cut = C::from_f64(f64::INFINITY);
        self.nodes.push(RegionNode { cut, column: 0, next: node as u32, first_group: 0, group_count: 0 });
        node
    }

    /// Set the candidates of a leaf.
    fn fill(&mut self, node: usize, centroids: Matrix<C>, candidates: &[u32]) {
        let first = self.indices.len();
        for candidates in candidates.chunks(LANES) {
            let mut indices = [0; LANES];
            indices.iter_mut().zip(candidates).for_each(|(index, &candidate)| *index = candidate as i32);
            self.indices.push(indices);
            for column in 0..self.columns {
                let mut lanes = [C::from_f64(f64::INFINITY); LANES];
                for (lane, &candidate) in lanes.iter_mut().zip(candidates) {
                    *lane = centroids.row(candidate as usize)[column];
                }
                self.coordinates.push(lanes);
            }
        }
        self.nodes[node].first_group = first as u32;
        self.nodes[node].group_count = (self.indices.len() - first) as u32;
    }

    /// Append another tree and renumber its nodes.
    fn append(&mut self, other: RegionTree<C>) {
        let (node, group) = (self.nodes.len() as u32, self.indices.len() as u32);
        let moved =
            |each: RegionNode<C>| RegionNode { next: each.next + node, first_group: each.first_group + group, ..each };
        self.nodes.extend(other.nodes.into_iter().map(moved));
        self.coordinates.extend(other.coordinates);
        self.indices.extend(other.indices);
        self.sample_count += other.sample_count;
        self.compared_count += other.compared_count;
    }

    /// Return the nearest candidate of some groups and its squared distance, rounded as in `squared_distance`.
    #[inline(always)]
    fn nearest<V: Vector, const COLUMNS: usize>(&self, groups: Range<usize>, point: &[f64; COLUMNS]) -> (i32, f64) {
        let (mut label, mut best) = (0, f64::INFINITY);
        for group in groups {
            let candidates = &self.coordinates[group * COLUMNS..(group + 1) * COLUMNS];
            let (least, lane) = min_distance::<V::Eight, C>(point, candidates);
            // Always read, and selected without a branch, because the outcome is unpredictable.
            let (candidate, is_nearer) = (self.indices[group][lane], least < best);
            label = if is_nearer { candidate } else { label };
            best = if is_nearer { least } else { best };
        }
        (label, best)
    }
}

/// One block of a search in regions. The points have the type of the computation.
pub(super) struct RegionsBlock<'a, C> {
    pub regions: &'a Regions<C>,
    pub points: Matrix<'a, C>,
    pub labels: &'a mut [i32],
    pub squared_distances: &'a mut [f64],
}

impl<C: Centroid> VectorJob for RegionsBlock<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) {
        match self.points.columns() {
            1 => self.search::<V, 1>(),
            2 => self.search::<V, 2>(),
            3 => self.search::<V, 3>(),
            4 => self.search::<V, 4>(),
            5 => self.search::<V, 5>(),
            6 => self.search::<V, 6>(),
            7 => self.search::<V, 7>(),
            _ => self.search::<V, 8>(),
        }
    }
}

impl<C: Centroid> RegionsBlock<'_, C> {
    #[inline(always)]
    fn search<V: Vector, const COLUMNS: usize>(self) {
        let (points, rest) = self.points.values().as_chunks::<COLUMNS>();
        assert!(rest.is_empty() && points.len() == self.labels.len(), "a label for every row");
        let tree = &self.regions.tree;
        let found =
            self.labels.chunks_mut(INTERLEAVED_POINTS).zip(self.squared_distances.chunks_mut(INTERLEAVED_POINTS));
        for (points, (labels, distances)) in points.chunks(INTERLEAVED_POINTS).zip(found) {
            let leaves = self.regions.leaves(points);
            let mut groups = [(0, 0); INTERLEAVED_POINTS];
            for (groups, &leaf) in groups.iter_mut().zip(&leaves[..points.len()]) {
                let node = &tree.nodes[leaf as usize];
                *groups = (node.first_group as usize, (node.first_group + node.group_count) as usize);
                prefetch(&tree.indices[groups.0]);
                prefetch(&tree.coordinates[groups.0 * COLUMNS]);
            }
            let found = labels.iter_mut().zip(distances);
            for ((label, distance), (point, groups)) in found.zip(points.iter().zip(groups)) {
                (*label, *distance) = tree.nearest::<V, COLUMNS>(groups.0..groups.1, &point.map(Into::into));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Return evenly distributed numbers in [0, 1), in `columns` columns.
    ///
    /// Source: Roberts, "The unreasonable effectiveness of quasirandom sequences", 2018.
    fn even(count: usize, columns: usize) -> Vec<f32> {
        let ratio = (0..50).fold(1.5, |x: f64, _| (1.0 + x).powf(1.0 / (columns as f64 + 1.0)));
        let at = |i: usize| ((i / columns + 1) as f64 * ratio.powi(-((i % columns) as i32) - 1)).fract() as f32;
        (0..count * columns).map(at).collect()
    }

    fn regions_of(columns: usize) -> Option<Regions<f32>> {
        let (points, centroids) = (even(60_000, columns), even(400, columns));
        let (points, centroids) = (Matrix::new(&points, 60_000, columns), Matrix::new(&centroids, 400, columns));
        Regions::new(points, centroids, &Threads::new(2))
    }

    #[test]
    fn with_two_columns_a_point_is_compared_with_at_most_two_groups() {
        let tree = regions_of(2).unwrap().tree;
        assert!(
            tree.compared_count < 2 * tree.sample_count,
            "{} groups for {} points",
            tree.compared_count,
            tree.sample_count
        );
        assert!(tree.nodes.len() < 6 * 400, "{} nodes", tree.nodes.len());
    }

    #[test]
    fn no_regions_exist_if_every_centroid_is_a_neighbor_of_most() {
        assert!(regions_of(8).is_none());
    }

    /// Distribution of points and centroids.
    #[derive(Clone, Copy, Debug)]
    enum PointLayout {
        Even,
        /// A few dense clusters far from the origin.
        Clumps,
        /// A lattice: many equal distances, and many equal points.
        Lattice,
        /// A line: one column is very long.
        Line,
        /// A few points are very far from all others.
        Outliers,
    }

    const LAYOUTS: [PointLayout; 5] =
        [PointLayout::Even, PointLayout::Clumps, PointLayout::Lattice, PointLayout::Line, PointLayout::Outliers];

    impl PointLayout {
        /// Return a coordinate computed from a number in [-1, 1).
        fn coordinate(self, x: f64, row: usize, column: usize) -> f64 {
            match self {
                PointLayout::Even => x,
                PointLayout::Clumps => 1e4 + (row * 7 % 13) as f64 * (column + 1) as f64 + 1e-3 * x,
                PointLayout::Lattice => (x * 6.0).round(),
                PointLayout::Line if column == 0 => 1e6 * x,
                PointLayout::Line => 1e-6 * x,
                PointLayout::Outliers if row.is_multiple_of(97) => 1e9 * x,
                PointLayout::Outliers => x,
            }
        }

        fn rows(self, seed: u64, count: usize, columns: usize) -> Vec<f64> {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
            };
            (0..count * columns).map(|i| self.coordinate(next(), i / columns, i % columns)).collect()
        }
    }

    /// Check that every level returns the same results in regions as a comparison with all centroids, to the last bit.
    fn assert_equal_to_full_search<P: Point>(points: Matrix<P>, centroids: Matrix<P::Centroid>) {
        let mut expected = vec![(0, f64::INFINITY); points.rows()];
        for (row, best) in expected.iter_mut().enumerate() {
            for index in 0..centroids.rows() {
                let distance = crate::distances::squared_distance(points.row(row), centroids.row(index));
                *best = if distance < best.1 { (index as i32, distance) } else { *best };
            }
        }
        let values: Vec<_> = points.values().iter().map(|value| value.widen()).collect();
        for simd in crate::Simd::available() {
            let threads = Threads::with_simd(2, simd);
            let Some(regions) = Regions::of(points, centroids, usize::MAX, &threads) else {
                let first = points.row(0);
                assert!((0..points.rows()).all(|row| points.row(row) == first), "only a box of no size has no regions");
                continue;
            };
            let (mut labels, mut squared_distances) = (vec![-7; points.rows()], vec![-7.0; points.rows()]);
            let (labels, squared_distances) = (&mut labels[..], &mut squared_distances[..]);
            let points = Matrix::new(&values, points.rows(), points.columns());
            simd.run(RegionsBlock { regions: &regions, points, labels, squared_distances });
            let found = labels.iter().copied().zip(squared_distances.iter().copied());
            assert!(found.eq(expected.iter().copied()), "{simd:?}");
        }
    }

    #[test]
    fn points_at_one_position_have_no_regions() {
        let (points, centroids) = ([3.0f32; 14], PointLayout::Even.rows(5, 40, 2));
        let centroids: Vec<f32> = centroids.into_iter().map(|x| x as f32).collect();
        let (points, centroids) = (Matrix::new(&points, 7, 2), Matrix::new(&centroids, 40, 2));
        assert!(Regions::of(points, centroids, usize::MAX, &Threads::new(2)).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn labels_and_distances_match_all_centroids(
            layout in prop::sample::select(&LAYOUTS),
            columns in 1usize..=8,
            count in 6usize..300,
            rows in prop_oneof![1 => 1usize..4, 9 => 1usize..6000],
            seed in any::<u64>(),
        ) {
            let (points, centroids) = (layout.rows(seed, rows, columns), layout.rows(!seed, count, columns));
            assert_equal_to_full_search(Matrix::new(&points, rows, columns), Matrix::new(&centroids, count, columns));
            let f32s = |values: &[f64]| values.iter().map(|&x| x as f32).collect::<Vec<_>>();
            let (points, centroids) = (f32s(&points), f32s(&centroids));
            assert_equal_to_full_search(Matrix::new(&points, rows, columns), Matrix::new(&centroids, count, columns));
            let bytes = |values: &[f32]| values.iter().map(|&x| (x * 20.0).rem_euclid(256.0) as u8).collect::<Vec<_>>();
            let (points, centroids) = (bytes(&points), bytes(&centroids));
            let centroids: Vec<f32> = centroids.into_iter().map(f32::from).collect();
            assert_equal_to_full_search(Matrix::new(&points, rows, columns), Matrix::new(&centroids, count, columns));
        }
    }
}
