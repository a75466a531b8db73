//! Model-checks the shared-memory protocols: interleavings of two threads, and all values that a weakly ordered memory
//! may return.

use super::atomics::AtomicWord;
use super::doorbell::{announce, claim};
use super::indices::{Consumer, Indices, Producer, ShortMemory, SlotContent};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// Largest number of involuntary context switches in an interleaving, unless `make test-all` sets `RIPIENO_EXHAUSTIVE`.
const PREEMPTIONS_MAX: usize = 4;

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    if std::env::var_os("RIPIENO_EXHAUSTIVE").is_none() {
        builder.preemption_bound = Some(PREEMPTIONS_MAX);
    }
    builder.check(check);
}

impl AtomicWord for AtomicU64 {
    type Inline = UnsafeCell<u8>;
    type Packet = UnsafeCell<u8>;
    const INLINE_BYTES: usize = 1;
    const PACKET_BYTES: usize = 2;

    fn load(&self, ordering: Ordering) -> u64 {
        AtomicU64::load(self, ordering)
    }

    fn store(&self, value: u64, ordering: Ordering) {
        AtomicU64::store(self, value, ordering);
    }

    fn swap(&self, value: u64, ordering: Ordering) -> u64 {
        AtomicU64::swap(self, value, ordering)
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// Two messages may be in flight before the slots wrap around.
const SLOTS: usize = 3;

/// A ring that reports every read and write of its bytes to the checker, and one doorbell.
struct ModelRing<const CAPACITY: usize> {
    indices: Indices<AtomicU64, SLOTS>,
    bytes: [UnsafeCell<u8>; CAPACITY],
    parked: AtomicU64,
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl<const CAPACITY: usize> ModelRing<CAPACITY> {
    fn new() -> Arc<Self> {
        Arc::new(ModelRing {
            indices: Indices::default(),
            bytes: std::array::from_fn(|_| UnsafeCell::new(0)),
            parked: AtomicU64::new(0),
            is_woken: Mutex::new(false),
            woken: Condvar::new(),
        })
    }

    /// Send 1 in a slot, 2 through the ring, and 3 in a packet, where it counts as two bytes.
    fn send(&self, producer: &mut Producer<SLOTS>, byte: u8) -> bool {
        if !producer.accepts(&self.indices, count_of(byte)).unwrap() {
            return false;
        }
        match byte {
            // SAFETY: loom checks that no other thread accesses the slot.
            1 => producer.publish_inline(&self.indices, 1, |slot| slot.with_mut(|place| unsafe { *place = byte })),
            // SAFETY: loom checks that no other thread accesses the packet.
            3 => {
                producer.publish_packet(&self.indices, 2, 1, |packet| packet.with_mut(|place| unsafe { *place = byte }))
            }
            _ => {
                // SAFETY: loom checks that no other thread accesses the byte.
                self.bytes[producer.offset()].with_mut(|place| unsafe { *place = byte });
                producer.advance(1);
                // The flag of streaming stores changes nothing but costs: their fence makes them like the write above.
                producer.mark_streamed();
                producer.publish(&self.indices);
            }
        }
        true
    }

    /// Receive the next message, which is `expected`, as part of the stream.
    fn receive(&self, consumer: &mut Consumer<SLOTS>, expected: u8) -> Option<u8> {
        let count = count_of(expected);
        let arrived = consumer.arrived(&self.indices, count, |content| {
            let (memory, offset) = match content {
                SlotContent::Inline(memory, offset, _) | SlotContent::Packet(memory, offset, _) => (memory, offset),
                SlotContent::ZeroCopy(..) => panic!("nothing is sent without a copy"),
            };
            // SAFETY: loom checks that no other thread accesses the memory or the byte.
            let byte = memory.with(|place| unsafe { *place });
            self.bytes[offset].with_mut(|place| unsafe { *place = byte });
        });
        if arrived.unwrap() < count {
            return None;
        }
        // SAFETY: loom checks that no other thread accesses the byte.
        let byte = self.bytes[consumer.offset()].with(|place| unsafe { *place });
        consumer.release(&self.indices, count);
        Some(byte)
    }

    /// Receive a short message from its slot or packet, and other bytes through the ring.
    fn receive_short(&self, consumer: &mut Consumer<SLOTS>, expected: u8) -> Option<u8> {
        let count = count_of(expected);
        let Some(memory) = consumer.short_message(&self.indices, count) else {
            return if expected == 2 { self.receive(consumer, expected) } else { None };
        };
        let (ShortMemory::Inline(memory) | ShortMemory::Packet(memory)) = memory;
        // SAFETY: loom checks that no other thread accesses the memory.
        let byte = memory.with(|place| unsafe { *place });
        consumer.consume_short(&self.indices, count);
        consumer.release(&self.indices, count);
        Some(byte)
    }

    fn wake_after_fence(&self) {
        if claim(&self.parked) {
            *self.is_woken.lock().unwrap() = true;
            self.woken.notify_one();
        }
    }

    /// Try, park and try again, as the executor does. The checker reports a lost wake-up as a deadlock.
    fn until<T>(&self, mut attempt: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(done) = attempt() {
                return done;
            }
            announce(&self.parked);
            let done = attempt();
            if done.is_none() {
                let mut is_woken = self.is_woken.lock().unwrap();
                while !*is_woken {
                    is_woken = self.woken.wait(is_woken).unwrap();
                }
                *is_woken = false;
            }
            self.parked.swap(0, Ordering::Relaxed);
            if let Some(done) = done {
                return done;
            }
        }
    }
}

#[test]
fn bytes_arrive_once_in_order_and_are_never_shared() {
    check_arrival(ModelRing::receive);
}

#[test]
fn short_messages_arrive_once_in_order_and_are_never_shared() {
    check_arrival(ModelRing::receive_short);
}

/// Return the number of bytes that the message `byte` occupies in the stream.
fn count_of(byte: u8) -> usize {
    if byte == 3 { 2 } else { 1 }
}

fn check_arrival(receive: fn(&ModelRing<2>, &mut Consumer<SLOTS>, u8) -> Option<u8>) {
    model(move || {
        let shared = ModelRing::<2>::new();
        let peer = shared.clone();
        let sender = thread::spawn(move || {
            let mut producer = Producer::new(2);
            for byte in 1..=3 {
                while !peer.send(&mut producer, byte) {
                    thread::yield_now();
                }
            }
        });
        let mut consumer = Consumer::new(2);
        for expected in 1..=3 {
            let byte = loop {
                match receive(&shared, &mut consumer, expected) {
                    Some(byte) => break byte,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(byte, expected);
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_rank_parked_for_bytes_is_always_woken() {
    model(|| {
        let shared = ModelRing::<2>::new();
        let peer = shared.clone();
        let sender = thread::spawn(move || {
            let mut producer = Producer::new(2);
            for byte in 1..=2 {
                assert!(peer.send(&mut producer, byte));
                AtomicU64::fence();
                peer.wake_after_fence();
            }
        });
        let mut consumer = Consumer::new(2);
        for expected in 1..=2 {
            assert_eq!(shared.until(|| shared.receive(&mut consumer, expected)), expected);
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_rank_parked_for_space_is_always_woken() {
    model(|| {
        let shared = ModelRing::<1>::new();
        let mut producer = Producer::new(1);
        assert!(shared.send(&mut producer, 1));
        let peer = shared.clone();
        let receiver = thread::spawn(move || {
            let mut consumer = Consumer::new(1);
            assert_eq!(peer.receive(&mut consumer, 1), Some(1));
            AtomicU64::fence();
            if consumer.producer_is_starved(&peer.indices) {
                peer.wake_after_fence();
            }
        });
        shared.until(|| {
            let sent = shared.send(&mut producer, 2);
            producer.set_starved(&shared.indices, !sent);
            sent.then_some(())
        });
        receiver.join().unwrap();
    });
}
