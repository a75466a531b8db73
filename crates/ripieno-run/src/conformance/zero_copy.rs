//! Additional conformance tests for links with zero-copy sends.

use super::{ConformanceRandom, DEADLINE, LinkEnd, LinkPair, ParkingStream, PatternStream, eventually, fill};
use crate::link::SendFlow;
use std::ops::DerefMut;
use std::thread;
use std::time::Instant;

/// Memory that a link can send without a copy.
pub type ZeroCopyMemory = Box<dyn DerefMut<Target = [u8]> + Send>;

/// Total memory of a test in bytes.
const MEMORY_BYTES: usize = 32 << 20;

/// Zero-copy and copied bytes arrive in the order of sending, for any split of sends and reads.
pub fn zero_copy_and_copied_bytes_arrive_in_order(
    pair: impl Fn() -> LinkPair,
    memory: impl Fn(usize) -> ZeroCopyMemory,
) {
    for seed in 0..12 {
        let mut random = ConformanceRandom(seed);
        let (first, second) = pair();
        let (mut sender, mut receiver) =
            (ZeroCopySender::new(PatternStream::new(first), memory(MEMORY_BYTES)), PatternStream::new(second));
        for _ in 0..2_000 {
            match random.below(4) {
                0 => sender.stream.send([random.size(), random.size(), 0]),
                1 => drop(sender.send(1 + random.size())),
                2 => drop(receiver.receive(random.size())),
                _ => drop(receiver.peek_and_consume(1, random.size())),
            }
        }
        receiver.drain(sender.stream.sent);
        assert_eq!(sender.stream.link.unreleased_bytes(), Ok(0), "all sends are released (seed {seed})");
    }
}

/// Zero-copy bytes count as released only after the peer has consumed the whole send. A send may exceed any memory of
/// the link. An empty send is refused.
pub fn a_send_is_released_after_its_last_byte_is_consumed(
    pair: impl Fn() -> LinkPair,
    memory: impl Fn(usize) -> ZeroCopyMemory,
) {
    let (first, second) = pair();
    let (mut sender, mut receiver) =
        (ZeroCopySender::new(PatternStream::new(first), memory(MEMORY_BYTES)), PatternStream::new(second));
    assert_eq!(sender.stream.link.send_zero_copy(&[]), Ok(false));
    assert_eq!(sender.stream.link.unreleased_bytes(), Ok(0));
    assert!(sender.send(20 << 20));
    assert!(sender.send(1));
    receiver.drain((20 << 20) - 1);
    assert_eq!(sender.stream.link.unreleased_bytes(), Ok((20 << 20) + 1));
    receiver.drain(20 << 20);
    assert_eq!(sender.stream.link.unreleased_bytes(), Ok(1));
    receiver.drain((20 << 20) + 1);
    drop(receiver);
    assert_eq!(sender.stream.link.unreleased_bytes(), Ok(0));
}

/// A reader of revoked memory gets an error, at the latest at its flush.
pub fn reading_a_revoked_send_is_an_error(pair: impl Fn() -> LinkPair, memory: impl Fn(usize) -> ZeroCopyMemory) {
    let (first, second) = pair();
    let (mut sender, mut receiver) =
        (ZeroCopySender::new(PatternStream::new(first), memory(MEMORY_BYTES)), PatternStream::new(second));
    assert!(sender.send(1_000_000));
    receiver.drain(1_000);
    sender.stream.link.revoke_zero_copy();
    let mut bytes = [0; 500];
    let read = receiver.link.receive(&mut bytes).and_then(|_| receiver.link.flush());
    assert!(read.is_err(), "{read:?}");

    let (first, second) = pair();
    let (mut sender, mut receiver) =
        (ZeroCopySender::new(PatternStream::new(first), memory(MEMORY_BYTES)), PatternStream::new(second));
    assert!(sender.send(1_000_000));
    drop(sender);
    let read = receiver.link.receive(&mut bytes).and_then(|_| receiver.link.flush());
    assert!(read.is_err(), "closing an end revokes its zero-copy sends: {read:?}");

    let (first, second) = pair();
    let mut sender = ZeroCopySender::new(PatternStream::new(first), memory(MEMORY_BYTES));
    assert!(sender.send(1_000_000));
    drop(second);
    eventually(|| sender.stream.link.unreleased_bytes().is_err());
}

/// The reader sleeps until it receives a zero-copy send, and the sender sleeps until the send is released.
pub fn a_parked_end_is_woken_for_sends_and_releases(
    ends: impl Fn() -> (LinkEnd, LinkEnd),
    memory: impl Fn(usize) -> ZeroCopyMemory,
) {
    let (first, second) = ends();
    let memory = memory(MEMORY_BYTES);
    let (rounds, length_bytes) = (1_000, 10_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            let ParkingStream { stream, mut parker } = ParkingStream::new(first);
            let mut sender = ZeroCopySender::new(stream, memory);
            for _ in 0..rounds {
                assert!(sender.send(length_bytes));
                let sent_at = Instant::now();
                while sender.stream.link.unreleased_bytes().unwrap() > 0 {
                    assert!(sent_at.elapsed() < DEADLINE, "the link makes no progress");
                    sender.park(&mut *parker);
                }
            }
        });
        scope.spawn(|| ParkingStream::new(second).receive(rounds * length_bytes as u64));
    });
}

/// A stream with zero-copy sends, and the memory that it sends.
struct ZeroCopySender {
    stream: PatternStream,
    memory: ZeroCopyMemory,
    used: usize,
}

impl ZeroCopySender {
    fn new(mut stream: PatternStream, memory: ZeroCopyMemory) -> Self {
        eventually(|| stream.link.can_send_zero_copy(&memory, SendFlow::Exchange));
        ZeroCopySender { stream, memory, used: 0 }
    }

    fn send(&mut self, count: usize) -> bool {
        let bytes = &mut self.memory[self.used..self.used + count];
        fill(bytes, self.stream.sent);
        let is_sent = self.stream.link.send_zero_copy(bytes).unwrap();
        if is_sent {
            self.stream.sent += count as u64;
            self.used += count;
            self.stream.link.flush().unwrap();
        }
        is_sent
    }

    /// Sleep unless all zero-copy sends are released.
    fn park(&mut self, parker: &mut dyn super::Parker) {
        parker.prepare();
        if self.stream.link.unreleased_bytes().unwrap() > 0 {
            let wait_start = Instant::now();
            parker.park(false, true, super::WAKE_TIMEOUT);
            assert!(wait_start.elapsed() < super::WAKE_TIMEOUT, "a parked end was not woken");
        }
        parker.cancel();
    }
}
