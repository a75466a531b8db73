//! A rank's indices as sorted keys, and where each of the caller's rows stands among them.
//!
//! Cost: one radix sort of the keys; per row of a reduction one move in each direction.

use crate::error::{Error, argument};
use ripieno_plan::sparse::sets::sorted_unique;
use ripieno_plan::sparse::{Permutation, have_numbers};
use ripieno_run::reduction::Reduction;
use ripieno_run::rows::gather_rows;

/// So many wrong indices are named.
const NAMED_COUNT: usize = 3;

/// Which row of a set of keys is that of each of the caller's indices.
#[derive(Clone)]
pub(super) struct IndexRows {
    rows: Vec<u32>,
    key_count: usize,
}

/// From the caller's rows to one row per key.
pub(super) enum Giving {
    /// They are the same.
    Identity,
    /// The caller's row of each key.
    Once(Vec<u32>),
    /// The key's row of each of the caller's: repeated ones are combined in the order in which they were given.
    Repeated(Vec<u32>),
}

/// From one row per key to the caller's rows.
pub(super) enum Wanting {
    /// They are the same.
    Identity,
    /// The key's row of each of the caller's.
    Rows(Vec<u32>),
}

/// One more than the largest index, after a look at each.
pub(super) fn check(name: &'static str, indices: &[i64], size: Option<u64>) -> Result<u64, Error> {
    if indices.len() > u32::MAX as usize {
        return Err(argument(name, format!("{} indices", indices.len()), &format!("at most {}", u32::MAX)));
    }
    let limit = size.unwrap_or(i64::MAX as u64);
    let largest = indices.iter().map(|&index| index as u64).max();
    match largest.is_none_or(|largest| largest < limit) {
        true => Ok(largest.map_or(0, |largest| largest + 1)),
        false => Err(wrong_indices(name, indices, size)),
    }
}

/// Whether rows of so many indices have numbers, together and in any union.
pub(super) fn check_numbers(index_count: usize, size: Option<u64>) -> Result<(), Error> {
    match have_numbers(index_count, size.unwrap_or(u64::MAX)) {
        true => Ok(()),
        false => {
            let expected = format!("at most {0}, or a size of at most {0}", u32::MAX);
            Err(argument("out_indices and in_indices together", format!("{index_count} indices"), &expected))
        }
    }
}

/// Names some of the indices that are wrong, and where they stand.
fn wrong_indices(name: &'static str, indices: &[i64], size: Option<u64>) -> Error {
    let limit = size.unwrap_or(i64::MAX as u64);
    let wrong = || indices.iter().enumerate().filter(|(_, index)| **index as u64 >= limit);
    let named: Vec<String> =
        wrong().take(NAMED_COUNT).map(|(position, index)| format!("{index} at position {position}")).collect();
    let more = match wrong().count() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let expected = match size {
        Some(0) => "no index, for size=0".to_string(),
        Some(size) => format!("0 to {}, for size={size}", size - 1),
        None => format!("0 to {}", i64::MAX - 1),
    };
    argument(name, format!("{}{more}", named.join(", ")), &expected)
}

/// The keys of `indices`, ascending and each once, and where those of the caller are among them.
pub(super) fn sorted(indices: &[i64], permutation: &Permutation) -> (Vec<u64>, IndexRows) {
    let keys: Vec<u64> = indices.iter().map(|&index| permutation.key(index as u64)).collect();
    let (keys, rows) = sorted_unique(&keys);
    let key_count = keys.len();
    (keys, IndexRows { rows, key_count })
}

impl IndexRows {
    /// How many indices the caller gave.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// How many different ones.
    pub fn key_count(&self) -> usize {
        self.key_count
    }

    pub fn giving(&self) -> Giving {
        if self.key_count < self.rows.len() {
            return Giving::Repeated(self.rows.clone());
        }
        if is_identity(&self.rows) {
            return Giving::Identity;
        }
        let mut positions = vec![0; self.rows.len()];
        self.rows.iter().zip(0..).for_each(|(&row, position)| positions[row as usize] = position);
        Giving::Once(positions)
    }

    pub fn wanting(self) -> Wanting {
        match self.key_count == self.rows.len() && is_identity(&self.rows) {
            true => Wanting::Identity,
            false => Wanting::Rows(self.rows),
        }
    }
}

impl Giving {
    /// Makes `rows`, one per key, of what the caller gave.
    pub fn fill(&self, rows: &mut [u8], given: &[u8], row_bytes: usize, reduction: &Reduction) {
        match self {
            Giving::Identity => rows.copy_from_slice(given),
            Giving::Once(numbers) => gather_rows(rows, given, numbers, row_bytes),
            Giving::Repeated(numbers) => {
                (reduction.fill)(rows);
                (reduction.combine_rows)(rows, given, numbers, row_bytes);
            }
        }
    }
}

impl Wanting {
    /// Makes the caller's rows of those of the keys.
    pub fn fill(&self, wanted: &mut [u8], rows: &[u8], row_bytes: usize) {
        match self {
            Wanting::Identity => wanted.copy_from_slice(rows),
            Wanting::Rows(numbers) => gather_rows(wanted, rows, numbers, row_bytes),
        }
    }
}

fn is_identity(rows: &[u32]) -> bool {
    rows.iter().enumerate().all(|(at, &row)| at == row as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ripieno_plan::Op;
    use ripieno_run::Element;

    #[test]
    fn repeated_rows_are_combined_and_wanted_ones_repeated() {
        let (permutation, reduction) = (Permutation::new(9), Reduction::of(Element::U8, Op::Sum).unwrap());
        let (row_bytes, given) = (2, [1, 2, 10, 20, 100, 200]);
        for (indices, expected) in [([4, 8, 4], [101, 202, 10, 20, 101, 202]), ([4, 8, 5], [1, 2, 10, 20, 100, 200])] {
            let (keys, places) = sorted(&indices, &permutation);
            let (mut rows, mut back) = (vec![9; row_bytes * keys.len()], [0; 6]);
            places.giving().fill(&mut rows, &given, row_bytes, reduction);
            places.wanting().fill(&mut back, &rows, row_bytes);
            assert_eq!(back, expected);
        }
    }

    #[test]
    fn rows_that_stand_where_they_belong_are_left_there() {
        let permutation = Permutation::new(100);
        let in_order: Vec<i64> = [3, 17, 60, 99].map(|key| permutation.index(key) as i64).to_vec();
        let (_, places) = sorted(&in_order, &permutation);
        assert!(matches!((places.giving(), places.wanting()), (Giving::Identity, Wanting::Identity)));
        let more = [&in_order[..], &in_order[3..]].concat();
        let (_, places) = sorted(&more, &permutation);
        assert!(matches!((places.giving(), places.wanting()), (Giving::Repeated(_), Wanting::Rows(_))));
    }
}
