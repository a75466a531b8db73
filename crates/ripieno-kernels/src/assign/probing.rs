//! Near pass over centroids that become available in turns, for workers that never hold all centroids.
//!
//! The groups that a row probes are selected by their means, which all workers have, and are stored: [`Probing`].
//! Whenever some groups are available, the rows that probe them are compared with their members: [`compare_groups`].
//!
//! Cost: as for [`super::assign_accumulate_near`].
//! Memory: `2·n·p` bytes for `p` probes, and the available centroids twice.

use super::groups::{GroupMembers, GroupSearchScratch, update_nearest};
use super::means::{GroupChoiceScratch, Means};
use super::near::BLOCKS_PER_THREAD;
use crate::distances::squared_distance;
use crate::simd::{ROW_STEP, Vector, VectorJob};
use crate::{Matrix, Point, Threads};
use std::ops::Range;

/// Largest number of rows in a block: comparing more rows with a group at once is more efficient.
const MAX_PROBING_ROWS: usize = 1 << 16;

/// The groups that the rows of a near pass probe: for blocks of rows, the rows that probe each group.
#[derive(Debug)]
pub struct Probing {
    block_rows: usize,
    group_count: usize,
    blocks: Vec<ProbingBlock>,
}

/// Probing rows of a block. Group `g` has the rows from `starts[g]` to `starts[g + 1]`.
#[derive(Debug)]
struct ProbingBlock {
    starts: Vec<u32>,
    rows: Vec<u16>,
}

impl Probing {
    /// Select for each row the `probes` groups with the nearest means.
    ///
    /// # Panics
    /// If points and means have different columns, or there are no probes.
    pub fn new<P: Point>(points: Matrix<P>, means: Matrix<P::Centroid>, probes: usize, threads: &Threads) -> Probing {
        assert_eq!(points.columns(), means.columns(), "points and means have the same columns");
        assert!(probes > 0, "a row probes at least one group");
        let group_count = means.rows();
        let shared = points.rows().div_ceil(BLOCKS_PER_THREAD * threads.count());
        let block_rows = shared.clamp(ROW_STEP, MAX_PROBING_ROWS);
        let means = Means::new::<P>(means, threads);
        let mut blocks: Vec<_> = (0..points.rows().div_ceil(block_rows)).map(|_| None).collect();
        threads.for_each(
            blocks.iter_mut().enumerate().collect(),
            block_rows * group_count * points.columns(),
            GroupChoiceScratch::default,
            |choice: &mut GroupChoiceScratch, (block, probing)| {
                let first = block * block_rows;
                let rows = points.row_range(first, block_rows.min(points.rows() - first));
                choice.choose(&means, rows, probes.min(group_count), threads);
                *probing = Some(ProbingBlock::of(choice));
            },
        );
        let blocks = blocks.into_iter().map(|block| block.expect("every block has been chosen for")).collect();
        Probing { block_rows, group_count, blocks }
    }

    /// Return the memory use in bytes.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| size_of_val(&block.starts[..]) + size_of_val(&block.rows[..])).sum()
    }
}

impl ProbingBlock {
    fn of(choice: &GroupChoiceScratch) -> ProbingBlock {
        let mut starts = vec![0];
        let mut rows = Vec::with_capacity(choice.probing.iter().map(Vec::len).sum());
        for probing in &choice.probing {
            rows.extend_from_slice(probing);
            starts.push(rows.len() as u32);
        }
        ProbingBlock { starts, rows }
    }

    fn rows(&self, group: usize) -> &[u16] {
        &self.rows[self.starts[group] as usize..self.starts[group + 1] as usize]
    }
}

/// Some of the groups of a near pass.
#[derive(Clone, Copy, Debug)]
pub struct CentroidGroups<'a, C> {
    /// Index of the first group among the groups of a [`Probing`].
    pub first: usize,
    /// The centroids, group by group, with ascending numbers in a group.
    pub centroids: Matrix<'a, C>,
    /// The number of each centroid.
    pub numbers: &'a [u32],
    /// Start of each group, and the end of the last group.
    pub starts: &'a [usize],
}

/// The centroids of the previous pass.
#[derive(Clone, Copy, Debug)]
pub struct PreviousCentroids<'a> {
    /// Position of each of all centroids, in the order of the groups.
    pub places: &'a [i32],
    /// The centroid of each row.
    pub labels: &'a [i32],
    /// Position of the first available centroid.
    pub first: usize,
}

/// Assign rows to centroids of available groups that they probe, and to their previous centroid if it is available. A
/// row changes if the new centroid is nearer than its current one, or equally near with a lower number.
///
/// Start with infinity in every distance.
///
/// # Panics
/// If the shapes do not fit.
pub fn compare_groups<P: Point>(
    points: Matrix<P>,
    probing: &Probing,
    groups: CentroidGroups<P::Centroid>,
    previous: Option<PreviousCentroids>,
    (labels, distances): (&mut [i32], &mut [f64]),
    threads: &Threads,
) {
    let CentroidGroups { first, centroids, numbers, starts } = groups;
    super::check_shapes(points, centroids, None, labels);
    assert_eq!(distances.len(), points.rows(), "one distance per row");
    assert_eq!(numbers.len(), centroids.rows(), "one number per centroid");
    assert!(starts.last().is_some_and(|&last| last == numbers.len()), "the last group ends with the centroids");
    assert!(first + starts.len() - 1 <= probing.group_count, "no other groups than can be probed");
    assert!(previous.is_none_or(|previous| previous.labels.len() == points.rows()), "one label per row");
    if points.rows() == 0 || numbers.is_empty() {
        return;
    }
    let members = GroupMembers::new::<P>(centroids, numbers, starts, threads);
    let block_rows = probing.block_rows;
    let blocks = labels.chunks_mut(block_rows).zip(distances.chunks_mut(block_rows)).zip(&probing.blocks);
    threads.for_each(
        blocks.enumerate().collect(),
        probing.blocks[0].rows.len() / probing.group_count * numbers.len() * points.columns(),
        || GroupSearchScratch::new(points.columns()),
        |search, (block, ((labels, distances), probing))| {
            let points = points.row_range(block * block_rows, labels.len());
            if let Some(previous) = previous {
                let own = &previous.labels[block * block_rows..][..labels.len()];
                let (places, range) = (previous.places, previous.first..previous.first + numbers.len());
                let own = PreviousDistances { points, centroids, numbers, own, places, range, labels, distances };
                threads.simd().run(own);
            }
            search.compare(&members, |group| probing.rows(first + group), points, (labels, distances), threads);
        },
    );
}

/// Comparison of rows with their previous centroids, if these are available.
struct PreviousDistances<'a, P: Point> {
    points: Matrix<'a, P>,
    centroids: Matrix<'a, P::Centroid>,
    numbers: &'a [u32],
    own: &'a [i32],
    places: &'a [i32],
    range: Range<usize>,
    labels: &'a mut [i32],
    distances: &'a mut [f64],
}

impl<P: Point> VectorJob for PreviousDistances<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) {
        for (row, &own) in self.own.iter().enumerate() {
            // A row without a centroid has a negative label.
            let place = usize::try_from(own).ok().and_then(|own| self.places.get(own));
            let Some(place) = place.map(|&place| place as usize).filter(|place| self.range.contains(place)) else {
                continue;
            };
            let at = place - self.range.start;
            let distance = squared_distance(self.points.row(row), self.centroids.row(at));
            update_nearest(&mut self.labels[row], &mut self.distances[row], self.numbers[at], distance);
        }
    }
}
