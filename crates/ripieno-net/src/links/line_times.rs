//! Measured time of a cache line between the cores at both ends of a link.
//!
//! A line takes 20 to 30 ns between cores that share a cache, 50 to 60 ns over the mesh of a third-level cache, and 100
//! to 200 ns between others. `sysfs` does not show this in virtual machines, because their cores move. The producer of
//! a ring therefore times reads that it needs anyway. These times include a fence and two reads of the time stamp
//! counter, about 30 ns. Ranks migrate, so only the last times count.

use super::streaming::ticks;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longer times mean that the cores share no cache. Over a mesh, the times are 83 to 96 ns.
const SHARED_CACHE_LINE_NS: u64 = 115;
/// A longer mean of the times means that the cores share no more than a third-level cache over a mesh.
const NEAR_LINE_NS: u64 = 65;
/// Longer times are disturbances, and count as this time.
const LINE_NS_MAX: u64 = 1000;
/// Excess of far over near times, or of near over far times, that changes [`LineTimes::is_far`].
const VOTE_COUNT: u8 = 8;
/// Each new time has the weight `1 / MEAN_DIVISOR` in the mean.
const MEAN_DIVISOR: u64 = 8;
/// Duration of the calibration of ticks.
const CALIBRATION: Duration = Duration::from_micros(20);

/// Statistics of the last times of a line.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineTimes {
    /// The weighted mean in nanoseconds; 0 if unknown.
    mean_ns: u64,
    /// From 0, all near, to [`VOTE_COUNT`], all far.
    far_votes: u8,
    is_far: bool,
}

impl LineTimes {
    /// Record a time in ticks.
    pub fn add(&mut self, ticks: u64) {
        if let Some(ns) = ticks.saturating_mul(1000).checked_div(ticks_per_us()) {
            self.add_ns(ns.clamp(1, LINE_NS_MAX));
        }
    }

    fn add_ns(&mut self, ns: u64) {
        let before = if self.mean_ns == 0 { ns } else { self.mean_ns };
        self.mean_ns = ((MEAN_DIVISOR - 1) * before + ns) / MEAN_DIVISOR;
        self.far_votes = match ns > SHARED_CACHE_LINE_NS {
            true => (self.far_votes + 1).min(VOTE_COUNT),
            false => self.far_votes.saturating_sub(1),
        };
        match self.far_votes {
            0 => self.is_far = false,
            VOTE_COUNT => self.is_far = true,
            _ => {}
        }
    }

    /// Return whether the cores share no cache, as far as it was measured.
    pub fn is_far(&self) -> bool {
        self.is_far
    }

    /// Return whether the cores share a cache over a mesh, as far as it was measured.
    pub fn is_over_mesh(&self) -> bool {
        !self.is_far && self.mean_ns > NEAR_LINE_NS
    }

    /// Return the mean of the last times in seconds; `None` if there are none.
    pub fn seconds(&self) -> Option<f64> {
        (self.mean_ns > 0).then_some(self.mean_ns as f64 * 1e-9)
    }
}

/// Return the number of ticks per microsecond, or 0 if this processor has no ticks. The first call measures it.
pub fn ticks_per_us() -> u64 {
    static TICKS_PER_US: OnceLock<u64> = OnceLock::new();
    *TICKS_PER_US.get_or_init(|| {
        let (start, first) = (Instant::now(), ticks());
        while start.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        let (elapsed, ticks) = (start.elapsed(), ticks().saturating_sub(first));
        (1000.0 * ticks as f64 / elapsed.as_nanos() as f64) as u64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_times_do_not_change_the_distance() {
        let mut line = LineTimes::default();
        assert_eq!((line.is_far(), line.seconds()), (false, None));
        (0..VOTE_COUNT).for_each(|_| line.add_ns(150));
        assert!(line.is_far());
        (1..VOTE_COUNT).for_each(|_| line.add_ns(30));
        assert!(line.is_far());
        line.add_ns(30);
        assert!(!line.is_far());
        (1..VOTE_COUNT).for_each(|_| line.add_ns(LINE_NS_MAX));
        assert!(!line.is_far());
        (0..100).for_each(|_| line.add_ns(30));
        assert!((25e-9..40e-9).contains(&line.seconds().unwrap()));
    }

    #[test]
    fn a_mesh_is_neither_near_nor_far() {
        for (ns, expected) in [(50, (false, false)), (90, (true, false)), (150, (false, true))] {
            let mut line = LineTimes::default();
            assert!(!line.is_over_mesh());
            (0..VOTE_COUNT).for_each(|_| line.add_ns(ns));
            assert_eq!((line.is_over_mesh(), line.is_far()), expected, "{ns}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn ticks_are_between_half_and_ten_per_nanosecond() {
        assert!((500..10_000).contains(&ticks_per_us()), "{}", ticks_per_us());
    }
}
