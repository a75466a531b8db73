//! Ranks over links that carry a few bytes at a time and close once a rank has used up its send budget.
#![allow(dead_code)]

use ripieno_run::{
    Blocking, Fabric, HEADER_BYTES, Header, JobFailure, Link, LinkError, LinkId, LinkInterest, Remote, Topology,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type Pipe = Arc<Mutex<VecDeque<u8>>>;

/// The number of bytes that a rank sends before it dies; zero once it is dead.
#[derive(Clone)]
pub struct SendBudget(Arc<AtomicUsize>);

impl SendBudget {
    fn unlimited() -> SendBudget {
        SendBudget(Arc::new(AtomicUsize::new(usize::MAX)))
    }
    /// Let the rank die after it has sent `bytes` more.
    pub fn end_after(&self, bytes: usize) {
        self.0.store(bytes, Ordering::SeqCst);
    }
    pub fn left_bytes(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
    pub fn is_over(&self) -> bool {
        self.left_bytes() == 0
    }
    fn spend(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::SeqCst);
    }
}

fn dead() -> LinkError {
    LinkError::Closed { cause: "the peer has died".into() }
}

/// A link that holds at most `capacity` bytes and takes at most `chunk_bytes`. It delivers nothing until all expected
/// bytes have arrived, as if its owner slept until then.
pub struct NarrowLink {
    out: Pipe,
    incoming: Pipe,
    seen: Vec<u8>,
    capacity: usize,
    chunk_bytes: usize,
    expected: usize,
    /// Number of message attempts, in both directions.
    messages: usize,
    own: SendBudget,
    peer: SendBudget,
}

impl NarrowLink {
    fn is_waiting(&self) -> bool {
        !self.peer.is_over() && self.incoming.lock().unwrap().len() < self.expected.min(self.capacity)
    }

    /// Return whether the link carries a message now: two of three attempts succeed.
    fn has_messages(&mut self) -> bool {
        self.messages += 1;
        !self.messages.is_multiple_of(3)
    }

    /// Return an error if the peer has died and fewer than `min_bytes` of its bytes remain.
    fn check(&self, min_bytes: usize) -> Result<(), LinkError> {
        let is_exhausted = self.peer.is_over() && self.incoming.lock().unwrap().len() < min_bytes;
        if is_exhausted { Err(dead()) } else { Ok(()) }
    }
}

impl Link for NarrowLink {
    fn send(&mut self, parts: &[&[u8]]) -> Result<usize, LinkError> {
        if self.peer.is_over() {
            return Err(dead());
        }
        let mut out = self.out.lock().unwrap();
        let room = (self.capacity - out.len()).min(self.chunk_bytes).min(self.own.left_bytes());
        let before = out.len();
        out.extend(parts.iter().flat_map(|part| part.iter()).take(room));
        self.own.spend(out.len() - before);
        Ok(out.len() - before)
    }
    fn flush(&mut self) -> Result<(), LinkError> {
        Ok(())
    }
    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        self.check(1)?;
        if self.is_waiting() {
            return Ok(0);
        }
        self.expected = 0;
        let mut incoming = self.incoming.lock().unwrap();
        let count = incoming.len().min(into.len());
        for (place, byte) in into.iter_mut().zip(incoming.drain(..count)) {
            *place = byte;
        }
        Ok(count)
    }
    fn peek(&mut self, min_bytes: usize) -> Result<&[u8], LinkError> {
        self.check(min_bytes)?;
        if self.is_waiting() {
            return Ok(&[]);
        }
        self.expected = 0;
        self.seen = self.incoming.lock().unwrap().iter().take(min_bytes.max(self.chunk_bytes)).copied().collect();
        Ok(&self.seen)
    }
    fn consume(&mut self, count: usize) {
        self.incoming.lock().unwrap().drain(..count);
    }
    fn send_message(&mut self, parts: &[&[u8]; 2]) -> bool {
        let length_bytes = parts[0].len() + parts[1].len();
        let room = (self.capacity - self.out.lock().unwrap().len()).min(self.chunk_bytes).min(self.own.left_bytes());
        length_bytes <= room && self.has_messages() && self.send(parts).is_ok()
    }
    fn message(&mut self, length_bytes: usize, _poll_count: u32) -> Option<&[u8]> {
        let is_there = self.incoming.lock().unwrap().len() >= length_bytes && !self.is_waiting();
        if !is_there || !self.has_messages() {
            return None;
        }
        self.expected = 0;
        self.seen = self.incoming.lock().unwrap().iter().take(length_bytes).copied().collect();
        Some(&self.seen)
    }
    fn end_message(&mut self, length_bytes: usize) {
        self.consume(length_bytes);
    }
    fn expect(&mut self, bytes: usize) {
        self.expected = bytes;
    }
    fn is_memory(&self) -> bool {
        true
    }
}

/// A no-op wake-up: ranks here sleep only by yielding.
struct NoOpRemote(Arc<Mutex<Option<JobFailure>>>);

impl Remote for NoOpRemote {
    fn wake(&self) {}
    fn report(&self, failure: JobFailure) {
        self.0.lock().unwrap().get_or_insert(failure);
    }
}

/// The fabric of one rank.
pub struct RankWorld {
    pub rank: usize,
    pub state: SendBudget,
    links: Vec<Option<NarrowLink>>,
    failure: Arc<Mutex<Option<JobFailure>>>,
    stalls: usize,
    start: Instant,
}

impl Fabric for RankWorld {
    fn rank(&self) -> usize {
        self.rank
    }
    fn world_size(&self) -> usize {
        self.links.len() / LinkId::PER_PEER
    }
    fn topology(&self) -> Arc<Topology> {
        Arc::new(Topology::flat(self.world_size()))
    }
    fn link(&mut self, id: LinkId) -> Result<Option<&mut dyn Link>, LinkError> {
        let index = id.index(self.world_size());
        Ok(self.links[index].as_mut().map(|link| link as &mut dyn Link))
    }
    fn has_failed(&self) -> bool {
        self.failure.lock().unwrap().is_some()
    }
    fn failure(&self) -> Option<JobFailure> {
        self.failure.lock().unwrap().clone()
    }
    fn report(&mut self, failure: JobFailure) {
        self.failure.lock().unwrap().get_or_insert(failure);
    }
    fn peer_failure(&mut self, peer: usize, cause: &str) -> JobFailure {
        let failure =
            JobFailure::RankFailed { rank: peer, host: "here".into(), cause: cause.into(), traceback: String::new() };
        self.failure.lock().unwrap().get_or_insert(failure).clone()
    }
    fn now(&self) -> Duration {
        self.start.elapsed()
    }
    fn yield_now(&self) {
        std::thread::yield_now();
    }
    fn has_core_per_rank(&self) -> bool {
        false
    }
    fn enter(&mut self, _communicator: u32, _header: &[u8; HEADER_BYTES]) {}
    fn stalled(&mut self, _header: Header, peers: &[usize], _blocking: Blocking) {
        self.stalls += 1;
        let cause = format!("stalled, waiting for {peers:?}");
        self.report(JobFailure::RankFailed { rank: self.rank, host: "here".into(), cause, traceback: String::new() });
    }
    fn remote(&self) -> Arc<dyn Remote> {
        Arc::new(NoOpRemote(self.failure.clone()))
    }
    fn prepare_park(&mut self) {}
    fn park(&mut self, interests: &[LinkInterest], _timeout: Duration) {
        assert!(!interests.is_empty(), "a parked rank waits for something");
        std::thread::yield_now();
    }
    fn cancel_park(&mut self) {}
}

/// Return the worlds of `p` ranks over links that hold `capacity` bytes and take `chunk_bytes`.
pub fn worlds(p: usize, capacity: usize, chunk_bytes: usize) -> Vec<RankWorld> {
    let pipes = || -> Vec<Vec<Pipe>> { (0..p).map(|_| (0..p).map(|_| Pipe::default()).collect()).collect() };
    // Separate pipes for collectives and for messages. An outbox only sends, an inbox only receives.
    let (pipes, messages) = (pipes(), pipes());
    let failure = Arc::new(Mutex::new(None));
    let states: Vec<SendBudget> = (0..p).map(|_| SendBudget::unlimited()).collect();
    let link = |pipes: &[Vec<Pipe>], rank: usize, peer: usize| NarrowLink {
        out: pipes[rank][peer].clone(),
        incoming: pipes[peer][rank].clone(),
        seen: Vec::new(),
        capacity,
        chunk_bytes,
        expected: 0,
        messages: 0,
        own: states[rank].clone(),
        peer: states[peer].clone(),
    };
    let links = |rank: usize| {
        let to_all = |pipes| (0..p).map(move |peer| (peer != rank).then(|| link(pipes, rank, peer)));
        [&pipes, &messages, &messages].into_iter().flat_map(|pipes| to_all(pipes)).collect()
    };
    (0..p)
        .map(|rank| RankWorld {
            rank,
            state: states[rank].clone(),
            links: links(rank),
            failure: failure.clone(),
            stalls: 0,
            start: Instant::now(),
        })
        .collect()
}
