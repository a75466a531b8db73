//! State of the features that a rank owns.

use super::{DescentOptions, FeatureState};

/// Keeps the first step finite for a zero gradient.
const EPSILON: f64 = 1e-10;

/// Number of features updated together: square roots and divisions of several numbers take as long as one.
const BLOCK: usize = 64;

/// State of the owned features.
pub(super) struct OwnedFeatures {
    k: usize,
    /// Per feature `k` weights and `k` sums of squares, adjacent, so that both are fetched at once.
    features_state: Vec<f64>,
    /// Weights and squares of a block.
    weights: Vec<f64>,
    squares: Vec<f64>,
}

impl OwnedFeatures {
    #[inline(always)]
    pub(super) fn new(state: &FeatureState, k: usize) -> OwnedFeatures {
        let mut features_state = vec![0.0; 2 * state.weights.len()];
        let source = state.weights.chunks_exact(k).zip(state.squares.chunks_exact(k));
        for (feature, (weights, squares)) in features_state.chunks_exact_mut(2 * k).zip(source) {
            feature[..k].copy_from_slice(weights);
            feature[k..].copy_from_slice(squares);
        }
        OwnedFeatures { k, features_state, weights: vec![0.0; BLOCK * k], squares: vec![0.0; BLOCK * k] }
    }

    #[inline(always)]
    pub(super) fn write(self, state: FeatureState) {
        let k = self.k;
        let target = state.weights.chunks_exact_mut(k).zip(state.squares.chunks_exact_mut(k));
        for (feature, (weights, squares)) in self.features_state.chunks_exact(2 * k).zip(target) {
            weights.copy_from_slice(&feature[..k]);
            squares.copy_from_slice(&feature[k..]);
        }
    }

    /// Write the weights of these features, one after the other.
    #[inline(always)]
    pub(super) fn copy_weights(&self, features: &[i32], out: &mut [f64]) {
        let k = self.k;
        for (feature, weights) in features.iter().zip(out.chunks_exact_mut(k)) {
            weights.copy_from_slice(&self.features_state[*feature as usize * 2 * k..][..k]);
        }
    }

    /// Update these features, each once, with their gradients, which are sums over the rows of a step.
    #[inline(always)]
    pub(super) fn step(&mut self, descent: DescentOptions, features: &[i32], gradients: &[f64]) {
        let k = self.k;
        let scale = 1.0 / descent.rows_per_step;
        for (features, gradients) in features.chunks(BLOCK).zip(gradients.chunks(BLOCK * k)) {
            let len = features.len() * k;
            let (weights, squares) = (&mut self.weights[..len], &mut self.squares[..len]);
            for (at, &feature) in features.iter().enumerate() {
                let features_state = &self.features_state[feature as usize * 2 * k..][..2 * k];
                weights[at * k..][..k].copy_from_slice(&features_state[..k]);
                squares[at * k..][..k].copy_from_slice(&features_state[k..]);
            }
            for (weight, (square, gradient)) in weights.iter_mut().zip(squares.iter_mut().zip(gradients)) {
                let gradient = gradient * scale;
                *square += gradient * gradient;
                *weight -= descent.eta0 * gradient / (*square + EPSILON).sqrt();
            }
            for (at, &feature) in features.iter().enumerate() {
                let features_state = &mut self.features_state[feature as usize * 2 * k..][..2 * k];
                features_state[..k].copy_from_slice(&weights[at * k..][..k]);
                features_state[k..].copy_from_slice(&squares[at * k..][..k]);
            }
        }
    }
}
