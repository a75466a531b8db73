//! Columns of named features: 32-bit MurmurHash3 with seed 0, as in scikit-learn's `FeatureHasher`.
//!
//! Source: Weinberger et al., "Feature hashing for large scale multitask learning", ICML 2009; the reference
//! implementation of MurmurHash3_x86_32 (Appleby).

use super::Strings;

/// The column of a feature, and whether its value is negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeaturePlace {
    /// The column, below the number of columns.
    pub column: u32,
    /// The sign bit of the hash. The column depends on the absolute value.
    pub is_negative: bool,
}

/// Return the places of the named features among `column_count` columns. `column_count` is at least 1.
pub fn feature_places(names: Strings<'_>, column_count: u32) -> Vec<FeaturePlace> {
    (0..names.len()).map(|number| place(murmur3(names.get(number)), column_count)).collect()
}

fn place(hash: u32, column_count: u32) -> FeaturePlace {
    let signed = hash as i32;
    FeaturePlace { column: signed.unsigned_abs() % column_count, is_negative: signed < 0 }
}

fn murmur3(bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<4>();
    let mut hash = 0u32;
    for block in blocks {
        hash = (hash ^ mixed(u32::from_le_bytes(*block))).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let tail = rest.iter().rev().fold(0, |tail, &byte| tail << 8 | u32::from(byte));
    hash ^= mixed(tail);
    hash ^= bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

fn mixed(block: u32) -> u32 {
    block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_match_the_reference() {
        let known = [("", 0), ("a", 0x3c25_69b2), ("abc", 0xb3dd_93fa), ("Hello, world!", 0xc036_3e43)];
        assert_eq!(known.map(|(text, _)| murmur3(text.as_bytes())), known.map(|(_, hash)| hash));
    }

    #[test]
    fn the_most_negative_hash_has_a_place() {
        let expected = FeaturePlace { column: (1u32 << 31) % 1000, is_negative: true };
        assert_eq!(place(1 << 31, 1000), expected);
    }
}
