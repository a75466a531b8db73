//! Pseudorandom numbers (SplitMix64) that depend only on the seed, not on the platform.

/// A pseudorandom sequence.
#[derive(Clone, Debug)]
pub struct FuzzRandom(u64);

impl FuzzRandom {
    /// Create the sequence for this seed.
    pub fn new(seed: u64) -> FuzzRandom {
        let mut random = FuzzRandom(seed);
        // Sequences of consecutive seeds would be shifted copies of each other without this mixing step.
        FuzzRandom(random.draw())
    }

    /// Return the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Return the next number below `end`, which must be positive.
    pub fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }

    /// Return a random element of `choices`, which must not be empty.
    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}
