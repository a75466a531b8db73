//! How far a value is on this rank, for other threads to look at.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts of one value.
#[derive(Debug, Default)]
pub struct Meter {
    came_bytes: AtomicU64,
    gave_bytes: AtomicU64,
    is_released: AtomicBool,
}

impl Meter {
    /// Bytes that have come, those of wrong blocks among them.
    pub fn came_bytes(&self) -> u64 {
        self.came_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were given to others.
    pub fn gave_bytes(&self) -> u64 {
        self.gave_bytes.load(Ordering::Relaxed)
    }

    /// Whether the tracker has said that everybody who is alive has the value.
    pub fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Relaxed)
    }

    pub(super) fn note_came(&self, count: usize) {
        self.came_bytes.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn note_gave(&self, count: usize) {
        self.gave_bytes.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn note_released(&self) {
        self.is_released.store(true, Ordering::Relaxed);
    }
}
