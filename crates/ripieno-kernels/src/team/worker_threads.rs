//! Worker threads: a caller assigns a task to some helpers and waits until all of them have finished.

use super::barrier::Barrier;
use super::gate::{Gate, GateWord, SpinPolicy};
use std::sync::Arc;
use std::time::Duration;

/// The helpers of one caller at a time. Dropping it ends them.
pub(super) struct WorkerThreads<W: GateWord, Helper> {
    slot: Arc<TaskSlot<W>>,
    helpers: Vec<(Arc<Gate<W>>, Helper)>,
    /// Waits until a helper's thread has ended.
    join: fn(Helper),
}

/// State shared by helpers and their caller.
#[derive(Default)]
pub(super) struct TaskSlot<W: GateWord> {
    task: W::Storage,
    done: Barrier<W>,
}

/// The task of the threads.
#[derive(Clone, Copy)]
pub(super) struct WorkerTask {
    /// Called with the number of the thread. The caller of [`WorkerThreads::run`] keeps it alive until all are done.
    work: *const (dyn Fn(usize) + Sync),
    count: u32,
    spin_policy: SpinPolicy,
}

/// Storage of a task. Participating helpers read it after their gate was opened and before they arrive at the final
/// barrier. The caller writes it outside of this interval.
pub(super) trait TaskStorage: Default {
    /// Store a task; `None` ends the helpers.
    ///
    /// # Safety
    /// No helper may be reading.
    unsafe fn put(&self, task: Option<WorkerTask>);

    /// Return the task.
    ///
    /// # Safety
    /// The caller may not be writing.
    unsafe fn get(&self) -> Option<WorkerTask>;
}

/// Policy of a helper without a previous task: it sleeps without spinning.
const NO_SPINNING: SpinPolicy = SpinPolicy { spin: Duration::ZERO, yields: 0 };

impl<W: GateWord, Helper> WorkerThreads<W, Helper> {
    pub(super) fn new(join: fn(Helper)) -> Self {
        WorkerThreads { slot: Arc::default(), helpers: Vec::new(), join }
    }

    /// Add a helper. `spawn` starts its thread with the given context.
    pub(super) fn spawn_worker<E>(
        &mut self,
        spawn: impl FnOnce(WorkerContext<W>) -> Result<Helper, E>,
    ) -> Result<(), E> {
        let gate = Arc::new(Gate::default());
        let context = WorkerContext { slot: self.slot.clone(), gate: gate.clone(), index: self.helpers.len() + 1 };
        self.helpers.push((gate, spawn(context)?));
        Ok(())
    }

    /// Call `work` with every number below `count`, each on its own thread; the caller's number is 0.
    ///
    /// # Safety
    /// `work` does not unwind, and there are `count - 1` helpers.
    pub(super) unsafe fn run<'a>(
        &mut self,
        count: usize,
        spin_policy: SpinPolicy,
        work: &'a (dyn Fn(usize) + Sync + 'a),
    ) {
        // SAFETY: only the lifetime differs, and all helpers have finished with it before this returns.
        let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        let task = WorkerTask { work, count: count as u32, spin_policy };
        // SAFETY: no other thread runs these workers, and the helpers have finished the last task.
        unsafe { self.slot.task.put(Some(task)) };
        self.call(count - 1);
        work(0);
        self.slot.done.wait(task.count, spin_policy).expect("every helper reaches the final barrier");
    }

    /// Open the gates of the first helpers.
    fn call(&self, helper_count: usize) {
        for (gate, _) in &self.helpers[..helper_count] {
            gate.open(gate.value().wrapping_add(1) & (u32::MAX >> 1));
        }
    }
}

impl<W: GateWord, Helper> Drop for WorkerThreads<W, Helper> {
    fn drop(&mut self) {
        // SAFETY: no task is running.
        unsafe { self.slot.task.put(None) };
        self.call(self.helpers.len());
        self.helpers.drain(..).for_each(|(_, helper)| (self.join)(helper));
    }
}

/// Context of a helper's thread.
pub(super) struct WorkerContext<W: GateWord> {
    slot: Arc<TaskSlot<W>>,
    gate: Arc<Gate<W>>,
    index: usize,
}

impl<W: GateWord> WorkerContext<W> {
    /// Return the number of the helper, starting at 1.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Execute tasks until the last one.
    pub(super) fn serve(self) {
        let (mut generation, mut spin_policy) = (0, NO_SPINNING);
        loop {
            generation = self.gate.wait_while(generation, spin_policy);
            // SAFETY: the gate was opened, and this helper has not arrived at the final barrier.
            let Some(task) = (unsafe { self.slot.task.get() }) else { return };
            // SAFETY: the caller keeps it until this helper arrives at the final barrier.
            unsafe { (*task.work)(self.index) };
            spin_policy = task.spin_policy;
            self.slot.done.arrive(task.count);
        }
    }
}
