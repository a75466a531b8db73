//! What the caller of a regroup may choose, and what it gets to know.

use super::super::aggregation::Aggregation;
use super::super::block::{Combine, Form};
use super::super::columns::KeyKind;
use crate::communicator::Communicator;
use crate::elements::Shape;
use crate::error::{Error, argument};
use ripieno_run::{Call, CallKind};
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
    /// What becomes of rows of equal keys from different ranks. Where the parts keep all rows, they may be combined
    /// here.
    pub merge: Combine,
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
    pub fn new(merge: Combine) -> Regroup {
        let pulls = NonZeroUsize::new(PULLS).expect("somebody has to begin");
        Regroup {
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regrouped {
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

/// What ranks compare in every step: the same where they have data of one form and the same options.
#[derive(Clone, Debug)]
pub(super) struct Agreement {
    rows: Form,
    merge: Combine,
    is_balanced: bool,
    /// What no field of a call has, in words, and their hash.
    words: String,
    form: u32,
    /// The number of the next step.
    step: u32,
}

impl Agreement {
    /// Fails where the data is not for `rank_count` ranks or cannot be merged.
    pub fn new(rows: &Aggregation, options: &Regroup, rank_count: usize) -> Result<Agreement, Error> {
        let Aggregation { form, homes, .. } = rows;
        if homes.rank_count != rank_count {
            let expected = format!("{rank_count}, as many as there are ranks here");
            return Err(argument("ranks of the aggregation", homes.rank_count, &expected));
        }
        Form { combine: options.merge, ..*form }.reduction()?;
        let Regroup { merge, balanced, wave_bytes, wave_count, eager_bytes, pulls, threads: _ } = *options;
        let words = format!(
            "{} parts, at least {wave_count} waves of up to {wave_bytes} bytes, {pulls} pulls above {eager_bytes} \
             bytes",
            homes.part_count()
        );
        Ok(Agreement { rows: *form, merge, is_balanced: balanced, step: 0, form: Shape::Told(&words).form(), words })
    }

    /// The call of the next step, which the other ranks of `comm` compare.
    pub fn next_call(&mut self, comm: &Communicator) -> Result<Call, Error> {
        comm.hold()?.core().fabric.note_form(self.form, &|| self.words.clone());
        let Form { keys, element, width, combine } = self.rows;
        let kind = CallKind::Regroup {
            step: self.step,
            has_strings: keys == KeyKind::Strings,
            is_balanced: self.is_balanced,
            op: combine.op(),
            merge: self.merge.op(),
            width: width as u64,
        };
        self.step = self.step.wrapping_add(1);
        Ok(Call { kind, element, form: self.form })
    }
}
