//! Requests: a collective and its arguments, as one rank asks for it.

use crate::plan::Op;
use crate::span::Span;

/// Which collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Collective {
    /// Every rank ends with the root's vector.
    Broadcast,
    /// The root ends with the combination of all vectors.
    Reduce,
    /// Every rank ends with the combination of all vectors.
    Allreduce,
    /// Every rank ends with every rank's chunk.
    Allgather,
    /// Every rank ends with its chunk of the combination of all vectors.
    ReduceScatter,
    /// The root ends with every rank's chunk.
    Gather,
    /// Every rank ends with its chunk of the root's vector.
    Scatter,
    /// Every rank ends with the chunk that each rank had for it.
    Alltoall,
    /// No rank goes on before all have come.
    Barrier,
    /// The receiver ends with the sender's vector.
    PointToPoint,
    /// Every rank ends with the combination of the vectors of all ranks up to it.
    Scan,
    /// Every rank but the first ends with the combination of the vectors of all ranks before it.
    Exscan,
    /// Every rank ends with the block of the rank a given distance before it.
    Rotate,
    /// Every rank ends with what each of its neighbours had for it.
    NeighbourExchange,
    /// Every rank ends with the combination of all ranks' rows of the indices that it wants. Planned from the sets of
    /// indices, not by an algorithm of the catalogue.
    SparseReduce,
    /// Every rank ends with the rows of the keys that are at home with it. Planned from the sizes of what each rank
    /// has, not by an algorithm of the catalogue.
    Regroup,
}

impl Collective {
    /// Every collective.
    pub const ALL: [Collective; 16] = [
        Collective::Broadcast,
        Collective::Reduce,
        Collective::Allreduce,
        Collective::Allgather,
        Collective::ReduceScatter,
        Collective::Gather,
        Collective::Scatter,
        Collective::Alltoall,
        Collective::Barrier,
        Collective::PointToPoint,
        Collective::Scan,
        Collective::Exscan,
        Collective::Rotate,
        Collective::NeighbourExchange,
        Collective::SparseReduce,
        Collective::Regroup,
    ];

    /// Those that an algorithm of the catalogue performs.
    pub fn catalogued() -> impl Iterator<Item = Collective> {
        let is_catalogued =
            |&collective: &Collective| !matches!(collective, Collective::SparseReduce | Collective::Regroup);
        Collective::ALL.into_iter().filter(is_catalogued)
    }

    /// Whether one rank has a part of its own in it, the root.
    pub fn has_root(self) -> bool {
        matches!(self, Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter)
    }

    /// The name that users know.
    pub fn name(self) -> &'static str {
        match self {
            Collective::Broadcast => "broadcast",
            Collective::Reduce => "reduce",
            Collective::Allreduce => "allreduce",
            Collective::Allgather => "allgather",
            Collective::ReduceScatter => "reduce-scatter",
            Collective::Gather => "gather",
            Collective::Scatter => "scatter",
            Collective::Alltoall => "alltoall",
            Collective::Barrier => "barrier",
            Collective::PointToPoint => "point-to-point",
            Collective::Scan => "scan",
            Collective::Exscan => "exscan",
            Collective::Rotate => "rotate",
            Collective::NeighbourExchange => "neighbour-exchange",
            Collective::SparseReduce => "sparse-reduce",
            Collective::Regroup => "regroup",
        }
    }
}

/// A peer, and the span that is for it or comes from it.
pub type PeerSpan = (usize, Span);

/// A collective with its arguments. `chunks` are consecutive spans, one per rank, of any sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are the arguments of the `plan` functions, under the same names.
pub enum Request<'a> {
    /// Every rank ends with the root's vector.
    Broadcast { root: usize, vector: Span },
    /// The root ends with the combination of all vectors.
    Reduce { root: usize, vector: Span, op: Op },
    /// Every rank ends with the combination of all vectors.
    Allreduce { vector: Span, op: Op },
    /// Every rank ends with every rank's chunk.
    Allgather { chunks: &'a [Span] },
    /// Every rank ends with its chunk of the combination of all vectors.
    ReduceScatter { chunks: &'a [Span], op: Op },
    /// The root ends with every rank's chunk.
    Gather { root: usize, chunks: &'a [Span] },
    /// Every rank ends with its chunk of the root's vector.
    Scatter { root: usize, chunks: &'a [Span] },
    /// Every rank ends with the chunk that each rank had for it.
    Alltoall { out_chunks: &'a [Span], in_chunks: &'a [Span] },
    /// No rank goes on before all have come; the token is one byte of scratch.
    Barrier { token: Span },
    /// Rank `to` ends with rank `from`'s vector.
    PointToPoint { from: usize, to: usize, vector: Span },
    /// Every rank ends with the combination of the vectors of all ranks up to it.
    Scan { vector: Span, op: Op },
    /// Every rank but the first ends with the combination of the vectors of all ranks before it; the first keeps its
    /// own.
    Exscan { vector: Span, op: Op },
    /// `into` of every rank ends with `out` of the rank `distance` before it; the two are equally long.
    Rotate { distance: usize, out: Span, into: Span },
    /// Every rank ends with what each peer of `into` had for it in `out`; each peer stands there once at most.
    NeighbourExchange { out: &'a [PeerSpan], into: &'a [PeerSpan] },
}

impl Request<'_> {
    /// The root, where there is one.
    pub fn root(&self) -> Option<usize> {
        match *self {
            Request::Broadcast { root, .. }
            | Request::Reduce { root, .. }
            | Request::Gather { root, .. }
            | Request::Scatter { root, .. } => Some(root),
            _ => None,
        }
    }

    /// Bytes of the vector, or of all chunks together.
    pub fn length_bytes(&self) -> usize {
        let sum = |spans: &[Span]| spans.iter().map(|span| span.length_bytes).sum();
        match *self {
            Request::Broadcast { vector, .. }
            | Request::Reduce { vector, .. }
            | Request::Allreduce { vector, .. }
            | Request::PointToPoint { vector, .. }
            | Request::Scan { vector, .. }
            | Request::Exscan { vector, .. } => vector.length_bytes,
            Request::Allgather { chunks }
            | Request::ReduceScatter { chunks, .. }
            | Request::Gather { chunks, .. }
            | Request::Scatter { chunks, .. } => sum(chunks),
            Request::Alltoall { out_chunks, .. } => sum(out_chunks),
            Request::Barrier { token } => token.length_bytes,
            Request::Rotate { out, .. } => out.length_bytes,
            Request::NeighbourExchange { out, .. } => out.iter().map(|(_, span)| span.length_bytes).sum(),
        }
    }

    /// Which collective is asked for.
    pub fn collective(&self) -> Collective {
        match self {
            Request::Broadcast { .. } => Collective::Broadcast,
            Request::Reduce { .. } => Collective::Reduce,
            Request::Allreduce { .. } => Collective::Allreduce,
            Request::Allgather { .. } => Collective::Allgather,
            Request::ReduceScatter { .. } => Collective::ReduceScatter,
            Request::Gather { .. } => Collective::Gather,
            Request::Scatter { .. } => Collective::Scatter,
            Request::Alltoall { .. } => Collective::Alltoall,
            Request::Barrier { .. } => Collective::Barrier,
            Request::PointToPoint { .. } => Collective::PointToPoint,
            Request::Scan { .. } => Collective::Scan,
            Request::Exscan { .. } => Collective::Exscan,
            Request::Rotate { .. } => Collective::Rotate,
            Request::NeighbourExchange { .. } => Collective::NeighbourExchange,
        }
    }
}
