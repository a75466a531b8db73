//! Where the core of a rank lies, and how a thread comes to be given it.

use super::Core;
use ripieno_net::can_fence_threads;
use std::cell::UnsafeCell;

/// A thread that has had the core so often in a row is given it.
const GIVEN_AFTER: u32 = 32;
/// Each time that this turns out wrong, so many times two more often.
const GIVEN_AFTER_MORE: u32 = 3;

/// Where the core lies when nobody holds it.
pub(crate) struct CoreSlot {
    pub core: CoreState,
    pub turns: LockTurns,
    /// Communicators that were closed while the core was held, until it is free.
    pub retired: Vec<usize>,
}

/// Which thread had the core last, and how many times in a row.
#[derive(Default)]
pub(crate) struct LockTurns {
    thread: u64,
    count: u32,
    /// How often it was given and taken back.
    regrets: u32,
}

/// Who has the core.
pub(crate) enum CoreState {
    Free(Box<Core>),
    Held,
    /// To one thread, which goes in and out without this lock.
    Given,
    /// The world is closed.
    Gone,
}

/// Where the core lies when it is given to a thread and that is not inside.
#[derive(Default)]
pub(crate) struct LentCore(UnsafeCell<Option<Box<Core>>>);

// SAFETY: a core may be used by any thread, and whoever calls `take` or `put` is alone.
unsafe impl Sync for LentCore {}

impl LentCore {
    /// # Safety
    /// The caller is inside, or has the slot locked after the bias was taken back and nobody is inside.
    #[inline]
    pub unsafe fn take(&self) -> Option<Box<Core>> {
        // SAFETY: the caller is alone.
        unsafe { (*self.0.get()).take() }
    }

    /// # Safety
    /// As of [`LentCore::take`].
    #[inline]
    pub unsafe fn put(&self, core: Option<Box<Core>>) {
        // SAFETY: the caller is alone.
        unsafe { *self.0.get() = core };
    }
}

impl CoreSlot {
    /// Lays the core down, without what was retired meanwhile.
    pub fn put(&mut self, mut core: Box<Core>) {
        self.retired.drain(..).for_each(|number| core.communicators[number] = None);
        self.core = CoreState::Free(core);
    }
}

impl LockTurns {
    pub fn note(&mut self, thread: u64) {
        self.count = if self.thread == thread { self.count.saturating_add(1) } else { 1 };
        self.thread = thread;
    }

    /// Whether the thread that has the core now is to be given it.
    pub fn are_enough(&mut self) -> bool {
        let needed = GIVEN_AFTER << (GIVEN_AFTER_MORE * self.regrets).min(u32::BITS / 2);
        self.count >= needed && can_fence_threads()
    }

    /// Notes that it was given in vain.
    pub fn regret(&mut self) {
        self.regrets = self.regrets.saturating_add(1).min(u32::BITS);
        self.count = 0;
    }
}
