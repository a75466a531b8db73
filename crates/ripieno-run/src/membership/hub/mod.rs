//! The machine of a rank that watches all others: the first failure it hears of is the job's.

mod inquire;
mod lose;

use super::history::Lasts;
use super::inquiry::Inquiry;
use super::waits::Waits;
use super::{Event, History, Message, Output, Pulse, Request, Timing, rank_failed, silent};
use crate::call::{CollectiveId, Told};
use crate::fabric::Failure;
use crate::replicas::{Losses, Replicas};
use inquire::{Difference, Stall};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a rank whose link closed has to die, or to say why, before its link alone convicts it.
pub(super) const GRACE: Duration = Duration::from_millis(1000);
/// How long a mismatch waits for the calls of ranks that have not answered.
pub(super) const ANSWER_WAIT: Duration = Duration::from_millis(200);

/// Where a rank stands.
#[derive(Clone, Debug, PartialEq)]
enum Standing {
    /// It has not come.
    Awaited,
    /// It takes part.
    Present,
    /// It has left in good order after these collectives.
    Left(Lasts),
    /// It has died, but a replica of it lives.
    Lost,
}

#[derive(Clone, Debug)]
struct Member {
    standing: Standing,
    heard: Duration,
}

/// The machine of a rank that watches all others.
pub struct Hub {
    own: usize,
    hosts: Arc<[String]>,
    replicas: Replicas,
    losses: Losses,
    members: Vec<Member>,
    present_count: usize,
    awaited_count: usize,
    join_deadline: Duration,
    join_timeout: Duration,
    pulse: Pulse,
    suspects: BTreeMap<usize, (Duration, Failure)>,
    inquiries: BTreeMap<CollectiveId, Inquiry>,
    difference: Option<Difference>,
    waits: Waits,
    failure: Option<Failure>,
    /// Whose death that is, if it died before all had come.
    early_death: Option<usize>,
}

impl Hub {
    /// The machine of rank `own`, to which nobody has come yet.
    pub fn new(own: usize, hosts: Arc<[String]>, replicas: Replicas, timing: Timing, now: Duration) -> Hub {
        let member = Member { standing: Standing::Awaited, heard: now };
        let mut members = vec![member; hosts.len()];
        members[own].standing = Standing::Present;
        Hub {
            awaited_count: members.len() - 1,
            present_count: 0,
            members,
            own,
            hosts,
            replicas,
            losses: Losses::new(replicas),
            join_deadline: now + timing.join_timeout,
            join_timeout: timing.join_timeout,
            pulse: Pulse::new(now, timing),
            suspects: BTreeMap::new(),
            inquiries: BTreeMap::new(),
            difference: None,
            waits: Waits::default(),
            failure: None,
            early_death: None,
        }
    }

    /// When the machine wants its next tick.
    pub fn next_tick(&self) -> Duration {
        let suspects = self.suspects.values().map(|(due, _)| *due);
        let inquiries = self.inquiries.values().filter_map(|inquiry| inquiry.due);
        let difference = self.difference.as_ref().map(|difference| difference.due);
        suspects.chain(inquiries).chain(difference).fold(self.pulse.next_check, Duration::min)
    }

    /// Takes an event.
    pub fn handle(&mut self, now: Duration, event: Event, history: &History) -> Vec<Output> {
        if self.pulse.stood_still(now) {
            self.members.iter_mut().for_each(|member| member.heard = now);
        }
        match event {
            Event::Connected { peer } => self.admit(now, peer),
            Event::Received { peer, .. } if self.members[peer].standing == Standing::Lost => vec![],
            Event::Received { peer, message } => {
                self.members[peer].heard = now;
                self.receive(now, peer, message, history)
            }
            Event::Closed { peer, cause } => match &self.members[peer].standing {
                Standing::Present => self.lose(peer, rank_failed(peer, &self.hosts, cause)),
                Standing::Awaited | Standing::Left(_) | Standing::Lost => vec![],
            },
            Event::Request(request) => self.request(now, request, history),
            Event::Tick => self.tick(now),
        }
    }

    fn admit(&mut self, now: Duration, peer: usize) -> Vec<Output> {
        match self.members[peer].standing {
            Standing::Awaited => {}
            // Another hub has admitted it before.
            Standing::Present => {
                self.members[peer].heard = now;
                return self.news().map(|message| Output::Send { to: peer, message }).collect();
            }
            Standing::Left(_) | Standing::Lost => return vec![],
        }
        self.members[peer] = Member { standing: Standing::Present, heard: now };
        self.present_count += 1;
        self.awaited_count -= 1;
        if let Some(failure) = self.failure.clone() {
            return vec![Output::Send { to: peer, message: Message::Failed(failure) }];
        }
        if self.awaited_count > 0 {
            return vec![];
        }
        let mut outputs = self.tell_all(&Message::Complete);
        outputs.push(Output::Complete);
        outputs
    }

    fn receive(&mut self, now: Duration, from: usize, message: Message, history: &History) -> Vec<Output> {
        match message {
            Message::Report(failure) => self.fail(failure),
            Message::Suspect { peer, cause } => self.suspect(now, from, peer as usize, &cause),
            Message::Stalled { call, peers, blocking } => {
                let peers = peers.iter().map(|&peer| peer as usize).collect();
                self.stalled(now, from, &Stall { told: call.into(), peers, blocking }, history)
            }
            Message::Differs { call, peer, theirs } => {
                let theirs = Told::untold(theirs.0);
                self.differs(now, [(from, call.into()), (peer as usize, theirs)], history)
            }
            Message::Form { form, words } => self.form_told(from, form, &words),
            Message::Answer { communicator, sequence, call } => {
                self.answer(now, from, CollectiveId { communicator, sequence }, call.map(Told::from))
            }
            Message::Complete if self.replicas.logical(from) == 0 => self.all_have_come(now),
            Message::Goodbye { lasts, has_forgotten, form } => {
                let headers = lasts.into_iter().map(|last| last.0).collect();
                self.part_with(from, Lasts { headers, has_forgotten, form })
            }
            _ => vec![],
        }
    }

    fn request(&mut self, now: Duration, request: Request, history: &History) -> Vec<Output> {
        match request {
            Request::Report(failure) => self.fail(failure),
            Request::Suspect { peer, cause } => self.suspect(now, self.own, peer, &cause),
            Request::Stalled { header, peers, blocking } => {
                self.stalled(now, self.own, &Stall { told: history.told(header), peers, blocking }, history)
            }
            Request::Differs { mine, peer, theirs } => {
                self.differs(now, [(self.own, history.told(mine)), (peer, Told::untold(theirs))], history)
            }
            Request::Leave => {
                self.members[self.own].standing = Standing::Left(history.lasts());
                // Other hubs stay after they have left, until the last rank has.
                let stays = |rank: &usize| match self.members[*rank].standing {
                    Standing::Present => true,
                    Standing::Left(_) => self.replicas.logical(*rank) == 0,
                    Standing::Awaited | Standing::Lost => false,
                };
                let goodbye = history.lasts().goodbye();
                let told = self.others().filter(stays).map(|to| Output::Send { to, message: goodbye.clone() });
                told.chain(self.finished()).collect()
            }
        }
    }

    fn part_with(&mut self, peer: usize, lasts: Lasts) -> Vec<Output> {
        if self.members[peer].standing == Standing::Present {
            self.members[peer].standing = Standing::Left(lasts);
            self.present_count -= 1;
        }
        self.finished().into_iter().collect()
    }

    fn finished(&self) -> Option<Output> {
        let hub_left = matches!(self.members[self.own].standing, Standing::Left(_));
        let nobody_works = self.present_count == 0 || self.failure.is_some();
        (hub_left && nobody_works && self.awaited_count == 0).then_some(Output::Finished)
    }

    fn suspect(&mut self, now: Duration, from: usize, peer: usize, cause: &str) -> Vec<Output> {
        match self.members.get(peer).map(|member| &member.standing) {
            Some(Standing::Left(_) | Standing::Lost) if self.has_copy_at_work(peer) => vec![],
            Some(Standing::Left(lasts)) => {
                let cause = format!("left the job while rank {from} still needed it ({})", name_last(lasts));
                self.fail(rank_failed(peer, &self.hosts, cause))
            }
            Some(_) => {
                let cause = format!("its link to rank {from} closed: {cause}");
                let failure = rank_failed(peer, &self.hosts, cause);
                self.suspects.entry(peer).or_insert((now + GRACE, failure));
                vec![]
            }
            None => vec![],
        }
    }

    fn tick(&mut self, now: Duration) -> Vec<Output> {
        let mut outputs = Vec::new();
        let due = self.inquiries.iter().find(|(_, inquiry)| inquiry.due.is_some_and(|due| due <= now));
        if let Some((id, calls)) = due.map(|(&id, inquiry)| (id, inquiry.calls.clone())) {
            outputs.extend(self.tell_mismatch(id, &calls));
        }
        if self.difference.as_ref().is_some_and(|difference| difference.due <= now) {
            outputs.extend(self.tell_difference());
        }
        let due = self.suspects.iter().find(|(_, (due, _))| *due <= now).map(|(&peer, _)| peer);
        if let Some((peer, (_, failure))) = due.and_then(|peer| self.suspects.remove_entry(&peer)) {
            outputs.extend(self.lose(peer, failure));
        }
        if self.pulse.check_is_due(now) {
            outputs.extend(self.check(now));
        }
        if self.pulse.beat_is_due(now) {
            outputs.extend(self.tell_all(&Message::Heartbeat));
        }
        outputs
    }

    fn check(&mut self, now: Duration) -> Vec<Output> {
        let late = self.awaited_count > 0 && now >= self.join_deadline;
        if late && self.failure.is_none() {
            let missing = self.members.iter().position(|member| member.standing == Standing::Awaited);
            let cause = format!("did not come within {:.1} s", self.join_timeout.as_secs_f64());
            return missing.map(|rank| self.fail(rank_failed(rank, &self.hosts, cause))).unwrap_or_default();
        }
        let timeout = self.pulse.timing.heartbeat_timeout;
        let silence = |member: &Member| now.saturating_sub(member.heard);
        let is_dead = |member: &Member| member.standing == Standing::Present && silence(member) > timeout;
        let dead = self.others().find(|&rank| is_dead(&self.members[rank]));
        let dead = dead.map(|rank| (rank, silent(rank, &self.hosts, silence(&self.members[rank]))));
        dead.map(|(rank, failure)| self.lose(rank, failure)).unwrap_or_default()
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.own;
        (0..self.members.len()).filter(move |&rank| rank != own)
    }

    /// The first failure is the job's: told to all, once.
    fn fail(&mut self, failure: Failure) -> Vec<Output> {
        if self.failure.is_some() {
            return vec![];
        }
        self.failure = Some(failure.clone());
        self.suspects.clear();
        self.inquiries.clear();
        let mut outputs = self.tell_all(&Message::Failed(failure.clone()));
        outputs.push(Output::Failed(failure));
        outputs.extend(self.finished());
        outputs
    }

    fn tell_all(&self, message: &Message) -> Vec<Output> {
        let present = |rank: &usize| self.members[*rank].standing == Standing::Present;
        self.others().filter(present).map(|to| Output::Send { to, message: message.clone() }).collect()
    }
}

fn name_last(lasts: &Lasts) -> String {
    match lasts.headers.first() {
        Some(last) => format!("its last was {}, {}", last.collective_id(), last.call),
        None => "it took part in none".to_string(),
    }
}
