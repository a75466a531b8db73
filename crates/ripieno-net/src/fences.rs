//! Memory fences that one thread executes for all threads of the process, so that the other threads need none.

use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::LazyLock;

/// Return whether [`fence_threads`] can be called: the kernel supports membarrier(2) and allows it.
pub fn can_fence_threads() -> bool {
    static REGISTERED: LazyLock<bool> = LazyLock::new(|| {
        let commands = [MembarrierCommand::RegisterPrivateExpedited, MembarrierCommand::PrivateExpedited];
        commands.into_iter().all(|command| membarrier(command).is_ok())
    });
    *REGISTERED
}

/// Execute a memory fence on every core that runs a thread of this process.
///
/// # Panics
/// Panics unless [`can_fence_threads`] returns true.
pub fn fence_threads() {
    membarrier(MembarrierCommand::PrivateExpedited).expect("the registration is permanent");
}
