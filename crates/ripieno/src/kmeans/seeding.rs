//! Initial centroids: random rows, or k of the candidates that the rounds of k-means|| sample.
//!
//! Random numbers depend on the seed and on the numbers of the rows, so any number of ranks chooses the same rows,
//! except for the rounding of sums.
//! Source: Bahmani et al., "Scalable k-means++", VLDB 2012, algorithm 2.

use super::rows::{RankRows, added, gathered};
use crate::communicator::Communicator;
use crate::error::{Error, argument};
use crate::number_bytes::bytes_of;
use ripieno_kernels::keyed::hash_string;
use ripieno_kernels::{Centroid, Matrix, Point, Threads, update_min_distances};
use std::collections::BTreeSet;

/// Increment of the states of a [`SplittableRandom`], and factor of its streams: 2^64 divided by the golden ratio.
const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
/// Expected number of candidates per centroid and round.
const OVERSAMPLING: f64 = 2.0;

/// The initial centroids, or the method to choose them.
#[derive(Clone, Copy, Debug)]
pub enum InitialCentroids<'a> {
    /// These centroids, `k × d`.
    Given(&'a [f64]),
    /// Distinct random rows.
    Random {
        /// Seed of the random numbers.
        seed: u64,
    },
    /// The method k-means||.
    Parallel {
        /// Seed of the random numbers.
        seed: u64,
        /// Number of rounds that sample candidates, at least 1.
        step_count: usize,
    },
}

impl InitialCentroids<'_> {
    /// Return a text that differs for different values.
    pub(super) fn description(&self) -> String {
        match *self {
            InitialCentroids::Given(values) => format!("initialCentroids of hash {:x}", hash_string(bytes_of(values))),
            InitialCentroids::Random { seed } => format!("initMode=random, seed={seed}"),
            InitialCentroids::Parallel { seed, step_count } => {
                format!("initMode=k-means||, initSteps={step_count}, seed={seed}")
            }
        }
    }
}

/// Return the initial centroids, equal on every rank.
pub(super) fn initial_centroids<P: Point>(
    comm: &Communicator,
    rows: &RankRows<'_, P>,
    cluster_count: usize,
    initial: InitialCentroids<'_>,
    threads: &Threads,
) -> Result<Vec<P::Centroid>, Error> {
    match initial {
        InitialCentroids::Given(values) => given_centroids(values, cluster_count, rows.points.columns()),
        InitialCentroids::Random { seed } => {
            let (mut random, mut chosen, mut numbers) = (SplittableRandom(seed), BTreeSet::new(), Vec::new());
            while numbers.len() < cluster_count {
                let number = random.below(rows.total());
                if chosen.insert(number) {
                    numbers.push(number);
                }
            }
            Ok(centroids_of(&rows.take(comm, &numbers)?))
        }
        InitialCentroids::Parallel { seed, step_count } => {
            Candidates::new(comm, rows, threads).sampled(seed, step_count, cluster_count)?.choose(seed, cluster_count)
        }
    }
}

/// Convert given centroids to their type.
fn given_centroids<C: Centroid>(values: &[f64], cluster_count: usize, columns: usize) -> Result<Vec<C>, Error> {
    if values.len() != cluster_count * columns {
        let expected = format!("k={cluster_count} rows of {columns} values");
        return Err(argument("initialCentroids", format!("{} values", values.len()), &expected));
    }
    Ok(centroids_of(values))
}

/// Convert values to the type of centroids.
fn centroids_of<C: Centroid>(values: &[f64]) -> Vec<C> {
    values.iter().map(|&value| C::from_f64(value)).collect()
}

/// Candidates for centroids, and each row's nearest candidate.
struct Candidates<'a, P: Point> {
    comm: &'a Communicator,
    rows: &'a RankRows<'a, P>,
    threads: &'a Threads,
    squared_distances: Vec<f64>,
    closest: Vec<i32>,
    values: Vec<P::Centroid>,
}

impl<'a, P: Point> Candidates<'a, P> {
    fn new(comm: &'a Communicator, rows: &'a RankRows<'a, P>, threads: &'a Threads) -> Candidates<'a, P> {
        let squared_distances = vec![f64::INFINITY; rows.count()];
        Candidates { comm, rows, threads, squared_distances, closest: vec![0; rows.count()], values: Vec::new() }
    }

    fn count(&self) -> usize {
        self.values.len() / self.rows.points.columns()
    }

    /// Sample candidates in some rounds, at least `cluster_count`.
    fn sampled(mut self, seed: u64, step_count: usize, cluster_count: usize) -> Result<Candidates<'a, P>, Error> {
        let (comm, rows) = (self.comm, self.rows);
        let first = SplittableRandom(seed).below(rows.total());
        self.add(&rows.take(comm, &[first])?);
        for step in 1..=step_count {
            let cost = added(comm, vec![rows.cost(&self.squared_distances)])?[0];
            if cost == 0.0 {
                break;
            }
            let scale = OVERSAMPLING * cluster_count as f64 / cost;
            let stream = seed.wrapping_add((step as u64).wrapping_mul(GOLDEN_GAMMA));
            let is_drawn = |&row: &usize| {
                let uniform = SplittableRandom(stream ^ rows.number(row).wrapping_mul(GOLDEN_GAMMA)).uniform();
                uniform < self.squared_distances[row] * rows.weight(row) * scale
            };
            let drawn: Vec<usize> = (0..rows.count()).filter(is_drawn).collect();
            let values: Vec<f64> =
                drawn.iter().flat_map(|&row| rows.points.row(row).iter().map(|&value| value.into())).collect();
            self.add(&gathered(comm, &values)?);
        }
        let mut random = SplittableRandom(!seed);
        while self.count() < cluster_count {
            let numbers: Vec<u64> = (self.count()..cluster_count).map(|_| random.below(rows.total())).collect();
            self.add(&rows.take(comm, &numbers)?);
        }
        Ok(self)
    }

    fn add(&mut self, values: &[f64]) {
        let (columns, first_index) = (self.rows.points.columns(), self.count() as i32);
        let new = centroids_of(values);
        let matrix = Matrix::new(&new, new.len() / columns, columns);
        let (distances, closest) = (&mut self.squared_distances, Some(&mut self.closest[..]));
        update_min_distances(self.rows.points, matrix, first_index, distances, closest, self.threads);
        self.values.extend(new);
    }

    /// Choose centroids among the candidates. The probability of each is proportional to the weight of its rows times
    /// its squared distance to the chosen candidates.
    fn choose(self, seed: u64, cluster_count: usize) -> Result<Vec<P::Centroid>, Error> {
        let columns = self.rows.points.columns();
        let mut weights = vec![0.0; self.count()];
        for (row, &candidate) in self.closest.iter().enumerate() {
            weights[candidate as usize] += self.rows.weight(row);
        }
        let weights = added(self.comm, weights)?;
        let points: Vec<f64> = self.values.iter().map(|&value| value.into()).collect();
        let point = |candidate: usize| &points[candidate * columns..][..columns];
        let mut random = SplittableRandom(seed);
        let mut nearest = vec![1.0; weights.len()];
        let mut chosen = Vec::with_capacity(cluster_count * columns);
        for cluster in 0..cluster_count {
            let next = random.weighted(&weights, &nearest);
            chosen.extend_from_slice(&self.values[next * columns..][..columns]);
            for (candidate, nearest) in nearest.iter_mut().enumerate() {
                let squares = point(next).iter().zip(point(candidate)).map(|(a, b)| (a - b) * (a - b));
                let squared = squares.sum::<f64>();
                *nearest = if cluster == 0 { squared } else { nearest.min(squared) };
            }
        }
        Ok(chosen)
    }
}

/// The random numbers of Java's class of this name.
///
/// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
struct SplittableRandom(u64);

impl SplittableRandom {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Return a number in [0, 1).
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Return a number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        if bound.is_power_of_two() {
            return self.next() & (bound - 1);
        }
        loop {
            let candidate = self.next() >> 1;
            let number = candidate % bound;
            // Reject the candidates of the last, incomplete range.
            if candidate + (bound - 1) - number <= i64::MAX as u64 {
                return number;
            }
        }
    }

    /// Return an index with a probability proportional to the product of both factors; any index if all are zero.
    fn weighted(&mut self, weights: &[f64], factors: &[f64]) -> usize {
        let shares = || weights.iter().zip(factors).map(|(weight, factor)| weight * factor).enumerate();
        let total = shares().map(|(_, share)| share).sum::<f64>();
        if total == 0.0 {
            return self.below(weights.len() as u64) as usize;
        }
        let mut left = self.uniform() * total;
        let mut last = 0;
        for (index, share) in shares().filter(|&(_, share)| share > 0.0) {
            last = index;
            left -= share;
            if left < 0.0 {
                break;
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::SplittableRandom;

    #[test]
    fn random_numbers_are_those_of_java() {
        let mut random = SplittableRandom(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.uniform(), 0.173_644_096_670_912_63);
        assert_eq!([1000, 1 << 20].map(|bound| random.below(bound)), [211, 490_303]);
        let expected = [3_567_305_580_077_179_309, 2_146_363_211_429_306_531, 916_244_348_587_400_354];
        let mut random = SplittableRandom(5);
        assert_eq!([(); 3].map(|()| random.below(6_000_000_000_000_000_000)), expected);
    }
}
