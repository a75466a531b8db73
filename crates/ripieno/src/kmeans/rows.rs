//! One rank's rows, with checks and statistics over the rows of all ranks.

use super::Clustering;
use crate::agree::all_words;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::number_bytes::{Plain, bytes_of_mut};
use crate::owned_buffers::NO_MEMORY;
use crate::task::CollectiveTask;
use ripieno_kernels::{Matrix, Point, Threads, first_non_finite};
use ripieno_plan::Op;
use ripieno_run::{BufferMemory, Element};

/// Rows at squared distance 0 count as equal if no value differs by more than this, relative to the value. The Python
/// estimator has the same limit.
const SAME_ROWS: f64 = 1e-6;

/// One rank's rows. Their numbers follow the rows of the lower ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankRows<'a, P> {
    pub(super) points: Matrix<'a, P>,
    pub(super) weights: Option<&'a [f64]>,
    first: u64,
    total: u64,
}

impl<'a, P: Point> RankRows<'a, P> {
    /// Compare columns and types of all ranks, and check that all values and weights are finite.
    pub(super) fn new(
        comm: &Communicator,
        points: Matrix<'a, P>,
        weights: Option<&'a [f64]>,
        threads: &Threads,
    ) -> Result<RankRows<'a, P>, Error> {
        assert!(weights.is_none_or(|weights| weights.len() == points.rows()), "one weight per row");
        let no_place = [u64::MAX; 2];
        let not_finite = first_non_finite(points, threads).map_or(no_place, |place| [place.0 as u64, place.1 as u64]);
        let is_invalid = |weight: &f64| !(weight.is_finite() && *weight >= 0.0);
        let invalid_weight = weights.and_then(|weights| weights.iter().position(is_invalid));
        let own = [
            points.rows() as u64,
            points.columns() as u64,
            size_of::<P>() as u64,
            not_finite[0],
            not_finite[1],
            invalid_weight.map_or(u64::MAX, |row| row as u64),
        ];
        let gathered = all_words(comm, &own)?;
        let ranks: Vec<&[u64]> = gathered.chunks_exact(own.len()).collect();
        for (rank, facts) in ranks.iter().enumerate() {
            let description = if facts[1..3] != ranks[0][1..3] {
                let [this, first] = [rank, 0].map(|rank| {
                    let (columns, bits) = (ranks[rank][1], 8 * ranks[rank][2]);
                    format!("rank {rank} has {columns} columns of float{bits}")
                });
                format!("{this}, {first}: expected the same on every rank")
            } else if facts[3] != u64::MAX {
                format!("rank {rank}, row {}, column {}: expected a finite number", facts[3], facts[4])
            } else if facts[5] != u64::MAX {
                format!("rank {rank}, row {}: expected a finite weight of 0 or more", facts[5])
            } else {
                continue;
            };
            return Err(Error::Rows { description });
        }
        let first = ranks[..comm.rank()].iter().map(|facts| facts[0]).sum();
        Ok(RankRows { points, weights, first, total: ranks.iter().map(|facts| facts[0]).sum() })
    }

    /// Return the number of this rank's rows.
    pub(super) fn count(&self) -> usize {
        self.points.rows()
    }

    /// Return the weight of a row.
    pub(super) fn weight(&self, row: usize) -> f64 {
        self.weights.map_or(1.0, |weights| weights[row])
    }

    /// Return the number of a row among the rows of all ranks.
    pub(super) fn number(&self, row: usize) -> u64 {
        self.first + row as u64
    }

    /// Return the number of rows of all ranks.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Return the mean over columns of each column's variance over the rows of all ranks.
    pub(super) fn mean_variance(&self, comm: &Communicator) -> Result<f64, Error> {
        let total = self.total as f64;
        let mut mean = self.column_sums(comm, |_, value| value)?;
        mean.iter_mut().for_each(|sum| *sum /= total);
        let squares = self.column_sums(comm, |column, value| (value - mean[column]) * (value - mean[column]))?;
        Ok(squares.iter().map(|square| square / total).sum::<f64>() / mean.len() as f64)
    }

    fn column_sums(&self, comm: &Communicator, term: impl Fn(usize, f64) -> f64) -> Result<Vec<f64>, Error> {
        let mut sums = vec![0.0; self.points.columns()];
        for row in self.points.values().chunks_exact(sums.len()) {
            for (column, (sum, &value)) in sums.iter_mut().zip(row).enumerate() {
                *sum += term(column, value.into());
            }
        }
        added(comm, sums)
    }

    /// Return the weighted sum of this rank's squared distances, summed as by NumPy.
    pub(super) fn cost(&self, squared_distances: &[f64]) -> f64 {
        let terms = squared_distances.iter().enumerate().map(|(row, distance)| self.weight(row) * distance);
        pairwise_sum(&terms.collect::<Vec<_>>())
    }

    /// Return the values of the rows with these numbers, from any rank, in the order of the numbers.
    pub(super) fn take(&self, comm: &Communicator, numbers: &[u64]) -> Result<Vec<f64>, Error> {
        let columns = self.points.columns();
        // -0.0 changes no value that is added to it.
        let mut values = vec![-0.0; numbers.len() * columns];
        for (&number, into) in numbers.iter().zip(values.chunks_exact_mut(columns)) {
            let row = number.wrapping_sub(self.first);
            if row < self.count() as u64 {
                into.iter_mut().zip(self.points.row(row as usize)).for_each(|(into, &value)| *into = value.into());
            }
        }
        added(comm, values)
    }

    /// Check that squared distances are finite, and not zero between different rows of a cluster.
    pub(super) fn check_distances(
        &self,
        comm: &Communicator,
        clustering: &Clustering<P::Centroid>,
    ) -> Result<(), Error> {
        let place = if !clustering.inertia.is_finite() {
            "far apart"
        } else if clustering.inertia == 0.0 && added(comm, vec![f64::from(self.clusters_differ(clustering))])?[0] > 0.0
        {
            "close together"
        } else {
            return Ok(());
        };
        let bits = 8 * size_of::<P::Centroid>();
        let description = format!("the rows lie too {place} for squared distances in float{bits}: scale them");
        Err(Error::Rows { description })
    }

    /// Return whether a cluster has different rows of this rank.
    fn clusters_differ(&self, clustering: &Clustering<P::Centroid>) -> bool {
        let cluster_count = clustering.centroids.len() / self.points.columns();
        let mut firsts: Vec<Option<&[P]>> = vec![None; cluster_count];
        (0..self.count()).filter(|&row| self.weight(row) > 0.0).any(|row| {
            let values = self.points.row(row);
            let first = *firsts[clustering.labels[row] as usize].get_or_insert(values);
            let differs = |(&value, &first): (&P, &P)| {
                let [value, first]: [f64; 2] = [value.into(), first.into()];
                (value - first).abs() > SAME_ROWS * value.abs()
            };
            values.iter().zip(first).any(differs)
        })
    }
}

/// Return the sums of the numbers over all ranks.
pub(super) fn added(comm: &Communicator, mut numbers: Vec<f64>) -> Result<Vec<f64>, Error> {
    comm.allreduce(bytes_of_mut(&mut numbers), Element::F64, Op::Sum, None)?;
    Ok(numbers)
}

/// Return the numbers of all ranks, one rank after the other.
pub(super) fn gathered<T: Plain>(comm: &Communicator, own: &[T]) -> Result<Vec<T>, Error> {
    let counts: Vec<usize> = all_words(comm, &[own.len() as u64])?.iter().map(|&count| count as usize).collect();
    let begin = counts[..comm.rank()].iter().sum::<usize>();
    let mut all = vec![T::default(); counts.iter().sum()];
    all[begin..][..own.len()].copy_from_slice(own);
    let bytes = bytes_of_mut(&mut all);
    assert_eq!(size_of::<T>(), Element::U64.size_bytes(), "numbers of eight bytes");
    comm.run_once(
        &CollectiveTask::Allgather { chunks: &counts },
        Element::U64,
        [BufferMemory::Write(bytes), NO_MEMORY],
    )?;
    Ok(all)
}

/// Return the sum in the order of NumPy's pairwise summation.
fn pairwise_sum(values: &[f64]) -> f64 {
    const LANES: usize = 8;
    const BLOCK: usize = 128;
    if values.len() > BLOCK {
        let half = values.len() / 2;
        let (low, high) = values.split_at(half - half % LANES);
        return pairwise_sum(low) + pairwise_sum(high);
    }
    let (lanes, rest) = values.as_chunks::<LANES>();
    let Some((first, others)) = lanes.split_first() else { return rest.iter().sum() };
    let mut sums = *first;
    for lane in others {
        sums.iter_mut().zip(lane).for_each(|(sum, value)| *sum += value);
    }
    let [a, b, c, d, e, f, g, h] = sums;
    rest.iter().fold(((a + b) + (c + d)) + ((e + f) + (g + h)), |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::pairwise_sum;

    #[test]
    fn sums_have_the_bits_of_numpys() {
        let inverses: Vec<f64> = (1..1338).map(|number| 1.0 / f64::from(number)).collect();
        assert_eq!(pairwise_sum(&inverses), 7.775773166963392);
        assert_eq!(pairwise_sum(&[0.1; 1000]), 100.00000000000001);
        assert_eq!(pairwise_sum(&[0.1, 0.2, 0.3]), 0.6000000000000001);
        assert_eq!(pairwise_sum(&[]), 0.0);
    }
}
