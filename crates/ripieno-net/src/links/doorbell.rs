//! Doorbells: a rank sleeps at its doorbell, and its peers ring it.
//!
//! A doorbell is an eventfd and a word `parked` in a page that peers map. The rank sets the word, fences, checks for
//! work once more, and only then sleeps. A peer stores work, fences, and reads the word. One of the two fences comes
//! first, so either the rank finds the work or the peer sees the word. A peer makes a system call only for a rank that
//! sleeps.
//!
//! A fence costs a peer some tens of nanoseconds per message, because it waits for its stores to leave the core. A rank
//! that rarely sleeps can take over this cost with [`Doorbell::issue_barriers`]. Before it sleeps, the kernel then
//! executes a fence on every core that runs a rank. If membarrier(2) is missing, forbidden, or fails later, both sides
//! fence themselves.

use super::atomics::AtomicWord;
use super::memory::{Mapping, page_bytes, sealed_len, sealed_memfd};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::thread::MembarrierCommand;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Index of the word that is nonzero while the owner sleeps or is about to sleep.
const PARKED: usize = 0;
/// Index of the word that is nonzero if the owner issues barriers for its peers.
const BARRIERS: usize = 1;

/// A rank's own doorbell.
pub struct Doorbell {
    waker: Waker,
    /// Memory that is reused by the next sleep; empty between sleeps.
    polled: Vec<PollFd<'static>>,
    /// The events that the last sleep returned for each watched descriptor.
    ready_events: Vec<PollFlags>,
    /// A private copy, because a peer can write the page.
    issues_barriers: bool,
}

/// A handle that wakes the owner of a doorbell, from any thread or process.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<DoorbellMemory>,
}

struct DoorbellMemory {
    eventfd: OwnedFd,
    page_fd: OwnedFd,
    page: Mapping,
}

/// A descriptor that also wakes a parked rank.
#[derive(Clone, Copy, Debug)]
pub struct WatchedDescriptor<'a> {
    /// The descriptor to watch, e.g. a socket.
    pub fd: BorrowedFd<'a>,
    /// Wake when it is readable.
    pub readable: bool,
    /// Wake when it is writable.
    pub writable: bool,
}

impl Doorbell {
    /// Create a doorbell.
    pub fn new() -> io::Result<Self> {
        let eventfd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let page_fd = sealed_memfd("ripieno-doorbell", page_bytes())?;
        let waker = Waker::from_fds(eventfd, page_fd)?;
        Ok(Doorbell { waker, polled: Vec::new(), ready_events: Vec::new(), issues_barriers: false })
    }

    /// Let [`Self::prepare`] issue the peers' fences from now on, if the kernel supports it. Call before any peer has
    /// a waker.
    ///
    /// Cost: some microseconds per sleep, and an interrupt on every core that runs a rank.
    pub fn issue_barriers(&mut self) {
        self.issues_barriers = accepts_barriers();
        self.waker.word(BARRIERS).store(self.issues_barriers.into(), Relaxed);
    }

    /// Return a handle that wakes this rank.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Announce a sleep. The owner then checks for work once more and calls `wait` only if it found none.
    pub fn prepare(&mut self) {
        announce(self.waker.parked());
        if self.issues_barriers && rustix::thread::membarrier(MembarrierCommand::GlobalExpedited).is_err() {
            self.disable_barriers();
        }
    }

    /// Let peers execute their own fences from now on. A peer that has not seen the change may fail to wake the owner;
    /// the sleep then ends at its timeout.
    fn disable_barriers(&mut self) {
        self.issues_barriers = false;
        self.waker.word(BARRIERS).store(0, Relaxed);
        AtomicU64::fence();
    }

    /// Sleep until a peer wakes the owner, a watched descriptor is ready or has failed, or `timeout` expires. Return
    /// whether the owner was woken (rarely spuriously). The owner must call [`Self::cancel`] next.
    pub fn wait<'a>(
        &mut self,
        watches: impl IntoIterator<Item = WatchedDescriptor<'a>>,
        timeout: Duration,
    ) -> io::Result<bool> {
        let mut polled: Vec<PollFd<'_>> = std::mem::take(&mut self.polled);
        polled.push(PollFd::new(&self.waker.shared.eventfd, PollFlags::IN));
        polled.extend(watches.into_iter().map(|watch| watch.polled()));
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let woken = rustix::event::poll(&mut polled, Some(&timeout));
        self.ready_events.clear();
        self.ready_events.extend(polled[1..].iter().map(PollFd::revents));
        polled.clear();
        // Collecting in place keeps the allocation but drops the descriptors' lifetime.
        self.polled = polled.into_iter().map(|_| unreachable!("it was cleared")).collect();
        match woken {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Return whether the last sleep found data, or an end, to read on watch `index`.
    pub fn was_readable(&self, index: usize) -> bool {
        // An error is read like an end.
        self.ready_events[index].intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
    }

    /// Return whether the last sleep found watch `index` writable or failed.
    pub fn was_writable(&self, index: usize) -> bool {
        self.ready_events[index].intersects(PollFlags::OUT | PollFlags::HUP | PollFlags::ERR)
    }

    /// Cancel an announced sleep.
    pub fn cancel(&self) {
        if self.waker.parked().swap(0, Relaxed) == 0 {
            // A peer has woken the owner. If its write to the eventfd comes later, the next sleep ends early, which is
            // harmless.
            let _ = rustix::io::read(&self.waker.shared.eventfd, &mut [0u8; 8]);
        }
    }
}

impl Waker {
    /// Create the waker of a rank of another process from the descriptors that it sent.
    pub fn from_fds(eventfd: OwnedFd, page_fd: OwnedFd) -> io::Result<Self> {
        if sealed_len(page_fd.as_fd())? < page_bytes() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer's doorbell page is too small"));
        }
        let page = Mapping::plain(&page_fd, 0, page_bytes())?;
        Ok(Waker { shared: Arc::new(DoorbellMemory { eventfd, page_fd, page }) })
    }

    /// Return the descriptors to send to a peer, for [`Self::from_fds`].
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.shared.eventfd.as_fd(), self.shared.page_fd.as_fd()]
    }

    /// Wake the owner if it sleeps or is about to sleep. The caller must store the work before.
    pub fn wake(&self) {
        AtomicU64::fence();
        self.wake_after_fence();
    }

    /// Like `wake`, for a caller that has executed a fence after it stored the work.
    pub(super) fn wake_after_fence(&self) {
        if claim(self.parked()) {
            // A write to a full counter fails, but the counter wakes the owner anyway.
            let _ = rustix::io::write(&self.shared.eventfd, &1u64.to_ne_bytes());
        }
    }

    /// Return whether the owner issues the fences of its peers.
    pub(super) fn issues_barriers(&self) -> bool {
        self.word(BARRIERS).load(Relaxed) != 0
    }

    fn parked(&self) -> &AtomicU64 {
        self.word(PARKED)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: The page is mapped as long as `self`, aligned, and every process accesses it through atomics only.
        unsafe { &self.shared.page.address().cast::<[AtomicU64; 2]>().as_ref()[index] }
    }
}

/// Register this process for fences by other processes. Return whether the kernel supports them.
pub(super) fn accepts_barriers() -> bool {
    static REGISTERED: LazyLock<bool> =
        LazyLock::new(|| rustix::thread::membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok());
    *REGISTERED
}

impl<'a> WatchedDescriptor<'a> {
    fn polled(&self) -> PollFd<'a> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, self.readable);
        events.set(PollFlags::OUT, self.writable);
        PollFd::from_borrowed_fd(self.fd, events)
    }
}

/// The owner's half of the protocol; the owner checks for work afterwards.
pub(super) fn announce<W: AtomicWord>(parked: &W) {
    // A swap, not a store: it follows the claim that it reads in the word's modification order. A peer that has claimed
    // once cannot take its old claim for the newest value.
    parked.swap(1, Relaxed);
    W::fence();
}

/// The peer's half, after the work is stored and fenced. Return whether this peer must wake the owner.
pub(super) fn claim<W: AtomicWord>(parked: &W) -> bool {
    parked.load(Relaxed) != 0 && parked.swap(0, Relaxed) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_see_that_barriers_are_disabled() {
        let mut doorbell = Doorbell::new().unwrap();
        doorbell.issue_barriers();
        assert_eq!(doorbell.waker().issues_barriers(), accepts_barriers());

        doorbell.disable_barriers();

        assert!(!doorbell.waker().issues_barriers());
        doorbell.prepare();
        doorbell.waker().wake();
        assert!(doorbell.wait([], Duration::from_secs(20)).unwrap());
    }
}
