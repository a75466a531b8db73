//! Fences that one thread makes for all threads of the process, so that the others need none.

use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::LazyLock;

/// Whether [`fence_threads`] can be called: the kernel knows membarrier(2) and allows it.
pub fn can_fence_threads() -> bool {
    static REGISTERED: LazyLock<bool> = LazyLock::new(|| {
        let commands = [MembarrierCommand::RegisterPrivateExpedited, MembarrierCommand::PrivateExpedited];
        commands.into_iter().all(|command| membarrier(command).is_ok())
    });
    *REGISTERED
}

/// Makes every core that runs a thread of this process fence.
///
/// # Panics
/// Unless [`can_fence_threads`].
pub fn fence_threads() {
    membarrier(MembarrierCommand::PrivateExpedited).expect("a process that could once can always");
}
