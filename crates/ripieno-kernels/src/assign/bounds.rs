//! Distance bounds between passes: centroids that cannot be the nearest of a row are skipped.
//!
//! Each pass decides by a sample of rows whether bounds of the previous pass save more than they cost, and if not,
//! whether new ones will. If the memory suffices, each pair of a row and a centroid has a bound ([`PairBounds`]).
//! Otherwise each row and group of neighboring centroids has one.
//!
//! The bound of a group is a lower bound of the distances to its members, without the row's own centroid. A pass lowers
//! it by the largest movement of the members. It computes the distance to the own centroid first and skips every group
//! with a greater bound. The rows of a block that need a group are collected and compared with its panels in register
//! tiles, as in a plain pass, which renews their bounds. A centroid is measured in f64 if its score allows it to be as
//! near as the nearest so far. So labels and distances equal the results of a plain pass, to the last bit.
//!
//! Cost: `2·d` for each pair of a row and a member of a group that is not skipped, some `6·n·d` for own centroids, and
//! `n` per group.
//! Memory: four bytes for each row and group; a limit on the memory makes groups larger.
//! Source: Ding et al., "Yinyang k-means: a drop-in replacement of the classic k-means with consistent speedup", ICML
//! 2015, section 3. Here bounds are computed per tile, and there are no bounds for single centroids of a group.

use super::pair_bounds::{PAIR_COST, PairBounds};
use crate::accumulate::accumulate;
use crate::distances::{distances, squared_distance};
use crate::panels::{PanelLine, Panels, PointTransform};
use crate::simd::{self, FEW_COLUMNS, Vector, VectorJob};
use crate::{Centroid, Matrix, PassOutput, Point, Threads};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Largest number of rows in a block. The rows share the panels in the cache.
const MAX_BLOCK_ROWS: usize = 1024;
/// Centroids of a panel, on every level.
pub(super) const WIDTH: usize = PanelLine::LEN;
/// Time of a pass relative to a pass over f32 without bounds: over bytes, and with bounds that exclude everything.
const BYTES_COST: f64 = 0.33;
const COST_MIN: f64 = 0.15;
/// A pass may take this many times as long with bounds as without, since it renews some bounds.
const MAX_BOUNDS_COST: f64 = 1.2;
/// Number of passes in which new bounds must save more than they cost.
const REPAYING_PASSES: f64 = 16.0;
/// Expected movement of centroids in the next pass, relative to the last one.
const EXPECTED_MOVEMENT: f64 = 0.25;
/// Of this number of rows, one is in the sample.
const ROWS_PER_SAMPLE: usize = 512;
const SAMPLE_ROWS: std::ops::RangeInclusive<usize> = 4..=64;
/// With fewer centroids, groups exclude too few.
const MIN_CENTROIDS: usize = 4 * WIDTH;
/// Number of matrix products for finding the long axis of some centroids.
const AXIS_STEPS: usize = 3;
/// Relative margin for the last rounding of a distance in f32 and f64.
pub(super) const RELATIVE_MARGIN: f64 = 1e-6;

/// State kept between passes.
#[derive(Debug)]
pub struct DistanceBounds {
    limit_bytes: usize,
    previous: Option<PreviousPass>,
    compared: f64,
}

/// The previous pass.
#[derive(Debug, Default)]
struct PreviousPass {
    centroids: Vec<f64>,
    labels: Vec<i32>,
    kept: Option<KeptBounds>,
    /// Number of times in a row that new bounds saved nothing in the next pass.
    failures: u32,
    /// Number of passes before new bounds are tried.
    pause: usize,
}

/// Bounds, and their centroids.
#[derive(Debug)]
struct KeptBounds {
    kind: BoundsKind,
    centroids: Vec<f64>,
    is_new: bool,
}

#[derive(Debug)]
enum BoundsKind {
    Pairs(PairBounds),
    Groups(PanelGroups),
}

/// What a pass does.
enum PassPlan {
    Plain,
    /// Use the bounds.
    Bounded,
    /// Compare all pairs, and compute new bounds.
    Renewing(BoundsKind),
}

/// Centroids in groups of whole panels, and the bounds.
#[derive(Debug)]
struct PanelGroups {
    /// The centroid at each position of the panels, and the position of each centroid.
    order: Vec<usize>,
    positions: Vec<usize>,
    /// Number of panels per group.
    span: usize,
    count: usize,
    /// Per block of rows and group: a bound for each row.
    lower: Vec<f32>,
}

impl DistanceBounds {
    /// Create a state without bounds. The bounds will take at most `limit_bytes`, but at least four bytes per row.
    pub fn new(limit_bytes: usize) -> DistanceBounds {
        DistanceBounds { limit_bytes, previous: None, compared: 1.0 }
    }

    /// Return the size of the bounds in bytes.
    pub fn bytes(&self) -> usize {
        let kept = self.previous.as_ref().and_then(|previous| previous.kept.as_ref());
        kept.map_or(0, |kept| match &kept.kind {
            BoundsKind::Pairs(pairs) => pairs.bytes(),
            BoundsKind::Groups(groups) => size_of_val(&groups.lower[..]),
        })
    }

    /// Return the fraction of all pairs of rows and centroids that the last pass did not exclude.
    pub fn compared(&self) -> f64 {
        self.compared
    }

    /// Whether the previous pass had as many rows and centroids.
    fn fits<P: Point>(&self, points: Matrix<P>, centroids: Matrix<P::Centroid>) -> bool {
        self.previous.as_ref().is_some_and(|previous| {
            previous.labels.len() == points.rows() && previous.centroids.len() == centroids.values().len()
        })
    }
}

/// Perform [`crate::assign_accumulate`] with the bounds of the previous pass over the same points. The results have the
/// same bits.
///
/// # Panics
/// If the shapes do not fit, or there are rows but no centroid.
pub fn assign_accumulate_within<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    weights: Option<&[f64]>,
    pass: PassOutput,
    bounds: &mut DistanceBounds,
    threads: &Threads,
) -> f64 {
    let is_supported = points.columns() > FEW_COLUMNS && centroids.rows() >= MIN_CENTROIDS && points.rows() > 0;
    let plan = match is_supported && bounds.fits(points, centroids) {
        true => bounds.plan(points, centroids, threads),
        false => {
            bounds.previous = None;
            PassPlan::Plain
        }
    };
    if let PassPlan::Plain = plan {
        let PassOutput { labels: out, squared_distances, sums, weight_sums } = pass;
        let plain = PassOutput { labels: &mut *out, squared_distances, sums, weight_sums };
        let inertia = super::assign_accumulate(points, centroids, weights, plain, threads);
        if is_supported {
            let previous = bounds.previous.get_or_insert_default();
            // Bounds of groups do not cover the own centroid of a row, and this pass changes labels.
            if matches!(previous.kept, Some(KeptBounds { kind: BoundsKind::Groups(_), .. })) {
                previous.kept = None;
            }
            previous.labels.clear();
            previous.labels.extend_from_slice(out);
            set_f64(&mut previous.centroids, centroids);
        }
        bounds.compared = 1.0;
        return inertia;
    }

    super::check_shapes(points, centroids, weights, pass.labels);
    let mut own = vec![0.0; if pass.squared_distances.is_none() { points.rows() } else { 0 }];
    let distances = pass.squared_distances.unwrap_or(&mut own);
    assert_eq!(distances.len(), points.rows(), "one entry per row");
    let previous = bounds.previous.as_mut().expect("there was a pass before");
    let compared = previous.update(plan, points, centroids, distances, threads);
    pass.labels.copy_from_slice(&previous.labels);
    bounds.compared = compared as f64 / (points.rows() as f64 * centroids.rows() as f64);
    accumulate(points, pass.labels, weights, pass.sums, pass.weight_sums, threads);
    super::inertia(distances, weights, super::block_rows(points.columns()))
}

/// Copy centroids as f64.
fn set_f64<C: Centroid>(to: &mut Vec<f64>, centroids: Matrix<C>) {
    to.clear();
    to.extend(centroids.values().iter().map(|&value| -> f64 { value.into() }));
}

/// Return the number of rows of a block. Their coordinates take as much of the cache as in a plain pass.
fn block_rows(columns: usize) -> usize {
    (super::BLOCK_BYTES / (columns * size_of::<f32>())).clamp(1, MAX_BLOCK_ROWS)
}

impl DistanceBounds {
    /// Choose the plan with the least expected time, by a sample of the rows.
    fn plan<P: Point>(&mut self, points: Matrix<P>, centroids: Matrix<P::Centroid>, threads: &Threads) -> PassPlan {
        let previous = self.previous.as_mut().expect("there was a pass before");
        let is_bytes = P::as_bytes(points.values()).is_some() && threads.simd().has_bytes();
        let plain_cost = if is_bytes { BYTES_COST } else { 1.0 };
        let sample = Sample::of(points, &previous.labels);
        let pair_count = (sample.rows.len() * centroids.rows()) as f64;
        if let Some(kept) = &mut previous.kept {
            let moves = moves(centroids, &kept.centroids);
            let needed = kept.kind.needed_count(&sample, centroids, &moves);
            if kept.kind.cost(needed as f64 / pair_count) < MAX_BOUNDS_COST * plain_cost {
                previous.failures = 0;
                return PassPlan::Bounded;
            }
            if kept.is_new {
                previous.failures += 1;
                previous.pause = (1 << previous.failures.min(5)) - 1;
            }
            kept.is_new = false;
        }
        if previous.pause > 0 {
            previous.pause -= 1;
            return PassPlan::Plain;
        }
        let found = sample.distances(centroids, threads);
        let kind = BoundsKind::of(centroids, points.rows(), self.limit_bytes, &found);
        let mut moves = moves(centroids, &previous.centroids);
        moves.iter_mut().for_each(|moved| *moved *= EXPECTED_MOVEMENT);
        let needed = kind.expected_count(&sample, &found, &moves);
        let saved = REPAYING_PASSES * (plain_cost - kind.cost(needed as f64 / pair_count));
        if saved > kind.renewal_cost() - plain_cost { PassPlan::Renewing(kind) } else { PassPlan::Plain }
    }
}

/// Some rows, spread over all.
struct Sample<'a, P> {
    points: Matrix<'a, P>,
    rows: Vec<usize>,
    /// Labels of the previous pass.
    labels: Vec<usize>,
}

impl<'a, P: Point> Sample<'a, P> {
    fn of(points: Matrix<'a, P>, labels: &[i32]) -> Sample<'a, P> {
        let count =
            (points.rows() / ROWS_PER_SAMPLE).clamp(*SAMPLE_ROWS.start(), *SAMPLE_ROWS.end()).min(points.rows());
        let rows: Vec<usize> = (0..count).map(|at| at * points.rows() / count).collect();
        let labels = rows.iter().map(|&row| labels[row] as usize).collect();
        Sample { points, rows, labels }
    }

    /// Return the distance of each row to each centroid.
    fn distances(&self, centroids: Matrix<P::Centroid>, threads: &Threads) -> Vec<f64> {
        let values: Vec<P> = self.rows.iter().flat_map(|&row| self.points.row(row)).copied().collect();
        let mut found = vec![P::Centroid::default(); self.rows.len() * centroids.rows()];
        distances(Matrix::new(&values, self.rows.len(), self.points.columns()), centroids, &mut found, threads);
        found.into_iter().map(Into::into).collect()
    }
}

impl BoundsKind {
    /// Create bounds that exclude nothing. `found` are distances of a sample.
    fn of<C: Centroid>(centroids: Matrix<C>, row_count: usize, limit_bytes: usize, found: &[f64]) -> BoundsKind {
        if PairBounds::row_bytes(centroids.rows()).saturating_mul(row_count) > limit_bytes {
            return BoundsKind::Groups(PanelGroups::of(centroids, row_count, limit_bytes));
        }
        // Rows outside of the sample may be farther.
        let max_distance = 2.0 * found.iter().fold(0.0, |all: f64, &each| all.max(each));
        BoundsKind::Pairs(PairBounds::new(row_count * centroids.rows(), max_distance))
    }

    /// Return the expected time of a pass that needs a fraction of all pairs, relative to a pass over f32.
    fn cost(&self, needed: f64) -> f64 {
        let pair_cost = match self {
            BoundsKind::Pairs(_) => PAIR_COST,
            BoundsKind::Groups(_) => 1.1,
        };
        COST_MIN + pair_cost * needed
    }

    /// Return the expected time of a pass that compares all pairs and computes bounds, relative to a pass over f32.
    fn renewal_cost(&self) -> f64 {
        match self {
            // Their memory is written for the first time.
            BoundsKind::Pairs(_) => 1.4,
            BoundsKind::Groups(_) => 1.15,
        }
    }

    /// Return the number of pairs of the sample that the bounds do not exclude, after moves of the centroids.
    fn needed_count<P: Point>(&self, sample: &Sample<P>, centroids: Matrix<P::Centroid>, moves: &[f64]) -> usize {
        let block_rows = block_rows(centroids.columns());
        let needed = sample.rows.iter().zip(&sample.labels).map(|(&row, &label)| {
            let distance = squared_distance(sample.points.row(row), centroids.row(label)).sqrt();
            match self {
                BoundsKind::Pairs(pairs) => pairs.needed_count(row, distance, block_rows, moves),
                BoundsKind::Groups(groups) => {
                    groups.needed_count(moves, distance, |group| groups.bound(row, group, block_rows))
                }
            }
        });
        needed.sum()
    }

    /// Return the number of pairs of the sample that new bounds will not exclude, after moves of the centroids.
    /// `distances` are the sample's.
    fn expected_count<P>(&self, sample: &Sample<P>, distances: &[f64], moves: &[f64]) -> usize {
        let rows = distances.chunks_exact(moves.len()).zip(&sample.labels);
        rows.map(|(distances, &own)| match self {
            BoundsKind::Pairs(_) => {
                let is_needed = |&(distance, moved): &(&f64, &f64)| distance - moved <= distances[own];
                // Not even the own centroid is counted if its distance is NaN.
                distances.iter().zip(moves).filter(is_needed).count().saturating_sub(1)
            }
            BoundsKind::Groups(groups) => groups.needed_count(moves, distances[own], |group| {
                let others = groups.members(group).iter().filter(|&&index| index != own);
                others.map(|&index| distances[index]).fold(f64::INFINITY, f64::min)
            }),
        })
        .sum()
    }
}

/// Return the movement of each centroid; infinity, which invalidates bounds, for NaN.
fn moves<C: Centroid>(centroids: Matrix<C>, previous: &[f64]) -> Vec<f64> {
    let columns = centroids.columns();
    let rows = centroids.values().chunks_exact(columns).zip(previous.chunks_exact(columns));
    rows.map(|(new, old)| {
        let differences = new.iter().zip(old).map(|(&new, old)| -> f64 { Into::<f64>::into(new) - old });
        let moved = differences.map(|each| each * each).sum::<f64>().sqrt();
        if moved.is_nan() { f64::INFINITY } else { moved }
    })
    .collect()
}

impl PreviousPass {
    /// Compute labels and squared distances of all rows, and update their bounds. Return the number of pairs that were
    /// not excluded.
    fn update<P: Point>(
        &mut self,
        plan: PassPlan,
        points: Matrix<P>,
        centroids: Matrix<P::Centroid>,
        squared_distances: &mut [f64],
        threads: &Threads,
    ) -> usize {
        let is_new = matches!(plan, PassPlan::Renewing(_));
        if let PassPlan::Renewing(kind) = plan {
            self.kept = Some(KeptBounds { kind, centroids: self.centroids.clone(), is_new });
        }
        let kept = self.kept.as_mut().expect("the plan uses bounds");
        kept.is_new = is_new;
        let (moves, output) = (moves(centroids, &kept.centroids), (&mut self.labels[..], squared_distances));
        let block_rows = block_rows(points.columns());
        let compared = match &mut kept.kind {
            BoundsKind::Pairs(pairs) => pairs.update(points, centroids, &moves, output, block_rows, threads),
            BoundsKind::Groups(groups) => groups.update(points, centroids, &moves, output, block_rows, threads),
        };
        set_f64(&mut kept.centroids, centroids);
        set_f64(&mut self.centroids, centroids);
        compared
    }
}

impl PanelGroups {
    /// Create groups of neighboring centroids without bounds.
    fn of<C: Centroid>(centroids: Matrix<C>, row_count: usize, limit_bytes: usize) -> PanelGroups {
        let mut order: Vec<usize> = (0..centroids.rows()).collect();
        arrange(centroids, &mut order);
        let mut positions = vec![0; order.len()];
        order.iter().enumerate().for_each(|(position, &index)| positions[index] = position);
        let panel_count = order.len().div_ceil(WIDTH);
        let max_groups = (limit_bytes / (row_count * size_of::<f32>())).max(1);
        let span = panel_count.div_ceil(max_groups);
        let count = panel_count.div_ceil(span);
        PanelGroups { order, positions, span, count, lower: vec![f32::NEG_INFINITY; row_count * count] }
    }

    /// Return the centroids of a group.
    fn members(&self, group: usize) -> &[usize] {
        let size = self.span * WIDTH;
        &self.order[group * size..self.order.len().min((group + 1) * size)]
    }

    /// Return the largest movement of the members of a group.
    fn moved(&self, group: usize, moves: &[f64]) -> f64 {
        self.members(group).iter().map(|&index| moves[index]).fold(0.0, f64::max)
    }

    /// Return the bound of a row and group.
    fn bound(&self, row: usize, group: usize, block_rows: usize) -> f64 {
        let (first, row_count) = (row / block_rows * block_rows, self.lower.len() / self.count);
        let height = block_rows.min(row_count - first);
        self.lower[first * self.count + group * height + row - first].into()
    }

    /// Return the number of centroids in groups that a row needs at `distance` from its own, given its bounds.
    fn needed_count(&self, moves: &[f64], distance: f64, bound: impl Fn(usize) -> f64) -> usize {
        let needed = (0..self.count).filter(|&group| bound(group) - self.moved(group, moves) <= distance);
        needed.map(|group| self.members(group).len()).sum()
    }

    /// Compute labels and squared distances of all rows, and update their bounds. Return the number of pairs that were
    /// not excluded.
    fn update<P: Point>(
        &mut self,
        points: Matrix<P>,
        centroids: Matrix<P::Centroid>,
        moves: &[f64],
        (labels, squared_distances): (&mut [i32], &mut [f64]),
        block_rows: usize,
        threads: &Threads,
    ) -> usize {
        let ordered: Vec<P::Centroid> = self.order.iter().flat_map(|&index| centroids.row(index)).copied().collect();
        let ordered = Matrix::new(&ordered, centroids.rows(), centroids.columns());
        let (panels, transform) = Panels::pack_all(ordered, WIDTH, threads);
        let search = BoundedSearch {
            centroids,
            moves: (0..self.count).map(|group| upper(self.moved(group, moves))).collect(),
            error_bound: DistanceErrorBound::new(&panels, transform.scale()),
            panels,
            transform,
            order: &self.order,
            positions: &self.positions,
            span: self.span,
        };
        let compared = AtomicUsize::new(0);
        let blocks = labels.chunks_mut(block_rows).zip(squared_distances.chunks_mut(block_rows));
        let parts: Vec<_> = blocks.zip(self.lower.chunks_mut(block_rows * self.count)).enumerate().collect();
        let operations = block_rows * centroids.values().len() / 16;
        threads.for_each(
            parts,
            operations,
            || (),
            |(), (block, ((labels, squared_distances), lower))| {
                let points = points.row_range(block * block_rows, labels.len());
                let block = BoundedBlock { search: &search, points, labels, squared_distances, lower };
                compared.fetch_add(threads.simd().run(block), Ordering::Relaxed);
            },
        );
        compared.into_inner()
    }
}

/// Sort centroids so that neighbors are in the same panel or in adjacent panels: halve them repeatedly along the long
/// axis.
fn arrange<C: Centroid>(centroids: Matrix<C>, order: &mut [usize]) {
    let panel_count = order.len().div_ceil(WIDTH);
    if panel_count < 2 {
        return;
    }
    let columns = centroids.columns();
    let mut mean = vec![0.0; columns];
    for &index in order.iter() {
        mean.iter_mut().zip(centroids.row(index)).for_each(|(sum, &value)| *sum += Into::<f64>::into(value));
    }
    mean.iter_mut().for_each(|sum| *sum /= order.len() as f64);
    let along = |index: usize, axis: &[f64]| -> f64 {
        let terms = centroids.row(index).iter().zip(&mean).zip(axis);
        terms.map(|((&value, mean), axis)| (Into::<f64>::into(value) - mean) * axis).sum()
    };
    // Power iteration of the scatter matrix, starting with the deviation of one centroid.
    let mut axis: Vec<f64> =
        centroids.row(order[0]).iter().zip(&mean).map(|(&value, mean)| Into::<f64>::into(value) - mean).collect();
    for _ in 0..AXIS_STEPS {
        let mut next = vec![0.0; columns];
        for &index in order.iter() {
            let length = along(index, &axis);
            let row = centroids.row(index).iter().zip(&mean);
            next.iter_mut()
                .zip(row)
                .for_each(|(sum, (&value, mean))| *sum += length * (Into::<f64>::into(value) - mean));
        }
        let norm = next.iter().map(|value| value * value).sum::<f64>().sqrt();
        if norm > 0.0 && norm.is_finite() {
            axis = next.into_iter().map(|value| value / norm).collect();
        }
    }
    let mut lengths: Vec<(f64, usize)> = order.iter().map(|&index| (along(index, &axis), index)).collect();
    lengths.sort_by(|a, b| a.0.total_cmp(&b.0));
    order.iter_mut().zip(lengths).for_each(|(position, (_, index))| *position = index);
    let (low, high) = order.split_at_mut(panel_count / 2 * WIDTH);
    arrange(centroids, low);
    arrange(centroids, high);
}

/// A pass with bounds.
struct BoundedSearch<'a, P: Point> {
    centroids: Matrix<'a, P::Centroid>,
    panels: Panels,
    transform: PointTransform<P::Centroid>,
    order: &'a [usize],
    positions: &'a [usize],
    span: usize,
    moves: Vec<f32>,
    error_bound: DistanceErrorBound,
}

/// Bound on the rounding error of a squared distance computed from a score (transformed).
///
/// With `γ = (d + 16)·u`, a score has an error of at most `γ·(‖x‖‖c‖ + ‖c‖²)`, including the rounding to f32, and a
/// squared norm has an error of `γ·‖x‖²`. So `‖x‖² − 2·score` has an error below `3·γ·(‖x‖ + ‖c‖)²`. See
/// [`super::ScoreErrorBound`].
pub(super) struct DistanceErrorBound {
    gamma: f64,
    max_norm: f64,
    tiny: f64,
    scale: f64,
    inverse_scale: f64,
}

impl DistanceErrorBound {
    pub(super) fn new(panels: &Panels, scale: f64) -> DistanceErrorBound {
        let columns = panels.depth() as f64;
        DistanceErrorBound {
            gamma: 3.0 * (columns + 16.0) * super::ROUNDOFF,
            max_norm: panels.max_norm(),
            tiny: 16.0 * columns * f32::MIN_POSITIVE as f64,
            scale,
            inverse_scale: scale.recip(),
        }
    }

    /// Return a row's squared norm minus the error bound of squared distances.
    #[inline(always)]
    pub(super) fn base(&self, squared_norm: f64) -> f64 {
        let norms = squared_norm.sqrt() + self.max_norm;
        squared_norm - self.gamma * norms * norms - self.tiny * (1.0 + norms)
    }

    /// Return the base for a subtraction of twice a score in f32.
    #[inline(always)]
    pub(super) fn f32_base(&self, squared_norm: f64) -> f32 {
        let norms = squared_norm.sqrt() + self.max_norm;
        ((self.base(squared_norm) - 4.0 * f64::from(f32::EPSILON) * norms * norms) as f32).next_down()
    }

    /// Return the smallest score of a centroid that may be within this squared distance of a row.
    #[inline(always)]
    pub(super) fn limit(&self, base: f64, squared_distance: f64) -> f32 {
        let limit = 0.5 * (base - squared_distance * self.scale * self.scale * (1.0 + RELATIVE_MARGIN));
        if limit.is_nan() { f32::NEG_INFINITY } else { (limit as f32).next_down() }
    }

    /// Return a lower bound on the distance of centroids with at most this score.
    #[inline(always)]
    fn lower(&self, base: f64, score: f32) -> f32 {
        let squared = base - 2.0 * f64::from(score);
        // NaN gives no information.
        let squared = if squared > 0.0 { squared } else { 0.0 };
        lower(squared.sqrt() * self.inverse_scale)
    }
}

/// Round a distance down to a finite f32. Movements do not lower an infinite bound, or make it NaN.
#[inline(always)]
fn lower(distance: f64) -> f32 {
    ((distance * (1.0 - RELATIVE_MARGIN)) as f32).min(f32::MAX) - f32::MIN_POSITIVE
}

/// Round a distance up to f32.
#[inline(always)]
fn upper(distance: f64) -> f32 {
    (distance * (1.0 + RELATIVE_MARGIN)) as f32 + f32::MIN_POSITIVE
}

/// One block of rows.
struct BoundedBlock<'a, P: Point> {
    search: &'a BoundedSearch<'a, P>,
    points: Matrix<'a, P>,
    /// Labels of the previous pass, replaced by the labels of this pass.
    labels: &'a mut [i32],
    squared_distances: &'a mut [f64],
    lower: &'a mut [f32],
}

/// State of a row.
#[derive(Clone, Copy)]
struct RowBounds {
    /// See [`DistanceErrorBound::base`].
    base: f64,
    /// Squared distance to the centroid of the previous pass.
    own: f64,
    /// Position of this centroid.
    own_position: usize,
    /// The nearest centroid so far.
    label: i32,
    /// The smallest score of a centroid that may be as near.
    limit: f32,
}

/// State of the rows of a block.
struct BlockBounds<'a> {
    /// Transformed rows, contiguous.
    transformed: &'a [f32],
    rows: &'a mut [RowBounds],
    /// Upper bound on the distance of each row to its nearest centroid so far.
    uppers: &'a mut [f32],
}

/// A search in register tiles of rows and centroids.
pub(super) trait TileSearch: Sized {
    /// Search in tiles of ROWS rows, PARTS times as many if available, with COLUMNS columns at a time.
    fn search<V: Vector, const ROWS: usize, const PARTS: usize, const VECTORS: usize, const COLUMNS: usize>(
        self,
    ) -> usize;

    /// Search in tiles that fit the registers of `V`.
    #[inline(always)]
    fn search_tiles<V: Vector, const ROWS: usize, const VECTORS: usize>(self) -> usize {
        // With the longest vectors a panel is one vector, which leaves registers for more rows.
        match V::LANES {
            WIDTH => self.search::<V, 9, 2, 1, 4>(),
            _ => self.search::<V, ROWS, 1, VECTORS, 1>(),
        }
    }
}

impl<P: Point> VectorJob for BoundedBlock<'_, P> {
    /// Number of pairs of rows and centroids that were not excluded.
    type Output = usize;

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) -> usize {
        self.search_tiles::<V, ROWS, VECTORS>()
    }
}

impl<P: Point> TileSearch for BoundedBlock<'_, P> {
    #[inline(always)]
    fn search<V: Vector, const ROWS: usize, const PARTS: usize, const VECTORS: usize, const COLUMNS: usize>(
        mut self,
    ) -> usize {
        let (search, columns) = (self.search, self.points.columns());
        let mut transformed = vec![0.0; self.labels.len() * columns];
        // A closure would not be compiled for these vectors.
        let mut rows = Vec::with_capacity(self.labels.len());
        for (row, transformed) in transformed.chunks_exact_mut(columns).enumerate() {
            rows.push(self.start_row(row, transformed));
        }
        let mut uppers: Vec<f32> = rows.iter().map(|row| upper(row.own.sqrt())).collect();
        let mut candidates = vec![0; rows.len()];
        let (mut greatest, mut found) = (vec![0.0; rows.len()], vec![0.0; rows.len()]);
        let mut bases = vec![0.0; rows.len()];
        let mut compared = 0;
        for (group, &moved) in search.moves.iter().enumerate() {
            let mut count = 0;
            let lower = &mut self.lower[group * rows.len()..][..rows.len()];
            for (row, (lower, &upper)) in lower.iter_mut().zip(&uppers).enumerate() {
                let lowered = *lower - moved;
                // The subtraction was rounded.
                *lower = lowered - lowered.abs() * f32::EPSILON;
                candidates[count] = row;
                count += usize::from(*lower <= upper || upper.is_nan());
            }
            let first = group * search.span;
            let panels = first..search.panels.count().min(first + search.span);
            compared += count * (search.order.len().min(panels.end * WIDTH) - first * WIDTH);
            let mut state = BlockBounds { transformed: &transformed, rows: &mut rows, uppers: &mut uppers };
            let mut done = 0;
            while done < count {
                let (candidates, greatest) = (&candidates[done..count], &mut greatest[done..count]);
                let panels = panels.clone();
                // With one part there is only one such loop to compile.
                done += match PARTS == 1 || candidates.len() <= ROWS {
                    true => self.compare_all::<V, ROWS, 1, VECTORS, COLUMNS>(&mut state, candidates, panels, greatest),
                    false => {
                        self.compare_all::<V, ROWS, PARTS, VECTORS, COLUMNS>(&mut state, candidates, panels, greatest)
                    }
                };
            }
            // All at once, because single square roots are slow.
            candidates[..count].iter().zip(&mut bases).for_each(|(&row, base)| *base = rows[row].base);
            for ((found, &base), &greatest) in found.iter_mut().zip(&bases[..count]).zip(&greatest) {
                *found = search.error_bound.lower(base, greatest);
            }
            let lower = &mut self.lower[group * rows.len()..];
            candidates[..count].iter().zip(&found).for_each(|(&row, &bound)| lower[row] = bound);
        }
        for (row, found) in rows.iter().enumerate() {
            if found.label != self.labels[row] {
                // The centroid that the row leaves is now one of the others.
                let group = found.own_position / (WIDTH * search.span);
                let lower = &mut self.lower[group * rows.len() + row];
                *lower = lower.min(self::lower(found.own.sqrt()));
                self.labels[row] = found.label;
            }
        }
        compared
    }
}

impl<P: Point> BoundedBlock<'_, P> {
    /// Compare the first of some rows with panels and record the greatest scores. Return the number of these rows.
    #[inline(always)]
    fn compare_all<V: Vector, const ROWS: usize, const PARTS: usize, const VECTORS: usize, const COLUMNS: usize>(
        &mut self,
        state: &mut BlockBounds,
        candidates: &[usize],
        panels: Range<usize>,
        greatest: &mut [f32],
    ) -> usize {
        let (search, columns, transformed) = (self.search, self.points.columns(), state.transformed);
        let candidates = &candidates[..candidates.len().min(PARTS * ROWS)];
        let mut tile = [[&transformed[..columns]; ROWS]; PARTS];
        for (tile, &row) in tile.as_flattened_mut().iter_mut().zip(candidates) {
            *tile = &transformed[row * columns..(row + 1) * columns];
        }
        let greatest = &mut greatest[..candidates.len()];
        greatest.fill(f32::NEG_INFINITY);
        for panel in panels {
            let scores = simd::scattered_products::<V, ROWS, PARTS, VECTORS, COLUMNS>(&tile, &search.panels, panel);
            for ((&row, scores), greatest) in candidates.iter().zip(scores.as_flattened()).zip(&mut *greatest) {
                let all = scores[1..].iter().fold(scores[0], |all, &each| all.maximum(each)).greatest();
                if all < state.rows[row].limit && state.rows[row].own_position / WIDTH != panel {
                    *greatest = greatest.max(all);
                    continue;
                }
                let mut line = PanelLine::default();
                for (vector, &scores) in scores.iter().enumerate() {
                    // SAFETY: a line holds the vectors of a panel, and is aligned.
                    unsafe { scores.store(line.as_mut_ptr().add(vector * V::LANES)) };
                }
                *greatest = greatest.max(self.compare(row, &mut state.rows[row], panel, line.values()));
                state.uppers[row] = upper(self.squared_distances[row].sqrt());
            }
        }
        candidates.len()
    }

    /// Measure the distance of a row to its centroid of the previous pass.
    #[inline(always)]
    fn start_row(&mut self, row: usize, transformed: &mut [f32]) -> RowBounds {
        let (search, label) = (self.search, self.labels[row]);
        let point = self.points.row(row);
        search.transform.apply(point, transformed);
        let base = search.error_bound.base(super::squared_norm(transformed).into());
        let own = squared_distance(point, search.centroids.row(label as usize));
        self.squared_distances[row] = own;
        let limit = search.error_bound.limit(base, own);
        RowBounds { base, own, own_position: search.positions[label as usize], label, limit }
    }

    /// Measure the centroids of a panel that may be as near as the nearest so far. Return the greatest score except
    /// the own centroid's, or infinity if a score is NaN.
    #[inline(always)]
    fn compare(&mut self, index: usize, row: &mut RowBounds, panel: usize, scores: &[f32; WIDTH]) -> f32 {
        let search = self.search;
        let mut greatest = f32::NEG_INFINITY;
        for (lane, &score) in scores.iter().enumerate() {
            let position = panel * WIDTH + lane;
            if position >= search.order.len() || position == row.own_position {
                continue;
            }
            greatest = greatest.max(if score.is_nan() { f32::INFINITY } else { score });
            if score < row.limit {
                continue;
            }
            let label = search.order[position] as i32;
            let distance = squared_distance(self.points.row(index), search.centroids.row(search.order[position]));
            let best = self.squared_distances[index];
            if distance < best || (distance == best && label < row.label) {
                row.label = label;
                row.limit = search.error_bound.limit(row.base, distance);
                self.squared_distances[index] = distance;
            }
        }
        greatest
    }
}
