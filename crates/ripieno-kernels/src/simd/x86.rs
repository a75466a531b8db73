//! Vectors of x86-64: AVX-512 and AVX2 with FMA.

use super::eight::Eight;
use super::vector::{ProductSums, Vector, VectorJob};
use std::arch::x86_64::*;

pub(super) fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

/// Run with register tiles: 27 of the 32 registers hold sums, 3 the centroids' coordinates, and 2 the rows'
/// coordinates.
///
/// # Safety
/// The machine has AVX-512 F, BW, DQ and VL, AVX2 and FMA.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn run_avx512<J: VectorJob>(job: J) -> J::Output {
    job.run::<F32x16, 9, 3>()
}

/// Run with register tiles: 12 of the 16 registers hold sums, 2 the centroids' coordinates, and 2 the rows'
/// coordinates.
///
/// # Safety
/// The machine has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn run_avx2<J: VectorJob>(job: J) -> J::Output {
    job.run::<F32x8, 6, 2>()
}

/// Sixteen f32.
#[derive(Clone, Copy)]
pub(super) struct F32x16(pub(super) __m512);

// SAFETY (of every block below): these functions run only inside `run_avx512`, so the instructions exist. `load` and
// `store` pass on their callers' guarantees.
impl Vector for F32x16 {
    type Mask = __mmask16;
    type Wide = F64x8;
    type Eight = F64x8;

    const LANES: usize = 16;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: see above.
        F32x16(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: see above.
        F32x16(unsafe { _mm512_load_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm512_store_ps(to, self.0) }
    }

    #[inline(always)]
    fn multiply_add(self, factor: Self, sum: Self) -> Self {
        // SAFETY: see above.
        F32x16(unsafe { _mm512_fmadd_ps(self.0, factor.0, sum.0) })
    }

    #[inline(always)]
    fn multiply_subtract_from(self, factor: Self, sum: Self) -> Self {
        // SAFETY: see above.
        F32x16(unsafe { _mm512_fnmadd_ps(self.0, factor.0, sum.0) })
    }

    #[inline(always)]
    fn subtract(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x16(unsafe { _mm512_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x16(unsafe { _mm512_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn divide(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x16(unsafe { _mm512_div_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn square_root(self) -> Self {
        // SAFETY: see above.
        F32x16(unsafe { _mm512_sqrt_ps(self.0) })
    }

    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x16(unsafe { _mm512_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x16(unsafe { _mm512_min_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn is_greater(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        // SAFETY: see above.
        F32x16(unsafe { _mm512_mask_blend_ps(mask, no.0, yes.0) })
    }

    #[inline(always)]
    fn bits(mask: Self::Mask) -> u32 {
        mask as u32
    }

    #[inline(always)]
    fn greatest(self) -> f32 {
        // SAFETY: see above.
        unsafe { _mm512_reduce_max_ps(self.0) }
    }

    #[inline(always)]
    fn totals([a, b, c, d]: [Self; 4]) -> [f32; 4] {
        // SAFETY: see above; four f32 have the size of an array of four.
        unsafe {
            let ab = _mm512_add_ps(_mm512_unpacklo_ps(a.0, b.0), _mm512_unpackhi_ps(a.0, b.0));
            let cd = _mm512_add_ps(_mm512_unpacklo_ps(c.0, d.0), _mm512_unpackhi_ps(c.0, d.0));
            let all = _mm512_add_ps(_mm512_shuffle_ps::<0x44>(ab, cd), _mm512_shuffle_ps::<0xee>(ab, cd));
            let half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps::<1>(all));
            std::mem::transmute(_mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half)))
        }
    }
}

/// Eight f32.
#[derive(Clone, Copy)]
pub(super) struct F32x8(pub(super) __m256);

// SAFETY (of every block below): as for `F32x16`, with `run_avx2`.
impl Vector for F32x8 {
    type Mask = __m256;
    type Wide = F64x4;
    type Eight = TwiceF64x4;

    const LANES: usize = 8;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: see above.
        F32x8(unsafe { _mm256_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: see above.
        F32x8(unsafe { _mm256_load_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm256_store_ps(to, self.0) }
    }

    #[inline(always)]
    fn multiply_add(self, factor: Self, sum: Self) -> Self {
        // SAFETY: see above.
        F32x8(unsafe { _mm256_fmadd_ps(self.0, factor.0, sum.0) })
    }

    #[inline(always)]
    fn multiply_subtract_from(self, factor: Self, sum: Self) -> Self {
        // SAFETY: see above.
        F32x8(unsafe { _mm256_fnmadd_ps(self.0, factor.0, sum.0) })
    }

    #[inline(always)]
    fn subtract(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x8(unsafe { _mm256_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x8(unsafe { _mm256_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn divide(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x8(unsafe { _mm256_div_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn square_root(self) -> Self {
        // SAFETY: see above.
        F32x8(unsafe { _mm256_sqrt_ps(self.0) })
    }

    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x8(unsafe { _mm256_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        // SAFETY: see above.
        F32x8(unsafe { _mm256_min_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn is_greater(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { _mm256_cmp_ps::<_CMP_GT_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        // SAFETY: see above.
        F32x8(unsafe { _mm256_blendv_ps(no.0, yes.0, mask) })
    }

    #[inline(always)]
    fn bits(mask: Self::Mask) -> u32 {
        // SAFETY: see above.
        unsafe { _mm256_movemask_ps(mask) as u32 }
    }

    #[inline(always)]
    fn greatest(self) -> f32 {
        // SAFETY: see above.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn totals([a, b, c, d]: [Self; 4]) -> [f32; 4] {
        // SAFETY: see above; four f32 have the size of an array of four.
        unsafe {
            let ab = _mm256_add_ps(_mm256_unpacklo_ps(a.0, b.0), _mm256_unpackhi_ps(a.0, b.0));
            let cd = _mm256_add_ps(_mm256_unpacklo_ps(c.0, d.0), _mm256_unpackhi_ps(c.0, d.0));
            let all = _mm256_add_ps(_mm256_shuffle_ps::<0x44>(ab, cd), _mm256_shuffle_ps::<0xee>(ab, cd));
            std::mem::transmute(_mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps::<1>(all)))
        }
    }
}

/// Eight f64.
#[derive(Clone, Copy)]
pub(super) struct F64x8(__m512d);

// SAFETY (of every block below): as for the vector of f32 of this level.
impl ProductSums<f64> for F64x8 {
    const COUNT: usize = 8;

    #[inline(always)]
    fn filled(value: f64) -> Self {
        // SAFETY: see above.
        F64x8(unsafe { _mm512_set1_pd(value) })
    }

    #[inline(always)]
    unsafe fn read(from: *const f64) -> Self {
        // SAFETY: see above.
        F64x8(unsafe { _mm512_load_pd(from) })
    }

    #[inline(always)]
    unsafe fn write(self, to: *mut f64) {
        // SAFETY: see above.
        unsafe { _mm512_store_pd(to, self.0) }
    }

    #[inline(always)]
    fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: see above.
        F64x8(unsafe { _mm512_fmadd_pd(a.0, b.0, self.0) })
    }
}

/// Four f64.
#[derive(Clone, Copy)]
pub(super) struct F64x4(__m256d);

// SAFETY (of every block below): as for the vector of f32 of this level.
impl ProductSums<f64> for F64x4 {
    const COUNT: usize = 4;

    #[inline(always)]
    fn filled(value: f64) -> Self {
        // SAFETY: see above.
        F64x4(unsafe { _mm256_set1_pd(value) })
    }

    #[inline(always)]
    unsafe fn read(from: *const f64) -> Self {
        // SAFETY: see above.
        F64x4(unsafe { _mm256_load_pd(from) })
    }

    #[inline(always)]
    unsafe fn write(self, to: *mut f64) {
        // SAFETY: see above.
        unsafe { _mm256_store_pd(to, self.0) }
    }

    #[inline(always)]
    fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: see above.
        F64x4(unsafe { _mm256_fmadd_pd(a.0, b.0, self.0) })
    }
}

// SAFETY (of every block below): as for the vector of f32 of this level; array loads need no alignment.
impl Eight for F64x8 {
    #[inline(always)]
    fn splat(value: f64) -> Self {
        F64x8::filled(value)
    }

    #[inline(always)]
    fn of_f32(values: &[f32; 8]) -> Self {
        // SAFETY: see above.
        F64x8(unsafe { _mm512_cvtps_pd(_mm256_loadu_ps(values.as_ptr())) })
    }

    #[inline(always)]
    fn of_f64(values: &[f64; 8]) -> Self {
        // SAFETY: see above.
        F64x8(unsafe { _mm512_loadu_pd(values.as_ptr()) })
    }

    #[inline(always)]
    fn plus_squared_difference(self, a: Self, b: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let difference = _mm512_sub_pd(a.0, b.0);
            F64x8(_mm512_add_pd(self.0, _mm512_mul_pd(difference, difference)))
        }
    }

    #[inline(always)]
    fn lowest_lane(self) -> (f64, usize) {
        // SAFETY: see above.
        unsafe {
            // For NaN and a number the result is the second operand.
            let numbers = _mm512_min_pd(self.0, _mm512_set1_pd(f64::INFINITY));
            let halves = _mm512_min_pd(numbers, _mm512_shuffle_f64x2::<0b01_00_11_10>(numbers, numbers));
            let quarters = _mm512_min_pd(halves, _mm512_shuffle_f64x2::<0b10_11_00_01>(halves, halves));
            let all = _mm512_min_pd(quarters, _mm512_permute_pd::<0b01_01_01_01>(quarters));
            let bits = _mm512_cmp_pd_mask::<_CMP_EQ_OQ>(numbers, all);
            (_mm512_cvtsd_f64(all), bits.trailing_zeros() as usize % 8)
        }
    }
}

/// Eight f64 in two registers.
#[derive(Clone, Copy)]
pub(super) struct TwiceF64x4([__m256d; 2]);

// SAFETY (of every block below): as for the vector of f32 of this level; array loads need no alignment.
impl Eight for TwiceF64x4 {
    #[inline(always)]
    fn splat(value: f64) -> Self {
        // SAFETY: see above.
        TwiceF64x4([unsafe { _mm256_set1_pd(value) }; 2])
    }

    #[inline(always)]
    fn of_f32(values: &[f32; 8]) -> Self {
        // SAFETY: see above.
        unsafe {
            let all = _mm256_loadu_ps(values.as_ptr());
            let halves = [_mm256_castps256_ps128(all), _mm256_extractf128_ps::<1>(all)];
            TwiceF64x4([_mm256_cvtps_pd(halves[0]), _mm256_cvtps_pd(halves[1])])
        }
    }

    #[inline(always)]
    fn of_f64(values: &[f64; 8]) -> Self {
        // SAFETY: see above.
        unsafe { TwiceF64x4([_mm256_loadu_pd(values.as_ptr()), _mm256_loadu_pd(values.as_ptr().add(4))]) }
    }

    #[inline(always)]
    fn plus_squared_difference(self, a: Self, b: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let low = _mm256_sub_pd(a.0[0], b.0[0]);
            let high = _mm256_sub_pd(a.0[1], b.0[1]);
            let squares = [_mm256_mul_pd(low, low), _mm256_mul_pd(high, high)];
            TwiceF64x4([_mm256_add_pd(self.0[0], squares[0]), _mm256_add_pd(self.0[1], squares[1])])
        }
    }

    #[inline(always)]
    fn lowest_lane(self) -> (f64, usize) {
        // SAFETY: see above.
        unsafe {
            // For NaN and a number the result is the second operand.
            let infinity = _mm256_set1_pd(f64::INFINITY);
            let (low, high) = (_mm256_min_pd(self.0[0], infinity), _mm256_min_pd(self.0[1], infinity));
            let four = _mm256_min_pd(low, high);
            let two = _mm256_min_pd(four, _mm256_permute2f128_pd::<1>(four, four));
            let all = _mm256_min_pd(two, _mm256_permute_pd::<0b0101>(two));
            let low_bits = _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_EQ_OQ>(low, all)) as u32;
            let high_bits = _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_EQ_OQ>(high, all)) as u32;
            (_mm256_cvtsd_f64(all), (low_bits | high_bits << 4).trailing_zeros() as usize % 8)
        }
    }
}
