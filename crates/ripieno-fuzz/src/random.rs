//! Numbers by chance, the same for the same seed everywhere.
//!
//! Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014 (SplitMix64).

/// A row of numbers.
#[derive(Clone, Debug)]
pub struct FuzzRandom(u64);

impl FuzzRandom {
    /// The row of this seed.
    pub fn new(seed: u64) -> FuzzRandom {
        let mut row = FuzzRandom(seed);
        // Rows of neighbouring seeds are the same one, a step apart, until they are mixed.
        FuzzRandom(row.draw())
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next one below `end`, which is more than 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }

    /// One of `choices`, of which there are some.
    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}
