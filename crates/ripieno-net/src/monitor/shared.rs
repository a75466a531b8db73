//! What a rank's own threads share: the job's state, this rank's history, the ways to wake each other.

use super::entered::EnteredCalls;
use crate::connector::UnreachedPeer;
use crate::links::Bell;
use crate::stream::Stream;
use ripieno_run::membership::agreement::{self, Decision};
use ripieno_run::membership::{CallHistory, FORMS_REMEMBERED, MembershipRequest};
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
    lacks: AtomicBool,
    status: Mutex<MonitorStatus>,
    changed: Condvar,
    /// Read into the history whenever somebody looks at that.
    entered: EnteredCalls<AtomicU64>,
    history: Mutex<ReadCollectives>,
    orders: Sender<MonitorCommand>,
    bell: Bell,
    wake: OwnedFd,
}

/// The collectives that this rank has entered, as far as they were read.
#[derive(Default)]
pub(crate) struct ReadCollectives {
    pub history: CallHistory,
    read_count: u64,
}

/// What the rank's own thread knows of the collectives that it enters.
#[derive(Default)]
pub(crate) struct Entering {
    count: u64,
    communicator: Option<u32>,
    /// Forms that were noted of late, and behind how many others.
    forms: [(u32, u64); FORM_PLACES],
    form_count: u64,
}

/// As many forms are known to be noted, at most.
const FORM_PLACES: usize = 16;

/// What other threads want of the monitor.
pub(crate) enum MonitorCommand {
    /// Something of its membership machine.
    Request(MembershipRequest),
    /// Something has happened to the agreement of survivors.
    Agreement(agreement::AgreementEvent),
    /// A connection to `peer` for the agreement stands.
    Open { peer: usize, stream: Stream },
    /// It does not.
    NotOpen { peer: usize, why: UnreachedPeer },
}

/// What has become of an agreement of survivors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AgreementOutcome {
    /// These go on, and this rank is one of them.
    Decided(Decision),
    /// This rank does not go on.
    Excluded,
    /// There is none; the reason.
    GaveUp(String),
}

/// How the job stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct MonitorStatus {
    pub failure: Option<JobFailure>,
    /// Ranks that have died, of which a replica lives.
    pub losses: BTreeMap<usize, JobFailure>,
    /// Every rank has come.
    pub complete: bool,
    /// What has become of the agreement that this rank has begun last.
    pub outcome: Option<AgreementOutcome>,
    /// Ranks that are known to have ended, or to take part in no agreement.
    pub ended: BTreeSet<usize>,
    /// What this process lacks to accept connections with.
    pub lack: Option<String>,
    /// The monitor has ended.
    pub over: bool,
}

impl MonitorShared {
    /// The state, and what the monitor reads requests from.
    pub fn new(bell: Bell) -> io::Result<(MonitorShared, Receiver<MonitorCommand>)> {
        let (orders, receiver) = channel();
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = MonitorShared {
            started: Instant::now(),
            failed: AtomicBool::new(false),
            loss_count: AtomicUsize::new(0),
            lacks: AtomicBool::new(false),
            status: Mutex::default(),
            changed: Condvar::new(),
            entered: EnteredCalls::default(),
            history: Mutex::default(),
            orders,
            bell,
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

    /// How many ranks have died of which a replica lives.
    pub fn loss_count(&self) -> usize {
        self.loss_count.load(Ordering::Acquire)
    }

    /// Whether this process lacks something to accept connections with; the status says what.
    pub fn lacks(&self) -> bool {
        self.lacks.load(Ordering::Acquire)
    }

    pub fn status(&self) -> MonitorStatus {
        lock(&self.status).clone()
    }

    /// Changes the status and wakes everybody who waits for that.
    pub fn update(&self, change: impl FnOnce(&mut MonitorStatus)) {
        let mut status = lock(&self.status);
        change(&mut status);
        self.failed.store(status.failure.is_some(), Ordering::Release);
        self.loss_count.store(status.losses.len(), Ordering::Release);
        self.lacks.store(status.lack.is_some(), Ordering::Release);
        drop(status);
        self.changed.notify_all();
        self.bell.ring();
    }

    /// Notes the job's failure; only the first counts.
    pub fn fail(&self, failure: JobFailure) {
        self.update(|status| {
            status.failure.get_or_insert(failure);
        });
    }

    /// Notes the death of `rank`, of which a replica lives.
    pub fn lose(&self, rank: usize, failure: JobFailure) {
        self.update(|status| {
            status.losses.insert(rank, failure);
        });
    }

    /// Waits until `done` or for `timeout`; returns the status then.
    pub fn wait(&self, timeout: Duration, done: impl Fn(&MonitorStatus) -> bool) -> MonitorStatus {
        let status = lock(&self.status);
        match self.changed.wait_timeout_while(status, timeout, |status| !done(status)) {
            Ok((status, _)) => status.clone(),
            Err(poisoned) => poisoned.into_inner().0.clone(),
        }
    }

    /// What this rank has entered so far.
    pub fn history(&self) -> MutexGuard<'_, ReadCollectives> {
        let mut noted = lock(&self.history);
        let ReadCollectives { history, read_count } = &mut *noted;
        *read_count = self.entered.read(*read_count, |header| history.enter(header));
        noted
    }

    /// Notes that the rank enters a collective. Takes a lock only where it turns to another communicator, of each of
    /// which the history keeps the last.
    #[inline]
    pub fn enter(&self, entering: &mut Entering, communicator: u32, header: &[u8; HEADER_BYTES]) {
        if entering.communicator != Some(communicator) {
            entering.communicator = Some(communicator);
            drop(self.history());
        }
        self.entered.note(entering.count, header);
        entering.count += 1;
    }

    /// Notes what a form stands for, unless that is known to be remembered.
    #[inline]
    pub fn note_form(&self, entering: &mut Entering, form: u32, words: &dyn Fn() -> String) {
        let (known, at) = &mut entering.forms[form as usize % FORM_PLACES];
        if *known == form && entering.form_count - *at < FORMS_REMEMBERED as u64 / 2 {
            return;
        }
        entering.form_count += 1;
        (*known, *at) = (form, entering.form_count);
        self.history().history.note_form(form, words);
    }

    /// Hands a request to the monitor. After the monitor's end nobody takes it, and nobody needs to.
    pub fn request(&self, request: MembershipRequest) {
        self.order(MonitorCommand::Request(request));
    }

    /// As [`MonitorShared::request`], for orders of all kinds.
    pub fn order(&self, order: MonitorCommand) {
        if self.orders.send(order).is_ok() {
            // A count that is full wakes as well.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    pub fn wake_fd(&self) -> &OwnedFd {
        &self.wake
    }

    /// Takes back what `request` wrote.
    pub fn drain_wake(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
    }
}

/// A thread that panicked with the lock held leaves plain data behind, which is still good.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
