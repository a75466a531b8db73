//! Waves: ranges of each rank's parts that are sent together, sized for the memory of receivers and senders.

use alloc::vec;
use alloc::vec::Vec;

/// The parts of every rank, divided into waves. All ranks compute the same division.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waves {
    ranks: Vec<Receiver>,
    count: usize,
}

/// The parts that one rank receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Receiver {
    /// The non-empty parts that the rank owns, ascending.
    parts: Vec<usize>,
    /// End of each of its waves in `parts`.
    ends: Vec<usize>,
}

impl Waves {
    /// Divide the parts into waves of at most `wave_bytes` for each rank. A single larger part is a wave of its own.
    ///
    /// `owners` is the owner of each part, and `part_bytes` its size over all ranks.
    pub fn new(owners: &[usize], part_bytes: &[u64], rank_count: usize, wave_bytes: u64) -> Waves {
        let mut ranks = vec![Receiver::default(); rank_count];
        let mut filled_bytes = vec![0u64; rank_count];
        for (part, (&owner, &bytes)) in owners.iter().zip(part_bytes).enumerate().filter(|(_, (_, bytes))| **bytes > 0)
        {
            let (rank, filled) = (&mut ranks[owner], &mut filled_bytes[owner]);
            if rank.ends.is_empty() || filled.saturating_add(bytes) > wave_bytes {
                rank.ends.push(rank.parts.len());
                *filled = 0;
            }
            rank.parts.push(part);
            *rank.ends.last_mut().expect("a wave has begun") += 1;
            *filled += bytes;
        }
        let count = ranks.iter().map(|rank| rank.ends.len()).max().unwrap_or(0);
        Waves { ranks, count }
    }

    /// Put all parts into one wave, or into none if `has_rows` is false: no rank has any row. A rank only needs to know
    /// the sizes of the parts that it sends or receives.
    pub fn single(owners: &[usize], known_bytes: &[u64], rank_count: usize, has_rows: bool) -> Waves {
        Waves { count: usize::from(has_rows), ..Waves::new(owners, known_bytes, rank_count, u64::MAX) }
    }

    /// Cut large waves, and return `None` if no wave needs a cut.
    ///
    /// `sent_bytes` has, for each wave, the largest number of bytes that a rank sends. A wave is large if this is more
    /// than twice `wave_bytes`. It is cut into pieces in which this rank sends about `wave_bytes`. A wave of one part
    /// is never cut. A piece has parts of all receivers, or of some receivers if they have few parts.
    pub fn cut(&self, part_bytes: &[u64], sent_bytes: &[u64], wave_bytes: u64) -> Option<Waves> {
        let uncut = |rank: &Receiver| Receiver { parts: rank.parts.clone(), ends: Vec::new() };
        let mut cut = Waves { ranks: self.ranks.iter().map(uncut).collect(), count: 0 };
        let mut ends = vec![0; self.ranks.len()];
        for (wave, &wave_sent_bytes) in sent_bytes.iter().enumerate() {
            let parts = self.interleaved_parts(wave, part_bytes);
            let total_bytes: u64 = parts.iter().map(|&(_, part)| part_bytes[part]).sum();
            let is_large = wave_sent_bytes > wave_bytes.saturating_mul(2);
            let share = if is_large { (wave_bytes, wave_sent_bytes) } else { (1, 1) };
            let piece_bytes = u128::from(total_bytes) * u128::from(share.0) / u128::from(share.1);
            let mut filled_bytes = 0;
            for (rank, part) in parts {
                let bytes = u128::from(part_bytes[part]);
                if filled_bytes > 0 && filled_bytes + bytes > piece_bytes {
                    cut.end_wave(&ends);
                    filled_bytes = 0;
                }
                filled_bytes += bytes;
                ends[rank] += 1;
            }
            cut.end_wave(&ends);
        }
        (cut.count > self.count).then_some(cut)
    }

    /// Return the parts of a wave with their receivers, interleaved so that all receivers progress equally.
    fn interleaved_parts(&self, wave: usize, part_bytes: &[u64]) -> Vec<(usize, usize)> {
        let mut parts = Vec::new();
        for rank in 0..self.ranks.len() {
            let own = self.parts(rank, wave);
            let total_bytes: u128 = own.iter().map(|&part| u128::from(part_bytes[part])).sum();
            let mut before_bytes = 0;
            for &part in own {
                parts.push(((before_bytes << 64) / total_bytes, rank, part));
                before_bytes += u128::from(part_bytes[part]);
            }
        }
        parts.sort_unstable();
        parts.into_iter().map(|(_, rank, part)| (rank, part)).collect()
    }

    fn end_wave(&mut self, ends: &[usize]) {
        self.ranks.iter_mut().zip(ends).for_each(|(rank, &end)| rank.ends.push(end));
        self.count += 1;
    }

    /// Return the number of waves. A rank may have no parts in the last ones.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Return the parts that `rank` receives in `wave`, ascending.
    pub fn parts(&self, rank: usize, wave: usize) -> &[usize] {
        let Receiver { parts, ends } = &self.ranks[rank];
        let end = |wave: usize| ends.get(wave).copied().unwrap_or(parts.len());
        &parts[wave.checked_sub(1).map_or(0, end)..end(wave)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_with_bytes_is_sent_once_in_order_and_no_wave_is_too_large() {
        let part_bytes: Vec<u64> =
            (0..240u64).map(|part| part * 37 % 101 * u64::from(!part.is_multiple_of(5))).collect();
        for rank_count in 1..=33 {
            let owners: Vec<usize> = (0..240).map(|part| part * 7 % rank_count).collect();
            for wave_bytes in [0, 1, 50, 300, u64::MAX] {
                let waves = Waves::new(&owners, &part_bytes, rank_count, wave_bytes);
                for rank in 0..rank_count {
                    let all = (0..waves.count()).flat_map(|wave| waves.parts(rank, wave)).copied();
                    let own = (0..240).filter(|&part| owners[part] == rank && part_bytes[part] > 0);
                    assert!(all.eq(own), "{rank_count} ranks, {wave_bytes} bytes");
                    for wave in 0..waves.count() {
                        let parts = waves.parts(rank, wave);
                        let bytes: u64 = parts.iter().map(|&part| part_bytes[part]).sum();
                        assert!(bytes <= wave_bytes || parts.len() == 1, "{rank_count} ranks, {wave_bytes} bytes");
                    }
                }
            }
        }
    }

    /// Return the largest number of bytes that one rank sends in each wave, if rank `sender_of(part)` has all rows of a
    /// part.
    fn sent_by_wave(waves: &Waves, part_bytes: &[u64], sender_of: impl Fn(usize) -> usize) -> Vec<u64> {
        let p = waves.ranks.len();
        let max_sent = |wave: usize| {
            let mut sent = vec![0; p];
            for rank in 0..p {
                let received = waves.parts(rank, wave).iter().filter(|&&part| sender_of(part) != rank);
                received.for_each(|&part| sent[sender_of(part)] += part_bytes[part]);
            }
            sent.into_iter().max().unwrap_or(0)
        };
        (0..waves.count()).map(max_sent).collect()
    }

    #[test]
    fn no_rank_sends_much_more_than_one_receives() {
        for rank_count in [2, 3, 5, 33] {
            let part_count = 8 * rank_count;
            let part_bytes: Vec<u64> = (0..part_count as u64).map(|part| part * 37 % 101).collect();
            let owners: Vec<usize> = (0..part_count).map(|part| part / 8).collect();
            for wave_bytes in [0, 10, 300, u64::MAX] {
                // One rank sends everything, or every rank sends equally much.
                for sender_count in [1, rank_count] {
                    let sender_of = |part: usize| part * 5 % sender_count;
                    let first = Waves::new(&owners, &part_bytes, rank_count, wave_bytes);
                    let mut waves = first.clone();
                    while let Some(cut) =
                        waves.cut(&part_bytes, &sent_by_wave(&waves, &part_bytes, sender_of), wave_bytes)
                    {
                        waves = cut;
                    }
                    for (wave, sent_by_wave) in sent_by_wave(&waves, &part_bytes, sender_of).into_iter().enumerate() {
                        let parts = (0..rank_count).map(|rank| waves.parts(rank, wave).len()).sum::<usize>();
                        assert!(
                            sent_by_wave <= wave_bytes.saturating_mul(2) || parts == 1,
                            "{rank_count} ranks, {wave_bytes}"
                        );
                        assert!(parts > 0, "{rank_count} ranks, {wave_bytes} bytes");
                    }
                    for rank in 0..rank_count {
                        let all = (0..waves.count()).flat_map(|wave| waves.parts(rank, wave));
                        assert!(all.eq(&first.ranks[rank].parts), "{rank_count} ranks, {wave_bytes} bytes");
                    }
                }
            }
        }
    }

    #[test]
    fn a_piece_of_a_wave_has_parts_of_every_receiver_with_parts_left() {
        let waves = Waves::new(&[0, 0, 1, 1, 1, 1], &[20, 20, 10, 10, 10, 10], 2, 40);
        let parts = |waves: &Waves, wave| [0, 1].map(|rank| waves.parts(rank, wave).to_vec());
        assert_eq!(waves.cut(&[20, 20, 10, 10, 10, 10], &[40], 20), None);
        let cut = waves.cut(&[20, 20, 10, 10, 10, 10], &[80], 39).unwrap();
        assert_eq!(cut.count(), 3);
        assert_eq!(parts(&cut, 0), [vec![0], vec![2]]);
        assert_eq!(parts(&cut, 1), [vec![1], vec![3]]);
        assert_eq!(parts(&cut, 2), [vec![], vec![4, 5]]);
    }

    #[test]
    fn ranks_that_know_only_their_own_parts_compute_the_same_wave() {
        let (owners, part_bytes) = ([0, 0, 1, 1, 2], [5, 0, 7, 0, 9]);
        let all = Waves::new(&owners, &part_bytes, 3, u64::MAX);
        assert_eq!(Waves::single(&owners, &part_bytes, 3, true), all);
        // Rank 0 has rows for itself and for rank 2; rank 1 has no rows.
        let [first, second] = [[5, 0, 0, 0, 4], [0; 5]].map(|known| Waves::single(&owners, &known, 3, true));
        assert_eq!([0, 1, 2].map(|rank| first.parts(rank, 0)), [&[0][..], &[], &[4]]);
        assert_eq!((second.count(), [0, 1, 2].map(|rank| second.parts(rank, 0).len())), (1, [0; 3]));
    }

    #[test]
    fn without_rows_there_are_no_waves() {
        assert_eq!(Waves::single(&[0, 1, 1], &[0; 3], 2, false).count(), 0);
        assert_eq!(Waves::new(&[0, 1, 1], &[0; 3], 2, 100).count(), 0);
    }
}
