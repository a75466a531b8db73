//! Frames: a 32-byte header, followed by a message in postcard or the bytes of a chunk.
//!
//! The checksum in the header covers the header and messages. Chunks are verified by the digest of their block.

use super::MemoryLocation;
use ripieno_plan::swarm::SwarmMessage;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

pub(super) const HEADER_BYTES: usize = 32;
/// Maximum message size in bytes. A manifest of 4 TiB in blocks of 4 MiB has digests of 8 MiB.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 << 20;

const MESSAGE: u32 = 0x5249_5731;
const CHUNK: u32 = 0x5249_4331;

/// Digest of a block.
pub type Digest = [u8; 8];

/// Messages between ranks about one value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum FrameKind {
    /// A message of the swarm nodes. A manifest includes the digests of its first blocks.
    Swarm { message: SwarmMessage, digests: Vec<Digest> },
    /// From the root: digests of further blocks.
    Digests { first_block: usize, digests: Vec<Digest> },
    /// To the root: the sender may request this value.
    Interested,
    /// To the root: the sender will not request this value any more.
    Withdraw,
    /// The sender has released this value.
    Released,
    /// To the leader of this host: the sender requests to share the value.
    Share,
    /// From the leader: the value is in transfer.
    InTransfer,
    /// From the leader: the value is complete at this location.
    Shared { location: MemoryLocation, length_bytes: usize },
    /// From the leader: it will not receive the value.
    Unavailable,
    /// A message between the applications of two ranks.
    Application { bytes: Vec<u8> },
}

/// Decoded header, which determines the data that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameHeader {
    Message { broadcast: u32, length_bytes: usize, check: u32 },
    Chunk { broadcast: u32, block: usize, from_bytes: usize, length_bytes: usize },
}

pub(super) fn digest(bytes: &[u8]) -> Digest {
    xxhash_rust::xxh3::xxh3_64(bytes).to_le_bytes()
}

/// Return the frame of a message.
pub(super) fn encode(broadcast: u32, message: &FrameKind) -> Vec<u8> {
    let body = postcard::to_stdvec(message).expect("messages are plain data, which postcard always encodes");
    assert!(body.len() <= MESSAGE_BYTES_MAX, "the number of blocks of a manifest is limited");
    framed(broadcast, &body)
}

/// Return the frame of an encoded message.
pub(super) fn framed(broadcast: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
    frame.extend(fields(MESSAGE, broadcast, body.len(), 0, 0));
    frame.extend(body);
    let check = check(&frame[..28], body);
    frame[28..HEADER_BYTES].copy_from_slice(&check.to_le_bytes());
    frame
}

/// Return the header of a chunk.
pub(super) fn chunk(broadcast: u32, block: usize, from_bytes: usize, length_bytes: usize) -> [u8; HEADER_BYTES] {
    let mut header = fields(CHUNK, broadcast, length_bytes, block, from_bytes);
    let check = check(&header[..28], &[]);
    header[28..].copy_from_slice(&check.to_le_bytes());
    header
}

fn fields(kind: u32, broadcast: u32, length_bytes: usize, block: usize, from_bytes: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0..4].copy_from_slice(&kind.to_le_bytes());
    header[4..8].copy_from_slice(&broadcast.to_le_bytes());
    header[8..12].copy_from_slice(&(length_bytes as u32).to_le_bytes());
    header[12..20].copy_from_slice(&(block as u64).to_le_bytes());
    header[20..28].copy_from_slice(&(from_bytes as u64).to_le_bytes());
    header
}

fn check(fields: &[u8], body: &[u8]) -> u32 {
    let mut hash = Xxh3::new();
    hash.update(fields);
    hash.update(body);
    hash.digest() as u32
}

impl FrameHeader {
    /// Decode a header. Return `None` if the bytes are invalid.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<FrameHeader> {
        let short = |at: usize| bytes[at..].first_chunk().copied().map(u32::from_le_bytes);
        let long = |at: usize| bytes[at..].first_chunk().copied().map(u64::from_le_bytes);
        let (broadcast, length_bytes, found) = (short(4)?, short(8)? as usize, short(28)?);
        match short(0)? {
            MESSAGE if (1..=MESSAGE_BYTES_MAX).contains(&length_bytes) => {
                Some(FrameHeader::Message { broadcast, length_bytes, check: found })
            }
            CHUNK if length_bytes > 0 && check(&bytes[..28], &[]) == found => {
                let from_bytes: usize = long(20)?.try_into().ok()?;
                // The end of a block must be representable.
                from_bytes.checked_add(length_bytes)?;
                Some(FrameHeader::Chunk { broadcast, block: long(12)?.try_into().ok()?, from_bytes, length_bytes })
            }
            _ => None,
        }
    }
}

/// Decode the message of a frame. Return `None` if the checksum does not match.
pub(super) fn decode_message(broadcast: u32, found: u32, body: &[u8]) -> Option<FrameKind> {
    let is_correct = check(&fields(MESSAGE, broadcast, body.len(), 0, 0)[..28], body) == found;
    is_correct.then(|| postcard::from_bytes(body).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ripieno_plan::swarm::BlockSet;

    #[test]
    fn messages_round_trip_and_a_flipped_bit_is_detected() {
        let message = SwarmMessage::Offer { have: Box::new(BlockSet::all(100)), is_answer: true, replaces: None };
        let sent = FrameKind::Swarm { message, digests: vec![[7; 8]; 3] };
        let frame = encode(5, &sent);
        let (header, body) = frame.split_first_chunk().unwrap();
        let Some(FrameHeader::Message { broadcast: 5, length_bytes, check }) = FrameHeader::decode(header) else {
            panic!("{header:?}")
        };
        assert_eq!((length_bytes, decode_message(5, check, body)), (body.len(), Some(sent)));
        for bit in 0..8 * body.len() {
            let mut wrong = body.to_vec();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_message(5, check, &wrong), None);
        }
    }

    #[test]
    fn a_chunk_with_a_wrong_header_is_none() {
        let header = chunk(3, 1 << 40, 17, 4096);
        let right = FrameHeader::Chunk { broadcast: 3, block: 1 << 40, from_bytes: 17, length_bytes: 4096 };
        assert_eq!(FrameHeader::decode(&header), Some(right));
        for bit in 0..8 * HEADER_BYTES {
            let mut wrong = header;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(FrameHeader::decode(&wrong), Some(right), "{bit}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_decode_without_a_panic(header: [u8; HEADER_BYTES], body: Vec<u8>) {
            let _ = FrameHeader::decode(&header);
            let _ = postcard::from_bytes::<FrameKind>(&body);
        }
    }
}
