//! The product of a sparse matrix with a vector, over (+, ×) or with min, max or bitwise or in place of the sum.
//!
//! Pull form: each row gathers its columns of `x`, so nothing is shared between threads and every row is folded in one
//! order. Sums of float32 accumulate in float64 and are rounded once. Rows are dealt to threads in runs of about equal
//! numbers of entries. Cost: a gather per entry; the stream of column numbers, 4 bytes an entry, is the limit.

use super::Csr;
use crate::Threads;

/// How the values of a row's columns are put together.
pub trait Fold<T: Copy>: Sync {
    /// What values accumulate in.
    type Held: Copy;
    /// Of no values.
    const NONE: Self::Held;
    /// Whether a matrix may have weights: they are no whole numbers, so sums of such cannot take them.
    const MAY_WEIGH: bool = true;
    /// A value, as it accumulates.
    fn held(value: T) -> Self::Held;
    /// Of two.
    fn fold(a: Self::Held, b: Self::Held) -> Self::Held;
    /// The result, in the type of the values.
    fn rounded(held: Self::Held) -> T;
    /// A value times the weight of its entry; what does not add takes no weights.
    fn weighed(value: T, _weight: f64) -> Self::Held {
        Self::held(value)
    }
}

/// The sum, of integers modulo 2^bits.
#[derive(Debug)]
pub struct Sum;
/// The least; of floats not a number if any is not.
#[derive(Debug)]
pub struct Min;
/// The greatest; of floats not a number if any is not.
#[derive(Debug)]
pub struct Max;
/// The bits of any.
#[derive(Debug)]
pub struct Or;

/// Values accumulate in their own type.
macro_rules! held_as_given {
    ($type:ty) => {
        type Held = $type;
        #[inline(always)]
        fn held(value: $type) -> $type {
            value
        }
        #[inline(always)]
        fn rounded(held: $type) -> $type {
            held
        }
    };
}

macro_rules! real_folds {
    ($($type:ty),*) => {$(
        impl Fold<$type> for Sum {
            type Held = f64;
            const NONE: f64 = 0.0;
            #[inline(always)]
            fn held(value: $type) -> f64 {
                value as f64
            }
            #[inline(always)]
            fn fold(a: f64, b: f64) -> f64 {
                a + b
            }
            #[inline(always)]
            fn rounded(held: f64) -> $type {
                held as $type
            }
            #[inline(always)]
            fn weighed(value: $type, weight: f64) -> f64 {
                value as f64 * weight
            }
        }
        impl Fold<$type> for Min {
            held_as_given!($type);
            const NONE: $type = <$type>::INFINITY;
            #[inline(always)]
            fn fold(a: $type, b: $type) -> $type {
                if b < a || b.is_nan() { b } else { a }
            }
        }
        impl Fold<$type> for Max {
            held_as_given!($type);
            const NONE: $type = <$type>::NEG_INFINITY;
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
            held_as_given!($type);
            const NONE: $type = 0;
            const MAY_WEIGH: bool = false;
            #[inline(always)]
            fn fold(a: $type, b: $type) -> $type {
                a.wrapping_add(b)
            }
        }
        impl Fold<$type> for Min {
            held_as_given!($type);
            const NONE: $type = <$type>::MAX;
            #[inline(always)]
            fn fold(a: $type, b: $type) -> $type {
                a.min(b)
            }
        }
        impl Fold<$type> for Max {
            held_as_given!($type);
            const NONE: $type = <$type>::MIN;
            #[inline(always)]
            fn fold(a: $type, b: $type) -> $type {
                a.max(b)
            }
        }
        impl Fold<$type> for Or {
            held_as_given!($type);
            const NONE: $type = 0;
            #[inline(always)]
            fn fold(a: $type, b: $type) -> $type {
                a | b
            }
        }
    )*};
}

real_folds!(f32, f64);
whole_folds!(i32, i64, u64);

/// Partial folds of a row, so that one addition need not wait for the last.
const LANES: usize = 4;
/// Runs of rows for each thread: rows of equal entries do not cost the same.
const PARTS_PER_THREAD: usize = 16;

impl Csr {
    /// Overwrites `out` (`row_count × width`) with the product of this matrix and `x` (`column_count × width`).
    ///
    /// Sums over floats take the weights; other folds combine the values as they are.
    ///
    /// # Panics
    /// If the shapes do not fit, or there are weights and [`Fold::MAY_WEIGH`] says no.
    pub fn product<F: Fold<T>, T: Copy + Send + Sync>(&self, x: &[T], out: &mut [T], width: usize, threads: &Threads) {
        assert!(width > 0, "a row has at least one value");
        assert!(F::MAY_WEIGH || self.weights().is_none(), "sums of whole numbers take no weights");
        assert_eq!(x.len(), self.column_count() * width, "a row of x per column");
        assert_eq!(out.len(), self.row_count() * width, "a row of the result per row");
        let runs = self.runs(threads.count() * PARTS_PER_THREAD);
        let operations = 4 * self.entry_count() * width / runs.len().max(1);
        let mut parts = Vec::with_capacity(runs.len());
        let mut rest = out;
        for (first, end) in runs {
            let (own, others) = rest.split_at_mut((end - first) * width);
            parts.push((first, own));
            rest = others;
        }
        threads.for_each(
            parts,
            operations,
            || (),
            |(), (first, out)| match (width, self.weights()) {
                (1, None) => self.gather::<F, T>(x, first, out),
                (1, Some(weights)) => self.gather_weighed::<F, T>(x, weights, first, out),
                _ => self.gather_rows::<F, T>(x, width, first, out),
            },
        );
    }

    /// At most `count` runs of rows with about the same number of entries each.
    fn runs(&self, count: usize) -> Vec<(usize, usize)> {
        let cut = |part: usize| {
            let goal = self.entry_count() * part / count;
            self.offsets().partition_point(|&offset| offset < goal)
        };
        (0..count).map(|part| (cut(part), cut(part + 1))).filter(|(first, end)| first < end).collect()
    }

    fn gather<F: Fold<T>, T: Copy>(&self, x: &[T], first: usize, out: &mut [T]) {
        for (row, out) in (first..).zip(out) {
            let columns = &self.columns()[self.offsets()[row]..self.offsets()[row + 1]];
            let mut lanes = [F::NONE; LANES];
            let mut fours = columns.chunks_exact(LANES);
            for four in &mut fours {
                for (lane, &column) in lanes.iter_mut().zip(four) {
                    // SAFETY: columns are below `column_count`, which is the length of `x`.
                    *lane = F::fold(*lane, F::held(unsafe { *x.get_unchecked(column as usize) }));
                }
            }
            let folded = F::fold(F::fold(lanes[0], lanes[1]), F::fold(lanes[2], lanes[3]));
            *out = F::rounded(fours.remainder().iter().fold(folded, |folded, &column| {
                // SAFETY: as above.
                F::fold(folded, F::held(unsafe { *x.get_unchecked(column as usize) }))
            }));
        }
    }

    fn gather_weighed<F: Fold<T>, T: Copy>(&self, x: &[T], weights: &[f64], first: usize, out: &mut [T]) {
        for (row, out) in (first..).zip(out) {
            let entries = self.offsets()[row]..self.offsets()[row + 1];
            let weighed = self.columns()[entries.clone()].iter().zip(&weights[entries]);
            let add =
                |folded, (&column, &weight): (&u32, &f64)| F::fold(folded, F::weighed(x[column as usize], weight));
            *out = F::rounded(weighed.fold(F::NONE, add));
        }
    }

    fn gather_rows<F: Fold<T>, T: Copy>(&self, x: &[T], width: usize, first: usize, out: &mut [T]) {
        let mut held = vec![F::NONE; width];
        for (row, out) in (first..).zip(out.chunks_exact_mut(width)) {
            held.fill(F::NONE);
            for entry in self.offsets()[row]..self.offsets()[row + 1] {
                let column = self.columns()[entry] as usize;
                let weight = self.weights().map(|weights| weights[entry]);
                for (held, &value) in held.iter_mut().zip(&x[column * width..(column + 1) * width]) {
                    *held = F::fold(*held, weight.map_or(F::held(value), |weight| F::weighed(value, weight)));
                }
            }
            out.iter_mut().zip(&held).for_each(|(out, &held)| *out = F::rounded(held));
        }
    }
}
