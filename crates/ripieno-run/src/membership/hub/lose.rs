//! Deaths that the job survives, because a replica of the rank lives, and what a hub says that takes another's place.

use super::{Hub, HubMember, MemberStanding};
use crate::fabric::JobFailure;
use crate::membership::{MembershipMessage, MembershipOutput};
use crate::replicas::ReplicaLoss;
use std::time::Duration;

impl Hub {
    /// A rank has died: that is the job's failure, unless a replica of it lives.
    pub(super) fn lose(&mut self, rank: usize, failure: JobFailure) -> Vec<MembershipOutput> {
        if self.failure.is_some() {
            return vec![];
        }
        if self.awaited_count > 0 || rank == self.own {
            self.early_death = (self.awaited_count > 0).then_some(rank);
            return self.fail(failure);
        }
        match self.losses.note(rank, failure.clone()) {
            ReplicaLoss::Known => vec![],
            ReplicaLoss::Fatal(failure) => self.fail(failure),
            ReplicaLoss::Spared => {
                if std::mem::replace(&mut self.members[rank].standing, MemberStanding::Lost) == MemberStanding::Present
                {
                    self.present_count -= 1;
                }
                self.suspects.remove(&rank);
                // If it was only silent it learns that the others go on without it.
                let mut outputs =
                    vec![MembershipOutput::Send { to: rank, message: MembershipMessage::Failed(failure.clone()) }];
                outputs.extend(self.tell_all(&MembershipMessage::Lost(failure.clone())));
                outputs.push(MembershipOutput::Lost(failure));
                outputs.extend(self.finished());
                outputs
            }
        }
    }

    /// A hub that has admitted everybody says so: who is still on the way to this one takes part already, and who was
    /// taken to have died too early has not.
    pub(super) fn all_have_come(&mut self, now: Duration) -> Vec<MembershipOutput> {
        for member in self.members.iter_mut().filter(|member| member.standing == MemberStanding::Awaited) {
            *member = HubMember { standing: MemberStanding::Present, heard: now };
            self.present_count += 1;
        }
        self.awaited_count = 0;
        match (self.early_death.take(), self.failure.take()) {
            (Some(rank), Some(failure)) => self.lose(rank, failure),
            (_, failure) => {
                self.failure = failure;
                vec![]
            }
        }
    }

    /// What a rank must know that has heard nothing of this hub yet.
    pub(super) fn news(&self) -> impl Iterator<Item = MembershipMessage> {
        self.losses
            .failures()
            .cloned()
            .map(MembershipMessage::Lost)
            .chain(self.failure.clone().map(MembershipMessage::Failed))
    }

    /// What the others must know when this machine takes the place of one that is gone.
    pub fn take_over(&mut self) -> Vec<MembershipOutput> {
        let losses: Vec<JobFailure> = self.losses.failures().cloned().collect();
        let mut outputs = Vec::new();
        for loss in losses {
            outputs.extend(self.tell_all(&MembershipMessage::Lost(loss.clone())));
            outputs.push(MembershipOutput::Lost(loss));
        }
        if let Some(failure) = self.failure.clone() {
            outputs.extend(self.tell_all(&MembershipMessage::Failed(failure.clone())));
            outputs.push(MembershipOutput::Failed(failure));
        }
        outputs
    }

    /// Whether another replica of `rank` takes part.
    pub(super) fn has_copy_at_work(&self, rank: usize) -> bool {
        self.replicas
            .of(rank)
            .any(|replica| replica != rank && self.members[replica].standing == MemberStanding::Present)
    }
}
