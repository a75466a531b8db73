//! Numbers for ids: equal ids get equal numbers, the id that occurs most often gets 0.
//!
//! A radix sort of (id, place) pairs over the bits in which ids differ, then one pass over runs of equal ids. Frequent
//! vertices having low numbers, what a product gathers most lies close together and stays in cache.

/// Distinct ids, and which of them each id is.
#[derive(Debug, Default)]
pub struct Numbering {
    /// The distinct ids, by falling frequency, then rising id.
    pub ids: Vec<i64>,
    /// How often each occurs.
    pub counts: Vec<u32>,
    /// For each id given, its number: its place in `ids`.
    pub numbers: Vec<u32>,
}

const DIGIT_BITS: u32 = 11;

/// Numbers `ids`, of which there are at most 2^32 - 1.
pub fn number(ids: &[i64]) -> Numbering {
    let pairs = sorted_pairs(ids);
    let mut distinct: Vec<(i64, u32)> = Vec::new();
    let mut numbers = vec![0; ids.len()];
    for run in pairs.chunk_by(|a, b| a.0 == b.0) {
        for &(_, place) in run {
            numbers[place as usize] = distinct.len() as u32;
        }
        distinct.push((run[0].0, run.len() as u32));
    }
    drop(pairs);

    let mut order: Vec<u32> = (0..distinct.len() as u32).collect();
    // Stable, so that ids of equal frequency stay in rising order.
    order.sort_by_key(|&number| std::cmp::Reverse(distinct[number as usize].1));
    let mut renumbered = vec![0; order.len()];
    for (new, &old) in order.iter().enumerate() {
        renumbered[old as usize] = new as u32;
    }
    for number in &mut numbers {
        *number = renumbered[*number as usize];
    }
    let by_frequency = || order.iter().map(|&number| distinct[number as usize]);
    Numbering {
        ids: by_frequency().map(|pair| pair.0).collect(),
        counts: by_frequency().map(|pair| pair.1).collect(),
        numbers,
    }
}

/// Ids with their places, by rising id, then place.
fn sorted_pairs(ids: &[i64]) -> Vec<(i64, u32)> {
    let mut pairs: Vec<(i64, u32)> = ids.iter().zip(0..).map(|(&id, place)| (id, place)).collect();
    let (Some(&least), Some(&greatest)) = (ids.iter().min(), ids.iter().max()) else { return pairs };
    let mut other = vec![(0, 0); pairs.len()];
    let bits = u64::BITS - (greatest.abs_diff(least)).leading_zeros();
    for shift in (0..bits).step_by(DIGIT_BITS as usize) {
        let digit = |id: i64| (id.abs_diff(least) >> shift) as usize & ((1 << DIGIT_BITS) - 1);
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
