//! Repulsion between a few points and a strip of many points.
//!
//! The positions of the strip are vectors. Each is loaded once for all of the few points, and their sums stay in
//! registers. The opposite forces are added up over the few points and then added to the sums of the strip, which stay
//! in the L1 cache.
//!
//! Cost of a pair in `k` dimensions: `2·k` operations for the distance, a division, `k` for the force on one point and
//! `k` for the force on the other.

use super::LEAST_DISTANCE;
use crate::pairs::MOST_DIMENSIONS;
use crate::panels::PanelLine;
use crate::simd::Vector;

/// Largest number of points in a strip.
pub(super) const STRIP: usize = 1024;

/// Many points, dimension by dimension, in whole lines. `stride` is the distance between dimensions.
pub(super) struct Strip<'a> {
    pub positions: &'a [f32],
    pub stride: usize,
    /// Number of points, including the padding of the last line.
    pub padded: usize,
}

/// Weight of each point of a strip: the number of points that it represents, and their spread around it.
#[derive(Clone, Copy)]
pub(super) struct Weights<'a> {
    pub counts: &'a [f32],
    pub spreads: &'a [f32],
}

/// Return the repulsion of the strip on each of the few points, `(x − y)/d²` per pair.
///
/// With `WEIGHTED`, each point of the strip counts with its weight. In more than two dimensions its spread is added to
/// the squared distance. With `MUTUAL`, the opposite forces are added to `pushes`, `STRIP` values per dimension. `K` is
/// the number of dimensions; if `K` is the maximum, the length of the few positions is used instead.
#[inline(always)]
pub(super) fn push<V: Vector, const K: usize, const FEW: usize, const MUTUAL: bool, const WEIGHTED: bool>(
    few: [&[f32]; FEW],
    strip: &Strip,
    weights: Weights,
    pushes: &mut [f32],
) -> [[f32; K]; FEW] {
    // With a constant number of dimensions all sums stay in registers.
    let k = if K == MOST_DIMENSIONS { few[0].len() } else { K };
    let padded = strip.padded;
    assert!(k <= K && few.iter().all(|position| position.len() == k) && padded.is_multiple_of(PanelLine::LEN));
    assert!(strip.stride.is_multiple_of(PanelLine::LEN) && (k - 1) * strip.stride + padded <= strip.positions.len());
    assert!(!WEIGHTED || padded <= weights.counts.len() && padded <= weights.spreads.len());
    assert!(!MUTUAL || padded <= STRIP && k * STRIP <= pushes.len());
    let zero = V::splat(0.0);
    let least = V::splat(LEAST_DISTANCE * LEAST_DISTANCE);
    let mut here = [[zero; K]; FEW];
    for (here, position) in here.iter_mut().zip(few) {
        here.iter_mut().zip(position).for_each(|(here, &value)| *here = V::splat(value));
    }
    let mut sums = [[zero; K]; FEW];
    let (mut between, mut back) = ([zero; K], [zero; K]);
    for at in (0..padded).step_by(V::LANES) {
        // SAFETY: whole lines are within the strip by the checks above. Each dimension starts at a line, and a line is
        // at least as long as a vector of any level. (The same holds for every load and store below.)
        let there = |axis: usize| unsafe { V::load(strip.positions.as_ptr().add(axis * strip.stride + at)) };
        // SAFETY: as above.
        let weight = if WEIGHTED { unsafe { V::load(weights.counts.as_ptr().add(at)) } } else { V::splat(1.0) };
        // SAFETY: as above.
        let spread = if WEIGHTED && K > 2 { unsafe { V::load(weights.spreads.as_ptr().add(at)) } } else { zero };
        let mut push_back = |axis: usize, factor: V, between: V| {
            // SAFETY: as above.
            unsafe {
                let to = pushes.as_mut_ptr().add(axis * STRIP + at);
                factor.multiply_subtract_from(between, V::load(to)).store(to);
            }
        };
        for row in 0..FEW {
            let mut square = spread;
            for axis in 0..k {
                between[axis] = here[row][axis].subtract(there(axis));
                square = between[axis].multiply_add(between[axis], square);
            }
            let factor = weight.divide(square.maximum(least));
            for axis in 0..k {
                sums[row][axis] = factor.multiply_add(between[axis], sums[row][axis]);
                if MUTUAL && FEW == 1 {
                    push_back(axis, factor, between[axis]);
                } else if MUTUAL {
                    let before = if row == 0 { zero } else { back[axis] };
                    back[axis] = factor.multiply_add(between[axis], before);
                }
            }
        }
        if MUTUAL && FEW > 1 {
            (0..k).for_each(|axis| push_back(axis, V::splat(1.0), back[axis]));
        }
    }
    let mut totals = [[0.0; K]; FEW];
    for axis in 0..k {
        let of = |row: usize| if row < FEW { sums[row][axis] } else { zero };
        let found = V::totals([of(0), of(1), of(2), of(3)]);
        totals.iter_mut().zip(found).for_each(|(to, total)| to[axis] = total);
    }
    totals
}
