//! Repulsion between a few points and a strip of many points.
//!
//! The positions of the strip are vectors. Each is loaded once for all of the few points, and their sums stay in
//! registers. The opposite forces are added up over the few points and then added to the sums of the strip, which stay
//! in the L1 cache.
//!
//! Cost of a pair in `k` dimensions: `2·k` operations for the distance, a division, `k` for the force on one point and
//! `k` for the force on the other.

use super::MIN_DISTANCE;
use crate::pairs::MAX_DIMENSIONS;
use crate::panels::PanelLine;
use crate::simd::Vector;

/// Largest number of points in a strip.
pub(super) const STRIP_POINTS: usize = 1024;

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
/// the squared distance. With `MUTUAL`, the opposite forces are added to `reactions`, `STRIP_POINTS` values per
/// dimension. `K` is the number of dimensions; if `K` is the maximum, the length of the few positions is used instead.
#[inline(always)]
pub(super) fn repel<V: Vector, const K: usize, const TARGETS: usize, const MUTUAL: bool, const WEIGHTED: bool>(
    targets: [&[f32]; TARGETS],
    strip: &Strip,
    weights: Weights,
    reactions: &mut [f32],
) -> [[f32; K]; TARGETS] {
    // With a constant number of dimensions all sums stay in registers.
    let k = if K == MAX_DIMENSIONS { targets[0].len() } else { K };
    let padded = strip.padded;
    assert!(k <= K && targets.iter().all(|position| position.len() == k) && padded.is_multiple_of(PanelLine::LEN));
    assert!(strip.stride.is_multiple_of(PanelLine::LEN) && (k - 1) * strip.stride + padded <= strip.positions.len());
    assert!(!WEIGHTED || padded <= weights.counts.len() && padded <= weights.spreads.len());
    assert!(!MUTUAL || padded <= STRIP_POINTS && k * STRIP_POINTS <= reactions.len());
    let zero = V::splat(0.0);
    let min_square = V::splat(MIN_DISTANCE * MIN_DISTANCE);
    let mut target = [[zero; K]; TARGETS];
    for (target, position) in target.iter_mut().zip(targets) {
        target.iter_mut().zip(position).for_each(|(target, &value)| *target = V::splat(value));
    }
    let mut sums = [[zero; K]; TARGETS];
    let (mut difference, mut back) = ([zero; K], [zero; K]);
    for at in (0..padded).step_by(V::LANES) {
        // SAFETY: whole lines are within the strip by the checks above. Each dimension starts at a line, and a line is
        // at least as long as a vector of any level. (The same holds for every load and store below.)
        let source = |axis: usize| unsafe { V::load(strip.positions.as_ptr().add(axis * strip.stride + at)) };
        // SAFETY: as above.
        let weight = if WEIGHTED { unsafe { V::load(weights.counts.as_ptr().add(at)) } } else { V::splat(1.0) };
        // SAFETY: as above.
        let spread = if WEIGHTED && K > 2 { unsafe { V::load(weights.spreads.as_ptr().add(at)) } } else { zero };
        let mut subtract_reaction = |axis: usize, factor: V, difference: V| {
            // SAFETY: as above.
            unsafe {
                let to = reactions.as_mut_ptr().add(axis * STRIP_POINTS + at);
                factor.multiply_subtract_from(difference, V::load(to)).store(to);
            }
        };
        for row in 0..TARGETS {
            let mut square = spread;
            for axis in 0..k {
                difference[axis] = target[row][axis].subtract(source(axis));
                square = difference[axis].multiply_add(difference[axis], square);
            }
            let factor = weight.divide(square.maximum(min_square));
            for axis in 0..k {
                sums[row][axis] = factor.multiply_add(difference[axis], sums[row][axis]);
                if MUTUAL && TARGETS == 1 {
                    subtract_reaction(axis, factor, difference[axis]);
                } else if MUTUAL {
                    let before = if row == 0 { zero } else { back[axis] };
                    back[axis] = factor.multiply_add(difference[axis], before);
                }
            }
        }
        if MUTUAL && TARGETS > 1 {
            (0..k).for_each(|axis| subtract_reaction(axis, V::splat(1.0), back[axis]));
        }
    }
    let mut totals = [[0.0; K]; TARGETS];
    for axis in 0..k {
        let of = |row: usize| if row < TARGETS { sums[row][axis] } else { zero };
        let found = V::totals([of(0), of(1), of(2), of(3)]);
        totals.iter_mut().zip(found).for_each(|(to, total)| to[axis] = total);
    }
    totals
}
