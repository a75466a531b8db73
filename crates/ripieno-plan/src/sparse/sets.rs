//! From keys in any order to a set, and back.

use alloc::vec;
use alloc::vec::Vec;

/// The keys without repetition, ascending, and for each of `keys` its place there.
///
/// A radix sort over the bytes in which the keys differ. Cost: a pass over the keys to count, and one per such byte to
/// move. Panics if there are `2^32` keys or more.
pub fn sorted_unique(keys: &[u64]) -> (Vec<u64>, Vec<u32>) {
    assert!(keys.len() <= u32::MAX as usize, "places have 32 bits");
    let mut unique = Vec::with_capacity(keys.len());
    let mut places = vec![0; keys.len()];
    if keys.is_sorted() {
        keys.iter().zip(&mut places).for_each(|(&key, place)| *place = append(&mut unique, key));
        return (unique, places);
    }
    for (key, origin) in sorted(keys) {
        places[origin as usize] = append(&mut unique, key);
    }
    (unique, places)
}

/// Appends a key unless it is the last already; returns its place.
fn append(unique: &mut Vec<u64>, key: u64) -> u32 {
    if unique.last() != Some(&key) {
        unique.push(key);
    }
    unique.len() as u32 - 1
}

const DIGIT_BITS: usize = 8;
const DIGIT_COUNT: usize = u64::BITS as usize / DIGIT_BITS;

fn digit(key: u64, number: usize) -> usize {
    (key >> (DIGIT_BITS * number)) as usize & ((1 << DIGIT_BITS) - 1)
}

/// The keys ascending, each with where it came from: digit by digit, the lowest first, keeping the order of equal ones.
fn sorted(keys: &[u64]) -> Vec<(u64, u32)> {
    let mut counts = [[0_u32; 1 << DIGIT_BITS]; DIGIT_COUNT];
    for &key in keys {
        counts.iter_mut().enumerate().for_each(|(number, counts)| counts[digit(key, number)] += 1);
    }
    let mut items: Vec<(u64, u32)> = keys.iter().copied().zip(0..).collect();
    let mut moved = vec![(0, 0); keys.len()];
    for (number, counts) in counts.iter_mut().enumerate() {
        if counts.contains(&(keys.len() as u32)) {
            continue;
        }
        let mut next = 0;
        for count in counts.iter_mut() {
            next += core::mem::replace(count, next);
        }
        for &item in &items {
            let place = &mut counts[digit(item.0, number)];
            moved[*place as usize] = item;
            *place += 1;
        }
        core::mem::swap(&mut items, &mut moved);
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_key_is_at_its_place(keys in prop::collection::vec(prop_oneof![0..20_u64, any::<u64>()], 0..300)) {
            let (unique, places) = sorted_unique(&keys);
            prop_assert!(unique.iter().eq(&keys.iter().copied().collect::<BTreeSet<u64>>()));
            prop_assert!(places.iter().map(|&place| unique[place as usize]).eq(keys));
        }

        #[test]
        fn sorted_keys_are_placed_as_others(mut keys in prop::collection::vec(0..50_u64, 0..100)) {
            keys.sort_unstable();
            let (unique, places) = sorted_unique(&keys);
            prop_assert!(unique.is_sorted_by(|a, b| a < b));
            prop_assert!(places.iter().map(|&place| unique[place as usize]).eq(keys));
        }
    }
}
