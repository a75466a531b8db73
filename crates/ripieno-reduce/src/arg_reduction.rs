//! Argmin and argmax: combine rows of a value and its 8-byte index.

use super::Element;
use super::number::NumericType;
use half::{bf16, f16};
use std::cmp::Ordering;

/// Size of an index in bytes.
const INDEX_BYTES: usize = size_of::<i64>();

/// Combines the rows of the second slice into the rows of the first.
type RowCombine = fn(&mut [u8], &[u8]);

/// Return the row size in bytes and the function that combines rows of an `element` and an index. It keeps the smaller
/// value with its index, or the greater value if `is_greatest`. On a tie it keeps the first operand, which comes from
/// lower ranks. NaN takes precedence over numbers, as in NumPy.
pub fn arg_reduction(element: Element, is_greatest: bool) -> (usize, RowCombine) {
    let preferred = if is_greatest { Ordering::Greater } else { Ordering::Less };
    let row_bytes = element.size_bytes() + INDEX_BYTES;
    (
        row_bytes,
        match element {
            Element::I8 => of_type::<i8>(preferred),
            Element::I16 => of_type::<i16>(preferred),
            Element::I32 => of_type::<i32>(preferred),
            Element::I64 => of_type::<i64>(preferred),
            Element::U8 => of_type::<u8>(preferred),
            Element::U16 => of_type::<u16>(preferred),
            Element::U32 => of_type::<u32>(preferred),
            Element::U64 => of_type::<u64>(preferred),
            Element::F16 => of_type::<f16>(preferred),
            Element::Bf16 => of_type::<bf16>(preferred),
            Element::F32 => of_type::<f32>(preferred),
            Element::F64 => of_type::<f64>(preferred),
        },
    )
}

fn of_type<T: NumericType + PartialOrd>(preferred: Ordering) -> RowCombine {
    match preferred {
        Ordering::Less => |into, from| combine_rows::<T>(into, from, Ordering::Less),
        _ => |into, from| combine_rows::<T>(into, from, Ordering::Greater),
    }
}

fn combine_rows<T: NumericType + PartialOrd>(into: &mut [u8], from: &[u8], preferred: Ordering) {
    let row_bytes = size_of::<T>() + INDEX_BYTES;
    for (own, other) in into.chunks_exact_mut(row_bytes).zip(from.chunks_exact(row_bytes)) {
        let (before, after) = (T::load(&own[..size_of::<T>()]), T::load(&other[..size_of::<T>()]));
        let is_number = |value: T| value.partial_cmp(&value).is_some();
        if is_number(before) && (after.partial_cmp(&before) == Some(preferred) || !is_number(after)) {
            own.copy_from_slice(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: f64, index: i64) -> Vec<u8> {
        [value.to_ne_bytes(), index.to_ne_bytes()].concat()
    }

    #[test]
    fn ties_keep_the_first_operand_and_nan_takes_precedence() {
        let (row_bytes, least) = arg_reduction(Element::F64, false);
        assert_eq!(row_bytes, 16);
        let cases = [
            ((1.0, 2.0), 0),
            ((2.0, 1.0), 1),
            ((1.0, 1.0), 0),
            ((0.0, -0.0), 0),
            ((1.0, f64::NAN), 1),
            ((f64::NAN, 1.0), 0),
        ];
        for ((before, after), winner) in cases {
            let mut into = row(before, 0);
            least(&mut into, &row(after, 1));
            assert_eq!(into[8..], i64::to_ne_bytes(winner), "{before} and {after}");
        }
        let (_, greatest) = arg_reduction(Element::F64, true);
        let mut into = row(1.0, 0);
        greatest(&mut into, &row(2.0, 1));
        assert_eq!(into, row(2.0, 1));
    }
}
