//! A lock-free ring buffer of the collectives that a rank enters. The rank writes it, and the monitor reads it
//! occasionally.
//!
//! There is one writer; readers hold a lock. Slots are reused in turn. A reader checks the count to detect slots that
//! the writer may have overwritten during the read.

use crate::links::AtomicWord;
use ripieno_run::{HEADER_BYTES, Header};
use std::sync::atomic::Ordering::{Acquire, Release};

/// Words of a header.
const WORD_COUNT: usize = 4;
/// Number of slots, more than the history has entries.
const SLOT_COUNT: usize = 128;

/// The latest headers, in their wire encoding.
pub(crate) struct EnteredCalls<W, const COUNT: usize = SLOT_COUNT> {
    slots: [[W; WORD_COUNT]; COUNT],
    count: W,
}

impl<W: AtomicWord + Default, const COUNT: usize> Default for EnteredCalls<W, COUNT> {
    fn default() -> Self {
        let slots = std::array::from_fn(|_| std::array::from_fn(|_| W::default()));
        EnteredCalls { slots, count: W::default() }
    }
}

impl<W: AtomicWord, const COUNT: usize> EnteredCalls<W, COUNT> {
    /// Store a header as number `count`. Only one thread may call this.
    #[inline]
    pub fn note(&self, count: u64, header: &[u8; HEADER_BYTES]) {
        self.write(count, words(header));
    }

    /// Pass the remaining headers from number `from` on to `take`, and return the number of headers written so far.
    pub fn read(&self, from: u64, mut take: impl FnMut(Header)) -> u64 {
        let (snapshot, count) = self.snapshot(from);
        // A completely written slot contains a valid header.
        snapshot.into_iter().filter_map(header).for_each(&mut take);
        count
    }

    pub(crate) fn write(&self, count: u64, words: [u64; WORD_COUNT]) {
        let place = &self.slots[count as usize % COUNT];
        for (at, word) in place.iter().zip(words) {
            // Release: a reader of this word of a later round also sees the count of the rounds before it.
            at.store(word, Release);
        }
        self.count.store(count + 1, Release);
    }

    pub(crate) fn snapshot(&self, from: u64) -> (Vec<[u64; WORD_COUNT]>, u64) {
        let count = self.count.load(Acquire);
        let first = from.max(count.saturating_sub(COUNT as u64));
        let word = |number: u64, at: usize| self.slots[number as usize % COUNT][at].load(Acquire);
        let mut snapshot: Vec<[u64; WORD_COUNT]> =
            (first..count).map(|number| std::array::from_fn(|at| word(number, at))).collect();
        // The header in progress overwrites the header that is `COUNT` positions older.
        let oldest = (self.count.load(Acquire) + 1).saturating_sub(COUNT as u64);
        snapshot.drain(..(oldest.saturating_sub(first) as usize).min(snapshot.len()));
        (snapshot, count)
    }
}

#[inline]
fn words(bytes: &[u8; HEADER_BYTES]) -> [u64; WORD_COUNT] {
    std::array::from_fn(|at| u64::from_le_bytes(*bytes[8 * at..].first_chunk().expect("a header has four words")))
}

fn header(words: [u64; WORD_COUNT]) -> Option<Header> {
    let mut bytes = [0; 8 * WORD_COUNT];
    bytes.chunks_exact_mut(8).zip(words).for_each(|(at, word)| at.copy_from_slice(&word.to_le_bytes()));
    Header::decode(&bytes)
}

const _: () = assert!(8 * WORD_COUNT == HEADER_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;

    #[test]
    fn headers_are_read_completely() {
        loom::model(|| {
            let entered = Arc::new(EnteredCalls::<AtomicU64, 2>::default());
            let rank = entered.clone();
            let writer = thread::spawn(move || (0..3).for_each(|count| rank.write(count, [count; WORD_COUNT])));

            let (snapshot, count) = entered.snapshot(0);

            let first = count - snapshot.len() as u64;
            let expected: Vec<_> = (first..count).map(|number| [number; WORD_COUNT]).collect();
            assert_eq!(snapshot, expected);
            writer.join().unwrap();
            // One slot may belong to the header in progress.
            assert_eq!(entered.snapshot(1), (vec![[2; WORD_COUNT]], 3));
        });
    }
}
