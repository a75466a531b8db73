//! A near assignment: each row meets the centroids of a few groups, and the one of the pass before, in full precision.
//!
//! Centroids that lie together are a group with a mean: a K-means of the centroids, kept up by one pass of it whenever
//! the centroids have moved. A row probes the groups whose means are nearest. The rows of a block that probe a group
//! are put together and meet its members as in an exact search ([`super::SearchKind`]), so that blocks stay products of
//! matrices. With the centroid of the pass before among the candidates no row gets worse by a pass. What is missed, the
//! caller measures on a sample of rows.
//!
//! Cost of a pass: `n·g·d` for the means of `g = 4·√k` groups, and `n·p·(k/g)·d` for `p` probes, in place of `n·k·d`;
//! `k·g·d` to keep the groups up. Memory: four bytes a row, the centroids three times, and a block of rows per thread.
//! Source: Jégou, Douze and Schmid, "Product quantization for nearest neighbor search", TPAMI 33(1), 2011, section 4
//! (an inverted file of cells), of centroids here.

use super::groups::{GroupSearchScratch, Members};
use super::means::{GroupChoiceScratch, Means};
use crate::accumulate::{accumulate, recenter};
use crate::distances::squared_distance;
use crate::simd::{ROW_STEP, Vector, VectorJob};
use crate::{Centroid, Matrix, PassOutput, Point, Threads};

/// Passes of K-means that make the groups; later ones keep them up.
const FIRST_PASSES: usize = 4;
/// Rows of a block, at most, which are divided by the groups that they probe.
const BLOCK_ROWS_MAX: usize = 1 << 14;
/// Blocks for each thread, where there are few rows.
pub(super) const BLOCKS_PER_THREAD: usize = 4;

/// What is kept from one near pass to the next: the groups' means and the rows' centroids.
#[derive(Debug, Default)]
pub struct NearIndex {
    means: Vec<f64>,
    labels: Vec<i32>,
}

impl NearIndex {
    /// No groups yet, and no pass before.
    pub fn new() -> NearIndex {
        NearIndex::default()
    }

    /// How many groups `count` centroids have.
    pub fn group_count(count: usize) -> usize {
        ((4.0 * (count as f64).sqrt()) as usize).clamp(1, count.max(1))
    }
}

/// As [`crate::assign_accumulate`], but each row meets the centroids of the `probes` groups nearest to it, and that of
/// the pass before, only. The pass before must have been of the same points, or as many others.
///
/// With as many probes as there are groups the labels are those of an exact pass.
///
/// # Panics
/// If the shapes do not fit, there are rows but no centroid, or no probes.
pub fn assign_accumulate_near<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    weights: Option<&[f64]>,
    pass: PassOutput,
    index: &mut NearIndex,
    probes: usize,
    threads: &Threads,
) -> f64 {
    super::check_shapes(points, centroids, weights, pass.labels);
    assert!(probes > 0, "a row probes at least one group");
    let mut own = vec![0.0; if pass.squared_distances.is_none() { points.rows() } else { 0 }];
    let distances = pass.squared_distances.unwrap_or(&mut own);
    assert_eq!(distances.len(), points.rows(), "one entry per row");
    if points.rows() > 0 {
        let groups = NearGroups::of::<P>(centroids, &mut index.means, threads);
        let before = Some(&index.labels[..]).filter(|before| before.len() == points.rows());
        let before = before.filter(|before| before.iter().all(|&label| (label as usize) < centroids.rows()));
        let members = Members::new::<P>(
            Matrix::new(&groups.centroids, centroids.rows(), points.columns()),
            &groups.order,
            &groups.starts,
            threads,
        );
        let probes = probes.min(members.count());
        let block_rows = (points.rows() / (BLOCKS_PER_THREAD * threads.count())).clamp(ROW_STEP, BLOCK_ROWS_MAX);
        let blocks = pass.labels.chunks_mut(block_rows).zip(distances.chunks_mut(block_rows));
        let operations = block_rows * (members.count() + probes * centroids.rows() / members.count());
        threads.for_each(
            blocks.enumerate().collect(),
            operations * points.columns(),
            || Room::new(points.columns()),
            |room, (block, (labels, distances))| {
                let first = block * block_rows;
                let points = points.row_range(first, labels.len());
                let before = before.map(|before| &before[first..first + labels.len()]);
                begin(points, centroids, before, labels, distances, threads);
                room.choice.choose(&groups.means, points, probes, threads);
                let Room { choice, meeting } = room;
                meeting.meet(&members, |group| &choice.probing[group], points, (labels, distances), threads);
            },
        );
        index.labels.clear();
        index.labels.extend_from_slice(pass.labels);
    }
    accumulate(points, pass.labels, weights, pass.sums, pass.weight_sums, threads);
    super::inertia(distances, weights, super::block_rows(points.columns()))
}

/// Centroids that lie together, ready to be searched.
struct NearGroups<C: Centroid> {
    means: Means<C>,
    /// The centroids, group by group, and the index of each, ascending in a group.
    centroids: Vec<C>,
    order: Vec<u32>,
    /// Where each group begins among them, and the last one ends.
    starts: Vec<usize>,
}

impl<C: Centroid> NearGroups<C> {
    /// Groups around the means, which are moved; if they are of other centroids, they begin anew.
    fn of<P: Point<Centroid = C>>(centroids: Matrix<C>, means: &mut Vec<f64>, threads: &Threads) -> NearGroups<C> {
        let (count, columns) = (NearIndex::group_count(centroids.rows()), centroids.columns());
        let (mut passes, mut moved) = (1, means.iter().map(|&mean| C::from_f64(mean)).collect::<Vec<C>>());
        if moved.len() != count * columns {
            passes = FIRST_PASSES;
            moved = (0..count).flat_map(|at| centroids.row(at * centroids.rows() / count)).copied().collect();
        }
        // Which group a centroid belongs to need not be exact, and rows of bytes are compared fastest.
        let rounded: Vec<P> = centroids.values().iter().map(|&value| P::nearest(value)).collect();
        let rounded = Matrix::new(&rounded, centroids.rows(), columns);
        let mut labels = vec![0; centroids.rows()];
        let (mut sums, mut weight_sums) = (vec![0.0; count * columns], vec![0.0; count]);
        for _ in 0..passes {
            let pass = PassOutput {
                labels: &mut labels,
                squared_distances: None,
                sums: &mut sums,
                weight_sums: &mut weight_sums,
            };
            super::assign_accumulate(rounded, Matrix::new(&moved, count, columns), None, pass, threads);
            recenter(&mut moved, &sums, &weight_sums);
        }
        means.clear();
        means.extend(moved.iter().map(|&mean| -> f64 { mean.into() }));

        let mut order: Vec<u32> = (0..centroids.rows() as u32).collect();
        order.sort_by_key(|&centroid| labels[centroid as usize]);
        let mut starts: Vec<usize> =
            (0..=count).map(|group| order.partition_point(|&each| labels[each as usize] < group as i32)).collect();
        // A group without members would be probed in vain.
        let filled: Vec<C> = (0..count)
            .filter(|&group| starts[group] < starts[group + 1])
            .flat_map(|group| &moved[group * columns..(group + 1) * columns])
            .copied()
            .collect();
        starts.dedup();
        let ordered: Vec<C> = order.iter().flat_map(|&each| centroids.row(each as usize)).copied().collect();
        let means = Means::new::<P>(Matrix::new(&filled, starts.len() - 1, columns), threads);
        NearGroups { means, centroids: ordered, order, starts }
    }
}

/// Begins with the centroids of the pass before and how far they are now; without one, with none.
fn begin<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    before: Option<&[i32]>,
    labels: &mut [i32],
    distances: &mut [f64],
    threads: &Threads,
) {
    distances.fill(f64::INFINITY);
    match before {
        None => labels.fill(0),
        Some(before) => {
            labels.copy_from_slice(before);
            threads.simd().run(OwnDistances { points, centroids, labels, distances });
        }
    }
}

/// The distances of some rows to the centroids that they have.
struct OwnDistances<'a, P: Point> {
    points: Matrix<'a, P>,
    centroids: Matrix<'a, P::Centroid>,
    labels: &'a [i32],
    distances: &'a mut [f64],
}

impl<P: Point> VectorJob for OwnDistances<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) {
        for (row, (&label, distance)) in self.labels.iter().zip(self.distances).enumerate() {
            *distance = squared_distance(self.points.row(row), self.centroids.row(label as usize));
        }
    }
}

/// What a thread needs to choose and to meet groups.
struct Room<P: Point> {
    choice: GroupChoiceScratch,
    meeting: GroupSearchScratch<P>,
}

impl<P: Point> Room<P> {
    fn new(columns: usize) -> Room<P> {
        Room { choice: GroupChoiceScratch::default(), meeting: GroupSearchScratch::new(columns) }
    }
}
