//! The latest collectives that a rank entered, so that others' questions can be answered while it works or waits.

use crate::call::Header;

/// How many collectives are remembered.
pub const REMEMBERED: usize = 64;

/// A ring of the last [`REMEMBERED`] headers.
#[derive(Clone, Debug)]
pub struct History {
    ring: [Option<Header>; REMEMBERED],
    /// Where the latest is.
    last: usize,
}

impl Default for History {
    fn default() -> Self {
        History { ring: [None; REMEMBERED], last: 0 }
    }
}

impl History {
    /// Notes that the rank enters a collective.
    #[inline]
    pub fn enter(&mut self, header: Header) {
        self.last = slot(header.sequence);
        self.ring[self.last] = Some(header);
    }

    /// What the rank called under `sequence`; `None` if it has not come so far, or no longer remembers.
    pub fn at(&self, sequence: u64) -> Option<Header> {
        self.ring[slot(sequence)].filter(|header| header.sequence == sequence)
    }

    /// The latest collective.
    pub fn last(&self) -> Option<Header> {
        self.ring[self.last]
    }
}

fn slot(sequence: u64) -> usize {
    (sequence % REMEMBERED as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::inquiry::tests::barrier;

    #[test]
    fn the_last_64_collectives_are_remembered_and_no_others() {
        let mut history = History::default();
        assert_eq!(history.last(), None);

        (0..100).for_each(|sequence| history.enter(barrier(sequence)));

        assert_eq!(history.at(35), None);
        assert_eq!(history.at(36), Some(barrier(36)));
        assert_eq!(history.at(99), Some(barrier(99)));
        assert_eq!(history.at(100), None);
        assert_eq!(history.last(), Some(barrier(99)));
    }
}
