//! Reference implementation of K-means in plain f64 loops, and reproducible inputs.
#![allow(dead_code)]

use ripieno_kernels::{Centroid, Matrix, Point};

/// A small reproducible generator (SplitMix64).
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E3779B97F4A7C15);
        let a = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58476D1CE4E5B9);
        let b = (a ^ (a >> 27)).wrapping_mul(0x94D049BB133111EB);
        b ^ (b >> 31)
    }

    /// Return the next number in [-1, 1).
    pub fn real(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Expected result of a pass.
#[derive(Debug)]
pub struct Expected {
    pub labels: Vec<i32>,
    pub squared_distances: Vec<f64>,
    pub sums: Vec<f64>,
    pub weight_sums: Vec<f64>,
    pub inertia: f64,
}

pub fn squared_distance<P: Point, C: Centroid>(point: &[P], centroid: &[C]) -> f64 {
    let pairs = point.iter().zip(centroid);
    pairs.map(|(&x, &c)| (Into::<f64>::into(x) - Into::<f64>::into(c)).powi(2)).sum()
}

pub fn expected<P: Point>(points: Matrix<P>, centroids: Matrix<P::Centroid>, weights: Option<&[f64]>) -> Expected {
    let (n, d, k) = (points.rows(), points.columns(), centroids.rows());
    let mut expected = Expected {
        labels: vec![0; n],
        squared_distances: vec![0.0; n],
        sums: vec![0.0; k * d],
        weight_sums: vec![0.0; k],
        inertia: 0.0,
    };
    for row in 0..n {
        let (mut best, mut label) = (f64::INFINITY, 0);
        for index in 0..k {
            let distance = squared_distance(points.row(row), centroids.row(index));
            if distance < best {
                (best, label) = (distance, index);
            }
        }
        let weight = weights.map_or(1.0, |weights| weights[row]);
        expected.labels[row] = label as i32;
        expected.squared_distances[row] = best;
        expected.inertia += weight * best;
        expected.weight_sums[label] += weight;
        for (column, &value) in points.row(row).iter().enumerate() {
            expected.sums[label * d + column] += weight * Into::<f64>::into(value);
        }
    }
    expected
}
