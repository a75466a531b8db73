//! Linear models of sparse rows by stochastic gradient descent: an epoch of steps, each over some rows.
//!
//! A step reads the entries of its rows twice, for their scores and for the gradient, and moves the features that occur
//! in them, each by a length of its own. All that is known of a feature lies together, so that it is fetched once.
//! Cost: `4·k` operations an entry, and a root and a quotient for each feature of a step and column of weights.
//! Source: Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization",
//! JMLR 12, 2011, section 1.1.

mod divided;

use crate::logistic::to_chances;
pub use divided::{Division, StepNumbers, sgd_divided_epoch, sgd_occurrences};

/// Keeps the first step finite where a gradient is zero.
const EPSILON: f64 = 1e-10;

/// What is to become small, of the scores of a row. With one column they are of the second of two classes, else there
/// is a column for each class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Minus the logarithm of the probability of the class: logistic function of one column, softmax of more.
    Logistic,
    /// What each column lacks to 1 on the right side.
    Hinge,
    /// Half the squared distance of each column to 1 of its class, and to -1 of the others.
    Squared,
}

/// Rows of few entries, and how to descend over them.
#[derive(Clone, Copy, Debug)]
pub struct Descent<'a> {
    /// Where the entries of each row begin, and where the last ones end.
    pub starts: &'a [i64],
    /// The feature of each entry.
    pub columns: &'a [i32],
    /// The value of each entry.
    pub values: &'a [f64],
    /// The number of each row's class.
    pub classes: &'a [i32],
    /// What the penalty adds to the gradient of a row that has the feature, per weight.
    pub penalties: &'a [f64],
    /// The length of a feature's first step.
    pub eta0: f64,
    /// What is descended.
    pub loss: Loss,
}

impl Descent<'_> {
    fn check(&self, k: usize, len: usize) {
        assert_eq!(self.classes.len() + 1, self.starts.len(), "a class for every row");
        assert_eq!(self.columns.len(), self.values.len(), "a value for every entry");
        assert_eq!(len, k * self.penalties.len(), "weights for every feature");
    }

    #[inline(always)]
    fn entries(&self, row: i64) -> (&[i32], &[f64]) {
        let entries = self.starts[row as usize] as usize..self.starts[row as usize + 1] as usize;
        (&self.columns[entries.clone()], &self.values[entries])
    }
}

/// One epoch over the rows in this order, in so many steps; returns the sum of their losses, each before its step.
///
/// `weights` and `squares`, the sums of squared gradients, are features × k.
///
/// # Panics
/// If the shapes do not fit.
pub fn sgd_epoch(
    rows: &Descent,
    order: &[i64],
    step_count: usize,
    k: usize,
    weights: &mut [f64],
    squares: &mut [f64],
) -> f64 {
    rows.check(k, weights.len());
    assert_eq!(weights.len(), squares.len(), "squares for every weight");
    match k {
        // With a number that the compiler knows a single column costs no loops.
        1 => epoch(rows, order, step_count, weights, squares, 1),
        _ => epoch(rows, order, step_count, weights, squares, k),
    }
}

#[inline(always)]
fn epoch(rows: &Descent, order: &[i64], step_count: usize, weights: &mut [f64], squares: &mut [f64], k: usize) -> f64 {
    let mut features = Features::new(weights, k);
    features.set_squares(squares);
    let rows_per_step = order.len() as f64 / step_count as f64;
    let mut loss = 0.0;
    for step in 0..step_count {
        loss += features.add_gradient(rows, of_step(order, step, step_count));
        features.step(rows.eta0, |column| rows.penalties[column], rows_per_step);
    }
    features.write(weights, squares);
    loss
}

/// The rows of a step of an epoch.
fn of_step(order: &[i64], step: usize, step_count: usize) -> &[i64] {
    &order[order.len() * step / step_count..order.len() * (step + 1) / step_count]
}

/// What is known of all features: of each `k` weights, `k` sums of squares, `k` of the gradient, and how many entries
/// it has in the step.
struct Features {
    k: usize,
    known: Vec<f64>,
    /// Those of the step, of which the first `met_count` count.
    met: Vec<i32>,
    met_count: usize,
    errors: Vec<f64>,
}

impl Features {
    #[inline(always)]
    fn new(weights: &[f64], k: usize) -> Features {
        let mut known = vec![0.0; weights.len() / k * (3 * k + 1)];
        for (feature, weights) in known.chunks_exact_mut(3 * k + 1).zip(weights.chunks_exact(k)) {
            feature[..k].copy_from_slice(weights);
        }
        // One more, where a feature is noted that has been met before.
        let met = vec![0; weights.len() / k + 1];
        Features { k, known, met, met_count: 0, errors: Vec::new() }
    }

    #[inline(always)]
    fn set_squares(&mut self, squares: &[f64]) {
        let k = self.k;
        for (feature, squares) in self.known.chunks_exact_mut(3 * k + 1).zip(squares.chunks_exact(k)) {
            feature[k..2 * k].copy_from_slice(squares);
        }
    }

    #[inline(always)]
    fn write(&self, weights: &mut [f64], squares: &mut [f64]) {
        let k = self.k;
        let wanted = weights.chunks_exact_mut(k).zip(squares.chunks_exact_mut(k));
        for (feature, (weights, squares)) in self.known.chunks_exact(3 * k + 1).zip(wanted) {
            weights.copy_from_slice(&feature[..k]);
            squares.copy_from_slice(&feature[k..2 * k]);
        }
    }

    #[inline(always)]
    fn of(&mut self, column: usize) -> &mut [f64] {
        let width = 3 * self.k + 1;
        &mut self.known[column * width..][..width]
    }

    /// Adds what these rows add to the gradient, and notes whose; returns the sum of their losses.
    #[inline(always)]
    fn add_gradient(&mut self, rows: &Descent, chosen: &[i64]) -> f64 {
        let k = self.k;
        let mut errors = std::mem::take(&mut self.errors);
        errors.clear();
        errors.resize(chosen.len() * k, 0.0);
        for (&row, errors) in chosen.iter().zip(errors.chunks_exact_mut(k)) {
            self.add_scores(rows, row, errors);
        }
        let mut loss = 0.0;
        for (&row, errors) in chosen.iter().zip(errors.chunks_exact_mut(k)) {
            loss += rows.loss.to_errors(errors, rows.classes[row as usize] as usize);
        }
        for (&row, errors) in chosen.iter().zip(errors.chunks_exact(k)) {
            let (columns, values) = rows.entries(row);
            for (&column, value) in columns.iter().zip(values) {
                self.add(column, errors.iter().map(|error| value * error));
            }
        }
        self.errors = errors;
        loss
    }

    /// Adds an entry to the gradient of its feature, and notes that it has been met.
    #[inline(always)]
    fn add(&mut self, column: i32, addends: impl Iterator<Item = f64>) {
        let k = self.k;
        let feature = self.of(column as usize);
        let is_first = feature[3 * k] == 0.0;
        feature[3 * k] += 1.0;
        feature[2 * k..3 * k].iter_mut().zip(addends).for_each(|(sum, addend)| *sum += addend);
        // Whether it is the first is as good as random, so that a branch would be guessed wrong.
        self.met[self.met_count] = column;
        self.met_count += usize::from(is_first);
    }

    /// Adds the products of a row's entries with their weights.
    #[inline(always)]
    fn add_scores(&self, rows: &Descent, row: i64, scores: &mut [f64]) {
        let (columns, values) = rows.entries(row);
        let k = self.k;
        let known = |column: i32| &self.known[column as usize * (3 * k + 1)..][..k];
        if let [score] = scores {
            // In four sums that do not wait for each other.
            let mut sums = [0.0; 4];
            for (columns, values) in columns.chunks(4).zip(values.chunks(4)) {
                for (sum, (column, value)) in sums.iter_mut().zip(columns.iter().zip(values)) {
                    *sum += value * known(*column)[0];
                }
            }
            *score = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        } else {
            for (column, value) in columns.iter().zip(values) {
                scores.iter_mut().zip(known(*column)).for_each(|(score, weight)| *score += value * weight);
            }
        }
    }

    /// How many entries the feature has in the step, which are none from now on.
    #[inline(always)]
    fn take_count(&mut self, column: usize) -> f64 {
        let count_at = 3 * self.k;
        std::mem::take(&mut self.of(column)[count_at])
    }

    /// Moves the features that have been met, whose gradients are sums over so many rows.
    #[inline(always)]
    fn step(&mut self, eta0: f64, penalty: impl Fn(usize) -> f64, row_count: f64) {
        let k = self.k;
        for at in 0..std::mem::take(&mut self.met_count) {
            let column = self.met[at] as usize;
            let penalty = self.take_count(column) * penalty(column);
            let (weights, rest) = self.of(column).split_at_mut(k);
            let (squares, gradient) = rest.split_at_mut(k);
            for (weight, (square, gradient)) in weights.iter_mut().zip(squares.iter_mut().zip(gradient)) {
                let gradient = (std::mem::take(gradient) + penalty * *weight) / row_count;
                step(gradient, eta0, weight, square);
            }
        }
    }
}

#[inline(always)]
fn step(gradient: f64, eta0: f64, weight: &mut f64, square: &mut f64) {
    *square += gradient * gradient;
    *weight -= eta0 * gradient / (*square + EPSILON).sqrt();
}

impl Loss {
    /// Turns the scores of a row into the derivatives by them; returns its loss.
    #[inline(always)]
    fn to_errors(self, scores: &mut [f64], class: usize) -> f64 {
        if self == Loss::Logistic {
            let loss = to_chances(scores, class);
            match scores {
                [chance] => *chance -= class as f64,
                chances => chances[class] -= 1.0,
            }
            return loss;
        }
        let single = scores.len() == 1;
        let mut loss = 0.0;
        for (at, score) in scores.iter_mut().enumerate() {
            let side = if class == if single { 1 } else { at } { 1.0 } else { -1.0 };
            if self == Loss::Squared {
                *score -= side;
                loss += *score * *score / 2.0;
            } else {
                let lack = 1.0 - side * *score;
                *score = if lack > 0.0 { -side } else { 0.0 };
                loss += lack.max(0.0);
            }
        }
        loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_the_derivatives_of_the_loss() {
        for loss in [Loss::Logistic, Loss::Hinge, Loss::Squared] {
            for scores in [&[0.3][..], &[-1.7], &[0.3, -0.2, 1.4]] {
                for class in 0..scores.len().max(2) {
                    let mut errors = scores.to_vec();
                    loss.to_errors(&mut errors, class);
                    for (at, error) in errors.iter().enumerate() {
                        let near = |by: f64| {
                            let mut scores = scores.to_vec();
                            scores[at] += by;
                            loss.to_errors(&mut scores, class)
                        };
                        let slope = (near(1e-6) - near(-1e-6)) / 2e-6;
                        assert!((slope - error).abs() < 1e-8, "{loss:?} of {scores:?}, class {class}");
                    }
                }
            }
        }
    }
}
