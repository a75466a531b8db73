//! Looks for values that no kernel can use.

use crate::{Matrix, Point, Threads};

/// The row and column of the first infinite or NaN value, in row order.
pub fn first_non_finite<P: Point>(points: Matrix<P>, _threads: &Threads) -> Option<(usize, usize)> {
    let index = points.values().iter().position(|value| !value.is_finite())?;
    Some((index / points.columns(), index % points.columns()))
}
