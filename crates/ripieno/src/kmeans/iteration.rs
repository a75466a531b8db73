//! Lloyd's iteration: assign this rank's rows, add over all ranks, and move the centroids.

use super::Clustering;
use super::empty_clusters::fill_empty_clusters;
use super::rows::{RankRows, added};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::number_bytes::bytes_of_mut;
use ripieno_kernels::{DistanceBounds, Matrix, PassOutput, Point, Threads, assign_accumulate_within, recenter};
use ripieno_plan::Op;
use ripieno_run::Element;

/// Bytes of bounds per coordinate of a row, as in the Python estimator.
const BOUND_BYTES_PER_VALUE: usize = 4;
/// Label of a row without a centroid.
const NO_CENTROID: i32 = -1;

/// Entries of the reduced vector after the weights of the clusters, and the places of two measures among them. They
/// equal those of the Python estimator, so ranks of both languages add each sum in the same order.
const MEASURE_ENTRIES: usize = 15;
const INERTIA: usize = 0;
const CHANGED: usize = 4;

/// The sums of a pass: one vector, which the ranks add in place.
struct PassSums {
    line: Vec<f64>,
    cluster_count: usize,
    value_count: usize,
}

impl PassSums {
    fn new(cluster_count: usize, columns: usize) -> PassSums {
        let value_count = cluster_count * columns;
        PassSums { line: vec![0.0; value_count + cluster_count + MEASURE_ENTRIES], cluster_count, value_count }
    }

    /// Return the sums of the rows of each cluster, `k × d`, and their weights.
    fn parts_mut(&mut self) -> (&mut [f64], &mut [f64]) {
        let (sums, rest) = self.line.split_at_mut(self.value_count);
        (sums, &mut rest[..self.cluster_count])
    }

    /// Add the sums over all ranks. Return the inertia of all rows, and whether a label of any rank has changed.
    fn add(&mut self, comm: &Communicator, inertia: f64, has_changed: bool) -> Result<(f64, bool), Error> {
        let begin = self.value_count + self.cluster_count;
        self.line[begin..].fill(0.0);
        self.line[begin + INERTIA] = inertia;
        self.line[begin + CHANGED] = f64::from(has_changed);
        comm.allreduce(bytes_of_mut(&mut self.line), Element::F64, Op::Sum, None)?;
        Ok((self.line[begin + INERTIA], self.line[begin + CHANGED] > 0.0))
    }
}

/// The state of a fit between iterations.
pub(super) struct Iterations<'a, P: Point> {
    comm: &'a Communicator,
    rows: &'a RankRows<'a, P>,
    threads: &'a Threads,
    bounds: DistanceBounds,
    centroids: Vec<P::Centroid>,
    labels: Vec<i32>,
    squared_distances: Vec<f64>,
    sums: PassSums,
}

impl<'a, P: Point> Iterations<'a, P> {
    pub(super) fn new(
        comm: &'a Communicator,
        rows: &'a RankRows<'a, P>,
        centroids: Vec<P::Centroid>,
        threads: &'a Threads,
    ) -> Iterations<'a, P> {
        let columns = rows.points.columns();
        Iterations {
            comm,
            rows,
            threads,
            bounds: DistanceBounds::new(BOUND_BYTES_PER_VALUE * rows.points.values().len()),
            labels: vec![NO_CENTROID; rows.count()],
            squared_distances: vec![0.0; rows.count()],
            sums: PassSums::new(centroids.len() / columns, columns),
            centroids,
        }
    }

    /// Iterate until no label changes, the squared shift of the centroids is at most `tol`, or `max_iter` is reached.
    pub(super) fn run(mut self, max_iter: usize, tol: f64) -> Result<Clustering<P::Centroid>, Error> {
        let (mut previous, mut iteration) = (self.labels.clone(), 0);
        loop {
            iteration += 1;
            std::mem::swap(&mut self.labels, &mut previous);
            let inertia = self.pass();
            let (mut inertia, has_changed) = self.sums.add(self.comm, inertia, self.labels != previous)?;
            let (sums, weight_sums) = self.sums.parts_mut();
            let (labels, distances) = (&self.labels, &self.squared_distances);
            let moved_count = fill_empty_clusters(self.comm, self.rows, labels, distances, sums, weight_sums)?;
            let squared_shift = recenter(&mut self.centroids, sums, weight_sums).squared_shift;
            if has_changed && squared_shift > tol && iteration < max_iter {
                continue;
            }
            if has_changed || moved_count > 0 {
                // The centroids have moved since the labels were assigned.
                self.pass();
                inertia = added(self.comm, vec![self.rows.cost(&self.squared_distances)])?[0];
            }
            let Iterations { centroids, labels, .. } = self;
            return Ok(Clustering { centroids, labels, inertia, iteration_count: iteration });
        }
    }

    /// Assign this rank's rows and sum them. Return their inertia.
    fn pass(&mut self) -> f64 {
        let columns = self.rows.points.columns();
        let centroids = Matrix::new(&self.centroids, self.centroids.len() / columns, columns);
        let (sums, weight_sums) = self.sums.parts_mut();
        let (labels, squared_distances) = (&mut self.labels[..], Some(&mut self.squared_distances[..]));
        let pass = PassOutput { labels, squared_distances, sums, weight_sums };
        let RankRows { points, weights, .. } = *self.rows;
        assign_accumulate_within(points, centroids, weights, pass, &mut self.bounds, self.threads)
    }
}
