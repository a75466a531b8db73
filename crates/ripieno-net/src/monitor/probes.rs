//! Probes of silent ranks: new connections, which show both ends that the other process lives.
//!
//! A probe succeeds immediately after an outage, while TCP retransmits on older connections only after a pause. Probes
//! of a rank overlap, because TCP also repeats a lost connection request only after a pause. Cost: one short-lived
//! thread per probe. Ranks of the same host are not probed: no network can fail between them.

use super::{Monitor, MonitorCommand};
use crate::auth::ConnectionPurpose;
use ripieno_run::membership::MembershipEvent;
use std::collections::BTreeMap;
use std::time::Instant;

/// Limit of concurrent probes of one rank.
const PROBES_PER_PEER: usize = 8;
/// Limit of concurrent probes. If more ranks are silent, those that are not probed probe this rank.
const PROBES_MAX: usize = 64;

/// The number of probes in progress, by rank.
#[derive(Default)]
pub(super) struct Probes(BTreeMap<usize, usize>);

impl Monitor {
    /// Try to connect to a rank of another host, on a new thread.
    pub(super) fn probe(&mut self, peer: usize) {
        let probe_count: usize = self.probes.0.values().sum();
        let is_local = self.setup.addresses[peer].identity == self.setup.own.identity;
        let peer_count = self.probes.0.entry(peer).or_default();
        if is_local || probe_count >= PROBES_MAX || *peer_count >= PROBES_PER_PEER {
            return;
        }
        let (shared, connector) = (self.setup.shared.clone(), self.setup.connector.clone());
        let (addresses, deadline) = (self.setup.addresses.clone(), Instant::now() + self.setup.probe_limit);
        let connect = move || {
            let is_reached = connector.reach(&addresses[peer], ConnectionPurpose::Probe, deadline).is_ok();
            shared.send_command(MonitorCommand::Probed { peer, is_reached });
        };
        // Without a thread, the next check probes again.
        if std::thread::Builder::new().name("ripieno-probe".to_string()).spawn(connect).is_ok() {
            *peer_count += 1;
        }
    }

    /// Handle the end of a probe.
    pub(super) fn end_probe(&mut self, peer: usize, is_reached: bool) {
        self.probes.0.entry(peer).and_modify(|count| *count -= 1);
        if is_reached {
            self.note_reached(peer);
        }
    }

    /// Handle a successful probe of a rank, or by it.
    pub(super) fn note_reached(&mut self, peer: usize) {
        self.setup.shared.note_reached(peer);
        self.events.push_back(MembershipEvent::Reached { peer });
    }
}
