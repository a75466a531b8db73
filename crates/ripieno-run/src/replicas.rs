//! Replicas: in a world of `p` ranks with `s` replicas, ranks `i`, `i + p/s`, `i + 2p/s` … are replicas of logical rank
//! `i`.
//!
//! Replicas hold the same data and make the same calls, so one live replica of each logical rank suffices.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section V.

use crate::fabric::JobFailure;
use std::collections::BTreeMap;

/// The replica layout of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    world_size: usize,
    count: usize,
}

impl Replicas {
    /// Return the layout of `world_size` ranks with `count` replicas of each logical rank. `world_size` must be a
    /// multiple of `count`.
    pub fn new(world_size: usize, count: usize) -> Replicas {
        assert!(count > 0 && world_size.is_multiple_of(count), "every logical rank has the same number of replicas");
        Replicas { world_size, count }
    }

    /// Return the number of replicas of each logical rank.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Return the number of logical ranks.
    pub fn logical_count(&self) -> usize {
        self.world_size / self.count
    }

    /// Return the logical rank of world rank `rank`.
    pub fn logical(&self, rank: usize) -> usize {
        rank % self.logical_count()
    }

    /// Return the world ranks that are replicas of the logical rank of `rank`, including itself, lowest first.
    pub fn of(&self, rank: usize) -> impl Iterator<Item = usize> + use<> {
        (self.logical(rank)..self.world_size).step_by(self.logical_count())
    }

    /// Return the ranks of [`Replicas::of`], rotated by the position of `viewer` among its own replicas. The replicas
    /// of a rank therefore prefer different replicas of another rank.
    pub fn rotated(&self, rank: usize, viewer: usize) -> impl Iterator<Item = usize> + use<> {
        let (logical, logical_count, count) = (self.logical(rank), self.logical_count(), self.count);
        let first = viewer / logical_count;
        (0..count).map(move |step| logical + (first + step) % count * logical_count)
    }
}

/// The known dead ranks of a world.
#[derive(Clone, Debug)]
pub struct Losses {
    replicas: Replicas,
    by_rank: BTreeMap<usize, JobFailure>,
}

/// Consequence of a death.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplicaLoss {
    /// The death was already known.
    Known,
    /// Another replica is alive.
    Tolerated,
    /// The last replica died, which fails the job.
    Fatal(JobFailure),
}

impl Losses {
    /// Return an empty record.
    pub fn new(replicas: Replicas) -> Losses {
        Losses { replicas, by_rank: BTreeMap::new() }
    }

    /// Record the death of `rank`.
    pub fn note(&mut self, rank: usize, failure: JobFailure) -> ReplicaLoss {
        if self.by_rank.contains_key(&rank) {
            return ReplicaLoss::Known;
        }
        self.by_rank.insert(rank, failure.clone());
        match self.replicas.of(rank).all(|replica| self.by_rank.contains_key(&replica)) {
            true => ReplicaLoss::Fatal(self.name_replicas(rank, failure)),
            false => ReplicaLoss::Tolerated,
        }
    }

    /// Return whether `rank` has died.
    pub fn contains(&self, rank: usize) -> bool {
        self.by_rank.contains_key(&rank)
    }

    /// Return the dead ranks with their failures, lowest rank first.
    pub fn by_rank(&self) -> impl Iterator<Item = (usize, &JobFailure)> {
        self.by_rank.iter().map(|(&rank, failure)| (rank, failure))
    }

    /// Return the failure of the last replica, extended by the failures of the other replicas.
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
    fn the_last_replica_is_fatal_and_states_how_the_others_died() {
        let mut losses = Losses::new(Replicas::new(4, 2));
        assert_eq!(losses.note(2, died(2)), ReplicaLoss::Tolerated);
        assert_eq!(losses.note(2, died(2)), ReplicaLoss::Known);
        assert_eq!(losses.note(1, died(1)), ReplicaLoss::Tolerated);
        let ReplicaLoss::Fatal(failure) = losses.note(0, died(0)) else { panic!("rank 0 had one replica, which died") };
        let reported = "rank 0 on host a failed: its process ended; before that its replica, rank 2 on host a failed";
        assert!(failure.to_string().starts_with(reported), "{failure}");
    }
}
