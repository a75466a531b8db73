//! Tasks: a collective and its arguments, without the memory.

use crate::choice::AlgorithmChoice;
use crate::error::{Error, argument};
use ripieno_plan::{Algorithm, CollectiveArguments, Extents, Group, PeerSpan, Plan, PlanRequest, Span, Unsuitable};
use ripieno_run::{Call, CallKind, Element};

/// A whole buffer of any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeBuffer;

/// A collective and its arguments, like the methods of [`Communicator`](crate::Communicator). The task works in place
/// on the first buffer, unless a second buffer receives the result.
///
/// Chunks are element counts, one per rank, that divide a buffer. Peers are ranks with element counts, in the order of
/// their elements in the buffer. A barrier needs one byte of scratch memory. A message is from or to this rank.
pub type CollectiveTask<'a> = CollectiveArguments<WholeBuffer, &'a [usize], &'a [(usize, usize)]>;

/// The part of a buffer that a task uses, if its plan depends on it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum TaskExtent<'a> {
    #[default]
    Whole,
    One(usize),
    Counts(&'a [usize]),
    Peers(&'a [(usize, usize)]),
}

impl<'a> TaskExtent<'a> {
    /// Return the extents of the first and second buffer of `task`.
    #[inline]
    pub fn all_of(task: &CollectiveTask<'a>) -> [TaskExtent<'a>; 2] {
        let mut recorder = ExtentRecorder::default();
        task.with(&mut recorder);
        recorder.extents
    }

    /// Return the number of entries of the extent, followed by the entries.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        let (one, counts, peers): (Option<usize>, &[usize], &[(usize, usize)]) = match *self {
            TaskExtent::Whole => (None, &[], &[]),
            TaskExtent::One(number) => (Some(number), &[], &[]),
            TaskExtent::Counts(counts) => (Some(counts.len()), counts, &[]),
            TaskExtent::Peers(peers) => (Some(peers.len()), &[], peers),
        };
        one.into_iter().chain(counts.iter().copied()).chain(peers.iter().flat_map(|&(peer, count)| [peer, count]))
    }

    /// Check the extent against `group` and the buffer.
    #[inline]
    fn check(&self, [chunks, peers]: [&'static str; 2], buffer: Span, group: &Group) -> Result<(), Error> {
        match self {
            TaskExtent::Whole | TaskExtent::One(_) => Ok(()),
            TaskExtent::Counts(counts) => check_counts(chunks, counts, buffer.element_count(), group),
            TaskExtent::Peers(listed) => check_peers(peers, listed, buffer.element_count(), group),
        }
    }

    /// Return the number of elements for or from `rank`, if the extent states it.
    fn count_of(&self, rank: usize) -> Option<usize> {
        match self {
            TaskExtent::Whole | TaskExtent::One(_) => None,
            TaskExtent::Counts(counts) => counts.get(rank).copied(),
            TaskExtent::Peers(peers) => peers.iter().find(|(peer, _)| *peer == rank).map(|&(_, count)| count),
        }
    }

    /// Return the spans that divide `buffer`.
    fn spans(&self, buffer: Span) -> Spans {
        match *self {
            TaskExtent::Whole | TaskExtent::One(_) => Spans::default(),
            TaskExtent::Counts(counts) => Spans { chunks: buffer.split(counts), ..Spans::default() },
            TaskExtent::Peers(peers) => Spans { peers: peer_spans(buffer, peers), ..Spans::default() },
        }
    }
}

/// Records the extents of a task.
#[derive(Default)]
struct ExtentRecorder<'a> {
    extents: [TaskExtent<'a>; 2],
    next: usize,
}

impl<'a> ExtentRecorder<'a> {
    #[inline]
    fn record(&mut self, extent: TaskExtent<'a>) {
        self.extents[self.next] = extent;
        self.next += 1;
    }
}

impl<'a> Extents<WholeBuffer, &'a [usize], &'a [(usize, usize)]> for ExtentRecorder<'a> {
    type Vector = ();
    type Chunks = ();
    type Peers = ();

    #[inline]
    fn vector(&mut self, _: WholeBuffer) {
        self.record(TaskExtent::Whole);
    }

    #[inline]
    fn chunks(&mut self, counts: &'a [usize]) {
        self.record(TaskExtent::Counts(counts));
    }

    #[inline]
    fn peers(&mut self, peers: &'a [(usize, usize)]) {
        self.record(TaskExtent::Peers(peers));
    }
}

/// Division of a buffer into chunks or peers, or no division.
#[derive(Default)]
struct Spans {
    chunks: Vec<Span>,
    peers: Vec<PeerSpan>,
}

/// Replaces the counts of a task by spans.
struct SpanAssigner<'a> {
    /// For each buffer, its whole span and its division.
    buffers: [(Span, &'a Spans); 2],
    next: usize,
}

impl<'a> SpanAssigner<'a> {
    fn next(&mut self) -> (Span, &'a Spans) {
        self.next += 1;
        self.buffers[self.next - 1]
    }
}

impl<'a> Extents<WholeBuffer, &[usize], &[(usize, usize)]> for SpanAssigner<'a> {
    type Vector = Span;
    type Chunks = &'a [Span];
    type Peers = &'a [PeerSpan];

    fn vector(&mut self, _: WholeBuffer) -> Span {
        self.next().0
    }

    fn chunks(&mut self, _: &[usize]) -> &'a [Span] {
        &self.next().1.chunks
    }

    fn peers(&mut self, _: &[(usize, usize)]) -> &'a [PeerSpan] {
        &self.next().1.peers
    }
}

/// Return the layout of all ranks' chunks and this rank's part of it, if `main` has this part only: in a gather or
/// scatter, a rank other than the root may pass its own chunk alone.
#[inline]
pub(crate) fn layout_of_part(task: &CollectiveTask<'_>, rank: usize, main: Span) -> Option<(Span, Span)> {
    let (CollectiveTask::Gather { chunks, root } | CollectiveTask::Scatter { chunks, root }) = *task else {
        return None;
    };
    let total = chunks.iter().try_fold(0usize, |sum, count| sum.checked_add(*count))?;
    let own = *chunks.get(rank).filter(|_| rank != root)?;
    if own != main.element_count() {
        return None;
    }
    let whole = Span { length_bytes: total.checked_mul(main.element_bytes)?, ..main };
    Some((whole, whole.elements(chunks[..rank].iter().sum(), own)))
}

/// Return whether `rank` only reads the first buffer, `main`.
#[inline]
pub(crate) fn only_reads(task: &CollectiveTask<'_>, rank: usize, main: Span) -> bool {
    let gathers_part = matches!(task, CollectiveTask::Gather { .. }) && layout_of_part(task, rank, main).is_some();
    gathers_part || task.only_reads(rank)
}

/// Check the arguments, including the `extents` of two buffers, against `group` and the buffers.
#[inline]
pub(crate) fn check(
    task: &CollectiveTask<'_>,
    [main_extent, output_extent]: &[TaskExtent<'_>; 2],
    group: &Group,
    [main, output]: [Span; 2],
) -> Result<(), Error> {
    if let Some(root) = task.root() {
        check_rank("root", root, group)?;
    }
    main_extent.check(["counts", "out"], main, group)?;
    output_extent.check(["counts", "into"], output, group)?;
    let rank = group.rank();
    match *task {
        CollectiveTask::PointToPoint { from, to, .. } => {
            let peer = if rank == from { to } else { from };
            check_rank("peer", peer, group)?;
            match peer == rank {
                true => Err(argument("peer", peer, "a rank other than this one")),
                false => Ok(()),
            }
        }
        CollectiveTask::Rotate { distance, .. } if distance.is_multiple_of(group.size()) => {
            check_own_counts(Some(main.element_count()), Some(output.element_count()), group)
        }
        _ if task.has_output() => check_own_counts(main_extent.count_of(rank), output_extent.count_of(rank), group),
        _ => Ok(()),
    }
}

/// Return the call that ranks compare. The caller sets its signature.
#[inline]
pub(crate) fn call(
    task: &CollectiveTask<'_>,
    element: Element,
    element_count: usize,
    choice: &AlgorithmChoice,
    p: usize,
) -> Call {
    let (algorithm, element_count) = (choice.algorithm.index, element_count as u64);
    let kind = match *task {
        CollectiveTask::PointToPoint { to, .. } => CallKind::Message { algorithm, to: to as u32, element_count },
        CollectiveTask::Rotate { distance, .. } => CallKind::Rotation { algorithm, distance: (distance % p) as u32 },
        _ => CallKind::Catalogued {
            collective: task.collective(),
            algorithm,
            op: task.op(),
            root: task.root().unwrap_or(0) as u32,
            // The element counts of a second buffer differ between ranks.
            element_count: if task.has_output() { 0 } else { element_count },
        },
    };
    Call { kind, element, signature: 0 }
}

/// Return the counts per rank among `extents` that must be equal on all ranks.
#[inline]
pub(crate) fn common_counts<'a>(extents: &[TaskExtent<'a>; 2]) -> &'a [usize] {
    match *extents {
        [TaskExtent::Counts(counts), TaskExtent::Whole] => counts,
        _ => &[],
    }
}

/// Return the extents that a plan depends on in addition to the call. If `part` is not `None`, the first buffer has
/// only this part of the layout.
#[inline]
pub(crate) fn plan_extents<'a>(
    task: &CollectiveTask<'a>,
    extents: [TaskExtent<'a>; 2],
    buffers: [Span; 2],
    part: Option<Span>,
) -> [TaskExtent<'a>; 2] {
    match *task {
        _ if part.is_some() => [extents[0], TaskExtent::One(0)],
        CollectiveTask::PointToPoint { from, .. } => [TaskExtent::One(from), TaskExtent::Whole],
        CollectiveTask::Rotate { .. } => buffers.map(|span| TaskExtent::One(span.element_count())),
        _ => extents,
    }
}

/// Return this rank's plan for `task` on all of `main`, and of `output` if there is a second buffer.
pub(crate) fn plan(
    task: &CollectiveTask<'_>,
    algorithm: &Algorithm,
    group: &Group,
    main: Span,
    output: Span,
) -> Result<Plan, Unsuitable> {
    let [main_extent, output_extent] = TaskExtent::all_of(task);
    let (of_main, of_output) = (main_extent.spans(main), output_extent.spans(output));
    let mut request = task.with(&mut SpanAssigner { buffers: [(main, &of_main), (output, &of_output)], next: 0 });
    if let PlanRequest::Rotate { distance, .. } = &mut request {
        *distance %= group.size();
    }
    algorithm.plan(group, &request)
}

fn peer_spans(buffer: Span, peers: &[(usize, usize)]) -> Vec<PeerSpan> {
    let counts: Vec<usize> = peers.iter().map(|&(_, count)| count).collect();
    peers.iter().map(|&(peer, _)| peer).zip(buffer.split(&counts)).collect()
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

/// Check that the count that a rank sends to itself, if any, equals the count that it receives from itself.
fn check_own_counts(out_count: Option<usize>, in_count: Option<usize>, group: &Group) -> Result<(), Error> {
    if out_count == in_count {
        return Ok(());
    }
    let [out, into] = [out_count, in_count].map(|count| count.map_or("none".to_string(), |count| count.to_string()));
    Err(argument("elements from itself", into, &format!("{out}, the elements of rank {} for itself", group.rank())))
}

/// Check that `counts` add up to `element_count`. The error describes the expected value.
fn check_total(mut counts: impl Iterator<Item = usize>, element_count: usize) -> Result<(), String> {
    let total = counts.try_fold(0usize, |sum, count| sum.checked_add(count));
    if total == Some(element_count) { Ok(()) } else { Err(format!("a sum of {element_count}")) }
}
