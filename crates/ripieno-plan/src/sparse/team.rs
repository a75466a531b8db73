//! Teams: whoever computes pieces of some work at once. This floor has no threads; its callers may have some.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// A piece of some work, which writes where no other piece does.
pub type WorkPiece<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Those who compute pieces of some work at once. What they compute depends neither on who they are nor on how many.
///
/// Work is counted in operations, each about as long as an addition.
pub trait WorkTeam: Sync {
    /// Into how many pieces work of so many operations is best cut: one, if nobody else is worth waking for it.
    fn piece_count(&self, operations: usize) -> usize;

    /// Computes all pieces of work of so many operations in all, and returns when they are done.
    fn compute(&self, operations: usize, pieces: Vec<WorkPiece<'_>>);
}

/// The caller, who computes one piece after the other.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl WorkTeam for Alone {
    fn piece_count(&self, _operations: usize) -> usize {
        1
    }

    fn compute(&self, _operations: usize, pieces: Vec<WorkPiece<'_>>) {
        pieces.into_iter().for_each(|piece| piece());
    }
}

/// What `work` makes of each of `given`, in their order; `operations` of all together.
pub fn each<T: Send, R: Send>(
    team: &dyn WorkTeam,
    operations: usize,
    given: Vec<T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let mut results: Vec<Option<R>> = given.iter().map(|_| None).collect();
    let (work, mut pieces) = (&work, Vec::<WorkPiece<'_>>::with_capacity(given.len()));
    for (given, result) in given.into_iter().zip(&mut results) {
        pieces.push(Box::new(move || *result = Some(work(given))));
    }
    team.compute(operations, pieces);
    results.into_iter().map(|result| result.expect("a team computes all pieces")).collect()
}

/// `0..count` in as many ranges as the team likes for work of so many operations in all: equally long, of a multiple of
/// `unit` but for the last.
pub fn ranges(team: &dyn WorkTeam, operations: usize, count: usize, unit: usize) -> Vec<Range<usize>> {
    let most = count.div_ceil(unit).max(1);
    let length = most.div_ceil(team.piece_count(operations).clamp(1, most)) * unit;
    (0..count.div_ceil(length).max(1)).map(|piece| piece * length..((piece + 1) * length).min(count)).collect()
}

/// Who takes one of `count` things after the other, for work of so many operations in all, and who computes the pieces
/// of each: the team takes several at once where there are enough of them.
pub fn divided(team: &dyn WorkTeam, operations: usize, count: usize) -> (&dyn WorkTeam, &dyn WorkTeam) {
    if count >= team.piece_count(operations) { (team, &Alone) } else { (&Alone, team) }
}

/// Consecutive pieces of a slice, of these lengths.
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

    /// A team that cuts everything, however small, and computes the last piece first.
    pub struct Backwards(pub usize);

    impl WorkTeam for Backwards {
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
            let found = ranges(&Backwards(piece_count), 0, count, unit);
            assert!(found.len() <= piece_count);
            assert_eq!((found[0].start, found[found.len() - 1].end), (0, count));
            assert!(found.windows(2).all(|two| two[0].end == two[1].start && two[0].end % unit == 0));
        }
    }

    #[test]
    fn results_are_in_the_order_of_what_was_given() {
        let given: Vec<usize> = (0..9).collect();
        assert_eq!(each(&Backwards(3), 0, given.clone(), |number| number * number), [0, 1, 4, 9, 16, 25, 36, 49, 64]);
        assert_eq!(each(&Alone, 0, given, |number| number).len(), 9);
    }
}
