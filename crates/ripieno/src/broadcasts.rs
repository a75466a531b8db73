//! Broadcast variables: values that the ranks of a group fetch on demand, served by one thread per rank.
//!
//! The thread drives a [`Driver`] over a [`Mesh`]. It receives and forwards bytes while the program computes, and also
//! after the job's own links have failed. It serves a dropped variable until all ranks have it.

use crate::block_file::{BlockDigests, BlockFile, Digest};
use crate::lock::lock;
use ripieno_net::NetError;
use ripieno_net::links::{HostMemory, MemoryWriter, ValueMemory, Waker};
use ripieno_net::mesh::Mesh;
use ripieno_plan::swarm::{BlockManifest, SwarmTiming};
pub use ripieno_plan::swarm::{CorruptBlock, Discipline};
use ripieno_run::membership::MembershipTiming;
use ripieno_run::swarm::{BroadcastEvent, Driver};
pub use ripieno_run::swarm::{FetchRecord, Meter, MeteredBlock, TransferError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval between two calls of the interrupt function by a waiting rank.
const INTERRUPT_CHECK: Duration = Duration::from_millis(100);
/// Maximum interval between two checks of the thread.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum bytes of a value that are copied before finished blocks are served.
const FILL_BYTES_MAX: usize = 4 << 20;

/// Return the timeouts of the protocol.
///
/// A rank that stops responding is lost after the same time as in collectives. A rank that was suspended for a shorter
/// time still gets its value. Receivers of a stalled rank get other sources after two stall intervals.
fn swarm_timing(timing: MembershipTiming) -> SwarmTiming {
    SwarmTiming { stall_timeout: timing.heartbeat_interval(), answer_timeout: timing.silence_limit() }
}

/// The latest report of the tracker about a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableDelivery {
    /// Ranks that have acknowledged the complete value.
    pub acknowledged: Vec<usize>,
    /// Ranks that were lost before they acknowledged it.
    pub lost: Vec<usize>,
    /// Corrupt blocks, and the sources that sent them.
    pub corruptions: Vec<CorruptBlock>,
}

/// Reason why a variable has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BroadcastError {
    /// The broadcast has failed.
    #[error(transparent)]
    Ended(#[from] TransferError),
    /// The group was closed.
    #[error("the communicator was closed before the value arrived")]
    Closed,
    /// The waiting caller was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// The broadcast service of one rank in a group.
pub struct Broadcasts {
    shared: Arc<BroadcastShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    memory: ValueMemory,
}

/// A value of the group. Dropping it releases the value.
pub struct Variable {
    shared: Arc<BroadcastShared>,
    memory: ValueMemory,
    number: u32,
    meter: Arc<Meter>,
    /// Start time of the variable, on the clock of the thread.
    start: Duration,
}

struct BroadcastShared {
    started: Instant,
    waker: Waker,
    state: Mutex<BroadcastState>,
    changed: Condvar,
}

#[derive(Default)]
struct BroadcastState {
    commands: VecDeque<Command>,
    next: u32,
    is_closed: bool,
    /// Variables that the program has not dropped.
    live: BTreeSet<u32>,
    ended: BTreeMap<u32, Result<Arc<HostMemory>, TransferError>>,
    deliveries: BTreeMap<u32, VariableDelivery>,
    /// The latest message of each other rank, by variable.
    latest_messages: BTreeMap<u32, BTreeMap<usize, Vec<u8>>>,
    /// Ranks with a lost connection, by variable.
    lost: BTreeMap<u32, BTreeSet<usize>>,
}

enum Command {
    Offer {
        value: Arc<HostMemory>,
        manifest: BlockManifest,
        digests: Vec<Digest>,
        order: Vec<usize>,
        meter: Arc<Meter>,
    },
    Expect {
        root: usize,
        leader: Option<usize>,
        meter: Arc<Meter>,
    },
    Fetch {
        root: usize,
        file: BlockFile,
        meter: Arc<Meter>,
    },
    Fill {
        number: u32,
        digests: Vec<Digest>,
    },
    Abandon(u32),
    SendMessage {
        number: u32,
        to: usize,
        bytes: Vec<u8>,
    },
    StartFetch(u32),
    Release(u32),
    Close,
}

impl Broadcasts {
    /// Start serving a group of `size` ranks over its mesh, with values in `memory`.
    pub fn new(rank: usize, size: usize, mesh: Mesh, memory: ValueMemory) -> Result<Broadcasts, NetError> {
        let shared = Arc::new(BroadcastShared {
            started: Instant::now(),
            waker: mesh.waker(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let receive_memory = memory.clone();
        let timing = swarm_timing(mesh.timing());
        let driver = Driver::new(rank, size, timing, Box::new(move |bytes| receive_memory.allocate(bytes)));
        let serving = shared.clone();
        let thread = std::thread::Builder::new().name("ripieno-broadcast".to_string());
        let thread = thread.spawn(move || serve(driver, mesh, &serving)).map_err(|error| NetError::Os {
            rank,
            action: "start the thread of broadcast variables",
            cause: error.to_string(),
        })?;
        Ok(Broadcasts { shared, thread: Mutex::new(Some(thread)), memory })
    }

    /// Offer a value of `length_bytes`. Each of the pieces has an offset, and zeros fill the gaps. `order` lists the
    /// ranks that fetch the value at once, in the order of the chain. If `is_verified`, receivers compare each block
    /// with a digest. All ranks must call this or [`Self::expect`] in the same order.
    ///
    /// The pieces are copied. Each block is sent as soon as it is copied, so the first block is sent at once.
    pub fn offer(
        &self,
        length_bytes: usize,
        pieces: &[(usize, &[u8])],
        discipline: Discipline,
        block_bytes: Option<usize>,
        order: Vec<usize>,
        is_verified: bool,
    ) -> io::Result<Variable> {
        let blocks = BlockManifest::new(length_bytes, block_bytes, discipline, order.len() + 1);
        let manifest = BlockManifest { is_verified, ..blocks };
        let allocated = self.memory.allocate(length_bytes);
        // Register the variable even if the allocation fails: all ranks must number variables equally, and the other
        // ranks get the error.
        let (buffer, failure) =
            allocated.map_or_else(|error| (HostMemory::new(0), Some(error)), |buffer| (Ok(buffer), None));
        let mut filler = MemoryWriter::new(buffer?);
        let variable = self.register(filler.memory().clone(), manifest, Vec::new(), order);
        let number = variable.number;
        let report = |digests| self.shared.submit(Command::Fill { number, digests });
        let filled = failure.map_or_else(|| fill(&mut filler, pieces, &manifest, report), Err);
        filled.inspect_err(|_| self.shared.submit(Command::Abandon(number)))?;
        self.memory.note_use(filler.memory());
        Ok(variable)
    }

    /// Offer a file, which must not change until it is delivered. `order` lists the ranks that call [`Self::fetch`].
    pub fn offer_file(&self, file: BlockFile, discipline: Discipline, order: Vec<usize>) -> Variable {
        let BlockFile { memory, blocks: BlockDigests { bytes, block_bytes, digests, is_verified }, .. } = file;
        let blocks = BlockManifest::new(bytes, Some(block_bytes), discipline, order.len() + 1);
        self.register(Arc::new(memory), BlockManifest { is_verified, ..blocks }, digests, order)
    }

    fn register(
        &self,
        value: Arc<HostMemory>,
        manifest: BlockManifest,
        digests: Vec<Digest>,
        order: Vec<usize>,
    ) -> Variable {
        let offered = value.clone();
        let variable = self.begin(|meter| Command::Offer { value: offered, manifest, digests, order, meter });
        lock(&self.shared.state).ended.insert(variable.number, Ok(value));
        variable
    }

    /// Expect a value from `root`. If another rank of this host fetches it, that rank is `leader`. If `is_recorded`,
    /// record the fetch from the first byte on: this rank may forward blocks before it requests the value itself.
    pub fn expect(&self, root: usize, leader: Option<usize>, is_recorded: bool) -> Variable {
        self.begin(|meter| {
            if is_recorded {
                meter.begin_record();
            }
            Command::Expect { root, leader, meter }
        })
    }

    /// Fetch the missing blocks of `file` from `root`, which offers a file with the same blocks.
    pub fn fetch(&self, root: usize, file: BlockFile) -> Variable {
        self.begin(|meter| Command::Fetch { root, file, meter })
    }

    fn begin(&self, command: impl FnOnce(Arc<Meter>) -> Command) -> Variable {
        let (meter, start) = (Arc::new(Meter::default()), self.shared.started.elapsed());
        let mut state = lock(&self.shared.state);
        let number = state.next;
        state.next += 1;
        state.live.insert(number);
        state.commands.push_back(command(meter.clone()));
        drop(state);
        self.shared.waker.wake();
        Variable { shared: self.shared.clone(), memory: self.memory.clone(), number, meter, start }
    }

    /// Begin to close: serve the ranks that still fetch values until none is left, or until no byte has moved for a
    /// heartbeat timeout, and no silent rank answers. A rank that fetches a value which this rank does not know stops
    /// waiting for this rank.
    pub fn begin_close(&self) {
        self.shared.submit(Command::Close);
    }

    /// Close as described in [`begin_close`](Self::begin_close), and wait for the end.
    pub fn close(&self) {
        self.begin_close();
        if let Some(thread) = lock(&self.thread).take() {
            // A panic of the thread has already been reported, and leaves nothing to close.
            let _ = thread.join();
        }
    }
}

impl Drop for Broadcasts {
    fn drop(&mut self) {
        self.close();
    }
}

impl Variable {
    /// Start fetching the value, unless this has already begun.
    pub fn start_fetch(&self) {
        self.shared.submit(Command::StartFetch(self.number));
    }

    /// Wait for the value. Calls `interrupted` periodically.
    pub fn wait(&self, interrupted: &dyn Fn() -> bool) -> Result<Arc<HostMemory>, BroadcastError> {
        let mut state = lock(&self.shared.state);
        loop {
            if let Some(ended) = state.ended.get(&self.number).cloned() {
                drop(state);
                return ended.inspect(|value| self.memory.note_use(value)).map_err(BroadcastError::from);
            }
            if state.is_closed {
                return Err(BroadcastError::Closed);
            }
            drop(state);
            if interrupted() {
                return Err(BroadcastError::Interrupted);
            }
            state = lock(&self.shared.state);
            if !state.ended.contains_key(&self.number) && !state.is_closed {
                let waited = self.shared.changed.wait_timeout(state, INTERRUPT_CHECK);
                state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            }
        }
    }

    /// Record another use of the value, which must be complete.
    pub fn note_use(&self) {
        let ended = lock(&self.shared.state).ended.get(&self.number).cloned();
        if let Some(Ok(value)) = ended {
            self.memory.note_use(&value);
        }
    }

    /// Return whether [`Self::wait`] would return immediately.
    pub fn has_ended(&self) -> bool {
        let state = lock(&self.shared.state);
        state.is_closed || state.ended.contains_key(&self.number)
    }

    /// Return the progress of the fetch.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Return the record of the fetch, if enabled, with times since the variable began on this rank.
    pub fn record(&self) -> FetchRecord {
        let mut record = self.meter.record();
        for fetched in &mut record.fetches {
            fetched.first = fetched.first.saturating_sub(self.start);
            fetched.last = fetched.last.saturating_sub(self.start);
        }
        record
    }

    /// Send a message about the variable to another rank.
    pub fn send_message(&self, to: usize, bytes: Vec<u8>) {
        self.shared.submit(Command::SendMessage { number: self.number, to, bytes });
    }

    /// Return the latest message of each other rank about the variable.
    pub fn latest_messages(&self) -> BTreeMap<usize, Vec<u8>> {
        lock(&self.shared.state).latest_messages.get(&self.number).cloned().unwrap_or_default()
    }

    /// Return the ranks with a lost connection.
    pub fn lost(&self) -> BTreeSet<usize> {
        lock(&self.shared.state).lost.get(&self.number).cloned().unwrap_or_default()
    }

    /// Return the latest report of the tracker. Only the rank that runs the tracker has one.
    pub fn delivery(&self) -> Option<VariableDelivery> {
        lock(&self.shared.state).deliveries.get(&self.number).cloned()
    }
}

impl Drop for Variable {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.live.remove(&self.number);
        state.ended.remove(&self.number);
        state.deliveries.remove(&self.number);
        state.latest_messages.remove(&self.number);
        state.lost.remove(&self.number);
        drop(state);
        self.shared.submit(Command::Release(self.number));
    }
}

impl BroadcastShared {
    fn submit(&self, command: Command) {
        lock(&self.state).commands.push_back(command);
        self.waker.wake();
    }

    fn take_commands(&self) -> VecDeque<Command> {
        std::mem::take(&mut lock(&self.state).commands)
    }

    fn publish(&self, events: Vec<(u32, BroadcastEvent<HostMemory>)>) {
        if events.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        for (number, event) in events {
            if !state.live.contains(&number) {
                continue;
            }
            match event {
                BroadcastEvent::Ended(ended) => {
                    state.ended.insert(number, ended);
                }
                BroadcastEvent::Message { from, bytes } => {
                    state.latest_messages.entry(number).or_default().insert(from, bytes);
                }
                BroadcastEvent::Lost { peer } => {
                    state.lost.entry(number).or_default().insert(peer);
                }
                BroadcastEvent::Reopened => {
                    state.deliveries.remove(&number);
                }
                BroadcastEvent::Settled { acknowledged, lost, corruptions } => {
                    state.deliveries.insert(number, VariableDelivery { acknowledged, lost, corruptions });
                }
            }
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// Marks the group as closed when the thread ends, also by a panic.
struct BroadcastEndGuard<'a>(&'a BroadcastShared);

impl Drop for BroadcastEndGuard<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).is_closed = true;
        self.0.changed.notify_all();
    }
}

fn serve(mut driver: Driver<HostMemory>, mut mesh: Mesh, shared: &BroadcastShared) {
    let _ends = BroadcastEndGuard(shared);
    let started = shared.started;
    let mut is_closing = false;
    let mut progress_at = started.elapsed();
    loop {
        for command in shared.take_commands() {
            is_closing |= matches!(command, Command::Close);
            execute(&mut driver, started.elapsed(), command);
        }
        let has_moved = driver.turn(started.elapsed(), &mut mesh);
        shared.publish(driver.take_events());
        if has_moved || !is_closing {
            progress_at = started.elapsed();
        }
        if is_closing && (driver.is_idle() || started.elapsed() >= progress_at + mesh.timing().silence_limit()) {
            return;
        }
        if has_moved {
            continue;
        }
        mesh.prepare_sleep();
        let now = started.elapsed();
        if lock(&shared.state).commands.is_empty() && !driver.turn(now, &mut mesh) {
            let wake = driver.wake().map_or(POLL_INTERVAL, |wake| wake.saturating_sub(now)).min(POLL_INTERVAL);
            mesh.sleep(&driver.interests(), wake);
        }
        mesh.cancel_sleep();
        shared.publish(driver.take_events());
    }
}

fn execute(driver: &mut Driver<HostMemory>, now: Duration, command: Command) {
    match command {
        Command::Offer { value, manifest, digests, order, meter } => {
            let number = driver.offer(now, value, manifest, digests, order);
            driver.watch(number, meter);
        }
        Command::Expect { root, leader, meter } => {
            let number = driver.expect(now, root, leader);
            driver.watch(number, meter);
        }
        Command::Fetch { root, file: BlockFile { memory, blocks, have }, meter } => {
            let number = driver.fetch_into(now, root, memory, blocks.digests, have);
            driver.watch(number, meter);
        }
        Command::Fill { number, digests } => driver.fill(now, number, &digests),
        Command::Abandon(number) => driver.abandon(number),
        Command::SendMessage { number, to, bytes } => driver.send_message(number, to, bytes),
        Command::StartFetch(number) => driver.request(now, number),
        Command::Release(number) => driver.release(number),
        Command::Close => driver.release_all(),
    }
}

/// Copy pieces in the order of their offsets, and report the digests of finished blocks in batches.
///
/// The first batch is one block. Each later batch doubles the number of blocks, up to [`FILL_BYTES_MAX`].
fn fill(
    filler: &mut MemoryWriter,
    pieces: &[(usize, &[u8])],
    manifest: &BlockManifest,
    report: impl Fn(Vec<Digest>),
) -> io::Result<()> {
    let max_batch = (FILL_BYTES_MAX / manifest.block_bytes).max(1);
    let (mut digests, mut reported_count) = (Vec::new(), 0);
    let mut pieces = pieces.iter().peekable();
    let memory = filler.memory().clone();
    for block in 0..manifest.block_count() {
        let start = block * manifest.block_bytes;
        let end = start + manifest.block_length(block);
        while let at = memory.len()
            && at < end
        {
            match pieces.peek() {
                Some((offset, piece)) if offset + piece.len() <= at => _ = pieces.next(),
                Some((offset, piece)) if *offset <= at => {
                    filler.push(&piece[at - offset..piece.len().min(end - offset)])?;
                }
                next => filler.skip(next.map_or(end, |piece| piece.0.min(end)) - at),
            }
        }
        match manifest.is_verified {
            true => digests.extend(BlockDigests::of(&memory[start..end], manifest.block_bytes).digests),
            false => digests.push(Digest::default()),
        }
        if digests.len() > reported_count.min(max_batch) || block + 1 == manifest.block_count() {
            reported_count += digests.len();
            report(std::mem::take(&mut digests));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn pieces_are_copied_to_their_offsets_and_each_digest_is_reported_once() {
        let (head, body) = (vec![1; 100], (0..5000).map(|at| at as u8).collect::<Vec<u8>>());
        let pieces: [(usize, &[u8]); 3] = [(0, &head), (128, &body), (5200, &[])];
        let mut expected = vec![0; 5300];
        expected[..100].copy_from_slice(&head);
        expected[128..5128].copy_from_slice(&body);
        let manifest = BlockManifest::new(expected.len(), Some(50), Discipline::Chain, 2);
        let mut filler = MemoryWriter::new(HostMemory::new(expected.len()).unwrap());
        let memory = filler.memory().clone();
        let reported = RefCell::new(Vec::new());
        let report = |digests: Vec<Digest>| {
            assert!(
                memory.len() >= 50 * (reported.borrow().len() + digests.len()).min(106),
                "reported digests belong to received bytes"
            );
            assert!(digests.len() <= reported.borrow().len() + 1, "a batch at most doubles the number of blocks");
            reported.borrow_mut().extend(digests);
        };
        fill(&mut filler, &pieces, &manifest, report).unwrap();
        assert_eq!(memory[..], expected);
        assert_eq!(reported.into_inner(), BlockDigests::of(&expected, 50).digests);
    }
}
