//! Gates: the order of the operations of one rank on one piece of its buffers.

use alloc::vec::Vec;

/// A run of pieces, and how many earlier operations must have passed each (see [`Gate`]).
#[derive(Default)]
pub(crate) struct Lane {
    pub(crate) first: usize,
    pub(crate) thresholds: Vec<u32>,
}

impl Lane {
    /// The pieces, and what their gates must have counted.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.thresholds.iter().enumerate().map(|(i, &threshold)| (self.first + i, threshold))
    }

    /// Piece `index` of the lane.
    pub(crate) fn piece(&self, index: usize) -> (usize, u32) {
        (self.first + index, self.thresholds[index])
    }

    /// How many pieces.
    pub(crate) fn len(&self) -> usize {
        self.thresholds.len()
    }
}

/// The order on one piece: reads wait for earlier writes, writes for earlier reads and writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    writes_done: u32,
    accesses_done: u32,
    written_at: f64,
    read_at: f64,
}

impl Gate {
    /// When the piece may be read; `None` while an earlier write is to come.
    pub(crate) fn readable_at(&self, threshold: u32) -> Option<f64> {
        (self.writes_done >= threshold).then_some(self.written_at)
    }

    /// When the piece may be written; `None` while an earlier access is to come.
    pub(crate) fn writable_at(&self, threshold: u32) -> Option<f64> {
        (self.accesses_done >= threshold).then_some(self.written_at.max(self.read_at))
    }

    /// Notes a read.
    pub(crate) fn read(&mut self, at: f64) {
        self.accesses_done += 1;
        self.read_at = self.read_at.max(at);
    }

    /// Notes a write.
    pub(crate) fn written(&mut self, at: f64) {
        self.accesses_done += 1;
        self.writes_done += 1;
        self.written_at = at;
    }
}
