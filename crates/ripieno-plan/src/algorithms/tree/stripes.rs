//! Stripe trees: one tree per stripe, such that every rank except the root has children in at most one tree.
//!
//! The `m = p-1` ranks other than the root are numbered by distance. Tree `s` is a `k`-ary heap below the root. It
//! contains the numbers that equal `s` modulo `k` first, then all others. If `m` modulo `k` is 0 or 1, the first
//! numbers fill all positions with children. So no rank sends more than `k` stripes, which equal the vector.
//!
//! Source: Castro et al., "SplitStream: high-bandwidth multicast in cooperative environments", SOSP 2003, section 3.

use super::TreePosition;
use crate::Group;

/// Largest number of stripes. More stripes hardly reduce the depth, and every rank has one stream per stripe.
const STRIPES_MAX: usize = 8;

/// Return the number of stripes for `size` ranks: the largest number such that no rank has children in two trees.
pub(crate) fn stripe_count(size: usize) -> usize {
    let count = size.saturating_sub(1);
    (1..=STRIPES_MAX.min(count)).rev().find(|stripes| count % stripes <= 1).unwrap_or(1)
}

/// Return the position of the group's own rank in the tree of `stripe` below `root`.
pub(crate) fn stripe_tree(group: &Group, root: usize, stripe: usize) -> TreePosition {
    let (stripes, count) = (stripe_count(group.size()), group.size() - 1);
    let rank = |position: usize| group.at_distance(root, number_at(position, stripe, stripes, count) + 1);
    let distance = group.distance_from(root);
    if distance == 0 {
        return TreePosition { parent: None, children: (0..count.min(1)).map(rank).collect() };
    }
    let position = position_of(distance - 1, stripe, stripes, count);
    let parent = group.at_distance(root, stripe_parent(distance, group.size(), stripe));
    TreePosition { parent: Some(parent), children: children(position, stripes, count).map(rank).collect() }
}

/// Return the distance of the parent of the rank at `distance` in the tree of `stripe`. `distance` is not 0.
pub(crate) fn stripe_parent(distance: usize, size: usize, stripe: usize) -> usize {
    let (stripes, count) = (stripe_count(size), size - 1);
    match position_of(distance - 1, stripe, stripes, count) {
        0 => 0,
        position => number_at((position - 1) / stripes, stripe, stripes, count) + 1,
    }
}

/// Return the number of children of the rank at `distance` in the tree of `stripe`.
pub(crate) fn stripe_degree(distance: usize, size: usize, stripe: usize) -> usize {
    let (stripes, count) = (stripe_count(size), size - 1);
    match distance {
        0 => count.min(1),
        _ => children(position_of(distance - 1, stripe, stripes, count), stripes, count).len(),
    }
}

/// Return the number of hops to the farthest rank.
pub(crate) fn stripe_depth(size: usize) -> usize {
    let mut hops = (size - 1).min(1);
    let mut position = size.saturating_sub(2);
    while position > 0 {
        position = (position - 1) / stripe_count(size);
        hops += 1;
    }
    hops
}

fn children(position: usize, stripes: usize, count: usize) -> core::ops::Range<usize> {
    (position * stripes + 1).min(count)..((position + 1) * stripes + 1).min(count)
}

/// Return the number of the rank at a position of the tree of `stripe`.
fn number_at(position: usize, stripe: usize, stripes: usize, count: usize) -> usize {
    let inner_count = (count - stripe).div_ceil(stripes);
    if position < inner_count {
        return stripe + position * stripes;
    }
    let leaf = position - inner_count;
    // The remaining numbers in order: the gaps before and between the inner ones.
    if leaf < stripe || stripes == 1 { leaf } else { leaf + 1 + ((leaf - stripe) / (stripes - 1)).min(inner_count - 1) }
}

fn position_of(number: usize, stripe: usize, stripes: usize, count: usize) -> usize {
    let inner_count = (count - stripe).div_ceil(stripes);
    if number % stripes == stripe {
        return number / stripes;
    }
    let inner_before = (number + stripes - stripe - 1) / stripes;
    inner_count + number - inner_before
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn every_stripe_has_a_tree_and_no_rank_has_children_in_two() {
        for p in 2..=130 {
            for root in [0, p / 2] {
                let groups: Vec<Group> = (0..p).map(|rank| Group::new(rank, p)).collect();
                let mut inner_count = alloc::vec![0; p];
                for stripe in 0..stripe_count(p) {
                    let positions: Vec<TreePosition> =
                        groups.iter().map(|group| stripe_tree(group, root, stripe)).collect();
                    let edge_count: usize = positions.iter().map(|position| position.children.len()).sum();
                    assert_eq!(edge_count, p - 1, "p {p}, stripe {stripe}");
                    for (rank, position) in positions.iter().enumerate() {
                        assert_eq!(position.parent.is_none(), rank == root);
                        let has_this_parent = |&child: &usize| positions[child].parent == Some(rank);
                        assert!(position.children.iter().all(has_this_parent), "p {p}, stripe {stripe}, rank {rank}");
                        inner_count[rank] += usize::from(!position.children.is_empty());
                    }
                }
                let others = inner_count.iter().enumerate().filter(|(rank, _)| *rank != root);
                assert!(others.into_iter().all(|(_, &count)| count <= 1), "p {p}: {inner_count:?}");
            }
        }
    }
}
