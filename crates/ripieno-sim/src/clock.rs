//! Virtual clock: a queue of events in the order of their times.
//!
//! Simultaneous events keep their insertion order, so every run is deterministic. The heap orders times and slots
//! rather than events, because events may be large.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Pending events and the current time.
pub struct Clock<E> {
    now_s: f64,
    scheduled_count: u64,
    order: BinaryHeap<ClockEntry>,
    /// Events by slot.
    events: Vec<Option<E>>,
    /// Slots without an event.
    free: Vec<u32>,
}

struct ClockEntry {
    at_s: f64,
    number: u64,
    slot: u32,
}

impl<E> Default for Clock<E> {
    fn default() -> Clock<E> {
        Clock { now_s: 0.0, scheduled_count: 0, order: BinaryHeap::new(), events: Vec::new(), free: Vec::new() }
    }
}

impl<E> Clock<E> {
    /// Return the time in seconds since the start.
    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    /// Schedule `event` at `at_s`, or now if that time has passed.
    pub fn schedule(&mut self, at_s: f64, event: E) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            u32::try_from(self.events.len() - 1).expect("there are fewer than 2^32 pending events")
        });
        self.events[slot as usize] = Some(event);
        self.order.push(ClockEntry { at_s: at_s.max(self.now_s), number: self.scheduled_count, slot });
        self.scheduled_count += 1;
    }

    /// Remove the next event and advance the time to it.
    pub fn advance(&mut self) -> Option<E> {
        self.now_s = self.order.peek()?.at_s;
        self.take()
    }

    /// Remove the next event if it occurs at the current time, within `tolerance_s`.
    pub fn advance_if_simultaneous(&mut self, tolerance_s: f64) -> Option<E> {
        let is_now = self.order.peek().is_some_and(|next| next.at_s <= self.now_s + tolerance_s);
        if is_now { self.take() } else { None }
    }

    fn take(&mut self) -> Option<E> {
        let slot = self.order.pop()?.slot;
        self.free.push(slot);
        self.events[slot as usize].take()
    }
}

impl Ord for ClockEntry {
    /// Reverse order, because the heap returns its maximum first.
    fn cmp(&self, other: &ClockEntry) -> Ordering {
        other.at_s.total_cmp(&self.at_s).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for ClockEntry {
    fn partial_cmp(&self, other: &ClockEntry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ClockEntry {
    fn eq(&self, other: &ClockEntry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ClockEntry {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_at_the_same_time_keep_their_order() {
        let mut clock = Clock::default();
        for (at_s, event) in [(2.0, 'c'), (1.0, 'a'), (2.0, 'd'), (1.0, 'b')] {
            clock.schedule(at_s, event);
        }

        let order: Vec<(char, f64)> =
            std::iter::from_fn(|| clock.advance().map(|event| (event, clock.now_s()))).collect();
        assert_eq!(order, [('a', 1.0), ('b', 1.0), ('c', 2.0), ('d', 2.0)]);
    }

    #[test]
    fn an_event_in_the_past_occurs_immediately() {
        let mut clock = Clock::default();
        clock.schedule(3.0, 'a');
        clock.advance();
        clock.schedule(1.0, 'b');

        assert_eq!((clock.advance_if_simultaneous(0.0), clock.now_s()), (Some('b'), 3.0));
        assert_eq!(clock.advance_if_simultaneous(0.0), None);
    }
}
