//! Byte products on x86-64: AVX-512 VNNI, and AVX2 with bytes of seven bits.

use super::bytes::{ByteJob, ByteSums};
use super::x86::{F32x8, F32x16};
use std::arch::x86_64::*;

/// Whether a machine with AVX-512 has VNNI.
pub(super) fn has_vnni() -> bool {
    is_x86_feature_detected!("avx512vnni")
}

/// Run with register tiles: 27 of the 32 registers hold sums, 3 the centroids' bytes, and 2 the rows' bytes.
///
/// # Safety
/// The machine has AVX-512 F, BW, DQ, VL and VNNI, AVX2 and FMA.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")]
pub(super) unsafe fn run_vnni<J: ByteJob>(job: J) -> J::Output {
    job.run::<I32x16, 9, 3>()
}

/// Run with register tiles: 8 of the 16 registers hold sums, 2 the centroids' bytes, and the others the rows' bytes and
/// products.
///
/// # Safety
/// The machine has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn run_avx2<J: ByteJob>(job: J) -> J::Output {
    job.run::<I32x8, 4, 2>()
}

/// Sixteen i32.
#[derive(Clone, Copy)]
struct I32x16(__m512i);

// SAFETY (of every block below): these functions run only inside `run_vnni`, so the instructions exist. `load` passes
// on its callers' guarantees.
impl ByteSums for I32x16 {
    type Floats = F32x16;

    const MAX_MAGNITUDE: i8 = 127;

    #[inline(always)]
    fn zero() -> Self {
        // SAFETY: see above.
        I32x16(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    fn splat(four: [u8; 4]) -> Self {
        // SAFETY: see above.
        I32x16(unsafe { _mm512_set1_epi32(i32::from_ne_bytes(four)) })
    }

    #[inline(always)]
    unsafe fn load(from: *const i8) -> Self {
        // SAFETY: see above.
        I32x16(unsafe { _mm512_load_si512(from.cast()) })
    }

    #[inline(always)]
    fn plus_products(self, unsigned: Self, signed: Self) -> Self {
        // SAFETY: see above.
        I32x16(unsafe { _mm512_dpbusd_epi32(self.0, unsigned.0, signed.0) })
    }

    #[inline(always)]
    fn to_floats(self) -> F32x16 {
        // SAFETY: see above.
        F32x16(unsafe { _mm512_cvtepi32_ps(self.0) })
    }
}

/// Eight i32.
#[derive(Clone, Copy)]
struct I32x8(__m256i);

// SAFETY (of every block below): as for `I32x16`, with `run_avx2`.
impl ByteSums for I32x8 {
    type Floats = F32x8;

    /// Two products of 255 with this value add up to less than 2¹⁵, the limit of intermediate pair sums.
    const MAX_MAGNITUDE: i8 = 64;

    #[inline(always)]
    fn zero() -> Self {
        // SAFETY: see above.
        I32x8(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    fn splat(four: [u8; 4]) -> Self {
        // SAFETY: see above.
        I32x8(unsafe { _mm256_set1_epi32(i32::from_ne_bytes(four)) })
    }

    #[inline(always)]
    unsafe fn load(from: *const i8) -> Self {
        // SAFETY: see above.
        I32x8(unsafe { _mm256_load_si256(from.cast()) })
    }

    #[inline(always)]
    fn plus_products(self, unsigned: Self, signed: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let pairs = _mm256_maddubs_epi16(unsigned.0, signed.0);
            I32x8(_mm256_add_epi32(self.0, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))))
        }
    }

    #[inline(always)]
    fn to_floats(self) -> F32x8 {
        // SAFETY: see above.
        F32x8(unsafe { _mm256_cvtepi32_ps(self.0) })
    }
}
