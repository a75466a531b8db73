//! Link trait: a non-blocking byte stream in each direction between this rank and one peer.
//!
//! A link has no notion of collectives or frames. It accepts as many bytes as fit and returns the bytes that have
//! arrived. The executor does the rest. Every link passes the suite in [`crate::conformance`].

use crate::executor::SEGMENT_BYTES;

/// The reason why a link is closed permanently.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer's end is closed.
    #[error("link closed: {cause}")]
    Closed {
        /// The error of the operating system.
        cause: String,
    },
    /// This end lacks a requirement of the link. The peer is not at fault.
    #[error("{cause}")]
    MissingResource {
        /// The attempted operation, the error of the operating system, and the remedy.
        cause: String,
    },
}

impl LinkError {
    /// Return the error of the operating system, or the missing requirement.
    pub fn reason(&self) -> &str {
        match self {
            LinkError::Closed { cause } | LinkError::MissingResource { cause } => cause,
        }
    }
}

/// Measured costs of a link to a rank of the same host; `None` where nothing was measured yet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PairCosts {
    /// Seconds to move a cache line from the core of the peer to the core of this rank.
    pub line_s: Option<f64>,
    /// Seconds per byte of a long message through the memory of the link, with ordinary and with streaming stores. Both
    /// ranks copy at the same time, and the slower one counts.
    pub ring_s_per_byte: [Option<f64>; 2],
    /// Seconds per byte of a zero-copy send that the peer maps, and of one that the kernel copies.
    pub zero_copy_s_per_byte: [Option<f64>; 2],
}

/// How a send of a rank relates to its other work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFlow {
    /// The bytes become ready in parts, or this rank has no core of its own to wait for the peer.
    Gradual,
    /// All bytes are ready, and this rank has no other work on its links.
    OneWay,
    /// All bytes are ready, and this rank receives at the same time.
    Exchange,
    /// All bytes are ready, and the receiver reduces them.
    Reduction,
}

/// A byte stream to and from one peer.
pub trait Link: Send {
    /// Accept a prefix of the concatenation of `parts`. Return its length, which is 0 if the link is full.
    fn send(&mut self, parts: &[&[u8]]) -> Result<usize, LinkError>;

    /// Publish the sent bytes and the space freed by `receive` and `consume` to the peer. Wakes the peer if it is
    /// parked and waits for them. Called after each visit that moved bytes in either direction.
    fn flush(&mut self) -> Result<(), LinkError>;

    /// Move arrived bytes to the front of `into`. Return their number, which is 0 if none are available.
    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError>;

    /// Return the number of bytes that one call of [`Self::receive`] may move at most while other lanes wait.
    fn receive_bytes_max(&self) -> usize {
        SEGMENT_BYTES
    }

    /// Return arrived bytes without consuming them: at least `min_bytes` once that many have arrived, else fewer or
    /// none. The slice is contiguous and unaligned. `min_bytes` is at most 64. Zero-copy data begins a new slice.
    fn peek(&mut self, min_bytes: usize) -> Result<&[u8], LinkError>;

    /// Consume the first `count` bytes that the last `peek` returned.
    fn consume(&mut self, count: usize);

    /// Announce that at least `bytes` (≥ 1) more bytes will arrive without further action of this rank, and that fewer
    /// are useless. While this rank sleeps on the link, the peer need not wake it earlier. Applies to the next sleep.
    fn expect(&mut self, bytes: usize);

    /// Send and flush all `parts`, as [`Self::send`] and [`Self::flush`] do. Return `false` without sending if they do
    /// not fit, or if this takes a system call other than a wake-up.
    fn send_message(&mut self, _parts: &[&[u8]; 2]) -> bool {
        false
    }

    /// Return the next `length_bytes` sent by the peer without consuming them, once all have arrived. Polls at most
    /// `poll_count` times and makes no system call. Errors of the link are reported by the other methods.
    fn message(&mut self, _length_bytes: usize, _poll_count: u32) -> Option<&[u8]> {
        None
    }

    /// Consume the message that [`Self::message`] returned, and publish the freed space as [`Self::flush`] does.
    fn end_message(&mut self, _length_bytes: usize) {
        unreachable!("a link that returns messages implements end_message");
    }

    /// Return whether the peer can read `bytes` from the memory of this rank, and sooner than copies.
    fn can_send_zero_copy(&mut self, _bytes: &[u8], _flow: SendFlow) -> bool {
        false
    }

    /// Send `bytes`, whole elements, without a copy: the peer receives them next in the stream, but reads them from the
    /// memory of this rank. Return whether this is possible now. The bytes must not change until
    /// [`Self::unreleased_bytes`] no longer counts them or [`Self::revoke_zero_copy`] was called.
    fn send_zero_copy(&mut self, _bytes: &[u8]) -> Result<bool, LinkError> {
        Ok(false)
    }

    /// Return the number of zero-copy bytes that the peer still reads. The peer releases them in order. While there are
    /// any, it wakes this rank at each release.
    fn unreleased_bytes(&mut self) -> Result<usize, LinkError> {
        Ok(0)
    }

    /// Revoke all zero-copy sends, so that their memory may be changed or freed. The peer sees a closed link on its
    /// next read.
    fn revoke_zero_copy(&mut self) {}

    /// Return the number of accepted bytes that still wait on this host.
    fn unsent_bytes(&self) -> Result<usize, LinkError> {
        Ok(0)
    }

    /// Return whether polling costs a memory access rather than a system call, so that spinning is worthwhile.
    fn is_memory(&self) -> bool;
}
