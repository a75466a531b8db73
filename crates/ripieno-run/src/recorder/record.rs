//! A record of one collective of one rank, in one cache line.

use crate::call::{Element, Header};
use ripieno_plan::{Algorithm, Collective, Op};
use std::fmt;
use std::time::Duration;

/// Marks an unknown time.
const UNKNOWN_NS: u64 = u64::MAX;
/// Marks a missing peer.
const NO_PEER: u32 = u32::MAX;

/// State of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CollectiveOutcome {
    /// The collective has not ended.
    InFlight,
    /// The collective succeeded.
    Done,
    /// The job failed.
    Failed,
    /// The user interrupted the wait.
    Interrupted,
}

/// One collective of one rank. All times are on the fabric's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct CollectiveRecord {
    /// Sequence number, which is equal on all participating ranks.
    pub sequence: u64,
    /// Bytes that this rank contributed. If unknown: size of the call's data.
    pub bytes: u64,
    start_ns: u64,
    end_ns: u64,
    waiting_ns: u64,
    /// The communicator; 0 is the communicator of all ranks.
    pub communicator: u32,
    /// Receiver of a message.
    receiver: u32,
    waited_for: u32,
    /// Number of ranks that this rank exchanges bytes with.
    pub peer_count: u16,
    /// The collective.
    pub collective: Collective,
    algorithm: u8,
    /// Element type.
    pub element: Element,
    /// Reduction operation, if the collective reduces.
    pub op: Option<Op>,
    /// State of the collective.
    pub outcome: CollectiveOutcome,
}

impl CollectiveOutcome {
    /// Return the public name of the state.
    pub fn name(self) -> &'static str {
        match self {
            CollectiveOutcome::InFlight => "in flight",
            CollectiveOutcome::Done => "done",
            CollectiveOutcome::Failed => "failed",
            CollectiveOutcome::Interrupted => "interrupted",
        }
    }
}

impl CollectiveRecord {
    /// Initial entry of the ring.
    pub(super) const EMPTY: CollectiveRecord = CollectiveRecord {
        sequence: 0,
        bytes: 0,
        start_ns: UNKNOWN_NS,
        end_ns: UNKNOWN_NS,
        waiting_ns: 0,
        communicator: 0,
        receiver: NO_PEER,
        waited_for: NO_PEER,
        peer_count: 0,
        collective: Collective::Barrier,
        algorithm: 0,
        element: Element::U8,
        op: None,
        outcome: CollectiveOutcome::InFlight,
    };

    /// Return a record of a collective that has not begun. It uses `bytes` of this rank's memory and exchanges data
    /// with `peer_count` peers.
    pub fn of(header: &Header, bytes: u64, peer_count: u16) -> CollectiveRecord {
        let call = &header.call;
        CollectiveRecord {
            sequence: header.sequence,
            communicator: header.communicator,
            bytes,
            receiver: call.receiver().unwrap_or(NO_PEER),
            peer_count,
            collective: call.collective(),
            algorithm: call.algorithm().unwrap_or_default(),
            element: call.element,
            op: call.op(),
            ..CollectiveRecord::EMPTY
        }
    }

    /// Return the record as begun, with number `sequence` and the start time if known.
    #[inline]
    pub(super) fn begun(&self, sequence: u64, start: Option<Duration>) -> CollectiveRecord {
        CollectiveRecord { sequence, start_ns: start.map_or(UNKNOWN_NS, nanoseconds), ..*self }
    }

    /// Return whether all ranks take part.
    #[inline]
    pub(crate) fn concerns_all(&self) -> bool {
        self.receiver == NO_PEER
    }

    pub(super) fn waited(&mut self, longest: Option<usize>, since: Duration, until: Duration) {
        self.waiting_ns += nanoseconds(until.saturating_sub(since));
        if self.waiting_ns > 0 {
            self.waited_for = longest.map_or(self.waited_for, |peer| peer as u32);
        }
        self.start_ns = self.start_ns.min(nanoseconds(since));
        self.end_ns = nanoseconds(until);
    }

    pub(super) fn ended(&mut self, end: Duration) {
        self.end_ns = nanoseconds(end);
    }

    #[inline]
    pub(super) fn has_start(&self) -> bool {
        self.start_ns != UNKNOWN_NS
    }

    /// Return the name of the algorithm.
    pub fn algorithm(&self) -> &'static str {
        if self.collective == Collective::SparseReduce {
            return "butterfly";
        }
        if self.collective == Collective::Regroup {
            return "pulled";
        }
        if self.collective == Collective::Plan {
            return "checked";
        }
        Algorithm::by_index(self.collective, self.algorithm).map_or("unknown algorithm", |algorithm| algorithm.name)
    }

    /// Return the start time. For a short call it is the start of the first wait, or `None` without a wait.
    pub fn start(&self) -> Option<Duration> {
        duration(self.start_ns)
    }

    /// Return the end time. For a short call it is the end of the last wait, or `None` without a wait.
    pub fn end(&self) -> Option<Duration> {
        duration(self.end_ns)
    }

    /// Return the duration, or `None` if the times are unknown.
    pub fn elapsed(&self) -> Option<Duration> {
        Some(self.end()?.saturating_sub(self.start()?))
    }

    /// Return the total time without data movement.
    pub fn waiting(&self) -> Duration {
        Duration::from_nanos(self.waiting_ns)
    }

    /// Return the duration minus the waiting time, or `None` if the times are unknown.
    pub fn moving(&self) -> Option<Duration> {
        Some(self.elapsed()?.saturating_sub(self.waiting()))
    }

    /// Return the peer with the longest waiting time, if the collective waited.
    pub fn waited_for(&self) -> Option<usize> {
        (self.waited_for != NO_PEER).then_some(self.waited_for as usize)
    }

    fn element_count(&self) -> u64 {
        self.bytes / self.element.size_bytes() as u64
    }

    /// Write the collective in the form `allreduce #412 (ring, sum of float32 × 1048576)`.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, algorithm) = (self.sequence, self.algorithm());
        match self.collective {
            Collective::PointToPoint => write!(f, "message #{number} to rank {}", self.receiver)?,
            collective => write!(f, "{} #{number}", collective.name())?,
        }
        if self.communicator != 0 {
            write!(f, " of communicator {}", self.communicator)?;
        }
        let elements = format_args!("{} × {}", self.element.name(), self.element_count());
        match (self.collective, self.op) {
            (Collective::Barrier, _) => write!(f, " ({algorithm})"),
            (Collective::PointToPoint, _) => write!(f, " ({elements})"),
            (_, Some(op)) => write!(f, " ({algorithm}, {} of {elements})", op.name()),
            (_, None) => write!(f, " ({algorithm}, {elements})"),
        }
    }
}

impl fmt::Display for CollectiveRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outcome {
            CollectiveOutcome::InFlight | CollectiveOutcome::Failed => f.write_str("in ")?,
            CollectiveOutcome::Interrupted => f.write_str("interrupted in ")?,
            CollectiveOutcome::Done => {}
        }
        self.describe(f)?;
        if let (CollectiveOutcome::Done, Some(elapsed)) = (self.outcome, self.elapsed()) {
            write!(f, ", {}", Seconds(elapsed))?;
        }
        match self.waited_for() {
            Some(peer) => write!(f, ", waiting {} for rank {peer}", Seconds(self.waiting())),
            None => Ok(()),
        }
    }
}

/// Formats a duration with a readable unit.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        match self.0 {
            at_least if at_least >= Duration::from_secs(1) => write!(f, "{seconds:.1} s"),
            at_least if at_least >= Duration::from_millis(1) => write!(f, "{:.1} ms", 1e3 * seconds),
            _ => write!(f, "{:.1} µs", 1e6 * seconds),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn duration(time_ns: u64) -> Option<Duration> {
    (time_ns != UNKNOWN_NS).then(|| Duration::from_nanos(time_ns))
}

const _: () = assert!(size_of::<CollectiveRecord>() == 64, "a record is one cache line");
