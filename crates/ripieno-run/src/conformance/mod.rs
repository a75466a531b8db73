//! Conformance suite for links: laws that every link must satisfy.
//!
//! A law takes a constructor of connected pairs. [`link_laws!`](crate::link_laws) generates a test of each law for one
//! kind of link. A small capacity of a few KiB reaches the corner cases sooner.

pub mod zero_copy;

use crate::link::{Link, LinkError};
use std::thread;
use std::time::{Duration, Instant};

/// A connected pair of links.
pub type LinkPair = (Box<dyn Link>, Box<dyn Link>);

/// One end of a link, and the parker of its owner.
pub struct LinkEnd {
    /// The link.
    pub link: Box<dyn Link>,
    /// The parker of its owner.
    pub parker: Box<dyn Parker>,
}

/// Lets the owner of a link sleep until the link may have progressed.
pub trait Parker: Send {
    /// Request a wake-up by the peer. The owner tries once more before it sleeps.
    fn prepare(&mut self);
    /// Sleep until the link may have bytes (`readable`) or space (`writable`), or `timeout` has passed.
    fn park(&mut self, readable: bool, writable: bool, timeout: Duration);
    /// Cancel `prepare`.
    fn cancel(&mut self);
}

/// Generate a test of each zero-copy law, for links with zero-copy sends.
#[macro_export]
macro_rules! zero_copy_laws {
    ($pair:expr, $ends:expr, $memory:expr) => {
        #[test]
        fn zero_copy_and_copied_bytes_arrive_in_order() {
            $crate::conformance::zero_copy::zero_copy_and_copied_bytes_arrive_in_order($pair, $memory);
        }
        #[test]
        fn a_send_is_released_after_its_last_byte_is_consumed() {
            $crate::conformance::zero_copy::a_send_is_released_after_its_last_byte_is_consumed($pair, $memory);
        }
        #[test]
        fn reading_a_revoked_send_is_an_error() {
            $crate::conformance::zero_copy::reading_a_revoked_send_is_an_error($pair, $memory);
        }
        #[test]
        fn a_parked_end_is_woken_for_sends_and_releases() {
            $crate::conformance::zero_copy::a_parked_end_is_woken_for_sends_and_releases($ends, $memory);
        }
    };
}

/// Generate a test of each link law, for the links constructed by `$pair: fn() -> LinkPair` and `$ends: fn() ->
/// (LinkEnd, LinkEnd)`.
#[macro_export]
macro_rules! link_laws {
    ($pair:expr, $ends:expr) => {
        $crate::link_laws!(@pair $pair;
            bytes_arrive_once_and_in_order,
            a_full_link_accepts_no_bytes_until_it_has_space,
            peek_returns_contiguous_elements_at_any_position,
            peek_returns_fewer_bytes_until_enough_have_arrived,
            empty_sends_and_receives_return_zero,
            a_close_is_detected_after_all_sent_bytes,
            a_message_truncated_by_a_close_is_an_error,
            a_long_stream_arrives_completely,
            both_directions_progress_concurrently,
        );
        #[test]
        fn a_parked_end_is_woken_for_bytes() {
            $crate::conformance::a_parked_end_is_woken_for_bytes($ends);
        }
        #[test]
        fn a_parked_end_is_woken_for_space() {
            $crate::conformance::a_parked_end_is_woken_for_space($ends);
        }
        #[test]
        fn a_parked_end_is_woken_by_a_close() {
            $crate::conformance::a_parked_end_is_woken_by_a_close($ends);
        }
    };
    (@pair $pair:expr; $($law:ident,)*) => {
        $(#[test]
        fn $law() {
            $crate::conformance::$law($pair);
        })*
    };
}

/// Maximum time without progress in a law.
const DEADLINE: Duration = Duration::from_secs(60);

/// A parked end that sleeps this long was not woken.
const WAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Any split of a stream into sends, receives and peeks, in both directions, yields the stream.
pub fn bytes_arrive_once_and_in_order(pair: impl Fn() -> LinkPair) {
    for seed in 0..12 {
        let mut random = ConformanceRandom(seed);
        let (first, second) = pair();
        let mut ends = [PatternStream::new(first), PatternStream::new(second)];
        for _ in 0..2_000 {
            let end = &mut ends[random.below(2)];
            match random.below(3) {
                0 => end.send([random.size(), random.size(), random.size()]),
                1 => drop(end.receive(random.size())),
                _ => drop(end.peek_and_consume(1 + random.below(64), random.size())),
            }
            let end = &mut ends[random.below(2)];
            match random.below(2) {
                0 => end.send_message([random.below(60), random.message_size()]),
                _ => end.receive_message(1 + random.below(60) + random.message_size()),
            }
        }
        let [first, second] = &mut ends;
        first.drain(second.sent);
        second.drain(first.sent);
        assert_eq!(first.link.receive(&mut [0; 8]), Ok(0), "nothing is left (seed {seed})");
    }
}

/// A full link accepts 0 bytes and does not block. Once it has space, it continues where it stopped.
pub fn a_full_link_accepts_no_bytes_until_it_has_space(pair: impl Fn() -> LinkPair) {
    let (first, second) = pair();
    let (mut sender, mut receiver) = (PatternStream::new(first), PatternStream::new(second));
    for _ in 0..3 {
        let mut refusals = 0;
        while refusals < 50 {
            let before = sender.sent;
            sender.send([100_000, 0, 1]);
            // The operating system moves bytes in the background for a while.
            refusals = if sender.sent == before { refusals + 1 } else { 0 };
            assert!(sender.sent < 1 << 30, "a link holds a bounded number of bytes");
            thread::yield_now();
        }
        receiver.drain(sender.sent);
    }
}

/// `peek` returns contiguous elements of any size at any position of the stream.
pub fn peek_returns_contiguous_elements_at_any_position(pair: impl Fn() -> LinkPair) {
    let (first, second) = pair();
    let (mut sender, mut receiver) = (PatternStream::new(first), PatternStream::new(second));
    for step in 0..20_000 {
        let size = 1 + (step * 7) % 64;
        sender.send_all(size);
        eventually(|| receiver.peek_and_consume(size, size) >= size);
        assert_eq!(receiver.received, sender.sent);
    }
}

/// `peek` returns fewer bytes than requested until enough have arrived, and consumes none.
pub fn peek_returns_fewer_bytes_until_enough_have_arrived(pair: impl Fn() -> LinkPair) {
    for min_bytes in 1..=64 {
        let (first, second) = pair();
        let (mut sender, mut receiver) = (PatternStream::new(first), PatternStream::new(second));
        sender.send_all(min_bytes - 1);
        assert!(receiver.peek_and_consume(min_bytes, 0) < min_bytes);
        sender.send_all(1);
        eventually(|| receiver.peek_and_consume(min_bytes, 0) >= min_bytes);
        assert_eq!(receiver.peek_and_consume(min_bytes, 0), min_bytes, "a second peek returns the same bytes");
        receiver.drain(sender.sent);
    }
}

/// Empty sends and receives return 0, with and without bytes on the link.
pub fn empty_sends_and_receives_return_zero(pair: impl Fn() -> LinkPair) {
    let (first, second) = pair();
    let (mut sender, mut receiver) = (PatternStream::new(first), PatternStream::new(second));
    for _ in 0..2 {
        assert_eq!(sender.link.send(&[]), Ok(0));
        assert_eq!(sender.link.send(&[&[], &[]]), Ok(0));
        assert_eq!(receiver.link.receive(&mut []), Ok(0));
        receiver.link.consume(0);
        sender.send_all(5);
    }
    receiver.drain(10);
}

/// After one end closes, the other end first receives every byte and then detects the close.
pub fn a_close_is_detected_after_all_sent_bytes(pair: impl Fn() -> LinkPair) {
    for send_bytes in [0, 1, 1_000, 50_000] {
        let (first, second) = pair();
        let (mut sender, mut receiver) = (PatternStream::new(first), PatternStream::new(second));
        sender.send([send_bytes, 0, 0]);
        sender.link.flush().unwrap();
        let sent = sender.sent;
        drop(sender);

        receiver.drain(sent);
        eventually(|| receiver.link.receive(&mut [0; 8]).is_err());
        assert!(matches!(receiver.link.receive(&mut [0; 8]), Err(LinkError::Closed { .. })), "closed stays closed");
        assert!(matches!(receiver.link.peek(1), Err(LinkError::Closed { .. })), "closed stays closed");
        eventually(|| receiver.link.send(&[&[0; 4096]]).is_err());
    }
}

/// Sent bytes can be read after a close, but a peek for more bytes than will ever arrive is an error.
pub fn a_message_truncated_by_a_close_is_an_error(pair: impl Fn() -> LinkPair) {
    let (first, second) = pair();
    let (mut sender, mut receiver) = (PatternStream::new(first), PatternStream::new(second));
    sender.send_all(3);
    drop(sender);

    eventually(|| receiver.link.peek(8).is_err());
    assert_eq!(receiver.peek_and_consume(3, 1), 3);
    receiver.drain(3);
}

/// Transfer 64 MiB from one thread to another.
pub fn a_long_stream_arrives_completely(pair: impl Fn() -> LinkPair) {
    let (first, second) = pair();
    let total_bytes = 64 << 20;
    thread::scope(|scope| {
        scope.spawn(|| PatternStream::new(first).exchange(total_bytes, 0));
        scope.spawn(|| PatternStream::new(second).exchange(0, total_bytes));
    });
}

/// Transfer 16 MiB in each direction between two threads that both send and receive.
pub fn both_directions_progress_concurrently(pair: impl Fn() -> LinkPair) {
    let (first, second) = pair();
    let total_bytes = 16 << 20;
    thread::scope(|scope| {
        scope.spawn(|| PatternStream::new(first).exchange(total_bytes, total_bytes));
        scope.spawn(|| PatternStream::new(second).exchange(total_bytes, total_bytes));
    });
}

/// Two ends exchange replies and sleep as soon as they have no work. No wake-up is lost.
pub fn a_parked_end_is_woken_for_bytes(ends: impl Fn() -> (LinkEnd, LinkEnd)) {
    let (first, second) = ends();
    let rounds = 3_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut end = ParkingStream::new(first);
            for _ in 0..rounds {
                end.stream.send_all(8);
                end.receive(8);
            }
        });
        scope.spawn(|| {
            let mut end = ParkingStream::new(second);
            for _ in 0..rounds {
                end.receive(8);
                end.stream.send_all(8);
            }
        });
    });
}

/// A sender that sleeps on a full link continues when the receiver has consumed bytes.
pub fn a_parked_end_is_woken_for_space(ends: impl Fn() -> (LinkEnd, LinkEnd)) {
    let (first, second) = ends();
    let total_bytes = 32 << 20;
    thread::scope(|scope| {
        scope.spawn(|| ParkingStream::new(first).send(total_bytes));
        scope.spawn(|| ParkingStream::new(second).receive(total_bytes));
    });
}

/// A sleeping end detects the close of the other end.
pub fn a_parked_end_is_woken_by_a_close(ends: impl Fn() -> (LinkEnd, LinkEnd)) {
    for _ in 0..50 {
        let (first, second) = ends();
        thread::scope(|scope| {
            scope.spawn(|| drop(first));
            scope.spawn(|| {
                let mut end = ParkingStream::new(second);
                end.park_until(true, false, |stream| stream.link.receive(&mut [0; 8]).is_err());
            });
        });
    }
}

/// A stream in which each byte is a function of its position.
struct PatternStream {
    link: Box<dyn Link>,
    sent: u64,
    received: u64,
    buffer: Vec<u8>,
}

impl PatternStream {
    fn new(link: Box<dyn Link>) -> Self {
        PatternStream { link, sent: 0, received: 0, buffer: Vec::new() }
    }

    /// Send as much as the link accepts of three parts of these sizes.
    fn send(&mut self, sizes: [usize; 3]) {
        let total = sizes.iter().sum();
        self.buffer.resize(total, 0);
        fill(&mut self.buffer, self.sent);
        let (first, rest) = self.buffer.split_at(sizes[0]);
        let (second, third) = rest.split_at(sizes[1]);
        let accepted = self.link.send(&[first, second, third]).unwrap();
        assert!(accepted <= total, "a link accepts no more than it is offered");
        self.sent += accepted as u64;
        self.link.flush().unwrap();
    }

    /// Send a message of two parts of these sizes, if the link accepts messages now.
    fn send_message(&mut self, sizes: [usize; 2]) {
        self.buffer.resize(sizes[0] + sizes[1], 0);
        fill(&mut self.buffer, self.sent);
        let (head, body) = self.buffer.split_at(sizes[0]);
        if self.link.send_message(&[head, body]) {
            self.sent += self.buffer.len() as u64;
        }
    }

    /// Consume a message of `count` bytes, if the link returns one.
    fn receive_message(&mut self, count: usize) {
        if let Some(peeked) = self.link.message(count, 2) {
            assert_eq!(peeked.len(), count, "a message is returned completely");
            check(peeked, self.received);
            self.link.end_message(count);
            self.received += count as u64;
        }
    }

    fn send_all(&mut self, count: usize) {
        let end = self.sent + count as u64;
        eventually(|| {
            self.send([(end - self.sent) as usize, 0, 0]);
            self.sent == end
        });
    }

    fn receive(&mut self, max_bytes: usize) -> usize {
        self.buffer.resize(max_bytes, 0);
        let count = self.link.receive(&mut self.buffer).unwrap();
        check(&self.buffer[..count], self.received);
        self.received += count as u64;
        self.link.flush().unwrap();
        count
    }

    /// Peek for `min_bytes` bytes and consume at most `max_bytes` of them. Return the number of peeked bytes.
    fn peek_and_consume(&mut self, min_bytes: usize, max_bytes: usize) -> usize {
        let peeked = self.link.peek(min_bytes).unwrap();
        let peeked_count = peeked.len();
        check(peeked, self.received);
        let count = peeked_count.min(max_bytes);
        self.link.consume(count);
        self.received += count as u64;
        self.link.flush().unwrap();
        peeked_count
    }

    fn drain(&mut self, end: u64) {
        eventually(|| {
            let left = (end - self.received) as usize;
            self.receive(left.min(1 << 16));
            self.received == end
        });
    }

    /// Send and receive the given numbers of bytes, each direction as far as it can progress.
    fn exchange(mut self, send_bytes: u64, receive_bytes: u64) {
        let (mut offered, mut moved) = (0, Instant::now());
        while self.sent < send_bytes || self.received < receive_bytes {
            let before = (self.sent, self.received);
            self.send([(send_bytes - self.sent).min(offered) as usize, 0, 0]);
            self.receive((receive_bytes - self.received).min(100_000) as usize);
            // The offered size follows the accepted size, because generating bytes costs time.
            offered = (2 * (self.sent - before.0)).clamp(1_000, 100_000);
            if before == (self.sent, self.received) {
                assert!(moved.elapsed() < DEADLINE, "the link makes no progress");
                thread::yield_now();
            } else {
                moved = Instant::now();
            }
        }
    }
}

/// A stream whose owner parks when the stream makes no progress.
struct ParkingStream {
    stream: PatternStream,
    parker: Box<dyn Parker>,
}

impl ParkingStream {
    fn new(end: LinkEnd) -> Self {
        ParkingStream { stream: PatternStream::new(end.link), parker: end.parker }
    }

    fn receive(&mut self, count: u64) {
        let end = self.stream.received + count;
        while self.stream.received < end {
            self.park_until(true, false, |stream| stream.receive((end - stream.received).min(1 << 16) as usize) > 0);
        }
    }

    fn send(&mut self, count: u64) {
        let end = self.stream.sent + count;
        while self.stream.sent < end {
            self.park_until(false, true, |stream| {
                let before = stream.sent;
                stream.send([(end - stream.sent).min(1 << 16) as usize, 0, 0]);
                stream.sent > before
            });
        }
    }

    fn park_until(&mut self, readable: bool, writable: bool, mut attempt: impl FnMut(&mut PatternStream) -> bool) {
        while !attempt(&mut self.stream) {
            self.parker.prepare();
            let moved = attempt(&mut self.stream);
            if !moved {
                let wait_start = Instant::now();
                self.parker.park(readable, writable, WAKE_TIMEOUT);
                assert!(wait_start.elapsed() < WAKE_TIMEOUT, "a parked end was not woken");
            }
            self.parker.cancel();
            if moved {
                return;
            }
        }
    }
}

fn eventually(mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < DEADLINE, "the link makes no progress");
    }
}

/// Return the byte at a position of every stream.
fn byte_at(position: u64) -> u8 {
    (position.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn fill(bytes: &mut [u8], position: u64) {
    for (byte, position) in bytes.iter_mut().zip(position..) {
        *byte = byte_at(position);
    }
}

fn check(bytes: &[u8], position: u64) {
    let wrong = bytes.iter().zip(position..).find(|&(&byte, position)| byte != byte_at(position));
    assert_eq!(wrong.map(|(_, position)| position), None, "position of the first wrong byte");
}

/// Splitmix64 random numbers.
struct ConformanceRandom(u64);

impl ConformanceRandom {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    /// Return a random size: often a few bytes, sometimes 0, sometimes some KiB.
    fn size(&mut self) -> usize {
        let end = [1, 9, 100, 5_000, 70_000][self.below(5)];
        self.below(end)
    }

    /// Return a random size of a message: a few bytes or some KiB.
    fn message_size(&mut self) -> usize {
        let end = [60, 3_000][self.below(2)];
        self.below(end)
    }
}
