//! Owners: assignment of the parts of the keys to ranks.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Assign equal ranges of the parts to the ranks, in rank order.
pub fn hashed_owners(part_count: usize, rank_count: usize) -> Vec<usize> {
    let parts_per_rank = part_count / rank_count;
    assert_eq!(part_count, parts_per_rank * rank_count, "the parts divide evenly among the ranks");
    (0..part_count).map(|part| part / parts_per_rank).collect()
}

/// Assign parts by size, largest first, each to the rank with the smallest load.
///
/// No rank gets more than the mean plus one part. Ties go to the rank with fewer parts, then to the lower rank, so all
/// ranks compute the same result.
///
/// Cost: `n·log(n)` for `n` parts.
/// Source: Graham, "Bounds on multiprocessing timing anomalies", SIAM J. Appl. Math. 1969 (largest first).
pub fn balanced_owners(part_bytes: &[u64], rank_count: usize) -> Vec<usize> {
    let mut largest_first: Vec<usize> = (0..part_bytes.len()).collect();
    largest_first.sort_by_key(|&part| Reverse(part_bytes[part]));
    let mut loads: BinaryHeap<Reverse<(u64, usize, usize)>> =
        (0..rank_count).map(|rank| Reverse((0, 0, rank))).collect();
    let mut owners = vec![0; part_bytes.len()];
    for part in largest_first {
        let Some(mut least) = loads.peek_mut() else { break };
        let Reverse((load_bytes, part_count, rank)) = &mut *least;
        *load_bytes += part_bytes[part];
        *part_count += 1;
        owners[part] = *rank;
    }
    owners
}

/// Return the load of every rank in bytes.
pub fn loads(owners: &[usize], part_bytes: &[u64], rank_count: usize) -> Vec<u64> {
    let mut loads = vec![0; rank_count];
    owners.iter().zip(part_bytes).for_each(|(&owner, bytes)| loads[owner] += bytes);
    loads
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balanced_loads(part_bytes: &[u64], rank_count: usize) -> Vec<u64> {
        loads(&balanced_owners(part_bytes, rank_count), part_bytes, rank_count)
    }

    #[test]
    fn a_part_with_half_of_all_bytes_leaves_the_others_balanced() {
        for rank_count in 2..=33 {
            let mut part_bytes: Vec<u64> = (0..64 * rank_count as u64).map(|part| 100 + part * 7 % 13).collect();
            let others: u64 = part_bytes.iter().sum();
            part_bytes[17] += others;
            let mut loads = balanced_loads(&part_bytes, rank_count);
            loads.sort_unstable();
            assert_eq!(loads.pop(), Some(part_bytes[17]), "{rank_count} ranks");
            let rest: u64 = loads.iter().sum();
            let mean = rest / loads.len() as u64;
            assert!(loads.iter().all(|load| load.abs_diff(mean) <= 113), "{rank_count} ranks: {loads:?}");
        }
    }

    #[test]
    fn no_rank_has_more_than_the_mean_and_one_part() {
        let part_bytes: Vec<u64> = (0..500u64).map(|part| part * part % 997).collect();
        for rank_count in 1..=33 {
            let mean = part_bytes.iter().sum::<u64>() / rank_count as u64;
            assert!(balanced_loads(&part_bytes, rank_count).iter().all(|&load| load <= mean + 997));
        }
    }

    #[test]
    fn equal_parts_are_assigned_round_robin() {
        assert_eq!(balanced_owners(&[5; 7], 3), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(balanced_owners(&[0; 4], 2), [0, 1, 0, 1]);
        assert_eq!(hashed_owners(6, 3), [0, 0, 1, 1, 2, 2]);
    }
}
