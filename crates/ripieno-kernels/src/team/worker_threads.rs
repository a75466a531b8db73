//! A caller and its helpers: an order goes out to some of them, and comes back when the last one is done.

use super::barrier::Barrier;
use super::gate::{Gate, GateWord, SpinPolicy};
use std::sync::Arc;
use std::time::Duration;

/// The helpers of one caller at a time. When it is dropped, they end.
pub(super) struct WorkerThreads<W: GateWord, Helper> {
    desk: Arc<Desk<W>>,
    helpers: Vec<(Arc<Gate<W>>, Helper)>,
    /// Waits until a helper's thread has ended.
    join: fn(Helper),
}

/// What helpers share with their caller.
#[derive(Default)]
pub(super) struct Desk<W: GateWord> {
    order: W::Place,
    done: Barrier<W>,
}

/// What the threads of a crew are to do.
#[derive(Clone, Copy)]
pub(super) struct WorkerTask {
    /// Called with the number of the thread. The caller of [`WorkerThreads::run`] keeps it until all are done.
    work: *const (dyn Fn(usize) + Sync),
    count: u32,
    patience: SpinPolicy,
}

/// Where an order lies. The helpers that it concerns read it between an opening of their gates and their coming to the
/// barrier at the end; the caller writes before the one and after the other.
pub(super) trait OrderPlace: Default {
    /// Puts an order down; none is the last.
    ///
    /// # Safety
    /// No helper may be reading.
    unsafe fn put(&self, order: Option<WorkerTask>);

    /// The order.
    ///
    /// # Safety
    /// The caller may not be writing.
    unsafe fn get(&self) -> Option<WorkerTask>;
}

/// A helper that has not been of use yet does not look: it sleeps.
const NEW: SpinPolicy = SpinPolicy { spin: Duration::ZERO, yields: 0 };

impl<W: GateWord, Helper> WorkerThreads<W, Helper> {
    pub(super) fn new(join: fn(Helper)) -> Self {
        WorkerThreads { desk: Arc::default(), helpers: Vec::new(), join }
    }

    /// Takes on one more helper, whose thread `spawn` makes of what it is given.
    pub(super) fn hire<E>(&mut self, spawn: impl FnOnce(WorkerContext<W>) -> Result<Helper, E>) -> Result<(), E> {
        let gate = Arc::new(Gate::default());
        let duty = WorkerContext { desk: self.desk.clone(), gate: gate.clone(), index: self.helpers.len() + 1 };
        self.helpers.push((gate, spawn(duty)?));
        Ok(())
    }

    /// Calls `work` with every number below `count`, each on a thread of its own, the caller's with 0.
    ///
    /// # Safety
    /// `work` does not unwind, and there are `count - 1` helpers.
    pub(super) unsafe fn run<'a>(&mut self, count: usize, patience: SpinPolicy, work: &'a (dyn Fn(usize) + Sync + 'a)) {
        // SAFETY: only the lifetime differs, and all helpers are done with it before this returns.
        let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        let order = WorkerTask { work, count: count as u32, patience };
        // SAFETY: nobody else runs this crew, and the helpers of the last order are done with it.
        unsafe { self.desk.order.put(Some(order)) };
        self.call(count - 1);
        work(0);
        self.desk.done.wait(order.count, patience).expect("every helper comes to the end");
    }

    /// Opens the gates of the first helpers.
    fn call(&self, helper_count: usize) {
        for (gate, _) in &self.helpers[..helper_count] {
            gate.open(gate.value().wrapping_add(1) & (u32::MAX >> 1));
        }
    }
}

impl<W: GateWord, Helper> Drop for WorkerThreads<W, Helper> {
    fn drop(&mut self) {
        // SAFETY: no order is out.
        unsafe { self.desk.order.put(None) };
        self.call(self.helpers.len());
        self.helpers.drain(..).for_each(|(_, helper)| (self.join)(helper));
    }
}

/// What a helper's thread has to do.
pub(super) struct WorkerContext<W: GateWord> {
    desk: Arc<Desk<W>>,
    gate: Arc<Gate<W>>,
    index: usize,
}

impl<W: GateWord> WorkerContext<W> {
    /// Which helper it is, from 1 on.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Carries out orders until the last.
    pub(super) fn serve(self) {
        let (mut generation, mut patience) = (0, NEW);
        loop {
            generation = self.gate.wait_while(generation, patience);
            // SAFETY: the gate was opened, and this helper has not come to the end.
            let Some(order) = (unsafe { self.desk.order.get() }) else { return };
            // SAFETY: the caller keeps it until this helper comes to the end.
            unsafe { (*order.work)(self.index) };
            patience = order.patience;
            self.desk.done.arrive(order.count);
        }
    }
}
