//! Vectors in plain Rust: four lanes, which compilers map to the machine's baseline instructions.

use super::eight::PlainEight;
use super::vector::{ProductSums, Vector};

/// Four f32.
#[derive(Clone, Copy)]
#[repr(align(16))]
pub(crate) struct F32x4([f32; 4]);

impl From<[f32; 4]> for F32x4 {
    #[inline(always)]
    fn from(values: [f32; 4]) -> F32x4 {
        F32x4(values)
    }
}

#[inline(always)]
fn per_lane(a: F32x4, b: F32x4, f: impl Fn(f32, f32) -> f32) -> F32x4 {
    F32x4([f(a.0[0], b.0[0]), f(a.0[1], b.0[1]), f(a.0[2], b.0[2]), f(a.0[3], b.0[3])])
}

impl Vector for F32x4 {
    type Mask = [bool; 4];
    type Wide = F64x2;
    type Eight = PlainEight;

    const LANES: usize = 4;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        F32x4([value; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller guarantees four aligned values.
        unsafe { *from.cast() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller guarantees four aligned values.
        unsafe { *to.cast() = self }
    }

    #[inline(always)]
    fn multiply_add(self, factor: Self, sum: Self) -> Self {
        per_lane(per_lane(self, factor, |a, b| a * b), sum, |a, b| a + b)
    }

    #[inline(always)]
    fn multiply_subtract_from(self, factor: Self, sum: Self) -> Self {
        per_lane(sum, per_lane(self, factor, |a, b| a * b), |a, b| a - b)
    }

    #[inline(always)]
    fn subtract(self, other: Self) -> Self {
        per_lane(self, other, |a, b| a - b)
    }

    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        per_lane(self, other, |a, b| a * b)
    }

    #[inline(always)]
    fn divide(self, other: Self) -> Self {
        per_lane(self, other, |a, b| a / b)
    }

    #[inline(always)]
    fn square_root(self) -> Self {
        F32x4(self.0.map(f32::sqrt))
    }

    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        per_lane(self, other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        per_lane(self, other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn is_greater(self, other: Self) -> Self::Mask {
        let (a, b) = (self.0, other.0);
        [a[0] > b[0], a[1] > b[1], a[2] > b[2], a[3] > b[3]]
    }

    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        let lane = |i: usize| if mask[i] { yes.0[i] } else { no.0[i] };
        F32x4([lane(0), lane(1), lane(2), lane(3)])
    }

    #[inline(always)]
    fn bits(mask: Self::Mask) -> u32 {
        mask[0] as u32 | (mask[1] as u32) << 1 | (mask[2] as u32) << 2 | (mask[3] as u32) << 3
    }

    #[inline(always)]
    fn greatest(self) -> f32 {
        self.0[0].max(self.0[1]).max(self.0[2].max(self.0[3]))
    }

    #[inline(always)]
    fn totals(vectors: [Self; 4]) -> [f32; 4] {
        vectors.map(|F32x4([a, b, c, d])| (a + b) + (c + d))
    }
}

/// Two f64.
#[derive(Clone, Copy)]
#[repr(align(16))]
pub(crate) struct F64x2([f64; 2]);

impl ProductSums<f64> for F64x2 {
    const COUNT: usize = 2;

    #[inline(always)]
    fn filled(value: f64) -> Self {
        F64x2([value; 2])
    }

    #[inline(always)]
    unsafe fn read(from: *const f64) -> Self {
        // SAFETY: the caller guarantees two aligned values.
        unsafe { *from.cast() }
    }

    #[inline(always)]
    unsafe fn write(self, to: *mut f64) {
        // SAFETY: the caller guarantees two aligned values.
        unsafe { *to.cast() = self }
    }

    #[inline(always)]
    fn plus_product(self, a: Self, b: Self) -> Self {
        F64x2([self.0[0] + a.0[0] * b.0[0], self.0[1] + a.0[1] * b.0[1]])
    }
}
