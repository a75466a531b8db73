//! Promises: what the buffers hold when a collective is over.
//!
//! A promise names, for spans of one rank, the spans of all ranks whose *initial* contents end up there. It says
//! nothing about how, so it judges every algorithm of a collective alike.

use crate::group::Group;
use crate::plan::Op;
use crate::request::{PeerSpan, Request};
use crate::span::{Buffer, Span};
use alloc::vec;
use alloc::vec::Vec;

/// What one span holds in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromisedSpan {
    /// Where.
    pub span: Span,
    /// Whose initial contents, each once: rank, and a span as long as this one. Nobody's if it holds a constant.
    pub sources: Vec<(usize, Span)>,
    /// How they were combined, where there is more than one. Of a constant: whose identity it is, `None` for zeros.
    pub op: Option<Op>,
}

/// What one rank's buffers hold in the end; what it does not name is scratch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// Disjoint.
    pub spans: Vec<PromisedSpan>,
}

impl Promise {
    /// A promise of nothing: everything is scratch.
    pub fn nothing() -> Promise {
        Promise::default()
    }

    /// A promise that `span` holds what `source` of rank `from` held.
    pub fn copy(span: Span, from: usize, source: Span) -> Promise {
        Promise { spans: vec![PromisedSpan { span, sources: vec![(from, source)], op: None }] }
    }

    /// A promise that `span` holds the combination of the same spans of the first `p` ranks.
    pub fn combination(span: Span, p: usize, op: Op) -> Promise {
        Promise { spans: vec![PromisedSpan { span, sources: (0..p).map(|rank| (rank, span)).collect(), op: Some(op) }] }
    }

    /// A promise of a sparse reduction: for each of `in_keys` a row of [`Buffer::OUTPUT`], the combination of all rows
    /// of the ranks' [`Buffer::MAIN`] that hold this key, zeros if none does. `out_keys` are the keys of each rank's
    /// rows, ascending; `row` says how long a row is and of which elements.
    pub fn sparse(out_keys: &[Vec<u64>], in_keys: &[u64], row: Span, op: Op) -> Promise {
        let part = |(number, key): (usize, &u64)| {
            let place = |buffer, number: usize| row.placed(buffer, number * row.length_bytes);
            let holder = |(rank, keys): (usize, &Vec<u64>)| {
                keys.binary_search(key).ok().map(|number| (rank, place(Buffer::MAIN, number)))
            };
            let sources: Vec<_> = out_keys.iter().enumerate().filter_map(holder).collect();
            let op = (!sources.is_empty()).then_some(op);
            PromisedSpan { span: place(Buffer::OUTPUT, number), sources, op }
        };
        Promise { spans: in_keys.iter().enumerate().map(part).collect() }
    }

    /// This promise and `other`.
    pub fn and(mut self, other: Promise) -> Promise {
        self.spans.extend(other.spans);
        self
    }
}

/// What a collective promises to each rank, given what each rank asked for.
pub fn promises(requests: &[Request]) -> Vec<Promise> {
    (0..requests.len()).map(|rank| promise(rank, requests)).collect()
}

fn promise(rank: usize, requests: &[Request]) -> Promise {
    let p = requests.len();
    let all = |part: &dyn Fn(usize) -> Promise| (0..p).map(part).fold(Promise::nothing(), Promise::and);
    match requests[rank] {
        Request::Broadcast { root, vector } => Promise::copy(vector, root, vector),
        Request::Reduce { root, vector, op } if rank == root => Promise::combination(vector, p, op),
        Request::Reduce { .. } => Promise::nothing(),
        Request::Allreduce { vector, op } => Promise::combination(vector, p, op),
        Request::Allgather { chunks } => all(&|from| Promise::copy(chunks[from], from, chunks[from])),
        Request::ReduceScatter { chunks, op } => Promise::combination(chunks[rank], p, op),
        Request::Gather { root, chunks } if rank == root => {
            all(&|from| Promise::copy(chunks[from], from, chunks[from]))
        }
        Request::Gather { .. } => Promise::nothing(),
        Request::Scatter { root, chunks } => Promise::copy(chunks[rank], root, chunks[rank]),
        Request::Alltoall { in_chunks, .. } => all(&|from| match requests[from] {
            Request::Alltoall { out_chunks, .. } => Promise::copy(in_chunks[from], from, out_chunks[rank]),
            _ => panic!("all ranks ask for the same collective"),
        }),
        Request::Barrier { token } => Promise::combination(token, p, Op::Or),
        Request::PointToPoint { from, to, vector } if rank == to => Promise::copy(vector, from, vector),
        Request::PointToPoint { .. } => Promise::nothing(),
        Request::Scan { vector, op } => Promise::combination(vector, rank + 1, op),
        // Nothing comes before rank 0: its vector stays as it is.
        Request::Exscan { vector, op } => Promise::combination(vector, rank.max(1), op),
        Request::Rotate { distance, into, .. } => {
            let from = Group::new(rank, p).before(distance);
            match requests[from] {
                Request::Rotate { out, .. } => Promise::copy(into, from, out),
                _ => panic!("all ranks ask for the same collective"),
            }
        }
        Request::NeighbourExchange { into, .. } => {
            let received = into.iter().map(|&(from, span)| match requests[from] {
                Request::NeighbourExchange { out, .. } => Promise::copy(span, from, peer_span(out, rank)),
                _ => panic!("all ranks ask for the same collective"),
            });
            received.fold(Promise::nothing(), Promise::and)
        }
    }
}

fn peer_span(spans: &[PeerSpan], peer: usize) -> Span {
    let found = spans.iter().find(|(to, _)| *to == peer);
    found.expect("who awaits a neighbour is that one's neighbour").1
}
