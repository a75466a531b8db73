//! What the communicators of one rank share: the links, the runs in flight, and the thread that moves these on while
//! the program is elsewhere.
//!
//! Whoever holds the core moves everything on: a blocking call does, so does a wait, and between these the background
//! thread, which gives way as soon as somebody else wants the core. It begins with the first asynchronous call, sleeps
//! while nothing is in flight and ends when the world is closed.
//!
//! A thread that has had the core many times in a row, with nothing in flight, is given it ([`crate::bias`]).

mod slot;

use crate::biased_lock::{BiasedLock, EnterResult, this_thread};
use crate::choice::Overrides;
use crate::communicator_state::CommunicatorState;
use crate::error::Error;
use crate::lock::lock;
use crate::pool::BufferPool;
use crate::runtime::Runtime;
use crate::ticket::Waiters;
use ripieno_run::recorder::Gauge;
use ripieno_run::{Executor, Fabric, JobFailure, Remote};
use slot::{CoreSlot, CoreState, LentCore, LockTurns};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// What only one thread at a time works with.
pub(crate) struct Core {
    pub fabric: Box<dyn Fabric>,
    pub executor: Executor,
    /// Memory lent to plans that need some beside the caller's.
    pub scratch: BufferPool,
    /// What runs when a call names no algorithm.
    pub overrides: Overrides,
    /// The communicators, in the order in which they were made; `None` where one is closed.
    pub communicators: Vec<Option<Box<CommunicatorState>>>,
    /// How many splits this rank knows of: the next one's number is larger.
    pub split_count: u32,
    /// How often the world was replicated.
    pub replicated_count: u32,
    /// How often the members of a group, by their ranks in the world, have met to make one.
    pub meetings: BTreeMap<Arc<[usize]>, u64>,
}

/// The world can be replicated so often; these numbers of communicators are not for parts of it.
pub(crate) const REPLICATED_MAX: u32 = 1 << 28;
/// So many numbers are for groups whose members meet.
pub(crate) const MEETING_NUMBERS: u32 = 1 << 28;
/// How long a thread waits for the core before it asks whether its user still wants to.
const PATIENCE: Duration = Duration::from_millis(250);

/// Asked by a thread that waits: whether its user does not want to wait any longer.
type WaitInterrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// A core and the ways to it.
pub(crate) struct CoreShared {
    /// Whose the core is as long as [`CoreState::Given`].
    bias: BiasedLock<AtomicU64>,
    /// Where the core lies then, as long as that thread is not inside.
    given: LentCore,
    /// Locked for moments only, by threads that never wait for anything else meanwhile.
    slot: Mutex<CoreSlot>,
    /// How many threads wait for the core; changed with the slot locked.
    wanted: AtomicUsize,
    /// Told to them that the core is free, that a call in flight has ended or that the world is closed.
    freed: Condvar,
    /// Told that there is something for the background thread to do, or that the world is closed.
    changed: Condvar,
    interrupt: Mutex<Option<WaitInterrupt>>,
    /// This rank of the world.
    rank: usize,
    remote: Arc<dyn Remote>,
    /// What the executor's recorder counts for whoever reads it.
    pub gauge: Arc<Gauge>,
    background: Mutex<Option<JoinHandle<()>>>,
    /// Itself, for runs that end by themselves.
    waiters: Weak<dyn Waiters>,
}

/// The core, held.
pub(crate) struct CoreGuard<'a> {
    /// `None` once the world is closed.
    core: Option<Box<Core>>,
    shared: &'a Arc<CoreShared>,
    /// The number of this thread if it has it by the bias.
    by_bias: Option<u64>,
}

impl CoreShared {
    pub fn new(core: Core) -> Arc<CoreShared> {
        let (rank, remote, gauge) = (core.fabric.rank(), core.fabric.remote(), core.executor.recorder.gauge.clone());
        Arc::new_cyclic(|own: &Weak<CoreShared>| CoreShared {
            bias: BiasedLock::default(),
            given: LentCore::default(),
            slot: Mutex::new(CoreSlot {
                core: CoreState::Free(Box::new(core)),
                turns: LockTurns::default(),
                retired: Vec::new(),
            }),
            wanted: AtomicUsize::new(0),
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

    /// Asks `interrupt` whenever somebody has waited, for the core or in a call.
    pub fn set_interrupt(self: &Arc<CoreShared>, interrupt: WaitInterrupt) -> Result<(), Error> {
        let asked = interrupt.clone();
        self.hold()?.core().executor.interrupt = Some(Box::new(move || asked()));
        *lock(&self.interrupt) = Some(interrupt);
        Ok(())
    }

    /// Waits for the core, which the background thread gives at once, a caller that is blocked when it is done. Who is
    /// interrupted meanwhile has told the job, which ends the call that it waited for.
    #[inline]
    pub fn hold(self: &Arc<CoreShared>) -> Result<CoreGuard<'_>, Error> {
        if let Some(held) = self.enter() {
            return Ok(held);
        }
        self.hold_unless(&|| false).and_then(|held| held.ok_or(Error::Closed))
    }

    /// The core, if it is given to this thread.
    #[inline]
    pub fn enter(self: &Arc<CoreShared>) -> Option<CoreGuard<'_>> {
        let me = this_thread();
        match self.bias.enter(me) {
            EnterResult::No => None,
            EnterResult::Yes => {
                // SAFETY: the bias lets this thread in alone.
                let core = unsafe { self.given.take() };
                Some(CoreGuard { core, shared: self, by_bias: Some(me) })
            }
            EnterResult::TakenBack => {
                self.tell_end();
                None
            }
        }
    }

    /// As [`CoreShared::hold`], but waits no longer than until `is_over`, which the end of a call in flight may change.
    pub fn hold_unless(self: &Arc<CoreShared>, is_over: &dyn Fn() -> bool) -> Result<Option<CoreGuard<'_>>, Error> {
        if let Some(held) = self.enter() {
            return Ok(Some(held));
        }
        let mut slot = lock(&self.slot);
        if let Some(held) = self.take(&mut slot) {
            return held.map(Some);
        }
        self.wanted.fetch_add(1, Ordering::SeqCst);
        self.remote.wake();
        let held = loop {
            if is_over() {
                break Ok(None);
            }
            if let Some(held) = self.take(&mut slot) {
                break held.map(Some);
            }
            let waited = self.freed.wait_timeout(slot, PATIENCE).unwrap_or_else(|poisoned| poisoned.into_inner());
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
        self.wanted.fetch_sub(1, Ordering::SeqCst);
        // The background thread has stood back for this one.
        self.changed.notify_one();
        held
    }

    /// The core, if nobody has it.
    fn take<'a>(self: &'a Arc<CoreShared>, slot: &mut CoreSlot) -> Option<Result<CoreGuard<'a>, Error>> {
        self.take_back(slot);
        match std::mem::replace(&mut slot.core, CoreState::Held) {
            CoreState::Free(core) => {
                slot.turns.note(this_thread());
                Some(Ok(CoreGuard { core: Some(core), shared: self, by_bias: None }))
            }
            CoreState::Held => None,
            CoreState::Given => {
                slot.core = CoreState::Given;
                None
            }
            CoreState::Gone => {
                slot.core = CoreState::Gone;
                Some(Err(Error::Closed))
            }
        }
    }

    /// Takes the core back from the thread that it is given to; where that is inside it stays there until it leaves.
    fn take_back(&self, slot: &mut CoreSlot) {
        if !matches!(slot.core, CoreState::Given) || !self.bias.take_back() {
            return;
        }
        slot.turns.regret();
        // SAFETY: with the slot locked, the bias taken back, and nobody inside.
        let core = unsafe { self.given.take() };
        slot.put(core.expect("who leaves puts it back"));
    }

    /// Whether the user does not want to wait any longer; the other ranks are told.
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

    /// Lets go of a closed communicator without waiting for the core: who drops one may hold what its holder waits for.
    pub fn retire(self: &Arc<CoreShared>, number: usize) {
        if let Some(mut held) = self.enter() {
            held.core().communicators[number] = None;
            return;
        }
        let mut slot = lock(&self.slot);
        self.take_back(&mut slot);
        match &mut slot.core {
            CoreState::Free(core) => core.communicators[number] = None,
            CoreState::Held | CoreState::Given => slot.retired.push(number),
            CoreState::Gone => {}
        }
    }

    /// Gives the core, which is free, to this thread.
    fn give(&self, slot: &mut CoreSlot) {
        match std::mem::replace(&mut slot.core, CoreState::Given) {
            CoreState::Free(core) => {
                // SAFETY: nobody is inside, for nobody has the bias.
                unsafe { self.given.put(Some(core)) };
                self.bias.give(this_thread());
            }
            other => slot.core = other,
        }
    }

    /// Lays the core down where all find it, after its thread has left and the bias was taken back.
    #[cold]
    #[inline(never)]
    fn put_back(&self) {
        let mut slot = lock(&self.slot);
        self.take_back(&mut slot);
        self.freed.notify_all();
    }

    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > 0
    }

    /// This rank of the world.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// What reaches the fabric while another thread holds the core.
    pub fn remote(&self) -> &dyn Remote {
        &*self.remote
    }

    /// The same, for whoever outlives this.
    pub fn remote_of_all(&self) -> Arc<dyn Remote> {
        self.remote.clone()
    }

    /// Starts the background thread, unless it runs.
    fn ensure_background(self: &Arc<CoreShared>) -> Result<(), Error> {
        let mut background = lock(&self.background);
        if background.is_none() {
            let shared = self.clone();
            let thread = std::thread::Builder::new().name("ripieno-progress".to_string());
            let started = thread.spawn(move || shared.move_on());
            *background = Some(started.map_err(|error| Error::NoThread { cause: error.to_string() })?);
        }
        Ok(())
    }

    /// The life of the background thread.
    fn move_on(self: &Arc<CoreShared>) {
        let mut slot = lock(&self.slot);
        loop {
            let has_work = match &slot.core {
                CoreState::Free(core) => !self.is_wanted() && !core.executor.is_idle(),
                CoreState::Held | CoreState::Given => false,
                CoreState::Gone => return,
            };
            match has_work.then(|| self.take(&mut slot)) {
                Some(Some(Ok(mut held))) => {
                    drop(slot);
                    let Core { fabric, executor, .. } = held.core();
                    // Whose run fails is told by its handle.
                    let _ = executor.drive(&mut **fabric, false, &|| self.is_wanted());
                    drop(held);
                    slot = lock(&self.slot);
                }
                _ => slot = self.changed.wait(slot).unwrap_or_else(|poisoned| poisoned.into_inner()),
            }
        }
    }

    /// Ends the runs in flight, unless this thread panics, then the links and the background thread.
    pub fn close(self: &Arc<CoreShared>) {
        let held = loop {
            match self.hold() {
                // The job has been told, so whoever holds the core gives up.
                Err(Error::Interrupted) => {}
                held => break held.ok(),
            }
        };
        let core = held.and_then(|mut held| {
            if !std::thread::panicking() {
                let Core { fabric, executor, .. } = held.core();
                // Whose run fails is told by its handle.
                let _ = executor.drive(&mut **fabric, true, &|| false);
            }
            held.core.take()
        });
        if let Some(background) = lock(&self.background).take() {
            // It has nothing to say; a panic of it has ended the runs in flight.
            let _ = background.join();
        }
        drop(core);
    }
}

impl Waiters for CoreShared {
    fn tell_end(&self) {
        // With the lock held, nobody is between looking and waiting.
        let _slot = lock(&self.slot);
        if self.is_wanted() {
            self.freed.notify_all();
        }
    }
}

impl CoreGuard<'_> {
    pub fn core(&mut self) -> &mut Core {
        self.core.as_mut().expect("whoever takes the core out lets this go")
    }

    /// One of the communicators and what its runs need, unless it is closed.
    pub fn communicator(&mut self, number: usize) -> Result<(Runtime<'_>, &mut CommunicatorState), Error> {
        let waiters = &self.shared.waiters;
        let Core { fabric, executor, scratch, overrides, communicators, .. } = self.core();
        let Some(state) = communicators[number].as_mut() else { return Err(Error::Closed) };
        Ok((Runtime { fabric: &mut **fabric, executor, scratch, overrides, waiters }, state))
    }

    /// Sees to it that runs in flight move on when nobody holds the core.
    pub fn ensure_background(&self) -> Result<(), Error> {
        self.shared.ensure_background()
    }
}

impl Drop for CoreGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        match (self.by_bias, &self.core) {
            (Some(me), Some(core)) if core.executor.is_idle() && self.shared.bias.lasts(me) => {
                // SAFETY: this thread is inside.
                unsafe { self.shared.given.put(self.core.take()) };
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
                slot.core = CoreState::Gone;
                true
            }
        };
        if self.by_bias.is_some() {
            shared.bias.end();
        }
        if !is_for_background && !shared.is_wanted() && slot.turns.are_enough() {
            shared.give(&mut slot);
        }
        if is_for_background {
            shared.changed.notify_one();
        }
        if shared.is_wanted() {
            shared.freed.notify_all();
        }
    }
}
