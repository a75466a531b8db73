//! Resources shared by the runs of a rank.

use crate::choice::Overrides;
use crate::pool::BufferPool;
use crate::result_slot::Waiters;
use ripieno_run::{Executor, Fabric};
use std::sync::Weak;

/// The resources shared by all communicators of a rank, borrowed for one call.
pub(crate) struct Runtime<'a> {
    pub fabric: &'a mut dyn Fabric,
    pub executor: &'a mut Executor,
    /// Memory for plans that need scratch space in addition to the caller's buffers.
    pub scratch: &'a BufferPool,
    /// Algorithms for calls that name none.
    pub overrides: &'a Overrides,
    /// Notified when an asynchronous run ends.
    pub waiters: &'a Weak<dyn Waiters>,
}
