//! What ranks were told, world by world: all of a world the same, and of one that was at fault.

use ripieno_run::JobFailure;
use ripieno_run::membership::agreement::Decision;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Verdicts {
    /// To whom something was done, or who did something.
    pub faulty: BTreeSet<usize>,
    pub killed: BTreeSet<usize>,
    /// What was told in each world, to whom; ranks are those of the first world.
    told: BTreeMap<u64, BTreeMap<usize, String>>,
    decided: BTreeMap<u32, Vec<(usize, Decision)>>,
    /// Worlds in which ranks were told different things.
    pub divided: BTreeSet<u64>,
}

impl Verdicts {
    /// Notes what `rank` was told in `world`.
    pub fn note(&mut self, world: u64, members: &[usize], rank: usize, failure: &JobFailure) {
        let what = match failure {
            JobFailure::RankFailed { rank: culprit, .. } => {
                let culprit = members[*culprit];
                // Whom nothing was done to is named only to a rank that stood still, or was cut off, itself, as rank 0
                // was: others have let go of them.
                let is_sound = |rank: usize| !self.faulty.contains(&rank);
                assert!(
                    !is_sound(culprit) || !(is_sound(rank) || is_sound(members[0])),
                    "rank {rank} was told that rank {culprit} failed, to which nothing had happened: {failure}"
                );
                // Where ranks have replicas the others go on without one, which alone is told of itself.
                if culprit == rank {
                    return;
                }
                format!("rank {culprit}")
            }
            JobFailure::Mismatch { description } => description.clone(),
        };
        let told = self.told.entry(world).or_default();
        let known = told.entry(rank).or_insert_with(|| what.clone()).clone();
        assert_eq!(known, what, "rank {rank} is told the same again");
        let has_other = told.values().any(|other| *other != what);
        if !has_other {
            return;
        }
        // Whoever hears nothing of rank 0, or is not heard, judges by itself.
        let hub = members[0];
        assert!(self.faulty.contains(&hub), "ranks of world {world} were told of different culprits: {told:?}");
        self.divided.insert(world);
    }

    /// Two that come back from an agreement have the same ranks beside them.
    pub fn note_decision(&mut self, rank: usize, decision: &Decision) {
        let decided = self.decided.entry(decision.epoch).or_default();
        assert!(decision.members.contains(&rank), "who goes on is one of those who go on");
        decided.push((rank, decision.clone()));
    }

    /// Whether ranks, but for `exempt`, have gone on with different others.
    pub fn check_decisions(&self, exempt: impl Fn(usize) -> bool) {
        for (epoch, decided) in &self.decided {
            let judged: Vec<_> = decided.iter().filter(|(rank, _)| !exempt(*rank)).collect();
            let same = judged.windows(2).all(|pair| pair[0].1.members == pair[1].1.members);
            assert!(same, "ranks differ in epoch {epoch}: {judged:?}");
        }
    }
}
