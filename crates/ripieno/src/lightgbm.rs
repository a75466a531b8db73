//! LightGBM's network on a communicator: two functions that exchange the histograms and splits of its distributed
//! learners. LightGBM calls them on the training thread, without Python.
//!
//! The reduce-scatter combines in rank order by LightGBM's own function, so the result is bitwise identical in every
//! run. The functions cannot return an error. After the first failure, they write zeros, and the trainer gets a request
//! to stop.

use crate::communicator::Communicator;
use crate::elements::{ElementShape, ElementType};
use crate::error::{Error, argument};
use crate::owned_buffers::NO_MEMORY;
use crate::task::CollectiveTask;
use ripieno_plan::Op;
use ripieno_run::{BufferMemory, Element};
use std::cell::RefCell;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Provides the communicator of this thread's training, and stops the training.
pub trait Trainer {
    /// Return the communicator that carries the histograms.
    fn communicator(&self) -> &Communicator;
    /// Stop the training of this thread as soon as possible.
    fn stop(&self);
}

/// Statistics of the exchanges for one training thread.
#[derive(Debug, Default)]
pub struct ExchangeStatistics {
    /// Number of calls by LightGBM.
    pub calls: u64,
    /// Number of calls that combined histograms; if 0, the ranks have trained independently.
    pub reductions: u64,
    /// Bytes passed in by LightGBM.
    pub bytes: u64,
    /// The first failure.
    pub error: Option<Error>,
}

struct LightGbmNetwork {
    trainer: Box<dyn Trainer>,
    statistics: ExchangeStatistics,
}

thread_local! {
    /// Thread-local, like LightGBM's own network state.
    static NETWORK: RefCell<Option<LightGbmNetwork>> = const { RefCell::new(None) };
}

/// Combines `bytes` bytes of elements of `type_size` from the first pointer into the elements at the second.
type LightGbmReducer = unsafe extern "C" fn(from: *const u8, into: *mut u8, type_size: i32, bytes: i32);

/// Route the network calls of this thread's LightGBM through `trainer`. Return the addresses of the functions for
/// reduce-scatter and for allgather.
pub fn enter(trainer: Box<dyn Trainer>) -> Result<(usize, usize), Error> {
    NETWORK.with_borrow_mut(|network| {
        if network.is_some() {
            return Err(argument("network", "a second one", "one network per thread"));
        }
        *network = Some(LightGbmNetwork { trainer, statistics: ExchangeStatistics::default() });
        Ok((reduce_scatter as *const () as usize, allgather as *const () as usize))
    })
}

/// End the routing, and return the statistics.
pub fn leave() -> ExchangeStatistics {
    NETWORK.take().map(|network| network.statistics).unwrap_or_default()
}

/// Reduce-scatter for LightGBM. `reducer` is a C++ reference to a function, and therefore a pointer to a pointer.
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn reduce_scatter(
    input: *mut u8,
    input_bytes: i32,
    type_size: i32,
    starts: *const i32,
    lengths: *const i32,
    block_count: i32,
    output: *mut u8,
    output_bytes: i32,
    reducer: *const LightGbmReducer,
) {
    // SAFETY: LightGBM passes blocks and buffers of these sizes, and no other code uses them until this returns.
    let (blocks, input, output, reducer) = unsafe {
        let blocks = RankBlocks::new(starts, lengths, block_count);
        (blocks, bytes_mut(input, input_bytes), bytes_mut(output, output_bytes), *reducer)
    };
    NETWORK.with_borrow_mut(|network| {
        if let Some(network) = network {
            network.statistics.reductions += 1;
        }
    });
    exchange(output, input_bytes, |comm, output| {
        blocks.check(comm, input.len())?;
        let row_bytes = type_size as usize;
        let function = comm.function(row_bytes, move |into, from| {
            // SAFETY: both slices have the same length, in whole elements of this size.
            unsafe { reducer(from.as_ptr(), into.as_mut_ptr(), type_size, from.len() as i32) };
            Ok(())
        })?;
        let counts: Vec<usize> = blocks.lengths.iter().map(|&bytes| bytes as usize / row_bytes).collect();
        let reported = format!("LightGBM's histograms of elements of {row_bytes} bytes");
        let elements = ElementType { element: Element::U8, shape: ElementShape::Described(&reported) };
        comm.run_by(
            &CollectiveTask::ReduceScatter { chunks: &counts, op: Op::Function },
            elements,
            &function,
            None,
            input,
        )?;
        let own_block = blocks.of(comm.rank());
        output[..own_block.len()].copy_from_slice(&input[own_block]);
        Ok(())
    });
}

/// Allgather for LightGBM.
unsafe extern "C" fn allgather(
    input: *mut u8,
    input_bytes: i32,
    starts: *const i32,
    lengths: *const i32,
    block_count: i32,
    output: *mut u8,
    output_bytes: i32,
) {
    // SAFETY: as above.
    let (blocks, input, output) = unsafe {
        let blocks = RankBlocks::new(starts, lengths, block_count);
        (blocks, bytes_mut(input, input_bytes), bytes_mut(output, output_bytes))
    };
    exchange(output, input_bytes, |comm, output| {
        let total = blocks.total();
        blocks.check(comm, output.len().min(total))?;
        let own_block = blocks.of(comm.rank());
        output[own_block.clone()].copy_from_slice(&input[..own_block.len()]);
        let counts: Vec<usize> = blocks.lengths.iter().map(|&bytes| bytes as usize).collect();
        let elements = ElementType { element: Element::U8, shape: ElementShape::Described("LightGBM's splits") };
        let memory = [BufferMemory::Write(&mut output[..total]), NO_MEMORY];
        comm.run(&CollectiveTask::Allgather { chunks: &counts }, elements, None, memory)
    });
}

/// Perform `call` unless an earlier call has failed. After a failure, fill `output` with zeros.
fn exchange(output: &mut [u8], bytes: i32, call: impl FnOnce(&Communicator, &mut [u8]) -> Result<(), Error>) {
    let is_done = NETWORK.with_borrow_mut(|network| {
        let Some(LightGbmNetwork { trainer, statistics }) = network.as_mut() else { return false };
        if statistics.error.is_some() {
            return false;
        }
        statistics.calls += 1;
        statistics.bytes += bytes as u64;
        let called = call(trainer.communicator(), output);
        if let Err(error) = called {
            statistics.error = Some(error);
            trainer.stop();
            return false;
        }
        true
    });
    if !is_done {
        output.fill(0);
    }
}

/// The block of bytes of each rank, in one buffer.
struct RankBlocks<'a> {
    starts: &'a [i32],
    lengths: &'a [i32],
}

impl RankBlocks<'_> {
    /// # Safety
    /// Both pointers must be valid for `count` numbers.
    unsafe fn new<'a>(starts: *const i32, lengths: *const i32, count: i32) -> RankBlocks<'a> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            RankBlocks {
                starts: from_raw_parts(starts, count as usize),
                lengths: from_raw_parts(lengths, count as usize),
            }
        }
    }

    fn total(&self) -> usize {
        self.lengths.iter().map(|&bytes| bytes as usize).sum()
    }

    fn of(&self, rank: usize) -> std::ops::Range<usize> {
        let start = self.starts[rank] as usize;
        start..start + self.lengths[rank] as usize
    }

    /// Check that there is one block per rank, one after the other, in a buffer of `bytes`.
    fn check(&self, comm: &Communicator, bytes: usize) -> Result<(), Error> {
        let are_contiguous =
            (0..self.starts.len().saturating_sub(1)).all(|block| self.of(block).end == self.of(block + 1).start);
        match self.lengths.len() == comm.world_size() && are_contiguous && self.total() == bytes {
            true => Ok(()),
            false => {
                let expected = format!("{} blocks, one after the other, of {bytes} bytes in all", comm.world_size());
                Err(argument("LightGBM's blocks", format!("{:?}", self.lengths), &expected))
            }
        }
    }
}

/// # Safety
/// The pointer must be valid for `length` bytes, unless that is 0.
unsafe fn bytes_mut<'a>(pointer: *mut u8, length: i32) -> &'a mut [u8] {
    match length {
        0 => &mut [],
        // SAFETY: guaranteed by the caller.
        _ => unsafe { from_raw_parts_mut(pointer, length as usize) },
    }
}
