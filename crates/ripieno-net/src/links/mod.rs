//! Links carry bytes from one rank to another.
//!
//! Threads of a process and processes of a host use a [`RingLink`]: a byte ring in each direction, in memory that both
//! map. Different hosts use a [`TcpLink`]. An idle rank sleeps at its [`Doorbell`]; its peers hold the [`Waker`] and
//! wake it.

mod atomics;
mod descriptors;
mod doorbell;
mod host_memory;
mod indices;
mod line_times;
mod memory;
#[cfg(test)]
mod model;
mod region;
mod ring;
pub mod shared_memory;
mod store_choice;
mod streaming;
mod tcp;
pub mod thread;
mod unanswered;
mod value_memory;
mod zero_copy;

pub(crate) use atomics::AtomicWord;
pub use descriptors::{receive_fds, send_fds};
pub use doorbell::{Doorbell, Waker, WatchedDescriptor};
pub use host_memory::{HostMemory, MemoryWriter};
pub use region::Region;
pub use ring::{DEFAULT_CAPACITY_BYTES, LARGE_CAPACITY_BYTES, RingLink};
pub use tcp::TcpLink;
pub use value_memory::{ValueMemory, ValueMemoryLimit, ValueMemoryStats};
