//! Round-robin schedule of pairwise exchanges: every pair of ranks exchanges once, in the same round on both ranks.
//!
//! The circle method fixes rank `p - 1` for even `p` and rotates the others. A rank only waits for earlier rounds.

/// Return the partner of `rank` in `round`. There are `p - 1` rounds for even `p`, and `p` rounds for odd `p`. For odd
/// `p` the rank has no partner in one round.
pub(super) fn partner(rank: usize, round: usize, p: usize) -> Option<usize> {
    let circle = p - usize::from(p.is_multiple_of(2));
    // The rank that the circle pairs with itself. It exchanges with the last rank for even `p`.
    let self_paired = if round.is_multiple_of(2) { round / 2 } else { (round + circle) / 2 };
    let last = p.is_multiple_of(2).then_some(p - 1);
    if rank == circle {
        return Some(self_paired);
    }
    if rank == self_paired { last } else { Some((round + circle - rank) % circle) }
}

/// Iterate over all partners of a rank, in order of the rounds.
pub(super) fn partners(rank: usize, p: usize) -> impl Iterator<Item = usize> {
    let round_count = p - usize::from(p.is_multiple_of(2));
    (0..round_count).filter_map(move |round| partner(rank, round, p))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn every_pair_exchanges_once_and_in_the_same_round() {
        for p in 1..=65 {
            for rank in 0..p {
                let found: BTreeSet<usize> = partners(rank, p).collect();
                assert_eq!(partners(rank, p).count(), p - 1, "p={p}, rank {rank}");
                assert!((0..p).filter(|&other| other != rank).eq(found), "p={p}, rank {rank}");
                for round in 0..p {
                    let back = partner(rank, round, p).map(|other| partner(other, round, p));
                    assert!(back.is_none_or(|back| back == Some(rank)), "p={p}, rank {rank}, round {round}");
                }
            }
        }
    }
}
