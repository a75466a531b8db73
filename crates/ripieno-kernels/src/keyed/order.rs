//! Sorting of strings, and concatenation of strings in any order.

use super::strings::{Strings, prefix};

/// Return the positions of `keys` in the order of their bytes. Equal keys keep their order, also if `descending`.
///
/// Cost: a sort of 16 bytes per string. It reads the strings only where their first 8 bytes are equal.
pub fn order_of_strings(keys: Strings<'_>, descending: bool) -> Vec<i64> {
    let flip = if descending { u64::MAX } else { 0 };
    let prefix_key = |key: &[u8]| (prefix(key) as u64).swap_bytes() ^ flip;
    let mut order: Vec<(u64, i64)> = keys.iter().map(prefix_key).zip(0..).collect();
    order.sort_unstable_by(|a, b| {
        a.0.cmp(&b.0).then_with(|| {
            let full_order = keys.get(a.1 as usize).cmp(keys.get(b.1 as usize));
            (if descending { full_order.reverse() } else { full_order }).then(a.1.cmp(&b.1))
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
