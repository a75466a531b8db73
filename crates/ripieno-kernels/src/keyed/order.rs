//! Sorting of strings, and concatenation of strings in any order.

use super::strings::{Strings, prefix};

/// Return the positions of `keys` in the order of their bytes. Equal keys keep their order, also if `descending`.
///
/// Cost: a sort of 16 bytes per string. It reads the strings only where their first 8 bytes are equal.
pub fn order_of_strings(keys: Strings<'_>, descending: bool) -> Vec<i64> {
    let flip = if descending { u64::MAX } else { 0 };
    let beginning = |key: &[u8]| (prefix(key) as u64).swap_bytes() ^ flip;
    let mut order: Vec<(u64, i64)> = keys.iter().map(beginning).zip(0..).collect();
    order.sort_unstable_by(|one, other| {
        one.0.cmp(&other.0).then_with(|| {
            let whole = keys.get(one.1 as usize).cmp(keys.get(other.1 as usize));
            (if descending { whole.reverse() } else { whole }).then(one.1.cmp(&other.1))
        })
    });
    order.into_iter().map(|(_, row)| row).collect()
}

/// Concatenate pieces of `data`, each with a start and a length. Return `None` if a piece exceeds the data, or if
/// `starts` and `lengths` differ in length.
pub fn joined_pieces(data: &[u8], starts: &[i64], lengths: &[i64]) -> Option<Vec<u8>> {
    if starts.len() != lengths.len() {
        return None;
    }
    let mut joined = Vec::new();
    for (&start, &length) in starts.iter().zip(lengths) {
        let (start, length) = (usize::try_from(start).ok()?, usize::try_from(length).ok()?);
        joined.extend_from_slice(data.get(start..start.checked_add(length)?)?);
    }
    Some(joined)
}
