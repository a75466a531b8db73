//! A table that numbers distinct integers.
//!
//! Open addressing with linear probing over slots that hold key and number, so that a look-up reads one cache line.
//! Cost: 16 bytes per slot at a load of at most one half, and 8 bytes per key.

/// The number of a slot that holds no key.
const VACANT: u32 = u32::MAX;
/// Slots of a table with its first key.
const FIRST_SLOTS: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: i64,
    number: u32,
}

const VACANT_SLOT: Slot = Slot { key: 0, number: VACANT };

/// Numbers distinct keys 0, 1, 2 … in order of first appearance.
///
/// Equal keys must come with equal hashes; which function makes them is up to the caller.
///
/// ```
/// use ripieno_kernels::keyed::{IntTable, hash_int};
///
/// let (mut table, mut numbers) = (IntTable::new(), Vec::new());
/// let keys = [70, -3, 70];
/// table.number_all(&keys, &keys.map(hash_int), &mut numbers);
/// assert_eq!((numbers.as_slice(), table.keys()), (&[0, 1, 0][..], &[70, -3][..]));
/// ```
#[derive(Clone, Debug, Default)]
pub struct IntTable {
    slots: Vec<Slot>,
    keys: Vec<i64>,
}

impl IntTable {
    /// A table of no keys, without memory.
    pub fn new() -> IntTable {
        IntTable::default()
    }

    /// How many distinct keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys by number.
    pub fn keys(&self) -> &[i64] {
        &self.keys
    }

    /// The keys by number; the table is gone.
    pub fn into_keys(self) -> Vec<i64> {
        self.keys
    }

    /// The memory that the table has taken.
    pub fn size_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.keys.capacity() * size_of::<i64>()
    }

    /// Forgets the keys and keeps the memory.
    pub fn clear(&mut self) {
        self.slots.fill(VACANT_SLOT);
        self.keys.clear();
    }

    /// Appends the numbers of `keys`, whose hashes are `hashes`, to `into`.
    ///
    /// # Panics
    /// If there is not a hash for each key, or there are 2^32 - 1 distinct keys.
    pub fn number_all(&mut self, keys: &[i64], hashes: &[u64], into: &mut Vec<u32>) {
        assert_eq!(keys.len(), hashes.len(), "every key has its hash");
        into.extend(keys.iter().zip(hashes).map(|(&key, &hash)| self.number(key, hash)));
    }

    /// The number of `key`, whose hash is `hash`; a new one if the table does not have it.
    ///
    /// # Panics
    /// If there are 2^32 - 1 distinct keys.
    #[inline]
    pub fn number(&mut self, key: i64, hash: u64) -> u32 {
        if self.keys.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.number == VACANT {
                return self.enter(at, key);
            }
            if slot.key == key {
                return slot.number;
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let count = (self.slots.len() * 2).max(FIRST_SLOTS);
        let mut slots = vec![VACANT_SLOT; count];
        for slot in self.slots.iter().filter(|slot| slot.number != VACANT) {
            let mut at = super::hash_int(slot.key) as usize & (count - 1);
            while slots[at].number != VACANT {
                at = (at + 1) & (count - 1);
            }
            slots[at] = *slot;
        }
        self.slots = slots;
    }

    /// Puts a new key into vacant slot `at`; its number.
    fn enter(&mut self, at: usize, key: i64) -> u32 {
        let number = u32::try_from(self.keys.len()).ok().filter(|&number| number != VACANT);
        let number = number.expect("a table holds fewer than 2^32 - 1 keys");
        self.keys.push(key);
        self.slots[at] = Slot { key, number };
        number
    }
}
