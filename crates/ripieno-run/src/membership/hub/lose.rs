//! Deaths that the job survives, because a copy of the rank lives, and what a hub says that takes another's place.

use super::{Hub, Standing};
use crate::copies::Loss;
use crate::fabric::Failure;
use crate::membership::{Message, Output};

impl Hub {
    /// A rank has died: that is the job's failure, unless a copy of it lives.
    pub(super) fn lose(&mut self, rank: usize, failure: Failure) -> Vec<Output> {
        if self.failure.is_some() {
            return vec![];
        }
        if self.awaited_count > 0 || rank == self.own {
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

    /// Whether another copy of `rank` takes part.
    pub(super) fn has_copy_at_work(&self, rank: usize) -> bool {
        self.copies.of(rank).any(|copy| copy != rank && self.members[copy].standing == Standing::Present)
    }
}
