//! Rows for empty clusters: the rows that are farthest from their centroids.

use super::rows::{RankRows, gathered};
use crate::communicator::Communicator;
use crate::error::Error;
use ripieno_kernels::Point;
use std::cmp::Ordering;

/// A row that may move to an empty cluster.
#[derive(Clone, Copy)]
struct Candidate {
    squared_distance: f64,
    number: u64,
    cluster: usize,
    weight: f64,
}

impl Candidate {
    fn to_words(self) -> [u64; 4] {
        [self.squared_distance.to_bits(), self.number, self.cluster as u64, self.weight.to_bits()]
    }

    fn of_words(&[squared_distance, number, cluster, weight]: &[u64; 4]) -> Candidate {
        let [squared_distance, weight] = [squared_distance, weight].map(f64::from_bits);
        Candidate { squared_distance, number, cluster: cluster as usize, weight }
    }

    /// Order candidates by descending distance; ties by number.
    fn order(&self, other: &Candidate) -> Ordering {
        other.squared_distance.total_cmp(&self.squared_distance).then(self.number.cmp(&other.number))
    }
}

/// Move rows to the empty clusters. Return the number of moved rows.
///
/// The first empty cluster gets the farthest row of all ranks, and so on; ties go to the lower number. Rows of weight
/// zero and rows at their centroid stay. `sums` and `weight_sums` are of the rows of all ranks, and change equally on
/// every rank.
pub(super) fn fill_empty_clusters<P: Point>(
    comm: &Communicator,
    rows: &RankRows<'_, P>,
    labels: &[i32],
    squared_distances: &[f64],
    sums: &mut [f64],
    weight_sums: &mut [f64],
) -> Result<usize, Error> {
    let empty: Vec<usize> = (0..weight_sums.len()).filter(|&cluster| weight_sums[cluster] == 0.0).collect();
    if empty.is_empty() {
        return Ok(0);
    }
    let own = (0..rows.count()).map(|row| Candidate {
        squared_distance: squared_distances[row],
        number: rows.number(row),
        cluster: labels[row] as usize,
        weight: rows.weight(row),
    });
    let own = own.filter(|row| row.squared_distance > 0.0 && row.weight > 0.0).collect();
    let words: Vec<u64> = farthest(own, empty.len()).into_iter().flat_map(Candidate::to_words).collect();
    let all = gathered(comm, &words)?;
    let mut moved = farthest(all.as_chunks().0.iter().map(Candidate::of_words).collect(), empty.len());
    moved.sort_unstable_by(Candidate::order);

    let columns = rows.points.columns();
    let values = rows.take(comm, &moved.iter().map(|row| row.number).collect::<Vec<_>>())?;
    let moved = || moved.iter().zip(values.chunks_exact(columns));
    for (row, values) in moved() {
        weight_sums[row.cluster] -= row.weight;
        let sums = &mut sums[row.cluster * columns..][..columns];
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum -= value * row.weight);
    }
    for ((row, values), &cluster) in moved().zip(&empty) {
        weight_sums[cluster] = row.weight;
        let sums = &mut sums[cluster * columns..][..columns];
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = value * row.weight);
    }
    Ok(moved().len())
}

/// Return the first `limit` candidates, in any order.
fn farthest(mut candidates: Vec<Candidate>, limit: usize) -> Vec<Candidate> {
    if limit < candidates.len() {
        candidates.select_nth_unstable_by(limit, Candidate::order);
        candidates.truncate(limit);
    }
    candidates
}
