//! Unions of sorted lists of keys, with the place of every key in the union.
//!
//! Lists are merged pairwise, as a binary tree, so that those that meet are about equally long; no hash tables. Cost:
//! each key is read once per level.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section VI.A.

use alloc::vec;
use alloc::vec::Vec;

/// The union of ascending lists, and per list the place of each of its keys.
pub(super) fn union(lists: &[&[u64]]) -> (Vec<u64>, Vec<Vec<u32>>) {
    match *lists {
        [] => (Vec::new(), Vec::new()),
        [list] => (list.to_vec(), vec![(0..list.len() as u32).collect()]),
        [left, right] => {
            let (keys, of_left, of_right) = merge(left, right);
            (keys, vec![of_left, of_right])
        }
        _ => {
            let (left, right) = lists.split_at(lists.len().div_ceil(2));
            let ((left, left_places), (right, right_places)) = (union(left), union(right));
            let (keys, of_left, of_right) = merge(&left, &right);
            let mut places = left_places;
            places.iter_mut().flatten().for_each(|place| *place = of_left[*place as usize]);
            let first_right = places.len();
            places.extend(right_places);
            places[first_right..].iter_mut().flatten().for_each(|place| *place = of_right[*place as usize]);
            (keys, places)
        }
    }
}

/// The union of two ascending lists, and the place of each key of either. Without a branch that depends on the keys.
fn merge(left: &[u64], right: &[u64]) -> (Vec<u64>, Vec<u32>, Vec<u32>) {
    let mut keys = vec![0; left.len() + right.len()];
    let (mut of_left, mut of_right) = (vec![0; left.len()], vec![0; right.len()]);
    let (mut i, mut j, mut count) = (0, 0, 0);
    while i < left.len() && j < right.len() {
        let (a, b) = (left[i], right[j]);
        keys[count] = a.min(b);
        // The larger of the two is not placed yet: it gets its place when its turn comes.
        of_left[i] = count as u32;
        of_right[j] = count as u32;
        i += usize::from(a <= b);
        j += usize::from(b <= a);
        count += 1;
    }
    for (list, places, next) in [(left, &mut of_left, i), (right, &mut of_right, j)] {
        for (key, place) in list[next..].iter().zip(&mut places[next..]) {
            keys[count] = *key;
            *place = count as u32;
            count += 1;
        }
    }
    keys.truncate(count);
    (keys, of_left, of_right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_key_is_placed(sets in prop::collection::vec(prop::collection::btree_set(0_u64..60, 0..30), 0..9)) {
            let lists: Vec<Vec<u64>> = sets.iter().map(|set| set.iter().copied().collect()).collect();
            let slices: Vec<&[u64]> = lists.iter().map(Vec::as_slice).collect();
            let (keys, places) = union(&slices);
            prop_assert!(keys.iter().copied().eq(sets.iter().flatten().copied().collect::<BTreeSet<u64>>()));
            for (list, places) in lists.iter().zip(&places) {
                prop_assert!(places.iter().map(|&place| keys[place as usize]).eq(list.iter().copied()));
            }
        }
    }
}
