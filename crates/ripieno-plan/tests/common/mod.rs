//! Layouts and requests for tests: every collective, of any sizes.
#![allow(dead_code)] // Every test binary uses its own part.

use ripieno_plan::{Algorithm, Buffer, Collective, Op, Plan, Request, Span};

/// Bytes of an element.
pub const ELEMENT_BYTES: usize = 4;

/// Where the data of a collective lies, on all ranks.
pub struct Layout {
    pub vector: Span,
    pub chunks: Vec<Span>,
    /// Per rank, for alltoall.
    pub out_chunks: Vec<Vec<Span>>,
    pub in_chunks: Vec<Vec<Span>>,
}

impl Layout {
    /// A vector of `element_count` elements in `p` chunks as equal as may be; every chunk of an alltoall is the vector.
    pub fn even(p: usize, element_count: usize) -> Layout {
        let vector = Span::whole(Buffer::MAIN, element_count, ELEMENT_BYTES);
        let counts: Vec<usize> = vector.chunks(p).iter().map(Span::element_count).collect();
        Layout::uneven(&counts, |from, to| element_count.saturating_sub((from + 2 * to) % 3))
    }

    /// Chunks of the given sizes; `pair_count(i, j)` elements go from rank `i` to rank `j` in an alltoall.
    pub fn uneven(element_counts: &[usize], pair_count: impl Fn(usize, usize) -> usize) -> Layout {
        let p = element_counts.len();
        let row =
            |buffer: Buffer, counts: &[usize]| Span::whole(buffer, counts.iter().sum(), ELEMENT_BYTES).split(counts);
        let out = |rank| row(Buffer::MAIN, &(0..p).map(|peer| pair_count(rank, peer)).collect::<Vec<_>>());
        let into = |rank| row(Buffer::OUTPUT, &(0..p).map(|peer| pair_count(peer, rank)).collect::<Vec<_>>());
        Layout {
            vector: Span::whole(Buffer::MAIN, element_counts.iter().sum(), ELEMENT_BYTES),
            chunks: row(Buffer::MAIN, element_counts),
            out_chunks: (0..p).map(out).collect(),
            in_chunks: (0..p).map(into).collect(),
        }
    }

    pub fn world_size(&self) -> usize {
        self.chunks.len()
    }

    /// What every rank asks for; `peer` is the receiver of a point-to-point, `op` is used where values combine.
    pub fn requests(&self, collective: Collective, root: usize, peer: usize, op: Op) -> Vec<Request<'_>> {
        let (vector, chunks) = (self.vector, &self.chunks[..]);
        let request = |rank: usize| match collective {
            Collective::Broadcast => Request::Broadcast { root, vector },
            Collective::Reduce => Request::Reduce { root, vector, op },
            Collective::Allreduce => Request::Allreduce { vector, op },
            Collective::Allgather => Request::Allgather { chunks },
            Collective::ReduceScatter => Request::ReduceScatter { chunks, op },
            Collective::Gather => Request::Gather { root, chunks },
            Collective::Scatter => Request::Scatter { root, chunks },
            Collective::Alltoall => {
                Request::Alltoall { out_chunks: &self.out_chunks[rank], in_chunks: &self.in_chunks[rank] }
            }
            Collective::Barrier => Request::Barrier { token: Span::whole(Buffer::MAIN, 1, 1) },
            Collective::PointToPoint => Request::PointToPoint { from: root, to: peer, vector },
        };
        (0..self.world_size()).map(request).collect()
    }

    /// All ranks' plans for a sum rooted at `root`.
    pub fn plans(&self, algorithm: &Algorithm, root: usize) -> Vec<Plan> {
        let peer = (root + 1) % self.world_size();
        algorithm.plans(&self.requests(algorithm.collective(), root, peer, Op::Sum))
    }
}

/// The roots that make a difference.
pub fn roots(collective: Collective, p: usize) -> std::ops::Range<usize> {
    match collective {
        Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter => 0..p,
        Collective::PointToPoint => 0..p,
        _ => 0..1,
    }
}
