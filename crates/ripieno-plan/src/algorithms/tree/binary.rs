//! Binary tree over a group: the children of distance `d` from the root are at distances `2d+1` and `2d+2`.
//!
//! Depth `floor(log2 p)`, at most two children.

use super::TreePosition;
use crate::Group;

/// Return the position of the group's own rank in the binary tree below `root`.
pub(crate) fn binary(group: &Group, root: usize) -> TreePosition {
    let distance = group.distance_from(root);
    let children = [2 * distance + 1, 2 * distance + 2].into_iter().filter(|&child| child < group.size());
    TreePosition {
        parent: (distance > 0).then(|| group.at_distance(root, (distance - 1) / 2)),
        children: children.map(|child| group.at_distance(root, child)).collect(),
    }
}

/// Return the number of children of the rank at `distance`.
pub(crate) fn binary_degree(distance: usize, size: usize) -> usize {
    size.saturating_sub(2 * distance + 1).min(2)
}
