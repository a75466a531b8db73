//! What the communicators of one rank share: the links, the runs in flight, and the thread that moves these on while the
//! program is elsewhere.
//!
//! Whoever holds the core moves everything on: a blocking call does, so does a wait, and between these the background
//! thread, which gives way as soon as somebody else wants the core. It begins with the first asynchronous call, sleeps
//! while nothing is in flight and ends when the world is closed.

use crate::choice::Overrides;
use crate::error::Error;
use crate::pool::BufferPool;
use crate::seat::Seat;
use ripieno_run::{Executor, Fabric, Remote};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::thread::JoinHandle;

/// What only one thread at a time works with.
pub(crate) struct Core {
    pub fabric: Box<dyn Fabric>,
    pub executor: Executor,
    /// Memory lent to plans that need some beside the caller's.
    pub scratch: BufferPool,
    /// What runs when a call names no algorithm.
    pub overrides: Overrides,
    /// The communicators, in the order in which they were made; `None` where one is closed.
    pub seats: Vec<Option<Box<Seat>>>,
    /// How many splits this rank knows of: the next one's number is larger.
    pub split_count: u32,
}

/// A core and the ways to it.
pub(crate) struct Shared {
    /// `None` once the world is closed.
    core: Mutex<Option<Core>>,
    /// How many threads wait for the core.
    wanted: AtomicUsize,
    /// Told that there is something for the background thread to do, or that the world is closed.
    changed: Condvar,
    remote: Arc<dyn Remote>,
    background: Mutex<Option<JoinHandle<()>>>,
}

/// The core, held.
pub(crate) struct Held<'a> {
    core: MutexGuard<'a, Option<Core>>,
    shared: &'a Shared,
}

impl Shared {
    pub fn new(core: Core) -> Arc<Shared> {
        let remote = core.fabric.remote();
        let background = Mutex::default();
        Arc::new(Shared {
            core: Mutex::new(Some(core)),
            wanted: AtomicUsize::new(0),
            changed: Condvar::new(),
            remote,
            background,
        })
    }

    /// Waits for the core, which the background thread gives at once, a caller that is blocked when it is done.
    pub fn hold(&self) -> Held<'_> {
        let core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.wanted.fetch_add(1, Ordering::SeqCst);
                self.remote.wake();
                let core = lock(&self.core);
                self.wanted.fetch_sub(1, Ordering::SeqCst);
                core
            }
        };
        Held { core, shared: self }
    }

    /// What reaches the fabric while another thread holds the core.
    pub fn remote(&self) -> &dyn Remote {
        &*self.remote
    }

    /// Starts the background thread, unless it runs.
    pub fn ensure_background(self: &Arc<Shared>) -> Result<(), Error> {
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
    fn move_on(&self) {
        let mut core = lock(&self.core);
        while let Some(Core { fabric, executor, .. }) = &mut *core {
            let is_wanted = || self.wanted.load(Ordering::SeqCst) > 0;
            if is_wanted() || executor.is_idle() {
                core = self.changed.wait(core).unwrap_or_else(|poisoned| poisoned.into_inner());
            } else {
                // Whose run fails is told by its handle.
                let _ = executor.drive(&mut **fabric, false, &is_wanted);
            }
        }
    }

    /// Ends the runs in flight, unless this thread panics, then the links and the background thread.
    pub fn close(&self) {
        let mut held = self.hold();
        if let Some(Core { fabric, executor, .. }) = &mut *held.core
            && !std::thread::panicking()
        {
            // Whose run fails is told by its handle.
            let _ = executor.drive(&mut **fabric, true, &|| false);
        }
        let core = held.core.take();
        drop(held);
        self.changed.notify_all();
        if let Some(background) = lock(&self.background).take() {
            // It has nothing to say; a panic of it has ended the runs in flight.
            let _ = background.join();
        }
        drop(core);
    }
}

impl Held<'_> {
    /// The core, unless the world is closed.
    pub fn core(&mut self) -> Result<&mut Core, Error> {
        self.core.as_mut().ok_or(Error::Closed)
    }

    /// The core and one of its communicators, unless this or the world is closed.
    pub fn seat(&mut self, number: usize) -> Result<(Parts<'_>, &mut Seat), Error> {
        let Core { fabric, executor, scratch, overrides, seats, .. } = self.core()?;
        let seat = seats[number].as_mut().ok_or(Error::Closed)?;
        Ok((Parts { fabric: &mut **fabric, executor, scratch, overrides }, seat))
    }
}

/// What runs need of a core.
pub(crate) struct Parts<'a> {
    pub fabric: &'a mut dyn Fabric,
    pub executor: &'a mut Executor,
    pub scratch: &'a BufferPool,
    pub overrides: &'a Overrides,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Whoever notes that the core is wanted and sleeps does so before it is held, so it hears of this.
        if self.core.as_ref().is_some_and(|core| !core.executor.is_idle()) {
            self.shared.changed.notify_one();
        }
    }
}

/// A thread that panicked with the lock held leaves no run behind, and plain data, which is still good.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
