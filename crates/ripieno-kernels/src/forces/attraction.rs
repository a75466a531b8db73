//! Attraction along edges.

use super::MIN_DISTANCE;
use crate::{Matrix, Threads};

/// Rows per unit of work.
const PART_ROWS: usize = 64;
/// Estimated cost of an edge in vectorized operations.
const EDGE_OPERATIONS: usize = 24;

/// Edges from some points to all points, in compressed row form.
#[derive(Clone, Copy, Debug)]
pub struct Attraction<'a> {
    /// Number of the first point that has edges here.
    pub first: usize,
    /// Start of each point's edges, and the end of the last point's edges.
    pub starts: &'a [i64],
    /// Target point of each edge.
    pub columns: &'a [i32],
    /// The weight of each edge.
    pub weights: &'a [f32],
}

/// Subtract the attraction of the edges from `out`: for each point `x` the sum of `w·‖x − y‖/length·(x − y)` over its
/// edges.
///
/// # Panics
/// If the shapes do not fit, or an edge has no valid target.
pub fn attraction(edges: Attraction, length: f64, all: Matrix<f32>, out: &mut [f64], threads: &Threads) {
    let k = all.columns();
    assert_eq!(out.len(), (edges.starts.len() - 1) * k, "a sum for every point and dimension");
    assert_eq!(edges.columns.len(), edges.weights.len(), "a weight for every edge");
    let parts: Vec<_> = out.chunks_mut(PART_ROWS * k).enumerate().collect();
    let operations = EDGE_OPERATIONS * edges.columns.len() / parts.len().max(1);
    threads.for_each(
        parts,
        operations,
        || (),
        |(), (part, out)| {
            let first = part * PART_ROWS;
            match k {
                // With a constant number of dimensions the compiler removes the inner loops.
                2 => add_attraction(2, edges, first, length, all, out),
                3 => add_attraction(3, edges, first, length, all, out),
                k => add_attraction(k, edges, first, length, all, out),
            }
        },
    );
}

/// Subtract the attraction on the rows of `out`, starting with row `first`.
#[inline(always)]
fn add_attraction(k: usize, edges: Attraction, first: usize, length: f64, all: Matrix<f32>, out: &mut [f64]) {
    let position = |point: usize| &all.values()[point * k..][..k];
    for (row, sums) in out.chunks_exact_mut(k).enumerate() {
        let row = first + row;
        let target = position(edges.first + row);
        let range = edges.starts[row] as usize..edges.starts[row + 1] as usize;
        for (&column, &weight) in edges.columns[range.clone()].iter().zip(&edges.weights[range]) {
            let source = position(column as usize);
            let difference = |at: usize| f64::from(target[at]) - f64::from(source[at]);
            let square: f64 = (0..k).map(|at| difference(at) * difference(at)).sum();
            let distance = square.sqrt().max(f64::from(MIN_DISTANCE));
            let factor = f64::from(weight) * distance / length;
            (0..k).for_each(|at| sums[at] -= factor * difference(at));
        }
    }
}
