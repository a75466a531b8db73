//! A half step of alternating least squares: the factors of each row, given those of the columns it has ratings of.
//!
//! For each row the factors of its columns are gathered, block by block, and the upper half of their scatter matrix is
//! summed up in
//! register tiles; the normal equations are then solved by Cholesky's factors. All of it stays in the nearest cache.
//! Cost: `r²` operations a rating and `r³/3` a row, for factors of length `r`, in f32.
//! Source: Zhou, Wilkinson, Schreiber and Pan, "Large-scale parallel collaborative filtering for the Netflix prize",
//! AAIM 2008,
//! section 3; Hu, Koren and Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008, eq. 4.

use crate::Threads;
use crate::panels::Line;
use crate::simd::{Job, Vector};

/// Rows of a register tile.
const TILE_ROWS: usize = 8;
/// Ratings whose factors are gathered at once.
const BLOCK: usize = 64;
/// Ratings of a part, about.
const PART_ENTRIES: usize = 1 << 14;
const LINE: usize = Line::LEN;

/// The ratings of each row.
#[derive(Clone, Copy, Debug)]
pub struct Ratings<'a> {
    /// Where the ratings of each row begin, and where the last ones end.
    pub starts: &'a [i64],
    /// The column of each rating.
    pub columns: &'a [i32],
    /// The ratings.
    pub values: &'a [f32],
}

/// What is minimised.
#[derive(Clone, Copy, Debug)]
pub enum Aim<'a> {
    /// The squared errors of the ratings, and `reg` times the squared factors of a row for each of its ratings.
    Explicit {
        /// Factor of the penalty.
        reg: f32,
    },
    /// Squared errors of all pairs, 1 where there is a rating, weighted by 1 and `alpha` times the rating; and `reg`
    /// times
    /// the squared factors.
    Implicit {
        /// Factor of the penalty.
        reg: f32,
        /// By how much a rating raises the weight.
        alpha: f32,
        /// The scatter matrix of the factors of all columns.
        gram: &'a [f32],
    },
}

/// Writes the factors of every row, `rank` each, given those of the columns; returns the weighted squared errors of the
/// ratings,
/// and, of an implicit aim, of all other pairs.
///
/// A row without ratings gets zeros.
///
/// # Panics
/// If the shapes do not fit.
pub fn solve_factors(
    ratings: Ratings,
    factors: &[f32],
    rank: usize,
    aim: Aim,
    out: &mut [f32],
    threads: &Threads,
) -> f64 {
    let rows = ratings.starts.len() - 1;
    assert_eq!(out.len(), rows * rank, "factors for every row");
    assert_eq!(ratings.columns.len(), ratings.values.len(), "a value for every rating");
    if let Aim::Implicit { gram, .. } = aim {
        assert_eq!(gram.len(), rank * rank, "the scatter matrix has a row for every factor");
    }
    let ranges = parts(ratings.starts);
    let mut losses = vec![0.0; ranges.len()];
    let mut rest = out;
    let mut work = Vec::with_capacity(ranges.len());
    for ((first, last), loss) in ranges.into_iter().zip(&mut losses) {
        let (own, after) = rest.split_at_mut((last - first) * rank);
        rest = after;
        work.push((first, own, loss));
    }
    threads.for_each(work, PART_ENTRIES * rank * rank, Scratch::default, |scratch, (first, out, loss)| {
        *loss = threads.simd().run(Part { ratings, factors, rank, aim, first, out, scratch });
    });
    losses.iter().sum()
}

/// Ranges of rows with about as many ratings each.
fn parts(starts: &[i64]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut first = 0;
    for row in 1..starts.len() {
        if starts[row] - starts[first] >= PART_ENTRIES as i64 || row + 1 == starts.len() {
            found.push((first, row));
            first = row;
        }
    }
    found
}

/// Memory of a thread.
#[derive(Default)]
struct Scratch {
    gathered: Vec<Line>,
    scaled: Vec<Line>,
    matrix: Vec<Line>,
    right: Vec<Line>,
}

fn sized(lines: &mut Vec<Line>, count: usize) -> &mut [f32] {
    lines.resize(count.div_ceil(LINE), Line::default());
    // SAFETY: lines are arrays of f32 without gaps, as many as there are.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * LINE) }
}

/// The rows of a part, from `first` on.
struct Part<'a> {
    ratings: Ratings<'a>,
    factors: &'a [f32],
    rank: usize,
    aim: Aim<'a>,
    first: usize,
    out: &'a mut [f32],
    scratch: &'a mut Scratch,
}

impl Job for Part<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) -> f64 {
        let rank = self.rank;
        let width = rank.next_multiple_of(TILE_ROWS.max(V::LANES));
        let gathered = sized(&mut self.scratch.gathered, BLOCK * width);
        let scaled = sized(&mut self.scratch.scaled, BLOCK * width);
        let matrix = sized(&mut self.scratch.matrix, width * width);
        let right = sized(&mut self.scratch.right, width);
        gathered.fill(0.0);
        scaled.fill(0.0);
        let mut loss = 0.0;
        for (at, out) in self.out.chunks_exact_mut(rank).enumerate() {
            let row = self.first + at;
            let entries = self.ratings.starts[row] as usize..self.ratings.starts[row + 1] as usize;
            if entries.is_empty() {
                out.fill(0.0);
                continue;
            }
            let count = entries.len();
            let (columns, values) = (&self.ratings.columns[entries.clone()], &self.ratings.values[entries]);
            begin(matrix, width, rank, self.aim);
            right.fill(0.0);
            let mut squares = 0.0f64;
            for (columns, values) in columns.chunks(BLOCK).zip(values.chunks(BLOCK)) {
                for (entry, (&column, &value)) in columns.iter().zip(values).enumerate() {
                    let from = &self.factors[column as usize * rank..][..rank];
                    let to = &mut gathered[entry * width..][..rank];
                    to.copy_from_slice(from);
                    // How much the pair counts beyond what the matrix has already, and its share of the right side.
                    let (beyond, share) = match self.aim {
                        Aim::Explicit { .. } => (1.0, value),
                        Aim::Implicit { alpha, .. } => (alpha * value, 1.0 + alpha * value),
                    };
                    squares += match self.aim {
                        Aim::Explicit { .. } => value as f64 * value as f64,
                        Aim::Implicit { .. } => share as f64,
                    };
                    let weighted = &mut scaled[entry * width..][..rank];
                    for (at, factor) in from.iter().enumerate() {
                        weighted[at] = beyond * factor;
                        right[at] += share * factor;
                    }
                }
                add_products::<V>(&gathered[..columns.len() * width], scaled, matrix, width);
            }
            let reg = match self.aim {
                Aim::Explicit { reg } => reg * count as f32,
                Aim::Implicit { reg, .. } => reg,
            };
            for at in 0..rank {
                matrix[at * width + at] += reg;
            }
            let gained: f64;
            {
                let before = &mut *right;
                out.copy_from_slice(&before[..rank]);
                solve(matrix, width, rank, before);
                gained = out.iter().zip(&before[..rank]).map(|(&b, &x)| b as f64 * x as f64).sum();
                out.copy_from_slice(&before[..rank]);
            }
            let length: f64 = out.iter().map(|&x| x as f64 * x as f64).sum();
            // With (A + reg)·x = b the squared errors, squares − 2·b·x + x·A·x, need no matrix.
            loss += squares - gained - reg as f64 * length;
        }
        loss
    }
}

/// The matrix before any rating: zeros, or the scatter matrix of all factors.
#[inline(always)]
fn begin(matrix: &mut [f32], width: usize, rank: usize, aim: Aim) {
    matrix.fill(0.0);
    if let Aim::Implicit { gram, .. } = aim {
        for (to, from) in matrix.chunks_exact_mut(width).zip(gram.chunks_exact(rank)) {
            to[..rank].copy_from_slice(from);
        }
    }
}

/// Adds the products of the scaled rows with the gathered ones, in tiles on or above the diagonal.
#[inline(always)]
fn add_products<V: Vector>(gathered: &[f32], scaled: &[f32], matrix: &mut [f32], width: usize) {
    for top in (0..width).step_by(TILE_ROWS) {
        let mut left = top / V::LANES * V::LANES;
        while left + 2 * V::LANES <= width {
            add_tile::<V, 2>(gathered, scaled, matrix, width, top, left);
            left += 2 * V::LANES;
        }
        if left < width {
            add_tile::<V, 1>(gathered, scaled, matrix, width, top, left);
        }
    }
}

#[inline(always)]
fn add_tile<V: Vector, const VECTORS: usize>(
    gathered: &[f32],
    scaled: &[f32],
    matrix: &mut [f32],
    width: usize,
    top: usize,
    left: usize,
) {
    assert!(scaled.len() >= gathered.len() && matrix.len() >= width * width);
    assert!(top + TILE_ROWS <= width && left + VECTORS * V::LANES <= width && gathered.len().is_multiple_of(width));
    // SAFETY: `width` and `left` are multiples of the lanes, and memory begins at a line, so vectors are aligned; the
    // tile is
    // within the matrix, and within each gathered row, by the checks above.
    unsafe {
        let to = matrix.as_mut_ptr().add(top * width + left);
        let mut sums = [[V::splat(0.0); VECTORS]; TILE_ROWS];
        for (row, sums) in sums.iter_mut().enumerate() {
            for (at, sum) in sums.iter_mut().enumerate() {
                *sum = V::load(to.add(row * width + at * V::LANES));
            }
        }
        for begin in (0..gathered.len()).step_by(width) {
            let (right, down) = (gathered.as_ptr().add(begin + left), scaled.as_ptr().add(begin + top));
            let mut vectors = [V::splat(0.0); VECTORS];
            for (at, vector) in vectors.iter_mut().enumerate() {
                *vector = V::load(right.add(at * V::LANES));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let factor = V::splat(*down.add(row));
                for (sum, vector) in sums.iter_mut().zip(vectors) {
                    *sum = vector.multiply_add(factor, *sum);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (at, sum) in sums.iter().enumerate() {
                sum.store(to.add(row * width + at * V::LANES));
            }
        }
    }
}

/// Replaces `x` by the solution of `matrix · x`, by Cholesky's factor, which takes the place of the matrix's upper
/// half.
#[inline(always)]
fn solve(matrix: &mut [f32], width: usize, rank: usize, x: &mut [f32]) {
    for k in 0..rank {
        let (above, below) = matrix.split_at_mut((k + 1) * width);
        let pivot = &mut above[k * width..];
        // A penalty keeps pivots away from zero, but for what rounding takes.
        let inverse = 1.0 / pivot[k].max(f32::MIN_POSITIVE).sqrt();
        // What stands before the diagonal in a row is never read, so rows are taken from the beginning of a line.
        let from = k / LINE * LINE;
        pivot[from..width].iter_mut().for_each(|value| *value *= inverse);
        for (row, below) in (k + 1..rank).zip(below.chunks_exact_mut(width)) {
            let factor = pivot[row];
            let from = row / LINE * LINE;
            let values = below[from..width].iter_mut().zip(&pivot[from..width]);
            values.for_each(|(value, above)| *value -= factor * above);
        }
        x[k] *= inverse;
        let known = x[k];
        for at in k + 1..rank {
            x[at] -= known * pivot[at];
        }
    }
    for k in (0..rank).rev() {
        let row = &matrix[k * width..];
        let mut parts = [0.0f32; LINE];
        for (at, value) in x.iter().enumerate().take(rank).skip(k + 1) {
            parts[at % LINE] += value * row[at];
        }
        x[k] = (x[k] - parts.iter().sum::<f32>()) / row[k];
    }
}
