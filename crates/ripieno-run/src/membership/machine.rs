//! Membership machine of a rank: its part in the star of every hub, including its own.

use super::hub::Hub;
use super::spoke::Spoke;
use super::{CallHistory, MembershipEvent, MembershipMessage, MembershipOutput, MembershipRequest, MembershipTiming};
use crate::fabric::JobFailure;
use crate::replicas::{Losses, ReplicaLoss, Replicas};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Membership machine of a rank.
pub struct Membership {
    rank: usize,
    hosts: Arc<[String]>,
    replicas: Replicas,
    /// Set on replicas of rank 0, which monitor all other ranks.
    hub: Option<Hub>,
    /// Connections to the other hubs, lowest first.
    spokes: Vec<Spoke>,
    /// Hubs that no longer monitor the job.
    inactive_hubs: BTreeSet<usize>,
    losses: Losses,
    /// Losses of hubs before this rank knows whether all ranks have joined.
    early_losses: Vec<JobFailure>,
    is_complete: bool,
    has_failed: bool,
}

impl Membership {
    /// Return the machine of `rank` in a world of `hosts.len()` ranks; `hosts` are their host names. The rank is
    /// already connected to all lower hubs.
    pub fn new(
        rank: usize,
        hosts: Vec<String>,
        replicas: usize,
        timing: MembershipTiming,
        now: Duration,
    ) -> Membership {
        let replicas = Replicas::new(hosts.len(), replicas);
        let hosts: Arc<[String]> = hosts.into();
        let is_hub = replicas.logical(rank) == 0;
        let spoke = |hub| Spoke::new(rank, hub, hosts.clone(), timing, now);
        Membership {
            rank,
            hosts: hosts.clone(),
            replicas,
            hub: is_hub.then(|| Hub::new(rank, hosts.clone(), replicas, timing, now)),
            spokes: replicas.of(0).filter(|&hub| hub != rank).map(spoke).collect(),
            inactive_hubs: BTreeSet::new(),
            losses: Losses::new(replicas),
            early_losses: vec![],
            is_complete: false,
            has_failed: false,
        }
    }

    /// Handle an event. `history` holds this rank's latest collectives.
    pub fn handle(&mut self, now: Duration, event: MembershipEvent, history: &CallHistory) -> Vec<MembershipOutput> {
        if let MembershipEvent::Received { peer, .. } = &event
            && self.inactive_hubs.contains(peer)
        {
            return vec![];
        }
        let event = self.with_host(event);
        let spoke_outputs = self.pass_to_spokes(now, &event, history);
        let outputs = match self.hub.as_mut().map(|hub| hub.handle(now, event.clone(), history)) {
            Some(hub_outputs) => self.filter_outputs(&event, hub_outputs, spoke_outputs),
            None => {
                self.record_inactive_hubs(&event, &spoke_outputs);
                spoke_outputs
            }
        };
        outputs.into_iter().flat_map(|output| self.report_once(output)).collect()
    }

    /// Add the host to a report of a failed rank.
    fn with_host(&self, mut event: MembershipEvent) -> MembershipEvent {
        if let MembershipEvent::Request(MembershipRequest::Report(JobFailure::RankFailed { rank, host, .. })) =
            &mut event
            && host.is_empty()
        {
            *host = self.hosts.get(*rank).cloned().unwrap_or_default();
        }
        event
    }

    /// Return the time at which the machine needs its next tick.
    pub fn next_tick(&self) -> Duration {
        let spokes = self.spokes.iter().map(Spoke::next_tick);
        spokes.chain(self.hub.as_ref().map(Hub::next_tick)).min().unwrap_or(Duration::MAX)
    }

    fn pass_to_spokes(
        &mut self,
        now: Duration,
        event: &MembershipEvent,
        history: &CallHistory,
    ) -> Vec<MembershipOutput> {
        let has_hub = self.hub.is_some();
        // A request goes to all hubs. If none monitors this rank, the rank decides alone.
        let has_no_hub = !has_hub && self.spokes.iter().all(Spoke::is_detached);
        let mut outputs = Vec::new();
        for (index, spoke) in self.spokes.iter_mut().enumerate() {
            let concerns = match event {
                MembershipEvent::Connected { .. } => false,
                MembershipEvent::Received { peer, .. }
                | MembershipEvent::Closed { peer, .. }
                | MembershipEvent::Reached { peer } => *peer == spoke.hub(),
                MembershipEvent::Tick => true,
                // A hub sends its goodbye to all ranks and stays as long as its star needs it.
                MembershipEvent::Request(MembershipRequest::Leave) => !has_hub,
                MembershipEvent::Request(_) => !spoke.is_detached() || (has_no_hub && index == 0),
            };
            if concerns {
                outputs.extend(spoke.handle(now, event.clone(), history));
            }
        }
        // A rank leaves all hubs at once.
        if outputs.contains(&MembershipOutput::Finished) {
            outputs.retain(|output| *output != MembershipOutput::Finished);
            outputs.push(MembershipOutput::Finished);
        }
        outputs
    }

    /// Filter the outputs of a hub. The lowest live hub sends all of them; other hubs only send heartbeats and
    /// goodbyes.
    fn filter_outputs(
        &mut self,
        event: &MembershipEvent,
        from_hub: Vec<MembershipOutput>,
        from_spokes: Vec<MembershipOutput>,
    ) -> Vec<MembershipOutput> {
        let was_leading_hub = self.is_leading_hub();
        self.record_inactive_hubs(event, &from_hub);
        self.record_inactive_hubs(event, &from_spokes);
        let is_leading_hub = self.is_leading_hub();
        let mut outputs = from_spokes;
        let is_sent = |output: &MembershipOutput| was_leading_hub || is_sent_by_standby(output);
        outputs.extend(from_hub.into_iter().filter(is_sent));
        if is_leading_hub && !was_leading_hub {
            outputs.extend(self.hub.as_mut().map(Hub::take_over).unwrap_or_default());
        }
        outputs
    }

    /// Return whether no lower hub is alive.
    fn is_leading_hub(&self) -> bool {
        self.replicas.of(0).find(|hub| !self.inactive_hubs.contains(hub)) == Some(self.rank)
    }

    fn record_inactive_hubs(&mut self, event: &MembershipEvent, outputs: &[MembershipOutput]) {
        let closed = match event {
            MembershipEvent::Closed { peer, .. } => Some(*peer),
            _ => None,
        };
        let lost = outputs.iter().filter_map(|output| match output {
            MembershipOutput::Lost(JobFailure::RankFailed { rank, .. }) => Some(*rank),
            _ => None,
        });
        let replicas = self.replicas;
        self.inactive_hubs.extend(lost.chain(closed).filter(|&rank| replicas.logical(rank) == 0 && rank != self.rank));
    }

    /// Pass an output to the rank, unless it was already passed.
    fn report_once(&mut self, output: MembershipOutput) -> Vec<MembershipOutput> {
        match output {
            MembershipOutput::Complete if self.is_complete => vec![],
            MembershipOutput::Complete => {
                self.is_complete = true;
                let losses = std::mem::take(&mut self.early_losses);
                let losses = losses.into_iter().flat_map(|failure| self.lose(failure));
                std::iter::once(MembershipOutput::Complete).chain(losses).collect()
            }
            MembershipOutput::Lost(failure) => self.lose(failure),
            MembershipOutput::Failed(failure) => self.fail(failure).into_iter().collect(),
            other => vec![other],
        }
    }

    fn lose(&mut self, failure: JobFailure) -> Vec<MembershipOutput> {
        let JobFailure::RankFailed { rank, .. } = failure else { return self.fail(failure).into_iter().collect() };
        if !self.is_complete {
            // A live hub reports that all ranks have joined, or that the job has failed.
            if self.hub.is_none() && self.live_hubs().next().is_none() {
                return self.fail(failure).into_iter().collect();
            }
            self.early_losses.push(failure);
            return vec![];
        }
        match self.losses.note(rank, failure.clone()) {
            ReplicaLoss::Known => vec![],
            ReplicaLoss::Tolerated if self.has_failed => vec![],
            ReplicaLoss::Tolerated => {
                let mut outputs = self.forward_loss(rank, &failure);
                outputs.push(MembershipOutput::Lost(failure));
                outputs
            }
            ReplicaLoss::Fatal(failure) => self.fail(failure).into_iter().collect(),
        }
    }

    /// Return the messages that report a loss to the live hubs. The hub that declared the loss may be separated from
    /// the others. This rank sends the lost rank nothing more, so the hub that takes over must not wait for that rank.
    fn forward_loss(&self, lost: usize, failure: &JobFailure) -> Vec<MembershipOutput> {
        if self.hub.is_some() {
            return vec![];
        }
        let message = MembershipMessage::Lost(failure.clone());
        let send = |to| MembershipOutput::Send { to, message: message.clone() };
        self.live_hubs().filter(|&hub| hub != lost).map(send).collect()
    }

    /// Return the other hubs that monitor the job, lowest first.
    fn live_hubs(&self) -> impl Iterator<Item = usize> {
        self.replicas.of(0).filter(|hub| *hub != self.rank && !self.inactive_hubs.contains(hub))
    }

    fn fail(&mut self, failure: JobFailure) -> Option<MembershipOutput> {
        let first = !std::mem::replace(&mut self.has_failed, true);
        first.then_some(MembershipOutput::Failed(failure))
    }
}

/// Return whether a hub sends this output even while a lower hub is alive.
fn is_sent_by_standby(output: &MembershipOutput) -> bool {
    match output {
        MembershipOutput::Send { message, .. } => {
            matches!(message, MembershipMessage::Heartbeat | MembershipMessage::Goodbye { .. })
        }
        MembershipOutput::Finished | MembershipOutput::Probe { .. } => true,
        MembershipOutput::Complete | MembershipOutput::Failed(_) | MembershipOutput::Lost(_) => false,
    }
}
