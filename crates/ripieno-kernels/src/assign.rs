//! Search for nearest centroids: the pass of K-means, prediction, and the step of seeding.
//!
//! Blocks of rows are compared with the packed centroids in f32 ([`Panels`]), which yields the best and the second-best
//! score of each row. The distance to the best centroid is then computed directly in f64. If rounding may have swapped
//! the two, all centroids within the error bound are computed in f64 as well ([`ScoreErrorBound`]). So a label is the
//! argmin of the f64 distances, for any type of points, SIMD level and number of threads.
//!
//! There are three other methods. For very few rows or centroids only the f64 distances are computed. With few columns,
//! a row is compared only with the centroids of its region ([`Regions`]) if this is less work. Rows of bytes are
//! compared in bytes first ([`Filter`]).
//!
//! Cost of a pass: `2·n·k·d` in f32, and some `10·n·d` for the transformation, the winner's distance and the sums.
//! Memory: the packed centroids, and a block of rows per thread; never `n × k`.

mod bounds;
mod bytes;
mod groups;
mod means;
mod near;
mod pair_bounds;
mod probing;
mod regions;

use crate::accumulate::{accumulate, accumulate_share};
use crate::distances::squared_distance;
use crate::interruption;
use crate::panels::{Panels, PointTransform, ScoreForm};
use crate::phased::Phased;
use crate::simd::{FEW_COLUMNS, Lanes, Nearest, NearestRows, ROW_STEP, TileFilter, Vector, VectorJob};
use crate::{Centroid, Matrix, Point, Simd, ThreadModel, Threads};
pub use bounds::{DistanceBounds, assign_accumulate_within};
use bytes::{BytesBlock, BytesScratch, Filter};
pub use near::{NearIndex, assign_accumulate_near};
pub use probing::{CentroidGroups, PreviousCentroids, Probing, compare_groups};
use regions::{Regions, RegionsBlock};
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Output of a pass. Each slice is overwritten.
#[derive(Debug)]
pub struct PassOutput<'a> {
    /// The index of each row's nearest centroid, length `n`.
    pub labels: &'a mut [i32],
    /// If requested, the squared distance of each row to its nearest centroid, length `n`.
    pub squared_distances: Option<&'a mut [f64]>,
    /// The weighted sum of each cluster's rows, `k × d`.
    pub sums: &'a mut [f64],
    /// The total weight of each cluster's rows (without weights: their number), length `k`.
    pub weight_sums: &'a mut [f64],
}

/// Perform one pass of K-means: assign each row to its nearest centroid and sum the rows of each cluster.
///
/// Return the inertia, `Σ w·‖x − c‖²` over the rows. `weights` has one weight per row; without it each row has weight
/// 1.
///
/// # Panics
/// If the shapes do not fit, or there are rows but no centroid.
pub fn assign_accumulate<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    weights: Option<&[f64]>,
    pass: PassOutput,
    threads: &Threads,
) -> f64 {
    if threads.model() == ThreadModel::Bsp && points.rows() > 0 {
        return assign_accumulate_in_phases(points, centroids, weights, pass, threads);
    }
    let inertia = assign_weighted(points, centroids, weights, pass.labels, pass.squared_distances, threads);
    accumulate(points, pass.labels, weights, pass.sums, pass.weight_sums, threads);
    inertia
}

/// Perform both phases in one loop of the threads, separated by a barrier.
fn assign_accumulate_in_phases<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    weights: Option<&[f64]>,
    pass: PassOutput,
    threads: &Threads,
) -> f64 {
    let PassOutput { labels, squared_distances, sums, weight_sums } = pass;
    check_shapes(points, centroids, weights, labels);
    assert!(squared_distances.as_ref().is_none_or(|each| each.len() == points.rows()), "one entry per row");
    assert_eq!(weight_sums.len(), centroids.rows(), "a weight per centroid");
    assert_eq!(sums.len(), weight_sums.len() * points.columns(), "a sum per centroid and column");
    let search = NearestSearch::new(points, centroids, threads);
    let mut inertias = vec![0.0; points.rows().div_ceil(search.block_rows)];
    let threads = &threads.worth(inertias.len(), search.block_operations());
    let next = AtomicUsize::new(0);
    let (labels, squared_distances) = (Phased::new(labels), squared_distances.map(Phased::new));
    let (block_inertias, sums, weight_sums) = (Phased::new(&mut inertias), Phased::new(sums), Phased::new(weight_sums));
    threads.run(|member| {
        let mut scratch = search.scratch();
        loop {
            let block = next.fetch_add(1, Ordering::Relaxed);
            if member.is_cancelled() || block >= block_inertias.len() {
                break;
            }
            let rows = block * search.block_rows..points.rows().min((block + 1) * search.block_rows);
            // SAFETY: every block is taken once, and no slice is taken as a whole before the barrier.
            let (labels, distances, inertia) = unsafe {
                let distances = squared_distances.as_ref().map(|each| each.part(rows.clone()));
                (labels.part(rows), distances, &mut block_inertias.part(block..block + 1)[0])
            };
            *inertia = search.weighted_block(block, labels, distances, weights, &mut scratch, threads);
            interruption::poll();
        }
        drop(scratch);
        member.wait();
        // SAFETY: labels are no longer written, and no other code writes the sums.
        unsafe {
            accumulate_share(points, labels.whole(), weights, &sums, &weight_sums, (member, threads));
        }
    });
    // Blocks are the same for every number of threads, so the sum is too.
    inertias.iter().sum()
}

fn check_shapes<P: Point>(points: Matrix<P>, centroids: Matrix<P::Centroid>, weights: Option<&[f64]>, labels: &[i32]) {
    assert_eq!(points.columns(), centroids.columns(), "points and centroids have the same columns");
    assert_eq!(labels.len(), points.rows(), "one label per row");
    assert!(weights.is_none_or(|weights| weights.len() == points.rows()), "one weight per row");
}

/// Assign each row to its nearest centroid; ties go to the lowest index.
///
/// `labels` and, if requested, `squared_distances` have one entry per row.
///
/// # Panics
/// If the shapes do not fit, or there are rows but no centroid.
pub fn assign<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    labels: &mut [i32],
    squared_distances: Option<&mut [f64]>,
    threads: &Threads,
) {
    assign_weighted(points, centroids, None, labels, squared_distances, threads);
}

/// Update each row's squared distance to its nearest center with some new centers, as a step of seeding.
///
/// If a new center is nearer than `min_squared_distances`, the entry is replaced. If requested, `closest` receives
/// `first_index` plus the center's row, also for an equally near new center with a lower number. Start with infinity in
/// every entry. A row that equals a new center gets an exact zero.
///
/// # Panics
/// If the shapes do not fit.
pub fn update_min_distances<P: Point>(
    points: Matrix<P>,
    new_centroids: Matrix<P::Centroid>,
    first_index: i32,
    min_squared_distances: &mut [f64],
    closest: Option<&mut [i32]>,
    threads: &Threads,
) {
    assert_eq!(points.columns(), new_centroids.columns(), "points and centroids have the same columns");
    assert_eq!(min_squared_distances.len(), points.rows(), "one distance per row");
    if points.rows() == 0 || new_centroids.rows() == 0 {
        return;
    }
    let search = NearestSearch::new(points, new_centroids, threads);
    let distances = min_squared_distances.chunks_mut(search.block_rows);
    let closest = optional_chunks(closest, points.rows(), search.block_rows);
    let parts: Vec<_> = distances.zip(closest).enumerate().collect();
    threads.for_each(parts, search.block_operations(), || search.scratch(), {
        |scratch: &mut AssignScratch, (block, (min_distances, mut closest))| {
            let mut labels = std::mem::take(&mut scratch.labels);
            let mut distances = std::mem::take(&mut scratch.distances);
            let count = min_distances.len();
            let within = Some(&*min_distances);
            search.block(block, &mut labels[..count], &mut distances[..count], within, scratch, threads);
            for (row, min_distance) in min_distances.iter_mut().enumerate() {
                let (index, distance) = (first_index + labels[row], distances[row]);
                if let Some(closest) = &mut closest
                    && (distance < *min_distance || (distance == *min_distance && index < closest[row]))
                {
                    closest[row] = index;
                }
                *min_distance = min_distance.min(distance);
            }
            (scratch.labels, scratch.distances) = (labels, distances);
        }
    });
}

fn assign_weighted<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    weights: Option<&[f64]>,
    labels: &mut [i32],
    squared_distances: Option<&mut [f64]>,
    threads: &Threads,
) -> f64 {
    check_shapes(points, centroids, weights, labels);
    if points.rows() == 0 {
        return 0.0;
    }
    let search = NearestSearch::new(points, centroids, threads);
    let mut inertias = vec![0.0; points.rows().div_ceil(search.block_rows)];
    let distances = optional_chunks(squared_distances, points.rows(), search.block_rows);
    let parts = labels.chunks_mut(search.block_rows).zip(distances).zip(&mut inertias).enumerate();
    threads.for_each(parts.collect(), search.block_operations(), || search.scratch(), {
        |scratch: &mut AssignScratch, (block, ((labels, distances), inertia))| {
            *inertia = search.weighted_block(block, labels, distances, weights, scratch, threads);
        }
    });
    // Blocks are the same for every number of threads, so the sum is too.
    inertias.iter().sum()
}

/// Return `slice` in chunks, or `None` for each chunk.
fn optional_chunks<T>(slice: Option<&mut [T]>, length: usize, chunk: usize) -> Vec<Option<&mut [T]>> {
    match slice {
        Some(slice) => {
            assert_eq!(slice.len(), length, "one entry per row");
            slice.chunks_mut(chunk).map(Some).collect()
        }
        None => (0..length.div_ceil(chunk)).map(|_| None).collect(),
    }
}

/// A search for the nearest centroid of each point.
struct NearestSearch<'a, P: Point> {
    points: Matrix<'a, P>,
    centroids: Matrix<'a, P::Centroid>,
    kind: SearchKind<P::Centroid>,
    block_rows: usize,
}

/// Method of comparison. All methods find the same nearest centroid.
enum SearchKind<C> {
    /// All centroids, with each distance computed directly.
    Direct,
    /// All centroids, in f32 first.
    Packed(PackedCentroids<C>),
    /// All centroids, in bytes first.
    Bytes(Box<Filter>),
    /// The centroids of the row's region.
    Regions(Box<Regions<C>>),
}

/// The centroids in the form for the search in f32.
struct PackedCentroids<C> {
    panels: Panels,
    transform: PointTransform<C>,
}

/// With fewer centroids too little of a panel is used.
const MAX_DIRECT_CENTROIDS: usize = 5;

/// With fewer rows, packing the centroids is not worthwhile.
const MAX_DIRECT_ROWS: usize = 16;

/// Buffers of a thread for a block of rows.
struct AssignScratch {
    rows: Vec<f32>,
    squared_norms: Vec<f32>,
    lanes: Vec<Lanes>,
    nearest: Vec<Nearest>,
    ambiguous: Vec<(usize, f32)>,
    tile: Vec<f32>,
    candidates: Vec<(usize, usize)>,
    labels: Vec<i32>,
    distances: Vec<f64>,
    bytes: BytesScratch,
}

impl AssignScratch {
    /// Create buffers for blocks of `block_rows` rows, with space for their columns in f32.
    fn new(block_rows: usize, columns: usize) -> AssignScratch {
        AssignScratch {
            rows: vec![0.0; block_rows * columns],
            squared_norms: vec![0.0; block_rows],
            lanes: vec![Lanes::default(); block_rows],
            nearest: vec![Nearest::default(); block_rows],
            ambiguous: Vec::new(),
            tile: vec![0.0; ROW_STEP * columns],
            candidates: Vec::new(),
            labels: vec![0; block_rows],
            distances: vec![0.0; block_rows],
            bytes: BytesScratch::default(),
        }
    }
}

/// Largest share of the L2 cache for a block of rows. A panel of centroids needs space as well.
const BLOCK_BYTES: usize = 384 << 10;

/// Larger blocks gain nothing: the lanes of their rows must stay in the cache too.
const MAX_BLOCK_ROWS: usize = 8 * ROW_STEP;

/// Return the number of rows of a block.
fn block_rows(columns: usize) -> usize {
    let fitting = BLOCK_BYTES / (columns * size_of::<f32>() * ROW_STEP) * ROW_STEP;
    fitting.clamp(ROW_STEP, MAX_BLOCK_ROWS)
}

/// Return the inertia of rows with `columns` columns. It has the same bits for distances of any origin.
pub fn inertia_of(squared_distances: &[f64], weights: Option<&[f64]>, columns: usize) -> f64 {
    inertia(squared_distances, weights, block_rows(columns))
}

fn inertia(squared_distances: &[f64], weights: Option<&[f64]>, block_rows: usize) -> f64 {
    let blocks = squared_distances.chunks(block_rows).enumerate();
    let block_inertias = blocks
        .map(|(block, distances)| block_inertia(distances, weights.map(|weights| &weights[block * block_rows..])));
    block_inertias.sum()
}

/// Return the inertia of a block's rows. The first weights belong to them.
fn block_inertia(squared_distances: &[f64], weights: Option<&[f64]>) -> f64 {
    match weights {
        Some(weights) => squared_distances.iter().zip(weights).map(|(distance, weight)| distance * weight).sum(),
        None => squared_distances.iter().sum(),
    }
}

impl<'a, P: Point> NearestSearch<'a, P> {
    fn new(points: Matrix<'a, P>, centroids: Matrix<'a, P::Centroid>, threads: &Threads) -> Self {
        assert!(centroids.rows() > 0, "there is at least one centroid");
        assert!(centroids.rows() <= i32::MAX as usize, "a label is an i32");
        let has_few_columns = points.columns() <= FEW_COLUMNS;
        let kind = if centroids.rows() <= MAX_DIRECT_CENTROIDS || points.rows() <= MAX_DIRECT_ROWS {
            SearchKind::Direct
        } else {
            let regions = has_few_columns.then(|| Regions::new(points, centroids, threads)).flatten();
            SearchKind::new::<P>(centroids, regions, threads)
        };
        NearestSearch { points, centroids, kind, block_rows: block_rows(points.columns()) }
    }

    fn block_operations(&self) -> usize {
        let comparisons = match &self.kind {
            SearchKind::Regions(_) => regions::POINT_COST,
            SearchKind::Packed(_) | SearchKind::Bytes(_) | SearchKind::Direct => self.centroids.rows(),
        };
        self.block_rows * comparisons * self.points.columns()
    }

    fn scratch(&self) -> AssignScratch {
        let is_packed = matches!(self.kind, SearchKind::Packed(_));
        AssignScratch::new(self.block_rows, if is_packed { self.points.columns() } else { 0 })
    }

    /// Run [`NearestSearch::block`] and return the inertia of the rows.
    fn weighted_block(
        &self,
        block: usize,
        labels: &mut [i32],
        squared_distances: Option<&mut [f64]>,
        weights: Option<&[f64]>,
        scratch: &mut AssignScratch,
        threads: &Threads,
    ) -> f64 {
        let mut own = std::mem::take(&mut scratch.distances);
        let distances = squared_distances.unwrap_or(&mut own[..labels.len()]);
        self.block(block, labels, distances, None, scratch, threads);
        let inertia = block_inertia(distances, weights.map(|weights| &weights[block * self.block_rows..]));
        scratch.distances = own;
        inertia
    }

    /// Compute labels and squared distances of block number `block`. Rows without a centroid closer than `within` may
    /// be skipped.
    fn block(
        &self,
        block: usize,
        labels: &mut [i32],
        squared_distances: &mut [f64],
        within: Option<&[f64]>,
        scratch: &mut AssignScratch,
        threads: &Threads,
    ) {
        let points = self.points.row_range(block * self.block_rows, labels.len());
        self.kind.block(points, self.centroids, (labels, squared_distances), within, scratch, threads);
    }
}

impl<C: Centroid> SearchKind<C> {
    /// Select the method for all centroids, or for regions if these are given.
    fn new<P: Point<Centroid = C>>(
        centroids: Matrix<C>,
        regions: Option<Regions<C>>,
        threads: &Threads,
    ) -> SearchKind<C> {
        let is_byte = P::as_bytes(&[]).is_some() && threads.simd().has_bytes();
        let filter =
            || (is_byte && centroids.columns() > FEW_COLUMNS).then(|| Filter::new(centroids, threads)).flatten();
        if let Some(regions) = regions {
            SearchKind::Regions(Box::new(regions))
        } else if let Some(filter) = filter() {
            SearchKind::Bytes(Box::new(filter))
        } else {
            let (panels, transform) = Panels::pack(centroids, threads);
            SearchKind::Packed(PackedCentroids { panels, transform })
        }
    }

    /// Compute labels and squared distances of a block of rows. Rows without a centroid closer than `within` may be
    /// skipped.
    fn block<P: Point<Centroid = C>>(
        &self,
        points: Matrix<P>,
        centroids: Matrix<C>,
        (labels, squared_distances): (&mut [i32], &mut [f64]),
        within: Option<&[f64]>,
        scratch: &mut AssignScratch,
        threads: &Threads,
    ) {
        match self {
            SearchKind::Packed(packed) => {
                let simd = threads.simd();
                simd.run(PackedBlock { packed, points, centroids, labels, squared_distances, scratch, simd });
            }
            SearchKind::Bytes(filter) => {
                let bytes = P::as_bytes(points.values()).expect("bytes, for which the filter was made");
                let scratch = &mut scratch.bytes;
                let block = BytesBlock { filter, points, bytes, centroids, labels, squared_distances, within, scratch };
                threads.simd().run_bytes(block);
            }
            SearchKind::Regions(regions) => {
                // Rows of bytes have few columns here, and converting them costs less than a search.
                let widen = || Cow::Owned(points.values().iter().map(|value| value.widen()).collect());
                let values = P::as_real(points.values()).map_or_else(widen, Cow::Borrowed);
                let points = Matrix::new(&values, points.rows(), points.columns());
                threads.simd().run(RegionsBlock { regions, points, labels, squared_distances });
            }
            SearchKind::Direct => threads.simd().run(DirectBlock { points, centroids, labels, squared_distances }),
        }
    }
}

/// One block of a search without packed centroids.
struct DirectBlock<'a, P: Point> {
    points: Matrix<'a, P>,
    centroids: Matrix<'a, P::Centroid>,
    labels: &'a mut [i32],
    squared_distances: &'a mut [f64],
}

impl<P: Point> VectorJob for DirectBlock<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) {
        self.labels.fill(0);
        self.squared_distances.fill(f64::INFINITY);
        for index in 0..self.centroids.rows() {
            let centroid = self.centroids.row(index);
            for row in 0..self.points.rows() {
                let distance = squared_distance(self.points.row(row), centroid);
                if distance < self.squared_distances[row] {
                    self.labels[row] = index as i32;
                    self.squared_distances[row] = distance;
                }
            }
        }
    }
}

/// One block of a search with packed centroids.
struct PackedBlock<'a, P: Point> {
    packed: &'a PackedCentroids<P::Centroid>,
    points: Matrix<'a, P>,
    centroids: Matrix<'a, P::Centroid>,
    labels: &'a mut [i32],
    squared_distances: &'a mut [f64],
    scratch: &'a mut AssignScratch,
    simd: Simd,
}

impl<P: Point> VectorJob for PackedBlock<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(mut self) {
        self.transform_rows();
        let scratch = &mut *self.scratch;
        let row_count = self.points.rows().next_multiple_of(ROW_STEP);
        let rows = &scratch.rows[..row_count * self.points.columns()];
        let (lanes, found) = (&mut scratch.lanes[..], &mut scratch.nearest[..row_count]);
        self.simd.run(NearestRows { rows, panels: &self.packed.panels, lanes, found });
        self.measure_best();
        self.resolve::<ROWS>();
    }
}

impl<P: Point> PackedBlock<'_, P> {
    /// Transform the rows, round them to f32, and pad the block with zeros.
    #[inline(always)]
    fn transform_rows(&mut self) {
        let columns = self.points.columns();
        let (rows, fill) = self.scratch.rows.split_at_mut(self.points.rows() * columns);
        for (index, out) in rows.chunks_exact_mut(columns).enumerate() {
            self.packed.transform.apply(self.points.row(index), out);
            self.scratch.squared_norms[index] = squared_norm(out);
        }
        fill.fill(0.0);
    }

    /// Take the best centroid of each row, compute its distance, and record the rows for which another centroid may be
    /// nearer.
    #[inline(always)]
    fn measure_best(&mut self) {
        let bound = ScoreErrorBound::new(self.packed);
        self.scratch.ambiguous.clear();
        for row in 0..self.points.rows() {
            let nearest = self.scratch.nearest[row];
            // NaN scores leave a meaningless index.
            let index = (nearest.index as usize).min(self.centroids.rows() - 1);
            let distance = squared_distance(self.points.row(row), self.centroids.row(index));
            self.labels[row] = index as i32;
            self.squared_distances[row] = distance;
            let limit = nearest.score as f64 - bound.margin(self.scratch.squared_norms[row], distance);
            let is_clear = (nearest.runner_up as f64) < limit;
            if !is_clear {
                self.scratch.ambiguous.push((row, (limit as f32).next_down()));
            }
        }
    }

    /// Decide the doubtful rows by the distances of all centroids with a score not below the limit.
    #[inline(always)]
    fn resolve<const ROWS: usize>(&mut self) {
        let columns = self.points.columns();
        let centroids = self.centroids;
        let scratch = &mut *self.scratch;
        for ambiguous in scratch.ambiguous.chunks(ROWS) {
            let mut limits = [f32::INFINITY; ROWS];
            for (slot, &(row, limit)) in ambiguous.iter().enumerate() {
                limits[slot] = limit;
                let from = &scratch.rows[row * columns..(row + 1) * columns];
                scratch.tile[slot * columns..(slot + 1) * columns].copy_from_slice(from);
                self.squared_distances[row] = f64::INFINITY;
            }
            let (limits, found) = (&limits[..ambiguous.len()], &mut scratch.candidates);
            found.clear();
            self.simd.run(TileFilter { rows: &scratch.tile, limits, panels: &self.packed.panels, found });
            // The padding of the last panel is not a centroid.
            for &(slot, index) in found.iter().filter(|(_, index)| *index < centroids.rows()) {
                let row = ambiguous[slot].0;
                let distance = squared_distance(self.points.row(row), centroids.row(index));
                // Candidates arrive in ascending order, so ties go to the lowest index.
                if distance < self.squared_distances[row] {
                    self.labels[row] = index as i32;
                    self.squared_distances[row] = distance;
                }
            }
        }
    }
}

#[inline(always)]
fn squared_norm(row: &[f32]) -> f32 {
    let mut sums = [0.0; 16];
    let chunks = row.chunks_exact(16);
    let rest: f32 = chunks.remainder().iter().map(|value| value * value).sum();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value * value;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// Bound on the rounding error of a score, which proves that no other centroid can be nearer.
///
/// With `u = 2⁻²⁴`, a product of `d` columns has an error of at most `γ(d)·‖x‖‖c‖`, `γ(d) = d·u/(1 − d·u)`. Rounding
/// `x` and `c` to f32 adds `2u·‖x‖‖c‖`; the half norm and the last subtraction add `u·‖c‖²` and `u·‖x‖‖c‖`. A centroid
/// that is nearer than one at distance `r` has a norm of at most `‖x‖ + r`. A difference has its own relative rounding
/// error, `γ(d + 2)·r²`, and for f64 points the error of their rounding to f32. The decisive f64 distances have `γ` for
/// `u = 2⁻⁵³`.
/// Source: Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., section 3.1.
struct ScoreErrorBound {
    form: ScoreForm,
    scale: f64,
    max_norm: f64,
    gamma: f64,
    gamma_f64: f64,
    tiny: f64,
    tiny_norm: f64,
    is_rounded: bool,
}

/// Above this value the squares may overflow, and the bound is invalid.
const MAX_SQUARED_NORM: f64 = 1e30;

/// Unit roundoff of f32.
const ROUNDOFF: f64 = f32::EPSILON as f64 / 2.0;

impl ScoreErrorBound {
    fn new<C: Centroid>(packed: &PackedCentroids<C>) -> ScoreErrorBound {
        let columns = packed.panels.depth() as f64;
        let terms = (columns + 6.0) * ROUNDOFF;
        ScoreErrorBound {
            form: packed.panels.form(),
            scale: packed.transform.scale(),
            max_norm: packed.panels.max_norm(),
            gamma: if terms < 0.5 { terms / (1.0 - terms) } else { f64::INFINITY },
            gamma_f64: (columns + 16.0) * f64::EPSILON,
            // Loss by underflow, also if some library has enabled flushing to zero.
            tiny: columns * 2.0 * f32::MIN_POSITIVE as f64,
            tiny_norm: columns.sqrt() * 2.0 * (f32::MIN_POSITIVE as f64).sqrt(),
            is_rounded: !C::IS_F32,
        }
    }

    /// Return the bound on the total error of two scores, for a row with this squared norm (transformed) and this
    /// squared distance to its best centroid (original).
    #[inline(always)]
    fn margin(&self, squared_norm: f32, squared_distance: f64) -> f64 {
        if squared_norm.is_nan() || squared_norm as f64 > MAX_SQUARED_NORM {
            return f64::INFINITY;
        }
        // The norm is itself rounded; a thousandth more covers this.
        let norm = (squared_norm as f64).sqrt() * 1.001 + self.tiny_norm;
        let distance = squared_distance.sqrt() * self.scale * 1.001;
        let error = match self.form {
            ScoreForm::Product => {
                let rival_norm = self.max_norm.min(norm + distance);
                self.gamma * norm * rival_norm + 1.1 * ROUNDOFF * rival_norm * rival_norm
            }
            ScoreForm::Difference => {
                let rounding = if self.is_rounded { 2.0 * ROUNDOFF * (2.0 * norm + distance) } else { 0.0 };
                self.gamma * distance * distance + 2.1 * distance * rounding + rounding * rounding
            }
        };
        2.0 * (error + self.gamma_f64 * distance * distance + self.tiny * (1.0 + norm + distance))
    }
}
