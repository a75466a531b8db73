//! Broadcasts over real links: a driver for the nodes of [`ripieno_plan::swarm`].
//!
//! A [`Driver`] is one rank's part in all broadcasts of a group. It carries the messages and blocks of its nodes over
//! [`PeerLinks`] and stores the bytes of each value. It verifies every received block against the root's digest, and
//! reports losses and the time to its nodes. It never blocks; the caller waits between turns.
//!
//! Messages and blocks share one link to each peer. Blocks travel in chunks, round-robin over values and streams. A
//! message precedes the next chunk.
//!
//! On each host one rank fetches the value as soon as any of its ranks needs it. The other ranks map its memory.

mod blocks;
mod broadcast;
mod driver;
mod frame;
#[cfg(test)]
mod fuzz;
mod inbox;
mod meter;
mod outbox;
#[cfg(test)]
mod tests;

pub use blocks::BlockDigests;
pub use driver::{BroadcastEvent, Driver, TransferError, ValueAllocator};
pub use frame::Digest;
pub use meter::{FetchRecord, Meter, MeteredBlock};

use crate::link::{Link, LinkError};
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::DerefMut;

/// Maximum number of unsent bytes in a socket. A message waits behind them.
pub const UNSENT_BYTES_MAX: usize = 32 << 10;

/// Links to peers, opened on first use.
pub trait PeerLinks {
    /// Return the link to a peer: `None` while it opens, or an error if it is closed or cannot be opened.
    fn link(&mut self, peer: usize) -> Result<Option<&mut dyn Link>, LinkError>;

    /// Return the peers that have opened a link to this rank since the last call.
    fn new_peers(&mut self) -> Vec<usize>;

    /// Return the peers that have answered new connections since the last call, although their links deliver nothing.
    fn reached_peers(&mut self) -> Vec<usize>;

    /// Close the link to a peer permanently.
    fn close(&mut self, peer: usize, cause: &str);
}

/// Location at which other processes of the host find shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLocation {
    /// Process id of the owner.
    pub process: u32,
    /// The owner's descriptor of the memory.
    pub descriptor: i32,
    /// Inode number of the file, which is unique on the machine.
    pub inode: u64,
}

/// Memory of a value.
pub trait Store: DerefMut<Target = [u8]> + Sized {
    /// Return the location for other processes of the host.
    fn location(&self) -> MemoryLocation;

    /// Map `length_bytes` at the location of another process, read-only.
    fn at(location: MemoryLocation, length_bytes: usize) -> io::Result<Self>;

    /// Remap to the current location of these bytes in the other process. The local addresses stay the same.
    fn remap(&self, location: MemoryLocation, length_bytes: usize) -> io::Result<()>;
}
