//! What the runs of a communicator need beside its own state.

use crate::choice::Overrides;
use crate::pool::BufferPool;
use crate::ticket::Waiters;
use ripieno_run::{Executor, Fabric};
use std::sync::Weak;

/// The shared means of all communicators of a rank, lent for one call.
pub(crate) struct Runtime<'a> {
    pub fabric: &'a mut dyn Fabric,
    pub executor: &'a mut Executor,
    /// Memory lent to plans that need some beside the caller's.
    pub scratch: &'a BufferPool,
    /// What runs when a call names no algorithm.
    pub overrides: &'a Overrides,
    /// Told when a run ends by itself.
    pub waiters: &'a Weak<dyn Waiters>,
}
