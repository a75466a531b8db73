//! Typed reductions: combine received bytes into local bytes, element by element.
//!
//! The slices may have any alignment. Integers wrap around. `min` and `max` of floats return NaN if either operand is
//! NaN, and order -0 below +0. So every operation gives the same bits for both orders of its operands. Half precision
//! is combined in single precision and rounded once. Cost: one pass. The widest available vector instructions are
//! chosen at run time.
//!
//! This is a separate crate, because its loops are optimized for speed, while the crates that run plans are optimized
//! for size.

mod accumulators;
mod arg_reduction;
mod element;
mod function;
mod number;
pub mod rows;

pub use accumulators::convert;
pub use arg_reduction::arg_reduction;
pub use element::Element;
pub use function::Function;

use half::{bf16, f16};
use number::{And, Max, Min, NumericType, Operator, Or, Prod, Sum, Xor};
use ripieno_plan::Op;
use std::marker::PhantomData;

/// The operation is undefined for the element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("op {} has no meaning on {}: expected sum, prod, min or max", .op.name(), .element.name())]
pub struct UnsupportedOp {
    /// The requested operation.
    pub op: Op,
    /// The requested element type.
    pub element: Element,
}

/// Reduction functions for one element type and one operation.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    /// Size of an element in bytes.
    pub element_bytes: usize,
    /// Combines the elements of `from` into the elements of `into`. Both slices have the same length, in whole
    /// elements.
    pub combine: fn(into: &mut [u8], from: &[u8]),
    /// Combines the consecutive rows of `from` into the rows `numbers` of `into`. The numbers may have any order, and
    /// repeated numbers combine repeatedly. A row has `row_bytes` bytes, whole elements. Panics if `into` has no such
    /// row.
    pub combine_rows: fn(into: &mut [u8], from: &[u8], numbers: &[u32], row_bytes: usize),
    /// Sets every element to the identity of the operation. For sums of floats this is +0, which turns -0 into +0.
    pub fill: fn(into: &mut [u8]),
}

impl Reduction {
    /// Return the reduction of `element` by `op`.
    pub fn of(element: Element, op: Op) -> Result<&'static Reduction, UnsupportedOp> {
        let is_bitwise = matches!(op, Op::And | Op::Or | Op::Xor);
        if op == Op::Function || element.is_float() && is_bitwise {
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
}

fn for_type<T: NumericType>(op: Op) -> &'static Reduction {
    match op {
        Op::Sum => Compiled::<T, Sum>::REDUCTION,
        Op::Prod => Compiled::<T, Prod>::REDUCTION,
        Op::Min => Compiled::<T, Min>::REDUCTION,
        Op::Max => Compiled::<T, Max>::REDUCTION,
        Op::And => Compiled::<T, And>::REDUCTION,
        Op::Or => Compiled::<T, Or>::REDUCTION,
        Op::Xor => Compiled::<T, Xor>::REDUCTION,
        Op::Function => unreachable!("Reduction::of rejects functions"),
    }
}

/// The compiled loops for one type and one operation.
struct Compiled<T, O>(PhantomData<(T, O)>);

impl<T: NumericType, O: Operator> Compiled<T, O> {
    const REDUCTION: &'static Reduction = &Reduction {
        element_bytes: size_of::<T>(),
        combine: widest::<T, O>,
        combine_rows: rows::<T, O>,
        fill: fill::<T, O>,
    };
}

/// Run the loop that is compiled for the widest vectors of this processor.
fn widest<T: NumericType, O: Operator>(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "both operands of a reduction have the same length");
    #[cfg(target_arch = "x86_64")]
    if into.len() >= 64 && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
        // SAFETY: the processor supports the features that the function is compiled for.
        return unsafe { with_avx2::<T, O>(into, from) };
    }
    each::<T, O>(into, from);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn with_avx2<T: NumericType, O: Operator>(into: &mut [u8], from: &[u8]) {
    each::<T, O>(into, from);
}

#[inline(always)]
fn each<T: NumericType, O: Operator>(into: &mut [u8], from: &[u8]) {
    let pairs = into.chunks_exact_mut(size_of::<T>()).zip(from.chunks_exact(size_of::<T>()));
    for (a, b) in pairs {
        O::apply(T::load(a), T::load(b)).store(a);
    }
}

/// Combine consecutive rows. Short rows are limited by memory latency, independent of the vector width.
fn rows<T: NumericType, O: Operator>(into: &mut [u8], from: &[u8], numbers: &[u32], row_bytes: usize) {
    assert_eq!(from.len(), numbers.len() * row_bytes, "there is one row per number");
    assert!(row_bytes.is_multiple_of(size_of::<T>()), "a row consists of whole elements");
    match row_bytes {
        4 => short_rows::<T, O, 4>(into, from, numbers),
        8 => short_rows::<T, O, 8>(into, from, numbers),
        16 => short_rows::<T, O, 16>(into, from, numbers),
        32 => short_rows::<T, O, 32>(into, from, numbers),
        64 => short_rows::<T, O, 64>(into, from, numbers),
        _ => {
            for (row, &number) in from.chunks_exact(row_bytes).zip(numbers) {
                widest::<T, O>(&mut into[number as usize * row_bytes..][..row_bytes], row);
            }
        }
    }
}

/// Combine rows of a length known at compile time, which is a few times faster than an inner loop.
fn short_rows<T: NumericType, O: Operator, const ROW_BYTES: usize>(into: &mut [u8], from: &[u8], numbers: &[u32]) {
    let (rows, _) = from.as_chunks::<ROW_BYTES>();
    let (targets, _) = into.as_chunks_mut::<ROW_BYTES>();
    for (row, &number) in rows.iter().zip(numbers) {
        each::<T, O>(&mut targets[number as usize], row);
    }
}

fn fill<T: NumericType, O: Operator>(into: &mut [u8]) {
    for element in into.chunks_exact_mut(size_of::<T>()) {
        O::identity::<T>().store(element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combined<T: NumericType, const N: usize>(element: Element, op: Op, a: [T; N], b: [T; N]) -> Vec<T> {
        let bytes = |values: &[T]| {
            let mut bytes = vec![0; size_of_val(values)];
            for (value, target) in values.iter().zip(bytes.chunks_exact_mut(size_of::<T>())) {
                value.store(target);
            }
            bytes
        };
        let mut into = bytes(&a);
        (Reduction::of(element, op).expect("the operation is defined").combine)(&mut into, &bytes(&b));
        into.chunks_exact(size_of::<T>()).map(T::load).collect()
    }

    #[test]
    fn each_operation_returns_its_value() {
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
    fn long_vectors_give_the_same_results_as_single_elements() {
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
    fn min_and_max_produce_the_same_bits_in_either_order() {
        let values = [0.0f64, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        for op in [Op::Min, Op::Max] {
            for a in values {
                for b in values {
                    let forward = combined(Element::F64, op, [a], [b])[0].to_bits();
                    let backward = combined(Element::F64, op, [b], [a])[0].to_bits();
                    assert_eq!(forward, backward, "{op:?} of {a} and {b}");
                }
            }
        }
        assert_eq!(combined(Element::F64, Op::Min, [0.0f64], [-0.0])[0].to_bits(), (-0.0f64).to_bits());
        assert!(combined(Element::F64, Op::Max, [1.0f64], [f64::NAN])[0].is_nan());
    }

    /// Return every defined reduction.
    fn all() -> impl Iterator<Item = (Element, Op, &'static Reduction)> {
        let pairs = Element::ALL.into_iter().flat_map(|element| Op::ALL.into_iter().map(move |op| (element, op)));
        pairs.filter_map(|(element, op)| Some((element, op, Reduction::of(element, op).ok()?)))
    }

    #[test]
    fn combining_with_an_identity_changes_nothing() {
        let values: Vec<u8> = (0..64).flat_map(|i| (1000.5 - 30.0 * f64::from(i)).to_ne_bytes()).collect();
        for (element, op, reduction) in all() {
            assert_eq!(reduction.element_bytes, element.size_bytes());
            let mut combined = vec![77; values.len()];
            (reduction.fill)(&mut combined);
            (reduction.combine)(&mut combined, &values);
            // Compare floats as numbers: 0 + -0 is 0, and NaN differs from itself.
            let is_same = |found: &[u8], value: &[u8]| match element {
                Element::F16 => f16::load(found) == f16::load(value) || f16::load(value).is_nan(),
                Element::Bf16 => bf16::load(found) == bf16::load(value) || bf16::load(value).is_nan(),
                Element::F32 => f32::load(found) == f32::load(value) || f32::load(value).is_nan(),
                Element::F64 => f64::load(found) == f64::load(value) || f64::load(value).is_nan(),
                _ => found == value,
            };
            let size = element.size_bytes();
            for (found, value) in combined.chunks(size).zip(values.chunks(size)) {
                assert!(is_same(found, value), "{element:?} {op:?}: {value:?} became {found:?}");
            }
        }
    }

    #[test]
    fn combining_rows_equals_combining_them_one_by_one() {
        // Out of order, with one repeated number.
        let numbers = [3, 0, 7, 8, 3, 1, 11];
        for (element, op, reduction) in all() {
            for width in [1, 2, 3, 4, 8, 9, 16, 33] {
                let row_bytes = width * element.size_bytes();
                // Start at the second byte, so that no element is aligned.
                let table: Vec<u8> = (0..1 + 12 * row_bytes).map(|i| (i * 37 % 120) as u8).collect();
                let rows: Vec<u8> = (0..1 + numbers.len() * row_bytes).map(|i| (i * 53 % 120) as u8).collect();
                let (mut found, mut expected) = (table.clone(), table);
                (reduction.combine_rows)(&mut found[1..], &rows[1..], &numbers, row_bytes);
                for (number, row) in numbers.iter().zip(rows[1..].chunks(row_bytes)) {
                    let start = 1 + *number as usize * row_bytes;
                    (reduction.combine)(&mut expected[start..start + row_bytes], row);
                }
                assert_eq!(found, expected, "{element:?} {op:?}, rows of {width}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_row_that_does_not_exist_is_not_combined() {
        let sum = Reduction::of(Element::F32, Op::Sum).expect("the operation is defined");
        (sum.combine_rows)(&mut [0; 12], &[0; 4], &[3], 4);
    }

    #[test]
    fn bitwise_operations_on_floats_are_rejected() {
        let error = Reduction::of(Element::F32, Op::Xor).expect_err("the operation is undefined");
        assert_eq!(error.to_string(), "op xor has no meaning on float32: expected sum, prod, min or max");
    }
}
