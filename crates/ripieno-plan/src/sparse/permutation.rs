//! Invertible mixing of indices, so that equal ranges of keys contain about equally many keys of any set.

/// A fixed permutation of the numbers below `n`, equal on every machine.
///
/// Each round adds a constant, multiplies by an odd factor and applies an xor-shift by half the bits. It permutes the
/// numbers of `b` bits, where `2^b` is the smallest power of two not below `n`. A result of `n` or more is mixed again,
/// less than once per index on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permutation {
    n: u64,
    mask: u64,
    shift: u32,
    inverses: [u64; ROUNDS.len()],
}

/// Per round: the added constant and the odd factor.
const ROUNDS: [(u64, u64); 3] = [
    (0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9),
    (0xd1b5_4a32_d192_ed03, 0x94d0_49bb_1331_11eb),
    (0x2545_f491_4f6c_dd1d, 0xd6e8_feb8_6659_fd93),
];

impl Permutation {
    /// Create the permutation of `0..n`; `n` is at most `2^63`.
    pub fn new(n: u64) -> Permutation {
        assert!(n <= 1 << 63, "there are at most 2^63 indices");
        let bit_count = u64::BITS - n.saturating_sub(1).leading_zeros();
        let mask = (1_u64 << bit_count) - 1;
        let inverses = ROUNDS.map(|(_, factor)| inverse(factor));
        Permutation { n, mask, shift: bit_count.div_ceil(2), inverses }
    }

    /// Return the number of indices.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Return the key of an index.
    #[inline]
    pub fn key(&self, index: u64) -> u64 {
        assert!(index < self.n, "an index lies below n");
        let mut mixed = index;
        loop {
            for (summand, factor) in ROUNDS {
                mixed = mixed.wrapping_add(summand).wrapping_mul(factor) & self.mask;
                mixed ^= mixed >> self.shift;
            }
            if mixed < self.n {
                return mixed;
            }
        }
    }

    /// Return the index of a key.
    #[inline]
    pub fn index(&self, key: u64) -> u64 {
        assert!(key < self.n, "a key lies below n");
        let mut mixed = key;
        loop {
            for ((summand, _), inverse) in ROUNDS.iter().zip(self.inverses).rev() {
                // The shift is at least half the bits, so it is its own inverse.
                mixed ^= mixed >> self.shift;
                mixed = mixed.wrapping_mul(inverse).wrapping_sub(*summand) & self.mask;
            }
            if mixed < self.n {
                return mixed;
            }
        }
    }
}

/// Return the inverse of `odd` modulo `2^64`. Newton's iteration doubles the number of correct bits, starting at 3.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |inverse, _| inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn every_key_has_one_index() {
        for n in (1..300).chain([1000, 1 << 12, (1 << 12) + 1, 99_991]) {
            let permutation = Permutation::new(n);
            let mut seen = vec![false; n as usize];
            for index in 0..n {
                let key = permutation.key(index);
                assert!(!core::mem::replace(&mut seen[key as usize], true), "{n}: key {key} comes twice");
                assert_eq!(permutation.index(key), index);
            }
        }
    }

    #[test]
    fn large_numbers_round_trip() {
        for n in [(1 << 32) - 5, 1 << 32, (1 << 40) + 3, (1 << 62) + 1, (1 << 63) - 1, 1 << 63] {
            let permutation = Permutation::new(n);
            for step in 0..1000 {
                let index = (n / 1000).wrapping_mul(step).wrapping_add(step) % n;
                assert_eq!(permutation.index(permutation.key(index)), index);
            }
        }
    }

    #[test]
    fn equal_ranges_hold_equally_many_of_regular_sets() {
        const PARTS: u64 = 64;
        for n in [100_000, 1 << 17, (1 << 20) + 1, 10_000_019, 1 << 40] {
            let permutation = Permutation::new(n);
            for stride in [1, 2, 3, 64, 1000, 1024, n / 20_000] {
                let count = (n / stride).min(20_000);
                let mut counts = [0_u64; PARTS as usize];
                for i in 0..count {
                    let part = u128::from(permutation.key(i * stride)) * u128::from(PARTS) / u128::from(n);
                    counts[part as usize] += 1;
                }
                let mean = count as f64 / PARTS as f64;
                let worst = counts.iter().map(|&count| (count as f64 - mean).abs()).fold(0.0, f64::max);
                // Five standard deviations of a random set.
                assert!(worst * worst <= 25.0 * mean, "{n}, stride {stride}: {worst} off {mean}");
            }
        }
    }

    #[test]
    fn keys_are_the_same_on_every_machine() {
        let permutation = Permutation::new(1_000_000);
        let keys: [u64; 4] = core::array::from_fn(|index| permutation.key(index as u64));
        assert_eq!(keys, [1776, 632_097, 204_178, 570_071]);
    }
}
