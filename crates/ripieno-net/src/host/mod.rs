//! The host this process runs on: its identity, its name, its addresses, its cores.

mod addresses;

pub use addresses::{Addresses, Rejected};

use serde::{Deserialize, Serialize};

/// What tells hosts apart, and what must be equal for two processes to share memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostIdentity {
    /// The kernel's boot id: the same in every container of a machine.
    pub boot: String,
    /// The network namespace, in which names of Unix sockets are known.
    pub network: String,
    /// The user.
    pub user: u32,
}

impl HostIdentity {
    /// This process's host.
    pub fn here() -> HostIdentity {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let network = std::fs::read_link("/proc/self/ns/net").map(|path| path.display().to_string());
        HostIdentity {
            boot: if boot.is_empty() { host_name() } else { boot.trim().to_string() },
            network: network.unwrap_or_default(),
            user: rustix::process::geteuid().as_raw(),
        }
    }

    /// Whether both run on one machine, so that they compete for its cores.
    pub fn shares_cores(&self, other: &HostIdentity) -> bool {
        self.boot == other.boot
    }
}

/// The name of this host.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The cores this process may use, affinity and container quota taken into account.
pub fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}
