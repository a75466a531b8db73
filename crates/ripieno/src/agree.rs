//! What ranks make sure of before data travels: that all have asked for the same, and what the largest of them have.

use crate::communicator::Communicator;
use crate::elements::{ElementShape, ElementType};
use crate::error::Error;
use crate::owned_buffers::NO_MEMORY;
use crate::task::{CollectiveTask, Whole};
use ripieno_kernels::keyed::hash_string;
use ripieno_plan::Op;
use ripieno_run::{BufferMemory, Element};

/// What is exchanged here is no call of a user's, whose numbers may be as many.
const NUMBERS: ElementType<'static> =
    ElementType { element: Element::U64, shape: ElementShape::Told("numbers of a call of several steps") };
/// What a rank asked for is told by so many bytes of text.
const TOLD_BYTES: usize = 256;

/// The largest of each of `numbers` that any rank gives, if all ranks ask for the same in words, `options`. Cost: an
/// allreduce of 8 bytes per number and 16 more.
pub(crate) fn agree<const N: usize>(comm: &Communicator, numbers: [u64; N], options: &str) -> Result<[u64; N], Error> {
    let hash = hash_string(options.as_bytes());
    let largest = combined_words(comm, &[&numbers[..], &[hash, !hash]].concat(), Op::Max)?;
    match largest[N] == !largest[N + 1] {
        true => Ok(std::array::from_fn(|at| largest[at])),
        false => Err(first_difference(comm, options)?),
    }
}

/// The combination over all ranks of each of some numbers.
pub(crate) fn combined<const N: usize>(comm: &Communicator, numbers: [u64; N], op: Op) -> Result<[u64; N], Error> {
    let combined = combined_words(comm, &numbers, op)?;
    Ok(std::array::from_fn(|at| combined[at]))
}

/// The same, of as many numbers as every rank has.
pub(crate) fn combined_words(comm: &Communicator, numbers: &[u64], op: Op) -> Result<Vec<u64>, Error> {
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    comm.run(
        &CollectiveTask::Allreduce { op, vector: Whole },
        NUMBERS,
        None,
        [BufferMemory::Write(&mut bytes), NO_MEMORY],
    )?;
    Ok(words(&bytes).collect())
}

/// `own` of every rank, one after the other.
pub(crate) fn all_words(comm: &Communicator, own: &[u64]) -> Result<Vec<u64>, Error> {
    let (p, rank) = (comm.world_size(), comm.rank());
    let mut all = vec![0; p * own.len() * 8];
    for (place, word) in all[rank * own.len() * 8..].chunks_exact_mut(8).zip(own) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    let counts = vec![own.len(); p];
    comm.run(
        &CollectiveTask::Allgather { chunks: &counts },
        NUMBERS,
        None,
        [BufferMemory::Write(&mut all), NO_MEMORY],
    )?;
    Ok(words(&all).collect())
}

pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
}

/// The error that names the first rank whose options differ from those of rank 0.
fn first_difference(comm: &Communicator, options: &str) -> Result<Error, Error> {
    let (p, rank) = (comm.world_size(), comm.rank());
    let mut all = vec![0; p * TOLD_BYTES];
    let told = &options.as_bytes()[..options.len().min(TOLD_BYTES)];
    all[rank * TOLD_BYTES..][..told.len()].copy_from_slice(told);
    comm.allgather(&mut all, Element::U8, &vec![TOLD_BYTES; p], None)?;
    let text = |rank: usize| {
        let told = String::from_utf8_lossy(&all[rank * TOLD_BYTES..][..TOLD_BYTES]);
        told.trim_end_matches('\0').to_string()
    };
    let rank = (1..p).find(|&rank| text(rank) != text(0)).unwrap_or(0);
    Ok(Error::Disagreement { rank, asked: text(rank), first: text(0) })
}
