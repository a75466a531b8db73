//! Dot products of bytes: the vector type [`ByteSums`], which accumulates in i32, and the kernel trait [`ByteJob`].

use super::scalar::F32x4;
use super::vector::Vector;

/// A kernel over bytes, compiled for each implementation of [`ByteSums`].
pub(crate) trait ByteJob {
    /// Result of the kernel.
    type Output;

    /// Run with vectors `B`, in register tiles of `ROWS` rows by `VECTORS` vectors. For inlining see
    /// [`super::VectorJob::run`].
    fn run<B: ByteSums, const ROWS: usize, const VECTORS: usize>(self) -> Self::Output;
}

/// A vector of i32. Each lane is the exact sum of products of four unsigned and four signed bytes.
///
/// Its functions may only be called inside [`Simd::run_bytes`](super::Simd::run_bytes), which ensures that the machine
/// has the instructions.
pub(crate) trait ByteSums: Copy {
    /// A vector of f32 with the same number of lanes.
    type Floats: Vector;

    /// Maximum magnitude of signed bytes. Larger bytes might overflow intermediate sums.
    const MAX_MAGNITUDE: i8;

    /// Return zero in every lane.
    fn zero() -> Self;

    /// Return the same four unsigned bytes in every lane.
    fn splat(four: [u8; 4]) -> Self;

    /// Load four signed bytes for each lane.
    ///
    /// # Safety
    /// `from` points to four readable bytes per lane, aligned to the vector.
    unsafe fn load(from: *const i8) -> Self;

    /// Add the products of the unsigned and signed bytes of each lane.
    fn plus_products(self, unsigned: Self, signed: Self) -> Self;

    /// Convert the sums to the nearest f32.
    fn to_floats(self) -> Self::Floats;
}

/// Four i32 without vector instructions.
#[derive(Clone, Copy)]
#[repr(align(16))]
pub(super) struct I32x4([i32; 4]);

impl ByteSums for I32x4 {
    type Floats = F32x4;

    const MAX_MAGNITUDE: i8 = 127;

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
        // SAFETY: the caller guarantees sixteen aligned bytes.
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
