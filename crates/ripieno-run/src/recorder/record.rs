//! A record: one collective of one rank, in one cache line.

use crate::call::{Element, Header};
use ripieno_plan::{Algorithm, Collective, Op};
use std::fmt;
use std::time::Duration;

/// A time that nobody looked at.
const UNKNOWN_NS: u64 = u64::MAX;
/// Nobody.
const NO_PEER: u32 = u32::MAX;

/// How a collective stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CollectiveOutcome {
    /// It has not ended.
    InFlight,
    /// It ended well.
    Done,
    /// The job failed.
    Failed,
    /// The user did not want to wait any longer.
    Interrupted,
}

/// One collective of one rank. Times are the fabric's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct CollectiveRecord {
    /// The number that it has on every rank that takes part.
    pub sequence: u64,
    /// Size of what this rank gave, or where nothing else says so, of what the call is about.
    pub bytes: u64,
    start_ns: u64,
    end_ns: u64,
    waiting_ns: u64,
    /// Which communicator; 0 is that of all ranks.
    pub communicator: u32,
    /// Of a message: who gets it.
    receiver: u32,
    waited_for: u32,
    /// How many others this rank exchanges bytes with.
    pub peer_count: u16,
    /// Which collective.
    pub collective: Collective,
    algorithm: u8,
    /// Type of the elements.
    pub element: Element,
    /// How elements combine, where they do.
    pub op: Option<Op>,
    /// How it stands.
    pub outcome: CollectiveOutcome,
}

impl CollectiveOutcome {
    /// The name that users know.
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
    /// What a ring holds before anything has begun.
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

    /// Of a collective that has not begun, on `bytes` of this rank's memory and with `peer_count` others.
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

    /// The same collective as number `sequence`; `start` if that is known.
    #[inline]
    pub(super) fn begun(&self, sequence: u64, start: Option<Duration>) -> CollectiveRecord {
        CollectiveRecord { sequence, start_ns: start.map_or(UNKNOWN_NS, nanoseconds), ..*self }
    }

    /// Whether every rank takes part.
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

    /// The name of the algorithm.
    pub fn algorithm(&self) -> &'static str {
        if self.collective == Collective::SparseReduce {
            return "butterfly";
        }
        if self.collective == Collective::Regroup {
            return "pulled";
        }
        Algorithm::by_index(self.collective, self.algorithm).map_or("unknown algorithm", |algorithm| algorithm.name)
    }

    /// When it began; of a short call, when it began to wait, and `None` if it never did.
    pub fn start(&self) -> Option<Duration> {
        known(self.start_ns)
    }

    /// When it ended, or ended its last wait; `None` as for [`CollectiveRecord::start`].
    pub fn end(&self) -> Option<Duration> {
        known(self.end_ns)
    }

    /// How long it took; `None` where times are not known.
    pub fn elapsed(&self) -> Option<Duration> {
        Some(self.end()?.saturating_sub(self.start()?))
    }

    /// How long nothing moved.
    pub fn waiting(&self) -> Duration {
        Duration::from_nanos(self.waiting_ns)
    }

    /// How long it took besides; `None` where times are not known.
    pub fn moving(&self) -> Option<Duration> {
        Some(self.elapsed()?.saturating_sub(self.waiting()))
    }

    /// The peer that it waited for longest, if it waited.
    pub fn waited_for(&self) -> Option<usize> {
        (self.waited_for != NO_PEER).then_some(self.waited_for as usize)
    }

    fn element_count(&self) -> u64 {
        self.bytes / self.element.size_bytes() as u64
    }

    /// What it is: `allreduce #412 (ring, sum of float32 × 1048576)`.
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

/// A time in the unit that makes it readable.
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

fn known(time_ns: u64) -> Option<Duration> {
    (time_ns != UNKNOWN_NS).then(|| Duration::from_nanos(time_ns))
}

const _: () = assert!(size_of::<CollectiveRecord>() == 64, "a record is one cache line");
