//! Accumulator types for sums and products of many values, with conversions to and from them.
//!
//! A sum of short floats stops growing once a value is below half a unit in its last place: 2^24 ones in float32, 2^11
//! in float16. Therefore sums and products of floats below 64 bits accumulate in float64 and are rounded once. Cost of
//! a conversion: one pass.

use crate::Element;
use crate::number::NumericType;
use half::{bf16, f16};
use ripieno_plan::Op;

impl Element {
    /// Return the accumulator type for combining many elements by `op` before rounding to this type.
    pub fn accumulator(self, op: Op) -> Element {
        match op {
            Op::Sum | Op::Prod if self.is_float() => Element::F64,
            _ => self,
        }
    }
}

/// Convert floats of type `from` to floats of type `to`, at any alignment.
///
/// A conversion to a shorter type rounds once, to nearest, ties to even.
///
/// # Panics
///
/// Panics if neither type is float64, if one is not a float, or if `into` and `values` differ in their number of
/// elements.
pub fn convert(from: Element, to: Element, values: &[u8], into: &mut [u8]) {
    let counts = [values.len() / from.size_bytes(), into.len() / to.size_bytes()];
    assert_eq!(counts[0], counts[1], "both slices have the same number of elements");
    match (from, to) {
        (Element::F16, Element::F64) => convert_each(values, into, f16::to_f64),
        (Element::Bf16, Element::F64) => convert_each(values, into, bf16::to_f64),
        (Element::F32, Element::F64) => convert_each(values, into, |value: f32| f64::from(value)),
        (Element::F64, Element::F16) => convert_each(values, into, |value| f16::from_f32(rounded_to_odd(value))),
        (Element::F64, Element::Bf16) => convert_each(values, into, |value| bf16::from_f32(rounded_to_odd(value))),
        (Element::F64, Element::F32) => convert_each(values, into, |value: f64| value as f32),
        _ => panic!("no conversion from {} to {}", from.name(), to.name()),
    }
}

#[inline(always)]
fn convert_each<T: NumericType, U: NumericType>(values: &[u8], into: &mut [u8], convert: impl Fn(T) -> U) {
    let pairs = values.chunks_exact(size_of::<T>()).zip(into.chunks_exact_mut(size_of::<U>()));
    for (value, target) in pairs {
        convert(T::load(value)).store(target);
    }
}

/// Round `value` to float32 in round-to-odd mode: an inexact result gets an odd last bit. Rounding this result to half
/// precision gives the bits of rounding `value` directly.
///
/// Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd",
/// IEEE Transactions on Computers 2008, theorem 1.
fn rounded_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value || !nearest.is_finite() {
        return nearest;
    }
    let is_above = f64::from(nearest).abs() > value.abs();
    f32::from_bits((nearest.to_bits() - u32::from(is_above)) | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted<T: NumericType, U: NumericType>(from: Element, to: Element, value: T) -> U {
        let (mut bytes, mut into) = (vec![0; size_of::<T>()], vec![0; size_of::<U>()]);
        value.store(&mut bytes);
        convert(from, to, &bytes, &mut into);
        U::load(&into)
    }

    #[test]
    fn half_precision_values_round_trip_through_float64() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            let wide: f64 = converted(Element::F16, Element::F64, half);
            let back: f16 = converted(Element::F64, Element::F16, wide);
            assert!(back.to_bits() == bits || half.is_nan() && back.is_nan(), "float16 {half}");
            let wide: f64 = converted(Element::Bf16, Element::F64, brain);
            let back: bf16 = converted(Element::F64, Element::Bf16, wide);
            assert!(back.to_bits() == bits || brain.is_nan() && back.is_nan(), "bfloat16 {brain}");
        }
    }

    #[test]
    fn a_value_is_rounded_once() {
        // Just above the midpoint of two neighbors: rounding to float32 first gives the midpoint, and then the lower
        // one.
        let tiny = f64::from(f32::EPSILON) / 16.0;
        let rounded: f16 = converted(Element::F64, Element::F16, 1.0 + f64::from(f16::EPSILON) / 2.0 + tiny);
        assert_eq!(rounded, f16::from_f32(1.0) + f16::EPSILON);
        let rounded: bf16 = converted(Element::F64, Element::Bf16, -1.0 - f64::from(bf16::EPSILON) / 2.0 - tiny);
        assert_eq!(rounded, -(bf16::from_f32(1.0) + bf16::EPSILON));
        let rounded: f16 = converted(Element::F64, Element::F16, 1.0 + f64::from(f16::EPSILON) / 2.0 - tiny);
        assert_eq!(rounded, f16::from_f32(1.0));
        let rounded: f32 = converted(Element::F64, Element::F32, 16_777_217.0);
        assert_eq!(rounded, 16_777_216.0);
        let rounded: f16 = converted(Element::F64, Element::F16, 1e300);
        assert_eq!(rounded, f16::INFINITY);
        let rounded: f16 = converted(Element::F64, Element::F16, -1e-300);
        assert_eq!(rounded.to_bits(), f16::NEG_ZERO.to_bits());
    }

    #[test]
    fn only_sums_and_products_of_floats_have_another_accumulator() {
        for element in Element::ALL {
            for op in Op::ALL {
                let is_wide = element.is_float() && matches!(op, Op::Sum | Op::Prod);
                let expected = if is_wide { Element::F64 } else { element };
                assert_eq!(element.accumulator(op), expected, "{element:?} {op:?}");
            }
        }
    }
}
