//! Cache of resolved calls, by their arguments.
//!
//! A call with the arguments of an earlier call needs no validation, no choice of an algorithm and no schedule lookup.
//! The cache compares all arguments that the result depends on, and returns the earlier result.

use crate::choice::AlgorithmChoice;
use crate::elements::{ElementShape, ElementType};
use crate::task::{CollectiveTask, TaskExtent};
use ripieno_run::{BufferMemory, Element, PreparedCall};
use std::ops::Range;

/// Number of sets of slots; the arguments of a call determine its set.
const SET_COUNT: usize = 16;
/// Number of slots in a set. With two, a call that alternates with a barrier or a reduction of one number, as in most
/// loops, is not resolved again and again.
const SLOTS_PER_SET: usize = 2;
/// Number of other calls in the same slot after which an entry can be replaced.
const MISSES_BEFORE_EVICTION: u8 = 16;

/// Resolved calls, at most one per slot.
#[derive(Default)]
pub(crate) struct CallCache {
    slots: [Option<Box<CachedCall>>; SET_COUNT * SLOTS_PER_SET],
}

/// The arguments of a call, without the contents of its memory.
pub(crate) struct CallKey<'a> {
    task: &'a CollectiveTask<'a>,
    shape: &'a ElementShape<'a>,
    algorithm: Option<&'a str>,
    numbers: CallNumbers,
}

/// The fixed-size numeric part of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CallNumbers {
    /// One byte each for the collective, the operation, the element type, and the mutability of both buffers.
    kind: u64,
    /// The root; for a message, the sender.
    from: usize,
    /// The receiver of a message; 0 for other tasks.
    to: usize,
    /// Lengths of both buffers.
    main_bytes: usize,
    output_bytes: usize,
}

/// A key and its resolved call.
pub(crate) struct CachedCall {
    numbers: CallNumbers,
    shape: OwnedShape,
    algorithm: Option<String>,
    /// Chunk counts, for collectives of chunks.
    counts: Vec<usize>,
    /// Number of other calls until this entry can be replaced.
    misses_left: u8,
    resolved: ResolvedCall,
}

/// The place of a call in the cache.
#[derive(Clone, Copy)]
pub(crate) struct BoundCall {
    slot: usize,
    /// Whether the call consists of a few short messages.
    pub is_brief: bool,
}

/// A resolved call.
pub(crate) struct ResolvedCall {
    pub prepared: PreparedCall,
    pub choice: AlgorithmChoice,
}

#[derive(PartialEq)]
enum OwnedShape {
    Vector,
    Axes(Vec<usize>),
    Described(String),
}

impl<'a> CallKey<'a> {
    /// Return the key of a call; `None` if the plan of the task depends on arguments that a key does not contain.
    #[inline]
    pub fn of(
        task: &'a CollectiveTask<'a>,
        elements: &'a ElementType<'a>,
        algorithm: Option<&'a str>,
        memory: &[BufferMemory<'_>; 2],
    ) -> Option<CallKey<'a>> {
        let depends_on_more = matches!(task, CollectiveTask::Rotate { .. } | CollectiveTask::NeighbourExchange { .. });
        (!depends_on_more).then(|| CallKey {
            task,
            shape: &elements.shape,
            algorithm,
            numbers: CallNumbers::of(task, elements.element, memory),
        })
    }

    /// Return the slots of the call's set.
    #[inline]
    fn slots(&self) -> Range<usize> {
        let CallNumbers { kind, from, to, main_bytes, .. } = self.numbers;
        let [collective, op, ..] = kind.to_le_bytes();
        let ranks = from.wrapping_mul(7).wrapping_add(to.wrapping_mul(3));
        let set = (usize::from(collective) + 5 * usize::from(op) + (main_bytes >> 3)).wrapping_add(ranks) % SET_COUNT;
        set * SLOTS_PER_SET..(set + 1) * SLOTS_PER_SET
    }

    /// Return an owned copy of the key, with its resolved call.
    fn cached(&self, resolved: ResolvedCall) -> CachedCall {
        CachedCall {
            numbers: self.numbers,
            shape: match *self.shape {
                ElementShape::Vector => OwnedShape::Vector,
                ElementShape::Axes(axes) => OwnedShape::Axes(axes.to_vec()),
                ElementShape::Described(words) => OwnedShape::Described(words.to_string()),
            },
            algorithm: self.algorithm.map(str::to_string),
            counts: self.counts().collect(),
            misses_left: MISSES_BEFORE_EVICTION,
            resolved,
        }
    }

    fn counts(&self) -> impl Iterator<Item = usize> {
        TaskExtent::all_of(self.task).into_iter().flat_map(|extent| match extent {
            TaskExtent::Counts(counts) => counts.iter().copied(),
            _ => [].iter().copied(),
        })
    }
}

impl CachedCall {
    #[inline]
    fn matches(&self, key: &CallKey<'_>) -> bool {
        self.numbers == key.numbers
            && match (&self.algorithm, key.algorithm) {
                (None, None) => true,
                (cached, requested) => cached.as_deref() == requested,
            }
            && self.shape.equals(key.shape)
            // The collective, compared above, determines whether there are counts.
            && (self.counts.is_empty() || key.counts().eq(self.counts.iter().copied()))
    }
}

impl CallNumbers {
    #[inline]
    fn of(task: &CollectiveTask<'_>, element: Element, [main, output]: &[BufferMemory<'_>; 2]) -> CallNumbers {
        let op = task.op().map_or(u8::MAX, |op| op as u8);
        let [main_changes, output_changes] =
            [main, output].map(|memory| u8::from(matches!(memory, BufferMemory::Write(_))));
        let kind = [task.collective() as u8, op, element as u8, main_changes, output_changes, 0, 0, 0];
        let (from, to) = match *task {
            CollectiveTask::PointToPoint { from, to, .. } => (from, to),
            _ => (task.root().unwrap_or_default(), 0),
        };
        CallNumbers { kind: u64::from_le_bytes(kind), from, to, main_bytes: main.len(), output_bytes: output.len() }
    }
}

impl OwnedShape {
    #[inline]
    fn equals(&self, shape: &ElementShape<'_>) -> bool {
        match (self, shape) {
            (OwnedShape::Vector, ElementShape::Vector) => true,
            (OwnedShape::Axes(cached), ElementShape::Axes(axes)) => cached == axes,
            (OwnedShape::Described(cached), ElementShape::Described(text)) => cached == text,
            _ => false,
        }
    }
}

impl CallCache {
    /// Look up `key`.
    #[inline]
    pub fn find(&mut self, key: &CallKey<'_>) -> Option<BoundCall> {
        for slot in key.slots() {
            if let Some(cached) = self.slots[slot].as_deref_mut().filter(|cached| cached.matches(key)) {
                cached.misses_left = MISSES_BEFORE_EVICTION;
                return Some(BoundCall { slot, is_brief: cached.resolved.prepared.is_brief() });
            }
        }
        None
    }

    /// Return the call that was found. The cache must not have changed since.
    #[inline]
    pub fn get(&self, bound: BoundCall) -> &ResolvedCall {
        &self.slots[bound.slot].as_ref().expect("a bound call is in the cache").resolved
    }

    /// Return a slot for `key`, which was not found, if one is empty or may be replaced. Calls that alternate in a slot
    /// do not evict each other.
    pub fn free_slot(&mut self, key: &CallKey<'_>) -> Option<usize> {
        let is_free = |slot: &Option<Box<CachedCall>>| slot.as_ref().is_none_or(|cached| cached.misses_left == 0);
        let found = key.slots().find(|&slot| is_free(&self.slots[slot]));
        if found.is_none() {
            self.slots[key.slots()].iter_mut().flatten().for_each(|cached| cached.misses_left -= 1);
        }
        found
    }

    /// Store the resolved call of `key` in a free slot.
    pub fn insert(&mut self, slot: usize, key: &CallKey<'_>, resolved: ResolvedCall) {
        self.slots[slot] = Some(Box::new(key.cached(resolved)));
    }

    /// Remove all entries.
    pub fn clear(&mut self) {
        *self = CallCache::default();
    }
}
