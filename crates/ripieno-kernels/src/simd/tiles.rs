//! Register tiles: the scores of a few rows against a panel of centroids, and the best scores of a block of rows.
//!
//! A nearer centroid has a greater score. With [`ScoreForm::Product`] the score is `x·c − ½‖c‖²`: one multiply-add per
//! coordinate, since the rest of `−½‖x − c‖²` is the same for every centroid. With [`ScoreForm::Difference`] it is `−‖x
//! − c‖²`: twice the work without cancellation, for few columns.
//!
//! Each lane of a vector belongs to a centroid and keeps its own best score, runner-up and index. Lanes are combined
//! once per row, after the last panel. So the matrix of scores is never stored.
//! Source: Van Zee and van de Geijn, "BLIS", ACM TOMS 2015, section 4 (panels and register tiles).

use super::vector::{Vector, VectorJob};
use crate::panels::{PanelLine, Panels, ScoreForm};

/// The number of rows of a block is a multiple of this, and every tile height divides it.
pub(crate) const ROW_STEP: usize = 36;

/// Largest number of columns for [`ScoreForm::Difference`].
pub(crate) const FEW_COLUMNS: usize = 8;

/// Number of rows that [`NearestRows`] compares at once for few columns.
const FEW_COLUMNS_TILE_ROWS: usize = 4;

/// The best centroid of a row, by score.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nearest {
    /// The greatest score.
    pub score: f32,
    /// The greatest score of any other centroid.
    pub runner_up: f32,
    /// The centroid.
    pub index: u32,
}

/// The best score so far of each lane, for one row; a buffer for [`NearestRows`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Lanes {
    best: PanelLine,
    runner_up: PanelLine,
    index: PanelLine,
}

/// Job that finds the best centroid of each row. The number of rows is a multiple of [`ROW_STEP`].
///
/// Independent of the type of the points, so that it is compiled once per level.
pub(crate) struct NearestRows<'a> {
    pub rows: &'a [f32],
    pub panels: &'a Panels,
    pub lanes: &'a mut [Lanes],
    pub found: &'a mut [Nearest],
}

impl VectorJob for NearestRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) {
        nearest::<V, ROWS, VECTORS>(self.rows, self.panels, self.lanes, self.found);
    }
}

#[inline(always)]
fn nearest<V: Vector, const ROWS: usize, const VECTORS: usize>(
    rows: &[f32],
    panels: &Panels,
    lanes: &mut [Lanes],
    found: &mut [Nearest],
) {
    let depth = panels.depth();
    assert_eq!(rows.len(), found.len() * depth, "a result for every row");
    assert!(found.len().is_multiple_of(ROW_STEP), "blocks are filled up with rows of zeros");
    assert_eq!(panels.width(), V::LANES * VECTORS, "the panels are packed for this level");
    match (panels.form(), depth) {
        (ScoreForm::Product, _) => nearest_by_panel::<V, ROWS, VECTORS>(rows, panels, lanes, found),
        (ScoreForm::Difference, 1) => nearest_by_rows::<V, 1, VECTORS>(rows, panels, found),
        (ScoreForm::Difference, 2) => nearest_by_rows::<V, 2, VECTORS>(rows, panels, found),
        (ScoreForm::Difference, 3) => nearest_by_rows::<V, 3, VECTORS>(rows, panels, found),
        (ScoreForm::Difference, 4) => nearest_by_rows::<V, 4, VECTORS>(rows, panels, found),
        (ScoreForm::Difference, 5) => nearest_by_rows::<V, 5, VECTORS>(rows, panels, found),
        (ScoreForm::Difference, 6) => nearest_by_rows::<V, 6, VECTORS>(rows, panels, found),
        (ScoreForm::Difference, 7) => nearest_by_rows::<V, 7, VECTORS>(rows, panels, found),
        (ScoreForm::Difference, _) => nearest_by_rows::<V, 8, VECTORS>(rows, panels, found),
    }
}

/// Job that finds every score of a tile of rows that is not below its row's limit.
///
/// Independent of the type of the points, like [`NearestRows`].
pub(crate) struct TileFilter<'a> {
    /// At least as many rows as a tile has.
    pub rows: &'a [f32],
    /// Limits of the first rows, at most as many as a tile has. The other rows are ignored.
    pub limits: &'a [f32],
    pub panels: &'a Panels,
    /// Receives rows and centroids, in ascending order per row.
    pub found: &'a mut Vec<(usize, usize)>,
}

impl VectorJob for TileFilter<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) {
        let TileFilter { rows, limits, panels, found } = self;
        let rows = &rows[..ROWS * panels.depth()];
        assert_eq!(panels.width(), V::LANES * VECTORS, "the panels are packed for this level");
        for panel in 0..panels.count() {
            let scores = scores::<V, ROWS, VECTORS>(rows, panels, panel);
            for (row, (scores, &limit)) in scores.iter().zip(limits).enumerate() {
                for (vector, &score) in scores.iter().enumerate() {
                    let mut bits = !V::bits(score.is_less(V::splat(limit))) & ((1 << V::LANES) - 1);
                    while bits != 0 {
                        let lane = bits.trailing_zeros() as usize;
                        found.push((row, panel * panels.width() + vector * V::LANES + lane));
                        bits &= bits - 1;
                    }
                }
            }
        }
    }
}

/// Return the scores of a full tile of rows and a panel of VECTORS vectors.
#[inline(always)]
pub(crate) fn scores<V: Vector, const ROWS: usize, const VECTORS: usize>(
    rows: &[f32],
    panels: &Panels,
    panel: usize,
) -> [[V; VECTORS]; ROWS] {
    match panels.form() {
        ScoreForm::Product => products::<V, ROWS, VECTORS>(rows, panels, panel),
        ScoreForm::Difference => differences::<V, ROWS, VECTORS>(rows, panels, panel),
    }
}

/// Compare all rows with one panel after the other, so that a panel stays in the cache meanwhile.
#[inline(always)]
fn nearest_by_panel<V: Vector, const ROWS: usize, const VECTORS: usize>(
    rows: &[f32],
    panels: &Panels,
    lanes: &mut [Lanes],
    found: &mut [Nearest],
) {
    let lanes = &mut lanes[..found.len()];
    let none = LaneState::<V>::none();
    lanes.iter_mut().for_each(|lanes| none.put(lanes));
    for panel in 0..panels.count() {
        for (rows, lanes) in rows.chunks_exact(ROWS * panels.depth()).zip(lanes.chunks_exact_mut(ROWS)) {
            let scores = products::<V, ROWS, VECTORS>(rows, panels, panel);
            for row in 0..ROWS {
                let mut best = LaneState::<V>::take(&lanes[row]);
                for (vector, &score) in scores[row].iter().enumerate() {
                    best.compare(score, panel * VECTORS + vector);
                }
                best.put(&mut lanes[row]);
            }
        }
    }
    for (lanes, found) in lanes.iter().zip(found) {
        *found = LaneState::<V>::take(lanes).nearest();
    }
}

/// Compare a few rows with all centroids, with the state of the rows in registers.
#[inline(always)]
fn nearest_by_rows<V: Vector, const DEPTH: usize, const VECTORS: usize>(
    rows: &[f32],
    panels: &Panels,
    found: &mut [Nearest],
) {
    let rows = rows.chunks_exact(FEW_COLUMNS_TILE_ROWS * DEPTH);
    for (rows, found) in rows.zip(found.chunks_exact_mut(FEW_COLUMNS_TILE_ROWS)) {
        let mut best = [LaneState::<V>::none(); FEW_COLUMNS_TILE_ROWS];
        for panel in 0..panels.count() {
            let lines = panels.panel(panel);
            assert_eq!(lines.len() * PanelLine::LEN, DEPTH * VECTORS * V::LANES, "a whole panel");
            let coordinates = lines.as_ptr().cast::<f32>();
            for vector in 0..VECTORS {
                let mut score = [V::splat(0.0); FEW_COLUMNS_TILE_ROWS];
                for column in 0..DEPTH {
                    // SAFETY: the panel has DEPTH times VECTORS vectors, and its lines are aligned.
                    let centroids = unsafe { V::load(coordinates.add((column * VECTORS + vector) * V::LANES)) };
                    for row in 0..FEW_COLUMNS_TILE_ROWS {
                        let difference = V::splat(rows[row * DEPTH + column]).subtract(centroids);
                        score[row] = difference.multiply_subtract_from(difference, score[row]);
                    }
                }
                for row in 0..FEW_COLUMNS_TILE_ROWS {
                    best[row].compare(score[row], panel * VECTORS + vector);
                }
            }
        }
        for row in 0..FEW_COLUMNS_TILE_ROWS {
            found[row] = best[row].nearest();
        }
    }
}

/// Return the scores of a full tile of rows and a panel of VECTORS vectors, as products.
#[inline(always)]
pub(crate) fn products<V: Vector, const ROWS: usize, const VECTORS: usize>(
    rows: &[f32],
    panels: &Panels,
    panel: usize,
) -> [[V; VECTORS]; ROWS] {
    let mut sums = [[V::splat(0.0); VECTORS]; ROWS];
    fold::<V, ROWS, VECTORS>(rows, panels, panel, &mut sums, |x, c, sum| x.multiply_add(c, sum));
    subtract_half_norms(&mut sums, panels, panel);
    sums
}

/// Return the [`products`] of rows at any positions, PARTS times ROWS of them. The panel's COLUMNS columns at a time
/// are in registers, so each row needs one address for all of these columns.
#[inline(always)]
pub(crate) fn scattered_products<
    V: Vector,
    const ROWS: usize,
    const PARTS: usize,
    const VECTORS: usize,
    const COLUMNS: usize,
>(
    rows: &[[&[f32]; ROWS]; PARTS],
    panels: &Panels,
    panel: usize,
) -> [[[V; VECTORS]; ROWS]; PARTS] {
    let (depth, lines) = (panels.depth(), panels.panel(panel));
    assert_eq!(lines.len() * PanelLine::LEN, depth * VECTORS * V::LANES, "a whole panel");
    assert!(rows.as_flattened().iter().all(|row| row.len() == depth), "whole rows");
    let coordinates = lines.as_ptr().cast::<f32>();
    let mut sums = [[[V::splat(0.0); VECTORS]; ROWS]; PARTS];
    let whole = depth - depth % COLUMNS;
    // SAFETY: the panel has `depth` times VECTORS aligned vectors; a row has `depth` values.
    unsafe {
        for begin in (0..whole).step_by(COLUMNS) {
            fold_scattered::<V, ROWS, PARTS, VECTORS, COLUMNS>(rows, coordinates, begin, &mut sums);
        }
        for begin in whole..depth {
            fold_scattered::<V, ROWS, PARTS, VECTORS, 1>(rows, coordinates, begin, &mut sums);
        }
    }
    for part in &mut sums {
        subtract_half_norms(part, panels, panel);
    }
    sums
}

/// Add the products of COLUMNS columns, starting with column `begin`.
///
/// # Safety
/// Rows and panel have this number of columns, and the panel's vectors are aligned.
// Loops over indices are unrolled. Loops over both arrays at once are not, and would keep the sums in memory.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn fold_scattered<
    V: Vector,
    const ROWS: usize,
    const PARTS: usize,
    const VECTORS: usize,
    const COLUMNS: usize,
>(
    rows: &[[&[f32]; ROWS]; PARTS],
    coordinates: *const f32,
    begin: usize,
    sums: &mut [[[V; VECTORS]; ROWS]; PARTS],
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut centroids = [[V::splat(0.0); VECTORS]; COLUMNS];
        for column in 0..COLUMNS {
            for vector in 0..VECTORS {
                centroids[column][vector] = V::load(coordinates.add(((begin + column) * VECTORS + vector) * V::LANES));
            }
        }
        for part in 0..PARTS {
            for row in 0..ROWS {
                let values = rows[part][row].as_ptr().add(begin);
                for column in 0..COLUMNS {
                    let value = V::splat(*values.add(column));
                    for vector in 0..VECTORS {
                        let sum = &mut sums[part][row][vector];
                        *sum = value.multiply_add(centroids[column][vector], *sum);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn subtract_half_norms<V: Vector, const ROWS: usize, const VECTORS: usize>(
    sums: &mut [[V; VECTORS]; ROWS],
    panels: &Panels,
    panel: usize,
) {
    let half_norms = panels.half_norms(panel);
    assert_eq!(half_norms.len() * PanelLine::LEN, VECTORS * V::LANES, "one per centroid");
    for vector in 0..VECTORS {
        // SAFETY: there are VECTORS vectors of them, and lines are aligned.
        let half_norm = unsafe { V::load(half_norms.as_ptr().cast::<f32>().add(vector * V::LANES)) };
        for row in &mut *sums {
            row[vector] = row[vector].subtract(half_norm);
        }
    }
}

#[inline(always)]
fn differences<V: Vector, const ROWS: usize, const VECTORS: usize>(
    rows: &[f32],
    panels: &Panels,
    panel: usize,
) -> [[V; VECTORS]; ROWS] {
    let mut sums = [[V::splat(0.0); VECTORS]; ROWS];
    fold::<V, ROWS, VECTORS>(rows, panels, panel, &mut sums, |x, c, sum| {
        let difference = x.subtract(c);
        difference.multiply_subtract_from(difference, sum)
    });
    sums
}

/// Fold each coordinate of the rows and the panel's centroids into `sums`.
#[inline(always)]
fn fold<V: Vector, const ROWS: usize, const VECTORS: usize>(
    rows: &[f32],
    panels: &Panels,
    panel: usize,
    sums: &mut [[V; VECTORS]; ROWS],
    combine: impl Fn(V, V, V) -> V,
) {
    let depth = panels.depth();
    let lines = panels.panel(panel);
    assert_eq!(lines.len() * PanelLine::LEN, depth * VECTORS * V::LANES, "a whole panel");
    assert_eq!(rows.len(), ROWS * depth, "a full tile of rows");
    let (coordinates, rows) = (lines.as_ptr().cast::<f32>(), rows.as_ptr());
    for column in 0..depth {
        // SAFETY: the panel has `depth` times VECTORS aligned vectors; `rows` has ROWS times `depth` values.
        unsafe {
            let mut centroids = [V::splat(0.0); VECTORS];
            for (vector, centroids) in centroids.iter_mut().enumerate() {
                *centroids = V::load(coordinates.add((column * VECTORS + vector) * V::LANES));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let value = V::splat(*rows.add(row * depth + column));
                for (sum, &centroids) in sums.iter_mut().zip(&centroids) {
                    *sum = combine(value, centroids, *sum);
                }
            }
        }
    }
}

/// [`Lanes`] in registers. `index` contains the number of a vector of centroids as bits, which are only moved.
#[derive(Clone, Copy)]
struct LaneState<V> {
    best: V,
    runner_up: V,
    index: V,
}

impl<V: Vector> LaneState<V> {
    #[inline(always)]
    fn none() -> Self {
        let none = V::splat(f32::NEG_INFINITY);
        LaneState { best: none, runner_up: none, index: V::splat(0.0) }
    }

    #[inline(always)]
    fn take(lanes: &Lanes) -> Self {
        // SAFETY: a line holds at least one vector and is aligned.
        unsafe {
            LaneState {
                best: V::load(lanes.best.as_ptr()),
                runner_up: V::load(lanes.runner_up.as_ptr()),
                index: V::load(lanes.index.as_ptr()),
            }
        }
    }

    #[inline(always)]
    fn put(self, lanes: &mut Lanes) {
        // SAFETY: a line holds at least one vector and is aligned.
        unsafe {
            self.best.store(lanes.best.as_mut_ptr());
            self.runner_up.store(lanes.runner_up.as_mut_ptr());
            self.index.store(lanes.index.as_mut_ptr());
        }
    }

    #[inline(always)]
    fn compare(&mut self, score: V, vector: usize) {
        let better = score.is_greater(self.best);
        self.runner_up = self.runner_up.maximum(self.best.minimum(score));
        self.best = V::select(better, score, self.best);
        self.index = V::select(better, V::splat(f32::from_bits(vector as u32)), self.index);
    }

    #[inline(always)]
    fn nearest(self) -> Nearest {
        let score = self.best.greatest();
        let is_other = V::splat(score).is_greater(self.best);
        let winners = !V::bits(is_other) & ((1 << V::LANES) - 1);
        let lane = winners.trailing_zeros() as usize % V::LANES;
        let others = V::select(is_other, self.best, V::splat(f32::NEG_INFINITY));
        let runner_up = if winners.count_ones() > 1 { score } else { self.runner_up.maximum(others).greatest() };

        let mut index = PanelLine::default();
        // SAFETY: a line holds at least one vector and is aligned.
        unsafe { self.index.store(index.as_mut_ptr()) };
        let vector = index.values()[lane].to_bits();
        Nearest { score, runner_up, index: vector * V::LANES as u32 + lane as u32 }
    }
}
