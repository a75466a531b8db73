//! The virtual clock: what is to happen, in the order in which it does.
//!
//! Of what happens at the same time, what was noted first comes first, so a run is the same every time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Events to come, and the time.
pub struct Clock<E> {
    now_s: f64,
    noted: u64,
    events: BinaryHeap<Noted<E>>,
}

struct Noted<E> {
    at_s: f64,
    number: u64,
    event: E,
}

impl<E> Default for Clock<E> {
    fn default() -> Clock<E> {
        Clock { now_s: 0.0, noted: 0, events: BinaryHeap::new() }
    }
}

impl<E> Clock<E> {
    /// Seconds since the beginning.
    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    /// `event` happens at `at_s`, or now if that is over.
    pub fn note(&mut self, at_s: f64, event: E) {
        self.events.push(Noted { at_s: at_s.max(self.now_s), number: self.noted, event });
        self.noted += 1;
    }

    /// The next event; the time becomes its time.
    pub fn advance(&mut self) -> Option<E> {
        let next = self.events.pop()?;
        self.now_s = next.at_s;
        Some(next.event)
    }

    /// The next event, if it happens now, within `tolerance_s`.
    pub fn also_now(&mut self, tolerance_s: f64) -> Option<E> {
        let is_now = self.events.peek().is_some_and(|next| next.at_s <= self.now_s + tolerance_s);
        if is_now { self.events.pop().map(|next| next.event) } else { None }
    }
}

impl<E> Ord for Noted<E> {
    /// The heap has its greatest first.
    fn cmp(&self, other: &Noted<E>) -> Ordering {
        other.at_s.total_cmp(&self.at_s).then(other.number.cmp(&self.number))
    }
}

impl<E> PartialOrd for Noted<E> {
    fn partial_cmp(&self, other: &Noted<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Noted<E> {
    fn eq(&self, other: &Noted<E>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Noted<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_first_comes_first_at_the_same_time() {
        let mut clock = Clock::default();
        for (at_s, event) in [(2.0, 'c'), (1.0, 'a'), (2.0, 'd'), (1.0, 'b')] {
            clock.note(at_s, event);
        }

        let order: Vec<(char, f64)> =
            std::iter::from_fn(|| clock.advance().map(|event| (event, clock.now_s()))).collect();
        assert_eq!(order, [('a', 1.0), ('b', 1.0), ('c', 2.0), ('d', 2.0)]);
    }

    #[test]
    fn what_is_over_happens_now() {
        let mut clock = Clock::default();
        clock.note(3.0, 'a');
        clock.advance();
        clock.note(1.0, 'b');

        assert_eq!((clock.also_now(0.0), clock.now_s()), (Some('b'), 3.0));
        assert_eq!(clock.also_now(0.0), None);
    }
}
