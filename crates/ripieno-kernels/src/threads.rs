//! The threads of one rank.

use crate::Simd;

/// The threads, and the SIMD level, that a kernel may use.
///
/// Make it once per fit. The caller's own thread is one of them.
#[derive(Debug)]
pub struct Threads {
    count: usize,
    simd: Simd,
}

impl Threads {
    /// `count` threads, the caller's included, with the best SIMD level of this machine.
    ///
    /// # Panics
    /// If `count` is zero.
    pub fn new(count: usize) -> Threads {
        Threads::with_simd(count, Simd::best())
    }

    /// As [`Threads::new`], with a chosen SIMD level.
    ///
    /// # Panics
    /// If `count` is zero or the machine lacks the level.
    pub fn with_simd(count: usize, simd: Simd) -> Threads {
        assert!(count > 0, "the caller's own thread is one");
        assert!(Simd::available().contains(&simd), "{simd:?} is not available on this machine");
        Threads { count, simd }
    }

    /// How many threads, the caller's included.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The SIMD level.
    pub fn simd(&self) -> Simd {
        self.simd
    }
}
