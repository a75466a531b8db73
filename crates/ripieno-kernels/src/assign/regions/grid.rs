//! Grid over the points, with cells found by coordinates.

use super::ColumnRange;
use crate::matrix::number::Real;
use crate::simd::{FEW_COLUMNS, Vector, VectorJob};
use crate::{Matrix, Point, Threads};

/// Return the bounding box of all points, or `None` without points. NaN is ignored.
pub(super) fn bounds<P: Point>(points: Matrix<P>, threads: &Threads) -> Option<ColumnRange> {
    const PART_ROWS: usize = 1 << 15;
    let mut found = vec![[(f64::INFINITY, f64::NEG_INFINITY); FEW_COLUMNS]; points.rows().div_ceil(PART_ROWS)];
    let parts = found.iter_mut().enumerate().collect();
    threads.for_each(
        parts,
        PART_ROWS * points.columns(),
        || (),
        |(), (part, bounds)| {
            let first = part * PART_ROWS;
            let points = points.row_range(first, PART_ROWS.min(points.rows() - first));
            threads.simd().run(BoundingBox { points, bounds });
        },
    );
    let union = |mut a: ColumnRange, b: ColumnRange| -> ColumnRange {
        a.iter_mut().zip(b).for_each(|(a, b)| *a = (a.0.min(b.0), a.1.max(b.1)));
        a
    };
    found.into_iter().reduce(union)
}

/// Job: the bounding box of some points.
struct BoundingBox<'a, P> {
    points: Matrix<'a, P>,
    bounds: &'a mut ColumnRange,
}

impl<P: Point> VectorJob for BoundingBox<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) {
        const ROWS_AT_ONCE: usize = 8;
        let columns = self.points.columns();
        let mut lows = [P::Centroid::from_f64(f64::INFINITY); ROWS_AT_ONCE * FEW_COLUMNS];
        let mut highs = [P::Centroid::from_f64(f64::NEG_INFINITY); ROWS_AT_ONCE * FEW_COLUMNS];
        // Several rows are compared with the previous ones at once, for any number of columns.
        for rows in self.points.values().chunks(ROWS_AT_ONCE * columns) {
            for ((low, high), value) in lows.iter_mut().zip(&mut highs).zip(rows) {
                let value = value.widen();
                *low = if value < *low { value } else { *low };
                *high = if value > *high { value } else { *high };
            }
        }
        for (index, (low, high)) in lows.into_iter().zip(highs).take(ROWS_AT_ONCE * columns).enumerate() {
            let bounds = &mut self.bounds[index % columns];
            *bounds = (bounds.0.min(low.into()), bounds.1.max(high.into()));
        }
    }
}

/// A grid over the bounding box of all points. Cells are numbered in the order of their halving.
pub(super) struct Grid {
    pub columns: usize,
    bounds: ColumnRange,
    /// Cells per unit length, per column.
    scales: [f64; FEW_COLUMNS],
    /// Number of cells per column.
    pub counts: [u32; FEW_COLUMNS],
    /// The halved columns in order.
    pub cuts: Vec<usize>,
    /// Per column and position: its contribution to the cell's number.
    numbers: [Vec<u32>; FEW_COLUMNS],
}

impl Grid {
    /// Create a grid of `2^depth` cells, as close to cubes as possible. `None` for a bounding box of no size, or one
    /// that overflows.
    pub fn new(columns: usize, bounds: ColumnRange, depth: usize) -> Option<Grid> {
        let mut sides = [0.0; FEW_COLUMNS];
        for (side, (low, high)) in sides.iter_mut().zip(bounds).take(columns) {
            *side = high - low;
        }
        let (mut counts, mut cuts) = ([1; FEW_COLUMNS], Vec::new());
        for _ in 0..depth {
            let column = (0..columns).max_by(|&a, &b| sides[a].total_cmp(&sides[b]))?;
            sides[column] *= 0.5;
            counts[column] *= 2;
            cuts.push(column);
        }
        let mut scales = [0.0; FEW_COLUMNS];
        for column in 0..columns {
            let side = bounds[column].1 - bounds[column].0;
            if counts[column] > 1 {
                scales[column] = f64::from(counts[column]) / side;
                if !side.is_finite() || !scales[column].is_finite() {
                    return None;
                }
            }
        }
        let mut numbers: [Vec<u32>; FEW_COLUMNS] = std::array::from_fn(|column| vec![0; counts[column] as usize]);
        let mut widths = counts;
        for (level, &column) in cuts.iter().enumerate() {
            widths[column] /= 2;
            for (position, number) in numbers[column].iter_mut().enumerate() {
                *number |= (position as u32 / widths[column] % 2) << (depth - 1 - level);
            }
        }
        Some(Grid { columns, bounds, scales, counts, cuts, numbers })
    }

    pub fn depth(&self) -> usize {
        self.cuts.len()
    }

    /// Return the position of a coordinate in its column.
    #[inline(always)]
    pub fn position(&self, column: usize, x: f64) -> usize {
        let (at, last) = ((x - self.bounds[column].0) * self.scales[column], f64::from(self.counts[column] - 1));
        // NaN becomes zero.
        let at = if at > 0.0 { at } else { 0.0 };
        let at = if at < last { at } else { last };
        // SAFETY: the value lies between 0 and the last position, which has 32 bits.
        unsafe { at.to_int_unchecked::<i64>() as usize }
    }

    /// Return the number of a point's cell.
    #[inline(always)]
    pub fn cell<const COLUMNS: usize>(&self, point: &[f64; COLUMNS]) -> usize {
        let part = |column: usize| self.numbers[column][self.position(column, point[column])];
        (0..COLUMNS).map(part).sum::<u32>() as usize
    }

    /// Return every `step`-th point sorted by cell, with the cells.
    pub fn sorted<P: Point>(&self, points: Matrix<P>, step: usize) -> (Vec<u32>, Vec<f64>) {
        let rows = || (0..points.rows()).step_by(step);
        let cell = |row: usize| {
            let positions =
                points.row(row).iter().enumerate().map(|(column, &x)| (column, self.position(column, x.into())));
            positions.map(|(column, position)| u64::from(self.numbers[column][position])).sum::<u64>()
        };
        let mut order: Vec<u64> = rows().map(|row| cell(row) << u32::BITS | (row / step) as u64).collect();
        order.sort_unstable();
        let mut sample = Vec::with_capacity(order.len() * self.columns);
        for &each in &order {
            sample.extend(points.row(each as u32 as usize * step).iter().map(|&x| -> f64 { x.into() }));
        }
        (order.into_iter().map(|each| (each >> u32::BITS) as u32).collect(), sample)
    }

    /// Return the bounds of some positions of a column, widened by the rounding error of positions.
    pub fn around(&self, column: usize, (first, end): (u32, u32)) -> (f64, f64) {
        const RELATIVE_MARGIN: f64 = 1e-12;
        let (low, high) = self.bounds[column];
        let at = |position: u32| low + (high - low) * (f64::from(position) / f64::from(self.counts[column]));
        let margin = RELATIVE_MARGIN * (high - low) + 4.0 * f64::EPSILON * low.abs().max(high.abs());
        (at(first) - margin, at(end) + margin)
    }
}
