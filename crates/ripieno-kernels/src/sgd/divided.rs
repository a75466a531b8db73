//! One rank's part of an epoch whose rows and features are divided among ranks.
//!
//! Every feature is at home on one rank, which alone moves it. In each step homes give the weights of the features that
//! occur in a rank's rows, the rank gives their gradients back, and homes add these up in the order of ranks. Which
//! features these are is found for all steps of an epoch at once, by [`sgd_occurrences`].
//! Cost: that of an epoch of these rows, and for each feature of a step four moves of its weights.

use super::{Descent, Features, of_step};

/// Numbers that each rank has in each step.
#[derive(Clone, Copy, Debug)]
pub struct StepNumbers<'a> {
    /// Those of the first rank, step by step, then those of the others.
    pub numbers: &'a [i32],
    /// How many there are of each rank in each step, ranks × steps.
    pub counts: &'a [i64],
}

/// Where the features of an epoch are at home, as seen from one rank.
#[derive(Clone, Copy, Debug)]
pub struct Division<'a> {
    /// Features that occur in the rows here, by their homes.
    pub occurring: StepNumbers<'a>,
    /// Which of the features at home here occur in the rows of each rank.
    pub asked: StepNumbers<'a>,
    /// For each step as many features as any rank has of any home, or more.
    pub chunk_lens: &'a [i64],
    /// Rows of a step on all ranks, in the mean.
    pub rows_per_step: f64,
}

/// The features that occur in each step, by their homes, each once: numbers and counts as of [`StepNumbers`].
///
/// # Panics
/// If there is no step, or a feature has no home below `home_count`.
pub fn sgd_occurrences(
    rows: &Descent,
    order: &[i64],
    step_count: usize,
    homes: &[i32],
    home_count: usize,
) -> (Vec<i32>, Vec<i64>) {
    assert!(step_count > 0, "an epoch has steps");
    assert_eq!(homes.len(), rows.penalties.len(), "a home for every feature");
    let mut last_steps = vec![0; homes.len()];
    let mut found = vec![(Vec::new(), 0); home_count];
    let mut counts = vec![0; home_count * step_count];
    for step in 0..step_count {
        let chosen = of_step(order, step, step_count);
        let entry_count: usize = chosen.iter().map(|&row| rows.entries(row).0.len()).sum();
        for (features, count) in &mut found {
            // One more, where a feature is noted that has been met before.
            features.resize(features.len().max(*count + entry_count + 1), 0);
        }
        for &column in chosen.iter().flat_map(|&row| rows.entries(row).0) {
            let last_step = &mut last_steps[column as usize];
            let (features, count) = &mut found[homes[column as usize] as usize];
            features[*count] = column;
            *count += usize::from(*last_step != step + 1);
            *last_step = step + 1;
        }
        for (home, (_, count)) in found.iter().enumerate() {
            counts[home * step_count + step] = *count as i64;
        }
    }
    for counts in counts.chunks_exact_mut(step_count) {
        for step in (1..step_count).rev() {
            counts[step] -= counts[step - 1];
        }
    }
    (found.iter().flat_map(|(features, count)| &features[..*count]).copied().collect(), counts)
}

/// One epoch over the rows here in this order, and over those of the other ranks; returns the sum of the losses of the
/// rows here, each before its step.
///
/// `weights` and `squares`, the sums of squared gradients, are of the features at home here × k. `exchange` gives every
/// rank its chunk of the first numbers, all chunks as long as each other, and fills the second with those from every
/// rank.
///
/// # Errors
/// Those of `exchange`.
///
/// # Panics
/// If the shapes do not fit.
pub fn sgd_divided_epoch<E>(
    rows: &Descent,
    order: &[i64],
    division: &Division,
    k: usize,
    weights: &mut [f64],
    squares: &mut [f64],
    exchange: impl FnMut(&[f64], &mut [f64]) -> Result<(), E>,
) -> Result<f64, E> {
    rows.check(k, rows.penalties.len() * k);
    assert_eq!(weights.len(), squares.len(), "squares for every weight");
    match k {
        // With a number that the compiler knows a single column costs no loops.
        1 => epoch(rows, order, division, weights, squares, 1, exchange),
        _ => epoch(rows, order, division, weights, squares, k, exchange),
    }
}

#[inline(always)]
fn epoch<E>(
    rows: &Descent,
    order: &[i64],
    division: &Division,
    weights: &mut [f64],
    squares: &mut [f64],
    k: usize,
    mut exchange: impl FnMut(&[f64], &mut [f64]) -> Result<(), E>,
) -> Result<f64, E> {
    let step_count = division.chunk_lens.len();
    assert!(step_count > 0, "an epoch has steps");
    let (occurring, asked) = (Lists::new(division.occurring, step_count), Lists::new(division.asked, step_count));
    let mut here = Features::new(&vec![0.0; rows.penalties.len() * k], k);
    let mut home = Features::new(weights, k);
    home.set_squares(squares);
    let (mut given, mut got) = (Vec::new(), Vec::new());
    let mut loss = 0.0;
    for (step, &chunk_len) in division.chunk_lens.iter().enumerate() {
        let chunk_len = chunk_len as usize * k;
        // What lies behind the features of a chunk is of steps before, and nobody reads it.
        given.resize(occurring.rank_count() * chunk_len, 0.0);
        got.resize(given.len(), 0.0);

        for (rank, chunk) in given.chunks_exact_mut(chunk_len.max(1)).enumerate() {
            let places = asked.of(rank, step);
            for (place, weights) in places.iter().zip(chunk[..places.len() * k].chunks_exact_mut(k)) {
                weights.copy_from_slice(&home.of(*place as usize)[..k]);
            }
        }
        exchange(&given, &mut got)?;
        for (rank, chunk) in got.chunks_exact(chunk_len.max(1)).enumerate() {
            let features = occurring.of(rank, step);
            for (feature, weights) in features.iter().zip(chunk[..features.len() * k].chunks_exact(k)) {
                here.of(*feature as usize)[..k].copy_from_slice(weights);
            }
        }

        loss += here.add_gradient(rows, of_step(order, step, step_count));
        here.met_count = 0;
        for (rank, chunk) in given.chunks_exact_mut(chunk_len.max(1)).enumerate() {
            let features = occurring.of(rank, step);
            for (feature, gradient) in features.iter().zip(chunk[..features.len() * k].chunks_exact_mut(k)) {
                let penalty = here.take_count(*feature as usize) * rows.penalties[*feature as usize];
                let (weights, rest) = here.of(*feature as usize).split_at_mut(k);
                for (gradient, (weight, sum)) in gradient.iter_mut().zip(weights.iter().zip(&mut rest[k..])) {
                    *gradient = (std::mem::take(sum) + penalty * weight) / division.rows_per_step;
                }
            }
        }
        exchange(&given, &mut got)?;
        for (rank, chunk) in got.chunks_exact(chunk_len.max(1)).enumerate() {
            let places = asked.of(rank, step);
            for (place, gradient) in places.iter().zip(chunk[..places.len() * k].chunks_exact(k)) {
                home.add(*place, gradient.iter().copied());
            }
        }
        home.step(rows.eta0, |_| 0.0, 1.0);
    }
    home.write(weights, squares);
    Ok(loss)
}

/// [`StepNumbers`] by rank and step.
struct Lists<'a> {
    numbers: &'a [i32],
    /// Where those of each rank and step begin, and where the last ones end.
    starts: Vec<usize>,
    step_count: usize,
}

impl<'a> Lists<'a> {
    fn new(StepNumbers { numbers, counts }: StepNumbers<'a>, step_count: usize) -> Lists<'a> {
        let mut starts = vec![0];
        for count in counts {
            starts.push(starts[starts.len() - 1] + *count as usize);
        }
        assert_eq!(starts.last(), Some(&numbers.len()), "counts of all numbers");
        Lists { numbers, starts, step_count }
    }

    fn rank_count(&self) -> usize {
        (self.starts.len() - 1) / self.step_count
    }

    #[inline(always)]
    fn of(&self, rank: usize, step: usize) -> &'a [i32] {
        let at = rank * self.step_count + step;
        &self.numbers[self.starts[at]..self.starts[at + 1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sgd::{Loss, sgd_epoch};
    use std::sync::mpsc::channel;

    const STEP_COUNT: usize = 3;
    const FEATURE_COUNT: usize = 5;

    /// Row by row: its class and its entries.
    type Rows = Vec<(i32, Vec<(i32, f64)>)>;

    /// What [`sgd_occurrences`] gives.
    type Occurring = (Vec<i32>, Vec<i64>);

    fn descent<T>(rows: &Rows, work: impl FnOnce(&Descent) -> T) -> T {
        let mut starts = vec![0];
        rows.iter().for_each(|(_, entries)| starts.push(starts[starts.len() - 1] + entries.len() as i64));
        let (columns, values): (Vec<i32>, Vec<f64>) = rows.iter().flat_map(|(_, entries)| entries.clone()).unzip();
        let classes: Vec<i32> = rows.iter().map(|(class, _)| *class).collect();
        let penalties = [0.1, 0.2, 0.0, 0.3, 0.1];
        work(&Descent {
            starts: &starts,
            columns: &columns,
            values: &values,
            classes: &classes,
            penalties: &penalties,
            eta0: 0.3,
            loss: Loss::Logistic,
        })
    }

    /// Rows of which one has no entry, and one a single one.
    fn rows() -> Rows {
        let has = |row: i32, column: i32| (row + column) % 3 != 0 && row != 5 && (row != 4 || column == 1);
        let value = |row: i32, column: i32| f64::from((7 * row + 3 * column) % 11 - 5) / 4.0;
        let entries = |row| (0..FEATURE_COUNT as i32).filter(move |&column| has(row, column));
        (0..12).map(|row| (row % 2, entries(row).map(|column| (column, value(row, column))).collect())).collect()
    }

    #[test]
    fn each_feature_of_a_step_is_found_once_at_its_home() {
        let (homes, one) = ([0, 1, 0, 1, 1], 1.0);
        let rows = vec![(0, vec![(0, one), (1, one)]), (0, vec![(1, one), (4, one)]), (1, vec![]), (1, vec![(2, one)])];
        let (numbers, counts) = descent(&rows, |rows| sgd_occurrences(rows, &[1, 0, 2, 3], 2, &homes, 3));

        assert_eq!(counts, [1, 1, 2, 0, 0, 0]);
        assert_eq!(numbers, [0, 2, 1, 4]);
    }

    #[test]
    fn ranks_together_take_the_steps_of_one() {
        let order: Vec<i64> = (0..rows().len() as i64).collect();
        for k in [1, 3] {
            let (mut weights, mut squares) = (vec![0.1; FEATURE_COUNT * k], vec![0.0; FEATURE_COUNT * k]);
            let loss = descent(&rows(), |rows| sgd_epoch(rows, &order, STEP_COUNT, k, &mut weights, &mut squares));
            for p in [1, 2, 4] {
                let found = by_ranks(p, k);
                assert!((found.iter().map(|(loss, ..)| loss).sum::<f64>() - loss).abs() < 1e-12, "{p} ranks");
                for feature in 0..FEATURE_COUNT {
                    let (_, at_home, squares_at_home) = &found[feature % p];
                    for at in 0..k {
                        let (here, there) = (feature / p * k + at, feature * k + at);
                        assert!((at_home[here] - weights[there]).abs() < 1e-12, "{p} ranks, feature {feature}");
                        assert!((squares_at_home[here] - squares[there]).abs() < 1e-12, "{p} ranks, {feature}");
                    }
                }
            }
        }
    }

    /// An epoch of the rows by `p` ranks: of each the loss, the weights and the squares. Each step's rows go round the
    /// ranks; feature `f` is at home on rank `f % p`, and there it is number `f / p`.
    fn by_ranks(p: usize, k: usize) -> Vec<(f64, Vec<f64>, Vec<f64>)> {
        let mut parts = vec![Rows::new(); p];
        rows().into_iter().enumerate().for_each(|(at, row)| parts[at % p].push(row));
        let order: Vec<i64> = (0..parts[0].len() as i64).collect();
        let homes: Vec<i32> = (0..FEATURE_COUNT).map(|feature| (feature % p) as i32).collect();
        let found = |part| descent(part, |rows| sgd_occurrences(rows, &order, STEP_COUNT, &homes, p));
        let occurring: Vec<Occurring> = parts.iter().map(found).collect();
        let chunk_lens = [FEATURE_COUNT as i64; STEP_COUNT];

        let (senders, receivers): (Vec<_>, Vec<_>) = (0..p * p).map(|_| channel::<Vec<f64>>()).unzip();
        let mut receivers = receivers.into_iter();
        std::thread::scope(|scope| {
            let mut ranks = Vec::new();
            for (rank, part) in parts.iter().enumerate() {
                let from_all: Vec<_> = receivers.by_ref().take(p).collect();
                let to_all: Vec<_> = (0..p).map(|peer| senders[peer * p + rank].clone()).collect();
                let (order, occurring) = (&order, &occurring);
                ranks.push(scope.spawn(move || {
                    let (numbers, counts) = asked_of(rank, occurring, p);
                    let home_count = (FEATURE_COUNT - rank).div_ceil(p);
                    let (mut weights, mut squares) = (vec![0.1; home_count * k], vec![0.0; home_count * k]);
                    let division = Division {
                        occurring: StepNumbers { numbers: &occurring[rank].0, counts: &occurring[rank].1 },
                        asked: StepNumbers { numbers: &numbers, counts: &counts },
                        chunk_lens: &chunk_lens,
                        rows_per_step: rows().len() as f64 / STEP_COUNT as f64,
                    };
                    let exchange = |given: &[f64], got: &mut [f64]| {
                        let len = given.len() / p;
                        for (sender, chunk) in to_all.iter().zip(given.chunks_exact(len)) {
                            sender.send(chunk.to_vec()).map_err(|_| "a rank is gone")?;
                        }
                        for (receiver, chunk) in from_all.iter().zip(got.chunks_exact_mut(len)) {
                            chunk.copy_from_slice(&receiver.recv().map_err(|_| "a rank is gone")?);
                        }
                        Ok::<(), &str>(())
                    };
                    let loss = descent(part, |rows| {
                        sgd_divided_epoch(rows, order, &division, k, &mut weights, &mut squares, exchange)
                    });
                    (loss.unwrap(), weights, squares)
                }));
            }
            drop(senders);
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    /// Numbers at home on `rank` of what occurs on each rank, and their counts.
    fn asked_of(rank: usize, occurring: &[Occurring], p: usize) -> Occurring {
        let mut asked = Occurring::default();
        for (numbers, counts) in occurring {
            let start: i64 = counts[..rank * STEP_COUNT].iter().sum();
            let counts = &counts[rank * STEP_COUNT..][..STEP_COUNT];
            let len: i64 = counts.iter().sum();
            asked.0.extend(numbers[start as usize..][..len as usize].iter().map(|feature| feature / p as i32));
            asked.1.extend(counts);
        }
        asked
    }
}
