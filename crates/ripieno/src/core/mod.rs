//! State shared by the communicators of one rank: the links, the runs in flight, and the background thread.
//!
//! The thread that holds the core makes progress on all runs. Blocking calls and waits hold the core. Between them, the
//! background thread holds it, and yields as soon as another thread requests it. The background thread starts with the
//! first asynchronous call, sleeps while nothing is in flight, and ends when the world is closed.
//!
//! The core becomes biased to a thread that has held it many times in a row with nothing in flight
//! ([`crate::biased_lock`]).

mod slot;

use crate::biased_lock::{BiasedLock, EnterResult, this_thread};
use crate::choice::Overrides;
use crate::communicator_state::CommunicatorState;
use crate::error::Error;
use crate::lock::lock;
use crate::pool::BufferPool;
use crate::result_slot::Waiters;
use crate::runtime::Runtime;
use ripieno_run::recorder::Gauge;
use ripieno_run::{Executor, Fabric, JobFailure, Remote};
use slot::{BiasedCore, CoreSlot, CoreState, HoldHistory};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// State that only one thread at a time may use.
pub(crate) struct RankCore {
    pub fabric: Box<dyn Fabric>,
    pub executor: Executor,
    /// Memory for plans that need scratch space in addition to the caller's buffers.
    pub scratch: BufferPool,
    /// Algorithms for calls that name none.
    pub overrides: Overrides,
    /// The communicators, in order of creation; `None` for a closed one.
    pub communicators: Vec<Option<Box<CommunicatorState>>>,
    /// Largest number of a split or group that this rank has taken part in. The next one gets a larger number.
    pub split_count: u32,
    /// Number of times that the world was replicated.
    pub replicated_count: u32,
    /// Number of groups created so far, by the world ranks of their members.
    pub group_counts: BTreeMap<Arc<[usize]>, u64>,
}

/// Maximum number of replications of the world. Their communicator ids are reserved.
pub(crate) const MAX_REPLICATED_COUNT: u32 = 1 << 28;
/// Number of communicator ids that are reserved for the creation of groups.
pub(crate) const GROUP_ID_COUNT: u32 = 1 << 28;
/// Time that a thread waits for the core before it calls the interrupt function.
const INTERRUPT_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Interrupt function: returns whether a waiting thread must stop waiting.
type WaitInterrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// The core, and the locks that protect it.
pub(crate) struct CoreShared {
    /// The thread that has the core's bias in [`CoreState::Biased`].
    bias: BiasedLock<AtomicU64>,
    /// Storage of the core in [`CoreState::Biased`], while the biased thread is not inside.
    biased_core: BiasedCore,
    /// Locked only briefly. A thread that holds this lock never waits for anything else.
    slot: Mutex<CoreSlot>,
    /// Number of threads that wait for the core; only changed with the slot locked.
    waiter_count: AtomicUsize,
    /// Notifies waiting threads that the core is free, that a call in flight has ended or that the world is closed.
    freed: Condvar,
    /// Notifies the background thread that it has work, or that the world is closed.
    changed: Condvar,
    interrupt: Mutex<Option<WaitInterrupt>>,
    /// This rank in the world.
    rank: usize,
    remote: Arc<dyn Remote>,
    /// Counters of the executor's recorder, readable without the core.
    pub gauge: Arc<Gauge>,
    background: Mutex<Option<JoinHandle<()>>>,
    /// Reference to itself, for runs that end asynchronously.
    waiters: Weak<dyn Waiters>,
}

/// Guard of the held core.
pub(crate) struct CoreGuard<'a> {
    /// `None` once the world is closed.
    core: Option<Box<RankCore>>,
    shared: &'a Arc<CoreShared>,
    /// The number of this thread if it holds the core by bias.
    by_bias: Option<u64>,
}

impl CoreShared {
    pub fn new(core: RankCore) -> Arc<CoreShared> {
        let (rank, remote, gauge) = (core.fabric.rank(), core.fabric.remote(), core.executor.recorder.gauge.clone());
        Arc::new_cyclic(|own: &Weak<CoreShared>| CoreShared {
            bias: BiasedLock::default(),
            biased_core: BiasedCore::default(),
            slot: Mutex::new(CoreSlot {
                core: CoreState::Free(Box::new(core)),
                hold_history: HoldHistory::default(),
                retired: Vec::new(),
            }),
            waiter_count: AtomicUsize::new(0),
            freed: Condvar::new(),
            changed: Condvar::new(),
            interrupt: Mutex::default(),
            rank,
            remote,
            gauge,
            background: Mutex::default(),
            waiters: own.clone(),
        })
    }

    /// Call `interrupt` each time that a thread has waited for the core or in a call.
    pub fn set_interrupt(self: &Arc<CoreShared>, interrupt: WaitInterrupt) -> Result<(), Error> {
        let executor_interrupt = interrupt.clone();
        self.hold()?.core().executor.interrupt = Some(Box::new(move || executor_interrupt()));
        *lock(&self.interrupt) = Some(interrupt);
        Ok(())
    }

    /// Wait for the core. The background thread yields it at once; a blocking caller releases it when its call ends.
    /// An interrupted waiter reports the interruption to the job, which ends the call of the holder.
    #[inline]
    pub fn hold(self: &Arc<CoreShared>) -> Result<CoreGuard<'_>, Error> {
        if let Some(held) = self.enter() {
            return Ok(held);
        }
        self.hold_unless(&|| false).and_then(|held| held.ok_or(Error::Closed))
    }

    /// Return the core if it is biased to this thread.
    #[inline]
    pub fn enter(self: &Arc<CoreShared>) -> Option<CoreGuard<'_>> {
        let me = this_thread();
        match self.bias.enter(me) {
            EnterResult::No => None,
            EnterResult::Yes => {
                // SAFETY: the bias admits only this thread.
                let core = unsafe { self.biased_core.take() };
                Some(CoreGuard { core, shared: self, by_bias: Some(me) })
            }
            EnterResult::Revoked => {
                self.notify_waiters();
                None
            }
        }
    }

    /// Like [`CoreShared::hold`], but return `None` as soon as `is_over` holds. The end of a call in flight may change
    /// `is_over`.
    pub fn hold_unless(self: &Arc<CoreShared>, is_over: &dyn Fn() -> bool) -> Result<Option<CoreGuard<'_>>, Error> {
        if let Some(held) = self.enter() {
            return Ok(Some(held));
        }
        let mut slot = lock(&self.slot);
        if let Some(held) = self.take(&mut slot) {
            return held.map(Some);
        }
        self.waiter_count.fetch_add(1, Ordering::SeqCst);
        self.remote.wake();
        let held = loop {
            if is_over() {
                break Ok(None);
            }
            if let Some(held) = self.take(&mut slot) {
                break held.map(Some);
            }
            let waited = self
                .freed
                .wait_timeout(slot, INTERRUPT_CHECK_INTERVAL)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            slot = waited.0;
            if waited.1.timed_out() {
                drop(slot);
                let is_interrupted = self.is_interrupted();
                slot = lock(&self.slot);
                if is_interrupted {
                    break Err(Error::Interrupted);
                }
            }
        };
        self.waiter_count.fetch_sub(1, Ordering::SeqCst);
        // The background thread may have yielded to this one.
        self.changed.notify_one();
        held
    }

    /// Take the core if it is free.
    fn take<'a>(self: &'a Arc<CoreShared>, slot: &mut CoreSlot) -> Option<Result<CoreGuard<'a>, Error>> {
        self.revoke(slot);
        match std::mem::replace(&mut slot.core, CoreState::Held) {
            CoreState::Free(core) => {
                slot.hold_history.note(this_thread());
                Some(Ok(CoreGuard { core: Some(core), shared: self, by_bias: None }))
            }
            CoreState::Held => None,
            CoreState::Biased => {
                slot.core = CoreState::Biased;
                None
            }
            CoreState::Closed => {
                slot.core = CoreState::Closed;
                Some(Err(Error::Closed))
            }
        }
    }

    /// Revoke the bias of the core. If the biased thread is inside, the core stays with it until it leaves.
    fn revoke(&self, slot: &mut CoreSlot) {
        if !matches!(slot.core, CoreState::Biased) || !self.bias.revoke() {
            return;
        }
        slot.hold_history.note_revocation();
        // SAFETY: the slot is locked, the bias is revoked, and no thread is inside.
        let core = unsafe { self.biased_core.take() };
        slot.put(core.expect("the thread that leaves puts the core back"));
    }

    /// Return whether the wait is interrupted. If so, report it to the other ranks.
    fn is_interrupted(&self) -> bool {
        let interrupt = lock(&self.interrupt).clone();
        let is_interrupted = interrupt.is_some_and(|interrupt| interrupt());
        if is_interrupted {
            self.remote.report(JobFailure::RankFailed {
                rank: self.rank,
                host: String::new(),
                cause: "interrupted while it waited for the call of another thread".to_string(),
                traceback: String::new(),
            });
        }
        is_interrupted
    }

    /// Release a closed communicator without waiting for the core, because the thread that holds the core may wait for
    /// a lock of the caller.
    pub fn retire(self: &Arc<CoreShared>, number: usize) {
        if let Some(mut held) = self.enter() {
            held.core().communicators[number] = None;
            return;
        }
        let mut slot = lock(&self.slot);
        self.revoke(&mut slot);
        match &mut slot.core {
            CoreState::Free(core) => core.communicators[number] = None,
            CoreState::Held | CoreState::Biased => slot.retired.push(number),
            CoreState::Closed => {}
        }
    }

    /// Bias the free core to this thread.
    fn grant(&self, slot: &mut CoreSlot) {
        match std::mem::replace(&mut slot.core, CoreState::Biased) {
            CoreState::Free(core) => {
                // SAFETY: no thread has the bias, so no thread is inside.
                unsafe { self.biased_core.put(Some(core)) };
                self.bias.grant(this_thread());
            }
            other => slot.core = other,
        }
    }

    /// Return the core to the slot after the biased thread has left and the bias was revoked.
    #[cold]
    #[inline(never)]
    fn put_back(&self) {
        let mut slot = lock(&self.slot);
        self.revoke(&mut slot);
        self.freed.notify_all();
    }

    fn has_waiters(&self) -> bool {
        self.waiter_count.load(Ordering::SeqCst) > 0
    }

    /// Return this rank in the world.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Return the part of the fabric that works while another thread holds the core.
    pub fn remote(&self) -> &dyn Remote {
        &*self.remote
    }

    /// Return [`CoreShared::remote`] as an owned reference, for callers that outlive `self`.
    pub fn shared_remote(&self) -> Arc<dyn Remote> {
        self.remote.clone()
    }

    /// Start the background thread, unless it is running.
    fn ensure_background(self: &Arc<CoreShared>) -> Result<(), Error> {
        let mut background = lock(&self.background);
        if background.is_none() {
            let shared = self.clone();
            let thread = std::thread::Builder::new().name("ripieno-progress".to_string());
            let started = thread.spawn(move || shared.run_background());
            *background = Some(started.map_err(|error| Error::NoThread { cause: error.to_string() })?);
        }
        Ok(())
    }

    /// Run the main loop of the background thread.
    fn run_background(self: &Arc<CoreShared>) {
        let mut slot = lock(&self.slot);
        loop {
            let has_work = match &slot.core {
                CoreState::Free(core) => !self.has_waiters() && !core.executor.is_idle(),
                CoreState::Held | CoreState::Biased => false,
                CoreState::Closed => return,
            };
            match has_work.then(|| self.take(&mut slot)) {
                Some(Some(Ok(mut held))) => {
                    drop(slot);
                    let RankCore { fabric, executor, .. } = held.core();
                    // A failed run reports its error through its handle.
                    let _ = executor.drive(&mut **fabric, false, &|| self.has_waiters());
                    drop(held);
                    slot = lock(&self.slot);
                }
                _ => slot = self.changed.wait(slot).unwrap_or_else(|poisoned| poisoned.into_inner()),
            }
        }
    }

    /// End the runs in flight (unless this thread panics), then close the links and end the background thread.
    pub fn close(self: &Arc<CoreShared>) {
        let held = loop {
            match self.hold() {
                // The interruption was reported to the job, so the holder of the core will end its call.
                Err(Error::Interrupted) => {}
                held => break held.ok(),
            }
        };
        let core = held.and_then(|mut held| {
            if !std::thread::panicking() {
                let RankCore { fabric, executor, .. } = held.core();
                // A failed run reports its error through its handle.
                let _ = executor.drive(&mut **fabric, true, &|| false);
            }
            held.core.take()
        });
        if let Some(background) = lock(&self.background).take() {
            // The thread has no result. If it panicked, the runs in flight have ended.
            let _ = background.join();
        }
        drop(core);
    }
}

impl Waiters for CoreShared {
    fn notify_waiters(&self) {
        // With the lock held, no thread is between its check and its wait.
        let _slot = lock(&self.slot);
        if self.has_waiters() {
            self.freed.notify_all();
        }
    }
}

impl CoreGuard<'_> {
    pub fn core(&mut self) -> &mut RankCore {
        self.core.as_mut().expect("the thread that takes the core releases this guard")
    }

    /// Return a communicator and the runtime for its runs; an error if it is closed.
    pub fn communicator(&mut self, number: usize) -> Result<(Runtime<'_>, &mut CommunicatorState), Error> {
        let waiters = &self.shared.waiters;
        let RankCore { fabric, executor, scratch, overrides, communicators, .. } = self.core();
        let Some(state) = communicators[number].as_mut() else { return Err(Error::Closed) };
        Ok((Runtime { fabric: &mut **fabric, executor, scratch, overrides, waiters }, state))
    }

    /// Make sure that runs in flight make progress while no thread holds the core.
    pub fn ensure_background(&self) -> Result<(), Error> {
        self.shared.ensure_background()
    }
}

impl Drop for CoreGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        match (self.by_bias, &self.core) {
            (Some(me), Some(core)) if core.executor.is_idle() && self.shared.bias.is_still_biased_to(me) => {
                // SAFETY: this thread is inside.
                unsafe { self.shared.biased_core.put(self.core.take()) };
                if !self.shared.bias.leave(me) {
                    self.shared.put_back();
                }
            }
            _ => self.drop_locked(),
        }
    }
}

impl CoreGuard<'_> {
    #[cold]
    #[inline(never)]
    fn drop_locked(&mut self) {
        let shared = self.shared;
        let mut slot = lock(&shared.slot);
        let is_for_background = match self.core.take() {
            Some(core) => {
                let is_idle = core.executor.is_idle();
                slot.put(core);
                !is_idle
            }
            None => {
                slot.core = CoreState::Closed;
                true
            }
        };
        if self.by_bias.is_some() {
            shared.bias.end();
        }
        if !is_for_background && !shared.has_waiters() && slot.hold_history.should_bias() {
            shared.grant(&mut slot);
        }
        if is_for_background {
            shared.changed.notify_one();
        }
        if shared.has_waiters() {
            shared.freed.notify_all();
        }
    }
}
