//! Configuration: indices descend through the layers, and every rank learns which rows pass through it.
//!
//! Cost: an allreduce of 32 bytes and, if degrees are designed, an allgather of a sample of the keys; per layer two
//! messages to each of `d - 1` members of the group, the first of 16 bytes, the second with the encoded keys of its
//! range; at the end an allreduce of 8 bytes, unless missing indices are zero.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section III.A.

use super::indices::{self, IndexRows, sorted};
use super::messages::PeerMessages;
use super::team::RankThreads;
use super::{SparseOptions, SparseReduce, design, ending_job};
use crate::agree::{agree, all_words, combined};
use crate::communicator::Communicator;
use crate::elements::hash;
use crate::error::Error;
use ripieno_plan::Op;
use ripieno_plan::sparse::{Configurator, Degrees, EXAMPLE_COUNT, MalformedKeySets, MissingKeys, Permutation};

/// Row size assumed for the design, as for doubles: the actual size is not known before the first reduction.
const PRESUMED_ROW_BYTES: usize = 8;

/// The values that all ranks have agreed on, and the keys that this rank has to send.
pub(super) struct PreparedConfigure {
    pub size: u64,
    pub permutation: Permutation,
    pub out: IndexRows,
    pub wanted: IndexRows,
    pub machine: Configurator,
    pub degrees: Degrees,
    pub team: RankThreads,
}

impl Communicator {
    /// Prepare reductions in which every rank contributes a row for each of its `out_indices` and receives the combined
    /// row of each of its `in_indices`. Both may be in any order and have repetitions. Every rank must call this.
    ///
    /// Fails alike on every rank with [`Error::Disagreement`] if options differ, and with [`Error::MissingIndices`] if
    /// a rank requests an index that no rank contributes. Fails with [`Error::Argument`], and nothing sent, if this
    /// rank's indices are negative, not less than the size or too many. A rank that cannot decode the data of another,
    /// or has no memory for it, ends the job.
    pub fn sparse(
        &self,
        out_indices: &[i64],
        in_indices: &[i64],
        options: &SparseOptions,
    ) -> Result<SparseReduce, Error> {
        ending_job(self, || self.configure(out_indices, in_indices, options))
    }

    fn configure(
        &self,
        out_indices: &[i64],
        in_indices: &[i64],
        options: &SparseOptions,
    ) -> Result<SparseReduce, Error> {
        let mut prepared = prepare(self, out_indices, in_indices, options, PRESUMED_ROW_BYTES, "")?;
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

/// Check and sort the indices, and agree with the other ranks on the options. If data is sent together with the
/// indices, `rows` describes it to the other ranks.
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
    let least = |name, indices| indices::check(name, indices, options.size, &team);
    let least = least("out_indices", out_indices)?.max(least("in_indices", in_indices)?);
    indices::check_numbers(out_indices.len() + in_indices.len(), options.size)?;
    let longest = out_indices.len().max(in_indices.len()) as u64;
    let asked = format!("{options}{rows}{}", packets(comm, options));
    let [size, set] = agree(comm, [options.size.unwrap_or(least), longest], &asked)?;
    let permutation = Permutation::new(size);
    let (out_keys, out) = sorted(out_indices, &permutation, true, &team);
    let (in_keys, wanted) = match in_indices == out_indices {
        true => (out_keys.clone(), out.clone()),
        false => sorted(in_indices, &permutation, false, &team),
    };
    let degrees = match &options.degrees {
        Some(degrees) => degrees.clone(),
        None => design::degrees(comm, &out_keys, &in_keys, design::Largest { size, set }, row_bytes)?,
    };
    let machine = Configurator::new(comm.rank(), &degrees, size, out_keys, in_keys, options.dense_above);
    Ok(PreparedConfigure { size, permutation, out, wanted, machine, degrees, team })
}

/// If degrees are designed, describe the packet costs for comparison: every rank must use the same.
fn packets(comm: &Communicator, options: &SparseOptions) -> String {
    if options.degrees.is_some() {
        return String::new();
    }
    let curve = comm.packets();
    let of_all = [curve.latency_s(), curve.contention_s()];
    let numbers = curve.points().iter().flat_map(|&(bytes, seconds)| [bytes, seconds]).chain(of_all);
    let bytes: Vec<u8> = numbers.flat_map(|number| number.to_bits().to_le_bytes()).collect();
    format!(", packets #{:08x}", hash(&bytes))
}

/// Return the error for invalid keys from a peer.
pub(super) fn malformed(error: MalformedKeySets) -> Error {
    Error::Malformed { cause: error.to_string() }
}

/// Fail on every rank if any has found requested indices that no rank contributes.
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
