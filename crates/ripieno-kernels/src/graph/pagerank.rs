//! PageRank step: the next ranks from the reduced sums, in one pass over a worker's vertices.
//!
//! `rank = damping·(sum + dangling·share) + (1 - damping)·teleport`, where `sum` arrived along the edges, `dangling` is
//! the rank of all vertices without outgoing edges, and `share` and `teleport` each sum to one over all vertices.
//! Totals are computed in blocks of fixed size, so they do not depend on the number of threads.
//! Cost: five streams of 8 bytes per vertex.
//! Source: Page, Brin, Motwani and Winograd, "The PageRank citation ranking", Stanford InfoLab 1999, section 2.6.

use crate::Threads;

/// Input of a step. Arrays have one entry per vertex of the worker, except `sums` if `places` is given.
#[derive(Clone, Copy, Debug)]
pub struct PageRankStep<'a> {
    /// Sums over the incoming edges.
    pub sums: &'a [f64],
    /// Position of each vertex in `sums`; `u32::MAX` for a vertex without incoming edges. `None`: in vertex order.
    pub places: Option<&'a [u32]>,
    /// Inverse of the total weight of the edges out of each vertex; 0 without outgoing edges.
    pub inverse_out: &'a [f64],
    /// Whether this worker counts the vertex in its totals. `None`: all vertices.
    pub counted: Option<&'a [bool]>,
    /// Probability of each vertex as the target of a jump. `None`: `uniform`.
    pub teleport: Option<&'a [f64]>,
    /// Probability of each vertex as the successor of a vertex without outgoing edges. `None`: `uniform`.
    pub share: Option<&'a [f64]>,
    /// Inverse of the number of vertices.
    pub uniform: f64,
    /// Probability of following an edge.
    pub damping: f64,
    /// The rank of all vertices without outgoing edges before this step.
    pub dangling: f64,
}

/// Totals over the vertices that this worker counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PageRankTotals {
    /// Sum of the absolute rank changes.
    pub error: f64,
    /// The new rank of the vertices without outgoing edges.
    pub dangling: f64,
}

const BLOCK: usize = 1 << 13;

/// Compute the next `ranks` from the last ones, and `contributions`: the flow along each edge of weight one.
///
/// # Panics
/// If lengths differ.
pub fn pagerank_step(
    step: PageRankStep,
    ranks: &mut [f64],
    contributions: &mut [f64],
    threads: &Threads,
) -> PageRankTotals {
    let count = ranks.len();
    assert_eq!(contributions.len(), count, "a contribution per vertex");
    assert_eq!(step.inverse_out.len(), count, "an inverse per vertex");
    assert_eq!(step.places.map_or(step.sums.len(), <[u32]>::len), count, "a sum per vertex");
    assert!(step.counted.is_none_or(|counted| counted.len() == count), "a flag per vertex");
    assert!(step.teleport.is_none_or(|teleport| teleport.len() == count), "a probability per vertex");
    assert!(step.share.is_none_or(|share| share.len() == count), "a share per vertex");

    let mut totals = vec![PageRankTotals::default(); count.div_ceil(BLOCK)];
    let blocks = ranks.chunks_mut(BLOCK).zip(contributions.chunks_mut(BLOCK)).zip(&mut totals);
    let parts = (0..count).step_by(BLOCK).zip(blocks).collect();
    threads.for_each(
        parts,
        10 * BLOCK,
        || (),
        |(), (first, ((ranks, contributions), total))| *total = step.block(first, ranks, contributions),
    );
    totals.iter().fold(PageRankTotals::default(), |sum, part| PageRankTotals {
        error: sum.error + part.error,
        dangling: sum.dangling + part.dangling,
    })
}

impl PageRankStep<'_> {
    fn block(&self, first: usize, ranks: &mut [f64], contributions: &mut [f64]) -> PageRankTotals {
        let mut total = PageRankTotals::default();
        for (at, (rank, contribution)) in (first..).zip(ranks.iter_mut().zip(contributions)) {
            let teleport = self.teleport.map_or(self.uniform, |teleport| teleport[at]);
            let share = self.share.map_or(self.uniform, |share| share[at]);
            let next = self.damping * (self.sum(at) + self.dangling * share) + (1.0 - self.damping) * teleport;
            if self.counted.is_none_or(|counted| counted[at]) {
                total.error += (next - *rank).abs();
                total.dangling += if self.inverse_out[at] == 0.0 { next } else { 0.0 };
            }
            *rank = next;
            *contribution = next * self.inverse_out[at];
        }
        total
    }

    #[inline(always)]
    fn sum(&self, at: usize) -> f64 {
        match self.places {
            None => self.sums[at],
            Some(places) if places[at] == u32::MAX => 0.0,
            Some(places) => self.sums[places[at] as usize],
        }
    }
}
