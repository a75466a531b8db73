//! Fuzzing with damaged frames of a peer: the driver either drops the peer or continues.
//!
//! Checksums would reject nearly all damage before it reaches the code behind them. Therefore the test computes valid
//! checksums. Its input lists for each frame: the value, whether it is a message or a chunk, the length of the payload,
//! and the payload.

use super::frame::{self, FrameKind};
use super::*;
use ripieno_fuzz::{Fuzz, FuzzAllocator};
use ripieno_plan::swarm::{
    BlockManifest, BlockSet, Discipline, MemberFailure, NeighborOffer, SilentSource, SwarmMessage, SwarmTiming,
};
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: FuzzAllocator = FuzzAllocator;

const BLOCK_BYTES: usize = 100;
const VALUE_BYTES: usize = 450;
/// Maximum size of a value, even if a peer announces a larger one.
const MEMORY_BYTES_MAX: usize = 1 << 20;
/// Number of turns after which the driver must have finished the work caused by the peer.
const TURN_COUNT: u32 = 8;

#[derive(Debug)]
struct FuzzMemory(Vec<u8>);

impl std::ops::Deref for FuzzMemory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::DerefMut for FuzzMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

fn allocate(bytes: usize) -> io::Result<FuzzMemory> {
    if bytes > MEMORY_BYTES_MAX { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(FuzzMemory(vec![0; bytes])) }
}

impl Store for FuzzMemory {
    fn location(&self) -> MemoryLocation {
        MemoryLocation { process: 1, descriptor: 1, inode: 1 }
    }

    fn at(location: MemoryLocation, length_bytes: usize) -> io::Result<FuzzMemory> {
        if location.inode == 1 { allocate(length_bytes) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn remap(&self, location: MemoryLocation, _length_bytes: usize) -> io::Result<()> {
        FuzzMemory::at(location, 0).map(drop)
    }
}

/// A link that returns its stored bytes and accepts all sends.
struct FuzzLink(Vec<u8>, usize);

impl Link for FuzzLink {
    fn send(&mut self, parts: &[&[u8]]) -> Result<usize, LinkError> {
        Ok(parts.iter().map(|part| part.len()).sum())
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let count = into.len().min(self.0.len() - self.1);
        into[..count].copy_from_slice(&self.0[self.1..self.1 + count]);
        self.1 += count;
        Ok(count)
    }

    fn peek(&mut self, _least: usize) -> Result<&[u8], LinkError> {
        Ok(&self.0[self.1..])
    }

    fn consume(&mut self, count: usize) {
        self.1 += count;
    }

    fn expect(&mut self, _bytes: usize) {}

    fn is_memory(&self) -> bool {
        true
    }
}

/// [`PeerLinks`] with one connected peer. Links to other peers never open.
struct SinglePeer(usize, FuzzLink, bool);

impl PeerLinks for SinglePeer {
    fn link(&mut self, peer: usize) -> Result<Option<&mut dyn Link>, LinkError> {
        Ok((peer == self.0).then_some(&mut self.1))
    }

    fn new_peers(&mut self) -> Vec<usize> {
        vec![self.0]
    }

    fn reached_peers(&mut self) -> Vec<usize> {
        vec![self.0]
    }

    fn close(&mut self, peer: usize, _cause: &str) {
        self.2 |= peer == self.0;
    }
}

fn manifest(discipline: Discipline) -> BlockManifest {
    BlockManifest::new(VALUE_BYTES, Some(BLOCK_BYTES), discipline, 3)
}

fn neighbors(ranks: [usize; 2]) -> Vec<NeighborOffer> {
    ranks.map(|with| NeighborOffer { neighbor: with, replaces: Some(1) }).into()
}

fn digests() -> Vec<Digest> {
    (0..VALUE_BYTES.div_ceil(BLOCK_BYTES))
        .map(|block| {
            frame::digest(&value()[block * BLOCK_BYTES..][..BLOCK_BYTES.min(VALUE_BYTES - block * BLOCK_BYTES)])
        })
        .collect()
}

fn value() -> Vec<u8> {
    (0..VALUE_BYTES).map(|at| at as u8).collect()
}

fn entry(broadcast: u8, is_chunk: bool, bytes: &[u8]) -> Vec<u8> {
    [&[broadcast, u8::from(is_chunk)], &(bytes.len() as u16).to_le_bytes()[..], bytes].concat()
}

fn encode(broadcast: u8, message: &FrameKind) -> Vec<u8> {
    entry(broadcast, false, &postcard::to_stdvec(message).unwrap())
}

fn chunk(broadcast: u8, block: u64, from: u64, bytes: &[u8]) -> Vec<u8> {
    entry(broadcast, true, &[&block.to_le_bytes()[..], &from.to_le_bytes(), bytes].concat())
}

/// Return the frames of an input.
fn frames(mut input: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    while let Some(([broadcast, is_chunk, low, high], rest)) = input.split_first_chunk() {
        let (bytes, rest) = rest.split_at(rest.len().min(u16::from_le_bytes([*low, *high]).into()));
        input = rest;
        match bytes.split_first_chunk::<16>() {
            Some((location, bytes)) if *is_chunk == 1 => {
                let [block, from] =
                    [0, 8].map(|at| u64::from_le_bytes(location[at..at + 8].try_into().unwrap()) as usize);
                frames.extend(frame::chunk((*broadcast).into(), block, from, bytes.len()));
                frames.extend(bytes);
            }
            _ => frames.extend(frame::framed((*broadcast).into(), bytes)),
        }
    }
    frames
}

/// Return inputs with the messages of the root to a receiver, and of members to each other and to the root.
fn inputs() -> Vec<Vec<u8>> {
    let in_frame = |message: SwarmMessage| FrameKind::Swarm { message, digests: digests() };
    let mut inputs = Vec::new();
    for discipline in [Discipline::Chain, Discipline::SplitStream, Discipline::CSB, Discipline::BITTORRENT] {
        let admitted =
            SwarmMessage::Admitted { manifest: manifest(discipline), sources: vec![0], neighbors: neighbors([0, 2]) };
        let blocks = value().chunks(BLOCK_BYTES).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let chunks = blocks.iter().enumerate().flat_map(|(block, bytes)| chunk(0, block as u64, 0, bytes));
        let fetches = (0..5).flat_map(|block| encode(0, &in_frame(SwarmMessage::Fetch { block, source: 0 })));
        let offer =
            in_frame(SwarmMessage::Offer { have: Box::new(BlockSet::all(5)), is_answer: false, replaces: Some(2) });
        let parts = [encode(0, &in_frame(admitted)), encode(0, &offer), fetches.collect(), chunks.collect()];
        inputs.push([parts.concat(), encode(0, &in_frame(SwarmMessage::Released))].concat());
    }
    let have = || Box::new(BlockSet::all(5));
    let messages = [
        SwarmMessage::Join,
        SwarmMessage::Rejoin { manifest: Some(manifest(Discipline::CSB)), have: have() },
        SwarmMessage::Ask { part: 1, failed_source: 2 },
        SwarmMessage::Stalled { sources: vec![SilentSource { rank: 2, silence: Duration::from_millis(1250) }] },
        SwarmMessage::Found { have: have() },
        SwarmMessage::Fetched { block: 3, source: 2, bytes_per_s: 1 << 30 },
        SwarmMessage::Corrupt { block: 2, source: 0 },
        SwarmMessage::Done,
        SwarmMessage::Alive,
        SwarmMessage::Source { stripe: 0, source: 2 },
        SwarmMessage::AddNeighbors { neighbors: neighbors([1, 2]) },
        SwarmMessage::Wait,
        SwarmMessage::Probe,
        SwarmMessage::MemberLost { rank: 2 },
        SwarmMessage::TakeOver,
        SwarmMessage::Failed(MemberFailure::CutOff { root: 0 }),
        SwarmMessage::Request { block: 1, from_bytes: 50 },
        SwarmMessage::Cancel { block: 1 },
        SwarmMessage::Refused { block: 1 },
        SwarmMessage::Have { block: 4 },
    ];
    inputs.push(messages.iter().flat_map(|it| encode(0, &in_frame(it.clone()))).collect());
    inputs.extend(
        messages
            .into_iter()
            .map(|message| [encode(0, &in_frame(SwarmMessage::Join)), encode(0, &in_frame(message))].concat()),
    );
    let location = MemoryLocation { process: 1, descriptor: 1, inode: 1 };
    let messages = [
        FrameKind::Digests { first_block: 1, digests: digests()[1..].to_vec() },
        FrameKind::Interested,
        FrameKind::Withdraw,
        FrameKind::Released,
        FrameKind::Share,
        FrameKind::InTransfer,
        FrameKind::Shared { location, length_bytes: VALUE_BYTES },
        FrameKind::Unavailable,
        FrameKind::Application { bytes: b"message".to_vec() },
    ];
    inputs.extend(messages.iter().map(|it| [encode(0, it), encode(1, it)].concat()));
    inputs
}

/// Let the driver read the input of a peer. Return the outcome.
fn run_driver(mut driver: Driver<FuzzMemory>, peer: usize, input: &[u8]) -> (bool, Vec<u8>) {
    let mut wires = SinglePeer(peer, FuzzLink(frames(input), 0), false);
    let mut kinds = Vec::new();
    for turn in 1..=TURN_COUNT {
        driver.turn(Duration::from_secs(turn.into()), &mut wires);
        kinds.extend(driver.take_events().iter().map(|(_, pending_events)| match pending_events {
            BroadcastEvent::Ended(Ok(_)) => 0,
            BroadcastEvent::Ended(Err(TransferError::Failure(_))) => 1,
            BroadcastEvent::Ended(Err(_)) => 2,
            BroadcastEvent::Message { .. } => 3,
            BroadcastEvent::Lost { .. } => 4,
            BroadcastEvent::Reopened => 5,
            BroadcastEvent::Settled { .. } => 6,
        }));
    }
    (wires.2, kinds)
}

fn driver(rank: usize) -> Driver<FuzzMemory> {
    Driver::new(rank, 3, SwarmTiming::default(), Box::new(allocate))
}

fn fuzz(name: &'static str) -> Fuzz {
    Fuzz::new(name, env!("CARGO_MANIFEST_DIR"), inputs()).allowing(|bytes| (18 << 20) + 2048 * bytes).one_of(4)
}

#[test]
fn a_receiver_survives_damaged_messages_of_the_root() {
    fuzz("swarm-receiver").run(|input| {
        let mut receiver = driver(1);
        let number = receiver.expect(Duration::ZERO, 0, None);
        receiver.request(Duration::ZERO, number);
        receiver.expect(Duration::ZERO, 2, Some(0));
        receiver.request(Duration::ZERO, number + 1);
        run_driver(receiver, 0, input)
    });
}

#[test]
fn a_root_survives_damaged_messages_of_a_member() {
    for (name, discipline, order) in [
        ("swarm-root-chain", Discipline::Chain, vec![2]),
        ("swarm-root-split", Discipline::SplitStream, vec![1, 2]),
        ("swarm-root-csb", Discipline::CSB, vec![2, 1]),
        ("swarm-root-bittorrent", Discipline::BITTORRENT, vec![1, 2]),
    ] {
        fuzz(name).run(|input| {
            let mut root = driver(0);
            let offered = Arc::new(FuzzMemory(value()));
            root.offer(Duration::ZERO, offered, manifest(discipline), digests(), order.clone());
            run_driver(root, 1, input)
        });
    }
}
