//! Deaths that the job survives, because a replica of the rank lives, and what a hub says that takes another's place.

use super::{Hub, Member, Standing};
use crate::fabric::Failure;
use crate::membership::{Message, Output};
use crate::replicas::Loss;
use std::time::Duration;

impl Hub {
    /// A rank has died: that is the job's failure, unless a replica of it lives.
    pub(super) fn lose(&mut self, rank: usize, failure: Failure) -> Vec<Output> {
        if self.failure.is_some() {
            return vec![];
        }
        if self.awaited_count > 0 || rank == self.own {
            self.early_death = (self.awaited_count > 0).then_some(rank);
            return self.fail(failure);
        }
        match self.losses.note(rank, failure.clone()) {
            Loss::Known => vec![],
            Loss::Fatal(failure) => self.fail(failure),
            Loss::Spared => {
                if std::mem::replace(&mut self.members[rank].standing, Standing::Lost) == Standing::Present {
                    self.present_count -= 1;
                }
                self.suspects.remove(&rank);
                // If it was only silent it learns that the others go on without it.
                let mut outputs = vec![Output::Send { to: rank, message: Message::Failed(failure.clone()) }];
                outputs.extend(self.tell_all(&Message::Lost(failure.clone())));
                outputs.push(Output::Lost(failure));
                outputs.extend(self.finished());
                outputs
            }
        }
    }

    /// A hub that has admitted everybody says so: who is still on the way to this one takes part already, and who was
    /// taken to have died too early has not.
    pub(super) fn all_have_come(&mut self, now: Duration) -> Vec<Output> {
        for member in self.members.iter_mut().filter(|member| member.standing == Standing::Awaited) {
            *member = Member { standing: Standing::Present, heard: now };
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
    pub(super) fn news(&self) -> impl Iterator<Item = Message> {
        self.losses.failures().cloned().map(Message::Lost).chain(self.failure.clone().map(Message::Failed))
    }

    /// What the others must know when this machine takes the place of one that is gone.
    pub fn take_over(&mut self) -> Vec<Output> {
        let losses: Vec<Failure> = self.losses.failures().cloned().collect();
        let mut outputs = Vec::new();
        for loss in losses {
            outputs.extend(self.tell_all(&Message::Lost(loss.clone())));
            outputs.push(Output::Lost(loss));
        }
        if let Some(failure) = self.failure.clone() {
            outputs.extend(self.tell_all(&Message::Failed(failure.clone())));
            outputs.push(Output::Failed(failure));
        }
        outputs
    }

    /// Whether another replica of `rank` takes part.
    pub(super) fn has_copy_at_work(&self, rank: usize) -> bool {
        self.replicas.of(rank).any(|replica| replica != rank && self.members[replica].standing == Standing::Present)
    }
}
