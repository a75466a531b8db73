//! Replicas: in a world of `p` ranks with `s` replicas, ranks `i`, `i + p/s`, `i + 2p/s` … are replicas of logical rank
//! `i`.
//!
//! Replicas hold the same data and make the same calls, so one of each is enough.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section V.

use crate::fabric::JobFailure;
use std::collections::BTreeMap;

/// Which ranks of a world are replicas of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    world_size: usize,
    count: usize,
}

impl Replicas {
    /// A world of `world_size` ranks, a multiple of `count`, how many replicas there are of each logical rank.
    pub fn new(world_size: usize, count: usize) -> Replicas {
        assert!(count > 0 && world_size.is_multiple_of(count), "every logical rank has as many replicas");
        Replicas { world_size, count }
    }

    /// How many replicas there are of each logical rank.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many logical ranks there are.
    pub fn logical_count(&self) -> usize {
        self.world_size / self.count
    }

    /// The logical rank of world rank `rank`.
    pub fn logical(&self, rank: usize) -> usize {
        rank % self.logical_count()
    }

    /// The world ranks that are replicas of the logical rank of `rank`, itself included, lowest first.
    pub fn of(&self, rank: usize) -> impl Iterator<Item = usize> + use<> {
        (self.logical(rank)..self.world_size).step_by(self.logical_count())
    }

    /// As [`Replicas::of`], but first the one at the position that `whose` has among its own replicas, then those after
    /// it. So the replicas of a rank do not all turn to the same ones.
    pub fn in_turn(&self, rank: usize, whose: usize) -> impl Iterator<Item = usize> + use<> {
        let (logical, logical_count, count) = (self.logical(rank), self.logical_count(), self.count);
        let first = whose / logical_count;
        (0..count).map(move |turn| logical + (first + turn) % count * logical_count)
    }
}

/// The ranks of a world that have died, as far as is known.
#[derive(Clone, Debug)]
pub struct Losses {
    replicas: Replicas,
    by_rank: BTreeMap<usize, JobFailure>,
}

/// What a death means.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplicaLoss {
    /// It was known.
    Known,
    /// A replica lives.
    Spared,
    /// It was the last replica: how the job has failed.
    Fatal(JobFailure),
}

impl Losses {
    /// Nobody has died yet.
    pub fn new(replicas: Replicas) -> Losses {
        Losses { replicas, by_rank: BTreeMap::new() }
    }

    /// Notes the death of `rank`.
    pub fn note(&mut self, rank: usize, failure: JobFailure) -> ReplicaLoss {
        if self.by_rank.contains_key(&rank) {
            return ReplicaLoss::Known;
        }
        self.by_rank.insert(rank, failure.clone());
        match self.replicas.of(rank).all(|replica| self.by_rank.contains_key(&replica)) {
            true => ReplicaLoss::Fatal(self.name_replicas(rank, failure)),
            false => ReplicaLoss::Spared,
        }
    }

    /// Whether `rank` has died.
    pub fn contains(&self, rank: usize) -> bool {
        self.by_rank.contains_key(&rank)
    }

    /// How ranks died, lowest rank first.
    pub fn failures(&self) -> impl Iterator<Item = &JobFailure> {
        self.by_rank.values()
    }

    /// The failure of the last replica, which says how the others died.
    fn name_replicas(&self, rank: usize, mut last: JobFailure) -> JobFailure {
        if let JobFailure::RankFailed { cause, .. } = &mut last {
            for replica in self.replicas.of(rank).filter(|&replica| replica != rank) {
                cause.push_str(&format!("; before that its replica, {}", self.by_rank[&replica]));
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died(rank: usize) -> JobFailure {
        JobFailure::RankFailed { rank, host: "a".into(), cause: "its process ended".into(), traceback: String::new() }
    }

    #[test]
    fn every_rank_is_a_replica_of_one_logical_rank() {
        for (world_size, count) in [(4, 1), (4, 2), (6, 3), (5, 5)] {
            let replicas = Replicas::new(world_size, count);
            for rank in 0..world_size {
                let of: Vec<usize> = replicas.of(rank).collect();
                assert!(of.len() == count && of.contains(&rank));
                assert!(of.iter().all(|&replica| replicas.logical(replica) == replicas.logical(rank)));
            }
        }
    }

    #[test]
    fn the_last_replica_is_fatal_and_says_how_the_others_died() {
        let mut losses = Losses::new(Replicas::new(4, 2));
        assert_eq!(losses.note(2, died(2)), ReplicaLoss::Spared);
        assert_eq!(losses.note(2, died(2)), ReplicaLoss::Known);
        assert_eq!(losses.note(1, died(1)), ReplicaLoss::Spared);
        let ReplicaLoss::Fatal(failure) = losses.note(0, died(0)) else { panic!("rank 0 had one replica, which died") };
        let told = "rank 0 on host a failed: its process ended; before that its replica, rank 2 on host a failed";
        assert!(failure.to_string().starts_with(told), "{failure}");
    }
}
