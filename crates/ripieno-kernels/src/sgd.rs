//! Stochastic gradient descent for linear models of sparse rows: an epoch of steps, each over some rows.
//!
//! Rows and features are divided among ranks. Every feature is owned by one rank, and only its owner updates it. In
//! each step the owners send the weights of the features that occur in a rank's rows. The rank returns their gradients,
//! and the owners add these up in rank order. Each feature has its own step size.
//!
//! A step has the same rows in every epoch. Its features and their owners are computed once, by [`sgd_occurrences`],
//! [`sgd_places`] and [`sgd_needed_features`]. During a step no index is searched among all features: the weights and
//! gradients are vectors of the step's own length.
//! Cost: `4·k` operations per entry; for each feature of a step four moves of its weights, a square root and a
//! division.
//! Source: Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization",
//! JMLR 12, 2011, section 1.1.

mod occurrences;
mod owned;

use crate::logistic::to_probabilities;
pub use occurrences::{OrderedColumns, StepNumbers, sgd_needed_features, sgd_occurrences, sgd_places};
use occurrences::{StepLists, of_step};
use owned::OwnedFeatures;

/// Loss function of the scores of a row. A single column contains the score of the second of two classes; otherwise
/// there is a column for each class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Negative log-likelihood of the class: logistic function for one column, softmax for more.
    Logistic,
    /// The shortfall of each column from a margin of 1.
    Hinge,
    /// Half the squared distance of each column to 1 for its class, and to -1 for the other classes.
    Squared,
}

/// Options of the descent.
#[derive(Clone, Copy, Debug)]
pub struct DescentOptions {
    /// The loss function.
    pub loss: Loss,
    /// Initial step size of a feature.
    pub eta0: f64,
    /// Mean number of rows per step over all ranks.
    pub rows_per_step: f64,
}

/// The local rows in the order of steps, and the locations of their features.
#[derive(Clone, Copy, Debug)]
pub struct StepRows<'a> {
    /// Start of each row's entries, and the end of the last row's entries.
    pub starts: &'a [i64],
    /// Position of each entry's feature in the vector of its step.
    pub places: &'a [i32],
    /// The value of each entry.
    pub values: &'a [f64],
    /// The class number of each row.
    pub classes: &'a [i32],
    /// Number of features per owner and step, owners × steps.
    pub counts: &'a [i64],
    /// Contribution of the penalty to the gradient of each such feature, per weight; in the order of [`StepNumbers`].
    pub penalties: &'a [f64],
    /// The features owned by this rank that occur in each step on any rank, with their counts.
    pub needed: StepNumbers<'a>,
    /// Positions in `needed` of the features that each rank requests from this rank.
    pub requested: StepNumbers<'a>,
    /// For each step, an upper bound on the number of features that one rank requests from one owner.
    pub chunk_lens: &'a [i64],
}

/// State of the features owned by this rank, each features × k.
#[derive(Debug)]
pub struct FeatureState<'a> {
    /// Number of weight columns.
    pub k: usize,
    /// The model.
    pub weights: &'a mut [f64],
    /// Sums of the squared gradients.
    pub squares: &'a mut [f64],
}

/// Perform one epoch over the rows of all ranks, with the steps in the given order. Return the sum of the losses of
/// the local rows, each computed before its step.
///
/// `exchange` sends every rank a chunk of the first vector, all of equal length, and fills the second vector with the
/// received chunks. With a single rank it may swap the two. Every rank must take the same steps.
///
/// # Errors
/// The errors of `exchange`.
///
/// # Panics
/// If the array shapes are inconsistent.
pub fn sgd_epoch<E>(
    batches: &StepRows,
    order: &[i64],
    descent: DescentOptions,
    state: FeatureState,
    exchange: impl FnMut(&mut Vec<f64>, &mut Vec<f64>) -> Result<(), E>,
) -> Result<f64, E> {
    assert_eq!(batches.classes.len() + 1, batches.starts.len(), "a class for every row");
    assert_eq!(batches.places.len(), batches.values.len(), "a value for every entry");
    assert_eq!(state.weights.len(), state.squares.len(), "squares for every weight");
    match state.k {
        // With a constant number of columns, a single column needs no loops.
        1 => epoch(batches, order, descent, state, 1, exchange),
        k => epoch(batches, order, descent, state, k, exchange),
    }
}

#[inline(always)]
fn epoch<E>(
    batches: &StepRows,
    order: &[i64],
    descent: DescentOptions,
    state: FeatureState,
    k: usize,
    mut exchange: impl FnMut(&mut Vec<f64>, &mut Vec<f64>) -> Result<(), E>,
) -> Result<f64, E> {
    let step_count = batches.chunk_lens.len();
    let occurrences = StepLists::new(batches.counts, batches.penalties, step_count);
    let requested = StepLists::new(batches.requested.counts, batches.requested.numbers, step_count);
    let needed = StepLists::new(batches.needed.counts, batches.needed.numbers, step_count);
    let rank_count = requested.rank_count();
    let mut owned = OwnedFeatures::new(&state, k);
    let (mut sent, mut received, mut needed_values, mut errors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut loss = 0.0;
    for &step in order {
        let step = step as usize;
        let needed = needed.of(0, step);
        let chunk_len = batches.chunk_lens[step] as usize * k;
        // Values after the features of a chunk belong to earlier steps and are ignored.
        sent.resize(rank_count * chunk_len, 0.0);
        received.resize(sent.len(), 0.0);
        needed_values.resize(needed.len() * k, 0.0);

        owned.copy_weights(needed, &mut needed_values);
        for (rank, chunk) in sent.chunks_exact_mut(chunk_len.max(1)).enumerate() {
            for (place, weights) in requested.of(rank, step).iter().zip(chunk.chunks_exact_mut(k)) {
                weights.copy_from_slice(&needed_values[*place as usize * k..][..k]);
            }
        }
        exchange(&mut sent, &mut received)?;

        let chunks = sent.chunks_exact_mut(chunk_len.max(1)).zip(received.chunks_exact(chunk_len.max(1)));
        for (rank, (gradients, weights)) in chunks.enumerate() {
            let of_features = gradients.chunks_exact_mut(k).zip(weights.chunks_exact(k));
            for (penalty, (gradient, weight)) in occurrences.of(rank, step).iter().zip(of_features) {
                gradient.iter_mut().zip(weight).for_each(|(gradient, weight)| *gradient = penalty * weight);
            }
        }
        let rows = of_step(batches.classes.len(), step, step_count);
        loss += batches.add_gradient(rows, descent.loss, &received, &mut sent, &mut errors, k);
        exchange(&mut sent, &mut received)?;

        needed_values.fill(0.0);
        for (rank, chunk) in received.chunks_exact(chunk_len.max(1)).enumerate() {
            for (place, gradient) in requested.of(rank, step).iter().zip(chunk.chunks_exact(k)) {
                let sums = &mut needed_values[*place as usize * k..][..k];
                sums.iter_mut().zip(gradient).for_each(|(sum, addend)| *sum += addend);
            }
        }
        owned.step(descent, needed, &needed_values);
    }
    owned.write(state);
    Ok(loss)
}

impl StepRows<'_> {
    /// Add the gradient of these rows and return the sum of their losses.
    #[inline(always)]
    fn add_gradient(
        &self,
        rows: std::ops::Range<usize>,
        loss: Loss,
        weights: &[f64],
        gradient: &mut [f64],
        errors: &mut Vec<f64>,
        k: usize,
    ) -> f64 {
        errors.clear();
        errors.resize(rows.len() * k, 0.0);
        for (row, scores) in rows.clone().zip(errors.chunks_exact_mut(k)) {
            self.add_scores(row, weights, scores);
        }
        let row_errors = errors.chunks_exact_mut(k).zip(&self.classes[rows.clone()]);
        let sum = row_errors.map(|(errors, &class)| loss.to_errors(errors, class as usize)).sum();
        for (row, errors) in rows.zip(errors.chunks_exact(k)) {
            let (places, values) = self.entries(row);
            for (&place, value) in places.iter().zip(values) {
                let sums = &mut gradient[place as usize * k..][..k];
                sums.iter_mut().zip(errors).for_each(|(sum, error)| *sum += value * error);
            }
        }
        sum
    }

    /// Add the products of a row's entries with their weights.
    #[inline(always)]
    fn add_scores(&self, row: usize, weights: &[f64], scores: &mut [f64]) {
        let (places, values) = self.entries(row);
        let k = scores.len();
        if let [score] = scores {
            // In four independent sums.
            let mut sums = [0.0; 4];
            let ((places, last_places), (values, last_values)) = (places.as_chunks::<4>(), values.as_chunks::<4>());
            for (places, values) in places.iter().zip(values) {
                for (sum, (place, value)) in sums.iter_mut().zip(places.iter().zip(values)) {
                    *sum += value * weights[*place as usize];
                }
            }
            for (sum, (place, value)) in sums.iter_mut().zip(last_places.iter().zip(last_values)) {
                *sum += value * weights[*place as usize];
            }
            *score = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        } else {
            for (place, value) in places.iter().zip(values) {
                let weights = &weights[*place as usize * k..][..k];
                scores.iter_mut().zip(weights).for_each(|(score, weight)| *score += value * weight);
            }
        }
    }

    #[inline(always)]
    fn entries(&self, row: usize) -> (&[i32], &[f64]) {
        let entries = self.starts[row] as usize..self.starts[row + 1] as usize;
        (&self.places[entries.clone()], &self.values[entries])
    }
}

impl Loss {
    /// Replace the scores of a row by the derivatives of its loss, and return the loss.
    #[inline(always)]
    fn to_errors(self, scores: &mut [f64], class: usize) -> f64 {
        if self == Loss::Logistic {
            let loss = to_probabilities(scores, class);
            match scores {
                [probability] => *probability -= class as f64,
                probabilities => probabilities[class] -= 1.0,
            }
            return loss;
        }
        let single = scores.len() == 1;
        let mut loss = 0.0;
        for (at, score) in scores.iter_mut().enumerate() {
            let target = if class == if single { 1 } else { at } { 1.0 } else { -1.0 };
            if self == Loss::Squared {
                *score -= target;
                loss += *score * *score / 2.0;
            } else {
                let margin_deficit = 1.0 - target * *score;
                *score = if margin_deficit > 0.0 { -target } else { 0.0 };
                loss += margin_deficit.max(0.0);
            }
        }
        loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const STEP_COUNT: usize = 3;
    const FEATURE_COUNT: usize = 5;
    const PENALTIES: [f64; FEATURE_COUNT] = [0.1, 0.2, 0.0, 0.3, 0.1];
    const DESCENT: DescentOptions = DescentOptions { loss: Loss::Logistic, eta0: 0.3, rows_per_step: 4.0 };
    /// The first step occurs twice.
    const ORDER: [i64; 4] = [2, 0, 1, 0];

    /// Class and entries per row.
    type EntriesOfRows = Vec<(i32, Vec<(i32, f64)>)>;

    #[test]
    fn errors_are_the_derivatives_of_the_loss() {
        for loss in [Loss::Logistic, Loss::Hinge, Loss::Squared] {
            for scores in [&[0.3][..], &[-1.7], &[0.3, -0.2, 1.4]] {
                for class in 0..scores.len().max(2) {
                    let mut errors = scores.to_vec();
                    loss.to_errors(&mut errors, class);
                    for (at, error) in errors.iter().enumerate() {
                        let loss_at = |by: f64| {
                            let mut scores = scores.to_vec();
                            scores[at] += by;
                            loss.to_errors(&mut scores, class)
                        };
                        let slope = (loss_at(1e-6) - loss_at(-1e-6)) / 2e-6;
                        assert!((slope - error).abs() < 1e-8, "{loss:?} of {scores:?}, class {class}");
                    }
                }
            }
        }
    }

    /// Rows, including one without entries and one with a single entry.
    fn rows() -> EntriesOfRows {
        let has = |row: i32, column: i32| (row + column) % 3 != 0 && row != 5 && (row != 4 || column == 1);
        let value = |row: i32, column: i32| f64::from((7 * row + 3 * column) % 11 - 5) / 4.0;
        let entries = |row| (0..FEATURE_COUNT as i32).filter(move |&column| has(row, column));
        (0..12).map(|row| (row % 2, entries(row).map(|column| (column, value(row, column))).collect())).collect()
    }

    /// Return the loss and the weights and squares, features × k, after steps that process all features. Weights start
    /// at 0.1.
    fn expected_descent(k: usize) -> (f64, Vec<f64>, Vec<f64>) {
        let (mut weights, mut squares) = (vec![0.1; FEATURE_COUNT * k], vec![0.0; FEATURE_COUNT * k]);
        let (rows, mut loss) = (rows(), 0.0);
        for step in ORDER {
            let mut gradient = vec![0.0; FEATURE_COUNT * k];
            for (class, entries) in &rows[of_step(rows.len(), step as usize, STEP_COUNT)] {
                let weight = |feature: i32, at| weights[feature as usize * k + at];
                let score = |at| entries.iter().map(|(feature, value)| value * weight(*feature, at)).sum();
                let mut errors: Vec<f64> = (0..k).map(score).collect();
                loss += DESCENT.loss.to_errors(&mut errors, *class as usize);
                for (feature, value) in entries {
                    for (at, error) in errors.iter().enumerate() {
                        let penalty = PENALTIES[*feature as usize] * weight(*feature, at);
                        gradient[*feature as usize * k + at] += value * error + penalty;
                    }
                }
            }
            for (at, gradient) in gradient.iter().map(|sum| sum / DESCENT.rows_per_step).enumerate() {
                squares[at] += gradient * gradient;
                weights[at] -= DESCENT.eta0 * gradient / (squares[at] + 1e-10).sqrt();
            }
        }
        (loss, weights, squares)
    }

    #[test]
    fn several_ranks_compute_the_steps_of_one_rank() {
        for k in [1, 3] {
            let (loss, weights, squares) = expected_descent(k);
            for p in [1, 2, 4] {
                let found = descend_on_ranks(p, k);
                assert!((found.iter().map(|(loss, ..)| loss).sum::<f64>() - loss).abs() < 1e-12, "{p} ranks");
                for feature in 0..FEATURE_COUNT {
                    let (_, owned_weights, owned_squares) = &found[feature % p];
                    for at in 0..k {
                        let (here, there) = (feature / p * k + at, feature * k + at);
                        assert!((owned_weights[here] - weights[there]).abs() < 1e-12, "{p} ranks, feature {feature}");
                        assert!((owned_squares[here] - squares[there]).abs() < 1e-12, "{p} ranks, {feature}");
                    }
                }
            }
        }
    }

    /// The rows of a rank, one array per part.
    #[derive(Default)]
    struct RankRows {
        starts: Vec<i64>,
        columns: Vec<i32>,
        values: Vec<f64>,
        classes: Vec<i32>,
    }

    impl RankRows {
        fn of(rows: &[(i32, Vec<(i32, f64)>)]) -> RankRows {
            let (columns, values): (Vec<i32>, Vec<f64>) = rows.iter().flat_map(|(_, entries)| entries.clone()).unzip();
            let mut starts = vec![0];
            rows.iter().for_each(|(_, entries)| starts.push(starts[starts.len() - 1] + entries.len() as i64));
            RankRows { starts, columns, values, classes: rows.iter().map(|(class, _)| *class).collect() }
        }

        fn columns(&self) -> OrderedColumns<'_> {
            OrderedColumns { starts: &self.starts, columns: &self.columns, step_count: STEP_COUNT }
        }
    }

    /// Run the epoch on `p` ranks and return the loss, weights and squares of each. The rows of a step are distributed
    /// cyclically. Rank `f % p` owns feature `f`, with the local index `f / p`.
    fn descend_on_ranks(p: usize, k: usize) -> Vec<(f64, Vec<f64>, Vec<f64>)> {
        let part = |rank: usize| RankRows::of(&rows().into_iter().skip(rank).step_by(p).collect::<Vec<_>>());
        let parts: Vec<RankRows> = (0..p).map(part).collect();
        let owners: Vec<i32> = (0..FEATURE_COUNT).map(|feature| (feature % p) as i32).collect();
        let occurrences: Vec<_> = parts.iter().map(|part| sgd_occurrences(part.columns(), &owners, p)).collect();
        let chunk_lens = [FEATURE_COUNT as i64; STEP_COUNT];

        let (senders, receivers): (Vec<_>, Vec<_>) = (0..p * p).map(|_| channel::<Vec<f64>>()).unzip();
        let mut receivers = receivers.into_iter();
        std::thread::scope(|scope| {
            let mut ranks = Vec::new();
            for (rank, part) in parts.iter().enumerate() {
                let from_all: Vec<_> = receivers.by_ref().take(p).collect();
                let to_all: Vec<_> = (0..p).map(|peer| senders[peer * p + rank].clone()).collect();
                let occurrences = &occurrences;
                ranks.push(scope.spawn(move || {
                    let (numbers, counts) = &occurrences[rank];
                    let (places, penalties) =
                        sgd_places(part.columns(), StepNumbers { numbers, counts }, &chunk_lens, &PENALTIES);
                    let (requested, requested_counts) = requested_from(rank, occurrences, p);
                    let requested = StepNumbers { numbers: &requested, counts: &requested_counts };
                    let (needed, needed_counts, requested_places) =
                        sgd_needed_features(requested, FEATURE_COUNT, STEP_COUNT);
                    let owner_count = (FEATURE_COUNT - rank).div_ceil(p);
                    let (mut weights, mut squares) = (vec![0.1; owner_count * k], vec![0.0; owner_count * k]);
                    let batches = StepRows {
                        starts: &part.starts,
                        places: &places,
                        values: &part.values,
                        classes: &part.classes,
                        counts,
                        penalties: &penalties,
                        needed: StepNumbers { numbers: &needed, counts: &needed_counts },
                        requested: StepNumbers { numbers: &requested_places, counts: &requested_counts },
                        chunk_lens: &chunk_lens,
                    };
                    let exchange = |sent: &mut Vec<f64>, received: &mut Vec<f64>| {
                        let len = sent.len() / p;
                        for (sender, chunk) in to_all.iter().zip(sent.chunks_exact(len)) {
                            sender.send(chunk.to_vec()).map_err(|_| "a rank is gone")?;
                        }
                        for (receiver, chunk) in from_all.iter().zip(received.chunks_exact_mut(len)) {
                            chunk.copy_from_slice(&receiver.recv().map_err(|_| "a rank is gone")?);
                        }
                        Ok::<(), &str>(())
                    };
                    let state = FeatureState { k, weights: &mut weights, squares: &mut squares };
                    let loss = sgd_epoch(&batches, &ORDER, DESCENT, state, exchange);
                    (loss.unwrap(), weights, squares)
                }));
            }
            drop(senders);
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    /// Return the features of each rank owned by `rank`, as local numbers, and their counts.
    fn requested_from(rank: usize, occurrences: &[(Vec<i32>, Vec<i64>)], p: usize) -> (Vec<i32>, Vec<i64>) {
        let mut requested = (Vec::new(), Vec::new());
        for (numbers, counts) in occurrences {
            let start: i64 = counts[..rank * STEP_COUNT].iter().sum();
            let counts = &counts[rank * STEP_COUNT..][..STEP_COUNT];
            let len: i64 = counts.iter().sum();
            requested.0.extend(numbers[start as usize..][..len as usize].iter().map(|feature| feature / p as i32));
            requested.1.extend(counts);
        }
        requested
    }
}
