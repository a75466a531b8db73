//! Tasks: which collective, with which arguments, beside the memory that it concerns.

use crate::choice::Choice;
use crate::error::{Error, argument};
use ripieno_plan::{Algorithm, Collective, Group, Op, PeerSpan, Plan, Request, Span, Unsuitable};
use ripieno_run::{Call, CallKind, Element};

/// A collective and its arguments. Its first buffer is worked on in place, unless it has a second one for what arrives.
///
/// Counts are in elements. `counts` cut the first buffer into one chunk per rank.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // The fields are the arguments of the methods of `Communicator`, under the same names.
pub enum Task<'a> {
    Broadcast {
        root: usize,
    },
    Reduce {
        op: Op,
        root: usize,
    },
    Allreduce {
        op: Op,
    },
    Allgather {
        counts: &'a [usize],
    },
    ReduceScatter {
        counts: &'a [usize],
        op: Op,
    },
    Gather {
        counts: &'a [usize],
        root: usize,
    },
    Scatter {
        counts: &'a [usize],
        root: usize,
    },
    /// The second buffer gets what arrives, `in_counts` elements from each rank.
    Alltoall {
        out_counts: &'a [usize],
        in_counts: &'a [usize],
    },
    /// One byte of scratch.
    Barrier,
    /// From one rank to another; one of them is this one.
    PointToPoint {
        from: usize,
        to: usize,
    },
    Scan {
        op: Op,
    },
    Exscan {
        op: Op,
    },
    /// The second buffer gets the first of the rank `distance` before this one.
    Rotate {
        distance: usize,
    },
    /// Peers and counts, in the order in which their elements lie in the first and in the second buffer.
    NeighbourExchange {
        out: &'a [(usize, usize)],
        into: &'a [(usize, usize)],
    },
}

impl Task<'_> {
    /// Which collective.
    pub fn collective(&self) -> Collective {
        match self {
            Task::Broadcast { .. } => Collective::Broadcast,
            Task::Reduce { .. } => Collective::Reduce,
            Task::Allreduce { .. } => Collective::Allreduce,
            Task::Allgather { .. } => Collective::Allgather,
            Task::ReduceScatter { .. } => Collective::ReduceScatter,
            Task::Gather { .. } => Collective::Gather,
            Task::Scatter { .. } => Collective::Scatter,
            Task::Alltoall { .. } => Collective::Alltoall,
            Task::Barrier => Collective::Barrier,
            Task::PointToPoint { .. } => Collective::PointToPoint,
            Task::Scan { .. } => Collective::Scan,
            Task::Exscan { .. } => Collective::Exscan,
            Task::Rotate { .. } => Collective::Rotate,
            Task::NeighbourExchange { .. } => Collective::NeighbourExchange,
        }
    }

    /// Whether the first buffer is only read by `rank`.
    pub fn only_reads(&self, rank: usize) -> bool {
        match *self {
            Task::Broadcast { root } | Task::Scatter { root, .. } => root == rank,
            Task::PointToPoint { from, .. } => from == rank,
            Task::Alltoall { .. } | Task::Rotate { .. } | Task::NeighbourExchange { .. } => true,
            _ => false,
        }
    }

    /// Whether what arrives goes to the second buffer.
    pub(crate) fn fills_output(&self) -> bool {
        matches!(self, Task::Alltoall { .. } | Task::Rotate { .. } | Task::NeighbourExchange { .. })
    }

    /// Whether the arguments fit `group` and buffers of `main_count` and `output_count` elements.
    pub(crate) fn check(&self, group: &Group, main_count: usize, output_count: usize) -> Result<(), Error> {
        match *self {
            Task::Broadcast { root } | Task::Reduce { root, .. } => check_rank("root", root, group),
            Task::Allgather { counts } | Task::ReduceScatter { counts, .. } => {
                check_counts("counts", counts, main_count, group)
            }
            Task::Gather { counts, root } | Task::Scatter { counts, root } => {
                check_rank("root", root, group)?;
                check_counts("counts", counts, main_count, group)
            }
            Task::Alltoall { out_counts, in_counts } => {
                check_counts("counts", out_counts, main_count, group)?;
                check_counts("counts", in_counts, output_count, group)?;
                let rank = group.rank();
                check_own(Some(out_counts[rank]), Some(in_counts[rank]), group)
            }
            Task::PointToPoint { from, to } => {
                let peer = if group.rank() == from { to } else { from };
                check_rank("peer", peer, group)?;
                match peer == group.rank() {
                    true => Err(argument("peer", peer, "another rank than this one")),
                    false => Ok(()),
                }
            }
            Task::NeighbourExchange { out, into } => {
                check_peers("out", out, main_count, group)?;
                check_peers("into", into, output_count, group)?;
                let own = |peers: &[(usize, usize)]| {
                    peers.iter().find(|(peer, _)| *peer == group.rank()).map(|&(_, count)| count)
                };
                check_own(own(out), own(into), group)
            }
            Task::Rotate { distance } if distance.is_multiple_of(group.size()) => {
                check_own(Some(main_count), Some(output_count), group)
            }
            Task::Allreduce { .. } | Task::Barrier | Task::Scan { .. } | Task::Exscan { .. } | Task::Rotate { .. } => {
                Ok(())
            }
        }
    }

    /// What other ranks must have asked for too; its form is 0.
    #[inline]
    pub(crate) fn call(&self, element: Element, element_count: usize, choice: &Choice, p: usize) -> Call {
        let (op, root): (Option<Op>, usize) = match *self {
            Task::Allreduce { op } | Task::Scan { op } | Task::Exscan { op } | Task::ReduceScatter { op, .. } => {
                (Some(op), 0)
            }
            Task::Reduce { op, root } => (Some(op), root),
            Task::Broadcast { root } | Task::Gather { root, .. } | Task::Scatter { root, .. } => (None, root),
            Task::Barrier => (Some(Op::Or), 0),
            _ => (None, 0),
        };
        let (algorithm, element_count) = (choice.algorithm.index, element_count as u64);
        let kind = match *self {
            Task::PointToPoint { to, .. } => CallKind::Message { algorithm, to: to as u32, element_count },
            Task::Rotate { distance } => CallKind::Rotation { algorithm, distance: (distance % p) as u32 },
            _ => CallKind::Catalogued {
                collective: self.collective(),
                algorithm,
                op,
                root: root as u32,
                // Every rank has another count of what goes to a second buffer.
                element_count: if self.fills_output() { 0 } else { element_count },
            },
        };
        Call { kind, element, form: 0 }
    }

    /// The counts per rank that all ranks give alike.
    #[inline]
    pub(crate) fn counts(&self) -> &[usize] {
        match *self {
            Task::Allgather { counts }
            | Task::ReduceScatter { counts, .. }
            | Task::Gather { counts, .. }
            | Task::Scatter { counts, .. } => counts,
            _ => &[],
        }
    }

    /// What a plan depends on beside the call.
    pub(crate) fn extents(&self, main: Span, output: Span) -> [Extent<'_>; 2] {
        match *self {
            Task::Allgather { counts }
            | Task::ReduceScatter { counts, .. }
            | Task::Gather { counts, .. }
            | Task::Scatter { counts, .. } => [Extent::Counts(counts), Extent::None],
            Task::Alltoall { out_counts, in_counts } => [Extent::Counts(out_counts), Extent::Counts(in_counts)],
            Task::PointToPoint { from, .. } => [Extent::One(from), Extent::None],
            Task::Rotate { .. } => [Extent::One(main.element_count()), Extent::One(output.element_count())],
            Task::NeighbourExchange { out, into } => [Extent::Peers(out), Extent::Peers(into)],
            Task::Broadcast { .. }
            | Task::Reduce { .. }
            | Task::Allreduce { .. }
            | Task::Barrier
            | Task::Scan { .. }
            | Task::Exscan { .. } => [Extent::None, Extent::None],
        }
    }

    pub(crate) fn plan(
        &self,
        algorithm: &Algorithm,
        group: &Group,
        main: Span,
        output: Span,
    ) -> Result<Plan, Unsuitable> {
        let (chunks, in_chunks): (Vec<Span>, Vec<Span>);
        let (out_spans, in_spans): (Vec<PeerSpan>, Vec<PeerSpan>);
        let request = match *self {
            Task::Broadcast { root } => Request::Broadcast { root, vector: main },
            Task::Reduce { op, root } => Request::Reduce { root, vector: main, op },
            Task::Allreduce { op } => Request::Allreduce { vector: main, op },
            Task::Allgather { counts } => {
                chunks = main.split(counts);
                Request::Allgather { chunks: &chunks }
            }
            Task::ReduceScatter { counts, op } => {
                chunks = main.split(counts);
                Request::ReduceScatter { chunks: &chunks, op }
            }
            Task::Gather { counts, root } => {
                chunks = main.split(counts);
                Request::Gather { root, chunks: &chunks }
            }
            Task::Scatter { counts, root } => {
                chunks = main.split(counts);
                Request::Scatter { root, chunks: &chunks }
            }
            Task::Alltoall { out_counts, in_counts } => {
                (chunks, in_chunks) = (main.split(out_counts), output.split(in_counts));
                Request::Alltoall { out_chunks: &chunks, in_chunks: &in_chunks }
            }
            Task::Barrier => Request::Barrier { token: main },
            Task::PointToPoint { from, to } => Request::PointToPoint { from, to, vector: main },
            Task::Scan { op } => Request::Scan { vector: main, op },
            Task::Exscan { op } => Request::Exscan { vector: main, op },
            Task::Rotate { distance } => Request::Rotate { distance: distance % group.size(), out: main, into: output },
            Task::NeighbourExchange { out, into } => {
                (out_spans, in_spans) = (peer_spans(main, out), peer_spans(output, into));
                Request::NeighbourExchange { out: &out_spans, into: &in_spans }
            }
        };
        algorithm.plan(group, &request)
    }
}

/// How much a rank contributes or gets, where a plan depends on it beside the call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extent<'a> {
    None,
    One(usize),
    Counts(&'a [usize]),
    Peers(&'a [(usize, usize)]),
}

impl Extent<'_> {
    /// The numbers of the extent, behind how many they are.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        let (one, counts, peers): (Option<usize>, &[usize], &[(usize, usize)]) = match *self {
            Extent::None => (None, &[], &[]),
            Extent::One(number) => (Some(number), &[], &[]),
            Extent::Counts(counts) => (Some(counts.len()), counts, &[]),
            Extent::Peers(peers) => (Some(peers.len()), &[], peers),
        };
        one.into_iter().chain(counts.iter().copied()).chain(peers.iter().flat_map(|&(peer, count)| [peer, count]))
    }
}

fn peer_spans(whole: Span, peers: &[(usize, usize)]) -> Vec<PeerSpan> {
    let counts: Vec<usize> = peers.iter().map(|&(_, count)| count).collect();
    peers.iter().map(|&(peer, _)| peer).zip(whole.split(&counts)).collect()
}

fn check_rank(name: &'static str, rank: usize, group: &Group) -> Result<(), Error> {
    match rank < group.size() {
        true => Ok(()),
        false => Err(argument(name, rank, &format!("0 to {}", group.size() - 1))),
    }
}

fn check_counts(name: &'static str, counts: &[usize], element_count: usize, group: &Group) -> Result<(), Error> {
    if counts.len() != group.size() {
        return Err(argument(name, format!("{counts:?}"), &format!("{} counts, one per rank", group.size())));
    }
    check_total(counts.iter().copied(), element_count)
        .map_err(|expected| argument(name, format!("{counts:?}"), &expected))
}

fn check_peers(name: &'static str, peers: &[(usize, usize)], element_count: usize, group: &Group) -> Result<(), Error> {
    let wrong = |expected: &str| argument(name, format!("{peers:?}"), expected);
    for (index, &(peer, _)) in peers.iter().enumerate() {
        check_rank("peer", peer, group)?;
        if peers[..index].iter().any(|&(other, _)| other == peer) {
            return Err(wrong(&format!("rank {peer} once at most")));
        }
    }
    check_total(peers.iter().map(|&(_, count)| count), element_count).map_err(|expected| wrong(&expected))
}

/// What a rank has for itself, if anything, is what it gets of itself.
fn check_own(out_count: Option<usize>, in_count: Option<usize>, group: &Group) -> Result<(), Error> {
    if out_count == in_count {
        return Ok(());
    }
    let [out, into] = [out_count, in_count].map(|count| count.map_or("none".to_string(), |count| count.to_string()));
    Err(argument("elements from itself", into, &format!("{out}, as many as rank {} has for itself", group.rank())))
}

/// What was expected, unless `counts` add up to `element_count`.
fn check_total(mut counts: impl Iterator<Item = usize>, element_count: usize) -> Result<(), String> {
    let total = counts.try_fold(0usize, |sum, count| sum.checked_add(count));
    if total == Some(element_count) { Ok(()) } else { Err(format!("a sum of {element_count}")) }
}
