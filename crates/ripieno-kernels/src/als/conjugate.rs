//! Conjugate gradients for rows, without forming their normal equations. `out` holds the starting point.
//!
//! A product of the matrix with a vector takes two operations for every factor of a rating, and as many to add up the
//! weighted factors. The factors of a row's ratings are gathered once and stay in the cache for all products. Sums
//! over more than [`BLOCK`] ratings are made in f64: f32 sums of a block are added to them.
//!
//! Cost: `4·r·(steps + 1)` operations per rating, and `2·r²·(steps + 1)` per row, for factors of length `r`, in f32.
//! Source: Takács, Pilászy and Tikk, "Applications of the conjugate gradient method for implicit feedback collaborative
//! filtering", RecSys 2011, section 3.

use super::{AlsObjective, Feedback, Ratings, floats_mut, move_to};
use crate::panels::PanelLine;
use crate::simd::{Vector, VectorJob, prefetch};

/// Number of ratings with buffered products.
const BLOCK: usize = 64;
/// Number of ratings processed at once, so that this many sums are independent.
const STEP: usize = 4;
/// Prefetch distance in ratings.
const PREFETCH_DISTANCE: usize = 32;
/// Squared residual below which no further step is performed.
const MIN_SQUARED_RESIDUAL: f64 = 1e-20;

/// Buffers of a thread, in whole lines.
#[derive(Default)]
pub(super) struct ConjugateScratch {
    gathered: Vec<PanelLine>,
    extra_weights: Vec<f32>,
    right_weights: Vec<f32>,
    zeros: Vec<f32>,
    vectors: [Vec<PanelLine>; 4],
    sums: Vec<f64>,
}

/// A range of rows, starting with `first`. `out` holds the starting points and receives the results.
pub(super) struct ConjugateRows<'a> {
    pub ratings: Ratings<'a>,
    /// Factors in rows of `width`; the last row contains zeros.
    pub table: &'a [f32],
    pub rank: usize,
    pub width: usize,
    pub feedback: Feedback<'a>,
    pub steps: usize,
    pub first: usize,
    pub out: &'a mut [f32],
    pub scratch: &'a mut ConjugateScratch,
    /// The scatter matrix for implicit feedback, `width` by `width`; otherwise empty.
    pub gram: &'a [f32],
}

impl VectorJob for ConjugateRows<'_> {
    type Output = AlsObjective;

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) -> AlsObjective {
        let ConjugateRows { ratings, table, rank, width, feedback, steps, first, out, scratch, gram } = self;
        scratch.vectors.iter_mut().for_each(|vector| vector.resize(width / PanelLine::LEN, PanelLine::default()));
        let [at, residual, direction, product] = scratch.vectors.each_mut().map(|vector| floats_mut(vector));
        at.fill(0.0);
        let mut found = AlsObjective::default();
        for (row, out) in out.chunks_exact_mut(rank).enumerate() {
            let entries = ratings.starts[first + row] as usize..ratings.starts[first + row + 1] as usize;
            if entries.is_empty() {
                out.fill(0.0);
                continue;
            }
            let ahead = ratings.columns.get(entries.start + PREFETCH_DISTANCE..).unwrap_or(&[]);
            let (columns, values) = (&ratings.columns[entries.clone()], &ratings.values[entries]);
            let line_count = columns.len().next_multiple_of(STEP) * width / PanelLine::LEN;
            if scratch.gathered.len() < line_count {
                scratch.gathered.resize(line_count, PanelLine::default());
            }
            let squares = weigh(values, feedback, &mut scratch.extra_weights, &mut scratch.right_weights);
            scratch.zeros.resize(scratch.right_weights.len(), 0.0);
            let penalty = feedback.penalty(columns.len());
            let mut system = NormalSystem {
                table,
                columns,
                ahead,
                gathered: &mut floats_mut(&mut scratch.gathered)[..line_count * PanelLine::LEN],
                extra_weights: &scratch.extra_weights,
                gram,
                penalty,
                sums: &mut scratch.sums,
            };

            at[..rank].copy_from_slice(out);
            let right_product = system.residual::<V, true>(&scratch.right_weights, at, residual);
            // With A·x = b − residual the squared errors and the penalty, squares − 2·b·x + x·A·x, need no matrix.
            let mut objective = squares - right_product - dot(residual, at);
            direction.copy_from_slice(residual);
            let mut squared_residual = dot(residual, residual);
            for _ in 0..steps {
                if squared_residual <= MIN_SQUARED_RESIDUAL {
                    break;
                }
                // Negative product of the matrix with the direction.
                system.residual::<V, false>(&scratch.zeros, direction, product);
                let length = squared_residual / -dot(direction, product);
                objective -= length * squared_residual;
                add_scaled(at, length as f32, direction);
                add_scaled(residual, length as f32, product);
                let before = squared_residual;
                squared_residual = dot(residual, residual);
                let ratio = (squared_residual / before) as f32;
                direction.iter_mut().zip(&*residual).for_each(|(along, left)| *along = left + ratio * *along);
            }
            out.copy_from_slice(&at[..rank]);
            let length = penalty as f64 * dot(at, at);
            found.loss += objective - length;
            found.penalty += length;
        }
        found
    }
}

/// Compute the weights of the ratings and their factors on the right-hand side, padded with zeros to whole lines.
/// Return the squared errors of zero factors.
#[inline(always)]
fn weigh(values: &[f32], feedback: Feedback, extra_weights: &mut Vec<f32>, right_weights: &mut Vec<f32>) -> f64 {
    let padded_len = values.len().next_multiple_of(PanelLine::LEN);
    extra_weights.resize(padded_len, 0.0);
    right_weights.resize(padded_len, 0.0);
    let mut squares = [0.0; PanelLine::LEN];
    let lines = extra_weights.chunks_exact_mut(PanelLine::LEN).zip(right_weights.chunks_exact_mut(PanelLine::LEN));
    for (values, (extra_weights, right_weights)) in values.chunks(PanelLine::LEN).zip(lines) {
        if values.len() < PanelLine::LEN {
            extra_weights[values.len()..].fill(0.0);
            right_weights[values.len()..].fill(0.0);
        }
        // Each sum has its own values, so the additions are vectorized.
        for (((value, extra_weight), share), sum) in
            values.iter().zip(extra_weights).zip(right_weights).zip(&mut squares)
        {
            let square;
            (*extra_weight, *share, square) = feedback.terms(*value);
            *sum += square;
        }
    }
    squares.iter().sum()
}

/// The normal equations of a row, in a form for products with their matrix.
struct NormalSystem<'a> {
    table: &'a [f32],
    columns: &'a [i32],
    /// The columns of the ratings from [`PREFETCH_DISTANCE`] positions onward, also of later rows.
    ahead: &'a [i32],
    gathered: &'a mut [f32],
    extra_weights: &'a [f32],
    gram: &'a [f32],
    penalty: f32,
    sums: &'a mut Vec<f64>,
}

impl NormalSystem<'_> {
    /// Compute the sum of the ratings' factors weighted by `right_weights`, minus the product of the matrix with a
    /// vector. Return the product of the weighted sum with the vector. With `FIRST` the factors are gathered.
    #[inline(always)]
    fn residual<V: Vector, const FIRST: bool>(
        &mut self,
        right_weights: &[f32],
        vector: &[f32],
        out: &mut [f32],
    ) -> f64 {
        let width = vector.len();
        out.fill(0.0);
        // The rows of a symmetric matrix are its columns.
        add_weighted::<V>(self.gram, &vector[..self.gram.len() / width], out);
        out.iter_mut().zip(vector).for_each(|(out, value)| *out = -(*out + self.penalty * value));
        if self.columns.len() <= BLOCK {
            return self.add_block::<V, FIRST>(0, right_weights, vector, out);
        }
        self.sums.clear();
        self.sums.resize(width, 0.0);
        let mut right_product = 0.0;
        for first in (0..self.columns.len()).step_by(BLOCK) {
            move_to(out, self.sums);
            right_product += self.add_block::<V, FIRST>(first, right_weights, vector, out);
        }
        move_to(out, self.sums);
        out.iter_mut().zip(&*self.sums).for_each(|(to, sum)| *to = *sum as f32);
        right_product
    }

    /// Add the weighted factors of up to [`BLOCK`] ratings from `first` on to `out`.
    #[inline(always)]
    fn add_block<V: Vector, const FIRST: bool>(
        &mut self,
        first: usize,
        right_weights: &[f32],
        vector: &[f32],
        out: &mut [f32],
    ) -> f64 {
        let width = vector.len();
        let end = self.columns.len().min(first + BLOCK);
        let right_weights = &right_weights[first..right_weights.len().min(first + BLOCK)];
        let block = RatingBlock {
            table: self.table,
            columns: &self.columns[first..end],
            ahead: self.ahead.get(first..).unwrap_or(&[]),
            gathered: &mut self.gathered[first * width..end.next_multiple_of(STEP) * width],
            extra_weights: &self.extra_weights[first..][..right_weights.len()],
            right_weights,
        };
        match width / V::LANES {
            1 => block.add_in_registers::<V, 1, FIRST>(vector, out),
            2 => block.add_in_registers::<V, 2, FIRST>(vector, out),
            _ => block.add_in_two_passes::<V, FIRST>(vector, out),
        }
    }
}

/// Up to [`BLOCK`] ratings of a row.
struct RatingBlock<'a> {
    table: &'a [f32],
    columns: &'a [i32],
    ahead: &'a [i32],
    gathered: &'a mut [f32],
    extra_weights: &'a [f32],
    right_weights: &'a [f32],
}

impl RatingBlock<'_> {
    /// Compute products and weighted sums while a rating's factors, a given number of vectors, are in registers.
    #[inline(always)]
    fn add_in_registers<V: Vector, const VECTORS: usize, const FIRST: bool>(
        self,
        vector: &[f32],
        out: &mut [f32],
    ) -> f64 {
        let width = VECTORS * V::LANES;
        let RatingBlock { table, columns, ahead, gathered, extra_weights, right_weights } = self;
        assert!(vector.len() == width && out.len() == width);
        assert!(gathered.len() == columns.len().next_multiple_of(STEP) * width && columns.len() <= BLOCK);
        let mut along = [V::splat(0.0); VECTORS];
        for (at, along) in along.iter_mut().enumerate() {
            // SAFETY: memory consists of whole lines, which vectors divide. It has `width` values by the check above.
            *along = unsafe { V::load(vector.as_ptr().add(at * V::LANES)) };
        }
        let mut sums = [[V::splat(0.0); VECTORS]; STEP];
        let mut products = [0.0; BLOCK];
        for (step, rows) in gathered.chunks_exact_mut(STEP * width).enumerate() {
            if FIRST {
                let ahead = ahead.get(step * STEP..).unwrap_or(&[]);
                ahead.iter().take(STEP).for_each(|column| prefetch_row(row_of(table, Some(column), width)));
            }
            let mut factors = [[V::splat(0.0); VECTORS]; STEP];
            let mut found = [V::splat(0.0); STEP];
            for (row, (factors, found)) in factors.iter_mut().zip(&mut found).enumerate() {
                let own = &mut rows[row * width..][..width];
                let from = if FIRST { row_of(table, columns.get(step * STEP + row), width) } else { &*own };
                let from = from.as_ptr();
                for (at, factors) in factors.iter_mut().enumerate() {
                    // SAFETY: as above; rows have `width` values.
                    unsafe {
                        *factors = V::load(from.add(at * V::LANES));
                        if FIRST {
                            factors.store(own.as_mut_ptr().add(at * V::LANES));
                        }
                    }
                }
                for (factors, along) in factors.iter().zip(along) {
                    *found = factors.multiply_add(along, *found);
                }
            }
            let at = step * STEP..(step + 1) * STEP;
            let found = V::totals(found);
            products[at.clone()].copy_from_slice(&found);
            for (row, (sums, factors)) in sums.iter_mut().zip(factors).enumerate() {
                let weight = V::splat(right_weights[at.start + row] - extra_weights[at.start + row] * found[row]);
                for (sum, factors) in sums.iter_mut().zip(factors) {
                    *sum = factors.multiply_add(weight, *sum);
                }
            }
        }
        add_sums(sums, out, 0);
        if FIRST { dot(&products[..right_weights.len()], right_weights) } else { 0.0 }
    }

    /// Compute the products of the ratings, then their weighted sum.
    #[inline(always)]
    fn add_in_two_passes<V: Vector, const FIRST: bool>(self, vector: &[f32], out: &mut [f32]) -> f64 {
        let width = vector.len();
        if FIRST {
            for (row, to) in self.gathered.chunks_exact_mut(width).enumerate() {
                to.copy_from_slice(row_of(self.table, self.columns.get(row), width));
            }
        }
        let mut weights = products::<V>(self.gathered, vector);
        let right_product = if FIRST { dot(&weights[..self.right_weights.len()], self.right_weights) } else { 0.0 };
        for ((weight, extra_weight), share) in weights.iter_mut().zip(self.extra_weights).zip(self.right_weights) {
            *weight = share - extra_weight * *weight;
        }
        add_weighted::<V>(self.gathered, &weights[..self.gathered.len() / width], out);
        right_product
    }
}

/// Return the factors of a column, or the row of zeros at the end.
#[inline(always)]
fn row_of<'a>(table: &'a [f32], column: Option<&i32>, width: usize) -> &'a [f32] {
    let at = column.map_or(table.len() - width, |&column| column as usize * width);
    &table[at..][..width]
}

/// Prefetch the factors of a column, which are whole lines.
#[inline(always)]
fn prefetch_row(row: &[f32]) {
    row.iter().step_by(PanelLine::LEN).for_each(prefetch);
}

/// Return the products of up to [`BLOCK`] rows with a vector.
#[inline(always)]
fn products<V: Vector>(rows: &[f32], vector: &[f32]) -> [f32; BLOCK] {
    let width = vector.len();
    assert!(rows.len().is_multiple_of(STEP * width) && rows.len() <= BLOCK * width);
    let mut found = [0.0; BLOCK];
    for (found, rows) in found.chunks_exact_mut(STEP).zip(rows.chunks_exact(STEP * width)) {
        let mut sums = [V::splat(0.0); STEP];
        for at in (0..width).step_by(V::LANES) {
            // SAFETY: memory consists of whole lines; `width` and thus `at` are multiples of the lanes. There are as
            // many rows as sums, with `width` values each.
            unsafe {
                let values = V::load(vector.as_ptr().add(at));
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = V::load(rows.as_ptr().add(row * width + at)).multiply_add(values, *sum);
                }
            }
        }
        found.copy_from_slice(&V::totals(sums));
    }
    found
}

/// Add rows of `out.len()` values with weights. The number of rows is a multiple of [`STEP`].
#[inline(always)]
fn add_weighted<V: Vector>(rows: &[f32], weights: &[f32], out: &mut [f32]) {
    let width = out.len();
    let mut left = 0;
    while left + 2 * V::LANES <= width {
        add_columns::<V, 2>(rows, weights, out, left);
        left += 2 * V::LANES;
    }
    if left < width {
        add_columns::<V, 1>(rows, weights, out, left);
    }
}

#[inline(always)]
fn add_columns<V: Vector, const VECTORS: usize>(rows: &[f32], weights: &[f32], out: &mut [f32], left: usize) {
    let width = out.len();
    assert!(rows.len() == weights.len() * width && weights.len().is_multiple_of(STEP));
    assert!(left + VECTORS * V::LANES <= width);
    let mut sums = [[V::splat(0.0); VECTORS]; STEP];
    for (step, weights) in weights.chunks_exact(STEP).enumerate() {
        for (row, (sums, weight)) in sums.iter_mut().zip(weights).enumerate() {
            let weight = V::splat(*weight);
            for (at, sum) in sums.iter_mut().enumerate() {
                // SAFETY: memory consists of whole lines; `width` and `left` are multiples of the lanes. Rows and
                // columns are within it by the checks above.
                let values = unsafe { V::load(rows.as_ptr().add((step * STEP + row) * width + left + at * V::LANES)) };
                *sum = values.multiply_add(weight, *sum);
            }
        }
    }
    add_sums(sums, out, left);
}

/// Add up the sums and add the result to `out`, starting at a column.
#[inline(always)]
fn add_sums<V: Vector, const VECTORS: usize>(sums: [[V; VECTORS]; STEP], out: &mut [f32], left: usize) {
    assert!(left + VECTORS * V::LANES <= out.len());
    let one = V::splat(1.0);
    for at in 0..VECTORS {
        let [a, b, c, d] = sums.map(|sums| sums[at]);
        let sum = a.multiply_add(one, b).multiply_add(one, c.multiply_add(one, d));
        // SAFETY: as above.
        unsafe {
            let to = out.as_mut_ptr().add(left + at * V::LANES);
            sum.multiply_add(one, V::load(to)).store(to);
        }
    }
}

#[inline(always)]
fn add_scaled(to: &mut [f32], factor: f32, from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}

/// Return the product of two vectors, in f64.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut sums = [0.0; PanelLine::LEN];
    for (a, b) in a.chunks_exact(PanelLine::LEN).zip(b.chunks_exact(PanelLine::LEN)) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += *a as f64 * *b as f64;
        }
    }
    let mut count = sums.len();
    while count > 1 {
        count /= 2;
        for at in 0..count {
            sums[at] += sums[at + count];
        }
    }
    sums[0]
}
