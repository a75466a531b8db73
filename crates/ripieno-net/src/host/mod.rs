//! The host that this process runs on: its identity, name, addresses and cores.

mod addresses;
mod cores;

pub use addresses::{Addresses, Rejected};
pub use cores::{CoreMask, core_count, has_core_each, has_core_quota, usable_cores};

use serde::{Deserialize, Serialize};

/// The identity of a host. Two processes can share memory only if their identities are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostIdentity {
    /// The kernel's boot ID, equal in all containers of a machine.
    pub boot: String,
    /// The network namespace, which is the scope of abstract Unix socket names.
    pub network: String,
    /// The user ID.
    pub user: u32,
}

impl HostIdentity {
    /// Return the identity of this process's host.
    pub fn here() -> HostIdentity {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let network = std::fs::read_link("/proc/self/ns/net").map(|path| path.display().to_string());
        HostIdentity {
            boot: if boot.is_empty() { host_name() } else { boot.trim().to_string() },
            network: network.unwrap_or_default(),
            user: rustix::process::geteuid().as_raw(),
        }
    }

    /// Return whether both identities are on one machine, so that their processes compete for cores.
    pub fn shares_cores(&self, other: &HostIdentity) -> bool {
        self.boot == other.boot
    }
}

/// Return the name of this host.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
