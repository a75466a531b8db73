//! Failures that ranks receive, per world. All ranks of a world must receive the same failure, which names a faulty
//! rank.

use ripieno_run::JobFailure;
use ripieno_run::membership::agreement::Decision;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Verdicts {
    /// Ranks that a fault affected, or that caused a failure.
    pub faulty: BTreeSet<usize>,
    pub killed: BTreeSet<usize>,
    /// Failure reported to each rank, per world. Ranks are numbered as in the first world.
    described: BTreeMap<u64, BTreeMap<usize, String>>,
    decided: BTreeMap<u32, Vec<(usize, Decision)>>,
    /// Worlds with different failures at different ranks.
    pub divided: BTreeSet<u64>,
}

impl Verdicts {
    /// Record the failure that `rank` received in `world`, and check it.
    pub fn note(&mut self, world: u64, members: &[usize], rank: usize, failure: &JobFailure) {
        let description = match failure {
            JobFailure::RankFailed { rank: failed_rank, .. } => {
                let failed_rank = members[*failed_rank];
                // A failure may name an unaffected rank only if both the receiving rank and rank 0 of this world are
                // faulty: then other ranks have closed their connections to them.
                let is_sound = |rank: usize| !self.faulty.contains(&rank);
                assert!(
                    !is_sound(failed_rank) || !(is_sound(rank) || is_sound(members[0])),
                    "rank {rank} received a failure of rank {failed_rank}, which was not faulty: {failure}"
                );
                // With replicas, the other ranks continue without the lost replica. Only the lost replica receives its
                // own failure.
                if failed_rank == rank {
                    return;
                }
                format!("rank {failed_rank}")
            }
            JobFailure::Mismatch { description: text } => text.clone(),
        };
        let described = self.described.entry(world).or_default();
        let known = described.entry(rank).or_insert_with(|| description.clone()).clone();
        assert_eq!(known, description, "rank {rank} received two different failures");
        let has_other = described.values().any(|other| *other != description);
        if !has_other {
            return;
        }
        // A rank that cannot exchange messages with rank 0 decides alone.
        let hub = members[0];
        assert!(self.faulty.contains(&hub), "ranks of world {world} received different failures: {described:?}");
        self.divided.insert(world);
    }

    /// Record the decision of an agreement. [`Verdicts::check_decisions`] compares the members.
    pub fn note_decision(&mut self, rank: usize, decision: &Decision) {
        let decided = self.decided.entry(decision.epoch).or_default();
        assert!(decision.members.contains(&rank), "a surviving rank is a member");
        decided.push((rank, decision.clone()));
    }

    /// Check that all ranks with `is_exempt` false continue with the same members.
    pub fn check_decisions(&self, is_exempt: impl Fn(usize) -> bool) {
        for (epoch, decided) in &self.decided {
            let checked: Vec<_> = decided.iter().filter(|(rank, _)| !is_exempt(*rank)).collect();
            let same = checked.windows(2).all(|pair| pair[0].1.members == pair[1].1.members);
            assert!(same, "ranks differ in epoch {epoch}: {checked:?}");
        }
    }
}
