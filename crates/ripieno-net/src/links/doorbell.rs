//! Doorbells: a rank sleeps at its doorbell, its peers ring it.
//!
//! A doorbell is an eventfd and a word `parked` in a page that peers map. The rank sets the word, fences, looks for
//! work once more, and only then sleeps. A peer gives it work, fences, and reads the word: of the two fences one comes
//! first, so either the rank finds the work or the peer sees the word. A peer pays a system call only for a rank that
//! sleeps.
//!
//! A fence costs a peer some tens of nanoseconds per message, as it waits for its stores to leave the core. A rank that
//! rarely sleeps can take that over ([`Doorbell::make_barriers`]): before it sleeps, it has the kernel make every core
//! that runs a rank fence. Where the kernel cannot (membarrier(2) missing or forbidden), or one day does not, both
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

/// The word of the page that is not 0 while the owner sleeps or is about to.
const PARKED: usize = 0;
/// The word of the page that is not 0 if the owner makes barriers.
const BARRIERS: usize = 1;

/// A rank's own doorbell.
pub struct Doorbell {
    bell: Bell,
    /// Memory that a sleep lends to the next; empty between them.
    polled: Vec<PollFd<'static>>,
    /// What the last sleep showed of each watch.
    shown: Vec<PollFlags>,
    /// Known here, for a peer can write the page.
    makes_barriers: bool,
}

/// A handle that wakes the owner of a doorbell, from any thread or process.
#[derive(Clone)]
pub struct Bell {
    shared: Arc<DoorbellMemory>,
}

struct DoorbellMemory {
    eventfd: OwnedFd,
    page_fd: OwnedFd,
    page: Mapping,
}

/// A descriptor that a parked rank also waits for.
#[derive(Clone, Copy, Debug)]
pub struct WatchedDescriptor<'a> {
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
        let bell = Bell::from_fds(eventfd, page_fd)?;
        Ok(Doorbell { bell, polled: Vec::new(), shown: Vec::new(), makes_barriers: false })
    }

    /// From now on [`Self::prepare`] makes the peers' fences, where the kernel can: some microseconds for each sleep,
    /// and an interrupt for every core that runs a rank. Called before any peer has the bell.
    pub fn make_barriers(&mut self) {
        self.makes_barriers = serves_barriers();
        self.bell.word(BARRIERS).store(self.makes_barriers.into(), Relaxed);
    }

    /// A handle for whoever is to wake this rank.
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// Says that the owner is about to sleep. It then looks for work once more and calls `wait` only if it found none.
    pub fn prepare(&mut self) {
        announce(self.bell.parked());
        if self.makes_barriers && rustix::thread::membarrier(MembarrierCommand::GlobalExpedited).is_err() {
            self.give_up_barriers();
        }
    }

    /// From now on peers fence. One that has not seen this yet may fail to ring, and the sleep lasts for its timeout.
    fn give_up_barriers(&mut self) {
        self.makes_barriers = false;
        self.bell.word(BARRIERS).store(0, Relaxed);
        AtomicU64::fence();
    }

    /// Sleeps until the bell rings, a watched descriptor is ready or has failed, or `timeout` is over; says whether it
    /// was woken (rarely without reason). [`Self::cancel`] is called next.
    pub fn wait<'a>(
        &mut self,
        watches: impl IntoIterator<Item = WatchedDescriptor<'a>>,
        timeout: Duration,
    ) -> io::Result<bool> {
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
        Ok(Bell { shared: Arc::new(DoorbellMemory { eventfd, page_fd, page }) })
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

    /// Whether the owner makes the fences of those that ring.
    pub(super) fn makes_barriers(&self) -> bool {
        self.word(BARRIERS).load(Relaxed) != 0
    }

    fn parked(&self) -> &AtomicU64 {
        self.word(PARKED)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as `self`, aligned, and used through atomics only, by every process.
        unsafe { &self.shared.page.address().cast::<[AtomicU64; 2]>().as_ref()[index] }
    }
}

/// Whether the kernel can make the cores that run this process fence, at the wish of any process; registers for that.
pub(super) fn serves_barriers() -> bool {
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

/// The owner's half of the protocol; it looks for work afterwards.
pub(super) fn announce<W: AtomicWord>(parked: &W) {
    // A swap, not a store: it follows the claim that it reads in the word's own order, so a peer that has claimed once
    // cannot take its old claim for the newest value.
    parked.swap(1, Relaxed);
    W::fence();
}

/// The peer's half, after the work is stored and fenced: whether it is this peer's part to wake the owner.
pub(super) fn claim<W: AtomicWord>(parked: &W) -> bool {
    parked.load(Relaxed) != 0 && parked.swap(0, Relaxed) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_see_that_barriers_were_given_up() {
        let mut doorbell = Doorbell::new().unwrap();
        doorbell.make_barriers();
        assert_eq!(doorbell.bell().makes_barriers(), serves_barriers());

        doorbell.give_up_barriers();

        assert!(!doorbell.bell().makes_barriers());
        doorbell.prepare();
        doorbell.bell().ring();
        assert!(doorbell.wait([], Duration::from_secs(20)).unwrap());
    }
}
