//! Logistic regression on sparse rows: loss, gradient, and products with the Hessian.
//!
//! Each takes one pass over the rows, in blocks. The entries of a block are read for the scores, and again from a near
//! cache for their contributions to the result. With one column of weights the probability of the second class is the
//! logistic function of the score. With more columns the probabilities are the softmax of the scores. The last weight
//! of each column is the intercept.
//! Cost: `4·k` operations per entry; the sums of each part of the rows, at most [`MAX_PART_COUNT`], are added up in
//! order.
//! Source: Lin, Weng and Keerthi, "Trust region Newton method for large-scale logistic regression", JMLR 9, 2008,
//! section 2.

use crate::Threads;
use std::ops::Range;

/// Largest number of parts, more than the cores of any machine. The result does not depend on the number of threads.
const MAX_PART_COUNT: usize = 64;
/// Smallest ratio of entries in a part to weights in its sums.
const ENTRIES_PER_WEIGHT: usize = 4;
/// Number of rows per block, so that the processor need not finish one row's sums before the next row starts.
const BLOCK_ROWS: usize = 32;
/// Cost of a gathered entry in vectorized operations.
const GATHER_OPERATIONS: usize = 16;
/// Smallest number of entries of a part.
const MIN_PART_ENTRIES: usize = 1 << 14;

/// Sparse rows with one weight per row.
#[derive(Clone, Copy, Debug)]
pub struct SparseRows<'a> {
    /// Start of each row's entries, and the end of the last row's entries.
    pub starts: &'a [i64],
    /// The column of each entry.
    pub columns: &'a [i32],
    /// The value of each entry.
    pub values: &'a [f64],
    /// Number of columns.
    pub column_count: usize,
    /// The weight of each row.
    pub weights: &'a [f64],
}

impl SparseRows<'_> {
    /// Return the number of rows.
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    fn check(&self) {
        assert_eq!(self.weights.len(), self.count(), "a weight for every row");
        assert_eq!(self.columns.len(), self.values.len(), "a value for every entry");
    }

    /// Iterate over columns and values of a row's entries.
    #[inline]
    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = (usize, f64)> + Clone + '_ {
        let (columns, values) = self.entries(row);
        columns.iter().map(|&column| column as usize).zip(values.iter().copied())
    }

    #[inline]
    fn entries(&self, row: usize) -> (&[i32], &[f64]) {
        let entries = self.starts[row] as usize..self.starts[row + 1] as usize;
        (&self.columns[entries.clone()], &self.values[entries])
    }

    /// Divide the rows into ranges. Their number depends only on the sizes.
    fn parts(&self, weight_count: usize) -> Vec<Range<usize>> {
        let min_entries = MIN_PART_ENTRIES.max(ENTRIES_PER_WEIGHT * weight_count);
        let count = (self.values.len() / min_entries).clamp(1, MAX_PART_COUNT);
        let rows = self.count();
        (0..count).map(|part| rows * part / count..rows * (part + 1) / count).collect()
    }
}

/// Return the sum of the losses of the rows. Writes their probabilities, and overwrites the gradient.
///
/// `classes` has the class number of each row; `weights` and `gradient` are `(columns + 1) × k`, `probabilities` is
/// `rows × k`.
///
/// # Panics
/// If the shapes do not fit.
pub fn logistic_loss(
    rows: SparseRows,
    classes: &[i32],
    weights: &[f64],
    probabilities: &mut [f64],
    gradient: &mut [f64],
    threads: &Threads,
) -> f64 {
    rows.check();
    let k = weights.len() / (rows.column_count + 1);
    assert_eq!(classes.len(), rows.count(), "a class for every row");
    assert_eq!(probabilities.len(), rows.count() * k, "probabilities for every row");
    let ranges = rows.parts(weights.len());
    let losses =
        in_parts(rows, ranges, k, Some(probabilities), gradient, threads, |range, probabilities, sums| match k {
            // With a constant number of columns, a single column needs no loops.
            1 => loss_of_part(&rows, classes, weights, 1, range, probabilities, sums),
            _ => loss_of_part(&rows, classes, weights, k, range, probabilities, sums),
        });
    losses.iter().sum()
}

/// Overwrite `product` with the Hessian times `direction`, both `(columns + 1) × k`.
///
/// `probabilities` are the probabilities from [`logistic_loss`] at the same weights.
///
/// # Panics
/// If the shapes do not fit.
pub fn logistic_curvature(
    rows: SparseRows,
    probabilities: &[f64],
    direction: &[f64],
    product: &mut [f64],
    threads: &Threads,
) {
    rows.check();
    let k = direction.len() / (rows.column_count + 1);
    assert_eq!(probabilities.len(), rows.count() * k, "probabilities for every row");
    let ranges = rows.parts(direction.len());
    in_parts(rows, ranges, k, None, product, threads, |range, _, sums| {
        match k {
            1 => curvature_of_part(&rows, probabilities, direction, 1, range, sums),
            _ => curvature_of_part(&rows, probabilities, direction, k, range, sums),
        }
        0.0
    });
}

#[inline(always)]
fn loss_of_part(
    rows: &SparseRows,
    classes: &[i32],
    weights: &[f64],
    k: usize,
    range: Range<usize>,
    probabilities: &mut [f64],
    sums: &mut [f64],
) -> f64 {
    let mut loss = 0.0;
    for (block, probabilities) in blocks(range).zip(probabilities.chunks_mut(BLOCK_ROWS * k)) {
        for (row, probabilities) in block.clone().zip(probabilities.chunks_exact_mut(k)) {
            scores(rows, row, weights, probabilities);
        }
        for (row, probabilities) in block.clone().zip(probabilities.chunks_exact_mut(k)) {
            loss += rows.weights[row] * to_probabilities(probabilities, classes[row] as usize);
        }
        for (row, probabilities) in block.zip(probabilities.chunks_exact(k)) {
            add_errors(rows, row, probabilities, classes[row] as usize, sums);
        }
    }
    loss
}

#[inline(always)]
fn curvature_of_part(
    rows: &SparseRows,
    probabilities: &[f64],
    direction: &[f64],
    k: usize,
    range: Range<usize>,
    sums: &mut [f64],
) {
    let mut changes = vec![0.0; BLOCK_ROWS * k];
    for block in blocks(range) {
        for (row, changes) in block.clone().zip(changes.chunks_exact_mut(k)) {
            scores(rows, row, direction, changes);
        }
        for (row, changes) in block.clone().zip(changes.chunks_exact_mut(k)) {
            to_curvature(changes, &probabilities[row * k..][..k], rows.weights[row]);
        }
        for (row, changes) in block.zip(changes.chunks_exact(k)) {
            add(rows, row, changes, sums);
        }
    }
}

fn blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(BLOCK_ROWS).map(move |first| first..end.min(first + BLOCK_ROWS))
}

/// Call `work` for each range of rows, with its probabilities and with separate sums, which are then added up in order.
fn in_parts(
    rows: SparseRows,
    ranges: Vec<Range<usize>>,
    k: usize,
    probabilities: Option<&mut [f64]>,
    sums: &mut [f64],
    threads: &Threads,
    work: impl Fn(Range<usize>, &mut [f64], &mut [f64]) -> f64 + Sync,
) -> Vec<f64> {
    let count = ranges.len();
    let mut losses = vec![0.0; count];
    let mut other_sums = vec![0.0; (count - 1) * sums.len()];
    sums.fill(0.0);
    let operations = GATHER_OPERATIONS * 4 * k * rows.values.len() / count;
    {
        let own = other_sums.chunks_mut(sums.len());
        let own = std::iter::once(&mut *sums).chain(own);
        let mut rest = probabilities.unwrap_or_default();
        let mut parts = Vec::with_capacity(count);
        for ((range, sums), loss) in ranges.into_iter().zip(own).zip(&mut losses) {
            let value_count = if rest.is_empty() { 0 } else { range.len() * k };
            let (probabilities, after) = rest.split_at_mut(value_count);
            rest = after;
            parts.push((range, probabilities, sums, loss));
        }
        threads.for_each(
            parts,
            operations,
            || (),
            |(), (range, probabilities, sums, loss)| *loss = work(range, probabilities, sums),
        );
    }
    for part in other_sums.chunks(sums.len()) {
        sums.iter_mut().zip(part).for_each(|(sum, added)| *sum += added);
    }
    losses
}

/// Compute the scores of a row: the products of its entries, and of 1, with the columns of weights.
#[inline(always)]
fn scores(rows: &SparseRows, row: usize, weights: &[f64], scores: &mut [f64]) {
    let k = scores.len();
    if k == 1 {
        let (columns, values) = rows.entries(row);
        scores[0] = dot(columns, values, weights) + weights[rows.column_count];
        return;
    }
    scores.copy_from_slice(&weights[rows.column_count * k..]);
    for (column, value) in rows.row(row) {
        let weights = &weights[column * k..(column + 1) * k];
        scores.iter_mut().zip(weights).for_each(|(score, weight)| *score += value * weight);
    }
}

/// Return the product of some entries with a column of weights, in four independent sums.
#[inline]
fn dot(columns: &[i32], values: &[f64], weights: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (columns, columns_left) = columns.as_chunks::<4>();
    let (values, values_left) = values.as_chunks::<4>();
    for (columns, values) in columns.iter().zip(values) {
        for (sum, (column, value)) in sums.iter_mut().zip(columns.iter().zip(values)) {
            *sum += value * weights[*column as usize];
        }
    }
    for (sum, (column, value)) in sums.iter_mut().zip(columns_left.iter().zip(values_left)) {
        *sum += value * weights[*column as usize];
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// Convert changes of scores to their contributions to a product. With one column the other class is included,
/// otherwise changes are relative to their mean.
#[inline(always)]
fn to_curvature(changes: &mut [f64], probabilities: &[f64], weight: f64) {
    let mean: f64 = changes.iter().zip(probabilities).map(|(change, probability)| change * probability).sum();
    for (change, probability) in changes.iter_mut().zip(probabilities) {
        *change = weight * probability * (*change - mean);
    }
}

/// Convert scores to probabilities and return the row's loss, the negative logarithm of its class's probability.
#[inline(always)]
pub(crate) fn to_probabilities(scores: &mut [f64], class: usize) -> f64 {
    if let [score] = scores {
        // This form does not overflow for large scores of either sign.
        let small = (-score.abs()).exp();
        let positive = *score > 0.0;
        let excess = if class == 1 { (-*score).max(0.0) } else { score.max(0.0) };
        *score = if positive { 1.0 } else { small } / (1.0 + small);
        return excess + small.ln_1p();
    }
    let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let own = scores[class] - greatest;
    scores.iter_mut().for_each(|score| *score = (*score - greatest).exp());
    let total: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= total);
    total.ln() - own
}

/// Add a row's gradient: its weight, times predicted minus true probability, times its entries.
#[inline(always)]
fn add_errors(rows: &SparseRows, row: usize, probabilities: &[f64], class: usize, sums: &mut [f64]) {
    if let [probability] = probabilities {
        return add(rows, row, &[rows.weights[row] * (probability - class as f64)], sums);
    }
    let truth = |at: usize| if at == class { 1.0 } else { 0.0 };
    let k = probabilities.len();
    let weight = rows.weights[row];
    for (column, value) in rows.row(row).chain([(rows.column_count, 1.0)]) {
        let sums = &mut sums[column * k..(column + 1) * k];
        for (at, (sum, probability)) in sums.iter_mut().zip(probabilities).enumerate() {
            *sum += weight * value * (probability - truth(at));
        }
    }
}

/// Add a row's entries, and 1, times a factor for each column of sums.
#[inline(always)]
fn add(rows: &SparseRows, row: usize, factors: &[f64], sums: &mut [f64]) {
    if let [factor] = factors {
        for (column, value) in rows.row(row) {
            sums[column] += value * factor;
        }
        sums[rows.column_count] += factor;
        return;
    }
    let k = factors.len();
    for (column, value) in rows.row(row).chain([(rows.column_count, 1.0)]) {
        let sums = &mut sums[column * k..(column + 1) * k];
        sums.iter_mut().zip(factors).for_each(|(sum, factor)| *sum += value * factor);
    }
}
