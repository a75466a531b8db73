//! Options and result of a regroup.

use super::super::block::{KeyedCombine, KeyedSchema};
use crate::communicator::Communicator;
use crate::elements::ElementShape;
use crate::error::Error;
use ripieno_run::{Call, CallKind, Element};
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

/// Default for the bytes that a rank receives in one wave. Larger waves are no faster and need more memory.
const WAVE_BYTES: u64 = 16 << 20;
/// Default for the minimum number of waves. Only the first wave cannot overlap with merging.
const WAVE_COUNT: NonZeroU64 = NonZeroU64::new(4).unwrap();
/// Smallest wave that [`Regroup::wave_count`] may cause. Merging a smaller wave takes less time than one more message.
const WAVE_BYTES_MIN: u64 = 256 << 10;
/// Default for the largest eager block. The links can buffer blocks of this size.
const EAGER_BYTES: usize = 64 << 10;
/// Default for the number of large blocks in flight to a rank. The grants of the next blocks overlap with transfers.
const PULLS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// Options of a regroup. They must be the same on every rank, except `threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regroup {
    /// Number with which the caller identifies this call. Ranks compare it together with the other options.
    pub call: u64,
    /// Combination of rows with equal keys from different ranks. It may be an operation even if the aggregation keeps
    /// all rows.
    pub merge: KeyedCombine,
    /// Whether to assign parts to ranks by size, largest first, instead of by part number.
    pub balanced: bool,
    /// Bytes that a rank receives in one wave, and half of the bytes that it sends in one. A wave has at least one
    /// part.
    pub wave_bytes: u64,
    /// Minimum number of waves, as long as the rank that receives most gets at least 256 KiB in a wave.
    pub wave_count: NonZeroU64,
    /// Largest block that is sent eagerly. Larger blocks are sent when the receiver requests them.
    pub eager_bytes: usize,
    /// Maximum number of larger blocks in flight to a rank.
    pub pulls: NonZeroUsize,
    /// Number of threads that seal and merge, including the caller.
    pub threads: NonZeroUsize,
}

impl Regroup {
    /// Create the default options: one thread, and rows of equal keys combined by `merge`.
    pub fn new(merge: KeyedCombine) -> Regroup {
        Regroup {
            call: 0,
            merge,
            balanced: false,
            wave_bytes: WAVE_BYTES,
            wave_count: WAVE_COUNT,
            eager_bytes: EAGER_BYTES,
            pulls: PULLS,
            threads: NonZeroUsize::MIN,
        }
    }

    /// Return the same options with waves that fit into `memory_bytes`. Half of the memory stays free for other data. A
    /// rank holds the wave that it merges, the wave in flight, and the bytes that it sends (up to twice a wave).
    pub fn within(self, memory_bytes: u64) -> Regroup {
        Regroup { wave_bytes: self.wave_bytes.min(memory_bytes / 8), ..self }
    }

    /// Return the same options with waves of `wave_bytes`. If all ranks have fewer bytes, there is a single wave.
    pub fn in_waves_of(self, wave_bytes: u64) -> Regroup {
        Regroup { wave_bytes, wave_count: NonZeroU64::MIN, ..self }
    }

    /// Return the bytes that a rank receives in a wave if no rank receives more than `max_bytes` in total.
    pub(super) fn wave_bytes_of(&self, max_bytes: u64) -> u64 {
        max_bytes.div_ceil(self.wave_count.get()).max(WAVE_BYTES_MIN).min(self.wave_bytes)
    }
}

/// Result and statistics of a regroup at this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regrouped {
    /// The schema of the merged rows at this rank.
    pub schema: KeyedSchema,
    /// Number of waves, sent one after the other.
    pub waves: usize,
    /// Number of rows of this rank before the exchange.
    pub rows_in: u64,
    /// Number of rows that this rank sent to other ranks.
    pub rows_sent: u64,
    /// Number of keys that this rank owns.
    pub keys: u64,
    /// Number of rows at this rank after the merge.
    pub rows: u64,
    /// Payload bytes sent by this rank.
    pub bytes_sent: u64,
    /// Bytes of this rank's rows that were spilled to files.
    pub spilled_bytes: u64,
    /// Time spent sealing the added rows.
    pub sealing: Duration,
    /// Time until all ranks knew owners and waves.
    pub sizes: Duration,
    /// Time spent reading and packing parts, and waiting for the parts of other ranks.
    pub exchange: Duration,
    /// Time spent merging.
    pub merge: Duration,
    /// Time spent in `on_block`.
    pub callback: Duration,
}

/// The calls of a regroup, one for each step. Ranks compare them like all other calls.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    /// Description of the transport options, and its hash.
    description: String,
    signature: u32,
    /// The number of the next step.
    next: u32,
}

impl Steps {
    /// Create the steps of a regroup of rows in `part_count` parts.
    pub fn new(part_count: usize, options: &Regroup) -> Steps {
        let Regroup { wave_bytes, wave_count, eager_bytes, pulls, .. } = *options;
        let description = format!(
            "{part_count} parts, at least {wave_count} waves of up to {wave_bytes} bytes, {pulls} pulls above \
             {eager_bytes} bytes"
        );
        Steps { signature: ElementShape::Described(&description).signature(), description, next: 0 }
    }

    /// Return the call of the next step on `comm`.
    pub fn next_call(&mut self, comm: &Communicator) -> Result<Call, Error> {
        comm.hold()?.core().fabric.note_signature(self.signature, &|| self.description.clone());
        let kind = CallKind::Regroup { step: self.next };
        self.next = self.next.wrapping_add(1);
        Ok(Call { kind, element: Element::U8, signature: self.signature })
    }
}
