//! Product of a sparse matrix and a vector, over (+, ×), or with min, max or bitwise or in place of the sum.
//!
//! Pull form: each row gathers the entries of `x` at its columns. Threads share no output, and each row has a fixed
//! order of operations. Sums of float32 accumulate in float64 and are rounded once. Each thread takes runs of rows with
//! about equal numbers of entries.
//! Cost: one gather per entry. The limit is the stream of column numbers, 4 bytes per entry.

use super::Csr;
use crate::Threads;
use std::mem;

/// Combines the values at the columns of a row.
pub trait Fold<T: Copy>: Sync {
    /// Type of the accumulator.
    type Accumulator: Copy;
    /// The result for a row without entries.
    const IDENTITY: Self::Accumulator;
    /// Whether the matrix may have weights. Weights are not integers, so integer sums do not support them.
    const SUPPORTS_WEIGHTS: bool = true;
    /// Convert a value to the type of the accumulator.
    fn widened(value: T) -> Self::Accumulator;
    /// Combine two accumulators.
    fn fold(a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator;
    /// Convert the result to the type of the values.
    fn narrowed(widened: Self::Accumulator) -> T;
    /// Multiply a value by the weight of its entry. Folds other than sums ignore the weight.
    fn weighted(value: T, _weight: f64) -> Self::Accumulator {
        Self::widened(value)
    }
}

/// Sum; integers are summed modulo 2^bits.
#[derive(Debug)]
pub struct Sum;
/// Minimum; NaN if any float is NaN.
#[derive(Debug)]
pub struct Min;
/// Maximum; NaN if any float is NaN.
#[derive(Debug)]
pub struct Max;
/// Bitwise or.
#[derive(Debug)]
pub struct Or;

/// Let values accumulate in their own type.
macro_rules! accumulate_in_own_type {
    ($type:ty) => {
        type Accumulator = $type;
        #[inline(always)]
        fn widened(value: $type) -> $type {
            value
        }
        #[inline(always)]
        fn narrowed(widened: $type) -> $type {
            widened
        }
    };
}

macro_rules! real_folds {
    ($($type:ty),*) => {$(
        impl Fold<$type> for Sum {
            type Accumulator = f64;
            const IDENTITY: f64 = 0.0;
            #[inline(always)]
            fn widened(value: $type) -> f64 {
                value as f64
            }
            #[inline(always)]
            fn fold(a: f64, b: f64) -> f64 {
                a + b
            }
            #[inline(always)]
            fn narrowed(widened: f64) -> $type {
                widened as $type
            }
            #[inline(always)]
            fn weighted(value: $type, weight: f64) -> f64 {
                value as f64 * weight
            }
        }
        impl Fold<$type> for Min {
            accumulate_in_own_type!($type);
            const IDENTITY: $type = <$type>::INFINITY;
            #[inline(always)]
            fn fold(a: $type, b: $type) -> $type {
                if b < a || b.is_nan() { b } else { a }
            }
        }
        impl Fold<$type> for Max {
            accumulate_in_own_type!($type);
            const IDENTITY: $type = <$type>::NEG_INFINITY;
            #[inline(always)]
            fn fold(a: $type, b: $type) -> $type {
                if b > a || b.is_nan() { b } else { a }
            }
        }
    )*};
}

macro_rules! whole_folds {
    ($($type:ty),*) => {$(
        impl Fold<$type> for Sum {
            accumulate_in_own_type!($type);
            const IDENTITY: $type = 0;
            const SUPPORTS_WEIGHTS: bool = false;
            #[inline(always)]
            fn fold(a: $type, b: $type) -> $type {
                a.wrapping_add(b)
            }
        }
        impl Fold<$type> for Min {
            accumulate_in_own_type!($type);
            const IDENTITY: $type = <$type>::MAX;
            #[inline(always)]
            fn fold(a: $type, b: $type) -> $type {
                a.min(b)
            }
        }
        impl Fold<$type> for Max {
            accumulate_in_own_type!($type);
            const IDENTITY: $type = <$type>::MIN;
            #[inline(always)]
            fn fold(a: $type, b: $type) -> $type {
                a.max(b)
            }
        }
        impl Fold<$type> for Or {
            accumulate_in_own_type!($type);
            const IDENTITY: $type = 0;
            #[inline(always)]
            fn fold(a: $type, b: $type) -> $type {
                a | b
            }
        }
    )*};
}

real_folds!(f32, f64);
whole_folds!(i32, i64, u64);

/// Independent partial results per row, so that additions do not wait for each other.
const LANES: usize = 4;
/// Runs of rows per thread. More runs than threads balance the load: rows with equal numbers of entries differ in cost.
pub(super) const PARTS_PER_THREAD: usize = 16;

impl Csr {
    /// Overwrite `out` (`row_count × width`) with the product of this matrix and `x` (`column_count × width`).
    ///
    /// Sums of floats use the weights; other folds ignore them.
    ///
    /// # Panics
    /// If the shapes do not match, or the matrix has weights and [`Fold::SUPPORTS_WEIGHTS`] is false.
    pub fn product<F: Fold<T>, T: Copy + Send + Sync>(&self, x: &[T], out: &mut [T], width: usize, threads: &Threads) {
        assert!(width > 0, "a row has at least one value");
        assert!(F::SUPPORTS_WEIGHTS || self.weights().is_none(), "sums of whole numbers take no weights");
        assert_eq!(x.len(), self.column_count() * width, "a row of x per column");
        assert_eq!(out.len(), self.row_count() * width, "a row of the result per row");
        let parts = self.runs_of(out, width, threads.count() * PARTS_PER_THREAD);
        let operations = 4 * self.entry_count() * width / parts.len().max(1);
        threads.for_each(
            parts,
            operations,
            || (),
            |(), (first, out)| match (width, self.weights()) {
                (1, None) => self.gather::<F, T>(x, first, out),
                (1, Some(weights)) => self.gather_weighted::<F, T>(x, weights, first, out),
                _ => self.gather_rows::<F, T>(x, width, first, out),
            },
        );
    }

    /// Cut `out`, which has `width` values per row, into at most `count` runs of rows with about the same number of
    /// entries each. Return the first row of each run, and its part of `out`.
    pub(super) fn runs_of<'a, T>(&self, out: &'a mut [T], width: usize, count: usize) -> Vec<(usize, &'a mut [T])> {
        let cut = |part: usize| {
            let goal = self.entry_count() * part / count;
            self.offsets().partition_point(|&offset| offset < goal)
        };
        let mut rest = out;
        let runs = (0..count).map(|part| (cut(part), cut(part + 1))).filter(|(first, end)| first < end);
        runs.map(|(first, end)| {
            let (own, others) = mem::take(&mut rest).split_at_mut((end - first) * width);
            rest = others;
            (first, own)
        })
        .collect()
    }

    fn gather<F: Fold<T>, T: Copy>(&self, x: &[T], first: usize, out: &mut [T]) {
        for (row, out) in (first..).zip(out) {
            let columns = &self.columns()[self.offsets()[row]..self.offsets()[row + 1]];
            let mut lanes = [F::IDENTITY; LANES];
            let mut fours = columns.chunks_exact(LANES);
            for four in &mut fours {
                for (lane, &column) in lanes.iter_mut().zip(four) {
                    // SAFETY: columns are below `column_count`, the length of `x`.
                    *lane = F::fold(*lane, F::widened(unsafe { *x.get_unchecked(column as usize) }));
                }
            }
            let folded = F::fold(F::fold(lanes[0], lanes[1]), F::fold(lanes[2], lanes[3]));
            *out = F::narrowed(fours.remainder().iter().fold(folded, |folded, &column| {
                // SAFETY: as above.
                F::fold(folded, F::widened(unsafe { *x.get_unchecked(column as usize) }))
            }));
        }
    }

    fn gather_weighted<F: Fold<T>, T: Copy>(&self, x: &[T], weights: &[f64], first: usize, out: &mut [T]) {
        for (row, out) in (first..).zip(out) {
            let entries = self.offsets()[row]..self.offsets()[row + 1];
            let weighted = self.columns()[entries.clone()].iter().zip(&weights[entries]);
            let add =
                |folded, (&column, &weight): (&u32, &f64)| F::fold(folded, F::weighted(x[column as usize], weight));
            *out = F::narrowed(weighted.fold(F::IDENTITY, add));
        }
    }

    fn gather_rows<F: Fold<T>, T: Copy>(&self, x: &[T], width: usize, first: usize, out: &mut [T]) {
        let mut accumulators = vec![F::IDENTITY; width];
        for (row, out) in (first..).zip(out.chunks_exact_mut(width)) {
            accumulators.fill(F::IDENTITY);
            for entry in self.offsets()[row]..self.offsets()[row + 1] {
                let column = self.columns()[entry] as usize;
                let weight = self.weights().map(|weights| weights[entry]);
                for (accumulator, &value) in accumulators.iter_mut().zip(&x[column * width..(column + 1) * width]) {
                    *accumulator =
                        F::fold(*accumulator, weight.map_or(F::widened(value), |weight| F::weighted(value, weight)));
                }
            }
            out.iter_mut().zip(&accumulators).for_each(|(out, &sum)| *out = F::narrowed(sum));
        }
    }
}
