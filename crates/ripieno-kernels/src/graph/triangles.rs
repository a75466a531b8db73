//! Triangles of a graph. Edges lead from the earlier to the later vertex of some order, so each triangle is found once.
//!
//! The targets of a vertex `u` are marked. A marked `w` in the list of a target `v` closes the triangle `u→v→w`, `u→w`.
//! Cost: one step per entry of the lists of all targets. If edges lead from smaller to larger degrees, a list has at
//! most `√2m` of `m` entries.
//! Source: Latapy, "Main-memory triangle computations for very large (sparse (power-law)) graphs", Theoretical Computer
//! Science 407, 2008, section 3.

use crate::Threads;
use std::ops::Range;

/// Lists of the targets of each vertex, with the number of directions of each edge.
#[derive(Clone, Copy, Debug)]
pub struct TargetLists<'a> {
    /// The list of vertex `v` has the entries `offsets[v] .. offsets[v + 1]`.
    pub offsets: &'a [i64],
    /// The target of each edge. A list has no target twice.
    pub targets: &'a [i64],
    /// The number of directions of each edge.
    pub directions: &'a [i64],
}

/// Of a vertex: the number of its triangles, and the sum of the directions of their opposite edges.
pub type Counted = [i64; 2];

impl TargetLists<'_> {
    fn vertex_count(&self) -> usize {
        self.offsets.len() - 1
    }

    fn list(&self, vertex: usize) -> Range<usize> {
        self.offsets[vertex] as usize..self.offsets[vertex + 1] as usize
    }
}

/// Return the triangles `u→v→w`, `u→w` of each vertex, with `u→v` and `u→w` from `own` and `v→w` from `others`.
///
/// # Panics
/// If the lists have different vertices, or refer to entries or vertices that do not exist.
pub fn count_triangles(own: TargetLists, others: TargetLists, threads: &Threads) -> Vec<Counted> {
    let count = own.vertex_count();
    assert_eq!(others.vertex_count(), count, "both lists have the same vertices");
    let runs = runs_of_equal_work(own, others, threads);
    let mut found: Vec<_> = runs.iter().map(|_| vec![[0, 0]; count]).collect();
    let operations = own.targets.len() + others.targets.len();
    threads.for_each(
        runs.into_iter().zip(&mut found).collect(),
        operations,
        || vec![0; count],
        |marks, (run, found)| run.for_each(|vertex| add_triangles(own, others, vertex, marks, found)),
    );
    let mut parts = found.into_iter();
    let mut total = parts.next().unwrap_or_else(|| vec![[0, 0]; count]);
    for part in parts {
        total.iter_mut().zip(part).for_each(|(sum, each)| *sum = [sum[0] + each[0], sum[1] + each[1]]);
    }
    total
}

/// Return a run of vertices per thread.
fn runs_of_equal_work(own: TargetLists, others: TargetLists, threads: &Threads) -> Vec<Range<usize>> {
    let mut work = 0;
    let ends: Vec<usize> = (0..own.vertex_count())
        .map(|vertex| {
            let targets = &own.targets[own.list(vertex)];
            work += targets.iter().map(|&target| 1 + others.list(target as usize).len()).sum::<usize>();
            work
        })
        .collect();
    let parts = threads.count();
    let cut = |part: usize| ends.partition_point(|&end| end < work * part / parts);
    (0..parts).map(|part| cut(part)..if part + 1 == parts { ends.len() } else { cut(part + 1) }).collect()
}

/// Add the triangles with the first vertex `first`. `marks` has a zero per vertex before and after.
fn add_triangles(own: TargetLists, others: TargetLists, first: usize, marks: &mut [i64], found: &mut [Counted]) {
    let list = own.list(first);
    for entry in list.clone() {
        marks[own.targets[entry] as usize] = own.directions[entry];
    }
    let mut of_first = [0, 0];
    for entry in list.clone() {
        let second = own.targets[entry] as usize;
        let mut of_second = [0, 0];
        for closing in others.list(second) {
            let third = others.targets[closing] as usize;
            let mark = marks[third];
            if mark != 0 {
                of_first = [of_first[0] + 1, of_first[1] + others.directions[closing]];
                of_second = [of_second[0] + 1, of_second[1] + mark];
                found[third] = [found[third][0] + 1, found[third][1] + own.directions[entry]];
            }
        }
        found[second] = [found[second][0] + of_second[0], found[second][1] + of_second[1]];
    }
    found[first] = [found[first][0] + of_first[0], found[first][1] + of_first[1]];
    for entry in list {
        marks[own.targets[entry] as usize] = 0;
    }
}
