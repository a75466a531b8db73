//! Choice between ordinary and [streaming](super::streaming) stores for the bytes of a ring, by measured costs.
//!
//! The faster kind depends on whether the cores of both ranks share a cache. This changes while a job runs: threads
//! migrate between cores. The host of a virtual machine also moves its cores, and then `sysfs` is wrong.
//! The link therefore measures its own traffic. The producer times its writes and the consumer its reads, both per kind
//! of store and class of length. Streaming stores are used where the sum of both is lower by a third. Trials of the
//! other kind keep both costs current: the number of bytes between two trials doubles up to [`TRIAL_BYTES`], and is
//! reset when the choice changes. The first pass through the ring is not timed, because the kernel allocates its pages
//! then. A class without costs follows the class that decided last.
//!
//! Messages of 1 to 4 KiB are too short to be timed. The [time of a line](super::line_times) between the cores decides:
//! without a common cache, streaming stores take 0.65 of the time of an exchange of 1 KiB, with a common cache 1.7.
//!
//! The consumer also times its reads of [zero-copy sends](super::zero_copy). The producer copies instead while that is
//! faster.
//!
//! Cost: two reads of the time stamp counter every [`TIMING_INTERVAL`] writes, and an estimated 1 % for trials.

use super::atomics::AtomicWord;
use super::line_times::ticks_per_us;
use super::ring::COPY_UNIT_BYTES;
use super::streaming::{CAN_STREAM, ticks};
use super::zero_copy::ZeroCopyKind;
use ripieno_run::SendFlow;
use std::sync::atomic::Ordering::Relaxed;

/// Shorter writes always use ordinary stores.
const STREAMED_BYTES_MIN: usize = 1 << 10;
/// Shorter writes are not timed: most of their cost arises after the last instruction of the write.
const TIMED_BYTES_MIN: usize = 4 << 10;
/// Classes of length: from 4, 8, 16 and 32 KiB on.
const CLASS_COUNT: usize = 4;
/// Classes of zero-copy messages: up to 64 KiB, 256 KiB, 1 MiB, 4 MiB, and more. Their costs differ by up to three
/// times.
const MESSAGE_CLASS_COUNT: usize = 5;
/// Number of [ways](way_of) to read a zero-copy send.
const WAY_COUNT: usize = 3;
/// Number of writes from one timed write to the next.
const TIMING_INTERVAL: u32 = 8;
/// Greatest number of bytes of a class between two trials of the kind that is not used.
const TRIAL_BYTES: usize = 16 << 20;
/// Number of writes between the first two trials.
const FIRST_TRIAL_COUNT: usize = 2;
/// Greatest number of copied bytes between two trials of slow zero-copy sends of a class. They are up to six times
/// slower than copies.
const ZERO_COPY_TRIAL_BYTES: usize = 256 << 20;
/// Least number of copied bytes between two trials of slow zero-copy sends of a class.
const FIRST_ZERO_COPY_TRIAL_BYTES: usize = ZERO_COPY_TRIAL_BYTES / 64;
/// Mapped zero-copy sends that take less time per KiB are always used, and copies by the kernel in an exchange while
/// the cost of the ring is unknown. More than most copies take.
const FAST_ZERO_COPY_NS_PER_KIB: u64 = 128;
/// Number of zero-copy messages of a class after which their cost counts. The first one often writes new pages.
const MEASURED_ZERO_COPY_COUNT: u32 = 4;
/// A zero-copy read is timed from this length on.
const TIMED_ZERO_COPY_BYTES_MIN: usize = 16 << 10;
/// Number of consecutive costs. The least of them is used, because disturbances only add to a cost. A zero-copy message
/// counts once, although it is read in several parts: new pages make all parts of a message slow.
const WINDOW: u32 = 8;
/// A consumer publishes a cost that changed by at least this fraction of it.
const CHANGE_DIVISOR: u32 = 8;

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreKind {
    /// The lines stay in the caches of the writer.
    Ordinary = 0,
    /// The lines bypass the caches.
    Streaming = 1,
}

/// The consumer's costs of reading, in shared memory: ticks per KiB, or 0 if not measured.
#[repr(C)]
#[cfg_attr(test, derive(Default))]
pub(super) struct ReadCosts<W> {
    /// Of the ring, by class and kind.
    ring: [[W; 2]; CLASS_COUNT],
    /// Of zero-copy sends, by [way of reading](way_of) and [class of message](message_class).
    zero_copy: [[W; MESSAGE_CLASS_COUNT]; WAY_COUNT],
}

/// The least of the last costs, in ticks per KiB; 0 if unknown.
#[derive(Clone, Copy, Default)]
struct StoreCost {
    before: u32,
    now: u32,
    count: u32,
}

/// The producer's state.
#[derive(Default)]
pub(super) struct StoreChoice {
    classes: [ClassChoice; CLASS_COUNT],
    /// The latest choice of any class.
    streams: bool,
    /// Bytes of writes that could have been zero-copy sends.
    copied_bytes: u64,
    /// By way of reading and class of message.
    zero_copy_trials: [[ZeroCopyTrial; MESSAGE_CLASS_COUNT]; WAY_COUNT],
    /// Way and class of the last message that could have been a zero-copy send.
    last_choice: Option<(usize, usize)>,
}

/// The next trial of a slow zero-copy send.
#[derive(Clone, Copy, Default)]
struct ZeroCopyTrial {
    /// Copied bytes at the last zero-copy send.
    start_bytes: u64,
    /// Bytes to copy from then on until the next trial.
    interval_bytes: usize,
}

#[derive(Clone, Copy, Default)]
struct ClassChoice {
    /// By kind.
    writes: [StoreCost; 2],
    streams: bool,
    /// Whether the costs of both kinds are known.
    has_costs: bool,
    write_count: u32,
    /// Bytes since the last trial.
    bytes: usize,
    /// Bytes from the last trial to the next.
    trial_bytes: usize,
}

/// A write that has begun.
#[derive(Clone, Copy)]
pub(super) struct Write {
    pub kind: StoreKind,
    count: usize,
    /// The start, if the write is timed.
    start: Option<u64>,
}

/// The consumer's state.
#[derive(Default)]
pub(super) struct ReadTimes {
    /// By class and kind.
    reads: [[StoreCost; 2]; CLASS_COUNT],
    /// The kind of the last read of each class. Another kind is a trial or a new choice, and is timed.
    last: [Option<StoreKind>; CLASS_COUNT],
    read_count: u32,
    begun: Option<Read>,
    zero_copy: [[StoreCost; MESSAGE_CLASS_COUNT]; WAY_COUNT],
    /// Start of the last read of zero-copy bytes.
    zero_copy_start: u64,
    /// The least cost of the parts of the current zero-copy message.
    zero_copy_message: Option<u32>,
}

#[derive(Clone, Copy)]
struct Read {
    kind: StoreKind,
    count: usize,
    /// The start, if the read is timed.
    start: Option<u64>,
}

fn class_of(count: usize) -> Option<usize> {
    let class = (count / TIMED_BYTES_MIN).checked_ilog2()? as usize;
    CAN_STREAM.then_some(class.min(CLASS_COUNT - 1))
}

/// Return the class of a zero-copy message.
fn message_class(count: usize) -> usize {
    let class = (count / TIMED_ZERO_COPY_BYTES_MIN).checked_ilog2().unwrap_or(0) / 2;
    (class as usize).min(MESSAGE_CLASS_COUNT - 1)
}

/// Return the way of reading a zero-copy send: in place, by a copy of the kernel to the destination, or by copies of
/// parts that are then reduced. The time of the last includes the reduction.
fn way_of(kind: ZeroCopyKind, is_in_parts: bool) -> usize {
    match kind {
        ZeroCopyKind::Mapped => 0,
        ZeroCopyKind::Copied => 1 + usize::from(is_in_parts),
    }
}

fn per_kib(ticks: u64, count: usize) -> u32 {
    u32::try_from((ticks << 10) / count as u64).unwrap_or(u32::MAX).max(1)
}

impl StoreKind {
    pub fn of(is_streamed: bool) -> StoreKind {
        if is_streamed { StoreKind::Streaming } else { StoreKind::Ordinary }
    }

    fn other(self) -> StoreKind {
        StoreKind::of(self == StoreKind::Ordinary)
    }
}

impl StoreCost {
    fn add(&mut self, cost: u32) {
        self.now = if self.count == 0 { cost } else { self.now.min(cost) };
        self.count += 1;
        if self.count == WINDOW {
            (self.before, self.count) = (self.now, 0);
        }
    }

    /// Return whether a given number of costs, up to [`WINDOW`], is known.
    fn has(self, count: u32) -> bool {
        self.before > 0 || self.count >= count
    }

    fn min(self) -> u32 {
        if self.before == 0 { self.now } else { self.before.min(self.now) }
    }
}

impl StoreChoice {
    /// Choose the kind of store for the next `count` bytes. `is_warm` is true once the ring was passed, `is_far` if the
    /// cores share no cache.
    #[inline]
    pub fn begin(&mut self, count: usize, is_warm: bool, is_far: bool) -> Write {
        if count >= TIMED_ZERO_COPY_BYTES_MIN {
            self.copied_bytes += count as u64;
        }
        let streams = match class_of(count) {
            Some(class) if is_warm => return self.classes[class].begin(count, self.streams),
            Some(_) => self.streams || is_far,
            None => is_far && count >= STREAMED_BYTES_MIN,
        };
        Write { kind: StoreKind::of(streams), count, start: None }
    }

    /// Record that the write has ended, and update the choice.
    #[inline]
    pub fn end<W: AtomicWord>(&mut self, write: Write, reads: &ReadCosts<W>) {
        if let Some((start, class)) = write.start.zip(class_of(write.count)) {
            let chosen = &mut self.classes[class];
            chosen.end(write.kind, per_kib(ticks().saturating_sub(start), write.count), &reads.ring[class]);
            if chosen.has_costs {
                self.streams = chosen.streams;
            }
        }
    }

    /// Return whether a zero-copy send of `count` bytes is likely to be faster than a copy. It is not where the cores
    /// share no cache and the producer has just written the memory: the consumer then fetches modified lines one by
    /// one.
    pub fn prefers_zero_copy<W: AtomicWord>(
        &mut self,
        kind: ZeroCopyKind,
        flow: SendFlow,
        count: usize,
        reads: &ReadCosts<W>,
    ) -> bool {
        let Some(class) = class_of(count).filter(|_| kind == ZeroCopyKind::Mapped || flow != SendFlow::Gradual) else {
            return kind == ZeroCopyKind::Mapped || flow == SendFlow::Exchange;
        };
        let (way, message_class) = (way_of(kind, flow == SendFlow::Reduction), message_class(count));
        self.last_choice = Some((way, message_class));
        let cost = published(&reads.zero_copy[way][message_class]);
        let copy = self.classes[class].used_cost(&reads.ring[class]).map(|[write, read]| match flow {
            // Both cores copy at the same time, except for the first unit.
            SendFlow::OneWay | SendFlow::Reduction if kind == ZeroCopyKind::Copied => {
                write.max(read) + write.min(read) * COPY_UNIT_BYTES.min(count) as u64 / count as u64
            }
            _ => write + read,
        });
        let is_fast = cost * 1000 <= FAST_ZERO_COPY_NS_PER_KIB * ticks_per_us();
        is_fast && (kind == ZeroCopyKind::Mapped || flow == SendFlow::Exchange && copy.is_none())
            || cost == 0
            || copy.is_some_and(|copy| cost <= copy)
            || self.zero_copy_trials[way][message_class].is_due(self.copied_bytes)
    }

    /// Return the measured seconds per byte of long messages: through the ring by kind of store, where the slower side
    /// counts, and of zero-copy sends by kind.
    pub fn s_per_byte<W: AtomicWord>(&self, reads: &ReadCosts<W>) -> ([Option<f64>; 2], [Option<f64>; 2]) {
        let (last, reads_of_ring) = (CLASS_COUNT - 1, &reads.ring[CLASS_COUNT - 1]);
        let s_per_byte = |cost: u64| cost as f64 / (ticks_per_us().max(1) as f64 * 1e6 * 1024.0);
        let ring = [StoreKind::Ordinary, StoreKind::Streaming].map(|kind| {
            self.classes[last].cost_of(kind, reads_of_ring).map(|[write, read]| s_per_byte(write.max(read)))
        });
        let zero_copy = [ZeroCopyKind::Mapped, ZeroCopyKind::Copied]
            .map(|kind| &reads.zero_copy[way_of(kind, false)])
            .map(|costs| costs.iter().map(published).filter(|&cost| cost > 0).min().map(s_per_byte));
        (ring, zero_copy)
    }

    /// Record a zero-copy send.
    pub fn note_zero_copy(&mut self) {
        if let Some((way, class)) = self.last_choice.take() {
            self.zero_copy_trials[way][class].begin(self.copied_bytes);
        }
    }
}

impl ZeroCopyTrial {
    fn is_due(&self, copied_bytes: u64) -> bool {
        copied_bytes - self.start_bytes >= self.interval_bytes.max(FIRST_ZERO_COPY_TRIAL_BYTES) as u64
    }

    /// Begin the interval after a zero-copy send: a longer one if messages were copied since the last one.
    fn begin(&mut self, copied_bytes: u64) {
        let has_copied = copied_bytes > self.start_bytes;
        self.interval_bytes = match self.interval_bytes {
            0 => FIRST_ZERO_COPY_TRIAL_BYTES,
            before if has_copied => (2 * before).min(ZERO_COPY_TRIAL_BYTES),
            before => before,
        };
        self.start_bytes = copied_bytes;
    }
}

impl ClassChoice {
    /// Return the costs of writing and of reading with the kind of store in use, if they are known.
    fn used_cost<W: AtomicWord>(&self, reads: &[W; 2]) -> Option<[u64; 2]> {
        self.cost_of(StoreKind::of(self.streams), reads)
    }

    fn cost_of<W: AtomicWord>(&self, kind: StoreKind, reads: &[W; 2]) -> Option<[u64; 2]> {
        let (write, read) = (u64::from(self.writes[kind as usize].min()), published(&reads[kind as usize]));
        (write > 0 && read > 0).then_some([write, read])
    }

    fn begin(&mut self, count: usize, default: bool) -> Write {
        if !self.has_costs {
            self.streams = default;
        }
        let used = StoreKind::of(self.streams);
        self.write_count = self.write_count.wrapping_add(1);
        self.bytes += count;
        let is_trial = self.bytes >= self.trial_bytes;
        if is_trial {
            self.bytes = 0;
            self.trial_bytes = (2 * self.trial_bytes).clamp(FIRST_TRIAL_COUNT * count, TRIAL_BYTES);
        }
        let is_timed = is_trial || self.write_count.is_multiple_of(TIMING_INTERVAL);
        Write { kind: if is_trial { used.other() } else { used }, count, start: is_timed.then(ticks) }
    }

    fn end<W: AtomicWord>(&mut self, kind: StoreKind, cost: u32, reads: &[W; 2]) {
        self.writes[kind as usize].add(cost);
        let of = |kind| self.cost_of(kind, reads).map(|[write, read]| write + read);
        let Some((ordinary, streaming)) = of(StoreKind::Ordinary).zip(of(StoreKind::Streaming)) else { return };
        self.has_costs = true;
        // The margin keeps ordinary stores on a shared cache, where both kinds cost about the same: the least cost
        // does not include the memory bandwidth that streaming stores take.
        let streams = if self.streams { streaming < ordinary } else { 3 * streaming < 2 * ordinary };
        if self.streams != streams {
            self.streams = streams;
            self.trial_bytes = 0;
        }
    }
}

impl ReadTimes {
    /// Record that the consumer may begin to read `count` bytes, written by streaming stores or not. `None` if this is
    /// not known of all of them.
    #[inline]
    pub fn begin(&mut self, count: usize, is_streamed: Option<bool>) {
        self.begun = class_of(count).zip(is_streamed).map(|(class, is_streamed)| {
            let kind = StoreKind::of(is_streamed);
            let is_timed = self.read_count.is_multiple_of(TIMING_INTERVAL) || self.last[class] != Some(kind);
            Read { kind, count, start: is_timed.then(ticks) }
        });
    }

    /// Record that `count` bytes were read, and publish the cost if it changed.
    #[inline]
    pub fn end<W: AtomicWord>(&mut self, count: usize, costs: &ReadCosts<W>) {
        let Some(read) = self.begun.take().filter(|read| read.count == count) else { return };
        let Some(class) = class_of(count) else { return };
        self.read_count = self.read_count.wrapping_add(1);
        self.last[class] = Some(read.kind);
        let Some(start) = read.start else { return };
        let known = &mut self.reads[class][read.kind as usize];
        known.add(per_kib(ticks().saturating_sub(start), count));
        publish(known.min(), &costs.ring[class][read.kind as usize]);
    }

    /// Record that the consumer begins to read zero-copy bytes.
    #[inline]
    pub fn begin_zero_copy(&mut self) {
        self.zero_copy_start = ticks();
    }

    /// Record that `count` bytes of a zero-copy message were read.
    #[inline]
    pub fn end_zero_copy(&mut self, count: usize) {
        if CAN_STREAM && count >= TIMED_ZERO_COPY_BYTES_MIN {
            let cost = per_kib(ticks().saturating_sub(self.zero_copy_start), count);
            self.zero_copy_message = Some(self.zero_copy_message.map_or(cost, |least| least.min(cost)));
        }
    }

    /// Record that a zero-copy message was read, and publish the cost once several are known.
    pub fn end_zero_copy_message<W: AtomicWord>(
        &mut self,
        (kind, is_in_parts): (ZeroCopyKind, bool),
        message_bytes: usize,
        costs: &ReadCosts<W>,
    ) {
        let Some(cost) = self.zero_copy_message.take() else { return };
        let (way, class) = (way_of(kind, is_in_parts), message_class(message_bytes));
        let known = &mut self.zero_copy[way][class];
        known.add(cost);
        if known.has(MEASURED_ZERO_COPY_COUNT) {
            publish(known.min(), &costs.zero_copy[way][class]);
        }
    }
}

/// Return a published cost. The peer writes it, so only its lower half counts.
fn published<W: AtomicWord>(word: &W) -> u64 {
    word.load(Relaxed) & u64::from(u32::MAX)
}

/// Publish a cost if it differs much from the published cost.
fn publish<W: AtomicWord>(cost: u32, word: &W) {
    let before = published(word) as u32;
    if cost.abs_diff(before) > before / CHANGE_DIVISOR {
        word.store(cost.into(), Relaxed);
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    const COUNT: usize = 4 << 10;
    /// Least length of the last class.
    const LONG_BYTES_MIN: usize = TIMED_BYTES_MIN << (CLASS_COUNT - 1);

    /// A link with given costs per KiB, by kind.
    #[derive(Default)]
    struct ModeledLink {
        choice: ClassChoice,
        costs: ReadCosts<AtomicU64>,
    }

    impl ModeledLink {
        /// Write `bytes` and return the fraction that used streaming stores.
        fn write(&mut self, bytes: usize, cost: [u32; 2]) -> f64 {
            let reads = &self.costs.ring[0];
            let mut streamed = 0;
            for _ in 0..bytes / COUNT {
                let write = self.choice.begin(COUNT, false);
                streamed += write.kind as usize;
                reads[write.kind as usize].store(cost[write.kind as usize].into(), Relaxed);
                if write.start.is_some() {
                    self.choice.end(write.kind, cost[write.kind as usize], reads);
                }
            }
            streamed as f64 / (bytes / COUNT) as f64
        }
    }

    #[test]
    fn the_cheaper_kind_is_chosen_again_when_the_cores_change() {
        let (separate, shared) = ([300, 50], [30, 50]);
        let mut link = ModeledLink::default();
        link.write(1 << 20, separate);
        assert!(link.write(64 << 20, separate) > 0.99);
        link.write(2 * TRIAL_BYTES, shared);
        assert!(link.write(64 << 20, shared) < 0.01);
        link.write(1 << 20, separate);
        assert!(link.write(64 << 20, separate) > 0.99);
    }

    #[test]
    fn a_class_without_costs_follows_the_class_that_decided_last() {
        let (mut choice, reads) = (StoreChoice::default(), ReadCosts::<AtomicU64>::default());
        assert_eq!(choice.begin(8 * COUNT, false, false).kind, StoreKind::Ordinary);
        for (kind, cost) in [(StoreKind::Ordinary, 300), (StoreKind::Streaming, 50)] {
            reads.ring[0][kind as usize].store(cost, Relaxed);
            choice.classes[0].end(kind, cost as u32, &reads.ring[0]);
        }
        let write = choice.begin(COUNT, true, false);
        choice.end(Write { start: Some(ticks()), ..write }, &reads);
        assert_eq!(choice.begin(8 * COUNT, false, false).kind, StoreKind::Streaming);
        // The first write of a class is a trial of the other kind.
        let kinds = [(); 2].map(|()| choice.begin(8 * COUNT, true, false).kind);
        assert_eq!(kinds, [StoreKind::Ordinary, StoreKind::Streaming]);
        assert_eq!(choice.begin(1 << 10, true, false).kind, StoreKind::Ordinary);
    }

    #[test]
    fn the_consumer_publishes_the_costs_that_it_times() {
        let (mut reads, costs) = (ReadTimes::default(), ReadCosts::<AtomicU64>::default());
        let known = |kind: StoreKind| costs.ring[0][kind as usize].load(Relaxed) > 0;
        // A peek that ends in a shorter read, such as of a preamble, is not timed.
        reads.begin(COUNT, Some(true));
        reads.end(24, &costs);
        assert!(!known(StoreKind::Streaming));
        reads.begin(COUNT, Some(true));
        reads.end(COUNT, &costs);
        assert!(known(StoreKind::Streaming) && !known(StoreKind::Ordinary));
        // Bytes of several publications end an earlier read.
        reads.begin(COUNT, Some(false));
        reads.begin(COUNT, None);
        reads.end(COUNT, &costs);
        assert!(!known(StoreKind::Ordinary));
        reads.begin(COUNT, Some(false));
        reads.end(COUNT, &costs);
        assert!(known(StoreKind::Ordinary));
    }

    #[test]
    fn short_writes_stream_between_distant_cores() {
        let mut choice = StoreChoice::default();
        let mut kind = |count, is_far| choice.begin(count, true, is_far).kind;
        for count in [STREAMED_BYTES_MIN, TIMED_BYTES_MIN - 1] {
            assert_eq!((kind(count, false), kind(count, true)), (StoreKind::Ordinary, StoreKind::Streaming));
        }
        assert_eq!(kind(STREAMED_BYTES_MIN - 1, true), StoreKind::Ordinary);
    }

    #[test]
    fn slow_zero_copy_sends_are_replaced_by_copies_and_tried_again() {
        for kind in [ZeroCopyKind::Mapped, ZeroCopyKind::Copied] {
            let (mut choice, reads) = (StoreChoice::default(), ReadCosts::<AtomicU64>::default());
            let prefers =
                |choice: &mut StoreChoice| choice.prefers_zero_copy(kind, SendFlow::OneWay, LONG_BYTES_MIN, &reads);
            assert!(prefers(&mut choice), "it is tried first");
            let slow = 2 * FAST_ZERO_COPY_NS_PER_KIB * ticks_per_us() / 1000;
            let cost = &reads.zero_copy[kind as usize][message_class(LONG_BYTES_MIN)];
            cost.store(slow, Relaxed);
            choice.note_zero_copy();
            for copied_bytes in [4 << 20, 8 << 20, 16 << 20] {
                for _ in 0..copied_bytes / LONG_BYTES_MIN {
                    assert!(!prefers(&mut choice), "{copied_bytes}");
                    choice.begin(LONG_BYTES_MIN, true, true);
                }
                assert!(prefers(&mut choice), "a trial after {copied_bytes} bytes");
                choice.note_zero_copy();
            }
            cost.store(slow / 3, Relaxed);
            // A copy of the kernel has to be faster than the measured copies.
            assert_eq!(prefers(&mut choice), kind == ZeroCopyKind::Mapped);
        }
    }

    #[test]
    fn a_class_of_messages_has_trials_of_its_own() {
        const SHORT_BYTES: usize = 2 * LONG_BYTES_MIN;
        let (mut choice, reads) = (StoreChoice::default(), ReadCosts::<AtomicU64>::default());
        let prefers = |choice: &mut StoreChoice, count: usize| {
            choice.prefers_zero_copy(ZeroCopyKind::Copied, SendFlow::OneWay, count, &reads)
        };
        let long_bytes = 4 << 20;
        for count in [SHORT_BYTES, long_bytes] {
            reads.zero_copy[ZeroCopyKind::Copied as usize][message_class(count)].store(1 << 20, Relaxed);
        }
        for _ in 0..8 {
            while !prefers(&mut choice, SHORT_BYTES) {
                choice.begin(LONG_BYTES_MIN, true, true);
            }
            choice.note_zero_copy();
        }
        assert!(prefers(&mut choice, long_bytes));
        choice.note_zero_copy();
        for _ in 0..FIRST_ZERO_COPY_TRIAL_BYTES / LONG_BYTES_MIN {
            assert!(!prefers(&mut choice, long_bytes));
            choice.begin(LONG_BYTES_MIN, true, true);
        }
        assert!(prefers(&mut choice, long_bytes));
    }

    #[test]
    fn the_first_message_into_new_pages_does_not_count() {
        let (mut times, costs) = (ReadTimes::default(), ReadCosts::<AtomicU64>::default());
        let way = (ZeroCopyKind::Copied, false);
        let cost = &costs.zero_copy[way_of(way.0, way.1)][MESSAGE_CLASS_COUNT - 1];
        let mut read = |parts: &[u32]| {
            for &part in parts {
                times.zero_copy_start = ticks().saturating_sub(u64::from(part) << 10);
                times.end_zero_copy(1 << 20);
            }
            times.end_zero_copy_message(way, parts.len() << 20, &costs);
            published(cost)
        };
        // Time stamps advance by little compared to these costs.
        let (slow, fast) = (1 << 24, 1 << 20);
        for _ in 1..MEASURED_ZERO_COPY_COUNT {
            assert_eq!(read(&[slow; 2 * WINDOW as usize]), 0);
        }
        let known = read(&[slow, fast, fast, slow]);
        assert!((fast..slow).contains(&(known as u32)), "{known}");
        assert!(read(&[slow; 2 * WINDOW as usize]) <= known, "a later message into new pages");
    }

    #[test]
    fn an_exchange_stays_with_fast_copies_of_the_kernel_until_the_ring_is_measured() {
        const COUNT: usize = 32 << 10;
        let (mut choice, reads) = (StoreChoice::default(), ReadCosts::<AtomicU64>::default());
        let cost = FAST_ZERO_COPY_NS_PER_KIB * ticks_per_us() / 1000;
        let prefers = |choice: &mut StoreChoice, flow, cost| {
            reads.zero_copy[ZeroCopyKind::Copied as usize][message_class(COUNT)].store(cost, Relaxed);
            choice.prefers_zero_copy(ZeroCopyKind::Copied, flow, COUNT, &reads)
        };
        assert!(prefers(&mut choice, SendFlow::Exchange, cost));
        assert!(!prefers(&mut choice, SendFlow::Exchange, cost + 1));
        assert!(!prefers(&mut choice, SendFlow::OneWay, cost));
        choice.classes[CLASS_COUNT - 1].writes[0].add(1);
        reads.ring[CLASS_COUNT - 1][0].store(1, Relaxed);
        assert!(!prefers(&mut choice, SendFlow::Exchange, cost), "the ring is faster");
    }

    #[test]
    fn a_copy_of_the_kernel_saves_the_copy_of_a_core_that_also_receives() {
        const COUNT: usize = 4 * COPY_UNIT_BYTES;
        let (mut choice, reads) = (StoreChoice::default(), ReadCosts::<AtomicU64>::default());
        let kind = StoreKind::of(choice.classes[CLASS_COUNT - 1].streams) as usize;
        choice.classes[CLASS_COUNT - 1].writes[kind].add(100);
        reads.ring[CLASS_COUNT - 1][kind].store(150, Relaxed);
        let mut prefers = |cost, flow| {
            reads.zero_copy[ZeroCopyKind::Copied as usize][message_class(COUNT)].store(cost, Relaxed);
            choice.prefers_zero_copy(ZeroCopyKind::Copied, flow, COUNT, &reads)
        };
        for (flow, min_slow) in [(SendFlow::Gradual, 1), (SendFlow::OneWay, 176), (SendFlow::Exchange, 251)] {
            assert!(!prefers(min_slow, flow), "{flow:?}");
            assert_eq!(prefers(min_slow - 1, flow), flow != SendFlow::Gradual, "{flow:?}");
        }
    }

    #[test]
    fn reductions_of_parts_have_a_cost_of_their_own() {
        const COUNT: usize = 4 * COPY_UNIT_BYTES;
        let (mut choice, reads) = (StoreChoice::default(), ReadCosts::<AtomicU64>::default());
        let kind = StoreKind::of(choice.classes[CLASS_COUNT - 1].streams) as usize;
        choice.classes[CLASS_COUNT - 1].writes[kind].add(100);
        reads.ring[CLASS_COUNT - 1][kind].store(150, Relaxed);
        for (slow_flow, fast_flow, is_in_parts) in
            [(SendFlow::Reduction, SendFlow::OneWay, true), (SendFlow::OneWay, SendFlow::Reduction, false)]
        {
            let cost = |way: bool| &reads.zero_copy[way_of(ZeroCopyKind::Copied, way)][message_class(COUNT)];
            cost(is_in_parts).store(1000, Relaxed);
            cost(!is_in_parts).store(10, Relaxed);
            let mut prefers = |flow| choice.prefers_zero_copy(ZeroCopyKind::Copied, flow, COUNT, &reads);
            assert!(!prefers(slow_flow) && prefers(fast_flow), "{slow_flow:?}");
        }
    }

    #[test]
    fn classes_of_messages_begin_at_powers_of_four() {
        let counts = [1, 16 << 10, (64 << 10) - 1, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 1 << 40];
        assert_eq!(counts.map(message_class), [0, 0, 0, 1, 2, 3, 4, 4]);
    }

    #[test]
    fn classes_begin_at_powers_of_two() {
        let counts = [1, 4095, 4096, 8191, 8192, 32 << 10, 1 << 30];
        assert_eq!(counts.map(class_of), [None, None, Some(0), Some(0), Some(1), Some(3), Some(3)]);
    }

    #[test]
    fn a_disturbance_does_not_count_and_a_lasting_change_does() {
        let mut cost = StoreCost::default();
        [100, 10_000, 90].into_iter().for_each(|each| cost.add(each));
        assert_eq!(cost.min(), 90);
        (0..2 * WINDOW).for_each(|_| cost.add(500));
        assert_eq!(cost.min(), 500);
    }
}
