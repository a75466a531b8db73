//! Element types and operations as Rust types, so that each loop is compiled for every pair.

use half::{bf16, f16};

/// An element type of the reductions.
pub(super) trait NumericType: Copy {
    /// Additive identity.
    const ZERO: Self;
    /// Multiplicative identity.
    const ONE: Self;
    /// Lower bound of all values.
    const LEAST: Self;
    /// Upper bound of all values.
    const GREATEST: Self;
    fn all_ones() -> Self;
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

/// An operation as a type, so that each loop is compiled for it.
pub(super) trait Operator {
    fn apply<T: NumericType>(a: T, b: T) -> T;
    /// Return the identity of the operation.
    fn identity<T: NumericType>() -> T;
}

macro_rules! operators {
    ($($name:ident $method:ident $identity:expr;)*) => {$(
        pub(super) struct $name;
        impl Operator for $name {
            #[inline(always)]
            fn apply<T: NumericType>(a: T, b: T) -> T {
                a.$method(b)
            }
            #[inline(always)]
            fn identity<T: NumericType>() -> T {
                $identity
            }
        }
    )*};
}
operators! {
    Sum sum T::ZERO;
    Prod prod T::ONE;
    Min min T::GREATEST;
    Max max T::LEAST;
    And and T::all_ones();
    Or or T::ZERO;
    Xor xor T::ZERO;
}

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
        impl NumericType for $type {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LEAST: Self = Self::MIN;
            const GREATEST: Self = Self::MAX;
            fn all_ones() -> Self { !0 }
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

/// [`super::Reduction::of`] rejects bitwise operations on floats before any of them is called.
macro_rules! no_bitwise {
    () => {
        fn all_ones() -> Self {
            unreachable!("bitwise operations on floats are rejected")
        }
        fn and(self, _: Self) -> Self {
            unreachable!("bitwise operations on floats are rejected")
        }
        fn or(self, _: Self) -> Self {
            unreachable!("bitwise operations on floats are rejected")
        }
        fn xor(self, _: Self) -> Self {
            unreachable!("bitwise operations on floats are rejected")
        }
    };
}

macro_rules! float {
    ($($type:ty),*) => {$(
        impl NumericType for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LEAST: Self = Self::NEG_INFINITY;
            const GREATEST: Self = Self::INFINITY;
            load_and_store!();
            #[inline(always)]
            fn sum(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn prod(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                let smaller = if self < other { self } else { other };
                // Equal operands differ at most in the sign of zero: the bitwise OR is -0 if either is -0.
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
        impl NumericType for $type {
            const ZERO: Self = Self::ZERO;
            const ONE: Self = Self::ONE;
            const LEAST: Self = Self::NEG_INFINITY;
            const GREATEST: Self = Self::INFINITY;
            load_and_store!();
            #[inline(always)]
            fn sum(self, other: Self) -> Self { Self::from_f32(self.to_f32() + other.to_f32()) }
            #[inline(always)]
            fn prod(self, other: Self) -> Self { Self::from_f32(self.to_f32() * other.to_f32()) }
            #[inline(always)]
            fn min(self, other: Self) -> Self { Self::from_f32(NumericType::min(self.to_f32(), other.to_f32())) }
            #[inline(always)]
            fn max(self, other: Self) -> Self { Self::from_f32(NumericType::max(self.to_f32(), other.to_f32())) }
            no_bitwise!();
        }
    )*};
}
half!(f16, bf16);
