//! Two binary trees over a group: no rank except the root has children in both trees.
//!
//! The `m = p-1` ranks other than the root form in-order binary trees, numbered `1..=m` from left to right. Odd numbers
//! are leaves. The first tree numbers the ranks by distance from the root. The second tree reverses the numbers if `m`
//! is even, and shifts them by one if `m` is odd. So the leaves of one tree are inner nodes of the other. The root is
//! the parent of the top of both trees. Depth `floor(log2 (p-1)) + 1`.
//!
//! Source: Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
//! Computing 2009.

use super::TreePosition;
use crate::Group;

/// Return the positions of the group's own rank in both trees below `root`.
pub(crate) fn double(group: &Group, root: usize) -> [TreePosition; 2] {
    let count = group.size() - 1;
    let mirrored = |number: usize| count + 1 - number;
    let number_in_second = |distance: usize| match count % 2 {
        0 => mirrored(distance),
        _ => {
            if distance == 1 {
                count
            } else {
                distance - 1
            }
        }
    };
    let distance_in_second = |number: usize| match count % 2 {
        0 => mirrored(number),
        _ => number % count + 1,
    };
    let position = |number_of: &dyn Fn(usize) -> usize, distance_of: &dyn Fn(usize) -> usize| {
        let number = match group.distance_from(root) {
            0 => 0,
            distance => number_of(distance),
        };
        let rank = |number: usize| match number {
            0 => root,
            number => group.at_distance(root, distance_of(number)),
        };
        TreePosition {
            parent: (number > 0).then(|| rank(parent(number, count))),
            children: children(number, count).into_iter().flatten().map(rank).collect(),
        }
    };
    [position(&|distance| distance, &|number| number), position(&number_in_second, &distance_in_second)]
}

/// Return the number of children of the rank at `distance` in each tree. The root has one child, odd numbers have none,
/// and even numbers have two, or one for the last number.
pub(crate) fn double_degrees(distance: usize, size: usize) -> [usize; 2] {
    let count = size - 1;
    if distance == 0 {
        return [count.min(1); 2];
    }
    let child_count = |number: usize| if number % 2 == 1 { 0 } else { 1 + usize::from(number < count) };
    let in_second = match (count % 2, distance) {
        (0, _) => count + 1 - distance,
        (_, 1) => count,
        _ => distance - 1,
    };
    [child_count(distance), child_count(in_second)]
}

/// Return the number of hops to the farthest rank. With two ranks both halves use the same link, one after the other.
pub(crate) fn double_depth(size: usize) -> usize {
    match size {
        1 => 0,
        2 => 2,
        _ => 1 + (size - 1).ilog2() as usize,
    }
}

/// Return the parent of `number` in the in-order tree over `1..=count`; 0, the root, for its top.
fn parent(number: usize, count: usize) -> usize {
    let (mut first, mut above) = (0, 0);
    let mut rest = count;
    // Descend: `top` is the root of the subtree over `first+1 ..= first+rest`.
    loop {
        let top = first + (1 << rest.ilog2());
        if number == top {
            return above;
        }
        above = top;
        if number < top {
            rest = top - first - 1;
        } else {
            rest = first + rest - top;
            first = top;
        }
    }
}

/// Return the left and right child of `number`.
fn children(number: usize, count: usize) -> [Option<usize>; 2] {
    // The root has the whole tree as its right child.
    let level = if number == 0 { usize::BITS - 1 } else { number.trailing_zeros() };
    let to_the_right = (count - number).min((1 << level) - 1);
    let left = (number > 0 && level > 0).then(|| number - (1 << (level - 1)));
    let right = (to_the_right > 0).then(|| number + (1 << to_the_right.ilog2()));
    [left, right]
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn parents_and_children_agree_and_no_rank_has_children_twice() {
        for p in 2..=130 {
            for root in [0, p / 2] {
                let positions: Vec<[TreePosition; 2]> = (0..p).map(|rank| double(&Group::new(rank, p), root)).collect();
                for tree in 0..2 {
                    for (rank, position) in positions.iter().enumerate() {
                        assert_eq!(position[tree].parent.is_none(), rank == root);
                        let has_this_parent = |&child: &usize| positions[child][tree].parent == Some(rank);
                        assert!(position[tree].children.iter().all(has_this_parent), "p {p}, tree {tree}, rank {rank}");
                    }
                    let edge_count: usize = positions.iter().map(|position| position[tree].children.len()).sum();
                    assert_eq!(edge_count, p - 1);
                }
                let has_children_twice =
                    |&rank: &usize| positions[rank].iter().all(|position| !position.children.is_empty());
                assert!((0..p).filter(has_children_twice).eq([root]), "p {p}");
            }
        }
    }
}
