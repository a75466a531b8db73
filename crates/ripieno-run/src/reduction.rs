//! Typed reductions: combine bytes that arrived into bytes that wait, element by element.
//!
//! The slices may lie at any alignment. Integers wrap around. `min` and `max` of floats give NaN if either is NaN and
//! order -0 below +0, so every operation gives the same bits whichever operand comes first. Half precision is combined in
//! single precision and rounded once. Cost: one pass; the wider vector instructions are chosen at run time.

use crate::call::Element;
use half::{bf16, f16};
use ripieno_plan::Op;

/// A reduction that has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("op {} has no meaning on {}: expected sum, prod, min or max", .op.name(), .element.name())]
pub struct UnsupportedOp {
    /// The operation asked for.
    pub op: Op,
    /// The type it was asked for.
    pub element: Element,
}

/// Combines the elements of `from` into those of `into`.
pub type Combine = fn(into: &mut [u8], from: &[u8]);

/// The function that combines `element`s by `op`; both slices it gets must be equally long, in whole elements.
pub fn combine(element: Element, op: Op) -> Result<Combine, UnsupportedOp> {
    if element.is_float() && matches!(op, Op::And | Op::Or | Op::Xor) {
        return Err(UnsupportedOp { op, element });
    }
    Ok(match element {
        Element::I8 => for_type::<i8>(op),
        Element::I16 => for_type::<i16>(op),
        Element::I32 => for_type::<i32>(op),
        Element::I64 => for_type::<i64>(op),
        Element::U8 => for_type::<u8>(op),
        Element::U16 => for_type::<u16>(op),
        Element::U32 => for_type::<u32>(op),
        Element::U64 => for_type::<u64>(op),
        Element::F16 => for_type::<f16>(op),
        Element::Bf16 => for_type::<bf16>(op),
        Element::F32 => for_type::<f32>(op),
        Element::F64 => for_type::<f64>(op),
    })
}

fn for_type<T: Number>(op: Op) -> Combine {
    match op {
        Op::Sum => widest::<T, Sum>,
        Op::Prod => widest::<T, Prod>,
        Op::Min => widest::<T, Min>,
        Op::Max => widest::<T, Max>,
        Op::And => widest::<T, And>,
        Op::Or => widest::<T, Or>,
        Op::Xor => widest::<T, Xor>,
    }
}

/// The loop, compiled for the widest vectors this processor has.
fn widest<T: Number, O: Operator>(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "both sides of a reduction are equally long");
    #[cfg(target_arch = "x86_64")]
    if into.len() >= 64 && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
        // SAFETY: the processor has the features that the function is compiled for.
        return unsafe { with_avx2::<T, O>(into, from) };
    }
    each::<T, O>(into, from);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn with_avx2<T: Number, O: Operator>(into: &mut [u8], from: &[u8]) {
    each::<T, O>(into, from);
}

#[inline(always)]
fn each<T: Number, O: Operator>(into: &mut [u8], from: &[u8]) {
    let pairs = into.chunks_exact_mut(size_of::<T>()).zip(from.chunks_exact(size_of::<T>()));
    for (a, b) in pairs {
        O::apply(T::load(a), T::load(b)).store(a);
    }
}

/// A type that reductions know.
trait Number: Copy {
    fn load(bytes: &[u8]) -> Self;
    fn store(self, bytes: &mut [u8]);
    fn sum(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
}

/// One operation, as a type, so that each loop is compiled for it.
trait Operator {
    fn apply<T: Number>(a: T, b: T) -> T;
}

macro_rules! operators {
    ($($name:ident $method:ident),*) => {$(
        struct $name;
        impl Operator for $name {
            #[inline(always)]
            fn apply<T: Number>(a: T, b: T) -> T {
                a.$method(b)
            }
        }
    )*};
}
operators!(Sum sum, Prod prod, Min min, Max max, And and, Or or, Xor xor);

macro_rules! load_and_store {
    () => {
        #[inline(always)]
        fn load(bytes: &[u8]) -> Self {
            Self::from_ne_bytes(bytes.try_into().expect("a whole element"))
        }
        #[inline(always)]
        fn store(self, bytes: &mut [u8]) {
            bytes.copy_from_slice(&self.to_ne_bytes());
        }
    };
}

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl Number for $type {
            load_and_store!();
            #[inline(always)]
            fn sum(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn prod(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn min(self, other: Self) -> Self { Ord::min(self, other) }
            #[inline(always)]
            fn max(self, other: Self) -> Self { Ord::max(self, other) }
            bitwise!();
        }
    )*};
}

macro_rules! bitwise {
    () => {
        #[inline(always)]
        fn and(self, other: Self) -> Self {
            self & other
        }
        #[inline(always)]
        fn or(self, other: Self) -> Self {
            self | other
        }
        #[inline(always)]
        fn xor(self, other: Self) -> Self {
            self ^ other
        }
    };
}
integer!(i8, i16, i32, i64, u8, u16, u32, u64);

/// `combine` refuses bitwise operations on floats before one is called.
macro_rules! no_bitwise {
    () => {
        fn and(self, _: Self) -> Self {
            unreachable!("bitwise operations on floats are refused")
        }
        fn or(self, _: Self) -> Self {
            unreachable!("bitwise operations on floats are refused")
        }
        fn xor(self, _: Self) -> Self {
            unreachable!("bitwise operations on floats are refused")
        }
    };
}

macro_rules! float {
    ($($type:ty),*) => {$(
        impl Number for $type {
            load_and_store!();
            #[inline(always)]
            fn sum(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn prod(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                let smaller = if self < other { self } else { other };
                // Equal operands differ at most in the sign of zero: the or of the bits is -0 if either is.
                let equal = Self::from_bits(self.to_bits() | other.to_bits());
                let ordered = if self == other { equal } else { smaller };
                if self.is_nan() | other.is_nan() { Self::NAN } else { ordered }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                let larger = if self > other { self } else { other };
                let equal = Self::from_bits(self.to_bits() & other.to_bits());
                let ordered = if self == other { equal } else { larger };
                if self.is_nan() | other.is_nan() { Self::NAN } else { ordered }
            }
            no_bitwise!();
        }
    )*};
}
float!(f32, f64);

macro_rules! half {
    ($($type:ty),*) => {$(
        impl Number for $type {
            load_and_store!();
            #[inline(always)]
            fn sum(self, other: Self) -> Self { Self::from_f32(self.to_f32() + other.to_f32()) }
            #[inline(always)]
            fn prod(self, other: Self) -> Self { Self::from_f32(self.to_f32() * other.to_f32()) }
            #[inline(always)]
            fn min(self, other: Self) -> Self { Self::from_f32(Number::min(self.to_f32(), other.to_f32())) }
            #[inline(always)]
            fn max(self, other: Self) -> Self { Self::from_f32(Number::max(self.to_f32(), other.to_f32())) }
            no_bitwise!();
        }
    )*};
}
half!(f16, bf16);

#[cfg(test)]
mod tests {
    use super::*;

    fn combined<T: Number, const N: usize>(element: Element, op: Op, a: [T; N], b: [T; N]) -> Vec<T> {
        let bytes = |values: &[T]| {
            let mut bytes = vec![0; size_of_val(values)];
            for (value, place) in values.iter().zip(bytes.chunks_exact_mut(size_of::<T>())) {
                value.store(place);
            }
            bytes
        };
        let mut into = bytes(&a);
        combine(element, op).expect("a meaning")(&mut into, &bytes(&b));
        into.chunks_exact(size_of::<T>()).map(T::load).collect()
    }

    #[test]
    fn each_operation_gives_its_value() {
        let (a, b) = ([1i32, -5, i32::MAX], [3, 7, 1]);
        assert_eq!(combined(Element::I32, Op::Sum, a, b), [4, 2, i32::MIN]);
        assert_eq!(combined(Element::I32, Op::Prod, a, b), [3, -35, i32::MAX]);
        assert_eq!(combined(Element::I32, Op::Min, a, b), [1, -5, 1]);
        assert_eq!(combined(Element::I32, Op::Max, a, b), [3, 7, i32::MAX]);
        assert_eq!(combined(Element::U8, Op::And, [6u8], [3]), [2]);
        assert_eq!(combined(Element::U8, Op::Or, [6u8], [3]), [7]);
        assert_eq!(combined(Element::U8, Op::Xor, [6u8], [3]), [5]);
        assert_eq!(combined(Element::F16, Op::Sum, [f16::from_f32(1.5)], [f16::from_f32(2.0)]), [f16::from_f32(3.5)]);
        assert_eq!(combined(Element::Bf16, Op::Max, [bf16::NEG_ONE], [bf16::ONE]), [bf16::ONE]);
    }

    #[test]
    fn long_vectors_give_what_short_ones_give() {
        let a: [f32; 1000] = std::array::from_fn(|i| i as f32 * 0.37 - 99.0);
        let b: [f32; 1000] = std::array::from_fn(|i| 70.0 - i as f32 * 0.11);
        for op in [Op::Sum, Op::Prod, Op::Min, Op::Max] {
            let whole = combined(Element::F32, op, a, b);
            for i in 0..1000 {
                assert_eq!(whole[i], combined(Element::F32, op, [a[i]], [b[i]])[0], "{op:?} at {i}");
            }
        }
    }

    #[test]
    fn min_and_max_give_the_same_bits_in_either_order() {
        let values = [0.0f64, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        for op in [Op::Min, Op::Max] {
            for a in values {
                for b in values {
                    let forth = combined(Element::F64, op, [a], [b])[0].to_bits();
                    let back = combined(Element::F64, op, [b], [a])[0].to_bits();
                    assert_eq!(forth, back, "{op:?} of {a} and {b}");
                }
            }
        }
        assert_eq!(combined(Element::F64, Op::Min, [0.0f64], [-0.0])[0].to_bits(), (-0.0f64).to_bits());
        assert!(combined(Element::F64, Op::Max, [1.0f64], [f64::NAN])[0].is_nan());
    }

    #[test]
    fn bits_of_floats_cannot_be_combined() {
        let refused = combine(Element::F32, Op::Xor).expect_err("no meaning");
        assert_eq!(refused.to_string(), "op xor has no meaning on float32: expected sum, prod, min or max");
    }
}
