//! Tests of drivers over pipes of tiny capacity, on a virtual clock.

use super::{BlockDigests, BroadcastEvent, Digest, Driver, MemoryLocation, Meter, PeerLinks, Store, TransferError};
use crate::link::{Link, LinkError};
use ripieno_plan::swarm::{BlockManifest, Discipline, MemberFailure, SwarmTiming};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PIPE_BYTES: usize = 10_000;
const BLOCK_BYTES: usize = 40_000;
/// Duration of one turn of all ranks.
const TURN: Duration = Duration::from_millis(1);
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Memory that other ranks find by its location, once it has one.
struct TestMemory(Vec<u8>, Mutex<Option<MemoryLocation>>);

impl std::fmt::Debug for TestMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

thread_local! {
    static SHARED: std::cell::RefCell<Vec<Vec<u8>>> = const { std::cell::RefCell::new(Vec::new()) };
    static REMAPPED: std::cell::RefCell<Vec<MemoryLocation>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl std::ops::Deref for TestMemory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::DerefMut for TestMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl TestMemory {
    fn new(bytes: Vec<u8>) -> TestMemory {
        TestMemory(bytes, Mutex::default())
    }
}

impl Store for TestMemory {
    fn location(&self) -> MemoryLocation {
        *self.1.lock().unwrap().get_or_insert_with(|| {
            SHARED.with_borrow_mut(|shared| {
                shared.push(self.0.clone());
                MemoryLocation { process: 0, descriptor: shared.len() as i32 - 1, inode: 0 }
            })
        })
    }

    fn at(location: MemoryLocation, length_bytes: usize) -> std::io::Result<TestMemory> {
        SHARED.with_borrow(|shared| Ok(TestMemory::new(shared[location.descriptor as usize][..length_bytes].to_vec())))
    }

    fn remap(&self, location: MemoryLocation, _length_bytes: usize) -> std::io::Result<()> {
        REMAPPED.with_borrow_mut(|remapped| remapped.push(location));
        Ok(())
    }
}

#[derive(Default)]
struct TestNetwork {
    pipes: BTreeMap<(usize, usize), VecDeque<u8>>,
    new_peers: BTreeMap<usize, Vec<usize>>,
    dead: BTreeSet<usize>,
    /// Ranks that are suspended. No rank is notified.
    silent: BTreeSet<usize>,
    /// Directed pairs of ranks between which data is held back.
    blocked: BTreeSet<(usize, usize)>,
    /// Pairs of a rank and a peer that answers its new connections, although data between them is held back.
    reached: BTreeSet<(usize, usize)>,
    /// Number of bytes that each rank sends correctly before it corrupts one.
    corrupting: BTreeMap<usize, usize>,
    /// Ranks without the resources for a link.
    without_resources: BTreeSet<usize>,
}

impl TestNetwork {
    fn fail(&mut self, rank: usize, is_silent: bool) {
        if is_silent {
            self.silent.insert(rank)
        } else {
            self.dead.insert(rank)
        };
    }

    fn is_gone(&self, rank: usize) -> bool {
        self.dead.contains(&rank) || self.silent.contains(&rank)
    }
}

struct PipeLink {
    rank: usize,
    peer: usize,
    net: Arc<Mutex<TestNetwork>>,
    staged: Vec<u8>,
}

impl PipeLink {
    fn check(&self) -> Result<(), LinkError> {
        let is_dead = self.net.lock().unwrap().dead.contains(&self.peer);
        if is_dead { Err(LinkError::Closed { cause: "dead".to_string() }) } else { Ok(()) }
    }
}

impl Link for PipeLink {
    fn send(&mut self, parts: &[&[u8]]) -> Result<usize, LinkError> {
        self.check()?;
        let mut net = self.net.lock().unwrap();
        let blocked = net.pipes.entry((self.rank, self.peer)).or_default().len();
        let mut bytes: Vec<u8> = parts.concat().into_iter().take(PIPE_BYTES - blocked).collect();
        if let Some(left) = net.corrupting.get_mut(&self.rank) {
            match bytes.get_mut(*left) {
                Some(byte) => {
                    *byte ^= 1;
                    net.corrupting.remove(&self.rank);
                }
                None => *left -= bytes.len(),
            }
        }
        net.pipes.entry((self.rank, self.peer)).or_default().extend(&bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let mut net = self.net.lock().unwrap();
        if net.blocked.contains(&(self.peer, self.rank)) {
            return Ok(0);
        }
        let pipe = net.pipes.entry((self.peer, self.rank)).or_default();
        let count = pipe.len().min(into.len());
        into[..count].copy_from_slice(&pipe.make_contiguous()[..count]);
        pipe.drain(..count);
        drop(net);
        if count == 0 { self.check().map(|()| 0) } else { Ok(count) }
    }

    fn peek(&mut self, min_bytes: usize) -> Result<&[u8], LinkError> {
        if self.net.lock().unwrap().blocked.contains(&(self.peer, self.rank)) {
            return Ok(&[]);
        }
        self.staged = self
            .net
            .lock()
            .unwrap()
            .pipes
            .entry((self.peer, self.rank))
            .or_default()
            .iter()
            .take(64)
            .copied()
            .collect();
        if self.staged.len() < min_bytes {
            self.check()?;
        }
        Ok(&self.staged)
    }

    fn consume(&mut self, count: usize) {
        self.net.lock().unwrap().pipes.entry((self.peer, self.rank)).or_default().drain(..count);
    }

    fn expect(&mut self, _bytes: usize) {}

    fn is_memory(&self) -> bool {
        true
    }
}

struct PipeLinks {
    rank: usize,
    net: Arc<Mutex<TestNetwork>>,
    links: BTreeMap<usize, PipeLink>,
    closed: BTreeSet<usize>,
}

impl PeerLinks for PipeLinks {
    fn link(&mut self, peer: usize) -> Result<Option<&mut dyn Link>, LinkError> {
        if self.closed.contains(&peer) {
            return Err(LinkError::Closed { cause: "closed".to_string() });
        }
        if self.net.lock().unwrap().without_resources.contains(&self.rank) {
            return Err(LinkError::MissingResource { cause: "no descriptors".to_string() });
        }
        let (rank, net) = (self.rank, self.net.clone());
        let link = self.links.entry(peer).or_insert_with(|| {
            net.lock().unwrap().new_peers.entry(peer).or_default().push(rank);
            PipeLink { rank, peer, net, staged: Vec::new() }
        });
        Ok(Some(link))
    }

    fn new_peers(&mut self) -> Vec<usize> {
        self.net.lock().unwrap().new_peers.remove(&self.rank).unwrap_or_default()
    }

    fn reached_peers(&mut self) -> Vec<usize> {
        let net = self.net.lock().unwrap();
        net.reached.iter().filter(|(rank, _)| *rank == self.rank).map(|(_, peer)| *peer).collect()
    }

    fn close(&mut self, peer: usize, _cause: &str) {
        self.closed.insert(peer);
    }
}

struct SwarmWorld {
    net: Arc<Mutex<TestNetwork>>,
    ranks: Vec<(Driver<TestMemory>, PipeLinks)>,
    now: Duration,
    outcomes: BTreeMap<usize, Result<Arc<TestMemory>, TransferError>>,
    settled: Option<(Vec<usize>, Vec<usize>, Vec<usize>)>,
    messages: Vec<(usize, usize, Vec<u8>)>,
    /// Losses as (observing rank, value, lost peer).
    losses: Vec<(usize, u32, usize)>,
}

fn value(bytes: usize) -> Vec<u8> {
    let mut state = 7;
    (0..bytes).map(|_| ripieno_plan::next_random(&mut state) as u8).collect()
}

/// Return a root's value and the digests of its blocks.
fn root_value(bytes: usize) -> (Arc<TestMemory>, Vec<Digest>) {
    let value = value(bytes);
    let digests = BlockDigests::of(&value, BLOCK_BYTES).digests;
    (Arc::new(TestMemory::new(value)), digests)
}

impl SwarmWorld {
    fn new(size: usize) -> SwarmWorld {
        let net = Arc::new(Mutex::new(TestNetwork::default()));
        let rank = |rank| {
            let driver =
                Driver::new(rank, size, SwarmTiming::default(), Box::new(|bytes| Ok(TestMemory::new(vec![0; bytes]))));
            let wires = PipeLinks { rank, net: net.clone(), links: BTreeMap::new(), closed: BTreeSet::new() };
            (driver, wires)
        };
        let ranks = (0..size).map(rank).collect();
        let (now, outcomes) = (Duration::ZERO, BTreeMap::new());
        SwarmWorld { net: net.clone(), ranks, now, outcomes, settled: None, messages: Vec::new(), losses: Vec::new() }
    }

    /// All ranks begin a broadcast and request the value at once.
    fn begin(&mut self, root: usize, bytes: usize, discipline: Discipline) -> u32 {
        self.begin_with(root, bytes, discipline, usize::MAX)
    }

    /// Begin a broadcast with `block_count` blocks present at first.
    fn begin_with(&mut self, root: usize, bytes: usize, discipline: Discipline, block_count: usize) -> u32 {
        let (now, size) = (self.now, self.ranks.len());
        let manifest = BlockManifest::new(bytes, Some(BLOCK_BYTES), discipline, size);
        let order = (1..size).map(|after| (root + after) % size).collect();
        let (root_value, mut digests) = root_value(bytes);
        digests.truncate(block_count);
        let number = self.ranks[root].0.offer(now, root_value, manifest, digests, order);
        for (rank, (driver, _)) in self.ranks.iter_mut().enumerate().filter(|(rank, _)| *rank != root) {
            assert_eq!(driver.expect(now, root, None), number, "rank {rank}");
            driver.request(now, number);
        }
        number
    }

    fn turn(&mut self) -> bool {
        self.now += TURN;
        let mut has_moved = false;
        for rank in 0..self.ranks.len() {
            if self.net.lock().unwrap().is_gone(rank) {
                continue;
            }
            let (driver, wires) = &mut self.ranks[rank];
            has_moved |= driver.turn(self.now, wires);
            for (number, pending_events) in driver.take_events() {
                match pending_events {
                    BroadcastEvent::Ended(outcome) => {
                        assert!(self.outcomes.insert(rank, outcome).is_none(), "rank {rank} ends twice");
                    }
                    BroadcastEvent::Reopened => self.settled = None,
                    BroadcastEvent::Message { from, bytes } => self.messages.push((rank, from, bytes)),
                    BroadcastEvent::Lost { peer } => {
                        assert!(self.net.lock().unwrap().is_gone(peer));
                        self.losses.push((rank, number, peer));
                    }
                    BroadcastEvent::Settled { acknowledged, lost, corruptions } => {
                        let sources = corruptions.into_iter().map(|it| it.source).collect();
                        self.settled = Some((acknowledged, lost, sources));
                    }
                }
            }
        }
        has_moved
    }

    fn run_until(&mut self, is_over: impl Fn(&SwarmWorld) -> bool) {
        while !is_over(self) {
            // Messages caused by a loss may be sent one turn later.
            if !self.turn() && !self.turn() && !is_over(self) {
                let living = self.ranks.iter().filter(|it| !self.net.lock().unwrap().is_gone(it.1.rank));
                let wake = living.filter_map(|(driver, _)| driver.wake()).min();
                self.now = self.now.max(wake.unwrap_or(self.now));
            }
            assert!(self.now < TIME_LIMIT, "a rank waits forever: {:?}", self.outcomes.keys());
        }
    }

    fn has_value(&self, rank: usize, bytes: usize) -> bool {
        matches!(&self.outcomes[&rank], Ok(here) if here[..bytes] == value(bytes))
    }
}

fn disciplines() -> impl Iterator<Item = Discipline> {
    Discipline::NAMES.into_iter().map(|name| Discipline::named(name).unwrap())
}

#[test]
fn blocks_of_an_unverified_value_are_not_compared_with_digests() {
    let (size, bytes) = (4, 9 * BLOCK_BYTES + 17);
    for discipline in disciplines() {
        let mut world = SwarmWorld::new(size);
        let order: Vec<usize> = (1..size).collect();
        let blocks = BlockManifest::new(bytes, Some(BLOCK_BYTES), discipline, size);
        let manifest = BlockManifest { is_verified: false, ..blocks };
        let wrong = BlockDigests::unverified(bytes, BLOCK_BYTES).digests;
        let number = world.ranks[0].0.offer(world.now, root_value(bytes).0, manifest, wrong, order);
        for (driver, _) in world.ranks.iter_mut().skip(1) {
            assert_eq!(driver.expect(world.now, 0, None), number);
            driver.request(world.now, number);
        }
        world.run_until(|world| world.outcomes.len() == size - 1 && world.settled.is_some());
        assert!((1..size).all(|rank| world.has_value(rank, bytes)), "{discipline:?}");
        assert_eq!(world.settled, Some(((1..size).collect(), vec![], vec![])), "{discipline:?}");
    }
}

#[test]
fn every_rank_gets_the_bytes_from_every_root() {
    for discipline in disciplines() {
        for size in [1, 2, 3, 5] {
            for root in 0..size {
                for bytes in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, 9 * BLOCK_BYTES + 17] {
                    let mut world = SwarmWorld::new(size);
                    world.begin(root, bytes, discipline);
                    world.run_until(|world| world.outcomes.len() == size - 1 && world.settled.is_some());
                    let others: Vec<usize> = (0..size).filter(|&rank| rank != root).collect();
                    assert!(
                        others.iter().all(|&rank| world.has_value(rank, bytes)),
                        "{discipline:?} {size} {root} {bytes}"
                    );
                    assert_eq!(world.settled, Some((others, vec![], vec![])));
                }
            }
        }
    }
}

#[test]
fn blocks_are_sent_as_soon_as_they_are_complete() {
    let (size, block_count) = (4, 20);
    let bytes = block_count * BLOCK_BYTES;
    let digests = root_value(bytes).1;
    for discipline in disciplines() {
        let mut world = SwarmWorld::new(size);
        let number = world.begin_with(0, bytes, discipline, 1);
        let meters: Vec<Arc<Meter>> = (1..size).map(|_| Arc::default()).collect();
        meters.iter().zip(1..).for_each(|(meter, rank)| world.ranks[rank].0.watch(number, meter.clone()));
        for (filled, made) in [(1, 1), (1, 2), (2, 10), (10, block_count)] {
            world.ranks[0].0.fill(world.now, number, &digests[filled..made]);
            (0..400).for_each(|_| _ = world.turn());
            let received: Vec<u64> = meters.iter().map(|meter| meter.received_bytes()).collect();
            // With BitTorrent, receivers request blocks in any order, and the root serves one request at a time.
            let limit = (made * BLOCK_BYTES) as u64;
            let is_random = discipline == Discipline::BITTORRENT && made < block_count;
            let is_correct = |&received: &u64| received == limit || is_random && received < limit;
            assert!(received.iter().all(is_correct), "{discipline:?}, {made} blocks: {received:?}");
            assert_eq!(world.outcomes.len(), if made == block_count { size - 1 } else { 0 });
        }
        assert!((1..size).all(|rank| world.has_value(rank, bytes)), "{discipline:?}");
    }
}

#[test]
fn a_block_that_precedes_its_digest_is_checked_when_the_digest_arrives() {
    let bytes = 20 * BLOCK_BYTES;
    let digests = root_value(bytes).1;
    for is_corrupted in [false, true] {
        let mut world = SwarmWorld::new(4);
        let number = world.begin_with(0, bytes, Discipline::Chain, 1);
        let meter: Arc<Meter> = Arc::default();
        world.ranks[3].0.watch(number, meter.clone());
        (0..10).for_each(|_| _ = world.turn());
        world.net.lock().unwrap().blocked.insert((0, 3));
        if is_corrupted {
            world.net.lock().unwrap().corrupting.insert(2, 2 * BLOCK_BYTES);
        }
        world.ranks[0].0.fill(world.now, number, &digests[1..]);
        world.run_until(|world| world.outcomes.len() == 2);
        // Four blocks are requested ahead, and none of them is finished.
        (0..20).for_each(|_| _ = world.turn());
        assert_eq!(meter.received_bytes(), 5 * BLOCK_BYTES as u64);
        world.net.lock().unwrap().blocked.clear();
        world.run_until(|world| world.settled.is_some());
        assert!(world.has_value(3, bytes));
        assert_eq!(world.settled, Some((vec![1, 2, 3], vec![], vec![2; usize::from(is_corrupted)])));
    }
}

#[test]
fn a_root_that_dies_or_gives_up_before_the_value_is_complete_is_named() {
    let bytes = 20 * BLOCK_BYTES;
    for (discipline, dies) in disciplines().flat_map(|discipline| [(discipline, false), (discipline, true)]) {
        let mut world = SwarmWorld::new(4);
        let number = world.begin_with(1, bytes, discipline, 7);
        (0..30).for_each(|_| _ = world.turn());
        if dies {
            world.net.lock().unwrap().dead.insert(1);
        } else {
            world.ranks[1].0.abandon(number);
        }
        world.run_until(|world| world.outcomes.len() == 3);
        for ending in world.outcomes.values() {
            let is_named = matches!(ending, Err(TransferError::Failure(MemberFailure::RootLost { root: 1, .. })));
            assert!(is_named, "{discipline:?}: {ending:?}");
        }
    }
}

#[test]
fn several_values_share_the_same_links() {
    let mut world = SwarmWorld::new(4);
    let (one, other) = (5 * BLOCK_BYTES, 7 * BLOCK_BYTES);
    world.begin(0, one, Discipline::Chain);
    world.begin(2, other, Discipline::CSB);
    let mut found = BTreeMap::new();
    while found.len() < 6 {
        world.now += TURN;
        for (rank, (driver, wires)) in world.ranks.iter_mut().enumerate() {
            driver.turn(world.now, wires);
            for (number, pending_events) in driver.take_events() {
                if let BroadcastEvent::Ended(Ok(here)) = pending_events {
                    found.insert((number, rank), here[..] == value([one, other][number as usize]));
                }
            }
        }
        assert!(world.now < TIME_LIMIT);
    }
    assert!(found.values().all(|&is_correct| is_correct), "{found:?}");
}

#[test]
fn the_other_ranks_get_the_value_when_a_rank_dies() {
    let bytes = 60 * BLOCK_BYTES;
    for (discipline, is_silent) in disciplines().flat_map(|discipline| [(discipline, false), (discipline, true)]) {
        for victim in [1, 3, 5] {
            let mut world = SwarmWorld::new(6);
            world.begin(0, bytes, discipline);
            (0..25).for_each(|_| _ = world.turn());
            assert!(world.outcomes.is_empty());
            world.net.lock().unwrap().fail(victim, is_silent);
            world.run_until(|world| world.outcomes.len() == 4 && world.settled.is_some());
            let others: Vec<usize> = (1..6).filter(|&rank| rank != victim).collect();
            assert!(others.iter().all(|&rank| world.has_value(rank, bytes)), "{discipline:?} {victim}");
            assert_eq!(world.settled, Some((others, vec![victim], vec![])), "{discipline:?}");
        }
    }
}

#[test]
fn a_rank_of_a_chain_that_was_silent_gets_the_value_from_the_last_rank() {
    let bytes = 60 * BLOCK_BYTES;
    let mut world = SwarmWorld::new(6);
    world.begin(0, bytes, Discipline::Chain);
    (0..25).for_each(|_| _ = world.turn());
    world.net.lock().unwrap().fail(2, true);
    world.run_until(|world| world.outcomes.len() == 4);
    world.net.lock().unwrap().silent.clear();
    world.run_until(|world| world.outcomes.len() == 5 && world.settled.is_some());
    assert!((1..6).all(|rank| world.has_value(rank, bytes)), "{:?}", world.outcomes);
    assert_eq!(world.settled, Some(((1..6).collect(), vec![], vec![])));
    assert!(world.ranks[2].1.links.contains_key(&5), "rank 2 has links to {:?}", world.ranks[2].1.links.keys());
}

#[test]
fn a_rank_whose_connections_resume_late_after_an_outage_is_not_lost() {
    let (size, bytes) = (4, 9 * BLOCK_BYTES + 17);
    let SwarmTiming { stall_timeout, answer_timeout } = SwarmTiming::default();
    for (discipline, cut) in disciplines().flat_map(|discipline| [(discipline, 0), (discipline, 2)]) {
        let mut world = SwarmWorld::new(size);
        world.begin(0, bytes, discipline);
        (0..3).for_each(|_| _ = world.turn());
        let links = (0..size).filter(|&rank| rank != cut).flat_map(|rank| [(rank, cut), (cut, rank)]);
        let links: BTreeSet<(usize, usize)> = links.collect();
        world.net.lock().unwrap().blocked.clone_from(&links);
        let outage_end = world.now + answer_timeout / 2;
        let resumption = outage_end + stall_timeout + 3 * answer_timeout;
        while world.now < resumption {
            if world.now >= outage_end {
                world.net.lock().unwrap().reached.clone_from(&links);
            }
            world.turn();
        }
        let mut net = world.net.lock().unwrap();
        (net.blocked, net.reached) = (BTreeSet::new(), BTreeSet::new());
        drop(net);
        world.run_until(|world| world.outcomes.len() == size - 1 && world.settled.is_some());
        assert!((1..size).all(|rank| world.has_value(rank, bytes)), "{discipline:?}, rank {cut}: {:?}", world.losses);
        assert_eq!(world.settled, Some((vec![1, 2, 3], vec![], vec![])), "{discipline:?}, rank {cut}");
    }
}

#[test]
fn an_isolated_rank_waits_for_all_others_at_the_same_time() {
    let bytes = 9 * BLOCK_BYTES + 17;
    let SwarmTiming { stall_timeout, answer_timeout } = SwarmTiming::default();
    for (discipline, size) in disciplines().flat_map(|discipline| [(discipline, 3), (discipline, 9)]) {
        let mut world = SwarmWorld::new(size);
        let isolated = size - 1;
        world.begin(0, bytes, discipline);
        (0..3).for_each(|_| _ = world.turn());
        let links = (0..isolated).flat_map(|rank| [(rank, isolated), (isolated, rank)]);
        world.net.lock().unwrap().blocked = links.collect();
        let cut_at = world.now;
        world.run_until(|world| world.outcomes.contains_key(&isolated));
        let waited = world.now - cut_at;
        assert!(waited < stall_timeout + answer_timeout * 3 / 2, "{discipline:?}, {size} ranks: {waited:?}");
        assert!(matches!(world.outcomes[&isolated], Err(TransferError::Failure(MemberFailure::RootLost { .. }))));
        world.run_until(|world| world.outcomes.len() == size - 1 && world.settled.is_some());
        assert!((1..isolated).all(|rank| world.has_value(rank, bytes)), "{discipline:?}");
    }
}

#[test]
fn a_probe_starts_no_fetch() {
    let (bytes, timing) = (9 * BLOCK_BYTES, SwarmTiming::default());
    let mut world = SwarmWorld::new(4);
    let (root_value, digests) = root_value(bytes);
    let manifest = BlockManifest::new(bytes, Some(BLOCK_BYTES), Discipline::Chain, 4);
    let number = world.ranks[0].0.offer(world.now, root_value, manifest, digests, vec![3]);
    (1..4).for_each(|rank| _ = world.ranks[rank].0.expect(world.now, 0, None));
    world.ranks[3].0.request(world.now, number);
    (0..3).for_each(|_| _ = world.turn());
    world.net.lock().unwrap().fail(0, true);
    // The member probes its peers after a quarter of the time in which the root may answer.
    let resumed_at = world.now + timing.suspicion_timeout() + timing.answer_timeout * 3 / 4;
    while world.now < resumed_at {
        world.turn();
    }
    assert!(world.ranks[1].1.links.contains_key(&3), "rank 1 has answered the probe");
    world.net.lock().unwrap().silent.clear();
    world.run_until(|world| world.outcomes.contains_key(&3));
    assert!(world.has_value(3, bytes) && !world.outcomes.contains_key(&1));
}

#[test]
fn a_corrupt_block_is_fetched_again_and_its_source_is_named() {
    let bytes = 20 * BLOCK_BYTES;
    for discipline in disciplines() {
        let mut world = SwarmWorld::new(4);
        world.begin(0, bytes, discipline);
        world.net.lock().unwrap().corrupting.insert(0, 3 * BLOCK_BYTES);
        world.run_until(|world| world.outcomes.len() == 3 && world.settled.is_some());
        assert!((1..4).all(|rank| world.has_value(rank, bytes)), "{discipline:?}");
        let (acknowledged, lost, sources) = world.settled.unwrap();
        assert_eq!((acknowledged.len(), lost.len()), (3, 0));
        assert!(!sources.is_empty() && sources.iter().all(|&source| source == 0), "{discipline:?}: {sources:?}");
    }
}

#[test]
fn without_the_root_the_ranks_finish_if_they_hold_all_blocks() {
    let bytes = 20 * BLOCK_BYTES;
    for discipline in disciplines() {
        let mut endings = BTreeSet::new();
        for turns in [5, 20, 40, 60, 80, 100, 130, 200] {
            let mut world = SwarmWorld::new(5);
            world.begin(2, bytes, discipline);
            (0..turns).for_each(|_| _ = world.turn());
            world.net.lock().unwrap().dead.insert(2);
            world.run_until(|world| world.outcomes.len() == 4);
            for rank in [0, 1, 3, 4] {
                match &world.outcomes[&rank] {
                    Ok(_) => assert!(world.has_value(rank, bytes), "{discipline:?} {turns}"),
                    Err(ending) => {
                        let is_named =
                            matches!(ending, TransferError::Failure(MemberFailure::RootLost { root: 2, .. }));
                        assert!(is_named, "{discipline:?} {turns}: {ending}");
                    }
                }
            }
            let complete_count = world.outcomes.values().filter(|outcome| outcome.is_ok()).count();
            endings.insert(complete_count > 0);
        }
        assert_eq!(endings.len(), 2, "{discipline:?}: expected both outcomes, depending on when the root dies");
    }
}

#[test]
fn a_late_rank_is_served_after_the_root_has_released_the_value() {
    let (size, bytes) = (3, 5 * BLOCK_BYTES);
    let mut world = SwarmWorld::new(size);
    let manifest = BlockManifest::new(bytes, Some(BLOCK_BYTES), Discipline::CSB, size);
    let now = world.now;
    let (root_value, digests) = root_value(bytes);
    let number = world.ranks[0].0.offer(now, root_value, manifest, digests, vec![]);
    (1..size).for_each(|rank| _ = world.ranks[rank].0.expect(now, 0, None));
    world.run_until(|world| world.settled.is_some());
    world.settled = None;

    world.ranks[1].0.request(now, number);
    world.run_until(|world| world.settled.is_some());
    assert!(world.has_value(1, bytes));

    world.ranks[0].0.release(number);
    world.ranks[2].0.request(world.now, number);
    world.run_until(|world| world.outcomes.contains_key(&2));
    assert!(world.has_value(2, bytes) && !world.ranks[0].0.is_idle());

    (1..size).for_each(|rank| world.ranks[rank].0.release(number));
    world.run_until(|world| world.ranks.iter().all(|(driver, _)| driver.is_idle()));
}

/// Broadcast a value from rank 0 to ranks that have some of its blocks. Return the number of bytes received by each
/// rank.
fn received_by_holders(discipline: Discipline, bytes: usize, parts: &[Vec<u8>]) -> Vec<u64> {
    let size = parts.len() + 1;
    let mut world = SwarmWorld::new(size);
    let (root_value, digests) = root_value(bytes);
    let blocks = BlockDigests { bytes, block_bytes: BLOCK_BYTES, digests: digests.clone(), is_verified: true };
    let manifest = BlockManifest::new(bytes, Some(BLOCK_BYTES), discipline, size);
    let number = world.ranks[0].0.offer(world.now, root_value, manifest, digests.clone(), (1..size).collect());
    let mut meters = Vec::new();
    for (rank, part) in (1..size).zip(parts) {
        let (have, memory) = (blocks.found_in(part), TestMemory::new(part.clone()));
        let driver = &mut world.ranks[rank].0;
        assert_eq!(driver.fetch_into(world.now, 0, memory, digests.clone(), have), number);
        meters.push(Arc::new(Meter::default()));
        driver.watch(number, meters.last().unwrap().clone());
    }
    world.run_until(|world| world.outcomes.len() == size - 1 && world.settled.is_some());
    (0..3).for_each(|_| _ = world.turn());
    assert!((1..size).all(|rank| world.has_value(rank, bytes)), "{discipline:?}");
    assert!(meters.iter().all(|meter| meter.is_released()), "{discipline:?}");
    meters.iter().map(|meter| meter.received_bytes()).collect()
}

#[test]
fn a_rank_with_some_blocks_fetches_only_the_missing_blocks() {
    let bytes = 12 * BLOCK_BYTES + 5;
    let whole = value(bytes);
    let half = [&whole[..6 * BLOCK_BYTES], &vec![0; bytes - 6 * BLOCK_BYTES]].concat();
    let mut damaged = whole.clone();
    damaged[bytes - 1] ^= 1;
    damaged[3 * BLOCK_BYTES] ^= 1;
    for discipline in disciplines() {
        let received = received_by_holders(discipline, bytes, &[half.clone(), whole.clone(), damaged.clone()]);
        assert_eq!(received, [6 * BLOCK_BYTES as u64 + 5, 0, BLOCK_BYTES as u64 + 5], "{discipline:?}");
    }
}

#[test]
fn application_messages_arrive_in_order() {
    let mut world = SwarmWorld::new(2);
    let number = world.begin(0, 3 * BLOCK_BYTES, Discipline::Chain);
    for bytes in [b"first".to_vec(), b"second".to_vec()] {
        world.ranks[1].0.send_message(number, 0, bytes);
    }
    world.run_until(|world| world.messages.len() == 2);
    assert_eq!(world.messages, [(0, 1, b"first".to_vec()), (0, 1, b"second".to_vec())]);
}

#[test]
fn a_rank_that_dies_before_a_value_begins_is_lost_on_all_ranks() {
    let mut world = SwarmWorld::new(3);
    let (first, now) = (world.begin(0, 1, Discipline::Chain), world.now);
    let second = world.ranks[2].0.expect(now, 0, None);
    world.run_until(|world| world.outcomes.len() == 2);
    world.net.lock().unwrap().fail(2, false);
    world.run_until(|world| world.losses.contains(&(0, first, 2)));
    let (bytes, digests) = root_value(1);
    let manifest = BlockManifest::new(1, Some(BLOCK_BYTES), Discipline::Chain, 2);
    assert_eq!(world.ranks[0].0.offer(world.now, bytes, manifest, digests, vec![1]), second);
    world.run_until(|world| world.losses.contains(&(0, second, 2)));
}

#[test]
fn a_rank_without_resources_for_links_names_itself_and_not_the_root() {
    let bytes = 5 * BLOCK_BYTES;
    for discipline in disciplines() {
        let mut world = SwarmWorld::new(3);
        world.net.lock().unwrap().without_resources.insert(1);
        world.begin(0, bytes, discipline);
        world.run_until(|world| world.outcomes.len() == 2);
        let ending = world.outcomes[&1].as_ref().unwrap_err();
        assert_eq!(ending.to_string(), "no link to rank 0: no descriptors", "{discipline:?}");
        assert!(world.has_value(2, bytes), "{discipline:?}");
    }
}

#[test]
fn a_failed_allocation_ends_the_broadcast_on_that_rank_alone() {
    let bytes = 5 * BLOCK_BYTES;
    let mut world = SwarmWorld::new(3);
    world.ranks[1].0 =
        Driver::new(1, 3, SwarmTiming::default(), Box::new(|_| Err(std::io::ErrorKind::OutOfMemory.into())));
    world.begin(0, bytes, Discipline::BITTORRENT);
    world.run_until(|world| world.outcomes.len() == 2);
    assert!(matches!(world.outcomes[&1], Err(TransferError::Memory { .. })));
    assert!(world.has_value(2, bytes));
}

/// Begin a broadcast where ranks 1, 2 and 3 share a host and rank 0 runs elsewhere.
fn begin_on_two_hosts(world: &mut SwarmWorld, bytes: usize) -> u32 {
    let manifest = BlockManifest::new(bytes, Some(BLOCK_BYTES), Discipline::CSB, 4);
    let (root_value, digests) = root_value(bytes);
    let number = world.ranks[0].0.offer(world.now, root_value, manifest, digests, vec![]);
    (1..4).for_each(|rank| _ = world.ranks[rank].0.expect(world.now, 0, (rank > 1).then_some(1)));
    number
}

#[test]
fn a_late_rank_gets_another_source_after_a_release() {
    let bytes = 9 * BLOCK_BYTES;
    for discipline in disciplines() {
        let mut world = SwarmWorld::new(3);
        let manifest = BlockManifest::new(bytes, Some(BLOCK_BYTES), discipline, 2);
        let (root_value, digests) = root_value(bytes);
        let number = world.ranks[0].0.offer(world.now, root_value, manifest, digests, vec![1]);
        (1..3).for_each(|rank| _ = world.ranks[rank].0.expect(world.now, 0, None));
        world.ranks[1].0.request(world.now, number);
        world.run_until(|world| world.settled.is_some());
        world.ranks[1].0.release(number);
        (0..20).for_each(|_| _ = world.turn());
        world.ranks[2].0.request(world.now, number);
        world.run_until(|world| world.outcomes.contains_key(&2));
        assert!(world.has_value(2, bytes), "{discipline:?}");
    }
}

#[test]
fn only_the_leader_of_a_host_fetches_the_value() {
    let bytes = 9 * BLOCK_BYTES;
    let mut world = SwarmWorld::new(4);
    let number = begin_on_two_hosts(&mut world, bytes);
    world.ranks[2].0.request(world.now, number);
    world.run_until(|world| world.outcomes.contains_key(&2));
    world.run_until(|world| world.settled.as_ref().is_some_and(|settled| settled.0 == [1]));
    assert!(world.has_value(2, bytes) && world.has_value(1, bytes));
    world.ranks[3].0.request(world.now, number);
    world.run_until(|world| world.outcomes.contains_key(&3));
    assert!(world.has_value(3, bytes));
    assert_eq!(world.settled.as_ref().unwrap().0, [1], "no other rank has fetched");
}

#[test]
fn a_rank_that_maps_a_value_is_notified_of_its_new_location() {
    let bytes = 3 * BLOCK_BYTES;
    let mut world = SwarmWorld::new(4);
    let number = begin_on_two_hosts(&mut world, bytes);
    (1..4).for_each(|rank| world.ranks[rank].0.request(world.now, number));
    world.run_until(|world| world.outcomes.len() == 3);
    (0..20).for_each(|_| _ = world.turn());
    assert!(REMAPPED.take().is_empty(), "the value has not moved");
    let value = world.outcomes[&1].as_ref().unwrap().clone();
    *value.1.lock().unwrap() = None;
    (0..20).for_each(|_| _ = world.turn());
    assert_eq!(REMAPPED.take(), [value.location(); 2], "ranks 2 and 3, once each");
}

#[test]
fn a_rank_that_waits_for_a_dead_or_silent_neighbor_fetches_the_value_itself() {
    let bytes = 20 * BLOCK_BYTES;
    for is_silent in [false, true] {
        let mut world = SwarmWorld::new(4);
        let number = begin_on_two_hosts(&mut world, bytes);
        (2..4).for_each(|rank| world.ranks[rank].0.request(world.now, number));
        (0..20).for_each(|_| _ = world.turn());
        assert!(world.outcomes.is_empty());
        world.net.lock().unwrap().fail(1, is_silent);
        world.run_until(|world| world.outcomes.len() == 2);
        assert!(world.has_value(2, bytes) && world.has_value(3, bytes), "{is_silent} {:?}", world.outcomes);
    }
}
