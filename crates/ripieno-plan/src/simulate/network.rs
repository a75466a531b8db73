//! Network model: every rank has one outgoing and one incoming port, and links buffer messages in flight.

use super::{Model, SimulatedTransfer};
use crate::matching::Dependencies;
use crate::matching::{MatchedMessage, Matching};
use crate::plan::{Operation, Plan};
use alloc::vec;
use alloc::vec::Vec;

/// The next event of the simulation.
pub(crate) enum NetworkEvent {
    /// A message is sent.
    Send { link: usize, at: f64 },
    /// A message is received.
    Receive { link: usize, at: f64 },
}

/// Simulation state of all ranks on a modeled network.
pub(crate) struct NetworkSimulation<'a> {
    plans: &'a [Plan],
    matching: &'a Matching,
    model: &'a Model,
    dependencies: Vec<Dependencies>,
    links: Vec<LinkState>,
    /// Per rank: when its outgoing and incoming ports become free, and its unfinished local operations.
    out_free_at: Vec<f64>,
    in_free_at: Vec<f64>,
    locals: Vec<Vec<usize>>,
}

#[derive(Clone, Default)]
struct LinkState {
    /// Start time of each message sent so far.
    sent_at: Vec<f64>,
    received_count: usize,
    /// When the bytes of the next message to send and of the next one to receive are ready, if known.
    send_ready_at: Option<f64>,
    receive_ready_at: Option<f64>,
}

impl<'a> NetworkSimulation<'a> {
    /// Create the state before the first operation of any rank.
    pub(crate) fn new(plans: &'a [Plan], matching: &'a Matching, model: &'a Model) -> NetworkSimulation<'a> {
        let mut network = NetworkSimulation {
            plans,
            matching,
            model,
            dependencies: matching.dependencies(),
            links: vec![LinkState::default(); matching.links.len()],
            out_free_at: vec![0.0; plans.len()],
            in_free_at: vec![0.0; plans.len()],
            locals: matching.locals.clone(),
        };
        (0..plans.len()).for_each(|rank| network.refresh(rank));
        network
    }

    /// Return the earliest event. Of simultaneous events, the event of the link with the fewest messages so far is
    /// first, so links take turns. Then the order of the plan decides.
    pub(crate) fn next_event(&self) -> Option<NetworkEvent> {
        let mut first: Option<((f64, usize, usize, usize), NetworkEvent)> = None;
        let mut offer = |key: (f64, usize, usize, usize), event: NetworkEvent| {
            if first.as_ref().is_none_or(|(best, _)| key < *best) {
                first = Some((key, event));
            }
        };
        for (index, (link, state)) in self.matching.links.iter().zip(&self.links).enumerate() {
            if let (Some(ready_at), Some(message)) = (state.send_ready_at, link.messages.get(state.sent_at.len())) {
                let at = ready_at.max(self.out_free_at[link.sender]);
                offer((at, state.sent_at.len(), message.send, link.sender), NetworkEvent::Send { link: index, at });
            }
            if let (Some(ready_at), Some(sent_at)) = (state.receive_ready_at, state.sent_at.get(state.received_count)) {
                let at = ready_at.max(*sent_at).max(self.in_free_at[link.receiver]);
                let receive = link.messages[state.received_count].receive;
                offer((at, state.received_count, receive, link.receiver), NetworkEvent::Receive { link: index, at });
            }
        }
        first.map(|(_, event)| event)
    }

    /// Send the next message of `link`.
    pub(crate) fn send(&mut self, link: usize, at: f64) {
        let matched = &self.matching.links[link];
        let message = matched.messages[self.links[link].sent_at.len()];
        self.matching.steps[matched.sender][message.send].reads.pass_all(&mut self.dependencies[matched.sender], at);
        self.out_free_at[matched.sender] = at + self.model.sending_s(message.length_bytes);
        self.links[link].sent_at.push(at);
        self.refresh(matched.sender);
    }

    /// Receive the next message of `link`.
    pub(crate) fn receive(&mut self, link: usize, at: f64) -> SimulatedTransfer {
        let (matched, state) = (&self.matching.links[link], &mut self.links[link]);
        let MatchedMessage { send, receive, length_bytes } = matched.messages[state.received_count];
        let start_s = state.sent_at[state.received_count];
        state.received_count += 1;

        let reducing = matches!(self.plans[matched.receiver].operations()[receive], Operation::Reduce { .. });
        let gamma_s_per_byte = if reducing { self.model.gamma_s_per_byte } else { 0.0 };
        let end_s = at + self.model.sending_s(length_bytes) + length_bytes as f64 * gamma_s_per_byte;
        self.matching.steps[matched.receiver][receive].writes.pass_all(&mut self.dependencies[matched.receiver], end_s);
        self.in_free_at[matched.receiver] = end_s;
        self.refresh(matched.receiver);
        SimulatedTransfer {
            sender: matched.sender,
            send,
            receiver: matched.receiver,
            receive,
            length_bytes,
            start_s,
            end_s,
        }
    }

    /// Return the next operation, if any, at both ends of every link: rank and operation.
    pub(crate) fn unfinished(&self) -> Vec<(usize, usize)> {
        let ends = self.matching.links.iter().zip(&self.links).flat_map(|(link, state)| {
            let send = link.messages.get(state.sent_at.len()).map(|message| (link.sender, message.send));
            let receive = link.messages.get(state.received_count).map(|message| (link.receiver, message.receive));
            [send, receive].into_iter().flatten()
        });
        ends.collect()
    }

    /// Run the local operations of `rank` that are ready, then update when its next messages are ready.
    fn refresh(&mut self, rank: usize) {
        let (steps, dependencies) = (&self.matching.steps[rank], &mut self.dependencies[rank]);
        self.locals[rank].retain(|&index| {
            let ready_at =
                steps[index].reads.all_ready_at(dependencies).zip(steps[index].writes.all_ready_at(dependencies));
            let Some((source_at, target_at)) = ready_at else {
                return true;
            };
            let end_s = source_at.max(target_at) + self.model.local_s(&self.plans[rank].operations()[index]);
            steps[index].reads.pass_all(dependencies, end_s);
            steps[index].writes.pass_all(dependencies, end_s);
            false
        });
        for &link in &self.matching.outgoing[rank] {
            let next = self.matching.links[link].messages.get(self.links[link].sent_at.len());
            self.links[link].send_ready_at = next.and_then(|next| steps[next.send].reads.all_ready_at(dependencies));
        }
        for &link in &self.matching.incoming[rank] {
            let next = self.matching.links[link].messages.get(self.links[link].received_count);
            self.links[link].receive_ready_at =
                next.and_then(|next| steps[next.receive].writes.all_ready_at(dependencies));
        }
    }
}
