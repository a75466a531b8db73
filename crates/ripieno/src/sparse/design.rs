//! Design of degrees for the sets of all ranks, from a sample of their keys and from packet costs.
//!
//! Keys are a pseudo-random permutation of the indices, so the keys below a limit are a sample. Cost: an allgather of
//! at most [`MAX_SAMPLE_KEYS`] keys of each set of each rank.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section IV.

use crate::agree::words;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::owned_buffers::NO_MEMORY;
use crate::task::CollectiveTask;
use ripieno_plan::sparse::Degrees;
use ripieno_plan::sparse::density::{Curve, Empirical};
use ripieno_plan::sparse::design::{self, DirectionSets};
use ripieno_run::{BufferMemory, Element};

/// Expected sample size of the largest set.
const SAMPLE_KEYS: u64 = 512;
/// Maximum sample size. The expected sample size is ten standard deviations below it.
const MAX_SAMPLE_KEYS: u64 = 740;

/// The keys of a rank that are below a limit.
struct DensitySample {
    out_keys: Vec<u64>,
    in_keys: Vec<u64>,
}

/// Maxima over all ranks.
#[derive(Clone, Copy)]
pub(super) struct Largest {
    /// Exclusive upper bound of the indices.
    pub size: u64,
    /// Number of keys of the largest set of either kind.
    pub set: u64,
}

/// Design the degrees for rows of `row_bytes` with these sets of ascending keys. The result is equal on every rank.
pub(super) fn degrees(
    comm: &Communicator,
    out_keys: &[u64],
    in_keys: &[u64],
    largest: Largest,
    row_bytes: usize,
) -> Result<Degrees, Error> {
    let p = comm.world_size();
    if matches!(p, 1 | 2 | 3 | 5 | 7) {
        // The direct degree is the only choice for these numbers of ranks.
        return Ok(Degrees::direct(p));
    }
    let range = match largest.set {
        0..=SAMPLE_KEYS => largest.size,
        set => (u128::from(largest.size) * u128::from(SAMPLE_KEYS) / u128::from(set)).max(1) as u64,
    };
    let samples =
        gather(comm, below(out_keys, range), below(in_keys, range), largest.set.min(MAX_SAMPLE_KEYS) as usize)?;
    let (out_samples, in_samples): (Vec<_>, Vec<_>) =
        samples.into_iter().map(|sample| (sample.out_keys, sample.in_keys)).unzip();
    let rows = |samples: &[Vec<u64>]| {
        let sampled: usize = samples.iter().map(Vec::len).sum();
        sampled as f64 / p as f64 * (largest.size as f64 / range as f64)
    };
    let curve = |samples: &[Vec<u64>]| Curve::Empirical(Empirical::of(samples, range.max(1)));
    let (out_curve, in_curve) = (curve(&out_samples), curve(&in_samples));
    let out_sets = DirectionSets { curve: &out_curve, rows: rows(&out_samples) };
    let in_sets = DirectionSets { curve: &in_curve, rows: rows(&in_samples) };
    Ok(design::choose(p, out_sets, in_sets, row_bytes, &comm.packets()).degrees)
}

fn below(keys: &[u64], range: u64) -> &[u64] {
    &keys[..keys.partition_point(|&key| key < range).min(MAX_SAMPLE_KEYS as usize)]
}

/// Gather the samples of all ranks, with at most `max_count` keys of either set.
fn gather(
    comm: &Communicator,
    out_keys: &[u64],
    in_keys: &[u64],
    max_count: usize,
) -> Result<Vec<DensitySample>, Error> {
    let (p, words_each) = (comm.world_size(), 2 + 2 * max_count);
    let mut own = vec![out_keys.len() as u64, in_keys.len() as u64];
    own.extend(out_keys.iter().chain(in_keys));
    let mut all = vec![0; 8 * p * words_each];
    for (place, word) in all[8 * comm.rank() * words_each..].chunks_exact_mut(8).zip(&own) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    let counts = vec![words_each; p];
    let task = CollectiveTask::Allgather { chunks: &counts };
    comm.run_once(&task, Element::U64, [BufferMemory::Write(&mut all), NO_MEMORY])?;
    let words: Vec<u64> = words(&all).collect();
    let sample = |(rank, words): (usize, &[u64])| {
        let (counts, keys) = words.split_at(2);
        if counts.iter().any(|&count| count > max_count as u64) {
            let cause = format!(
                "rank {rank} sent a sample of {} and {} keys: expected at most {max_count}",
                counts[0], counts[1]
            );
            return Err(Error::Malformed { cause });
        }
        let (out_count, in_count) = (counts[0] as usize, counts[1] as usize);
        Ok(DensitySample { out_keys: keys[..out_count].to_vec(), in_keys: keys[out_count..][..in_count].to_vec() })
    };
    words.chunks_exact(words_each).enumerate().map(sample).collect()
}
