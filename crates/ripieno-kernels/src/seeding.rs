//! Seeding for very many clusters: k-means++ in cells of rows, each cell independently with its own time.
//!
//! K-means++ draws the next center in proportion to the cost of each row: its weight times the squared distance to its
//! nearest center. Poisson events with these rates arrive in this order. The rates of a cell depend only on its own
//! centers, provided that centers of other cells are never nearer. So every cell draws the times of its centers
//! independently, and the first `k` centers of all cells by time are the result. A center is the best of several
//! trials.
//!
//! Cost: `3·t·n·d` in f64 per center, for `t` trials and the `n` rows of its cell; one thread processes a cell.
//! Source: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007, sections 2.2 and 7;
//! Gillespie, "Exact stochastic simulation of coupled chemical reactions", J. Phys. Chem. 81(25), 1977 (the times).

use crate::distances::squared_distance;
use crate::simd::{Vector, VectorJob};
use crate::{Matrix, Point, Threads};

/// Cells: rows that are near each other, and the current centers of each cell.
#[derive(Clone, Copy, Debug)]
pub struct Cells<'a, P> {
    /// The rows of all cells, cell by cell.
    pub points: Matrix<'a, P>,
    /// Weight of each row. Rows without weight are never chosen.
    pub row_weights: &'a [f64],
    /// End of each cell's rows.
    pub ends: &'a [i64],
    /// The rows that are centers, cell by cell, in the order of their times.
    pub chosen: &'a [i64],
    /// End of each cell's entries in `chosen`.
    pub chosen_ends: &'a [i64],
    /// Time of the last center of each cell; infinite if the cell needs no more centers.
    pub times: &'a [f64],
    /// Seed of the random numbers of each cell.
    pub streams: &'a [u64],
}

/// Limits on the growth of cells.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// Number of rows tried for each center.
    pub trial_count: usize,
    /// Largest number of centers per cell, including the current ones.
    pub center_count: usize,
    /// Latest time of a center.
    pub until: f64,
}

/// A row that became a center.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Center {
    /// The row.
    pub row: i64,
    /// The time.
    pub time: f64,
}

/// Return the further centers of each cell, in the order of their times.
///
/// A cell has fewer centers than allowed if no more occur before `until`, or if all its rows coincide with its centers.
/// The first center of a cell has the time zero. The result of a cell depends neither on other cells nor on the
/// division into calls.
///
/// # Panics
/// If the shapes do not fit.
pub fn grow_cells<P: Point>(cells: Cells<P>, growth: Growth, threads: &Threads) -> Vec<Vec<Center>> {
    assert_eq!(cells.row_weights.len(), cells.points.rows(), "one weight per row");
    let count = cells.ends.len();
    assert!(
        [cells.chosen_ends.len(), cells.times.len(), cells.streams.len()].iter().all(|&length| length == count),
        "one entry per cell"
    );
    let mut grown = vec![Vec::new(); count];
    let parts: Vec<_> = grown.iter_mut().enumerate().collect();
    let rows_each = cells.points.rows() / count.max(1);
    let operations = 4 * growth.trial_count * growth.center_count * rows_each * cells.points.columns();
    threads.for_each(parts, operations, || (), {
        |(), (cell, centers)| *centers = threads.simd().run(CellGrowth { cells: &cells, cell, growth })
    });
    grown
}

/// Job that grows one cell.
struct CellGrowth<'a, P> {
    cells: &'a Cells<'a, P>,
    cell: usize,
    growth: Growth,
}

impl<P: Point> VectorJob for CellGrowth<'_, P> {
    type Output = Vec<Center>;

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) -> Vec<Center> {
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
        for number in chosen_end - chosen_first..growth.center_count {
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
            grown.push(Center { row: (first + row) as i64, time });
        }
        grown
    }
}

fn range(ends: &[i64], index: usize) -> (usize, usize) {
    (if index == 0 { 0 } else { ends[index - 1] as usize }, ends[index] as usize)
}

/// State of a cell.
struct CellState<'a, P: Point> {
    points: Matrix<'a, P>,
    row_weights: &'a [f64],
    /// Squared distance of each row to its nearest center; infinite without a center.
    nearest: Vec<f64>,
    /// Prefix sums of the costs.
    sums: Vec<f64>,
    /// The nearest distances with the tried row, and with the best of the trials.
    trial_distances: Vec<f64>,
    best: Vec<f64>,
    center: Vec<P::Centroid>,
}

impl<'a, P: Point> CellState<'a, P> {
    fn new(points: Matrix<'a, P>, row_weights: &'a [f64]) -> Self {
        let filled = |value: f64| vec![value; row_weights.len()];
        CellState {
            points,
            row_weights,
            nearest: filled(f64::INFINITY),
            sums: filled(0.0),
            trial_distances: filled(0.0),
            best: filled(0.0),
            center: Vec::new(),
        }
    }

    /// Compute the prefix sums of the rows' costs, or of their weights before the first center. Return the total.
    #[inline(always)]
    fn add_up(&mut self) -> f64 {
        let mut total = 0.0;
        for ((sum, &nearest), &row_weights) in self.sums.iter_mut().zip(&self.nearest).zip(self.row_weights) {
            total += if nearest == f64::INFINITY { row_weights } else { row_weights * nearest };
            *sum = total;
        }
        total
    }

    /// Draw rows in proportion to their cost and make the row with the smallest remaining cost a center.
    #[inline(always)]
    fn best_of(&mut self, trial_count: usize, numbers: &mut CellRandom) -> usize {
        let (mut best_row, mut least) = (0, f64::INFINITY);
        for trial in 0..trial_count {
            let row = self.draw(numbers.uniform());
            let cost = self.measure(row);
            if trial == 0 || cost < least {
                (best_row, least) = (row, cost);
                std::mem::swap(&mut self.trial_distances, &mut self.best);
            }
        }
        std::mem::swap(&mut self.nearest, &mut self.best);
        best_row
    }

    /// Return the row at a fraction of the total cost; never a row without cost.
    #[inline(always)]
    fn draw(&self, part: f64) -> usize {
        let total = self.sums[self.sums.len() - 1];
        let row = self.sums.partition_point(|&sum| sum <= part * total);
        // Rounding may lead beyond the last row. Then the last row with a cost is used.
        if row < self.sums.len() { row } else { self.sums.partition_point(|&sum| sum < total) }
    }

    /// Write the nearest distances with an additional center at `row` to `trial_distances` and return the total cost.
    #[inline(always)]
    fn measure(&mut self, row: usize) -> f64 {
        self.center.clear();
        self.center.extend(self.points.row(row).iter().map(|value| value.widen()));
        let mut cost = 0.0;
        for (index, trial_distances) in self.trial_distances.iter_mut().enumerate() {
            let distance = squared_distance(self.points.row(index), &self.center);
            *trial_distances = if distance < self.nearest[index] { distance } else { self.nearest[index] };
            cost += self.row_weights[index] * *trial_distances;
        }
        cost
    }

    /// Make the row measured last a center.
    #[inline(always)]
    fn accept(&mut self) {
        std::mem::swap(&mut self.nearest, &mut self.trial_distances);
    }
}

/// Random numbers of a center of a cell: splitmix64.
struct CellRandom(u64);

impl CellRandom {
    fn new(stream: u64, number: u64) -> Self {
        CellRandom(mixed(stream ^ mixed(number)))
    }

    /// Return the next number in 0 … 1, excluding 1.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(GAMMA);
        (mixed(self.0) >> 11) as f64 / (1u64 << 53) as f64
    }
}

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mix the bits of a number.
///
/// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
