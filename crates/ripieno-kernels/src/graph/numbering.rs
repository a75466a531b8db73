//! Numbering of ids: equal ids get equal numbers, and the most frequent id gets 0.
//!
//! Clustered ids are counted in a table. Others are sorted by a radix sort of (id, position) pairs over the bits in
//! which ids differ. Frequent vertices get low numbers, so the values that a product gathers most are close together
//! and stay in cache.
//! Cost: two passes over the ids and one over the table, or two passes for each digit of the sort.

use super::csr::{offsets, sorted};

/// Distinct ids, and the number of each given id.
#[derive(Debug, Default)]
pub struct Numbering {
    /// The distinct ids, by descending frequency, then ascending id.
    pub ids: Vec<i64>,
    /// Number of occurrences of each.
    pub counts: Vec<u32>,
    /// For each given id its position in `ids`.
    pub numbers: Vec<u32>,
}

const DIGIT_BITS: u32 = 11;
/// Largest number of table entries per id. At this size the table takes no more memory than the pairs.
const TABLE_ENTRIES_PER_ID: usize = 4;

/// Number `ids`. There are at most 2^32 - 1.
pub fn number(ids: &[i64]) -> Numbering {
    let (Some(&smallest), Some(&largest)) = (ids.iter().min(), ids.iter().max()) else { return Numbering::default() };
    let span = largest.abs_diff(smallest);
    if span < (TABLE_ENTRIES_PER_ID * ids.len()) as u64 {
        by_table(ids, smallest, span as usize)
    } else {
        by_sorting(ids, smallest, span)
    }
}

fn by_table(ids: &[i64], smallest: i64, span: usize) -> Numbering {
    let entry = |id: i64| id.abs_diff(smallest) as usize;
    let mut table = vec![0u32; span + 1];
    for &id in ids {
        table[entry(id)] += 1;
    }
    let occurring = (0..).zip(&table).filter(|(_, count)| **count > 0);
    let distinct = occurring.map(|(entry, &count)| (smallest.wrapping_add_unsigned(entry), count)).collect();
    let (numbering, renumbered) = by_frequency(distinct);
    for (entry, number) in table.iter_mut().filter(|entry| **entry > 0).zip(renumbered) {
        *entry = number;
    }
    Numbering { numbers: ids.iter().map(|&id| table[entry(id)]).collect(), ..numbering }
}

fn by_sorting(ids: &[i64], smallest: i64, span: u64) -> Numbering {
    let pairs = sorted_pairs(ids, smallest, span);
    let runs = || pairs.chunk_by(|a, b| a.0 == b.0);
    let (numbering, renumbered) = by_frequency(runs().map(|run| (run[0].0, run.len() as u32)).collect());
    let mut numbers = vec![0; ids.len()];
    for (run, number) in runs().zip(renumbered) {
        for &(_, place) in run {
            numbers[place as usize] = number;
        }
    }
    Numbering { numbers, ..numbering }
}

/// Order ascending distinct ids with their counts by frequency. Return the numbering, without `numbers`, and the new
/// number of each id.
fn by_frequency(distinct: Vec<(i64, u32)>) -> (Numbering, Vec<u32>) {
    let largest = distinct.iter().map(|pair| pair.1).max().unwrap_or(0);
    let mut frequencies = vec![0; largest as usize + 1];
    let rarity = |count: u32| largest - count;
    for &(_, count) in &distinct {
        frequencies[rarity(count) as usize] += 1;
    }
    // Stable, so that ids of equal frequency stay in ascending order.
    let order = sorted(&offsets(&frequencies), (0..).zip(&distinct).map(|(at, pair)| (at, rarity(pair.1))));
    let mut renumbered = vec![0; order.len()];
    for (new, &old) in (0..).zip(&order) {
        renumbered[old as usize] = new;
    }
    let (ids, counts) = order.iter().map(|&old| distinct[old as usize]).unzip();
    (Numbering { ids, counts, numbers: Vec::new() }, renumbered)
}

/// Return the ids, from `smallest` to `smallest + span`, with their positions, sorted by id, then position.
fn sorted_pairs(ids: &[i64], smallest: i64, span: u64) -> Vec<(i64, u32)> {
    let mut pairs: Vec<(i64, u32)> = ids.iter().zip(0..).map(|(&id, place)| (id, place)).collect();
    let mut other = vec![(0, 0); pairs.len()];
    let bits = u64::BITS - span.leading_zeros();
    for shift in (0..bits).step_by(DIGIT_BITS as usize) {
        let digit = |id: i64| (id.abs_diff(smallest) >> shift) as usize & ((1 << DIGIT_BITS) - 1);
        let mut next = [0u32; 1 << DIGIT_BITS];
        for &(id, _) in &pairs {
            next[digit(id)] += 1;
        }
        let mut begin = 0;
        for next in &mut next {
            begin += std::mem::replace(next, begin);
        }
        for &pair in &pairs {
            let next = &mut next[digit(pair.0)];
            other[*next as usize] = pair;
            *next += 1;
        }
        std::mem::swap(&mut pairs, &mut other);
    }
    pairs
}
