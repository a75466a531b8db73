//! Calls that repeat: what was found out for the last ones, by what they asked for.
//!
//! A call that asks for the same again needs no check, no choice and no search: everything that these depend on is
//! compared, and what came of them is at hand.

use crate::choice::Choice;
use crate::elements::{Elements, Shape};
use crate::task::{Extent, Task};
use ripieno_run::{Memory, Prepared};

/// So many calls are at hand, in places by what they ask for.
const PLACE_COUNT: usize = 16;
/// A call that comes again keeps its place from so many others that come between.
const MOST_OTHERS: u8 = 16;

/// The last calls that repeat.
#[derive(Default)]
pub(crate) struct Repeats {
    places: [Option<Box<Kept>>; PLACE_COUNT],
}

/// What a call asks for, beside the contents of its memory.
pub(crate) struct Question<'a> {
    task: &'a Task<'a>,
    elements: Elements<'a>,
    algorithm: Option<&'a str>,
    asked: Asked,
}

/// What of a question is numbers, always as many.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Asked {
    /// Collective, operation, type of the elements, and of both buffers whether the plan may change it, a byte each.
    what: u64,
    /// The root, or of a message the sender and the receiver.
    ranks: [usize; 2],
    /// Of both buffers.
    lengths: [usize; 2],
}

/// A question, and what came of it.
pub(crate) struct Kept {
    asked: Asked,
    shape: KeptShape,
    algorithm: Option<String>,
    /// Of collectives of chunks.
    counts: Vec<usize>,
    /// How many others may still come before it loses its place.
    patience: u8,
    found: Found,
}

/// What comes of a question.
pub(crate) struct Found {
    pub prepared: Prepared,
    pub choice: Choice,
}

#[derive(PartialEq)]
enum KeptShape {
    Line,
    Axes(Vec<usize>),
    Told(String),
}

impl<'a> Question<'a> {
    /// The question of a call; none for tasks that are counted or planned by more than is compared here.
    #[inline]
    pub fn of(
        task: &'a Task<'a>,
        elements: Elements<'a>,
        algorithm: Option<&'a str>,
        memory: &[Memory<'_>; 2],
    ) -> Option<Question<'a>> {
        let by_more = matches!(task, Task::Rotate { .. } | Task::NeighbourExchange { .. });
        (!by_more).then(|| Question { task, elements, algorithm, asked: Asked::of(task, elements, memory) })
    }

    #[inline]
    fn place(&self) -> usize {
        let [collective, op, ..] = self.asked.what.to_le_bytes();
        let [first, second] = self.asked.ranks;
        let ranks = first.wrapping_mul(7).wrapping_add(second.wrapping_mul(3));
        (usize::from(collective) + 5 * usize::from(op) + (self.asked.lengths[0] >> 3)).wrapping_add(ranks) % PLACE_COUNT
    }

    /// The same, to be asked again.
    fn kept(&self, found: Found) -> Kept {
        Kept {
            asked: self.asked,
            shape: match self.elements.shape {
                Shape::Line => KeptShape::Line,
                Shape::Axes(axes) => KeptShape::Axes(axes.to_vec()),
                Shape::Told(words) => KeptShape::Told(words.to_string()),
            },
            algorithm: self.algorithm.map(str::to_string),
            counts: self.counts().collect(),
            patience: MOST_OTHERS,
            found,
        }
    }

    fn counts(&self) -> impl Iterator<Item = usize> {
        Extent::all_of(self.task).into_iter().flat_map(|extent| match extent {
            Extent::Counts(counts) => counts.iter().copied(),
            _ => [].iter().copied(),
        })
    }
}

impl Kept {
    #[inline]
    fn answers(&self, question: &Question<'_>) -> bool {
        self.asked == question.asked
            && match (&self.algorithm, question.algorithm) {
                (None, None) => true,
                (kept, asked) => kept.as_deref() == asked,
            }
            && self.shape.is(&question.elements.shape)
            // The collective is the same, which says whether there are counts; there is one for every rank.
            && (self.counts.is_empty() || question.counts().eq(self.counts.iter().copied()))
    }
}

impl Asked {
    #[inline]
    fn of(task: &Task<'_>, elements: Elements<'_>, [main, output]: &[Memory<'_>; 2]) -> Asked {
        let op = task.op().map_or(u8::MAX, |op| op as u8);
        let [main_changes, output_changes] = [main, output].map(|memory| u8::from(matches!(memory, Memory::Write(_))));
        let what = [task.collective() as u8, op, elements.element as u8, main_changes, output_changes, 0, 0, 0];
        Asked {
            what: u64::from_le_bytes(what),
            ranks: match *task {
                Task::PointToPoint { from, to, .. } => [from, to],
                _ => [task.root().unwrap_or_default(), 0],
            },
            lengths: [main.len(), output.len()],
        }
    }
}

impl KeptShape {
    #[inline]
    fn is(&self, shape: &Shape<'_>) -> bool {
        match (self, shape) {
            (KeptShape::Line, Shape::Line) => true,
            (KeptShape::Axes(kept), Shape::Axes(axes)) => kept == axes,
            (KeptShape::Told(kept), Shape::Told(words)) => kept == words,
            _ => false,
        }
    }
}

impl Repeats {
    /// What is kept for `question`.
    #[inline]
    pub fn find(&mut self, question: &Question<'_>) -> Option<&Found> {
        let kept = self.places[question.place()].as_deref_mut().filter(|kept| kept.answers(question))?;
        kept.patience = MOST_OTHERS;
        Some(&kept.found)
    }

    /// Whether `question`, which was not found, is to have its place. Calls that take turns at one do not drive each
    /// other out.
    pub fn has_room(&mut self, question: &Question<'_>) -> bool {
        match &mut self.places[question.place()] {
            Some(kept) if kept.patience > 0 => {
                kept.patience -= 1;
                false
            }
            _ => true,
        }
    }

    /// Keeps what came of `question`, which has room.
    pub fn keep(&mut self, question: &Question<'_>, found: Found) {
        self.places[question.place()] = Some(Box::new(question.kept(found)));
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Repeats::default();
    }
}
