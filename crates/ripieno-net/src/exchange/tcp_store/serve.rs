//! Rank 0's side of the store: collects all strings and distributes them, or reports a failure to all ranks.

use super::member::StoreMember;
use super::message::{ExchangeVerdict, StoreMessage, encode};
use crate::acceptor::Acceptor;
use crate::auth::{Answer, ConnectionPurpose, Greeting, Refusal, send_wrong_token};
use crate::config::{Config, Ports};
use crate::error::NetError;
use crate::host::Addresses;
use crate::listeners::{ListenerSet, bind_first};
use crate::stream::Stream;
use ripieno_run::JobFailure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Time for which the store stays open after a failure, to report the reason to late ranks.
const LINGER_TIMEOUT: Duration = Duration::from_millis(1000);

pub struct StoreServer {
    config: Config,
    acceptor: Acceptor,
    members: BTreeMap<usize, StoreMember>,
    verdict: Option<ExchangeVerdict>,
    /// Number of calls with another token, from unauthenticated peers or misconfigured ranks.
    wrong_token_count: usize,
    started: Instant,
}

impl StoreServer {
    pub fn listen(config: &Config, host: &str, port: u16) -> Result<StoreServer, NetError> {
        let bind_error = |error: io::Error| NetError::Bind {
            rank: 0,
            host: host.to_string(),
            ports: port.to_string(),
            cause: error.to_string(),
        };
        let named = Addresses::of_name(host).map_err(bind_error)?;
        let named: Vec<IpAddr> = named.usable.iter().chain(&named.loopback).copied().collect();
        let listener = bind_first(&named, Ports::single(port)).or_else(|error| match error.kind() {
            // The name may belong to a service that forwards to this host.
            io::ErrorKind::AddrNotAvailable => {
                bind_first(&[Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()], Ports::single(port))
            }
            _ => Err(error),
        });
        let acceptor =
            listener.and_then(|listener| Acceptor::new(ListenerSet::new(listener, None)?)).map_err(bind_error)?;
        Ok(StoreServer {
            config: config.clone(),
            acceptor,
            members: BTreeMap::new(),
            verdict: None,
            wrong_token_count: 0,
            started: Instant::now(),
        })
    }

    /// Collect and distribute all strings. On failure, report the reason to all present and late ranks for
    /// [`LINGER_TIMEOUT`].
    pub fn serve(&mut self, mine: &str, deadline: Instant) -> Result<Vec<String>, NetError> {
        while self.verdict.is_none() && self.waiting_for().next().is_some() {
            self.turn(deadline);
            if Instant::now() >= deadline && self.verdict.is_none() {
                self.verdict = Some(self.missing());
            }
        }
        let texts = self.members.values().filter_map(|member| member.text.clone());
        let strings: Vec<String> = std::iter::once(mine.to_string()).chain(texts).collect();
        if self.verdict.is_none() {
            let message = encode(&StoreMessage::All(strings.clone()));
            self.members.values_mut().for_each(|member| member.outbox.extend(&message));
        }
        while self.verdict.is_none() && self.members.values().any(|member| !member.outbox.is_empty()) {
            self.turn(deadline);
            if Instant::now() >= deadline {
                self.verdict = Some(self.missing());
            }
        }
        match self.verdict.clone() {
            None => Ok(strings),
            Some(verdict) => {
                self.send_goodbyes(&verdict);
                Err(verdict.error(0))
            }
        }
    }

    /// Return the failure of a member that has disconnected since the exchange.
    pub fn lost(&mut self) -> Option<JobFailure> {
        let all: Vec<usize> = self.members.keys().copied().collect();
        all.into_iter().for_each(|rank| self.serve_member(rank));
        match &self.verdict {
            Some(ExchangeVerdict::Failed(failure)) => Some(failure.clone()),
            _ => None,
        }
    }

    /// Return whether no member is connected.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn waiting_for(&self) -> impl Iterator<Item = usize> {
        (1..self.config.world_size).filter(|rank| self.members.get(rank).is_none_or(|member| member.text.is_none()))
    }

    fn missing(&self) -> ExchangeVerdict {
        let unauthenticated_count = match self.wrong_token_count {
            0 => String::new(),
            count => format!("; {count} calls came with another token"),
        };
        ExchangeVerdict::Missing {
            missing: self.waiting_for().collect(),
            cause: format!("they did not connect to rank 0{unauthenticated_count}"),
            elapsed_ms: self.started.elapsed().as_millis() as u64,
        }
    }

    fn send_goodbyes(&mut self, verdict: &ExchangeVerdict) {
        let message = encode(&StoreMessage::Verdict(verdict.clone()));
        let end = Instant::now() + LINGER_TIMEOUT;
        let mut notified = std::collections::BTreeSet::new();
        loop {
            for (&rank, member) in &mut self.members {
                if notified.insert(rank) {
                    // A partly sent list of strings cannot be revoked. Its reader detects the end of the connection.
                    member.outbox.extend(&message);
                }
            }
            let all_notified = notified.len() + 1 == self.config.world_size;
            let all_sent = self.members.values().all(|member| member.outbox.is_empty() || member.has_left);
            if (all_notified && all_sent) || Instant::now() >= end {
                return;
            }
            self.turn(end);
        }
    }

    /// Wait for events and handle them.
    pub fn turn(&mut self, deadline: Instant) {
        let (has_caller, members_ready) = self.poll(deadline);
        members_ready.into_iter().for_each(|rank| self.serve_member(rank));
        if has_caller || self.acceptor.due().is_some_and(|due| due <= Instant::now()) {
            self.receive();
        }
    }

    fn poll(&self, deadline: Instant) -> (bool, Vec<usize>) {
        let connected: Vec<(&usize, &StoreMember)> =
            self.members.iter().filter(|(_, member)| !member.has_left).collect();
        let mut polled = vec![PollFd::new(&self.acceptor, PollFlags::IN)];
        polled.extend(connected.iter().map(|(_, member)| {
            let writable = if member.outbox.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            PollFd::new(&member.stream, PollFlags::IN | writable)
        }));
        let next = self.acceptor.due().map_or(deadline, |due| due.min(deadline));
        let timeout = next.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        // An interrupted wait reports no event.
        let _ = poll(&mut polled, Some(&timeout));
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        let members = connected.iter().zip(&ready[1..]).filter(|(_, ready)| **ready).map(|((rank, _), _)| **rank);
        (ready[0], members.collect())
    }

    fn receive(&mut self) {
        let credentials = self.config.credentials();
        loop {
            let (world_size, members) = (self.config.world_size as u32, &self.members);
            let answer = self.acceptor.next_answer(&credentials, &mut |greeting: &Greeting| match greeting {
                greeting if greeting.purpose != ConnectionPurpose::Rendezvous => Err(Refusal::Purpose),
                greeting if greeting.world_size != world_size => Err(Refusal::WorldSize(world_size)),
                greeting if greeting.from == 0 || greeting.from >= world_size => Err(Refusal::Rank(0)),
                greeting if members.contains_key(&(greeting.from as usize)) => Err(Refusal::Taken),
                _ => Ok(()),
            });
            match answer {
                Some(Answer::Accepted(stream, greeting)) => self.admit(greeting.from as usize, stream),
                Some(Answer::Refused(greeting, refusal)) => self.refuse(&greeting, refusal),
                Some(Answer::WrongToken(mut stream)) => {
                    self.wrong_token_count += 1;
                    send_wrong_token(&mut stream);
                }
                Some(Answer::Waiting(_) | Answer::Unauthenticated) => {}
                None => return,
            }
        }
    }

    fn admit(&mut self, rank: usize, stream: Stream) {
        self.members.insert(rank, StoreMember::new(stream));
        self.serve_member(rank);
    }

    /// Fail the exchange: a caller that knows the token but does not fit is a misconfigured rank of this job.
    fn refuse(&mut self, greeting: &Greeting, refusal: Refusal) {
        let (peer, own) = (greeting.from as usize, self.config.world_size);
        let cause = match refusal {
            Refusal::WorldSize(_) => format!("their world sizes differ: {own} and {}", greeting.world_size),
            Refusal::Taken => format!("two processes connected as rank {peer}"),
            Refusal::Rank(_) => format!("a second process connected as rank {peer} of {own}"),
            Refusal::Tls(true) => {
                format!("rank {peer} does not encrypt connections like this one (tls) and rank 0 does")
            }
            Refusal::Tls(false) => format!("rank {peer} encrypts connections like this one (tls) and rank 0 does not"),
            Refusal::Job | Refusal::Purpose => return,
        };
        self.verdict.get_or_insert(ExchangeVerdict::Disagree { peer, cause });
    }

    /// Read the bytes that a member has sent and write as much as its socket accepts.
    fn serve_member(&mut self, rank: usize) {
        let Some(member) = self.members.get_mut(&rank) else { return };
        if member.has_left {
            return;
        }
        if let Err(cause) = member.read().and_then(|()| member.send()) {
            member.has_left = true;
            let host = member.host.clone();
            let failure = JobFailure::RankFailed { rank, host, cause, traceback: String::new() };
            self.verdict.get_or_insert(ExchangeVerdict::Failed(failure));
        }
    }
}
