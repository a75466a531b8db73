//! Broadcasts over real links: a driver for the nodes of [`ripieno_plan::swarm`].
//!
//! A [`Driver`] is one rank's part in all broadcasts of a group. It carries the messages and blocks of its nodes over
//! [`Wires`], keeps the bytes of each value, compares every block with the root's digest where it comes, and hands its
//! nodes losses and the time. It blocks nowhere: whoever turns it waits in between.
//!
//! Words and blocks share one link to each peer. Blocks travel in chunks, those of several values and streams in turn,
//! and a word goes ahead of the next chunk.
//!
//! Of ranks that share a host one fetches, the first that any of them needs it: the others take its memory.

mod blocks;
mod cast;
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
pub use driver::{BroadcastEnding, Driver, Maker, News};
pub use frame::Digest;
pub use meter::{FetchRecord, Meter, MeteredBlock};

use crate::link::{Link, LinkError};
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::DerefMut;

/// So much waits in a socket at most before it is on its way: a word waits behind it.
pub const UNSENT_BYTES_MAX: usize = 32 << 10;

/// Links to peers, opened when they are first needed.
pub trait Wires {
    /// The link to a peer: `None` while it is being opened, an error once it is gone or cannot be had.
    fn link(&mut self, peer: usize) -> Result<Option<&mut dyn Link>, LinkError>;

    /// Peers that have opened a link to this rank since the last call.
    fn newcomers(&mut self) -> Vec<usize>;

    /// Closes the link to a peer, which stays closed.
    fn close(&mut self, peer: usize, cause: &str);
}

/// Where processes of a host find memory of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPlace {
    /// The process.
    pub process: u32,
    /// Its descriptor of the memory.
    pub descriptor: i32,
    /// The number of the file, which no other memory of the machine has.
    pub inode: u64,
}

/// Memory of a value.
pub trait Store: DerefMut<Target = [u8]> + Sized {
    /// Where other processes of the host find it.
    fn place(&self) -> MemoryPlace;

    /// The `length_bytes` that another process has there, to read only.
    fn at(place: MemoryPlace, length_bytes: usize) -> io::Result<Self>;

    /// Goes to where the other process has these bytes now. They stay at their addresses here.
    fn follow(&self, place: MemoryPlace, length_bytes: usize) -> io::Result<()>;
}
