//! State that the threads of a rank share: the job's status, the rank's call history, and wake-ups.

use super::entered::EnteredCalls;
use crate::connector::UnreachedPeer;
use crate::links::Waker;
use crate::stream::Stream;
use ripieno_run::membership::agreement::{self, Decision};
use ripieno_run::membership::{CallHistory, MembershipRequest, SIGNATURE_COUNT_MAX};
use ripieno_run::{HEADER_BYTES, JobFailure};
use rustix::event::EventfdFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The state that a rank's program thread and its monitor share.
pub(crate) struct MonitorShared {
    pub started: Instant,
    failed: AtomicBool,
    loss_count: AtomicUsize,
    shortages: AtomicBool,
    status: Mutex<MonitorStatus>,
    changed: Condvar,
    /// Copied into the history whenever a thread reads the history.
    entered: EnteredCalls<AtomicU64>,
    history: Mutex<SyncedHistory>,
    /// Time of the last successful probe between this rank and another one.
    reached: Mutex<BTreeMap<usize, Instant>>,
    commands: Sender<MonitorCommand>,
    waker: Waker,
    wake: OwnedFd,
}

/// The history of the collectives that this rank has entered, up to the last read.
#[derive(Default)]
pub(crate) struct SyncedHistory {
    pub history: CallHistory,
    read_count: u64,
}

/// The program thread's cache of the collectives that it has recorded.
#[derive(Default)]
pub(crate) struct EnteredCache {
    count: u64,
    communicator: Option<u32>,
    /// Recently recorded call signatures, each with the number of signatures recorded before it.
    signatures: [(u32, u64); CACHED_SIGNATURE_COUNT],
    signature_count: u64,
}

/// Number of signatures that the cache holds.
const CACHED_SIGNATURE_COUNT: usize = 16;

/// A command from another thread to the monitor.
pub(crate) enum MonitorCommand {
    /// A request to the membership machine.
    Request(MembershipRequest),
    /// An event for the survivors' agreement.
    Agreement(agreement::AgreementEvent),
    /// A connection to `peer` for the agreement has opened.
    Open { peer: usize, stream: Stream },
    /// Opening a connection to `peer` has failed.
    NotOpen { peer: usize, reason: UnreachedPeer },
    /// The data link of `peer` is silent: try to connect to `peer`.
    Probe { peer: usize },
    /// A probe of `peer` has ended.
    Probed { peer: usize, is_reached: bool },
}

/// The outcome of an agreement among survivors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AgreementOutcome {
    /// The survivors in the decision continue, and this rank is one of them.
    Decided(Decision),
    /// The survivors continue without this rank.
    Excluded,
    /// No agreement was reached, for this reason.
    GaveUp(String),
}

/// The status of the job.
#[derive(Clone, Debug, Default)]
pub(crate) struct MonitorStatus {
    pub failure: Option<JobFailure>,
    /// Ranks that have died while a replica of them lives.
    pub losses: BTreeMap<usize, JobFailure>,
    /// Whether every rank has connected.
    pub complete: bool,
    /// The outcome of the agreement that this rank started last.
    pub outcome: Option<AgreementOutcome>,
    /// Ranks that have ended, or that do not take part in agreements.
    pub ended: BTreeSet<usize>,
    /// The resource that this process lacks to accept connections.
    pub shortage: Option<String>,
    /// Whether the monitor has ended.
    pub over: bool,
}

impl MonitorShared {
    /// Create the shared state and the receiver of the monitor's commands.
    pub fn new(waker: Waker) -> io::Result<(MonitorShared, Receiver<MonitorCommand>)> {
        let (commands, receiver) = channel();
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = MonitorShared {
            started: Instant::now(),
            failed: AtomicBool::new(false),
            loss_count: AtomicUsize::new(0),
            shortages: AtomicBool::new(false),
            status: Mutex::default(),
            changed: Condvar::new(),
            entered: EnteredCalls::default(),
            history: Mutex::default(),
            reached: Mutex::default(),
            commands,
            waker,
            wake,
        };
        Ok((shared, receiver))
    }

    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Return the number of ranks that have died while a replica of them lives.
    pub fn loss_count(&self) -> usize {
        self.loss_count.load(Ordering::Acquire)
    }

    /// Return whether this process lacks a resource to accept connections; the status names the resource.
    pub fn shortages(&self) -> bool {
        self.shortages.load(Ordering::Acquire)
    }

    pub fn status(&self) -> MonitorStatus {
        lock(&self.status).clone()
    }

    /// Change the status and wake all threads that wait for a change.
    pub fn update(&self, change: impl FnOnce(&mut MonitorStatus)) {
        let mut status = lock(&self.status);
        change(&mut status);
        self.failed.store(status.failure.is_some(), Ordering::Release);
        self.loss_count.store(status.losses.len(), Ordering::Release);
        self.shortages.store(status.shortage.is_some(), Ordering::Release);
        drop(status);
        self.changed.notify_all();
        self.waker.wake();
    }

    /// Record the job's failure; only the first one counts.
    pub fn fail(&self, failure: JobFailure) {
        self.update(|status| {
            status.failure.get_or_insert(failure);
        });
    }

    /// Record a successful probe between this rank and `peer`.
    pub fn note_reached(&self, peer: usize) {
        lock(&self.reached).insert(peer, Instant::now());
    }

    /// Return the time since the last successful probe between this rank and `peer`.
    pub fn since_reached(&self, peer: usize) -> Option<Duration> {
        lock(&self.reached).get(&peer).map(Instant::elapsed)
    }

    /// Record the death of `rank` while a replica of it lives.
    pub fn lose(&self, rank: usize, failure: JobFailure) {
        self.update(|status| {
            status.losses.insert(rank, failure);
        });
    }

    /// Wait until `done` or `timeout`; return the status at that time.
    pub fn wait(&self, timeout: Duration, done: impl Fn(&MonitorStatus) -> bool) -> MonitorStatus {
        let status = lock(&self.status);
        match self.changed.wait_timeout_while(status, timeout, |status| !done(status)) {
            Ok((status, _)) => status.clone(),
            Err(poisoned) => poisoned.into_inner().0.clone(),
        }
    }

    /// Return the history of entered collectives, brought up to date.
    pub fn history(&self) -> MutexGuard<'_, SyncedHistory> {
        let mut synced = lock(&self.history);
        let SyncedHistory { history, read_count } = &mut *synced;
        *read_count = self.entered.read(*read_count, |header| history.enter(header));
        synced
    }

    /// Record that the rank enters a collective. A lock is taken only when the communicator changes, because the
    /// history keeps the last collective of each communicator.
    #[inline]
    pub fn enter(&self, cache: &mut EnteredCache, communicator: u32, header: &[u8; HEADER_BYTES]) {
        if cache.communicator != Some(communicator) {
            cache.communicator = Some(communicator);
            drop(self.history());
        }
        self.entered.note(cache.count, header);
        cache.count += 1;
    }

    /// Record the meaning of a call signature, unless the history is known to contain it.
    #[inline]
    pub fn note_signature(&self, cache: &mut EnteredCache, signature: u32, text: &dyn Fn() -> String) {
        let (known, at) = &mut cache.signatures[signature as usize % CACHED_SIGNATURE_COUNT];
        if *known == signature && cache.signature_count - *at < SIGNATURE_COUNT_MAX as u64 / 2 {
            return;
        }
        cache.signature_count += 1;
        (*known, *at) = (signature, cache.signature_count);
        self.history().history.note_signature(signature, text);
    }

    /// Send a request to the monitor. The request has no effect after the monitor's end.
    pub fn request(&self, request: MembershipRequest) {
        self.send_command(MonitorCommand::Request(request));
    }

    /// Send a command of any kind to the monitor, as [`MonitorShared::request`] does.
    pub fn send_command(&self, command: MonitorCommand) {
        if self.commands.send(command).is_ok() {
            // A write to a full counter fails, but the counter wakes the monitor anyway.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    pub fn wake_fd(&self) -> &OwnedFd {
        &self.wake
    }

    /// Reset the wake-up that `command` wrote.
    pub fn drain_wake(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
    }
}

/// Lock a mutex even if it is poisoned: it protects plain data, which is valid after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
