//! Layouts and requests of all collectives for tests, with any sizes.
#![allow(dead_code)] // Every test binary uses its own part.

pub mod butterflies;
pub mod interpreter;
pub mod sparse;
pub mod topologies;

use ripieno_plan::{Algorithm, Buffer, Collective, Group, Needs, Op, PeerSpan, Plan, PlanRequest, Span};
use std::collections::BTreeSet;

/// Size of an element in bytes.
pub const ELEMENT_BYTES: usize = 4;

/// Buffer layout of a collective on all ranks.
pub struct DataLayout {
    pub vector: Span,
    pub chunks: Vec<Span>,
    /// Per rank, for alltoall.
    pub out_chunks: Vec<Vec<Span>>,
    pub in_chunks: Vec<Vec<Span>>,
    /// Per rank, for a neighbor exchange: some of the chunks above, with their peers.
    pub out_neighbors: Vec<Vec<PeerSpan>>,
    pub in_neighbors: Vec<Vec<PeerSpan>>,
}

/// Return the distances from a rank to its neighbors, including 0 for itself.
pub fn neighbor_distances(p: usize) -> BTreeSet<usize> {
    [0, 1, 3, p - 1].into_iter().map(|distance| distance % p).collect()
}

impl DataLayout {
    /// Create a vector of `element_count` elements in `p` chunks of nearly equal size. The chunks of an alltoall are
    /// about as long as the vector.
    pub fn even(p: usize, element_count: usize) -> DataLayout {
        let vector = Span::whole(Buffer::MAIN, element_count, ELEMENT_BYTES);
        let counts: Vec<usize> = vector.chunks(p).iter().map(Span::element_count).collect();
        DataLayout::uneven(&counts, |from, to| element_count.saturating_sub((from + 2 * to) % 3))
    }

    /// Create the same layout as `even`, except that every chunk of an alltoall is as long as the vector.
    pub fn equal(p: usize, element_count: usize) -> DataLayout {
        let vector = Span::whole(Buffer::MAIN, element_count, ELEMENT_BYTES);
        let counts: Vec<usize> = vector.chunks(p).iter().map(Span::element_count).collect();
        DataLayout::uneven(&counts, |_, _| element_count)
    }

    /// Return `equal` if `algorithm` needs equal chunks, else `even`.
    pub fn for_algorithm(algorithm: &Algorithm, p: usize, element_count: usize) -> DataLayout {
        match algorithm.needs {
            Needs::EqualChunks => DataLayout::equal(p, element_count),
            Needs::Nothing | Needs::EvenWorld | Needs::CommutativeOp => DataLayout::even(p, element_count),
        }
    }

    /// Create chunks of the given sizes. In an alltoall, `pair_count(i, j)` elements are sent from rank `i` to rank
    /// `j`.
    pub fn uneven(element_counts: &[usize], pair_count: impl Fn(usize, usize) -> usize) -> DataLayout {
        let p = element_counts.len();
        let row =
            |buffer: Buffer, counts: &[usize]| Span::whole(buffer, counts.iter().sum(), ELEMENT_BYTES).split(counts);
        let out = |rank| row(Buffer::MAIN, &(0..p).map(|peer| pair_count(rank, peer)).collect::<Vec<_>>());
        let into = |rank| row(Buffer::OUTPUT, &(0..p).map(|peer| pair_count(peer, rank)).collect::<Vec<_>>());
        let (out_chunks, in_chunks): (Vec<_>, Vec<_>) = (0..p).map(|rank| (out(rank), into(rank))).unzip();
        let neighbors = |rank: usize, chunks: &[Span], peer: &dyn Fn(usize) -> usize| {
            neighbor_distances(p).into_iter().map(|d| (peer(rank + d) % p, chunks[peer(rank + d) % p])).collect()
        };
        let after = |rank: usize| neighbors(rank, &out_chunks[rank], &|peer| peer);
        // In another order than the sent chunks.
        let before = |rank: usize| neighbors(rank, &in_chunks[rank], &|peer| 2 * rank + 2 * p - peer);
        DataLayout {
            out_neighbors: (0..p).map(after).collect(),
            in_neighbors: (0..p).map(before).collect(),
            vector: Span::whole(Buffer::MAIN, element_counts.iter().sum(), ELEMENT_BYTES),
            chunks: row(Buffer::MAIN, element_counts),
            out_chunks,
            in_chunks,
        }
    }

    pub fn world_size(&self) -> usize {
        self.chunks.len()
    }

    /// Return the requests of all ranks. `root` is also the distance of a rotation, `peer` the receiver of a
    /// point-to-point transfer, and `op` the operation of collectives that combine.
    pub fn requests(&self, collective: Collective, root: usize, peer: usize, op: Op) -> Vec<PlanRequest<'_>> {
        let (vector, chunks) = (self.vector, &self.chunks[..]);
        let request = |rank: usize| match collective {
            Collective::Broadcast => PlanRequest::Broadcast { root, vector },
            Collective::Reduce => PlanRequest::Reduce { root, vector, op },
            Collective::Allreduce => PlanRequest::Allreduce { vector, op },
            Collective::Allgather => PlanRequest::Allgather { chunks },
            Collective::ReduceScatter => PlanRequest::ReduceScatter { chunks, op },
            Collective::Gather => PlanRequest::Gather { root, chunks },
            Collective::Scatter => PlanRequest::Scatter { root, chunks },
            Collective::Alltoall => {
                PlanRequest::Alltoall { out_chunks: &self.out_chunks[rank], in_chunks: &self.in_chunks[rank] }
            }
            Collective::Barrier => PlanRequest::Barrier { token: Span::whole(Buffer::MAIN, 1, 1) },
            Collective::PointToPoint => PlanRequest::PointToPoint { from: root, to: peer, vector },
            Collective::Scan => PlanRequest::Scan { vector, op },
            Collective::Exscan => PlanRequest::Exscan { vector, op },
            Collective::Rotate => {
                let group = Group::new(rank, self.world_size());
                let (to, from) = (group.after(root), group.before(root));
                PlanRequest::Rotate { distance: root, out: self.out_chunks[rank][to], into: self.in_chunks[rank][from] }
            }
            Collective::NeighbourExchange => {
                PlanRequest::NeighbourExchange { out: &self.out_neighbors[rank], into: &self.in_neighbors[rank] }
            }
            Collective::SparseReduce | Collective::Regroup | Collective::Plan => {
                panic!("no algorithm of the catalogue performs it")
            }
        };
        (0..self.world_size()).map(request).collect()
    }

    /// Return all ranks' plans for a sum with root `root`.
    pub fn plans(&self, algorithm: &Algorithm, root: usize) -> Vec<Plan> {
        let peer = (root + 1) % self.world_size();
        algorithm.plans(&self.requests(algorithm.collective(), root, peer, Op::Sum)).unwrap()
    }
}

/// Return the world sizes from `first` to `last`. Unless `is_exhaustive`, these are the sizes up to 13, the powers of
/// two and their neighbors: algorithms treat the sizes between them alike.
pub fn world_sizes(first: usize, last: usize) -> impl Iterator<Item = usize> {
    let is_near_power = |p: usize| (p - 1..=p + 1).any(|near| near.is_power_of_two());
    (first..=last).filter(move |&p| p <= 13 || is_near_power(p) || is_exhaustive())
}

/// Return whether `RIPIENO_EXHAUSTIVE` requests every world size. `make test-all` sets it.
pub fn is_exhaustive() -> bool {
    std::env::var_os("RIPIENO_EXHAUSTIVE").is_some()
}

/// Return the roots that lead to different plans.
pub fn roots(collective: Collective, p: usize) -> std::ops::Range<usize> {
    match collective {
        Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter => 0..p,
        Collective::PointToPoint | Collective::Rotate => 0..p,
        _ => 0..1,
    }
}
