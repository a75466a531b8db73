//! Agreement before data is sent: ranks check that their options are equal, and find the largest size of any rank.

use crate::communicator::Communicator;
use crate::elements::{ElementShape, ElementType};
use crate::error::Error;
use crate::owned_buffers::NO_MEMORY;
use crate::task::{CollectiveTask, WholeBuffer};
use ripieno_kernels::keyed::hash_string;
use ripieno_plan::Op;
use ripieno_run::{BufferMemory, Element};

/// Element type and signature of these internal exchanges. The signature distinguishes them from user calls with
/// equally many numbers.
const NUMBERS: ElementType<'static> =
    ElementType { element: Element::U64, shape: ElementShape::Described("numbers of a call of several steps") };
/// Size of the text that describes a rank's options.
const ANNOUNCED_BYTES: usize = 256;

/// Return the maximum of each number over all ranks, or an error if ranks differ in `options`.
///
/// Cost: an allreduce of 8 bytes per number, plus 16 bytes.
pub(crate) fn agree<const N: usize>(comm: &Communicator, numbers: [u64; N], options: &str) -> Result<[u64; N], Error> {
    let hash = hash_string(options.as_bytes());
    let largest = combined_words(comm, &[&numbers[..], &[hash, !hash]].concat(), Op::Max)?;
    match largest[N] == !largest[N + 1] {
        true => Ok(std::array::from_fn(|at| largest[at])),
        false => Err(first_difference(comm, options)?),
    }
}

/// Combine each number over all ranks.
pub(crate) fn combined<const N: usize>(comm: &Communicator, numbers: [u64; N], op: Op) -> Result<[u64; N], Error> {
    let combined = combined_words(comm, &numbers, op)?;
    Ok(std::array::from_fn(|at| combined[at]))
}

/// Combine each number over all ranks. The count must be equal on every rank.
pub(crate) fn combined_words(comm: &Communicator, numbers: &[u64], op: Op) -> Result<Vec<u64>, Error> {
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    comm.run(
        &CollectiveTask::Allreduce { op, vector: WholeBuffer },
        NUMBERS,
        None,
        [BufferMemory::Write(&mut bytes), NO_MEMORY],
    )?;
    Ok(words(&bytes).collect())
}

/// Gather the numbers `own` of every rank, in rank order.
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

/// Return the error that names the first rank with other options than rank 0.
fn first_difference(comm: &Communicator, options: &str) -> Result<Error, Error> {
    let (p, rank) = (comm.world_size(), comm.rank());
    let mut all = vec![0; p * ANNOUNCED_BYTES];
    let announced = &options.as_bytes()[..options.len().min(ANNOUNCED_BYTES)];
    all[rank * ANNOUNCED_BYTES..][..announced.len()].copy_from_slice(announced);
    comm.allgather(&mut all, Element::U8, &vec![ANNOUNCED_BYTES; p], None)?;
    let text = |rank: usize| {
        let announced = String::from_utf8_lossy(&all[rank * ANNOUNCED_BYTES..][..ANNOUNCED_BYTES]);
        announced.trim_end_matches('\0').to_string()
    };
    let rank = (1..p).find(|&rank| text(rank) != text(0)).unwrap_or(0);
    Ok(Error::Disagreement { rank, options: text(rank), first: text(0) })
}
