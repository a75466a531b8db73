//! Additional conformance tests for links with zero-copy sends.

use super::{ConformanceRandom, DEADLINE, LinkEnd, LinkPair, PatternStream, Sleeping, eventually, fill};
use std::ops::DerefMut;
use std::thread;
use std::time::Instant;

/// Memory that a link can send without a copy.
pub type LendingLink = Box<dyn DerefMut<Target = [u8]> + Send>;

/// Total memory of a test in bytes.
const MEMORY_BYTES: usize = 32 << 20;

/// Zero-copy and copied bytes arrive in the order of sending, however they are split and read.
pub fn lent_and_sent_bytes_arrive_in_order(pair: impl Fn() -> LinkPair, memory: impl Fn(usize) -> LendingLink) {
    for seed in 0..12 {
        let mut random = ConformanceRandom(seed);
        let (first, second) = pair();
        let (mut lender, mut borrower) =
            (Lender::new(PatternStream::new(first), memory(MEMORY_BYTES)), PatternStream::new(second));
        for _ in 0..2_000 {
            match random.below(4) {
                0 => lender.stream.send([random.size(), random.size(), 0]),
                1 => drop(lender.lend(1 + random.size())),
                2 => drop(borrower.receive(random.size())),
                _ => drop(borrower.peek_and_consume(1, random.size())),
            }
        }
        borrower.drain(lender.stream.sent);
        assert_eq!(lender.stream.link.lent_bytes(), Ok(0), "all was returned (seed {seed})");
    }
}

/// Zero-copy bytes count as released only after the peer has consumed the whole send. A send may exceed any memory of
/// the link. An empty send is refused.
pub fn a_loan_is_out_until_all_of_it_was_taken(pair: impl Fn() -> LinkPair, memory: impl Fn(usize) -> LendingLink) {
    let (first, second) = pair();
    let (mut lender, mut borrower) =
        (Lender::new(PatternStream::new(first), memory(MEMORY_BYTES)), PatternStream::new(second));
    assert_eq!(lender.stream.link.lend(&[]), Ok(false));
    assert_eq!(lender.stream.link.lent_bytes(), Ok(0));
    assert!(lender.lend(20 << 20));
    assert!(lender.lend(1));
    borrower.drain((20 << 20) - 1);
    assert_eq!(lender.stream.link.lent_bytes(), Ok((20 << 20) + 1));
    borrower.drain(20 << 20);
    assert_eq!(lender.stream.link.lent_bytes(), Ok(1));
    borrower.drain((20 << 20) + 1);
    drop(borrower);
    assert_eq!(lender.stream.link.lent_bytes(), Ok(0));
}

/// A reader of revoked memory gets an error, at the latest at its flush.
pub fn revoked_bytes_are_not_trusted(pair: impl Fn() -> LinkPair, memory: impl Fn(usize) -> LendingLink) {
    let (first, second) = pair();
    let (mut lender, mut borrower) =
        (Lender::new(PatternStream::new(first), memory(MEMORY_BYTES)), PatternStream::new(second));
    assert!(lender.lend(1_000_000));
    borrower.drain(1_000);
    lender.stream.link.recall();
    let mut bytes = [0; 500];
    let read = borrower.link.receive(&mut bytes).and_then(|_| borrower.link.flush());
    assert!(read.is_err(), "{read:?}");

    let (first, second) = pair();
    let (mut lender, mut borrower) =
        (Lender::new(PatternStream::new(first), memory(MEMORY_BYTES)), PatternStream::new(second));
    assert!(lender.lend(1_000_000));
    drop(lender);
    let read = borrower.link.receive(&mut bytes).and_then(|_| borrower.link.flush());
    assert!(read.is_err(), "an end that closes takes back what it has lent: {read:?}");

    let (first, second) = pair();
    let mut lender = Lender::new(PatternStream::new(first), memory(MEMORY_BYTES));
    assert!(lender.lend(1_000_000));
    drop(second);
    eventually(|| lender.stream.link.lent_bytes().is_err());
}

/// The reader sleeps until it receives a zero-copy send, and the sender sleeps until the send is released.
pub fn an_end_that_sleeps_is_woken_for_loans_and_their_return(
    ends: impl Fn() -> (LinkEnd, LinkEnd),
    memory: impl Fn(usize) -> LendingLink,
) {
    let (first, second) = ends();
    let memory = memory(MEMORY_BYTES);
    let (rounds, length_bytes) = (1_000, 10_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            let Sleeping { stream, mut sleeper } = Sleeping::new(first);
            let mut lender = Lender::new(stream, memory);
            for _ in 0..rounds {
                assert!(lender.lend(length_bytes));
                let lent = Instant::now();
                while lender.stream.link.lent_bytes().unwrap() > 0 {
                    assert!(lent.elapsed() < DEADLINE, "the link stands still");
                    lender.sleep(&mut *sleeper);
                }
            }
        });
        scope.spawn(|| Sleeping::new(second).take(rounds * length_bytes as u64));
    });
}

/// A stream with zero-copy sends, and the memory that it sends.
struct Lender {
    stream: PatternStream,
    memory: LendingLink,
    used: usize,
}

impl Lender {
    fn new(stream: PatternStream, memory: LendingLink) -> Self {
        eventually(|| stream.link.lends(&memory));
        Lender { stream, memory, used: 0 }
    }

    fn lend(&mut self, count: usize) -> bool {
        let bytes = &mut self.memory[self.used..self.used + count];
        fill(bytes, self.stream.sent);
        let is_lent = self.stream.link.lend(bytes).unwrap();
        if is_lent {
            self.stream.sent += count as u64;
            self.used += count;
            self.stream.link.flush().unwrap();
        }
        is_lent
    }

    /// Sleep unless all zero-copy sends are released.
    fn sleep(&mut self, sleeper: &mut dyn super::Sleeper) {
        sleeper.prepare();
        if self.stream.link.lent_bytes().unwrap() > 0 {
            let wait_start = Instant::now();
            sleeper.sleep(false, true, super::LOST_WAKE);
            assert!(wait_start.elapsed() < super::LOST_WAKE, "a sleeping end was not woken");
        }
        sleeper.cancel();
    }
}
