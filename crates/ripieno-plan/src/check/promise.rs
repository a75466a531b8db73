//! Promises: the contents of the buffers at the end of a collective.
//!
//! A promise maps each span of one rank to its sources: the spans of all ranks with the *initial* contents that end up
//! in it. It is independent of the algorithm, so it checks every algorithm of a collective alike.

use crate::group::Group;
use crate::plan::Op;
use crate::request::{PeerSpan, PlanRequest};
use crate::span::{Buffer, Span};
use alloc::vec;
use alloc::vec::Vec;

/// Final contents of one span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromisedSpan {
    /// The span.
    pub span: Span,
    /// The sources, each once, as a rank and a span of equal length: their initial contents contribute. Empty for a
    /// constant.
    pub sources: Vec<(usize, Span)>,
    /// The operation that combines two or more sources. For a constant, the operation with this identity;
    /// `None` for zeros.
    pub op: Option<Op>,
}

/// Final contents of one rank's buffers. Bytes that it does not mention are scratch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// Disjoint spans.
    pub spans: Vec<PromisedSpan>,
}

impl Promise {
    /// Promise nothing: all bytes are scratch.
    pub fn nothing() -> Promise {
        Promise::default()
    }

    /// Promise that `span` holds the initial `source` of rank `from`.
    pub fn copy(span: Span, from: usize, source: Span) -> Promise {
        Promise { spans: vec![PromisedSpan { span, sources: vec![(from, source)], op: None }] }
    }

    /// Promise that `span` holds the combination of the same span of the first `p` ranks.
    pub fn combination(span: Span, p: usize, op: Op) -> Promise {
        Promise { spans: vec![PromisedSpan { span, sources: (0..p).map(|rank| (rank, span)).collect(), op: Some(op) }] }
    }

    /// Promise the result of a sparse reduction.
    ///
    /// For each key of `in_keys`, a row of [`Buffer::OUTPUT`] holds the combination of all rows with this key in
    /// [`Buffer::MAIN`] of any rank. A row without any contribution is zero. `out_keys` are the ascending keys of each
    /// rank's rows; `row` is the span type of one row.
    pub fn sparse(out_keys: &[Vec<u64>], in_keys: &[u64], row: Span, op: Op) -> Promise {
        let part = |(number, key): (usize, &u64)| {
            let row_span = |buffer, number: usize| row.placed(buffer, number * row.length_bytes);
            let source = |(rank, keys): (usize, &Vec<u64>)| {
                keys.binary_search(key).ok().map(|number| (rank, row_span(Buffer::MAIN, number)))
            };
            let sources: Vec<_> = out_keys.iter().enumerate().filter_map(source).collect();
            let op = (!sources.is_empty()).then_some(op);
            PromisedSpan { span: row_span(Buffer::OUTPUT, number), sources, op }
        };
        Promise { spans: in_keys.iter().enumerate().map(part).collect() }
    }

    /// Return the union of this promise and `other`.
    pub fn and(mut self, other: Promise) -> Promise {
        self.spans.extend(other.spans);
        self
    }
}

/// Return the promises of a collective to all ranks, given their requests.
pub fn promises(requests: &[PlanRequest]) -> Vec<Promise> {
    (0..requests.len()).map(|rank| promise(rank, requests)).collect()
}

fn promise(rank: usize, requests: &[PlanRequest]) -> Promise {
    let p = requests.len();
    let all = |part: &dyn Fn(usize) -> Promise| (0..p).map(part).fold(Promise::nothing(), Promise::and);
    match requests[rank] {
        PlanRequest::Broadcast { root, vector } => Promise::copy(vector, root, vector),
        PlanRequest::Reduce { root, vector, op } if rank == root => Promise::combination(vector, p, op),
        PlanRequest::Reduce { .. } => Promise::nothing(),
        PlanRequest::Allreduce { vector, op } => Promise::combination(vector, p, op),
        PlanRequest::Allgather { chunks } => all(&|from| Promise::copy(chunks[from], from, chunks[from])),
        PlanRequest::ReduceScatter { chunks, op } => Promise::combination(chunks[rank], p, op),
        PlanRequest::Gather { root, chunks } if rank == root => {
            all(&|from| Promise::copy(chunks[from], from, chunks[from]))
        }
        PlanRequest::Gather { .. } => Promise::nothing(),
        PlanRequest::Scatter { root, chunks } => Promise::copy(chunks[rank], root, chunks[rank]),
        PlanRequest::Alltoall { in_chunks, .. } => all(&|from| match requests[from] {
            PlanRequest::Alltoall { out_chunks, .. } => Promise::copy(in_chunks[from], from, out_chunks[rank]),
            _ => panic!("all ranks request the same collective"),
        }),
        PlanRequest::Barrier { token } => Promise::combination(token, p, Op::Or),
        PlanRequest::PointToPoint { from, to, vector } if rank == to => Promise::copy(vector, from, vector),
        PlanRequest::PointToPoint { .. } => Promise::nothing(),
        PlanRequest::Scan { vector, op } => Promise::combination(vector, rank + 1, op),
        // Rank 0 has no predecessor: its vector remains unchanged.
        PlanRequest::Exscan { vector, op } => Promise::combination(vector, rank.max(1), op),
        PlanRequest::Rotate { distance, into, .. } => {
            let from = Group::new(rank, p).before(distance);
            match requests[from] {
                PlanRequest::Rotate { out, .. } => Promise::copy(into, from, out),
                _ => panic!("all ranks request the same collective"),
            }
        }
        PlanRequest::NeighbourExchange { into, .. } => {
            let received = into.iter().map(|&(from, span)| match requests[from] {
                PlanRequest::NeighbourExchange { out, .. } => Promise::copy(span, from, peer_span(out, rank)),
                _ => panic!("all ranks request the same collective"),
            });
            received.fold(Promise::nothing(), Promise::and)
        }
    }
}

fn peer_span(spans: &[PeerSpan], peer: usize) -> Span {
    let found = spans.iter().find(|(to, _)| *to == peer);
    found.expect("every receive from a neighbor has a send there").1
}
