//! Receive state for one peer: the current position in its stream of frames.

use super::frame::{FrameHeader, FrameKind, HEADER_BYTES, decode_message};
use crate::link::{Link, LinkError};

/// A chunk in transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkProgress {
    pub(super) broadcast: u32,
    pub(super) block: usize,
    /// Destination of its next byte, as an offset in the block.
    pub(super) at_bytes: usize,
    pub(super) left_bytes: usize,
}

#[derive(Debug, Default)]
pub(super) enum FrameInbox {
    #[default]
    Header,
    Message {
        broadcast: u32,
        check: u32,
        body: Vec<u8>,
        filled: usize,
    },
    Chunk(ChunkProgress),
}

/// Result of a read.
pub(super) enum ReadOutcome {
    /// No data is available now.
    Nothing,
    /// Some bytes of an incomplete frame.
    Partial,
    Message(u32, FrameKind),
}

impl FrameInbox {
    /// Read the next header or message bytes. Does not read chunk data, because the caller owns its destination.
    pub(super) fn read(&mut self, link: &mut dyn Link) -> Result<ReadOutcome, LinkError> {
        match self {
            FrameInbox::Header => {
                let Some(bytes) = link.peek(HEADER_BYTES)?.first_chunk().copied() else {
                    return Ok(ReadOutcome::Nothing);
                };
                link.consume(HEADER_BYTES);
                *self = match FrameHeader::decode(&bytes) {
                    Some(FrameHeader::Message { broadcast, length_bytes, check }) => {
                        FrameInbox::Message { broadcast, check, body: vec![0; length_bytes], filled: 0 }
                    }
                    Some(FrameHeader::Chunk { broadcast, block, from_bytes, length_bytes }) => {
                        FrameInbox::Chunk(ChunkProgress {
                            broadcast,
                            block,
                            at_bytes: from_bytes,
                            left_bytes: length_bytes,
                        })
                    }
                    None => return Err(corrupted()),
                };
                Ok(ReadOutcome::Partial)
            }
            FrameInbox::Message { broadcast, check, body, filled } => {
                let count = link.receive(&mut body[*filled..])?;
                *filled += count;
                if *filled < body.len() {
                    return Ok(if count == 0 { ReadOutcome::Nothing } else { ReadOutcome::Partial });
                }
                let message = decode_message(*broadcast, *check, body).ok_or_else(corrupted)?;
                let broadcast = *broadcast;
                *self = FrameInbox::Header;
                Ok(ReadOutcome::Message(broadcast, message))
            }
            FrameInbox::Chunk(_) => Ok(ReadOutcome::Partial),
        }
    }

    /// Record that `count` bytes of a chunk have arrived.
    pub(super) fn advance(&mut self, count: usize) {
        if let FrameInbox::Chunk(progress) = self {
            progress.at_bytes += count;
            progress.left_bytes -= count;
            if progress.left_bytes == 0 {
                *self = FrameInbox::Header;
            }
        }
    }
}

fn corrupted() -> LinkError {
    LinkError::Closed { cause: "the received bytes differ from the sent bytes".to_string() }
}
