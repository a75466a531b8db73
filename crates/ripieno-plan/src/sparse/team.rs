//! Interface to a team of threads that computes pieces of work in parallel. This crate starts no threads; its callers
//! may provide a team.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// A piece of work. No two pieces write to the same memory.
pub type WorkPiece<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Executor for pieces of work. The results do not depend on the number of its threads.
///
/// Work is measured in operations; one operation takes about as long as an addition.
pub trait WorkTeam: Sync {
    /// Return the best number of pieces for work of this many operations. It is 1 if the work is too small to wake
    /// other threads.
    fn piece_count(&self, operations: usize) -> usize;

    /// Compute all pieces and return when they are done. `operations` is the total amount of work.
    fn compute(&self, operations: usize, pieces: Vec<WorkPiece<'_>>);
}

/// The calling thread, which computes one piece after the other.
#[derive(Clone, Copy, Debug)]
pub struct SingleThread;

impl WorkTeam for SingleThread {
    fn piece_count(&self, _operations: usize) -> usize {
        1
    }

    fn compute(&self, _operations: usize, pieces: Vec<WorkPiece<'_>>) {
        pieces.into_iter().for_each(|piece| piece());
    }
}

/// Apply `work` to each element of `inputs` and return the results in order. `operations` is the total amount of work.
pub fn each<T: Send, R: Send>(
    team: &dyn WorkTeam,
    operations: usize,
    inputs: Vec<T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let mut results: Vec<Option<R>> = inputs.iter().map(|_| None).collect();
    let (work, mut pieces) = (&work, Vec::<WorkPiece<'_>>::with_capacity(inputs.len()));
    for (input, result) in inputs.into_iter().zip(&mut results) {
        pieces.push(Box::new(move || *result = Some(work(input))));
    }
    team.compute(operations, pieces);
    results.into_iter().map(|result| result.expect("a team computes all pieces")).collect()
}

/// Divide `0..count` into as many equal ranges as the team prefers for this total work. All ranges except the last have
/// a multiple of `unit` elements.
pub fn ranges(team: &dyn WorkTeam, operations: usize, count: usize, unit: usize) -> Vec<Range<usize>> {
    let piece_count_max = count.div_ceil(unit).max(1);
    let length = piece_count_max.div_ceil(team.piece_count(operations).clamp(1, piece_count_max)) * unit;
    (0..count.div_ceil(length).max(1)).map(|piece| piece * length..((piece + 1) * length).min(count)).collect()
}

/// Select the parallel level for `count` items of this total work. Return the team over the items and the team within
/// an item. The items are computed in parallel if there are enough of them.
pub fn divided(team: &dyn WorkTeam, operations: usize, count: usize) -> (&dyn WorkTeam, &dyn WorkTeam) {
    if count >= team.piece_count(operations) { (team, &SingleThread) } else { (&SingleThread, team) }
}

/// Split a slice into consecutive pieces of these lengths.
pub fn cut<T>(mut slice: &mut [T], lengths: impl IntoIterator<Item = usize>) -> Vec<&mut [T]> {
    let piece = |length| {
        let (piece, rest) = core::mem::take(&mut slice).split_at_mut(length);
        slice = rest;
        piece
    };
    lengths.into_iter().map(piece).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A team that divides all work, however small, and computes the last piece first.
    pub struct ReverseTeam(pub usize);

    impl WorkTeam for ReverseTeam {
        fn piece_count(&self, _operations: usize) -> usize {
            self.0
        }

        fn compute(&self, _operations: usize, pieces: Vec<WorkPiece<'_>>) {
            pieces.into_iter().rev().for_each(|piece| piece());
        }
    }

    #[test]
    fn ranges_follow_each_other_in_whole_units() {
        for (piece_count, count, unit) in
            (1..6).flat_map(|pieces| (0..20).map(move |count| (pieces, count, 1 + count % 4)))
        {
            let found = ranges(&ReverseTeam(piece_count), 0, count, unit);
            assert!(found.len() <= piece_count);
            assert_eq!((found[0].start, found[found.len() - 1].end), (0, count));
            assert!(found.windows(2).all(|two| two[0].end == two[1].start && two[0].end % unit == 0));
        }
    }

    #[test]
    fn results_have_the_order_of_the_inputs() {
        let inputs: Vec<usize> = (0..9).collect();
        assert_eq!(
            each(&ReverseTeam(3), 0, inputs.clone(), |number| number * number),
            [0, 1, 4, 9, 16, 25, 36, 49, 64]
        );
        assert_eq!(each(&SingleThread, 0, inputs, |number| number).len(), 9);
    }
}
