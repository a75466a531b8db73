//! Near assignment: each row is compared with the centroids of a few groups and with its previous centroid, in full
//! precision.
//!
//! Neighboring centroids form a group with a mean. The groups are a K-means of the centroids, updated by one pass
//! whenever the centroids have moved. A row probes the groups with the nearest means. The rows of a block that probe a
//! group are collected and compared with its members as in an exact search ([`super::SearchKind`]), so blocks remain
//! matrix products. The previous centroid is always a candidate, so a pass never increases the distance of a row. The
//! caller estimates the remaining error on a sample of rows.
//!
//! Cost of a pass: `n·g·d` for the means of `g = 4·√k` groups, and `n·p·(k/g)·d` for `p` probes, instead of `n·k·d`;
//! `k·g·d` for updating the groups.
//! Memory: four bytes per row, the centroids three times, and a block of rows per thread.
//! Source: Jégou, Douze and Schmid, "Product quantization for nearest neighbor search", TPAMI 33(1), 2011, section 4
//! (an inverted file of cells), applied to centroids.

use super::groups::{GroupMembers, GroupSearchScratch};
use super::means::{GroupChoiceScratch, Means};
use crate::accumulate::{accumulate, recenter};
use crate::distances::squared_distance;
use crate::simd::{ROW_STEP, Vector, VectorJob};
use crate::{Centroid, Matrix, PassOutput, Point, Threads};

/// Number of K-means passes that create the groups; later passes update them.
const FIRST_PASSES: usize = 4;
/// Largest number of rows in a block, which are divided by the groups that they probe.
const MAX_BLOCK_ROWS: usize = 1 << 14;
/// Blocks per thread if there are few rows.
pub(super) const BLOCKS_PER_THREAD: usize = 4;

/// State kept between near passes: the groups' means and the rows' centroids.
#[derive(Debug, Default)]
pub struct NearIndex {
    means: Vec<f64>,
    labels: Vec<i32>,
}

impl NearIndex {
    /// Create a state without groups and without a previous pass.
    pub fn new() -> NearIndex {
        NearIndex::default()
    }

    /// Return the number of groups for `count` centroids.
    pub fn group_count(count: usize) -> usize {
        ((4.0 * (count as f64).sqrt()) as usize).clamp(1, count.max(1))
    }
}

/// Perform [`crate::assign_accumulate`] with comparisons limited to the `probes` nearest groups of each row and its
/// previous centroid.
///
/// The previous pass should have been over the same points. Its labels are ignored if the number of points differs.
/// With as many probes as groups the labels equal the labels of an exact pass.
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
        let previous = Some(&index.labels[..]).filter(|previous| previous.len() == points.rows());
        let previous = previous.filter(|previous| previous.iter().all(|&label| (label as usize) < centroids.rows()));
        let members = GroupMembers::new::<P>(
            Matrix::new(&groups.centroids, centroids.rows(), points.columns()),
            &groups.order,
            &groups.starts,
            threads,
        );
        let probes = probes.min(members.count());
        let block_rows = (points.rows() / (BLOCKS_PER_THREAD * threads.count())).clamp(ROW_STEP, MAX_BLOCK_ROWS);
        let blocks = pass.labels.chunks_mut(block_rows).zip(distances.chunks_mut(block_rows));
        let operations = block_rows * (members.count() + probes * centroids.rows() / members.count());
        threads.for_each(
            blocks.enumerate().collect(),
            operations * points.columns(),
            || ScratchBuffers::new(points.columns()),
            |scratch, (block, (labels, distances))| {
                let first = block * block_rows;
                let points = points.row_range(first, labels.len());
                let previous = previous.map(|previous| &previous[first..first + labels.len()]);
                begin(points, centroids, previous, labels, distances, threads);
                scratch.choice.choose(&groups.means, points, probes, threads);
                let ScratchBuffers { choice, search } = scratch;
                search.compare(&members, |group| &choice.probing[group], points, (labels, distances), threads);
            },
        );
        index.labels.clear();
        index.labels.extend_from_slice(pass.labels);
    }
    accumulate(points, pass.labels, weights, pass.sums, pass.weight_sums, threads);
    super::inertia(distances, weights, super::block_rows(points.columns()))
}

/// Groups of neighboring centroids, prepared for the search.
struct NearGroups<C: Centroid> {
    means: Means<C>,
    /// The centroids, group by group, and the index of each, ascending in a group.
    centroids: Vec<C>,
    order: Vec<u32>,
    /// Start of each group, and the end of the last group.
    starts: Vec<usize>,
}

impl<C: Centroid> NearGroups<C> {
    /// Create groups around the means, which are updated. Means with another shape are reinitialized.
    fn of<P: Point<Centroid = C>>(centroids: Matrix<C>, means: &mut Vec<f64>, threads: &Threads) -> NearGroups<C> {
        let (count, columns) = (NearIndex::group_count(centroids.rows()), centroids.columns());
        let (mut passes, mut moved) = (1, means.iter().map(|&mean| C::from_f64(mean)).collect::<Vec<C>>());
        if moved.len() != count * columns {
            passes = FIRST_PASSES;
            moved = (0..count).flat_map(|at| centroids.row(at * centroids.rows() / count)).copied().collect();
        }
        // The group of a centroid need not be exact, and rows of bytes are compared fastest.
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
        let nonempty_means: Vec<C> = (0..count)
            .filter(|&group| starts[group] < starts[group + 1])
            .flat_map(|group| &moved[group * columns..(group + 1) * columns])
            .copied()
            .collect();
        starts.dedup();
        let ordered: Vec<C> = order.iter().flat_map(|&each| centroids.row(each as usize)).copied().collect();
        let means = Means::new::<P>(Matrix::new(&nonempty_means, starts.len() - 1, columns), threads);
        NearGroups { means, centroids: ordered, order, starts }
    }
}

/// Start with the previous centroids and their current distances, or without centroids.
fn begin<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    previous: Option<&[i32]>,
    labels: &mut [i32],
    distances: &mut [f64],
    threads: &Threads,
) {
    distances.fill(f64::INFINITY);
    match previous {
        None => labels.fill(0),
        Some(previous) => {
            labels.copy_from_slice(previous);
            threads.simd().run(LabelDistances { points, centroids, labels, distances });
        }
    }
}

/// The distances of some rows to their current centroids.
struct LabelDistances<'a, P: Point> {
    points: Matrix<'a, P>,
    centroids: Matrix<'a, P::Centroid>,
    labels: &'a [i32],
    distances: &'a mut [f64],
}

impl<P: Point> VectorJob for LabelDistances<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) {
        for (row, (&label, distance)) in self.labels.iter().zip(self.distances).enumerate() {
            *distance = squared_distance(self.points.row(row), self.centroids.row(label as usize));
        }
    }
}

/// Buffers of a thread for selecting groups and comparing rows with them.
struct ScratchBuffers<P: Point> {
    choice: GroupChoiceScratch,
    search: GroupSearchScratch<P>,
}

impl<P: Point> ScratchBuffers<P> {
    fn new(columns: usize) -> ScratchBuffers<P> {
        ScratchBuffers { choice: GroupChoiceScratch::default(), search: GroupSearchScratch::new(columns) }
    }
}
