//! Probes of silent ranks: new connections, which show both ends that the other process lives.
//!
//! A probe succeeds at once after an outage, while TCP retransmits on older connections only after a pause. Probes of a
//! rank overlap, because a connection request that was lost is repeated late, too.
//! Cost: one short-lived thread per probe. Ranks of the same host are not probed: no network can fail between them.

use crate::auth::ConnectionPurpose;
use crate::connector::Connector;
use crate::peer_address::PeerAddress;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limit of concurrent probes of one rank.
const PROBES_PER_PEER: usize = 8;
/// Limit of concurrent probes. If more ranks are silent, those that are not probed probe this rank.
const PROBES_MAX: usize = 64;

/// The number of probes in progress, by rank.
#[derive(Default)]
pub(crate) struct LivenessProbes(BTreeMap<usize, usize>);

impl LivenessProbes {
    /// Try for the time `limit` to connect to a rank of another host, on a new thread. At the end, the thread passes to
    /// `report` whether it was reached, and the owner calls [`end`](Self::end).
    pub fn begin(
        &mut self,
        connector: &Arc<Connector>,
        address: &PeerAddress,
        limit: Duration,
        report: impl FnOnce(bool) + Send + 'static,
    ) {
        let probe_count: usize = self.0.values().sum();
        let is_local = address.identity == connector.own.identity;
        let peer_count = self.0.entry(address.rank).or_default();
        if is_local || probe_count >= PROBES_MAX || *peer_count >= PROBES_PER_PEER {
            return;
        }
        let (connector, address, deadline) = (connector.clone(), address.clone(), Instant::now() + limit);
        let connect = move || report(connector.reach(&address, ConnectionPurpose::Probe, deadline).is_ok());
        // Without a thread, the next check probes again.
        if std::thread::Builder::new().name("ripieno-probe".to_string()).spawn(connect).is_ok() {
            *peer_count += 1;
        }
    }

    /// Handle the end of a probe.
    pub fn end(&mut self, peer: usize) {
        self.0.entry(peer).and_modify(|count| *count -= 1);
    }
}
