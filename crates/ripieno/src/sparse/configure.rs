//! Configuration: ranks send their indices down the layers, and determine which rows pass through each rank.
//!
//! Cost: an allreduce of 32 bytes. If degrees are designed, an allgather of a sample of the keys. Per layer, two
//! messages to each of `d - 1` members of the group: the first has 16 bytes, the second has the encoded keys of its
//! range. Unless missing indices are zero, an allreduce of 8 bytes at the end.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section III.A.

use super::indices::{self, IndexRows, sorted};
use super::messages::PeerMessages;
use super::team::RankThreads;
use super::{SparseOptions, SparseReduce, abort_on_error, design};
use crate::agree::{agree, all_words, combined};
use crate::communicator::Communicator;
use crate::elements::hash;
use crate::error::Error;
use ripieno_plan::Op;
use ripieno_plan::sparse::{Configurator, Degrees, EXAMPLE_COUNT, MalformedKeySets, MissingKeys, Permutation};

/// Row size that the design assumes (one float64), because the actual size is unknown before the first reduction.
const ASSUMED_ROW_BYTES: usize = 8;

/// The configuration that all ranks have agreed on, and this rank's keys.
pub(super) struct PreparedConfigure {
    pub size: u64,
    pub permutation: Permutation,
    pub out_rows: IndexRows,
    pub in_rows: IndexRows,
    pub machine: Configurator,
    pub degrees: Degrees,
    pub team: RankThreads,
}

impl Communicator {
    /// Prepare reductions. Every rank contributes a row for each of its `out_indices`, and receives the combined row of
    /// each of its `in_indices`. Both may be in any order and contain repetitions. Every rank must call this.
    ///
    /// # Errors
    /// Every rank gets [`Error::Disagreement`] if options differ, and [`Error::MissingIndices`] if a rank requests an
    /// index that no rank contributes. This rank gets [`Error::Argument`], and sends nothing, if its indices are
    /// negative, not less than the size, or too many. A rank that cannot decode or store received data ends the job.
    pub fn sparse(
        &self,
        out_indices: &[i64],
        in_indices: &[i64],
        options: &SparseOptions,
    ) -> Result<SparseReduce, Error> {
        abort_on_error(self, || self.configure(out_indices, in_indices, options))
    }

    fn configure(
        &self,
        out_indices: &[i64],
        in_indices: &[i64],
        options: &SparseOptions,
    ) -> Result<SparseReduce, Error> {
        let mut prepared = prepare(self, out_indices, in_indices, options, ASSUMED_ROW_BYTES, "")?;
        for step in 0..prepared.machine.step_count() {
            let mut messages = PeerMessages::default();
            let outgoing = prepared.machine.outgoing(step, &prepared.team);
            outgoing.into_iter().for_each(|(peer, keys)| messages.add(peer, &keys, &[]));
            let arrived = messages.exchange(self, &prepared.machine.incoming_peers(step))?;
            prepared.machine.absorb(step, &arrived.keys(), &prepared.team).map_err(malformed)?;
        }
        SparseReduce::new(self, prepared, options)
    }
}

/// Check and sort the indices, and agree with the other ranks on the options. If rows are sent together with the
/// indices, `rows` describes their schema, which ranks compare.
pub(super) fn prepare(
    comm: &Communicator,
    out_indices: &[i64],
    in_indices: &[i64],
    options: &SparseOptions,
    row_bytes: usize,
    rows: &str,
) -> Result<PreparedConfigure, Error> {
    options.check(comm.world_size())?;
    let team = RankThreads::new(options.threads);
    let bound = |name, indices| indices::check(name, indices, options.size, &team);
    let bound = bound("out_indices", out_indices)?.max(bound("in_indices", in_indices)?);
    indices::check_numbers(out_indices.len() + in_indices.len(), options.size)?;
    let longest = out_indices.len().max(in_indices.len()) as u64;
    let described = format!("{options}{rows}{}", packets(comm, options));
    let [size, set] = agree(comm, [options.size.unwrap_or(bound), longest], &described)?;
    let permutation = Permutation::new(size);
    let (out_keys, out_rows) = sorted(out_indices, &permutation, true, &team);
    let (in_keys, in_rows) = match in_indices == out_indices {
        true => (out_keys.clone(), out_rows.clone()),
        false => sorted(in_indices, &permutation, false, &team),
    };
    let degrees = match &options.degrees {
        Some(degrees) => degrees.clone(),
        None => design::degrees(comm, &out_keys, &in_keys, design::Largest { size, set }, row_bytes)?,
    };
    let machine = Configurator::new(comm.rank(), &degrees, size, out_keys, in_keys, options.dense_above);
    Ok(PreparedConfigure { size, permutation, out_rows, in_rows, machine, degrees, team })
}

/// Return a hash of the packet costs for comparison, if degrees are designed. Every rank must use the same costs.
fn packets(comm: &Communicator, options: &SparseOptions) -> String {
    if options.degrees.is_some() {
        return String::new();
    }
    let curve = comm.packets();
    let scalars = [curve.latency_s(), curve.contention_s()];
    let numbers = curve.points().iter().flat_map(|&(bytes, seconds)| [bytes, seconds]).chain(scalars);
    let bytes: Vec<u8> = numbers.flat_map(|number| number.to_bits().to_le_bytes()).collect();
    format!(", packets #{:08x}", hash(&bytes))
}

/// Return the error for invalid keys from a peer.
pub(super) fn malformed(error: MalformedKeySets) -> Error {
    Error::Malformed { cause: error.to_string() }
}

/// Fail on every rank if any rank has found requested indices that no rank contributes.
pub(super) fn check_missing(
    comm: &Communicator,
    missing: &MissingKeys,
    permutation: &Permutation,
) -> Result<(), Error> {
    let [count] = combined(comm, [missing.count], Op::Sum)?;
    if count == 0 {
        return Ok(());
    }
    let mut own = [u64::MAX; EXAMPLE_COUNT];
    own.iter_mut().zip(&missing.examples).for_each(|(place, &key)| *place = permutation.index(key));
    let mut examples: Vec<u64> = all_words(comm, &own)?.into_iter().filter(|&index| index != u64::MAX).collect();
    examples.sort_unstable();
    examples.truncate(EXAMPLE_COUNT);
    Err(Error::MissingIndices { count, examples })
}
