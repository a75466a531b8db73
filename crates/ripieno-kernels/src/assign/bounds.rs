//! Distance bounds between passes: groups of centroids that cannot contain the nearest centroid of a row are skipped.
//!
//! For each row and group of neighboring centroids there is a lower bound of the distances to the group's members,
//! without the row's own centroid. A pass lowers the bound by the largest movement of the members. It computes the
//! distance to the own centroid first and skips every group with a greater bound. The rows of a block that need a group
//! are collected and compared with its panels in register tiles, as in a plain pass, which renews their bounds. A
//! centroid is measured in f64 if its score allows it to be as near as the nearest so far. So labels and distances
//! equal the results of a plain pass, to the last bit.
//!
//! Cost: `2·d` for each pair of a row and a member of a group that is not skipped, some `6·n·d` for own centroids, and
//! `n` per group.
//! Memory: four bytes for each row and group; a limit on the memory makes groups larger.
//! Source: Ding et al., "Yinyang k-means: a drop-in replacement of the classic k-means with consistent speedup", ICML
//! 2015, section 3. Here bounds are computed per tile, and there are no bounds for single centroids of a group.

use crate::accumulate::accumulate;
use crate::distances::squared_distance;
use crate::panels::{PanelLine, Panels, PointTransform};
use crate::simd::{self, FEW_COLUMNS, Vector, VectorJob};
use crate::{Centroid, Matrix, PassOutput, Point, Threads};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Largest number of rows in a block. The rows share the panels in the cache.
const MAX_BLOCK_ROWS: usize = 1024;
/// Centroids of a panel, on every level.
const WIDTH: usize = PanelLine::LEN;
/// A pass uses bounds only after a pass in which at most one of this number of rows has changed its label.
const ROWS_PER_CHANGE: usize = 8;
/// Like [`ROWS_PER_CHANGE`], for bytes, which are compared three times as fast without bounds.
const ROWS_PER_CHANGE_OF_BYTES: usize = 64;
/// With fewer centroids, groups exclude too few.
const MIN_CENTROIDS: usize = 4 * WIDTH;
/// Number of matrix products for finding the long axis of some centroids.
const AXIS_STEPS: usize = 3;
/// Relative margin for the last rounding of a distance in f32 and f64.
const RELATIVE_MARGIN: f64 = 1e-6;

/// State kept between passes.
#[derive(Debug)]
pub struct DistanceBounds {
    limit_bytes: usize,
    previous: Option<PreviousPass>,
    compared: f64,
}

/// The previous pass.
#[derive(Debug)]
struct PreviousPass {
    centroids: Vec<f64>,
    labels: Vec<i32>,
    changed: usize,
    groups: Option<PanelGroups>,
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
        let groups = self.previous.as_ref().and_then(|previous| previous.groups.as_ref());
        groups.map_or(0, |groups| groups.lower.len() * size_of::<f32>())
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
    let is_supported = points.columns() > FEW_COLUMNS && centroids.rows() >= MIN_CENTROIDS;
    let are_bytes = P::as_bytes(points.values()).is_some() && threads.simd().has_bytes();
    let rows_per_change = if are_bytes { ROWS_PER_CHANGE_OF_BYTES } else { ROWS_PER_CHANGE };
    let is_stable =
        |previous: &PreviousPass| previous.groups.is_some() || previous.changed * rows_per_change <= points.rows();
    let has_usable_bounds = bounds.fits(points, centroids) && bounds.previous.as_ref().is_some_and(is_stable);
    if !is_supported || !has_usable_bounds || points.rows() == 0 {
        let labels = bounds.previous.take().map_or(Vec::new(), |previous| previous.labels);
        let PassOutput { labels: out, squared_distances, sums, weight_sums } = pass;
        let plain = PassOutput { labels: &mut *out, squared_distances, sums, weight_sums };
        let inertia = super::assign_accumulate(points, centroids, weights, plain, threads);
        bounds.previous = is_supported.then(|| {
            let is_same = |(old, new): &(&i32, &i32)| old == new;
            let changed = points.rows() - labels.iter().zip(out.iter()).filter(is_same).count();
            let centroids = centroids.values().iter().map(|&value| value.into()).collect();
            PreviousPass { centroids, labels: out.to_vec(), changed, groups: None }
        });
        bounds.compared = 1.0;
        return inertia;
    }

    super::check_shapes(points, centroids, weights, pass.labels);
    let mut own = vec![0.0; if pass.squared_distances.is_none() { points.rows() } else { 0 }];
    let distances = pass.squared_distances.unwrap_or(&mut own);
    assert_eq!(distances.len(), points.rows(), "one entry per row");
    bounds.update(points, centroids, pass.labels, distances, threads);
    accumulate(points, pass.labels, weights, pass.sums, pass.weight_sums, threads);
    super::inertia(distances, weights, super::block_rows(points.columns()))
}

impl DistanceBounds {
    /// Compute labels and squared distances of all rows, and update their bounds.
    fn update<P: Point>(
        &mut self,
        points: Matrix<P>,
        centroids: Matrix<P::Centroid>,
        labels: &mut [i32],
        squared_distances: &mut [f64],
        threads: &Threads,
    ) {
        let previous = self.previous.as_mut().expect("there was a pass before");
        let groups = previous.groups.get_or_insert_with(|| PanelGroups::of(centroids, points.rows(), self.limit_bytes));
        let ordered: Vec<P::Centroid> = groups.order.iter().flat_map(|&index| centroids.row(index)).copied().collect();
        let ordered = Matrix::new(&ordered, centroids.rows(), centroids.columns());
        let (panels, transform) = Panels::pack_all(ordered, WIDTH, threads);
        let search = BoundedSearch {
            centroids,
            moves: groups.moves(centroids, &previous.centroids),
            error_bound: DistanceErrorBound::new(&panels, transform.scale()),
            panels,
            transform,
            order: &groups.order,
            positions: &groups.positions,
            span: groups.span,
        };
        let compared = AtomicUsize::new(0);
        // Their coordinates take as much of the cache as in a plain pass.
        let block_rows = (super::BLOCK_BYTES / (points.columns() * size_of::<f32>())).clamp(1, MAX_BLOCK_ROWS);
        let blocks = previous.labels.chunks_mut(block_rows).zip(squared_distances.chunks_mut(block_rows));
        let parts: Vec<_> = blocks.zip(groups.lower.chunks_mut(block_rows * groups.count)).enumerate().collect();
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
        labels.copy_from_slice(&previous.labels);
        previous.centroids.clear();
        previous.centroids.extend(centroids.values().iter().map(|&value| -> f64 { value.into() }));
        self.compared = compared.into_inner() as f64 / (points.rows() as f64 * centroids.rows() as f64);
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
        let most = (limit_bytes / (row_count * size_of::<f32>())).max(1);
        let span = panel_count.div_ceil(most);
        let count = panel_count.div_ceil(span);
        PanelGroups { order, positions, span, count, lower: vec![f32::NEG_INFINITY; row_count * count] }
    }

    /// Return the largest movement of the members of each group.
    fn moves<C: Centroid>(&self, centroids: Matrix<C>, previous: &[f64]) -> Vec<f32> {
        let columns = centroids.columns();
        let moved = |&index: &usize| {
            let pairs = centroids.row(index).iter().zip(&previous[index * columns..(index + 1) * columns]);
            let differences = pairs.map(|(&new, &old)| -> f64 { Into::<f64>::into(new) - old });
            let moved = differences.map(|each| each * each).sum::<f64>().sqrt();
            // NaN invalidates all bounds.
            if moved.is_nan() { f64::INFINITY } else { moved }
        };
        let members = self.order.chunks(self.span * WIDTH);
        let most = |members: &[usize]| members.iter().map(moved).fold(0.0, f64::max);
        members.map(|members| upper(most(members))).collect()
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
struct DistanceErrorBound {
    gamma: f64,
    max_norm: f64,
    tiny: f64,
    scale: f64,
    inverse_scale: f64,
}

impl DistanceErrorBound {
    fn new(panels: &Panels, scale: f64) -> DistanceErrorBound {
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
    fn base(&self, squared_norm: f64) -> f64 {
        let norms = squared_norm.sqrt() + self.max_norm;
        squared_norm - self.gamma * norms * norms - self.tiny * (1.0 + norms)
    }

    /// Return the smallest score of a centroid that may be within this squared distance of a row.
    #[inline(always)]
    fn limit(&self, base: f64, squared_distance: f64) -> f32 {
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

/// Round a distance down to f32.
#[inline(always)]
fn lower(distance: f64) -> f32 {
    (distance * (1.0 - RELATIVE_MARGIN)) as f32 - f32::MIN_POSITIVE
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

impl<P: Point> VectorJob for BoundedBlock<'_, P> {
    /// Number of pairs of rows and centroids that were not excluded.
    type Output = usize;

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) -> usize {
        // With the longest vectors a panel is one vector, which leaves registers for more rows.
        match V::LANES {
            WIDTH => self.search::<V, 9, 2, 1, 4>(),
            _ => self.search::<V, ROWS, 1, VECTORS, 1>(),
        }
    }
}

impl<P: Point> BoundedBlock<'_, P> {
    /// Search in register tiles of ROWS rows, PARTS times as many if available, with COLUMNS columns at a time.
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

    /// Compare the first of some rows with panels and record the greatest scores. Returns the number of these rows.
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

    /// Measure the centroids of a panel that may be as near as the nearest so far. Returns the greatest score except
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
