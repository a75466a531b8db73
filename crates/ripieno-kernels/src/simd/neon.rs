//! Vectors of arm64: NEON, which every such machine has.

use super::eight::PlainEight;
use super::vector::{ProductSums, Vector, VectorJob};
use std::arch::aarch64::*;

/// Run with register tiles: 24 of the 32 registers hold sums, 4 the centroids' coordinates, and the others the rows'
/// coordinates.
///
/// # Safety
/// The machine has NEON.
#[target_feature(enable = "neon")]
pub(super) unsafe fn run<J: VectorJob>(job: J) -> J::Output {
    job.run::<F32x4, 6, 4>()
}

/// Four f32.
#[derive(Clone, Copy)]
struct F32x4(float32x4_t);

// SAFETY (of every block below): these functions run only inside `run`, so the instructions exist. `load` and `store`
// pass on their callers' guarantees.
impl Vector for F32x4 {
    type Mask = uint32x4_t;
    type Wide = F64x2;
    type Eight = PlainEight;

    const LANES: usize = 4;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: see above.
        F32x4(unsafe { vdupq_n_f32(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: see above.
        F32x4(unsafe { vld1q_f32(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: see above.
        unsafe { vst1q_f32(to, self.0) }
    }

    #[inline(always)]
    fn multiply_add(self, factor: Self, sum: Self) -> Self {
        // SAFETY: see above.
        F32x4(unsafe { vfmaq_f32(sum.0, self.0, factor.0) })
    }

    #[inline(always)]
    fn multiply_subtract_from(self, factor: Self, sum: Self) -> Self {
        // SAFETY: see above.
        F32x4(unsafe { vfmsq_f32(sum.0, self.0, factor.0) })
    }

    #[inline(always)]
    fn subtract(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x4(unsafe { vsubq_f32(self.0, other.0) })
    }

    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x4(unsafe { vmulq_f32(self.0, other.0) })
    }

    #[inline(always)]
    fn divide(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x4(unsafe { vdivq_f32(self.0, other.0) })
    }

    #[inline(always)]
    fn square_root(self) -> Self {
        // SAFETY: see above.
        F32x4(unsafe { vsqrtq_f32(self.0) })
    }

    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x4(unsafe { vmaxq_f32(self.0, other.0) })
    }

    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x4(unsafe { vminq_f32(self.0, other.0) })
    }

    #[inline(always)]
    fn is_greater(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { vcgtq_f32(self.0, other.0) }
    }

    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        // SAFETY: see above.
        F32x4(unsafe { vbslq_f32(mask, yes.0, no.0) })
    }

    #[inline(always)]
    fn bits(mask: Self::Mask) -> u32 {
        const BITS: [u32; 4] = [1, 2, 4, 8];
        // SAFETY: see above.
        unsafe { vaddvq_u32(vandq_u32(mask, vld1q_u32(BITS.as_ptr()))) }
    }

    #[inline(always)]
    fn greatest(self) -> f32 {
        // SAFETY: see above.
        unsafe { vmaxvq_f32(self.0) }
    }

    #[inline(always)]
    fn totals([a, b, c, d]: [Self; 4]) -> [f32; 4] {
        // SAFETY: see above; four f32 have the size of an array of four.
        unsafe { std::mem::transmute(vpaddq_f32(vpaddq_f32(a.0, b.0), vpaddq_f32(c.0, d.0))) }
    }
}

/// Two f64.
#[derive(Clone, Copy)]
struct F64x2(float64x2_t);

// SAFETY (of every block below): as for the vector of f32 of this level.
impl ProductSums<f64> for F64x2 {
    const COUNT: usize = 2;

    #[inline(always)]
    fn filled(value: f64) -> Self {
        // SAFETY: see above.
        F64x2(unsafe { vdupq_n_f64(value) })
    }

    #[inline(always)]
    unsafe fn read(from: *const f64) -> Self {
        // SAFETY: see above.
        F64x2(unsafe { vld1q_f64(from) })
    }

    #[inline(always)]
    unsafe fn write(self, to: *mut f64) {
        // SAFETY: see above.
        unsafe { vst1q_f64(to, self.0) }
    }

    #[inline(always)]
    fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: see above.
        F64x2(unsafe { vfmaq_f64(self.0, a.0, b.0) })
    }
}
