//! Doorbells: a rank sleeps at its doorbell, its peers ring it.
//!
//! A doorbell is an eventfd and a word `parked` in a page that peers map. The rank sets the word, fences, looks for work
//! once more, and only then sleeps. A peer gives it work, fences, and reads the word: of the two fences one comes first,
//! so either the rank finds the work or the peer sees the word. A peer pays a system call only for a rank that sleeps.

use super::atomics::Word;
use super::memory::{Mapping, page_bytes, sealed_len, sealed_memfd};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A rank's own doorbell.
pub struct Doorbell {
    bell: Bell,
    /// Memory that a sleep lends to the next; empty between them.
    polled: Vec<PollFd<'static>>,
    /// What the last sleep showed of each watch.
    shown: Vec<PollFlags>,
}

/// A handle that wakes the owner of a doorbell, from any thread or process.
#[derive(Clone)]
pub struct Bell {
    shared: Arc<Shared>,
}

struct Shared {
    eventfd: OwnedFd,
    page_fd: OwnedFd,
    page: Mapping,
}

/// A descriptor that a parked rank also waits for.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'a> {
    /// What to watch, e.g. a socket.
    pub fd: BorrowedFd<'a>,
    /// Wake when it can be read.
    pub readable: bool,
    /// Wake when it can be written.
    pub writable: bool,
}

impl Doorbell {
    /// A new doorbell.
    pub fn new() -> io::Result<Self> {
        let eventfd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let page_fd = sealed_memfd("ripieno-doorbell", page_bytes())?;
        Ok(Doorbell { bell: Bell::from_fds(eventfd, page_fd)?, polled: Vec::new(), shown: Vec::new() })
    }

    /// A handle for whoever is to wake this rank.
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// Says that the owner is about to sleep. It then looks for work once more and calls `wait` only if it found none.
    pub fn prepare(&self) {
        announce(self.bell.parked());
    }

    /// Sleeps until the bell rings, a watched descriptor is ready or has failed, or `timeout` is over; says whether it
    /// was woken (rarely without reason). [`Self::cancel`] is called next.
    pub fn wait<'a>(&mut self, watches: impl IntoIterator<Item = Watch<'a>>, timeout: Duration) -> io::Result<bool> {
        let mut polled: Vec<PollFd<'_>> = std::mem::take(&mut self.polled);
        polled.push(PollFd::new(&self.bell.shared.eventfd, PollFlags::IN));
        polled.extend(watches.into_iter().map(|watch| watch.polled()));
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let woken = rustix::event::poll(&mut polled, Some(&timeout));
        self.shown.clear();
        self.shown.extend(polled[1..].iter().map(PollFd::revents));
        polled.clear();
        // Collected in place: the memory stays, though not the descriptors' lifetime.
        self.polled = polled.into_iter().map(|_| unreachable!("it was cleared")).collect();
        match woken {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the last sleep showed that watch `index` has bytes, or its end, to read.
    pub fn showed_readable(&self, index: usize) -> bool {
        // An error is read like an end.
        self.shown[index].intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
    }

    /// Whether the last sleep showed that watch `index` has room to write, or refuses to.
    pub fn showed_writable(&self, index: usize) -> bool {
        self.shown[index].intersects(PollFlags::OUT | PollFlags::HUP | PollFlags::ERR)
    }

    /// Takes `prepare` back.
    pub fn cancel(&self) {
        if self.bell.parked().swap(0, Relaxed) == 0 {
            // Somebody has rung. If the count is not there yet, the next sleep ends at once, which does no harm.
            let _ = rustix::io::read(&self.bell.shared.eventfd, &mut [0u8; 8]);
        }
    }
}

impl Bell {
    /// The bell of a rank of another process, from the descriptors that came from it.
    pub fn from_fds(eventfd: OwnedFd, page_fd: OwnedFd) -> io::Result<Self> {
        if sealed_len(page_fd.as_fd())? < page_bytes() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer's doorbell page is too small"));
        }
        let page = Mapping::plain(&page_fd, 0, page_bytes())?;
        Ok(Bell { shared: Arc::new(Shared { eventfd, page_fd, page }) })
    }

    /// The descriptors to send to a peer: what [`Self::from_fds`] takes.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.shared.eventfd.as_fd(), self.shared.page_fd.as_fd()]
    }

    /// Wakes the owner if it sleeps or is about to. Whatever it is woken for was stored before.
    pub fn ring(&self) {
        AtomicU64::fence();
        self.ring_after_fence();
    }

    /// Like `ring`, by a caller that has fenced since it stored what the owner is woken for.
    pub(super) fn ring_after_fence(&self) {
        if claim(self.parked()) {
            // A count that is full also wakes, so an error here means nothing.
            let _ = rustix::io::write(&self.shared.eventfd, &1u64.to_ne_bytes());
        }
    }

    fn parked(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as `self`, aligned, and used through atomics only, by every process.
        unsafe { self.shared.page.address().cast().as_ref() }
    }
}

impl<'a> Watch<'a> {
    fn polled(&self) -> PollFd<'a> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, self.readable);
        events.set(PollFlags::OUT, self.writable);
        PollFd::from_borrowed_fd(self.fd, events)
    }
}

/// The owner's half of the protocol; it looks for work afterwards.
pub(super) fn announce<W: Word>(parked: &W) {
    // A swap, not a store: it follows the claim that it reads in the word's own order, so a peer that has claimed once
    // cannot take its old claim for the newest value.
    parked.swap(1, Relaxed);
    W::fence();
}

/// The peer's half, after the work is stored and fenced: whether it is this peer's part to wake the owner.
pub(super) fn claim<W: Word>(parked: &W) -> bool {
    parked.load(Relaxed) != 0 && parked.swap(0, Relaxed) != 0
}
