//! Races: a step whose bytes come from every replica of a rank advances with the fastest of them.
//!
//! Replicas send the same bits, so their lanes share their steps. A lane that is behind lets go what another one has
//! brought; one whose peer dies drops out of the race, and the others bring the rest. The run is over when the fastest
//! have come in: what is still to come on the other lanes is let go afterwards, ahead of what the next runs receive
//! there. What a rank sends goes to all replicas that live, to its end.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section V.

use super::run::ScheduleRun;
use super::schedule::{Lane, LaneSteps, Schedule};
use super::visit::{LaneVisit, VisitError, VisitProgress};
use super::{RunError, SEGMENT_BYTES};
use crate::fabric::LinkId;
use crate::link::LinkError;
use crate::replicas::Replicas;
use ripieno_plan::{Operation, Plan};

impl Schedule {
    /// Makes `plan`, whose peers are logical ranks, ready for world rank `rank` among `replicas`: what is sent goes to
    /// all replicas of the receiver, what comes is taken from the fastest replica of the sender. Nothing is lent,
    /// because a replica may take it much later.
    pub fn replicated(plan: &Plan, replicas: Replicas, rank: usize) -> Schedule {
        let mut to_all = Plan::new();
        for operation in plan.operations() {
            let Operation::Send { to, .. } = *operation else {
                to_all.push(operation.clone());
                continue;
            };
            for replica in replicas.in_turn(to, rank) {
                let mut send = operation.clone();
                if let Operation::Send { to, .. } = &mut send {
                    *to = replica;
                }
                to_all.push(send);
            }
        }
        let mut schedule = Schedule::new(&to_all).copying();
        schedule.is_replicated = true;
        schedule.brief = None;
        for lane in std::mem::take(&mut schedule.lanes) {
            match lane.stream {
                LaneSteps::From(link) => {
                    let rivals = replicas.in_turn(link.peer, rank).map(|peer| LaneSteps::From(LinkId { peer, ..link }));
                    schedule.add_rivals(&lane, rivals);
                }
                stream => schedule.add_rivals(&lane, [stream]),
            }
        }
        schedule.peer_count = schedule.peers().len() as u16;
        schedule
    }

    /// Adds a lane with the steps of `lane` for each of `streams`.
    fn add_rivals(&mut self, lane: &Lane, streams: impl IntoIterator<Item = LaneSteps>) {
        let first = self.lanes.len();
        self.lanes.extend(streams.into_iter().map(|stream| Lane { stream, ..lane.clone() }));
        let rivals = first..self.lanes.len();
        self.lanes[rivals.clone()].iter_mut().for_each(|lane| lane.rivals = rivals.clone());
    }
}

impl LaneVisit<'_, '_> {
    /// Lets go what other replicas have brought, and goes on from there as [`LaneVisit::take`] does.
    pub fn receive_first(&mut self) -> Result<VisitProgress, VisitError> {
        let mut moved = VisitProgress::Nothing;
        if self.cursor.preamble_bytes == 0 {
            if !self.take_preamble()? {
                self.cursor.on_stream = true;
                self.link.expect(1);
                return Ok(moved);
            }
            moved = VisitProgress::Something;
        }
        let mut dropped_bytes = 0;
        while let Some(&index) = self.steps.get(self.cursor.next) {
            if self.cursor.raced_bytes == self.schedule.steps[index].length_bytes {
                self.cursor.next += 1;
                self.cursor.raced_bytes = 0;
                moved = VisitProgress::Something;
                continue;
            }
            let behind_bytes = self.passed[index] - self.cursor.raced_bytes;
            if behind_bytes == 0 || dropped_bytes >= SEGMENT_BYTES {
                break;
            }
            let count = self.link.peek(1)?.len().min(behind_bytes);
            if count == 0 {
                self.cursor.on_stream = true;
                self.link.expect(self.relay_unit_bytes.min(behind_bytes));
                break;
            }
            self.link.consume(count);
            self.cursor.raced_bytes += count;
            dropped_bytes += count;
            moved = VisitProgress::Something;
        }
        self.traffic.received_bytes += dropped_bytes as u64;
        // A lane at the front has no rival ahead of it in later steps either.
        if self.passed_bytes() > self.cursor.raced_bytes {
            return Ok(moved);
        }
        let taken = self.take()?;
        self.cursor.raced_bytes = self.passed_bytes();
        Ok(if taken == VisitProgress::Something { taken } else { moved })
    }

    /// How far the step is at which this lane stands.
    fn passed_bytes(&self) -> usize {
        self.steps.get(self.cursor.next).map_or(0, |&index| self.passed[index])
    }
}

impl ScheduleRun<'_, '_> {
    /// Goes on without the peer of a lane, if a replica of it is left.
    pub fn drop_out(&mut self, lane: usize, peer: usize, error: LinkError) -> Result<bool, RunError> {
        let known = &self.schedule.lanes[lane];
        // Who lacks something is not helped by a replica of its peer.
        if !self.schedule.is_replicated || matches!(error, LinkError::Lacking { .. }) {
            return Err(self.closed(peer, error));
        }
        self.progress.cursors[lane].is_out = true;
        match known.stream {
            // Nobody needs what it was to get.
            LaneSteps::To(_) => {
                let left = known.steps[self.progress.cursors[lane].next..].iter();
                left.for_each(|&index| self.progress.passed[index] = self.schedule.steps[index].length_bytes);
            }
            LaneSteps::From(_) if self.progress.cursors[known.rivals.clone()].iter().all(|rival| rival.is_out) => {
                return Err(self.closed(peer, error));
            }
            LaneSteps::From(_) | LaneSteps::Local => {}
        }
        Ok(true)
    }

    /// Whether nothing is to come on any lane.
    pub fn is_settled(&self) -> bool {
        (0..self.schedule.lanes.len()).all(|lane| self.has_ended(lane))
    }

    /// Whether the fastest lane of each race has come in, and all others have ended.
    pub fn is_won(&self) -> bool {
        let mut lanes = self.schedule.lanes.iter().enumerate();
        lanes.all(|(number, lane)| match lane.stream {
            LaneSteps::From(_) => lane.rivals.clone().any(|rival| self.is_finished(rival)),
            LaneSteps::To(_) | LaneSteps::Local => self.has_ended(number),
        })
    }
}
