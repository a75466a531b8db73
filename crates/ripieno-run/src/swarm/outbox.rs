//! Send queue for one peer: messages first, then chunks of the active block streams in round-robin order.

use super::Store;
use super::broadcast::BroadcastRun;
use super::frame::{self, HEADER_BYTES};
use crate::link::{Link, LinkError};
use ripieno_plan::swarm::step_bytes;
use std::collections::{BTreeMap, VecDeque};

/// Maximum chunk size in bytes, which bounds the delay of a message.
const CHUNK_BYTES: usize = 32 << 10;
/// Maximum size of unsent messages in bytes. A peer that exceeds it is treated as lost.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A chunk that has been sent.
#[derive(Debug)]
pub(super) struct SentChunk {
    pub(super) broadcast: u32,
    pub(super) block: usize,
    pub(super) length_bytes: usize,
    /// Whether the chunk completes its block.
    pub(super) is_last: bool,
}

/// A block in transfer to a peer.
#[derive(Debug)]
struct BlockStream {
    broadcast: u32,
    block: usize,
    /// Offset of the first byte that has not been sent.
    next_bytes: usize,
}

/// A frame that may be partially sent.
#[derive(Debug)]
enum PendingFrame {
    Owned(Vec<u8>),
    Chunk { header: [u8; HEADER_BYTES], broadcast: u32, block: usize, from_bytes: usize, length_bytes: usize },
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    messages: VecDeque<Vec<u8>>,
    message_bytes: usize,
    streams: VecDeque<BlockStream>,
    current: Option<(PendingFrame, usize)>,
}

impl Outbox {
    pub(super) fn push_message(&mut self, frame: Vec<u8>) {
        self.message_bytes += frame.len();
        self.messages.push_back(frame);
    }

    /// Return whether the peer accepts too few messages.
    pub(super) fn is_overfull(&self) -> bool {
        self.message_bytes > MESSAGE_BYTES_MAX
    }

    pub(super) fn begin(&mut self, broadcast: u32, block: usize, from_bytes: usize) {
        self.streams.push_back(BlockStream { broadcast, block, next_bytes: from_bytes });
    }

    pub(super) fn stop(&mut self, broadcast: u32, block: usize) {
        self.streams.retain(|stream| (stream.broadcast, stream.block) != (broadcast, block));
    }

    /// Remove a value. A partially sent chunk is copied first, so that its frame can be completed.
    pub(super) fn forget<M: Store>(&mut self, number: u32, broadcast: &BroadcastRun<M>) {
        self.streams.retain(|stream| stream.broadcast != number);
        if let Some((frame, _)) = &mut self.current
            && let PendingFrame::Chunk { header, broadcast: of, block, from_bytes, length_bytes } = frame
            && *of == number
        {
            let bytes = &broadcast.block(*block)[*from_bytes..*from_bytes + *length_bytes];
            *frame = PendingFrame::Owned([&header[..], bytes].concat());
        }
    }

    /// Return whether any data is ready to send.
    pub(super) fn is_ready<M: Store>(&self, broadcasts: &BTreeMap<u32, BroadcastRun<M>>) -> bool {
        let is_sendable = |stream: &BlockStream| {
            broadcasts.get(&stream.broadcast).is_some_and(|broadcast| stream.length(broadcast) > 0)
        };
        self.current.is_some() || !self.messages.is_empty() || self.streams.iter().any(is_sendable)
    }

    /// Send until the link is full or the queue is empty. Return the number of sent bytes, and add the completed chunks
    /// to `sent`.
    pub(super) fn send<M: Store>(
        &mut self,
        link: &mut dyn Link,
        broadcasts: &BTreeMap<u32, BroadcastRun<M>>,
        sent: &mut Vec<SentChunk>,
    ) -> Result<usize, LinkError> {
        let mut moved_bytes = 0;
        while let Some((frame, done_bytes)) = self.take_frame(broadcasts) {
            let (first, second): (&[u8], &[u8]) = match &frame {
                PendingFrame::Owned(bytes) => (bytes, &[]),
                PendingFrame::Chunk { header, broadcast, block, from_bytes, length_bytes } => {
                    (header, &broadcasts[broadcast].block(*block)[*from_bytes..*from_bytes + *length_bytes])
                }
            };
            let length_bytes = first.len() + second.len();
            let rest = [&first[done_bytes.min(first.len())..], &second[done_bytes.saturating_sub(first.len())..]];
            let count = link.send(&rest)?;
            moved_bytes += count;
            if done_bytes + count < length_bytes {
                self.current = Some((frame, done_bytes + count));
                break;
            }
            self.end_chunk(&frame, broadcasts, sent);
        }
        if moved_bytes > 0 {
            link.flush()?;
        }
        Ok(moved_bytes)
    }

    fn take_frame<M: Store>(&mut self, broadcasts: &BTreeMap<u32, BroadcastRun<M>>) -> Option<(PendingFrame, usize)> {
        if let Some(current) = self.current.take() {
            return Some(current);
        }
        if let Some(message) = self.messages.pop_front() {
            self.message_bytes -= message.len();
            return Some((PendingFrame::Owned(message), 0));
        }
        let is_sendable = |stream: &BlockStream| {
            broadcasts.get(&stream.broadcast).is_some_and(|broadcast| stream.length(broadcast) > 0)
        };
        let mut stream = self.streams.iter().position(is_sendable).and_then(|index| self.streams.remove(index))?;
        let (broadcast, block, from_bytes) = (stream.broadcast, stream.block, stream.next_bytes);
        let length_bytes = stream.length(&broadcasts[&broadcast]);
        stream.next_bytes += length_bytes;
        self.streams.push_back(stream);
        let header = frame::chunk(broadcast, block, from_bytes, length_bytes);
        Some((PendingFrame::Chunk { header, broadcast, block, from_bytes, length_bytes }, 0))
    }

    fn end_chunk<M: Store>(
        &mut self,
        frame: &PendingFrame,
        broadcasts: &BTreeMap<u32, BroadcastRun<M>>,
        sent: &mut Vec<SentChunk>,
    ) {
        let PendingFrame::Chunk { broadcast, block, from_bytes, length_bytes, .. } = *frame else { return };
        let mut is_last = false;
        if from_bytes + length_bytes == broadcasts[&broadcast].block_length(block) {
            let count = self.streams.len();
            self.stop(broadcast, block);
            // A stream that was cancelled meanwhile has no last chunk.
            is_last = self.streams.len() < count;
        }
        sent.push(SentChunk { broadcast, block, length_bytes, is_last });
    }
}

impl BlockStream {
    /// Return the number of bytes that can be sent now.
    fn length<M: Store>(&self, broadcast: &BroadcastRun<M>) -> usize {
        let (available_bytes, block_bytes) =
            (broadcast.available_bytes(self.block), broadcast.block_length(self.block));
        let length_bytes = available_bytes.saturating_sub(self.next_bytes).min(CHUNK_BYTES);
        if length_bytes < step_bytes(block_bytes) && available_bytes < block_bytes { 0 } else { length_bytes }
    }
}
