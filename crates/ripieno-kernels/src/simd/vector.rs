//! The vector operations of the kernels, and the trait of kernels compiled for each kind of vector.

use super::eight::Eight;

/// A kernel, compiled once per SIMD level.
pub(crate) trait VectorJob {
    /// Result of the kernel.
    type Output;

    /// Run with vectors `V`. Register tiles have `ROWS` rows by `VECTORS` vectors, as many as the registers hold.
    ///
    /// Implementations are `#[inline(always)]`, as are all hot functions that they call: only functions inlined into
    /// the caller are compiled with its instructions.
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) -> Self::Output;
}

/// A vector of f32.
///
/// Its functions may only be called inside [`Simd::run`](super::Simd::run), which ensures that the machine has the
/// instructions.
pub trait Vector: Copy {
    /// One truth value per lane.
    type Mask: Copy;

    /// A vector of f64 of the same level.
    type Wide: ProductSums<f64>;

    /// Eight f64 in vectors of the same level.
    type Eight: Eight;

    /// Number of lanes.
    const LANES: usize;

    /// Return `value` in every lane.
    fn splat(value: f32) -> Self;

    /// Load one vector.
    ///
    /// # Safety
    /// `from` points to `LANES` readable values, aligned to the vector.
    unsafe fn load(from: *const f32) -> Self;

    /// Store one vector.
    ///
    /// # Safety
    /// `to` points to `LANES` writable values, aligned to the vector.
    unsafe fn store(self, to: *mut f32);

    /// Return `self · factor + sum`, rounded once or twice.
    fn multiply_add(self, factor: Self, sum: Self) -> Self;

    /// Return `sum − self · factor`, rounded once or twice.
    fn multiply_subtract_from(self, factor: Self, sum: Self) -> Self;

    /// Return `self − other`.
    fn subtract(self, other: Self) -> Self;

    /// Return `self · other`.
    fn multiply(self, other: Self) -> Self;

    /// Return `self / other`, correctly rounded.
    fn divide(self, other: Self) -> Self;

    /// Return the square root, correctly rounded.
    fn square_root(self) -> Self;

    /// Return the greater value per lane.
    fn maximum(self, other: Self) -> Self;

    /// Return the smaller value per lane.
    fn minimum(self, other: Self) -> Self;

    /// Return the mask of `self > other`; false for NaN.
    fn is_greater(self, other: Self) -> Self::Mask;

    /// Return the mask of `self < other`; false for NaN.
    fn is_less(self, other: Self) -> Self::Mask {
        other.is_greater(self)
    }

    /// Return `yes` where the mask is set, otherwise `no`, bit for bit.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// Return lane `i` of the mask as bit `i`.
    fn bits(mask: Self::Mask) -> u32;

    /// Return the greatest lane.
    fn greatest(self) -> f32;

    /// Return the sums of the lanes of four vectors.
    fn totals(vectors: [Self; 4]) -> [f32; 4];
}

/// A vector that adds up products of f32 or f64.
///
/// As with [`Vector`], its functions may only be called inside [`Simd::run`](super::Simd::run).
pub trait ProductSums<T>: Copy {
    /// Number of lanes.
    const COUNT: usize;

    /// Return `value` in every lane.
    fn filled(value: T) -> Self;

    /// Load one vector.
    ///
    /// # Safety
    /// `from` points to `COUNT` readable values, aligned to the vector.
    unsafe fn read(from: *const T) -> Self;

    /// Store one vector.
    ///
    /// # Safety
    /// `to` points to `COUNT` writable values, aligned to the vector.
    unsafe fn write(self, to: *mut T);

    /// Return `self + a · b`, rounded once or twice.
    fn plus_product(self, a: Self, b: Self) -> Self;
}

impl<V: Vector> ProductSums<f32> for V {
    const COUNT: usize = V::LANES;

    #[inline(always)]
    fn filled(value: f32) -> Self {
        V::splat(value)
    }

    #[inline(always)]
    unsafe fn read(from: *const f32) -> Self {
        // SAFETY: the caller guarantees the same.
        unsafe { V::load(from) }
    }

    #[inline(always)]
    unsafe fn write(self, to: *mut f32) {
        // SAFETY: the caller guarantees the same.
        unsafe { self.store(to) }
    }

    #[inline(always)]
    fn plus_product(self, a: Self, b: Self) -> Self {
        a.multiply_add(b, self)
    }
}
