//! A step of PageRank: what the reduced sums make of the ranks, in one pass over the vertices a worker wants.
//!
//! `rank = damping·(sum + dangling·share) + (1 - damping)·teleport`, where `sum` came along the edges, `dangling` is
//! the rank of all vertices without edges out, and `share` and `teleport` add up to one over all vertices. Totals are
//! added up in blocks of one size, so they do not depend on the number of threads. Cost: five streams of 8 bytes a
//! vertex.
//! Source: Page, Brin, Motwani and Winograd, "The PageRank citation ranking", Stanford InfoLab 1999, section 2.6.

use crate::Threads;

/// What a step reads; arrays have an entry per wanted vertex, but for `sums` if there are `places`.
#[derive(Clone, Copy, Debug)]
pub struct PageRankStep<'a> {
    /// What came along the edges.
    pub sums: &'a [f64],
    /// Where in `sums` each vertex stands; `u32::MAX` for those that no edge leads to. In order if there are none.
    pub places: Option<&'a [u32]>,
    /// One over the weight of the edges out of each vertex; 0 where there are none.
    pub inverse_out: &'a [f64],
    /// Whether this worker counts the vertex in its totals; all if there are none.
    pub counted: Option<&'a [bool]>,
    /// Where a walk that jumps goes to, per vertex; `uniform` if there are none.
    pub teleport: Option<&'a [f64]>,
    /// Where a walk goes on to from a vertex without edges out; `uniform` if there are none.
    pub share: Option<&'a [f64]>,
    /// One over the number of vertices.
    pub uniform: f64,
    /// The part of a walk that goes along edges.
    pub damping: f64,
    /// The rank of all vertices without edges out, before this step.
    pub dangling: f64,
}

/// Totals over the vertices that this worker counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PageRankTotals {
    /// By how much their ranks changed, without sign.
    pub error: f64,
    /// The rank, now, of those without edges out.
    pub dangling: f64,
}

const BLOCK: usize = 1 << 13;

/// Makes the next `ranks` of the last, and `contributions`: what flows along each edge of weight one.
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
