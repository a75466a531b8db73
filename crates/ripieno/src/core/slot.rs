//! Slot that holds a rank's core, and the policy that biases the core to a thread.

use super::RankCore;
use ripieno_net::can_fence_threads;
use std::cell::UnsafeCell;

/// Number of consecutive holds after which a thread gets the bias.
const BIAS_AFTER_HOLDS: u32 = 32;
/// Binary logarithm of the factor by which each revocation increases [`BIAS_AFTER_HOLDS`].
const BACKOFF_BITS: u32 = 3;

/// Slot of the core while no thread holds it.
pub(crate) struct CoreSlot {
    pub core: CoreState,
    pub hold_history: HoldHistory,
    /// Communicators that were closed while the core was held. They are removed when it becomes free.
    pub retired: Vec<usize>,
}

/// The thread that held the core last, and its number of holds in a row.
#[derive(Default)]
pub(crate) struct HoldHistory {
    thread: u64,
    count: u32,
    /// Number of times that the bias was revoked.
    revocation_count: u32,
}

/// State of the core.
pub(crate) enum CoreState {
    Free(Box<RankCore>),
    Held,
    /// Biased to one thread, which enters and leaves without this lock.
    Biased,
    /// The world is closed.
    Closed,
}

/// Storage of a biased core while its thread is not inside.
#[derive(Default)]
pub(crate) struct BiasedCore(UnsafeCell<Option<Box<RankCore>>>);

// SAFETY: any thread may use a core, and the caller of `take` or `put` has exclusive access.
unsafe impl Sync for BiasedCore {}

impl BiasedCore {
    /// # Safety
    /// The caller is inside, or has locked the slot after the bias was revoked and no thread is inside.
    #[inline]
    pub unsafe fn take(&self) -> Option<Box<RankCore>> {
        // SAFETY: the caller has exclusive access.
        unsafe { (*self.0.get()).take() }
    }

    /// # Safety
    /// See [`BiasedCore::take`].
    #[inline]
    pub unsafe fn put(&self, core: Option<Box<RankCore>>) {
        // SAFETY: the caller has exclusive access.
        unsafe { *self.0.get() = core };
    }
}

impl CoreSlot {
    /// Put the core back, without the communicators that were retired meanwhile.
    pub fn put(&mut self, mut core: Box<RankCore>) {
        self.retired.drain(..).for_each(|number| core.communicators[number] = None);
        self.core = CoreState::Free(core);
    }
}

impl HoldHistory {
    pub fn note(&mut self, thread: u64) {
        self.count = if self.thread == thread { self.count.saturating_add(1) } else { 1 };
        self.thread = thread;
    }

    /// Return whether the current holder should get the bias.
    pub fn should_bias(&mut self) -> bool {
        let needed = BIAS_AFTER_HOLDS << (BACKOFF_BITS * self.revocation_count).min(u32::BITS / 2);
        self.count >= needed && can_fence_threads()
    }

    /// Count a revocation of the bias.
    pub fn note_revocation(&mut self) {
        self.revocation_count = self.revocation_count.saturating_add(1).min(u32::BITS);
        self.count = 0;
    }
}
