//! Copies: in a world of `p` ranks with `s` replicas, ranks `i`, `i + p/s`, `i + 2p/s` … are copies of logical rank `i`.
//!
//! Copies hold the same data and make the same calls, so one of each is enough.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section V.

use crate::fabric::Failure;
use std::collections::BTreeMap;

/// Which ranks of a world are copies of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    world_size: usize,
    replicas: usize,
}

impl Copies {
    /// A world of `world_size` ranks, a multiple of `replicas`, how many copies there are of each logical rank.
    pub fn new(world_size: usize, replicas: usize) -> Copies {
        assert!(replicas > 0 && world_size.is_multiple_of(replicas), "every logical rank has as many copies");
        Copies { world_size, replicas }
    }

    /// How many copies there are of each logical rank.
    pub fn replicas(&self) -> usize {
        self.replicas
    }

    /// How many logical ranks there are.
    pub fn logical_count(&self) -> usize {
        self.world_size / self.replicas
    }

    /// The logical rank of world rank `rank`.
    pub fn logical(&self, rank: usize) -> usize {
        rank % self.logical_count()
    }

    /// The world ranks that are copies of the logical rank of `rank`, itself included, lowest first.
    pub fn of(&self, rank: usize) -> impl Iterator<Item = usize> + use<> {
        (self.logical(rank)..self.world_size).step_by(self.logical_count())
    }

    /// As [`Copies::of`], first the one that is as manieth among them as `whose` among its own, then those after it: so that
    /// the copies of a rank do not all turn to the same ones.
    pub fn in_turn(&self, rank: usize, whose: usize) -> impl Iterator<Item = usize> + use<> {
        let (logical, logical_count, replicas) = (self.logical(rank), self.logical_count(), self.replicas);
        let first = whose / logical_count;
        (0..replicas).map(move |turn| logical + (first + turn) % replicas * logical_count)
    }
}

/// The ranks of a world that have died, as far as is known.
#[derive(Clone, Debug)]
pub struct Losses {
    copies: Copies,
    by_rank: BTreeMap<usize, Failure>,
}

/// What a death means.
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    /// It was known.
    Known,
    /// A copy lives.
    Spared,
    /// It was the last copy: how the job has failed.
    Fatal(Failure),
}

impl Losses {
    /// Nobody has died yet.
    pub fn new(copies: Copies) -> Losses {
        Losses { copies, by_rank: BTreeMap::new() }
    }

    /// Notes the death of `rank`.
    pub fn note(&mut self, rank: usize, failure: Failure) -> Loss {
        if self.by_rank.contains_key(&rank) {
            return Loss::Known;
        }
        self.by_rank.insert(rank, failure.clone());
        match self.copies.of(rank).all(|copy| self.by_rank.contains_key(&copy)) {
            true => Loss::Fatal(self.name_copies(rank, failure)),
            false => Loss::Spared,
        }
    }

    /// Whether `rank` has died.
    pub fn contains(&self, rank: usize) -> bool {
        self.by_rank.contains_key(&rank)
    }

    /// How ranks died, lowest rank first.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.by_rank.values()
    }

    /// The failure of the last copy, which says how the others died.
    fn name_copies(&self, rank: usize, mut last: Failure) -> Failure {
        if let Failure::RankFailed { cause, .. } = &mut last {
            for copy in self.copies.of(rank).filter(|&copy| copy != rank) {
                cause.push_str(&format!("; before that its copy, {}", self.by_rank[&copy]));
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died(rank: usize) -> Failure {
        Failure::RankFailed { rank, host: "a".into(), cause: "its process ended".into(), traceback: String::new() }
    }

    #[test]
    fn every_rank_is_a_copy_of_one_logical_rank() {
        for (world_size, replicas) in [(4, 1), (4, 2), (6, 3), (5, 5)] {
            let copies = Copies::new(world_size, replicas);
            for rank in 0..world_size {
                let of: Vec<usize> = copies.of(rank).collect();
                assert!(of.len() == replicas && of.contains(&rank));
                assert!(of.iter().all(|&copy| copies.logical(copy) == copies.logical(rank)));
            }
        }
    }

    #[test]
    fn the_last_copy_is_fatal_and_says_how_the_others_died() {
        let mut losses = Losses::new(Copies::new(4, 2));
        assert_eq!(losses.note(2, died(2)), Loss::Spared);
        assert_eq!(losses.note(2, died(2)), Loss::Known);
        assert_eq!(losses.note(1, died(1)), Loss::Spared);
        let Loss::Fatal(failure) = losses.note(0, died(0)) else { panic!("rank 0 had one copy, which died") };
        let told = "rank 0 on host a failed: its process ended; before that its copy, rank 2 on host a failed";
        assert!(failure.to_string().starts_with(told), "{failure}");
    }
}
