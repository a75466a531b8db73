//! Runs the ranks of a world as threads of one process: a fabric with a table in memory as its membership.

use crate::host::{core_count, host_name};
use crate::links::{DEFAULT_CAPACITY_BYTES, Doorbell, RingLink, Waker, thread};
use crate::monitor::lock;
use ripieno_run::membership::{BlockedWaits, CallHistory, describe, describe_pair, is_same_collective};
use ripieno_run::{
    Blocking, CollectiveId, DescribedCall, Fabric, HEADER_BYTES, Header, JobFailure, Link, LinkError, LinkId,
    LinkInterest, Remote, Topology,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The fabric of a rank that is a thread of this process.
pub struct ThreadFabric {
    rank: usize,
    doorbell: Doorbell,
    /// Indexed by the index of the link.
    links: Vec<Option<RingLink>>,
    world: Arc<ThreadWorld>,
}

/// The state that the threads share.
struct ThreadWorld {
    started: Instant,
    has_core_per_rank: bool,
    topology: Arc<Topology>,
    wakers: Vec<Waker>,
    failed: AtomicBool,
    failure: Mutex<Option<JobFailure>>,
    histories: Vec<Mutex<CallHistory>>,
    waits: Mutex<BlockedWaits>,
    /// Whether each rank has left normally.
    left: Vec<AtomicBool>,
    /// Link ends that were created by the peer and not yet taken by their rank.
    unclaimed: Mutex<BTreeMap<(usize, LinkId), RingLink>>,
}

impl ThreadFabric {
    /// Create the fabrics of `world_size` threads on one node, ordered by rank.
    pub fn group(world_size: usize) -> io::Result<Vec<ThreadFabric>> {
        ThreadFabric::placed(Topology::new(vec![0; world_size], vec![0; world_size]))
    }

    /// Create the fabrics of threads that plan for the given topology.
    pub fn placed(topology: Topology) -> io::Result<Vec<ThreadFabric>> {
        let world_size = topology.size();
        let doorbells = (0..world_size).map(|_| Doorbell::new()).collect::<io::Result<Vec<_>>>()?;
        let world = Arc::new(ThreadWorld {
            started: Instant::now(),
            has_core_per_rank: doorbells.len() <= core_count(),
            topology: Arc::new(topology),
            wakers: doorbells.iter().map(Doorbell::waker).collect(),
            failed: AtomicBool::new(false),
            failure: Mutex::default(),
            histories: (0..world_size).map(|_| Mutex::default()).collect(),
            waits: Mutex::default(),
            left: (0..world_size).map(|_| AtomicBool::new(false)).collect(),
            unclaimed: Mutex::default(),
        });
        let fabric = |(rank, doorbell)| ThreadFabric {
            rank,
            doorbell,
            links: (0..LinkId::PER_PEER * world_size).map(|_| None).collect(),
            world: world.clone(),
        };
        Ok(doorbells.into_iter().enumerate().map(fabric).collect())
    }

    /// Leave the job normally; dropping the fabric does the same.
    pub fn close(&mut self) {
        self.world.left[self.rank].store(true, Ordering::Release);
    }

    fn open_link(&self, id: LinkId) -> Result<RingLink, LinkError> {
        let mut unclaimed = lock(&self.world.unclaimed);
        if let Some(link) = unclaimed.remove(&(self.rank, id)) {
            return Ok(link);
        }
        let (own, peer) = (self.world.wakers[self.rank].clone(), self.world.wakers[id.peer].clone());
        let pair = thread::pair(DEFAULT_CAPACITY_BYTES, own, peer);
        let (link, other) = pair.map_err(|error| LinkError::Closed { cause: error.to_string() })?;
        unclaimed.insert((id.peer, id.other_end(self.rank)), other);
        Ok(link)
    }
}

impl Drop for ThreadFabric {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.world.fail(rank_failed(self.rank, "its thread panicked".to_string()));
        }
        self.close();
        // Peers that request a link from now on find its other end closed.
        lock(&self.world.unclaimed).retain(|(rank, _), _| *rank != self.rank);
    }
}

impl ThreadWorld {
    fn fail(&self, failure: JobFailure) {
        lock(&self.failure).get_or_insert(failure);
        self.failed.store(true, Ordering::Release);
        self.wakers.iter().for_each(Waker::wake);
    }

    fn failure(&self) -> Option<JobFailure> {
        lock(&self.failure).clone()
    }

    /// Return the failure, if `peer` will never take part in `header`.
    fn check_peer(&self, header: Header, peer: usize) -> Option<JobFailure> {
        // Read `has_left` first: the peer recorded its last call before it left.
        let has_left = self.left[peer].load(Ordering::Acquire);
        let id = header.collective_id();
        if !header.call.concerns_all() {
            return has_left
                .then(|| rank_failed(peer, "left the job while a message to or from it was awaited".into()));
        }
        if lock(&self.histories[peer]).at(id).is_some_and(|called| called.call != header.call) {
            return Some(self.mismatch(id));
        }
        let never = has_left && self.is_absent(peer, id);
        never.then(|| rank_failed(peer, format!("left the job before {id}")))
    }

    /// Return whether `rank` has not reached `id`.
    fn is_absent(&self, rank: usize, id: CollectiveId) -> bool {
        lock(&self.histories[rank]).last_calls().left_before(id)
    }

    fn mismatch(&self, id: CollectiveId) -> JobFailure {
        let called = |history: &Mutex<CallHistory>| {
            let history = lock(history);
            history.at(id).map(|header| history.describe(header))
        };
        let calls = self.histories.iter().enumerate();
        let calls: BTreeMap<usize, DescribedCall> =
            calls.filter_map(|(rank, history)| called(history).map(|call| (rank, call))).collect();
        JobFailure::Mismatch { description: describe(id, &calls) }
    }

    /// Return the failure, if `rank` is part of a cycle of blocked ranks.
    fn cycle(&self, rank: usize, header: Header, peers: &[usize], blocking: Blocking) -> Option<JobFailure> {
        let mut waits = lock(&self.waits);
        waits.note(self.started.elapsed(), rank, header, peers, blocking);
        let cycle = waits.cycle(rank, |rank, id, _| self.is_absent(rank, id));
        cycle.map(|description| JobFailure::Mismatch { description })
    }
}

fn rank_failed(rank: usize, cause: String) -> JobFailure {
    JobFailure::RankFailed { rank, host: host_name(), cause, traceback: String::new() }
}

/// The part of a rank's fabric that other threads can use.
struct ThreadRemote {
    rank: usize,
    world: Arc<ThreadWorld>,
}

impl Remote for ThreadRemote {
    fn wake(&self) {
        self.world.wakers[self.rank].wake();
    }

    fn report(&self, failure: JobFailure) {
        self.world.fail(failure);
    }
}

impl Fabric for ThreadFabric {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.world.wakers.len()
    }

    fn topology(&self) -> Arc<Topology> {
        self.world.topology.clone()
    }

    fn link(&mut self, id: LinkId) -> Result<Option<&mut dyn Link>, LinkError> {
        let index = id.index(self.world_size());
        if self.links[index].is_none() {
            self.links[index] = Some(self.open_link(id)?);
        }
        Ok(self.links[index].as_mut().map(|link| link as &mut dyn Link))
    }

    fn has_failed(&self) -> bool {
        self.world.failed.load(Ordering::Acquire)
    }

    fn failure(&self) -> Option<JobFailure> {
        self.world.failure()
    }

    fn report(&mut self, failure: JobFailure) {
        self.world.fail(failure);
    }

    fn peer_failure(&mut self, peer: usize, cause: &str) -> JobFailure {
        // A failing rank reports its failure before its links close, so no wait is needed.
        let left = self.world.left[peer].load(Ordering::Acquire);
        let cause = match left {
            true => format!("left the job while rank {} still needed it", self.rank),
            false => format!("its link to rank {} closed: {cause}", self.rank),
        };
        self.world.fail(rank_failed(peer, cause.clone()));
        self.world.failure().unwrap_or_else(|| rank_failed(peer, cause))
    }

    fn now(&self) -> Duration {
        self.world.started.elapsed()
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }

    fn has_core_per_rank(&self) -> bool {
        self.world.has_core_per_rank
    }

    fn note_signature(&mut self, signature: u32, text: &dyn Fn() -> String) {
        lock(&self.world.histories[self.rank]).note_signature(signature, text);
    }

    fn differs(&mut self, mine: Header, peer: usize, theirs: Header) {
        let described = |rank: usize, header| (rank, lock(&self.world.histories[rank]).describe(header));
        let failure = match is_same_collective(&mine, &theirs) {
            true => self.world.mismatch(mine.collective_id()),
            false => JobFailure::Mismatch {
                description: describe_pair([described(self.rank, mine), described(peer, theirs)]),
            },
        };
        self.world.fail(failure);
    }

    fn enter(&mut self, _communicator: u32, header: &[u8; HEADER_BYTES]) {
        let header = Header::decode(header).expect("a rank enters only headers");
        lock(&self.world.histories[self.rank]).enter(header);
    }

    fn stalled(&mut self, header: Header, peers: &[usize], blocking: Blocking) {
        let mut failures = peers.iter().map(|&peer| self.world.check_peer(header, peer));
        let failures = match blocking {
            Blocking::Any => failures.collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().next()),
            Blocking::All | Blocking::Nothing => failures.find_map(|failure| failure),
        };
        let cycle = || self.world.cycle(self.rank, header, peers, blocking);
        let failure = failures.or_else(cycle);
        failure.into_iter().for_each(|failure| self.world.fail(failure));
    }

    fn remote(&self) -> Arc<dyn Remote> {
        Arc::new(ThreadRemote { rank: self.rank, world: self.world.clone() })
    }

    fn prepare_park(&mut self) {
        self.doorbell.prepare();
    }

    fn park(&mut self, _interests: &[LinkInterest], timeout: Duration) {
        // A failed sleep ends immediately; the caller checks again.
        let _ = self.doorbell.wait([], timeout);
    }

    fn cancel_park(&mut self) {
        self.doorbell.cancel();
    }
}
