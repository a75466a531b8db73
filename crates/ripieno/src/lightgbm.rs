//! LightGBM's network on a communicator: the two functions that its distributed learners exchange histograms and splits
//! by, called on the thread that trains, without Python.
//!
//! A reduce-scatter combines in the order of the ranks by LightGBM's own function, so every run has the same bits. The
//! functions cannot fail: after the first failure all that they give are zeros, and whoever trains is told to stop.

use crate::communicator::Communicator;
use crate::elements::{ElementShape, ElementType};
use crate::error::{Error, argument};
use crate::owned_buffers::NO_MEMORY;
use crate::task::CollectiveTask;
use ripieno_plan::Op;
use ripieno_run::{BufferMemory, Element};
use std::cell::RefCell;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Whoever has the communicator, and is to stop the training of this thread.
pub trait Trainer {
    /// By which histograms travel.
    fn communicator(&self) -> &Communicator;
    /// Has the training of this thread stopped as soon as may be.
    fn stop(&self);
}

/// What was exchanged for a thread that trains.
#[derive(Debug, Default)]
pub struct Exchanged {
    /// Calls of LightGBM.
    pub calls: u64,
    /// Those that combined histograms; without any the ranks have trained apart.
    pub reductions: u64,
    /// Bytes that it gave.
    pub bytes: u64,
    /// The first failure.
    pub error: Option<Error>,
}

struct LightGbmNetwork {
    trainer: Box<dyn Trainer>,
    exchanged: Exchanged,
}

thread_local! {
    /// LightGBM's own state of the network is one of each thread, too.
    static NETWORK: RefCell<Option<LightGbmNetwork>> = const { RefCell::new(None) };
}

/// Combines `bytes` bytes of elements of `type_size` from the first pointer into those at the second.
type LightGbmReducer = unsafe extern "C" fn(from: *const u8, into: *mut u8, type_size: i32, bytes: i32);

/// From now on this thread's LightGBM exchanges by `trainer`; the addresses of the functions that it needs: for
/// reduce-scatter and for allgather.
pub fn enter(trainer: Box<dyn Trainer>) -> Result<(usize, usize), Error> {
    NETWORK.with_borrow_mut(|network| {
        if network.is_some() {
            return Err(argument("network", "another one", "one at a time on a thread"));
        }
        *network = Some(LightGbmNetwork { trainer, exchanged: Exchanged::default() });
        Ok((reduce_scatter as *const () as usize, allgather as *const () as usize))
    })
}

/// The end of that; what was exchanged.
pub fn leave() -> Exchanged {
    NETWORK.take().map(|network| network.exchanged).unwrap_or_default()
}

/// `reducer` is a reference to a function in C++, so a pointer to a pointer.
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
    // SAFETY: LightGBM gives blocks and buffers of these sizes, which nobody else uses until this returns.
    let (blocks, input, output, reducer) = unsafe {
        let blocks = OwnedBlocks::new(starts, lengths, block_count);
        (blocks, bytes_mut(input, input_bytes), bytes_mut(output, output_bytes), *reducer)
    };
    NETWORK.with_borrow_mut(|network| {
        if let Some(network) = network {
            network.exchanged.reductions += 1;
        }
    });
    exchange(output, input_bytes, |comm, output| {
        blocks.check(comm, input.len())?;
        let row_bytes = type_size as usize;
        let function = comm.function(row_bytes, move |into, from| {
            // SAFETY: both are as long, in whole elements of this size.
            unsafe { reducer(from.as_ptr(), into.as_mut_ptr(), type_size, from.len() as i32) };
            Ok(())
        })?;
        let counts: Vec<usize> = blocks.lengths.iter().map(|&bytes| bytes as usize / row_bytes).collect();
        let told = format!("LightGBM's histograms of elements of {row_bytes} bytes");
        let elements = ElementType { element: Element::U8, shape: ElementShape::Told(&told) };
        comm.run_by(
            &CollectiveTask::ReduceScatter { chunks: &counts, op: Op::Function },
            elements,
            &function,
            None,
            input,
        )?;
        let mine = blocks.of(comm.rank());
        output[..mine.len()].copy_from_slice(&input[mine]);
        Ok(())
    });
}

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
        let blocks = OwnedBlocks::new(starts, lengths, block_count);
        (blocks, bytes_mut(input, input_bytes), bytes_mut(output, output_bytes))
    };
    exchange(output, input_bytes, |comm, output| {
        let total = blocks.total();
        blocks.check(comm, output.len().min(total))?;
        let mine = blocks.of(comm.rank());
        output[mine.clone()].copy_from_slice(&input[..mine.len()]);
        let counts: Vec<usize> = blocks.lengths.iter().map(|&bytes| bytes as usize).collect();
        let elements = ElementType { element: Element::U8, shape: ElementShape::Told("LightGBM's splits") };
        let memory = [BufferMemory::Write(&mut output[..total]), NO_MEMORY];
        comm.run(&CollectiveTask::Allgather { chunks: &counts }, elements, None, memory)
    });
}

/// Does `call` unless something has failed; then `output` is zeros.
fn exchange(output: &mut [u8], bytes: i32, call: impl FnOnce(&Communicator, &mut [u8]) -> Result<(), Error>) {
    let is_done = NETWORK.with_borrow_mut(|network| {
        let Some(LightGbmNetwork { trainer, exchanged }) = network.as_mut() else { return false };
        if exchanged.error.is_some() {
            return false;
        }
        exchanged.calls += 1;
        exchanged.bytes += bytes as u64;
        let called = call(trainer.communicator(), output);
        if let Err(error) = called {
            exchanged.error = Some(error);
            trainer.stop();
            return false;
        }
        true
    });
    if !is_done {
        output.fill(0);
    }
}

/// Which bytes are whose.
struct OwnedBlocks<'a> {
    starts: &'a [i32],
    lengths: &'a [i32],
}

impl OwnedBlocks<'_> {
    /// # Safety
    /// Both pointers are to so many numbers.
    unsafe fn new<'a>(starts: *const i32, lengths: *const i32, count: i32) -> OwnedBlocks<'a> {
        // SAFETY: as the caller says.
        unsafe {
            OwnedBlocks {
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

    /// One per rank, one after the other, in a buffer of `bytes`.
    fn check(&self, comm: &Communicator, bytes: usize) -> Result<(), Error> {
        let follow =
            (0..self.starts.len().saturating_sub(1)).all(|block| self.of(block).end == self.of(block + 1).start);
        match self.lengths.len() == comm.world_size() && follow && self.total() == bytes {
            true => Ok(()),
            false => {
                let expected = format!("{} blocks, one after the other, of {bytes} bytes in all", comm.world_size());
                Err(argument("LightGBM's blocks", format!("{:?}", self.lengths), &expected))
            }
        }
    }
}

/// # Safety
/// The pointer is to so many bytes, unless there are none.
unsafe fn bytes_mut<'a>(pointer: *mut u8, length: i32) -> &'a mut [u8] {
    match length {
        0 => &mut [],
        // SAFETY: as the caller says.
        _ => unsafe { from_raw_parts_mut(pointer, length as usize) },
    }
}
