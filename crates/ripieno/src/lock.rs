//! Locks that a thread which panicked leaves usable.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A thread that panicked with the lock held leaves no run behind, and plain data, which is still good.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
