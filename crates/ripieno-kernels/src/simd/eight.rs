//! Eight f64 side by side: the distances of one point to eight centroids, and the smallest of them.

use super::FEW_COLUMNS;
use crate::Centroid;

/// Eight f64, in one or more registers.
///
/// As with [`Vector`](super::Vector), its functions may only be called inside [`Simd::run`](super::Simd::run).
pub trait Eight: Copy {
    /// Return `value` in every lane.
    fn splat(value: f64) -> Self;

    /// Load these values.
    fn of_f32(values: &[f32; 8]) -> Self;

    /// Load these values.
    fn of_f64(values: &[f64; 8]) -> Self;

    /// Return `self + (a − b)²`, rounded after each of the three operations.
    fn plus_squared_difference(self, a: Self, b: Self) -> Self;

    /// Return the smallest lane and the first index of this value. NaN counts as infinity.
    fn lowest_lane(self) -> (f64, usize);
}

/// Return the smallest squared distance of a point to eight centroids, and the first index of this distance. The
/// centroids are stored column by column. Rounding is as in `squared_distance` for few columns.
#[inline(always)]
pub(crate) fn min_distance<E: Eight, C: Centroid>(point: &[f64], centroids: &[[C; 8]]) -> (f64, usize) {
    debug_assert!(point.len() == centroids.len() && point.len() <= FEW_COLUMNS, "a coordinate in every column");
    let mut sums = E::splat(0.0);
    // A loop: a closure would not be compiled with the instructions of this level.
    for (&x, c) in point.iter().zip(centroids) {
        sums = sums.plus_squared_difference(E::splat(x), C::eight(c));
    }
    sums.lowest_lane()
}

/// Plain Rust version for levels without suitable vectors.
#[derive(Clone, Copy)]
pub(crate) struct PlainEight([f64; 8]);

impl Eight for PlainEight {
    #[inline(always)]
    fn splat(value: f64) -> Self {
        PlainEight([value; 8])
    }

    #[inline(always)]
    fn of_f32(values: &[f32; 8]) -> Self {
        PlainEight(values.map(f64::from))
    }

    #[inline(always)]
    fn of_f64(values: &[f64; 8]) -> Self {
        PlainEight(*values)
    }

    #[inline(always)]
    fn plus_squared_difference(self, a: Self, b: Self) -> Self {
        let difference = |lane: usize| a.0[lane] - b.0[lane];
        PlainEight(std::array::from_fn(|lane| self.0[lane] + difference(lane) * difference(lane)))
    }

    #[inline(always)]
    fn lowest_lane(self) -> (f64, usize) {
        let numbers = self.0.map(|each| if each < f64::INFINITY { each } else { f64::INFINITY });
        let [a, b, c, d, e, f, g, h] = numbers;
        let lesser = |x: f64, y: f64| if y < x { y } else { x };
        let min = lesser(lesser(lesser(a, b), lesser(c, d)), lesser(lesser(e, f), lesser(g, h)));
        // Without a branch, because the outcome is unpredictable.
        let bits = (0..8).fold(0, |bits, lane| bits | u32::from(numbers[lane] == min) << lane);
        (min, bits.trailing_zeros() as usize % 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simd;
    use crate::simd::{Vector, VectorJob};
    use proptest::prelude::*;

    /// Distances to eight centroids of three columns, by the vectors of a level.
    struct Least([f64; 3], [[f64; 8]; 3]);

    impl VectorJob for Least {
        type Output = [(f64, usize); 2];

        #[inline(always)]
        fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) -> [(f64, usize); 2] {
            let narrow = self.1.map(|column| column.map(|c| c as f32));
            [min_distance::<V::Eight, f64>(&self.0, &self.1), min_distance::<V::Eight, f32>(&self.0, &narrow)]
        }
    }

    fn coordinates() -> impl Strategy<Value = [f64; 8]> {
        prop::array::uniform8(prop_oneof![9 => (-3i32..3).prop_map(f64::from), 1 => Just(f64::INFINITY)])
    }

    proptest! {
        #[test]
        fn the_first_smallest_lane_is_found(
            point in prop::array::uniform3((-3i32..3).prop_map(f64::from)),
            centroids in prop::array::uniform3(coordinates()),
        ) {
            let square = |column: usize, lane: usize| (point[column] - centroids[column][lane]).powi(2);
            let distances = (0..8).map(|lane| ((0..3).map(|column| square(column, lane)).sum::<f64>(), lane));
            let expected = distances.reduce(|a, b| if b.0 < a.0 { b } else { a });
            for simd in Simd::available() {
                for found in simd.run(Least(point, centroids)) {
                    prop_assert_eq!(Some(found), expected, "{:?}", simd);
                }
            }
        }
    }

    #[test]
    fn nan_is_not_the_minimum() {
        let mut centroids = [[2.0; 8]; 3];
        (centroids[1][0], centroids[2][5], centroids[0][6]) = (f64::NAN, f64::NAN, 1.0);
        for simd in Simd::available() {
            assert_eq!(simd.run(Least([1.0; 3], centroids)), [(2.0, 6); 2], "{simd:?}");
            assert_eq!(simd.run(Least([f64::NAN; 3], centroids)), [(f64::INFINITY, 0); 2], "{simd:?}");
        }
    }
}
