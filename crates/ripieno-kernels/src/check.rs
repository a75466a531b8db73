//! Check of input values: search for values that are not finite.

use crate::simd::{Vector, VectorJob};
use crate::{Matrix, Point, Threads};

/// Number of values per unit of work.
const CHUNK: usize = 1 << 14;

/// Return the row and column of the first infinite or NaN value, in row order.
pub fn first_non_finite<P: Point>(points: Matrix<P>, threads: &Threads) -> Option<(usize, usize)> {
    let chunks: Vec<&[P]> = points.values().chunks(CHUNK).collect();
    let mut are_finite = vec![true; chunks.len()];
    let parts = chunks.iter().zip(&mut are_finite).collect();
    threads.for_each(
        parts,
        CHUNK,
        || (),
        |(), (values, is_finite)| {
            *is_finite = threads.simd().run(AllFinite { values });
        },
    );
    let chunk = are_finite.iter().position(|is_finite| !is_finite)?;
    let index = chunk * CHUNK + chunks[chunk].iter().position(|value| !value.is_finite())?;
    Some((index / points.columns(), index % points.columns()))
}

/// Job: whether all values are finite.
struct AllFinite<'a, P> {
    values: &'a [P],
}

impl<P: Point> VectorJob for AllFinite<'_, P> {
    type Output = bool;

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) -> bool {
        // Without an early return, so that the loop is vectorized.
        self.values.iter().fold(true, |all, value| all & value.is_finite())
    }
}
