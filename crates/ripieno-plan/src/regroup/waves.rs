//! Waves: ranges of the parts of every rank that travel together, each as large as its receiver has room for.

use alloc::vec;
use alloc::vec::Vec;

/// The parts of every rank, cut into waves. All ranks find the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waves {
    ranks: Vec<Receiver>,
    count: usize,
}

/// What comes to one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Receiver {
    /// The parts that are at home with it, ascending, without empty ones.
    parts: Vec<usize>,
    /// Where each of its waves ends in them.
    ends: Vec<usize>,
}

impl Waves {
    /// Waves of at most `wave_bytes` to every rank, or of one part that alone is larger. `homes` and `part_bytes` are by part;
    /// the bytes are those of all ranks.
    pub fn new(homes: &[usize], part_bytes: &[u64], rank_count: usize, wave_bytes: u64) -> Waves {
        let mut ranks = vec![Receiver::default(); rank_count];
        let mut filled_bytes = vec![0u64; rank_count];
        for (part, (&home, &bytes)) in homes.iter().zip(part_bytes).enumerate().filter(|(_, (_, bytes))| **bytes > 0) {
            let (rank, filled) = (&mut ranks[home], &mut filled_bytes[home]);
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

    /// How many waves; a rank may be done before the last.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The parts that come to `rank` in `wave`, ascending.
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
    fn every_part_with_bytes_travels_once_in_order_and_no_wave_is_too_large() {
        let part_bytes: Vec<u64> =
            (0..240u64).map(|part| part * 37 % 101 * u64::from(!part.is_multiple_of(5))).collect();
        for rank_count in 1..=33 {
            let homes: Vec<usize> = (0..240).map(|part| part * 7 % rank_count).collect();
            for wave_bytes in [0, 1, 50, 300, u64::MAX] {
                let waves = Waves::new(&homes, &part_bytes, rank_count, wave_bytes);
                for rank in 0..rank_count {
                    let all = (0..waves.count()).flat_map(|wave| waves.parts(rank, wave)).copied();
                    let own = (0..240).filter(|&part| homes[part] == rank && part_bytes[part] > 0);
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

    #[test]
    fn nothing_takes_no_wave() {
        assert_eq!(Waves::new(&[0, 1, 1], &[0; 3], 2, 100).count(), 0);
    }
}
