//! Occurrences of features in steps, and their positions in the vectors of a step.

use std::ops::Range;

/// The columns of sparse rows, in the order of the steps that process them.
#[derive(Clone, Copy, Debug)]
pub struct OrderedColumns<'a> {
    /// Start of each row's entries, and the end of the last row's entries.
    pub starts: &'a [i64],
    /// The feature of each entry.
    pub columns: &'a [i32],
    /// Number of steps that divide the rows evenly.
    pub step_count: usize,
}

impl<'a> OrderedColumns<'a> {
    /// Return the columns of the rows of a step.
    fn of_step(&self, step: usize) -> &'a [i32] {
        let rows = of_step(self.starts.len() - 1, step, self.step_count);
        &self.columns[self.starts[rows.start] as usize..self.starts[rows.end] as usize]
    }
}

/// Return the rows of a step.
pub(super) fn of_step(row_count: usize, step: usize, step_count: usize) -> Range<usize> {
    row_count * step / step_count..row_count * (step + 1) / step_count
}

/// Numbers of each rank in each step.
#[derive(Clone, Copy, Debug)]
pub struct StepNumbers<'a> {
    /// The numbers of the first rank, step by step, then of the other ranks.
    pub numbers: &'a [i32],
    /// Count of numbers per rank and step, ranks × steps.
    pub counts: &'a [i64],
}

/// Return the features that occur in each step, each once, by their owners: numbers and counts as in [`StepNumbers`].
///
/// # Panics
/// If there are no steps, or a feature has no owner below `owner_count`.
pub fn sgd_occurrences(rows: OrderedColumns, owners: &[i32], owner_count: usize) -> (Vec<i32>, Vec<i64>) {
    let step_count = rows.step_count;
    assert!(step_count > 0, "an epoch has steps");
    let mut last_steps = vec![0; owners.len()];
    let mut found = vec![(Vec::new(), 0); owner_count];
    let mut counts = vec![0; owner_count * step_count];
    for step in 0..step_count {
        let columns = rows.of_step(step);
        for (features, count) in &mut found {
            // One more entry, for writing a feature that occurred before.
            features.resize(features.len().max(*count + columns.len() + 1), 0);
        }
        for &column in columns {
            let last_step = &mut last_steps[column as usize];
            let (features, count) = &mut found[owners[column as usize] as usize];
            features[*count] = column;
            *count += usize::from(*last_step != step + 1);
            *last_step = step + 1;
        }
        for (owner, (_, count)) in found.iter().enumerate() {
            counts[owner * step_count + step] = *count as i64;
        }
    }
    for counts in counts.chunks_exact_mut(step_count) {
        for step in (1..step_count).rev() {
            counts[step] -= counts[step - 1];
        }
    }
    (found.iter().flat_map(|(features, count)| &features[..*count]).copied().collect(), counts)
}

/// Return the position of each entry's feature in the vector of its step, in which each owner has a chunk.
///
/// Also returns the contribution of the penalty to the gradient of each feature of `occurrences`, per weight: the
/// contribution per row times the feature's count in the step. `occurrences` must come from [`sgd_occurrences`].
///
/// # Panics
/// If the shapes do not fit.
pub fn sgd_places(
    rows: OrderedColumns,
    occurrences: StepNumbers,
    chunk_lens: &[i64],
    penalties: &[f64],
) -> (Vec<i32>, Vec<f64>) {
    assert_eq!(chunk_lens.len(), rows.step_count, "a length for every step");
    let lists = StepLists::new(occurrences.counts, occurrences.numbers, rows.step_count);
    let mut places = Vec::with_capacity(rows.columns.len());
    let mut penalties_of = vec![0.0; occurrences.numbers.len()];
    let (mut position_of, mut count_of) = (vec![0; penalties.len()], vec![0.0; penalties.len()]);
    for (step, &chunk_len) in chunk_lens.iter().enumerate() {
        let end = chunk_len * lists.rank_count() as i64;
        assert!(i32::try_from(end).is_ok(), "step {step} has {end} places: more than numbers of 32 bits");
        for owner in 0..lists.rank_count() {
            let start = owner as i32 * chunk_len as i32;
            for (place, &feature) in (start..).zip(lists.of(owner, step)) {
                position_of[feature as usize] = place;
            }
        }
        for &column in rows.of_step(step) {
            places.push(position_of[column as usize]);
            count_of[column as usize] += 1.0;
        }
        for owner in 0..lists.rank_count() {
            for at in lists.range(owner, step) {
                let feature = occurrences.numbers[at] as usize;
                penalties_of[at] = std::mem::take(&mut count_of[feature]) * penalties[feature];
            }
        }
    }
    (places, penalties_of)
}

/// Return the features owned by this rank that occur in each step on any rank, each once, and their counts per step.
///
/// Also returns for each number of `requested`, which lists the features of each rank's rows, its position among the
/// features of its step.
pub fn sgd_needed_features(
    requested: StepNumbers,
    feature_count: usize,
    step_count: usize,
) -> (Vec<i32>, Vec<i64>, Vec<i32>) {
    let lists = StepLists::new(requested.counts, requested.numbers, step_count);
    let (mut features, mut counts, mut places) = (Vec::new(), Vec::new(), vec![0; requested.numbers.len()]);
    let (mut last_steps, mut position_of) = (vec![0; feature_count], vec![0; feature_count]);
    for step in 0..step_count {
        let before = features.len();
        for rank in 0..lists.rank_count() {
            for at in lists.range(rank, step) {
                let feature = requested.numbers[at];
                if std::mem::replace(&mut last_steps[feature as usize], step + 1) != step + 1 {
                    position_of[feature as usize] = (features.len() - before) as i32;
                    features.push(feature);
                }
                places[at] = position_of[feature as usize];
            }
        }
        counts.push((features.len() - before) as i64);
    }
    (features, counts, places)
}

/// Lists of items by rank and step.
pub(super) struct StepLists<'a, T> {
    items: &'a [T],
    /// Start of each list, and the end of the last one.
    starts: Vec<usize>,
    step_count: usize,
}

impl<'a, T> StepLists<'a, T> {
    /// Create lists with the given counts, ranks × steps.
    pub(super) fn new(counts: &[i64], items: &'a [T], step_count: usize) -> StepLists<'a, T> {
        let mut starts = vec![0];
        for count in counts {
            starts.push(starts[starts.len() - 1] + *count as usize);
        }
        assert_eq!(starts.last(), Some(&items.len()), "counts of all items");
        StepLists { items, starts, step_count }
    }

    pub(super) fn rank_count(&self) -> usize {
        (self.starts.len() - 1) / self.step_count
    }

    #[inline(always)]
    pub(super) fn of(&self, rank: usize, step: usize) -> &'a [T] {
        &self.items[self.range(rank, step)]
    }

    fn range(&self, rank: usize, step: usize) -> Range<usize> {
        let at = rank * self.step_count + step;
        self.starts[at]..self.starts[at + 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four rows in two steps: features 0, 1 and 1, 4, then none and 2.
    const ROWS: OrderedColumns = OrderedColumns { starts: &[0, 2, 4, 4, 5], columns: &[0, 1, 1, 4, 2], step_count: 2 };

    #[test]
    fn each_feature_of_a_step_is_listed_once_at_its_owner() {
        let (numbers, counts) = sgd_occurrences(ROWS, &[0, 1, 0, 1, 1], 3);

        assert_eq!(counts, [1, 1, 2, 0, 0, 0]);
        assert_eq!(numbers, [0, 2, 1, 4]);
    }

    #[test]
    fn an_entry_is_placed_in_the_chunk_of_its_owner_and_penalties_count_entries() {
        let occurrences = StepNumbers { numbers: &[0, 2, 1, 4], counts: &[1, 1, 2, 0, 0, 0] };
        let (places, penalties) = sgd_places(ROWS, occurrences, &[3, 1], &[0.5, 1.0, 2.0, 4.0, 8.0]);

        assert_eq!(places, [0, 3, 3, 4, 0]);
        assert_eq!(penalties, [0.5, 2.0, 2.0, 8.0]);
    }

    #[test]
    fn features_that_several_ranks_request_are_combined() {
        // First rank: 3 and 1, then 2; second rank: 1, then 2 and 0.
        let requested = StepNumbers { numbers: &[3, 1, 2, 1, 2, 0], counts: &[2, 1, 1, 2] };
        let (features, counts, places) = sgd_needed_features(requested, 4, 2);

        assert_eq!(features, [3, 1, 2, 0]);
        assert_eq!(counts, [2, 2]);
        assert_eq!(places, [0, 1, 0, 1, 0, 1]);
    }
}
