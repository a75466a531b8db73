//! What a kernel needs of a vector, and a kernel that can be compiled for each kind of vector.

use super::eight::Eight;

/// A kernel, compiled once per SIMD level.
pub(crate) trait VectorJob {
    /// What the kernel returns.
    type Output;

    /// Runs with vectors `V`; register tiles are `ROWS` rows by `VECTORS` vectors, as many as the registers hold.
    ///
    /// Implementations are `#[inline(always)]`, as is everything hot below them: only what is inlined into the caller
    /// is compiled with its instructions.
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) -> Self::Output;
}

/// A vector of f32.
///
/// Its functions may be called under [`Simd::run`](super::Simd::run) only, which knows that the machine has them.
pub trait Vector: Copy {
    /// One truth value per lane.
    type Mask: Copy;

    /// A vector of f64 of the same level.
    type Wide: ProductSums<f64>;

    /// Eight f64 in vectors of the same level.
    type Eight: Eight;

    /// The number of lanes.
    const LANES: usize;

    /// `value` in every lane.
    fn splat(value: f32) -> Self;

    /// Reads one vector.
    ///
    /// # Safety
    /// `from` points to `LANES` readable values, aligned to the vector.
    unsafe fn load(from: *const f32) -> Self;

    /// Writes one vector.
    ///
    /// # Safety
    /// `to` points to `LANES` writable values, aligned to the vector.
    unsafe fn store(self, to: *mut f32);

    /// `self · factor + sum`, rounded once or twice.
    fn multiply_add(self, factor: Self, sum: Self) -> Self;

    /// `sum − self · factor`, rounded once or twice.
    fn multiply_subtract_from(self, factor: Self, sum: Self) -> Self;

    /// `self − other`.
    fn subtract(self, other: Self) -> Self;

    /// `self · other`.
    fn multiply(self, other: Self) -> Self;

    /// `self / other`, correctly rounded.
    fn divide(self, other: Self) -> Self;

    /// The square root, correctly rounded.
    fn square_root(self) -> Self;

    /// The greater one per lane.
    fn maximum(self, other: Self) -> Self;

    /// The lesser one per lane.
    fn minimum(self, other: Self) -> Self;

    /// Where `self > other`; false for NaN.
    fn is_greater(self, other: Self) -> Self::Mask;

    /// Where `self < other`; false for NaN.
    fn is_less(self, other: Self) -> Self::Mask {
        other.is_greater(self)
    }

    /// `yes` where the mask is set, otherwise `no`, bit for bit.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// Lane `i` of the mask as bit `i`.
    fn bits(mask: Self::Mask) -> u32;

    /// The greatest lane.
    fn greatest(self) -> f32;

    /// The sums of the lanes of four vectors.
    fn totals(vectors: [Self; 4]) -> [f32; 4];
}

/// A vector that adds up products, of f32 or f64.
///
/// As with [`Vector`], its functions may be called under [`Simd::run`](super::Simd::run) only.
pub trait ProductSums<T>: Copy {
    /// The number of lanes.
    const COUNT: usize;

    /// `value` in every lane.
    fn filled(value: T) -> Self;

    /// Reads one vector.
    ///
    /// # Safety
    /// `from` points to `COUNT` readable values, aligned to the vector.
    unsafe fn read(from: *const T) -> Self;

    /// Writes one vector.
    ///
    /// # Safety
    /// `to` points to `COUNT` writable values, aligned to the vector.
    unsafe fn write(self, to: *mut T);

    /// `self + a · b`, rounded once or twice.
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
        // SAFETY: the caller vouches for the same.
        unsafe { V::load(from) }
    }

    #[inline(always)]
    unsafe fn write(self, to: *mut f32) {
        // SAFETY: the caller vouches for the same.
        unsafe { self.store(to) }
    }

    #[inline(always)]
    fn plus_product(self, a: Self, b: Self) -> Self {
        a.multiply_add(b, self)
    }
}
