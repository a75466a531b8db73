//! Calls that repeat: what was found out for the last ones, by what they asked for.
//!
//! A call that asks for the same again needs no check, no choice and no search: everything that these depend on is
//! compared, and what came of them is at hand.

use crate::choice::Choice;
use crate::elements::{Elements, Shape};
use crate::task::{Extent, Task};
use ripieno_plan::{Collective, Op};
use ripieno_run::{Call, Element, Memory, Schedule};
use std::sync::Arc;

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
    /// Of both buffers: how long, and whether the plan may change it.
    buffers: [(usize, bool); 2],
}

/// A question, and what came of it.
pub(crate) struct Kept {
    collective: Collective,
    root: Option<usize>,
    op: Option<Op>,
    element: Element,
    shape: KeptShape,
    algorithm: Option<String>,
    buffers: [(usize, bool); 2],
    counts: Vec<usize>,
    /// How many others may still come before it loses its place.
    patience: u8,
    pub found: Found,
}

/// What comes of a question.
pub(crate) struct Found {
    pub call: Call,
    pub choice: Choice,
    pub schedule: Arc<Schedule>,
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
        let by_more = matches!(task, Task::PointToPoint { .. } | Task::Rotate { .. } | Task::NeighbourExchange { .. });
        let buffers = [&memory[0], &memory[1]].map(|memory| (memory.len(), matches!(memory, Memory::Write(_))));
        (!by_more).then_some(Question { task, elements, algorithm, buffers })
    }

    #[inline]
    fn place(&self) -> usize {
        let op = self.task.op().map_or(0, |op| op as usize);
        (self.task.collective() as usize + 5 * op + (self.buffers[0].0 >> 3)) % PLACE_COUNT
    }

    /// The same, to be asked again.
    fn kept(&self, found: Found) -> Kept {
        Kept {
            collective: self.task.collective(),
            root: self.task.root(),
            op: self.task.op(),
            element: self.elements.element,
            shape: match self.elements.shape {
                Shape::Line => KeptShape::Line,
                Shape::Axes(axes) => KeptShape::Axes(axes.to_vec()),
                Shape::Told(words) => KeptShape::Told(words.to_string()),
            },
            algorithm: self.algorithm.map(str::to_string),
            buffers: self.buffers,
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
        let Question { task, elements, algorithm, buffers } = question;
        self.collective == task.collective()
            && self.buffers == *buffers
            && self.element == elements.element
            && self.op == task.op()
            && self.root == task.root()
            && self.algorithm.as_deref() == *algorithm
            && self.shape.is(&elements.shape)
            && self.has_counts(question)
    }

    #[inline]
    fn has_counts(&self, question: &Question<'_>) -> bool {
        match Extent::all_of(question.task) {
            [Extent::Whole, Extent::Whole] => self.counts.is_empty(),
            _ => question.counts().eq(self.counts.iter().copied()),
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
    /// Takes out what is kept for `question`.
    #[inline]
    pub fn take(&mut self, question: &Question<'_>) -> Option<Box<Kept>> {
        self.places[question.place()].take_if(|kept| kept.answers(question))
    }

    /// Puts back what was taken out.
    #[inline]
    pub fn put_back(&mut self, question: &Question<'_>, mut kept: Box<Kept>) {
        kept.patience = MOST_OTHERS;
        self.places[question.place()] = Some(kept);
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
