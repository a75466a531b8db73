//! Index of buffer accesses, which finds the operations that use given bytes without a scan of all operations.

use ripieno_plan::Buffer;
use std::collections::BTreeMap;
use std::ops::Range;

/// The accesses of all operations added so far.
#[derive(Default)]
pub(super) struct AccessIndex {
    /// Contiguous intervals of each buffer by start byte. The last interval is unbounded.
    buffers: BTreeMap<Buffer, BTreeMap<usize, Interval>>,
}

/// The operations that use all bytes of an interval, in order.
#[derive(Clone, Default)]
struct Interval {
    writers: Vec<usize>,
    readers: Vec<usize>,
}

impl AccessIndex {
    /// Add operation `index`, which must be the latest, as a user of `bytes`.
    pub fn add(&mut self, buffer: Buffer, bytes: Range<usize>, index: usize, is_written: bool) {
        if bytes.is_empty() {
            return;
        }
        let intervals = self.buffers.entry(buffer).or_insert_with(|| [(0, Interval::default())].into());
        for cut in [bytes.start, bytes.end] {
            let (&start, interval) = intervals.range(..=cut).next_back().expect("the first interval begins at 0");
            if start < cut {
                let rest = interval.clone();
                intervals.insert(cut, rest);
            }
        }
        for (_, interval) in intervals.range_mut(bytes) {
            if is_written { &mut interval.writers } else { &mut interval.readers }.push(index);
        }
    }

    /// Return the operations that use any of `bytes`, latest first. For a read access, return only the writers.
    pub fn of(&self, buffer: Buffer, bytes: Range<usize>, is_written: bool) -> Vec<usize> {
        let Some(intervals) = self.buffers.get(&buffer).filter(|_| !bytes.is_empty()) else { return Vec::new() };
        let (&first, _) = intervals.range(..=bytes.start).next_back().expect("the first interval begins at 0");
        let mut found = Vec::new();
        for (_, interval) in intervals.range(first..bytes.end) {
            found.extend_from_slice(&interval.writers);
            found.extend(interval.readers.iter().filter(|_| is_written));
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_users_of_the_bytes_are_found() {
        let mut state = 7u64;
        let mut random = |below: u64| -> usize {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 33) % below) as usize
        };
        for _ in 0..100 {
            let (mut accesses, mut all) = (AccessIndex::default(), Vec::new());
            for index in 0..40 {
                let (buffer, start, is_written) = (Buffer(random(2) as u16), random(30), random(2) == 1);
                let bytes = start..start + random(12);
                let shared = |(_, other, theirs, writes): &&(usize, Buffer, Range<usize>, bool)| {
                    let overlap = bytes.start.max(theirs.start) < bytes.end.min(theirs.end);
                    *other == buffer && overlap && (is_written || *writes)
                };
                let expected: Vec<usize> = all.iter().rev().filter(shared).map(|(index, ..)| *index).collect();
                assert_eq!(accesses.of(buffer, bytes.clone(), is_written), expected);
                accesses.add(buffer, bytes.clone(), index, is_written);
                all.push((index, buffer, bytes, is_written));
            }
        }
    }
}
