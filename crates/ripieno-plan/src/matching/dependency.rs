//! Dependencies: the order of one rank's operations on one piece of its buffers.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The pieces that an operation passes at one of its ends, in order.
///
/// A path consists of stops, where bytes move, and gaps between them, where no bytes move. A stop waits for the gaps
/// before it. The operation passes a gap together with the stop before it, because an operation that has reached a byte
/// has finished all lower bytes of its span.
#[derive(Default)]
pub(crate) struct Path {
    writes: bool,
    stops: Vec<PieceStop>,
    /// Each gap with the number of stops before it, ascending.
    gaps: Vec<(usize, PieceStop)>,
}

/// A piece, and the number of earlier operations that must have passed it (see [`Dependencies`]).
#[derive(Clone, Copy)]
struct PieceStop {
    piece: u32,
    threshold: u32,
}

/// Per piece: number of writes and number of accesses before the current operation.
pub(crate) type PriorAccesses = (u32, u32);

impl Path {
    /// Create an empty path for an operation that reads.
    pub(crate) fn reading() -> Path {
        Path::default()
    }

    /// Create an empty path for an operation that writes.
    pub(crate) fn writing() -> Path {
        Path { writes: true, ..Path::default() }
    }

    /// Append stops.
    pub(crate) fn push_stops(&mut self, pieces: Range<usize>, before: &mut [PriorAccesses]) {
        self.stops.reserve(pieces.len());
        for piece in pieces {
            let stop = self.stop(piece, before);
            self.stops.push(stop);
            self.count(&mut before[piece]);
        }
    }

    /// Append gaps: pieces between the last stop and the next stop.
    pub(crate) fn push_gaps(&mut self, pieces: Range<usize>, before: &mut [PriorAccesses]) {
        for piece in pieces {
            self.gaps.push((self.stops.len(), self.stop(piece, before)));
            self.count(&mut before[piece]);
        }
    }

    fn stop(&self, piece: usize, before: &[PriorAccesses]) -> PieceStop {
        let (write_count, access_count) = before[piece];
        PieceStop { piece: piece as u32, threshold: if self.writes { access_count } else { write_count } }
    }

    fn count(&self, (write_count, access_count): &mut PriorAccesses) {
        *write_count += u32::from(self.writes);
        *access_count += 1;
    }

    /// Return the number of stops.
    pub(crate) fn len(&self) -> usize {
        self.stops.len()
    }

    /// Return the piece of a stop.
    pub(crate) fn piece(&self, stop: usize) -> usize {
        self.stops[stop].piece as usize
    }

    /// Return when the stop may be passed, or `None` if an earlier operation must first pass it or a gap before it.
    pub(crate) fn ready_at(&self, stop: usize, dependencies: &Dependencies) -> Option<f64> {
        let own = dependencies.ready_at(self.writes, self.stops[stop])?;
        self.gaps_at(stop)
            .iter()
            .try_fold(own, |latest, (_, gap)| Some(latest.max(dependencies.ready_at(self.writes, *gap)?)))
    }

    /// Pass the stop and the gaps that follow it.
    pub(crate) fn pass(&self, stop: usize, dependencies: &mut Dependencies, at: f64) {
        dependencies.pass(self.writes, self.stops[stop].piece, at);
        for (_, gap) in self.gaps_at(stop + 1) {
            dependencies.pass_when_ready(self.writes, *gap, at);
        }
    }

    /// Return when all stops may be passed, or `None` if an earlier operation blocks one of them.
    pub(crate) fn all_ready_at(&self, dependencies: &Dependencies) -> Option<f64> {
        (0..self.len()).try_fold(0.0, |latest: f64, stop| Some(latest.max(self.ready_at(stop, dependencies)?)))
    }

    /// Pass all stops.
    pub(crate) fn pass_all(&self, dependencies: &mut Dependencies, at: f64) {
        (0..self.len()).for_each(|stop| self.pass(stop, dependencies, at));
    }

    /// Return the gaps directly before a stop.
    fn gaps_at(&self, stop: usize) -> &[(usize, PieceStop)] {
        if self.gaps.is_empty() {
            return &[];
        }
        let first = self.gaps.partition_point(|(stops, _)| *stops < stop);
        let count = self.gaps[first..].partition_point(|(stops, _)| *stops == stop);
        &self.gaps[first..first + count]
    }
}

/// Dependency state of all pieces of a rank.
pub(crate) struct Dependencies {
    pieces: Vec<PieceOrder>,
    /// Per piece: gaps passed ahead of earlier operations. Each counts once these operations are done.
    early: BTreeMap<u32, Vec<DeferredPass>>,
}

struct DeferredPass {
    writes: bool,
    threshold: u32,
    at: f64,
}

impl Dependencies {
    /// Create the state before the first operation.
    pub(crate) fn new(piece_count: usize) -> Dependencies {
        Dependencies { pieces: vec![PieceOrder::default(); piece_count], early: BTreeMap::new() }
    }

    fn ready_at(&self, writes: bool, stop: PieceStop) -> Option<f64> {
        self.pieces[stop.piece as usize].ready_at(writes, stop.threshold)
    }

    /// Record an access that is ready.
    fn pass(&mut self, writes: bool, piece: u32, at: f64) {
        let dependency = &mut self.pieces[piece as usize];
        dependency.pass(writes, at);
        if self.early.is_empty() {
            return;
        }
        let Some(early) = self.early.get_mut(&piece) else {
            return;
        };
        while let Some(ready) = early.iter().position(|next| dependency.ready_at(next.writes, next.threshold).is_some())
        {
            let next = early.swap_remove(ready);
            dependency.pass(next.writes, next.at);
        }
    }

    /// Record an access as soon as it is ready.
    fn pass_when_ready(&mut self, writes: bool, PieceStop { piece, threshold }: PieceStop, at: f64) {
        if self.ready_at(writes, PieceStop { piece, threshold }).is_some() {
            self.pass(writes, piece, at);
        } else {
            self.early.entry(piece).or_default().push(DeferredPass { writes, threshold, at });
        }
    }
}

/// Order on one piece: reads wait for earlier writes, and writes wait for earlier reads and writes.
#[derive(Clone, Default)]
struct PieceOrder {
    writes_done: u32,
    accesses_done: u32,
    written_at: f64,
    read_at: f64,
}

impl PieceOrder {
    /// Return when the piece may be read or written. `None` while an earlier write is outstanding, or for a write any
    /// earlier access.
    fn ready_at(&self, writes: bool, threshold: u32) -> Option<f64> {
        if writes {
            (self.accesses_done >= threshold).then_some(self.written_at.max(self.read_at))
        } else {
            (self.writes_done >= threshold).then_some(self.written_at)
        }
    }

    fn pass(&mut self, writes: bool, at: f64) {
        self.accesses_done += 1;
        if writes {
            self.writes_done += 1;
            self.written_at = self.written_at.max(at);
        } else {
            self.read_at = self.read_at.max(at);
        }
    }
}
