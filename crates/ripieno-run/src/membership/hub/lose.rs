//! Replica failover of the hub: handles the death of a rank that has a live replica, and the takeover from another hub.

use super::{Hub, HubMember, MemberState};
use crate::fabric::JobFailure;
use crate::membership::{BlockedWaits, LastContact, MembershipMessage, MembershipOutput};
use crate::replicas::ReplicaLoss;
use std::time::Duration;

impl Hub {
    /// Handle the death of a rank. The job fails unless a replica of the rank is alive.
    pub(super) fn lose(&mut self, rank: usize, failure: JobFailure) -> Vec<MembershipOutput> {
        if self.failure.is_some() {
            return vec![];
        }
        if self.awaited_count > 0 || rank == self.own {
            self.early_failure = (self.awaited_count > 0).then_some(rank);
            return self.fail(failure);
        }
        match self.losses.note(rank, failure.clone()) {
            ReplicaLoss::Known => vec![],
            ReplicaLoss::Fatal(failure) => self.fail(failure),
            ReplicaLoss::Tolerated => {
                if std::mem::replace(&mut self.members[rank].state, MemberState::Lost) == MemberState::Present {
                    self.present_count -= 1;
                }
                self.suspects.remove(&rank);
                // Ranks that waited for the lost rank continue without it.
                self.waits = BlockedWaits::default();
                let mut outputs = self.announce_loss(rank, &failure);
                outputs.extend(self.finished());
                outputs
            }
        }
    }

    /// Handle the loss of a rank that another hub has declared. A hub that was itself declared lost receives
    /// the declaration from the other hub.
    pub(super) fn note_loss(&mut self, failure: JobFailure) -> Vec<MembershipOutput> {
        match failure {
            JobFailure::RankFailed { rank, .. } if rank < self.members.len() && rank != self.own => {
                self.lose(rank, failure)
            }
            _ => vec![],
        }
    }

    /// Return the messages about a lost rank. If the rank was only silent, it learns that the others continue without
    /// it.
    fn announce_loss(&self, rank: usize, failure: &JobFailure) -> Vec<MembershipOutput> {
        let to_rank = MembershipOutput::Send { to: rank, message: MembershipMessage::Failed(failure.clone()) };
        let mut outputs = vec![to_rank];
        outputs.extend(self.send_to_present(&MembershipMessage::Lost(failure.clone())));
        outputs.push(MembershipOutput::Lost(failure.clone()));
        outputs
    }

    /// Handle another hub's report that all ranks are admitted. Ranks that are still connecting to this hub
    /// then count as present. If a death has failed the job too early on this hub, the hub handles it again.
    pub(super) fn all_admitted(&mut self, now: Duration) -> Vec<MembershipOutput> {
        for member in self.members.iter_mut().filter(|member| member.state == MemberState::Awaited) {
            *member = HubMember { state: MemberState::Present, contact: LastContact::new(now) };
            self.present_count += 1;
        }
        self.awaited_count = 0;
        match (self.early_failure.take(), self.failure.take()) {
            (Some(rank), Some(failure)) => self.lose(rank, failure),
            (_, failure) => {
                self.failure = failure;
                vec![]
            }
        }
    }

    /// Return the messages for a rank that this hub has not notified yet.
    pub(super) fn failure_messages(&self) -> impl Iterator<Item = MembershipMessage> {
        self.losses
            .by_rank()
            .map(|(_, failure)| MembershipMessage::Lost(failure.clone()))
            .chain(self.failure.clone().map(MembershipMessage::Failed))
    }

    /// Take over from a lost hub. Return the messages for the other ranks.
    pub fn take_over(&mut self) -> Vec<MembershipOutput> {
        let mut outputs = Vec::new();
        if self.awaited_count == 0 {
            // The lost hub may not have reported this to all ranks.
            outputs.extend(self.send_to_present(&MembershipMessage::Complete));
            outputs.push(MembershipOutput::Complete);
        }
        outputs.extend(self.losses.by_rank().flat_map(|(rank, failure)| self.announce_loss(rank, failure)));
        if let Some(failure) = self.failure.clone() {
            outputs.extend(self.send_to_present(&MembershipMessage::Failed(failure.clone())));
            outputs.push(MembershipOutput::Failed(failure));
        }
        outputs
    }

    /// Return whether another replica of `rank` is present.
    pub(super) fn has_present_replica(&self, rank: usize) -> bool {
        self.replicas.of(rank).any(|replica| replica != rank && self.members[replica].state == MemberState::Present)
    }
}
