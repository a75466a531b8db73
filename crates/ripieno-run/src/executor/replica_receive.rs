//! Replica races: a step that receives from all replicas of a rank advances with the fastest replica.
//!
//! Replicas send identical bits, so their lanes share their steps. A slower lane discards the bytes that another lane
//! has already delivered. If a peer dies, its lane drops out, and the other lanes deliver the rest. The run ends when
//! the fastest lanes have finished. The other lanes discard their trailing receives afterwards, before the next runs
//! receive on them. A rank sends all its data to all live replicas.
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
    /// Prepare `plan` for world rank `rank` among `replicas`. The peers in the plan are logical ranks. Sends go to all
    /// replicas of the receiver. Receives take the data of the fastest replica of the sender. No send is zero-copy,
    /// because a replica may read much later.
    pub fn replicated(plan: &Plan, replicas: Replicas, rank: usize) -> Schedule {
        let mut to_all = Plan::new();
        for operation in plan.operations() {
            let Operation::Send { to, .. } = *operation else {
                to_all.push(operation.clone());
                continue;
            };
            for replica in replicas.rotated(to, rank) {
                let mut send = operation.clone();
                if let Operation::Send { to, .. } = &mut send {
                    *to = replica;
                }
                to_all.push(send);
            }
        }
        let mut schedule = Schedule::new(&to_all).without_zero_copy();
        schedule.is_replicated = true;
        schedule.brief = None;
        for lane in std::mem::take(&mut schedule.lanes) {
            match lane.stream {
                LaneSteps::From(link) => {
                    let racing_lanes =
                        replicas.rotated(link.peer, rank).map(|peer| LaneSteps::From(LinkId { peer, ..link }));
                    schedule.add_racing_lanes(&lane, racing_lanes);
                }
                stream => schedule.add_racing_lanes(&lane, [stream]),
            }
        }
        schedule.peer_count = schedule.peers().len() as u16;
        schedule
    }

    /// Add a lane with the steps of `lane` for each of `streams`.
    fn add_racing_lanes(&mut self, lane: &Lane, streams: impl IntoIterator<Item = LaneSteps>) {
        let first = self.lanes.len();
        self.lanes.extend(streams.into_iter().map(|stream| Lane { stream, ..lane.clone() }));
        let racing_lanes = first..self.lanes.len();
        self.lanes[racing_lanes.clone()].iter_mut().for_each(|lane| lane.racing_lanes = racing_lanes.clone());
    }
}

impl LaneVisit<'_, '_> {
    /// Discard the bytes that other replicas have delivered, then receive as [`LaneVisit::receive_or_reduce`] does.
    pub fn receive_racing(&mut self) -> Result<VisitProgress, VisitError> {
        let mut moved = VisitProgress::Nothing;
        if self.cursor.preamble_bytes == 0 {
            if !self.receive_preamble()? {
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
        // A leading lane has no faster rival in later steps either.
        if self.passed_bytes() > self.cursor.raced_bytes {
            return Ok(moved);
        }
        let result = self.receive_or_reduce()?;
        self.cursor.raced_bytes = self.passed_bytes();
        Ok(if result == VisitProgress::Something { result } else { moved })
    }

    /// Return the number of bytes that the lane's current step has passed.
    fn passed_bytes(&self) -> usize {
        self.steps.get(self.cursor.next).map_or(0, |&index| self.passed[index])
    }
}

impl ScheduleRun<'_, '_> {
    /// Continue without the peer of a lane if another replica of it is alive.
    pub fn drop_out(&mut self, lane: usize, peer: usize, error: LinkError) -> Result<bool, RunError> {
        let known = &self.schedule.lanes[lane];
        // Another replica cannot help if this end lacks a requirement.
        if !self.schedule.is_replicated || matches!(error, LinkError::MissingResource { .. }) {
            return Err(self.closed(peer, error));
        }
        self.progress.cursors[lane].has_dropped_out = true;
        match known.stream {
            // The dead peer needs no more data.
            LaneSteps::To(_) => {
                let left = known.steps[self.progress.cursors[lane].next..].iter();
                left.for_each(|&index| self.progress.passed[index] = self.schedule.steps[index].length_bytes);
            }
            LaneSteps::From(_)
                if self.progress.cursors[known.racing_lanes.clone()]
                    .iter()
                    .all(|racing_lane| racing_lane.has_dropped_out) =>
            {
                return Err(self.closed(peer, error));
            }
            LaneSteps::From(_) | LaneSteps::Local => {}
        }
        Ok(true)
    }

    /// Return whether all lanes have ended.
    pub fn have_all_lanes_ended(&self) -> bool {
        (0..self.schedule.lanes.len()).all(|lane| self.has_ended(lane))
    }

    /// Return whether the fastest lane of each race has finished and all other lanes have ended.
    pub fn is_race_over(&self) -> bool {
        let mut lanes = self.schedule.lanes.iter().enumerate();
        lanes.all(|(number, lane)| match lane.stream {
            LaneSteps::From(_) => lane.racing_lanes.clone().any(|racing_lane| self.is_finished(racing_lane)),
            LaneSteps::To(_) | LaneSteps::Local => self.has_ended(number),
        })
    }
}
