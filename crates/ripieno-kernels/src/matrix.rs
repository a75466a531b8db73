//! Borrowed row-major matrix, and the number types of points and centroids.

/// `rows × columns` values, row after row without gaps.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T> {
    values: &'a [T],
    rows: usize,
    columns: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// View `values` as `rows × columns`.
    ///
    /// # Panics
    /// If the length is not `rows * columns`, or `columns` is zero.
    pub fn new(values: &'a [T], rows: usize, columns: usize) -> Self {
        assert!(columns > 0, "a matrix has at least one column");
        assert_eq!(values.len(), rows * columns, "{rows} x {columns} values expected");
        Matrix { values, rows, columns }
    }

    /// Return the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Return the number of columns, at least one.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Return all values, row after row.
    pub fn values(&self) -> &'a [T] {
        self.values
    }

    /// Return row `index`.
    pub fn row(&self, index: usize) -> &'a [T] {
        &self.values[index * self.columns..(index + 1) * self.columns]
    }

    /// Return `count` rows, starting with row `first`.
    pub fn row_range(&self, first: usize, count: usize) -> Matrix<'a, T> {
        let values = &self.values[first * self.columns..(first + count) * self.columns];
        Matrix { values, rows: count, columns: self.columns }
    }
}

/// Operations of the kernels on numbers; not implementable outside of this crate.
pub(crate) mod number {
    use crate::simd::{Eight, ProductSums, Vector};
    use std::ops::{Mul, Sub};

    /// A coordinate.
    pub trait Coordinate: Copy + Send + Sync + PartialEq + PartialOrd + Into<f64> + 'static {
        /// The type used for computations.
        type Real: Real;
        /// Convert to the computation type without loss.
        fn widen(self) -> Self::Real;
        /// Return the nearest value of this type.
        fn nearest(value: Self::Real) -> Self;
        /// Whether the value is neither infinite nor NaN.
        fn is_finite(self) -> bool;
        /// Return the values as bytes if this is their type.
        fn as_bytes(_values: &[Self]) -> Option<&[u8]> {
            None
        }
        /// Return the values in the computation type if this is their type.
        fn as_real(_values: &[Self]) -> Option<&[Self::Real]> {
            None
        }
    }

    /// A coordinate type used for computations.
    pub trait Real: Coordinate<Real = Self> + Default + Sub<Output = Self> + Mul<Output = Self> {
        /// Whether this is f32.
        const IS_F32: bool;
        /// Vector of these numbers on a level.
        type In<V: Vector>: ProductSums<Self>;
        /// Convert eight values to f64.
        fn eight<E: Eight>(values: &[Self; 8]) -> E;
        /// Return the nearest value of this type.
        fn from_f64(value: f64) -> Self;
        /// Return the nearest f32.
        fn to_f32(self) -> f32;
        /// Return the absolute value.
        fn magnitude(self) -> Self;
        /// Return the greater value; `self` if `other` is NaN.
        fn maximum(self, other: Self) -> Self;
    }
}

use crate::simd::{Eight, Vector};
use number::{Coordinate, Real};

/// A coordinate of a point: `u8`, `f32` or `f64`.
pub trait Point: Coordinate<Real = Self::Centroid> {
    /// The type of the centroids of such points: `f64` for `f64`, otherwise `f32`.
    type Centroid: Centroid;
}

/// A coordinate of a centroid: `f32` or `f64`.
pub trait Centroid: Real + Point<Centroid = Self> {}

impl Point for u8 {
    type Centroid = f32;
}

impl Point for f32 {
    type Centroid = f32;
}

impl Point for f64 {
    type Centroid = f64;
}

impl Centroid for f32 {}

impl Centroid for f64 {}

impl Coordinate for u8 {
    type Real = f32;

    #[inline(always)]
    fn widen(self) -> f32 {
        self.into()
    }

    #[inline(always)]
    fn nearest(value: f32) -> u8 {
        value.round() as u8
    }

    fn is_finite(self) -> bool {
        true
    }

    fn as_bytes(values: &[u8]) -> Option<&[u8]> {
        Some(values)
    }
}

impl Coordinate for f32 {
    type Real = f32;

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn nearest(value: f32) -> f32 {
        value
    }

    #[inline(always)]
    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }

    fn as_real(values: &[f32]) -> Option<&[f32]> {
        Some(values)
    }
}

impl Real for f32 {
    const IS_F32: bool = true;
    type In<V: Vector> = V;

    #[inline(always)]
    fn eight<E: Eight>(values: &[f32; 8]) -> E {
        E::of_f32(values)
    }

    #[inline(always)]
    fn from_f64(value: f64) -> f32 {
        value as f32
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn magnitude(self) -> f32 {
        self.abs()
    }

    #[inline(always)]
    fn maximum(self, other: f32) -> f32 {
        if other > self { other } else { self }
    }
}

impl Coordinate for f64 {
    type Real = f64;

    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }

    #[inline(always)]
    fn nearest(value: f64) -> f64 {
        value
    }

    #[inline(always)]
    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }

    fn as_real(values: &[f64]) -> Option<&[f64]> {
        Some(values)
    }
}

impl Real for f64 {
    const IS_F32: bool = false;
    type In<V: Vector> = V::Wide;

    #[inline(always)]
    fn eight<E: Eight>(values: &[f64; 8]) -> E {
        E::of_f64(values)
    }

    #[inline(always)]
    fn from_f64(value: f64) -> f64 {
        value
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }

    #[inline(always)]
    fn magnitude(self) -> f64 {
        self.abs()
    }

    #[inline(always)]
    fn maximum(self, other: f64) -> f64 {
        if other > self { other } else { self }
    }
}
