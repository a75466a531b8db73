//! First centroids of very many clusters: k-means++ in cells of rows, each cell by itself, in a time of its own.
//!
//! K-means++ draws the next centre in proportion to what each row costs, its weight times the squared distance to its
//! nearest centre. Events that come at these rates come in that order, and the rates of a cell depend on its own
//! centres only, if those of other cells are never nearer. So every cell draws the times of its centres without asking
//! others, and the first `k` centres of all cells in time are the `k` that are wanted. A centre is the best of some
//! trials.
//!
//! Cost: `3·t·n·d` in f64 per centre, for `t` trials and the `n` rows of its cell; a cell is worked on by one thread.
//! Source: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007, sections 2.2 and 7;
//! Gillespie, "Exact stochastic simulation of coupled chemical reactions", J. Phys. Chem. 81(25), 1977 (the times).

use crate::distances::squared_distance;
use crate::simd::{Vector, VectorJob};
use crate::{Matrix, Point, Threads};

/// Cells: rows that lie together, and the centres that each cell has already.
#[derive(Clone, Copy, Debug)]
pub struct Cells<'a, P> {
    /// The rows of all cells, cell by cell.
    pub points: Matrix<'a, P>,
    /// How much each row counts; rows without weight are never chosen.
    pub row_weights: &'a [f64],
    /// The row behind the last one of each cell.
    pub ends: &'a [i64],
    /// The rows that are centres, cell by cell, in the order of their times.
    pub chosen: &'a [i64],
    /// The entry of `chosen` behind the last one of each cell.
    pub chosen_ends: &'a [i64],
    /// The time of the last centre of each cell; infinite where no more are wanted.
    pub times: &'a [f64],
    /// The random numbers of each cell.
    pub streams: &'a [u64],
}

/// How far cells grow.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// Rows that are tried for a centre.
    pub trial_count: usize,
    /// Centres of a cell, at most, those that it has included.
    pub centre_count: usize,
    /// No centre is later.
    pub until: f64,
}

/// A row that became a centre.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Centre {
    /// The row.
    pub row: i64,
    /// When.
    pub time: f64,
}

/// The further centres of each cell, in the order of their times.
///
/// A cell with fewer centres than allowed has none before `until`, or no row of it lies apart from its centres. The
/// first centre of a cell has the time zero. What a cell gets depends neither on other cells nor on how often it was
/// asked.
///
/// # Panics
/// If the shapes do not fit.
pub fn grow_cells<P: Point>(cells: Cells<P>, growth: Growth, threads: &Threads) -> Vec<Vec<Centre>> {
    assert_eq!(cells.row_weights.len(), cells.points.rows(), "one weight per row");
    let count = cells.ends.len();
    assert!(
        [cells.chosen_ends.len(), cells.times.len(), cells.streams.len()].iter().all(|&length| length == count),
        "one entry per cell"
    );
    let mut grown = vec![Vec::new(); count];
    let parts: Vec<_> = grown.iter_mut().enumerate().collect();
    let rows_each = cells.points.rows() / count.max(1);
    let operations = 4 * growth.trial_count * growth.centre_count * rows_each * cells.points.columns();
    threads.for_each(parts, operations, || (), {
        |(), (cell, centres)| *centres = threads.simd().run(CellGrowth { cells: &cells, cell, growth })
    });
    grown
}

/// One cell, and how far it is to grow.
struct CellGrowth<'a, P> {
    cells: &'a Cells<'a, P>,
    cell: usize,
    growth: Growth,
}

impl<P: Point> VectorJob for CellGrowth<'_, P> {
    type Output = Vec<Centre>;

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) -> Vec<Centre> {
        let CellGrowth { cells, cell, growth } = self;
        let mut time = cells.times[cell];
        if time >= growth.until {
            return Vec::new();
        }
        let (first, end) = range(cells.ends, cell);
        let (chosen_first, chosen_end) = range(cells.chosen_ends, cell);
        let mut state = CellState::new(cells.points.row_range(first, end - first), &cells.row_weights[first..end]);
        for &row in &cells.chosen[chosen_first..chosen_end] {
            state.measure(row as usize - first);
            state.accept();
        }
        let mut grown = Vec::new();
        for number in chosen_end - chosen_first..growth.centre_count {
            let mut numbers = CellRandom::new(cells.streams[cell], number as u64);
            let total = state.add_up();
            if total.is_nan() || total <= 0.0 {
                break;
            }
            let trial_count = if number == 0 { 1 } else { growth.trial_count };
            if number > 0 {
                time -= (1.0 - numbers.uniform()).ln() / total;
            }
            if time > growth.until {
                break;
            }
            let row = state.best_of(trial_count, &mut numbers);
            grown.push(Centre { row: (first + row) as i64, time });
        }
        grown
    }
}

fn range(ends: &[i64], index: usize) -> (usize, usize) {
    (if index == 0 { 0 } else { ends[index - 1] as usize }, ends[index] as usize)
}

/// Where a cell stands.
struct CellState<'a, P: Point> {
    points: Matrix<'a, P>,
    row_weights: &'a [f64],
    /// The squared distance of each row to its nearest centre; infinite before there is one.
    nearest: Vec<f64>,
    /// Sums of the costs up to each row.
    sums: Vec<f64>,
    /// The nearest distances with the row that is tried, and with the best of the trials.
    tried: Vec<f64>,
    best: Vec<f64>,
    centre: Vec<P::Centroid>,
}

impl<'a, P: Point> CellState<'a, P> {
    fn new(points: Matrix<'a, P>, row_weights: &'a [f64]) -> Self {
        let filled = |value: f64| vec![value; row_weights.len()];
        CellState {
            points,
            row_weights,
            nearest: filled(f64::INFINITY),
            sums: filled(0.0),
            tried: filled(0.0),
            best: filled(0.0),
            centre: Vec::new(),
        }
    }

    /// Adds up what the rows cost, before the first centre their weight; returns the sum.
    #[inline(always)]
    fn add_up(&mut self) -> f64 {
        let mut total = 0.0;
        for ((sum, &nearest), &row_weights) in self.sums.iter_mut().zip(&self.nearest).zip(self.row_weights) {
            total += if nearest == f64::INFINITY { row_weights } else { row_weights * nearest };
            *sum = total;
        }
        total
    }

    /// Draws rows in proportion to their cost and makes the one a centre that leaves the least.
    #[inline(always)]
    fn best_of(&mut self, trial_count: usize, numbers: &mut CellRandom) -> usize {
        let (mut best_row, mut least) = (0, f64::INFINITY);
        for trial in 0..trial_count {
            let row = self.draw(numbers.uniform());
            let left = self.measure(row);
            if trial == 0 || left < least {
                (best_row, least) = (row, left);
                std::mem::swap(&mut self.tried, &mut self.best);
            }
        }
        std::mem::swap(&mut self.nearest, &mut self.best);
        best_row
    }

    /// The row at a part of the sum of all costs; never one that costs nothing.
    #[inline(always)]
    fn draw(&self, part: f64) -> usize {
        let total = self.sums[self.sums.len() - 1];
        let row = self.sums.partition_point(|&sum| sum <= part * total);
        // Rounding may lead behind the last row: then it is the last one that costs something.
        if row < self.sums.len() { row } else { self.sums.partition_point(|&sum| sum < total) }
    }

    /// Writes into `tried` how near a centre would be with one more at `row`; returns what all rows would cost.
    #[inline(always)]
    fn measure(&mut self, row: usize) -> f64 {
        self.centre.clear();
        self.centre.extend(self.points.row(row).iter().map(|value| value.widen()));
        let mut left = 0.0;
        for (index, tried) in self.tried.iter_mut().enumerate() {
            let distance = squared_distance(self.points.row(index), &self.centre);
            *tried = if distance < self.nearest[index] { distance } else { self.nearest[index] };
            left += self.row_weights[index] * *tried;
        }
        left
    }

    /// Makes the row that was measured last a centre.
    #[inline(always)]
    fn accept(&mut self) {
        std::mem::swap(&mut self.nearest, &mut self.tried);
    }
}

/// Random numbers of a centre of a cell: splitmix64.
struct CellRandom(u64);

impl CellRandom {
    fn new(stream: u64, number: u64) -> Self {
        CellRandom(mixed(stream ^ mixed(number)))
    }

    /// The next number of 0 … 1, without 1.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(GAMMA);
        (mixed(self.0) >> 11) as f64 / (1u64 << 53) as f64
    }
}

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
