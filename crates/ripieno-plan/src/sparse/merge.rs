//! Unions of sorted lists of keys, with the position of every key in the union.
//!
//! Lists are merged pairwise as a binary tree, so that merged lists have similar lengths; there are no hash tables.
//! Cost: each key is read once per level.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section VI.A.

use super::row_map::RowMap;
use super::team::{WorkTeam, cut, each, ranges};
use alloc::vec;
use alloc::vec::Vec;
use core::{iter, mem};

/// Estimated cost of merging two keys, in operations.
const MERGE_OPERATIONS: usize = 4;

/// Return the union of ascending lists, and per list the position of each of its keys.
///
/// A team divides the keys into ranges. Each piece of work merges the keys of all lists in one range.
pub(super) fn union(lists: &[&[u64]], team: &dyn WorkTeam) -> (Vec<u64>, Vec<RowMap>) {
    let lengths: Vec<usize> = lists.iter().map(|list| list.len()).collect();
    let levels = lists.len().next_power_of_two().ilog2() as usize;
    let operations = MERGE_OPERATIONS * levels * lengths.iter().sum::<usize>();
    let longest = lists.iter().copied().max_by_key(|list| list.len()).unwrap_or(&[]);
    let cuts: Vec<u64> =
        ranges(team, operations, longest.len(), 1)[1..].iter().map(|range| longest[range.start]).collect();
    // Per list: its cut positions, including both ends.
    let starts = |list: &&[u64]| {
        let inner = cuts.iter().map(|cut| list.partition_point(|key| key < cut));
        iter::once(0).chain(inner).chain([list.len()]).collect()
    };
    let starts: Vec<Vec<usize>> = lists.iter().map(starts).collect();
    let piece = |number: usize| {
        let lists = lists.iter().zip(&starts).map(|(list, starts)| &list[starts[number]..starts[number + 1]]);
        merged(&lists.collect::<Vec<&[u64]>>())
    };
    let mut pieces = each(team, operations, (0..=cuts.len()).collect(), piece);
    if let [(keys, positions)] = &mut pieces[..] {
        return (
            mem::take(keys),
            mem::take(positions).into_iter().map(|positions| RowMap::of(positions.into())).collect(),
        );
    }

    let key_counts: Vec<usize> = pieces.iter().map(|(keys, _)| keys.len()).collect();
    let mut keys = vec![0; key_counts.iter().sum()];
    let parts = cut(&mut keys, key_counts.iter().copied()).into_iter().zip(&pieces).collect();
    each(team, operations, parts, |(part, (keys, _)): (&mut [u64], &(Vec<u64>, _))| part.copy_from_slice(keys));
    let maps = RowMap::all(team, &lengths, |list, range, rows| {
        let (mut rows, mut base) = (rows.iter_mut(), 0);
        for ((_, positions), (ends, count)) in pieces.iter().zip(starts[list].windows(2).zip(&key_counts)) {
            let (start, end) = (ends[0].max(range.start), ends[1].min(range.end));
            let positions = if start < end { &positions[list][start - ends[0]..end - ends[0]] } else { &[] };
            positions.iter().zip(rows.by_ref()).for_each(|(position, row)| *row = base + position);
            base += *count as u32;
        }
    });
    (keys, maps)
}

/// Merge ascending lists. Return the union, and per list the position of each of its keys.
fn merged(lists: &[&[u64]]) -> (Vec<u64>, Vec<Vec<u32>>) {
    match *lists {
        [] => (Vec::new(), Vec::new()),
        [list] => (list.to_vec(), vec![(0..list.len() as u32).collect()]),
        [left, right] => {
            let (keys, left_map, right_map) = merge(left, right);
            (keys, vec![left_map, right_map])
        }
        _ => {
            let (left, right) = lists.split_at(lists.len().div_ceil(2));
            let ((left, left_positions), (right, right_positions)) = (merged(left), merged(right));
            let (keys, left_map, right_map) = merge(&left, &right);
            let mut positions = left_positions;
            positions.iter_mut().flatten().for_each(|position| *position = left_map[*position as usize]);
            let first_right = positions.len();
            positions.extend(right_positions);
            positions[first_right..]
                .iter_mut()
                .flatten()
                .for_each(|position| *position = right_map[*position as usize]);
            (keys, positions)
        }
    }
}

/// Merge two ascending lists. Return the union and the position of each key of either list. No branch depends on the
/// keys.
fn merge(left: &[u64], right: &[u64]) -> (Vec<u64>, Vec<u32>, Vec<u32>) {
    let mut keys = vec![0; left.len() + right.len()];
    let (mut left_map, mut right_map) = (vec![0; left.len()], vec![0; right.len()]);
    let (mut i, mut j, mut count) = (0, 0, 0);
    while i < left.len() && j < right.len() {
        let (a, b) = (left[i], right[j]);
        keys[count] = a.min(b);
        // The larger key is not placed yet. Its position is overwritten in a later iteration.
        left_map[i] = count as u32;
        right_map[j] = count as u32;
        i += usize::from(a <= b);
        j += usize::from(b <= a);
        count += 1;
    }
    for (list, positions, next) in [(left, &mut left_map, i), (right, &mut right_map, j)] {
        for (key, position) in list[next..].iter().zip(&mut positions[next..]) {
            keys[count] = *key;
            *position = count as u32;
            count += 1;
        }
    }
    keys.truncate(count);
    (keys, left_map, right_map)
}

#[cfg(test)]
mod tests {
    use super::super::team::tests::ReverseTeam;
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_key_has_its_position_in_the_union(
            sets in prop::collection::vec(prop::collection::btree_set(0_u64..60, 0..30), 0..9),
            size in 1..6_usize,
        ) {
            let lists: Vec<Vec<u64>> = sets.iter().map(|set| set.iter().copied().collect()).collect();
            let slices: Vec<&[u64]> = lists.iter().map(Vec::as_slice).collect();
            let (keys, maps) = union(&slices, &ReverseTeam(size));
            prop_assert!(keys.iter().copied().eq(sets.iter().flatten().copied().collect::<BTreeSet<u64>>()));
            for (list, map) in lists.iter().zip(&maps) {
                prop_assert!((0..map.len()).map(|row| keys[map.row(row) as usize]).eq(list.iter().copied()));
            }
        }
    }
}
