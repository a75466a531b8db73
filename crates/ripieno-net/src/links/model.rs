//! Model-checks the shared-memory protocols: all interleavings of two threads, and all values that a weakly ordered
//! memory may return.

use super::atomics::AtomicWord;
use super::doorbell::{announce, claim};
use super::indices::{Consumer, Indices, NoteResult, Producer};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

impl AtomicWord for AtomicU64 {
    type Inline = UnsafeCell<u8>;
    const INLINE_BYTES: usize = 1;

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
const NOTES: usize = 3;

/// A ring that reports every read and write of its bytes to the checker, and one doorbell.
struct ModelRing<const CAPACITY: usize> {
    indices: Indices<AtomicU64, NOTES>,
    bytes: [UnsafeCell<u8>; CAPACITY],
    parked: AtomicU64,
    rung: Mutex<bool>,
    bell: Condvar,
}

impl<const CAPACITY: usize> ModelRing<CAPACITY> {
    fn new() -> Arc<Self> {
        Arc::new(ModelRing {
            indices: Indices::default(),
            bytes: std::array::from_fn(|_| UnsafeCell::new(0)),
            parked: AtomicU64::new(0),
            rung: Mutex::new(false),
            bell: Condvar::new(),
        })
    }

    /// Send odd bytes in a slot, even bytes through the ring.
    fn send(&self, producer: &mut Producer<NOTES>, byte: u8) -> bool {
        if producer.room(&self.indices, 1).unwrap() == 0 {
            return false;
        }
        if byte % 2 == 1 {
            // SAFETY: loom checks that no other thread accesses the slot.
            producer.publish_inline(&self.indices, 1, |note| note.with_mut(|place| unsafe { *place = byte }));
            return true;
        }
        // SAFETY: loom checks that no other thread accesses the byte.
        self.bytes[producer.offset()].with_mut(|place| unsafe { *place = byte });
        producer.advance(1);
        // The flag of streaming stores changes nothing but costs: their fence makes them like the write above.
        producer.mark_streamed();
        producer.publish(&self.indices);
        true
    }

    fn receive(&self, consumer: &mut Consumer<NOTES>) -> Option<u8> {
        let arrived = consumer.arrived(&self.indices, 1, |note, told| {
            let NoteResult::Bytes(offset, _) = told else { panic!("nothing is lent") };
            // SAFETY: loom checks that no other thread accesses the slot or the byte.
            let byte = note.with(|place| unsafe { *place });
            self.bytes[offset].with_mut(|place| unsafe { *place = byte });
        });
        if arrived.unwrap() == 0 {
            return None;
        }
        // SAFETY: loom checks that no other thread accesses the byte.
        let byte = self.bytes[consumer.offset()].with(|place| unsafe { *place });
        consumer.release(&self.indices, 1);
        Some(byte)
    }

    /// Receive inline bytes from their slot, and all other bytes through the ring.
    fn receive_noted(&self, consumer: &mut Consumer<NOTES>) -> Option<u8> {
        let Some(note) = consumer.noted(&self.indices, 1) else { return self.receive(consumer) };
        // SAFETY: loom checks that no other thread accesses the slot.
        let byte = note.with(|place| unsafe { *place });
        consumer.take_noted(&self.indices, 1);
        consumer.release(&self.indices, 1);
        Some(byte)
    }

    fn ring_after_fence(&self) {
        if claim(&self.parked) {
            *self.rung.lock().unwrap() = true;
            self.bell.notify_one();
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
                let mut rung = self.rung.lock().unwrap();
                while !*rung {
                    rung = self.bell.wait(rung).unwrap();
                }
                *rung = false;
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
    all_arrive_by(ModelRing::receive);
}

#[test]
fn so_do_those_that_are_taken_from_their_notes() {
    all_arrive_by(ModelRing::receive_noted);
}

fn all_arrive_by(receive: fn(&ModelRing<2>, &mut Consumer<NOTES>) -> Option<u8>) {
    loom::model(move || {
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
                match receive(&shared, &mut consumer) {
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
    loom::model(|| {
        let shared = ModelRing::<2>::new();
        let peer = shared.clone();
        let sender = thread::spawn(move || {
            let mut producer = Producer::new(2);
            for byte in 1..=2 {
                assert!(peer.send(&mut producer, byte));
                AtomicU64::fence();
                peer.ring_after_fence();
            }
        });
        let mut consumer = Consumer::new(2);
        for expected in 1..=2 {
            assert_eq!(shared.until(|| shared.receive(&mut consumer)), expected);
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_rank_parked_for_room_is_always_woken() {
    loom::model(|| {
        let shared = ModelRing::<1>::new();
        let mut producer = Producer::new(1);
        assert!(shared.send(&mut producer, 1));
        let peer = shared.clone();
        let receiver = thread::spawn(move || {
            let mut consumer = Consumer::new(1);
            assert_eq!(peer.receive(&mut consumer), Some(1));
            AtomicU64::fence();
            if consumer.producer_is_starved(&peer.indices) {
                peer.ring_after_fence();
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
