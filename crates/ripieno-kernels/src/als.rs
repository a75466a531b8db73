//! Half step of alternating least squares: the factors of each row, given the factors of the columns that it has rated.
//!
//! The factors are approximated by conjugate gradients ([`conjugate`]) or computed exactly. For the latter, the factors
//! of each row's columns are gathered block by block, and the upper half of their scatter matrix is summed in register
//! tiles. Then one vector lane per row solves the normal equations by Cholesky factorization. All data stays in the
//! nearer caches. The bits of a row's factors depend only on its ratings, their order and the SIMD level.
//!
//! Sums over more than [`BLOCK`] ratings are made in f64: f32 sums of a block are added to them.
//!
//! Cost: `r²` operations per rating and `r³/3` per row, for factors of length `r`, in f32.
//! Sources: Zhou, Wilkinson, Schreiber and Pan, "Large-scale parallel collaborative filtering for the Netflix prize",
//! AAIM 2008, section 3; Hu, Koren and Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008,
//! eq. 4; Demmel and Nguyen, "Fast reproducible floating-point summation", ARITH 2013, section 4 (the scatter matrix).

mod conjugate;

use crate::Threads;
use crate::panels::{PanelLine, floats, floats_mut};
use crate::simd::{Vector, VectorJob};

/// Rows of a register tile.
const TILE_ROWS: usize = 8;
/// Number of ratings gathered at once.
const BLOCK: usize = 64;
/// Approximate number of ratings per unit of work.
const PART_ENTRIES: usize = 1 << 14;
/// Rows per unit of work of a scatter matrix.
const PART_ROWS: usize = 1 << 12;
const LINE: usize = PanelLine::LEN;

/// The ratings of each row, in compressed row form.
#[derive(Clone, Copy, Debug)]
pub struct Ratings<'a> {
    /// Start of each row's ratings, and the end of the last row's ratings.
    pub starts: &'a [i64],
    /// The column of each rating.
    pub columns: &'a [i32],
    /// The ratings.
    pub values: &'a [f32],
}

/// The objective function.
#[derive(Clone, Copy, Debug)]
pub enum Feedback<'a> {
    /// The squared errors of the ratings, plus `reg` times the squared factors of a row for each of its ratings.
    Explicit {
        /// Factor of the penalty.
        reg: f32,
    },
    /// Weighted squared errors of all pairs, plus `reg` times the squared factors. The target is 1 for a rated pair and
    /// 0 otherwise. The weight of a rated pair is 1 plus `alpha` times the rating.
    Implicit {
        /// Factor of the penalty.
        reg: f32,
        /// Increase of the weight per unit of rating.
        alpha: f32,
        /// The scatter matrix of the factors of all columns.
        gram: &'a [f32],
    },
}

impl Feedback<'_> {
    /// Return the weight of a rating in addition to the initial matrix, its factor on the right-hand side, and the
    /// squared error of zero factors.
    #[inline(always)]
    fn terms(&self, value: f32) -> (f32, f32, f64) {
        match self {
            Feedback::Explicit { .. } => (1.0, value, value as f64 * value as f64),
            Feedback::Implicit { alpha, .. } => {
                (alpha * value, 1.0 + alpha * value, 1.0 + *alpha as f64 * value as f64)
            }
        }
    }

    /// Return the penalty factor of a row with `count` ratings.
    #[inline(always)]
    fn penalty(&self, count: usize) -> f32 {
        match self {
            Feedback::Explicit { reg } => reg * count as f32,
            Feedback::Implicit { reg, .. } => *reg,
        }
    }
}

/// Method for computing the factors of a row.
#[derive(Clone, Copy, Debug)]
pub enum Solver {
    /// Solve the normal equations.
    Cholesky,
    /// Perform a number of conjugate gradient steps, starting from the row's current factors.
    Conjugate {
        /// Number of steps.
        steps: usize,
    },
}

/// Objective after a half step, summed over its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AlsObjective {
    /// The weighted squared errors of the ratings. For implicit feedback, also the errors of all unrated pairs of rows
    /// with ratings.
    pub loss: f64,
    /// The penalty of the rows' factors.
    pub penalty: f64,
}

impl std::iter::Sum for AlsObjective {
    fn sum<I: Iterator<Item = AlsObjective>>(parts: I) -> AlsObjective {
        parts.fold(AlsObjective::default(), |sum, part| AlsObjective {
            loss: sum.loss + part.loss,
            penalty: sum.penalty + part.penalty,
        })
    }
}

/// Compute the factors of every row, `rank` each, from the factors of the columns. Return the remaining objective.
///
/// Conjugate gradients start from the contents of `out`. A row without ratings gets zeros.
///
/// # Panics
/// If the shapes do not fit.
pub fn solve_factors(
    ratings: Ratings,
    factors: &[f32],
    rank: usize,
    feedback: Feedback,
    solver: Solver,
    out: &mut [f32],
    threads: &Threads,
) -> AlsObjective {
    let rows = ratings.starts.len() - 1;
    assert_eq!(out.len(), rows * rank, "factors for every row");
    assert_eq!(ratings.columns.len(), ratings.values.len(), "a value for every rating");
    if let Feedback::Implicit { gram, .. } = feedback {
        assert_eq!(gram.len(), rank * rank, "the scatter matrix has a row for every factor");
    }
    let width = rank.next_multiple_of(LINE);
    // Conjugate gradients use the additional row of zeros as padding.
    let table = table(factors, rank, width, factors.len() / rank + 1);
    let table = floats(&table);
    let ranges = parts(ratings.starts);
    let mut objectives = vec![AlsObjective::default(); ranges.len()];
    let mut rest = out;
    let mut work = Vec::with_capacity(ranges.len());
    for ((first, last), objective) in ranges.into_iter().zip(&mut objectives) {
        let (own, after) = rest.split_at_mut((last - first) * rank);
        rest = after;
        work.push((first, own, objective));
    }
    match solver {
        Solver::Cholesky => {
            threads.for_each(
                work,
                PART_ENTRIES * rank * rank,
                AlsScratch::default,
                |scratch, (first, out, objective)| {
                    scratch.fit(rank, width);
                    *objective =
                        threads.simd().run(CholeskyRows { ratings, table, rank, width, feedback, first, out, scratch });
                },
            );
        }
        Solver::Conjugate { steps } => {
            // Square, or empty.
            let gram = if let Feedback::Implicit { gram, .. } = feedback {
                self::table(gram, rank, width, width)
            } else {
                Vec::new()
            };
            let gram = floats(&gram);
            let operations = PART_ENTRIES * 4 * rank * (steps + 1);
            threads.for_each(
                work,
                operations,
                conjugate::ConjugateScratch::default,
                |scratch, (first, out, objective)| {
                    let rows = conjugate::ConjugateRows {
                        ratings,
                        table,
                        rank,
                        width,
                        feedback,
                        steps,
                        first,
                        out,
                        scratch,
                        gram,
                    };
                    *objective = threads.simd().run(rows);
                },
            );
        }
    }
    objectives.into_iter().sum()
}

/// Compute the scatter matrix of the rows, `rank` by `rank`: the sum of the outer products of each row with itself.
///
/// Every product is rounded to the resolution of `anchor`, so sums are exact and have the same bits for any order of
/// the rows. `anchor` must be 1.5 times a power of two that is at least as large as any such sum.
///
/// # Panics
/// If the shapes do not fit.
pub fn scatter(factors: &[f32], rank: usize, anchor: f64, out: &mut [f64], threads: &Threads) {
    assert_eq!(out.len(), rank * rank, "a row for every factor");
    assert!(factors.len().is_multiple_of(rank), "rows are whole");
    let parts: Vec<&[f32]> = factors.chunks(PART_ROWS * rank).collect();
    let mut sums = vec![vec![0.0; rank * rank]; parts.len()];
    let work: Vec<_> = parts.into_iter().zip(&mut sums).collect();
    threads.for_each(work, PART_ROWS * rank * rank, Vec::new, |wide, (rows, sums)| {
        threads.simd().run(Scatter { rows, rank, anchor, wide, sums });
    });
    out.fill(0.0);
    for sums in &sums {
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
    }
    for row in 1..rank {
        for column in 0..row {
            out[row * rank + column] = out[column * rank + row];
        }
    }
}

/// Some rows of a scatter matrix. Only its upper half is summed.
struct Scatter<'a> {
    rows: &'a [f32],
    rank: usize,
    anchor: f64,
    wide: &'a mut Vec<f64>,
    sums: &'a mut [f64],
}

impl VectorJob for Scatter<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) {
        let (rank, anchor) = (self.rank, self.anchor);
        for row in self.rows.chunks_exact(rank) {
            self.wide.clear();
            self.wide.extend(row.iter().map(|&x| x as f64));
            for (at, sums) in self.sums.chunks_exact_mut(rank).enumerate() {
                let factor = self.wide[at];
                // Products of two f32 are exact in f64. Adding and subtracting the anchor rounds them.
                let pairs = sums[at..].iter_mut().zip(&self.wide[at..]);
                pairs.for_each(|(sum, value)| *sum += (factor * value + anchor) - anchor);
            }
        }
    }
}

/// Divide the rows into ranges with about as many ratings each.
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

/// Copy factors into `rows` rows of whole lines, padded with zeros.
fn table(factors: &[f32], rank: usize, width: usize, rows: usize) -> Vec<PanelLine> {
    let mut lines = vec![PanelLine::default(); rows * width / LINE];
    for (to, from) in floats_mut(&mut lines).chunks_exact_mut(width).zip(factors.chunks_exact(rank)) {
        to[..rank].copy_from_slice(from);
    }
    lines
}

/// Buffers of a thread, in whole lines.
#[derive(Default)]
struct AlsScratch {
    gathered: Vec<PanelLine>,
    scaled: Vec<PanelLine>,
    matrix: Vec<PanelLine>,
    right: Vec<PanelLine>,
    matrix_sums: Vec<f64>,
    right_sums: Vec<f64>,
    systems: Vec<PanelLine>,
    inverses: Vec<PanelLine>,
}

impl AlsScratch {
    fn fit(&mut self, rank: usize, width: usize) {
        self.gathered.resize(BLOCK * width / LINE, PanelLine::default());
        self.scaled.resize(BLOCK * width / LINE, PanelLine::default());
        self.matrix.resize(width * width / LINE, PanelLine::default());
        self.right.resize(width / LINE, PanelLine::default());
        self.matrix_sums.resize(width * width, 0.0);
        self.right_sums.resize(width, 0.0);
        // A line is at least as long as a vector of any level.
        self.systems.resize(triangle(rank + 1), PanelLine::default());
        self.inverses.resize(rank, PanelLine::default());
    }
}

/// A range of rows, starting with `first`.
struct CholeskyRows<'a> {
    ratings: Ratings<'a>,
    table: &'a [f32],
    rank: usize,
    width: usize,
    feedback: Feedback<'a>,
    first: usize,
    out: &'a mut [f32],
    scratch: &'a mut AlsScratch,
}

impl VectorJob for CholeskyRows<'_> {
    type Output = AlsObjective;

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) -> AlsObjective {
        let (rank, width) = (self.rank, self.width);
        let gathered = floats_mut(&mut self.scratch.gathered);
        let scaled = floats_mut(&mut self.scratch.scaled);
        let matrix = floats_mut(&mut self.scratch.matrix);
        let right = floats_mut(&mut self.scratch.right);
        let matrix_sums = &mut self.scratch.matrix_sums[..width * width];
        let right_sums = &mut self.scratch.right_sums[..width];
        let systems = &mut floats_mut(&mut self.scratch.systems)[..triangle(rank + 1) * V::LANES];
        let inverses = &mut floats_mut(&mut self.scratch.inverses)[..rank * V::LANES];
        let mut found = AlsObjective::default();
        for (group, out) in self.out.chunks_mut(V::LANES * rank).enumerate() {
            let mut row_terms = [(0.0, 0.0); LINE];
            for (lane, out) in out.chunks_exact_mut(rank).enumerate() {
                let row = self.first + group * V::LANES + lane;
                let entries = self.ratings.starts[row] as usize..self.ratings.starts[row + 1] as usize;
                if entries.is_empty() {
                    out.fill(0.0);
                    continue;
                }
                let penalty = self.feedback.penalty(entries.len());
                let (columns, values) = (&self.ratings.columns[entries.clone()], &self.ratings.values[entries]);
                initialize(matrix, width, rank, self.feedback);
                right.fill(0.0);
                let has_blocks = columns.len() > BLOCK;
                if has_blocks {
                    matrix_sums.fill(0.0);
                    right_sums.fill(0.0);
                }
                let mut squares = 0.0;
                for (columns, values) in columns.chunks(BLOCK).zip(values.chunks(BLOCK)) {
                    squares += gather::<V>(self.table, columns, values, self.feedback, width, gathered, scaled, right);
                    let gathered = &gathered[..columns.len() * width];
                    let scaled = if let Feedback::Explicit { .. } = self.feedback { gathered } else { &*scaled };
                    add_products::<V>(gathered, scaled, matrix, width);
                    if has_blocks {
                        move_to(matrix, matrix_sums);
                        move_to(right, right_sums);
                    }
                }
                if has_blocks {
                    matrix.iter_mut().zip(&*matrix_sums).for_each(|(to, sum)| *to = *sum as f32);
                    right.iter_mut().zip(&*right_sums).for_each(|(to, sum)| *to = *sum as f32);
                }
                for at in 0..rank {
                    matrix[at * width + at] += penalty;
                }
                store_system::<V>(matrix, width, rank, right, lane, systems);
                row_terms[lane] = (squares, penalty as f64);
                out.copy_from_slice(&right[..rank]);
            }
            solve::<V>(rank, systems, inverses);
            let solved = &systems[triangle(rank) * V::LANES..];
            for ((lane, out), (squares, penalty)) in out.chunks_exact_mut(rank).enumerate().zip(row_terms) {
                if penalty == 0.0 {
                    continue;
                }
                let (mut right_product, mut length) = (0.0, 0.0);
                for (out, solved) in out.iter_mut().zip(solved.chunks_exact(V::LANES)) {
                    let x = solved[lane];
                    right_product += *out as f64 * x as f64;
                    length += x as f64 * x as f64;
                    *out = x;
                }
                // With (A + penalty)·x = b the squared errors, squares − 2·b·x + x·A·x, need no matrix.
                found.loss += squares - right_product - penalty * length;
                found.penalty += penalty * length;
            }
        }
        found
    }
}

/// Add the values to wider sums, and set the values to zero.
#[inline(always)]
fn move_to(values: &mut [f32], sums: &mut [f64]) {
    for (value, sum) in values.iter_mut().zip(sums) {
        *sum += std::mem::take(value) as f64;
    }
}

/// Initialize the matrix: zeros, or the scatter matrix of all factors.
#[inline(always)]
fn initialize(matrix: &mut [f32], width: usize, rank: usize, feedback: Feedback) {
    matrix.fill(0.0);
    if let Feedback::Implicit { gram, .. } = feedback {
        for (to, from) in matrix.chunks_exact_mut(width).zip(gram.chunks_exact(rank)) {
            to[..rank].copy_from_slice(from);
        }
    }
}

/// Gather the factors of some columns, and for implicit feedback also their weighted copies. Adds their contributions
/// to the right-hand side and returns the squared errors of zero factors.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn gather<V: Vector>(
    table: &[f32],
    columns: &[i32],
    values: &[f32],
    feedback: Feedback,
    width: usize,
    gathered: &mut [f32],
    scaled: &mut [f32],
    right: &mut [f32],
) -> f64 {
    assert!(columns.len() * width <= gathered.len() && scaled.len() == gathered.len() && right.len() == width);
    let mut squares = 0.0;
    for (entry, (&column, &value)) in columns.iter().zip(values).enumerate() {
        let from = table[column as usize * width..][..width].as_ptr();
        let (extra_weight, share, square) = feedback.terms(value);
        let (extra_weight, share) = (V::splat(extra_weight), V::splat(share));
        squares += square;
        for at in (0..width).step_by(V::LANES) {
            // SAFETY: all memory consists of whole lines; `width` and thus `at` are multiples of the lanes. The entry
            // is within it by the check above, its factors by the check of the slice.
            unsafe {
                let factors = V::load(from.add(at));
                factors.store(gathered.as_mut_ptr().add(entry * width + at));
                if let Feedback::Implicit { .. } = feedback {
                    let weighted = factors.multiply_add(extra_weight, V::splat(0.0));
                    weighted.store(scaled.as_mut_ptr().add(entry * width + at));
                }
                let sum = right.as_mut_ptr().add(at);
                factors.multiply_add(share, V::load(sum)).store(sum);
            }
        }
    }
    squares
}

/// Add the products of the scaled and the gathered rows, in tiles on or above the diagonal.
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
    // SAFETY: `width` and `left` are multiples of the lanes, and memory starts at a line, so vectors are aligned. The
    // tile is within the matrix, and within each gathered row, by the checks above.
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

/// Return the start of a row in a packed triangle.
const fn triangle(row: usize) -> usize {
    row * (row + 1) / 2
}

/// Copy a matrix, given by its upper half, and its right-hand side into one lane of several systems.
#[inline(always)]
fn store_system<V: Vector>(matrix: &[f32], width: usize, rank: usize, right: &[f32], lane: usize, systems: &mut [f32]) {
    for (column, values) in matrix.chunks_exact(width).take(rank).enumerate() {
        for (row, value) in values.iter().enumerate().take(rank).skip(column) {
            systems[(triangle(row) + column) * V::LANES + lane] = *value;
        }
    }
    for (system, value) in systems[triangle(rank) * V::LANES..].chunks_exact_mut(V::LANES).zip(&right[..rank]) {
        system[lane] = *value;
    }
}

/// Solve one system per lane by Cholesky factorization. The solutions replace the right-hand sides.
///
/// The right-hand side is stored as an additional row below the matrix, so the factorization includes the forward
/// substitution. Unused lanes are computed too, and their results are ignored.
#[inline(always)]
fn solve<V: Vector>(rank: usize, systems: &mut [f32], inverses: &mut [f32]) {
    let lanes = V::LANES;
    assert!(systems.len() >= (triangle(rank) + rank) * lanes && inverses.len() >= rank * lanes);
    // SAFETY: memory starts at a line, and entries are whole vectors. They are within it by the check above.
    let load = |systems: &[f32], at: usize| unsafe { V::load(systems.as_ptr().add(at * lanes)) };
    for row in 0..=rank {
        let first = triangle(row);
        for column in 0..(row + 1).min(rank) {
            let other = triangle(column);
            let mut value = load(systems, first + column);
            for k in 0..column {
                value = load(systems, first + k).multiply_subtract_from(load(systems, other + k), value);
            }
            let to = &mut systems[(first + column) * lanes..][..lanes];
            if column < row {
                let scaled = value.multiply_add(load(inverses, column), V::splat(0.0));
                // SAFETY: as above.
                unsafe { scaled.store(to.as_mut_ptr()) };
            } else {
                // SAFETY: as above.
                unsafe { value.store(to.as_mut_ptr()) };
                // The penalty keeps pivots away from zero, except for rounding errors.
                let pivots = inverses[column * lanes..][..lanes].iter_mut().zip(to);
                pivots.for_each(|(inverse, pivot)| *inverse = 1.0 / pivot.max(f32::MIN_POSITIVE).sqrt());
            }
        }
    }
    let (factor, right) = systems.split_at_mut(triangle(rank) * lanes);
    for row in (0..rank).rev() {
        let solution = load(right, row).multiply_add(load(inverses, row), V::splat(0.0));
        for k in 0..row {
            let left = load(factor, triangle(row) + k).multiply_subtract_from(solution, load(right, k));
            // SAFETY: as above.
            unsafe { left.store(right.as_mut_ptr().add(k * lanes)) };
        }
        // SAFETY: as above.
        unsafe { solution.store(right.as_mut_ptr().add(row * lanes)) };
    }
}
