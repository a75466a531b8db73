//! Products of bytes: a vector of i32 that adds them up, and a kernel that can be compiled for each kind of it.

use super::scalar::F32x4;
use super::vector::Vector;

/// A kernel over bytes, compiled once per kind of [`ByteSums`].
pub(crate) trait ByteJob {
    /// What the kernel returns.
    type Output;

    /// Runs with vectors `B`, in register tiles of `ROWS` rows by `VECTORS` vectors; inlined as [`super::VectorJob::run`] is.
    fn run<B: ByteSums, const ROWS: usize, const VECTORS: usize>(self) -> Self::Output;
}

/// A vector of i32, each the sum of products of four unsigned with four signed bytes, exactly.
///
/// Its functions may be called under [`Simd::run_bytes`](super::Simd::run_bytes) only, which knows that the machine has
/// them.
pub(crate) trait ByteSums: Copy {
    /// As many f32.
    type Floats: Vector;

    /// The greatest magnitude that signed bytes may have: products of greater ones might not fit in between.
    const GREATEST: i8;

    /// Zeros.
    fn zero() -> Self;

    /// Four unsigned bytes, for every lane.
    fn splat(four: [u8; 4]) -> Self;

    /// Reads four signed bytes for each lane.
    ///
    /// # Safety
    /// `from` points to as many readable bytes, aligned to the vector.
    unsafe fn load(from: *const i8) -> Self;

    /// Each lane more by the products of its unsigned and its signed bytes.
    fn plus_products(self, unsigned: Self, signed: Self) -> Self;

    /// The sums as f32, to the nearest.
    fn to_floats(self) -> Self::Floats;
}

/// Four i32 in plain Rust.
#[derive(Clone, Copy)]
#[repr(align(16))]
pub(super) struct I32x4([i32; 4]);

impl ByteSums for I32x4 {
    type Floats = F32x4;

    const GREATEST: i8 = 127;

    #[inline(always)]
    fn zero() -> Self {
        I32x4([0; 4])
    }

    #[inline(always)]
    fn splat(four: [u8; 4]) -> Self {
        I32x4([i32::from_ne_bytes(four); 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const i8) -> Self {
        // SAFETY: the caller vouches for sixteen aligned bytes.
        unsafe { *from.cast() }
    }

    #[inline(always)]
    fn plus_products(self, unsigned: Self, signed: Self) -> Self {
        I32x4(std::array::from_fn(|lane| {
            let (unsigned, signed) = (unsigned.0[lane].to_ne_bytes(), signed.0[lane].to_ne_bytes());
            let products = unsigned.into_iter().zip(signed).map(|(a, b)| i32::from(a) * i32::from(b as i8));
            self.0[lane] + products.sum::<i32>()
        }))
    }

    #[inline(always)]
    fn to_floats(self) -> F32x4 {
        F32x4::from(self.0.map(|sum| sum as f32))
    }
}
