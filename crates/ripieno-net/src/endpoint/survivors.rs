//! Builds a smaller world from the survivors of a failed world.
//!
//! The monitor of the first world stays alive and answers late participants of the agreement. Listeners, links,
//! membership and the job nonce are new in every world. Messages in flight in the old world never reach the new one.

use super::topology::topology;
use super::{Endpoint, LinkSlot, MonitorHandle, connect_to_hubs};
use crate::config::Config;
use crate::connector::Connector;
use crate::error::NetError;
use crate::exchange::Exchange;
use crate::listeners::Listeners;
use crate::monitor::{AgreementOutcome, MonitorCommand, MonitorShared};
use crate::peer_address::PeerAddress;
use ripieno_run::membership::agreement::{AgreementEvent, Decision};
use ripieno_run::{JobFailure, LinkError, ShrinkError, ShrunkWorld};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between two calls of the user callback, which returns whether to stop waiting.
const INTERRUPT_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time beyond the failure timeout of a silent rank, within which agreed survivors connect.
const CONNECT_MARGIN: Duration = Duration::from_secs(1);
/// Attempts to connect agreed survivors, when the attempts fail although no survivor ends.
const CONNECT_ATTEMPTS_MAX: usize = 8;
/// Limit of the world size: every rank receives the addresses of all ranks, so larger worlds do not shrink.
const WORLD_SIZE_MAX: usize = 4096;

/// The world before the first failure. Agreements identify all ranks by their numbers in it.
pub(super) struct FirstWorld {
    config: Config,
    addresses: Arc<Vec<PeerAddress>>,
    monitor_handle: Arc<MonitorHandle>,
}

impl FirstWorld {
    pub fn of(
        config: &Config,
        addresses: &Arc<Vec<PeerAddress>>,
        monitor_handle: &Arc<MonitorHandle>,
    ) -> Arc<FirstWorld> {
        Arc::new(FirstWorld {
            config: config.clone(),
            addresses: addresses.clone(),
            monitor_handle: monitor_handle.clone(),
        })
    }

    /// Return the shared state of the monitor that runs the agreements.
    pub fn monitored(&self) -> &Arc<MonitorShared> {
        &self.monitor_handle.shared
    }

    /// Start an agreement on this rank and return its outcome.
    fn agree(&self, address: String, interrupt: &mut dyn FnMut() -> bool) -> Result<AgreementOutcome, ShrinkError> {
        let shared = self.monitored();
        shared.update(|status| status.outcome = None);
        shared.send_command(MonitorCommand::Agreement(AgreementEvent::Begin { address }));
        loop {
            // The state machine of the agreement ends by itself when it gives up.
            let status = shared.wait(INTERRUPT_CHECK_INTERVAL, |status| status.outcome.is_some() || status.over);
            if let Some(outcome) = status.outcome {
                return Ok(outcome);
            }
            if status.over {
                return Ok(AgreementOutcome::GaveUp("its monitor has ended".to_string()));
            }
            if interrupt() {
                return Err(ShrinkError::Interrupted);
            }
        }
    }

    /// Return the addresses of the ranks of a new world.
    fn addresses(&self, decision: &Decision) -> Result<Vec<PeerAddress>, NetError> {
        let world_size = decision.members.len();
        let address = |(rank, &member): (usize, &usize)| {
            let address = decision.addresses.get(&member).ok_or_else(|| self.ended_early(member))?;
            let address = PeerAddress::read(&self.config, member, address)?;
            Ok(address.in_world(rank, world_size))
        };
        decision.members.iter().enumerate().map(address).collect()
    }

    fn ended_early(&self, rank: usize) -> NetError {
        let cause = "it ended while the survivors agreed".to_string();
        NetError::Failed(JobFailure::RankFailed {
            rank,
            host: self.addresses[rank].host.clone(),
            cause,
            traceback: String::new(),
        })
    }
}

/// The exchange among agreed survivors: their addresses are already known, so it only reports ended ranks.
struct AgreedSurvivors<'a> {
    first: &'a FirstWorld,
    members: &'a [usize],
}

impl Exchange for AgreedSurvivors<'_> {
    fn exchange(&mut self, _mine: &str) -> Result<Vec<String>, NetError> {
        unreachable!("survivors know each other's addresses")
    }

    fn lost(&mut self) -> Option<JobFailure> {
        let ended = self.first.monitor_handle.shared.status().ended;
        let rank = self.members.iter().position(|member| ended.contains(member))?;
        let NetError::Failed(JobFailure::RankFailed { host, cause, .. }) = self.first.ended_early(self.members[rank])
        else {
            return None;
        };
        Some(JobFailure::RankFailed { rank, host, cause, traceback: String::new() })
    }
}

impl Endpoint {
    /// Agree with the other survivors of this world and connect to them in a new world.
    pub(super) fn shrink_world(&mut self, interrupt: &mut dyn FnMut() -> bool) -> Result<ShrunkWorld, ShrinkError> {
        let Some(first) = self.first.clone() else {
            return Err(ShrinkError::Unsupported("it is closed"));
        };
        if self.config.replicas > 1 {
            return Err(ShrinkError::Unsupported("replicas continue in place of failed ranks"));
        }
        if first.config.world_size > WORLD_SIZE_MAX {
            return Err(ShrinkError::Unsupported("it has more than 4096 ranks"));
        }
        for slot in &mut self.slots {
            *slot =
                LinkSlot::Broken(LinkError::Closed { cause: "its world has been left for a smaller one".to_string() });
        }
        let former = self.members.clone();
        let mut last = None;
        for _ in 0..CONNECT_ATTEMPTS_MAX + former.len() {
            let listeners = Listeners::open(&first.config).map_err(|error| self.excluded_failure(error.to_string()))?;
            let own = PeerAddress::new(&first.config, &listeners)
                .map_err(|error| self.excluded_failure(error.to_string()))?;
            let decision = match first.agree(own.encode(), interrupt)? {
                AgreementOutcome::Decided(decision) => decision,
                AgreementOutcome::Excluded => {
                    let cause = "it was silent, or did not call shrink(), and the others continued without it";
                    return Err(self.excluded_failure(cause.to_string()).into());
                }
                AgreementOutcome::GaveUp(cause) => return Err(self.excluded_failure(cause).into()),
            };
            match Endpoint::connect_survivors(&first, &decision, listeners) {
                Ok(endpoint) => {
                    let place = |member| former.iter().position(|rank| rank == member);
                    let survivors = decision.members.iter().filter_map(place).collect();
                    let job = endpoint.job().to_string();
                    return Ok(ShrunkWorld { fabric: Box::new(endpoint), survivors, job });
                }
                // Another rank has ended meanwhile: try again.
                Err(error) => last = Some(error),
            }
        }
        let cause = last.map_or_else(String::new, |error| error.to_string());
        Err(self.excluded_failure(format!("the survivors agreed repeatedly but could not connect: {cause}")).into())
    }

    fn excluded_failure(&self, cause: String) -> JobFailure {
        let rank = self.config.rank;
        JobFailure::RankFailed { rank, host: self.host(rank).to_string(), cause, traceback: String::new() }
    }

    fn connect_survivors(
        first: &Arc<FirstWorld>,
        decision: &Decision,
        listeners: Listeners,
    ) -> Result<Endpoint, NetError> {
        let addresses = first.addresses(decision)?;
        let rank = decision.members.iter().position(|&member| member == first.config.rank);
        let config = Config {
            rank: rank.expect("a rank that meets the survivors is one of them"),
            world_size: addresses.len(),
            rendezvous_timeout: first.config.heartbeat_timeout + CONNECT_MARGIN,
            ..first.config.clone()
        };
        let deadline = Instant::now() + config.rendezvous_timeout;
        let topology = topology(&config, &addresses)?;
        let connector = Connector::new(&config, addresses[config.rank].clone(), addresses[0].job_nonce());
        let mut agreed = AgreedSurvivors { first, members: &decision.members };
        let hubs = connect_to_hubs(&config, &connector, &addresses, &mut agreed, deadline)?;
        let mut endpoint =
            Endpoint::start(config, addresses, topology, listeners, connector, hubs, Some(first.clone()))?;
        endpoint.members = decision.members.clone();
        match endpoint.wait_for_all(&mut agreed, deadline) {
            Ok(()) => Ok(endpoint),
            Err(error) => {
                endpoint.close();
                Err(error)
            }
        }
    }
}
