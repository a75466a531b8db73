//! Comparison of rows with groups of neighboring centroids, in blocks. Each row has its own distance limit.

use super::{AssignScratch, MAX_DIRECT_CENTROIDS, SearchKind};
use crate::{Centroid, Matrix, Point, Threads};

/// The centroids of groups, group by group, prepared for the search.
pub(super) struct GroupMembers<'a, C> {
    centroids: Matrix<'a, C>,
    numbers: &'a [u32],
    starts: &'a [usize],
    searches: Vec<SearchKind<C>>,
}

impl<'a, C: Centroid> GroupMembers<'a, C> {
    pub(super) fn new<P: Point<Centroid = C>>(
        centroids: Matrix<'a, C>,
        numbers: &'a [u32],
        starts: &'a [usize],
        threads: &Threads,
    ) -> GroupMembers<'a, C> {
        let count = starts.len() - 1;
        let mut searches: Vec<_> = (0..count).map(|_| SearchKind::Direct).collect();
        let single_thread = Threads::with_simd(1, threads.simd());
        let operations = centroids.values().len() / count.max(1) * 16;
        threads.for_each(
            searches.iter_mut().zip(starts.windows(2)).collect(),
            operations,
            || (),
            |(), (search, ends)| {
                if ends[1] - ends[0] > MAX_DIRECT_CENTROIDS {
                    *search =
                        SearchKind::new::<P>(centroids.row_range(ends[0], ends[1] - ends[0]), None, &single_thread);
                }
            },
        );
        GroupMembers { centroids, numbers, starts, searches }
    }

    pub(super) fn count(&self) -> usize {
        self.searches.len()
    }

    /// Return the centroids of a group and their numbers.
    fn group(&self, group: usize) -> (Matrix<'a, C>, &'a [u32]) {
        let (first, end) = (self.starts[group], self.starts[group + 1]);
        (self.centroids.row_range(first, end - first), &self.numbers[first..end])
    }
}

/// Replace a row's centroid if the new one is nearer, or equally near with a lower number.
#[inline(always)]
pub(super) fn update_nearest(label: &mut i32, nearest: &mut f64, number: u32, distance: f64) {
    let number = number as i32;
    if distance < *nearest || (distance == *nearest && number < *label) {
        (*nearest, *label) = (distance, number);
    }
}

/// Buffers of a thread for a block of rows that are compared with groups.
pub(super) struct GroupSearchScratch<P: Point> {
    /// Rows that probe a group, with their limits and results.
    rows: Vec<P>,
    within: Vec<f64>,
    labels: Vec<i32>,
    distances: Vec<f64>,
    scratch: AssignScratch,
    batch_rows: usize,
}

impl<P: Point> GroupSearchScratch<P> {
    pub(super) fn new(columns: usize) -> GroupSearchScratch<P> {
        let batch_rows = super::block_rows(columns);
        GroupSearchScratch {
            rows: Vec::new(),
            within: Vec::new(),
            labels: vec![0; batch_rows],
            distances: vec![0.0; batch_rows],
            scratch: AssignScratch::new(batch_rows, columns),
            batch_rows,
        }
    }

    /// Compare the rows of a block with the members of the groups that they probe, and keep nearer members.
    pub(super) fn compare<'a>(
        &mut self,
        groups: &GroupMembers<P::Centroid>,
        probing: impl Fn(usize) -> &'a [u16],
        points: Matrix<P>,
        (labels, distances): (&mut [i32], &mut [f64]),
        threads: &Threads,
    ) {
        for (group, search) in groups.searches.iter().enumerate() {
            let (members, numbers) = groups.group(group);
            if members.rows() == 0 {
                continue;
            }
            for rows in probing(group).chunks(self.batch_rows) {
                self.rows.clear();
                rows.iter().for_each(|&row| self.rows.extend_from_slice(points.row(row.into())));
                self.within.clear();
                self.within.extend(rows.iter().map(|&row| distances[usize::from(row)]));
                let batch = Matrix::new(&self.rows, rows.len(), points.columns());
                let (found, nearest) = (&mut self.labels[..rows.len()], &mut self.distances[..rows.len()]);
                search.block(
                    batch,
                    members,
                    (&mut *found, &mut *nearest),
                    Some(&self.within),
                    &mut self.scratch,
                    threads,
                );
                for ((&row, &found), &distance) in rows.iter().zip(&*found).zip(&*nearest) {
                    let row = usize::from(row);
                    update_nearest(&mut labels[row], &mut distances[row], numbers[found as usize], distance);
                }
            }
        }
    }
}
