//! What the caller of a regroup may choose, and what it gets to know.

use super::super::block::{KeyedCombine, KeyedForm};
use crate::communicator::Communicator;
use crate::elements::ElementShape;
use crate::error::Error;
use ripieno_run::{Call, CallKind, Element};
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

/// What comes to a rank in one wave, if nobody says otherwise: larger ones are no faster, and take memory.
const WAVE_BYTES: u64 = 16 << 20;
/// Waves at least, if nobody says otherwise: only the first of them comes while there is nothing to merge.
const WAVE_COUNT: NonZeroU64 = NonZeroU64::new(4).unwrap();
/// Smaller waves are not cut to have more of them: merging them takes no longer than one more message.
const LEAST_WAVE_BYTES: u64 = 256 << 10;
/// Blocks up to this size are sent at once, if nobody says otherwise: the links hold them.
const EAGER_BYTES: usize = 64 << 10;
/// Large blocks on their way to a rank, if nobody says otherwise: while one comes, the grant of the next travels.
const PULLS: usize = 4;

/// How a regroup is done; the same on every rank, but for `threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regroup {
    /// The caller's own number for what it calls: ranks compare it with all that is here.
    pub call: u64,
    /// What becomes of rows of equal keys from different ranks. Where the parts keep all rows, they may be combined
    /// here.
    pub merge: KeyedCombine,
    /// Whether parts are dealt to ranks by their size, the largest first, and not by their number.
    pub balanced: bool,
    /// Bytes that come to a rank in one wave, and half of what any rank gives in one; one part at least.
    pub wave_bytes: u64,
    /// Waves at least, as long as one brings 256 KiB to the rank that gets most.
    pub wave_count: NonZeroU64,
    /// Blocks up to this size are sent at once, larger ones when the receiver asks for them.
    pub eager_bytes: usize,
    /// How many of the larger ones are on their way to a rank at most.
    pub pulls: NonZeroUsize,
    /// How many threads seal and merge, the caller's included.
    pub threads: NonZeroUsize,
}

impl Regroup {
    /// The usual way, on one thread, with rows that become one as `merge` says.
    pub fn new(merge: KeyedCombine) -> Regroup {
        let pulls = NonZeroUsize::new(PULLS).expect("somebody has to begin");
        Regroup {
            call: 0,
            merge,
            balanced: false,
            wave_bytes: WAVE_BYTES,
            wave_count: WAVE_COUNT,
            eager_bytes: EAGER_BYTES,
            pulls,
            threads: NonZeroUsize::MIN,
        }
    }

    /// The same, with waves that leave half of `memory_bytes` to what waits for them: a rank holds one that is merged,
    /// and one that travels with what it sends of it, which may be twice as large.
    pub fn within(self, memory_bytes: u64) -> Regroup {
        Regroup { wave_bytes: self.wave_bytes.min(memory_bytes / 8), ..self }
    }

    /// The same, with waves of just so many bytes, and one if all have fewer.
    pub fn in_waves_of(self, wave_bytes: u64) -> Regroup {
        Regroup { wave_bytes, wave_count: NonZeroU64::MIN, ..self }
    }

    /// What a wave brings to a rank where the one that gets most gets `most_bytes`.
    pub(super) fn wave_bytes_of(&self, most_bytes: u64) -> u64 {
        most_bytes.div_ceil(self.wave_count.get()).max(LEAST_WAVE_BYTES).min(self.wave_bytes)
    }
}

/// What a regroup did, at this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regrouped {
    /// What the rows at home here look like, merged.
    pub form: KeyedForm,
    /// Ranges of parts that travelled one after the other.
    pub waves: usize,
    /// Rows that were in the parts of this rank, and how many of them left it.
    pub rows_in: u64,
    #[allow(missing_docs)]
    pub rows_sent: u64,
    /// Keys that are at home here.
    pub keys: u64,
    /// Rows that are, after the merge.
    pub rows: u64,
    /// Payload bytes that left this rank.
    pub bytes_sent: u64,
    /// Bytes that this rank's parts had been written to files with.
    pub spilled_bytes: u64,
    /// Sealing what was added.
    pub sealing: Duration,
    /// Until all knew homes and waves.
    pub sizes: Duration,
    /// Reading parts, packing them and waiting for those of others.
    pub exchange: Duration,
    /// Merging.
    pub merge: Duration,
    /// In `on_block`.
    pub handing_on: Duration,
}

/// The calls of a regroup, one for each step, which ranks compare as they do every call.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    /// How rows travel, in words, and their hash.
    words: String,
    form: u32,
    /// The number of the next step.
    next: u32,
}

impl Steps {
    /// Of rows in so many parts.
    pub fn new(part_count: usize, options: &Regroup) -> Steps {
        let Regroup { wave_bytes, wave_count, eager_bytes, pulls, .. } = *options;
        let words = format!(
            "{part_count} parts, at least {wave_count} waves of up to {wave_bytes} bytes, {pulls} pulls above \
             {eager_bytes} bytes"
        );
        Steps { form: ElementShape::Told(&words).form(), words, next: 0 }
    }

    /// The call of the next step of `comm`.
    pub fn next_call(&mut self, comm: &Communicator) -> Result<Call, Error> {
        comm.hold()?.core().fabric.note_form(self.form, &|| self.words.clone());
        let kind = CallKind::Regroup { step: self.next };
        self.next = self.next.wrapping_add(1);
        Ok(Call { kind, element: Element::U8, form: self.form })
    }
}
