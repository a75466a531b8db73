//! Connections that come in: visitors are heard without blocking, so that a stranger holds up nobody.

use super::{Monitor, Source};
use crate::auth::{Answer, Greeting, Purpose, Refusal, Visitor, least_welcome};
use crate::connector::judge;
use crate::lack::lack;
use crate::stream::Stream;
use ripieno_run::Replicas;
use ripieno_run::membership::Event;
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// A visitor that has not proved itself by then is shown out.
const VISIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long nothing is accepted when the process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What is lacking for so long is not there when it is needed.
const LACK_PATIENCE: Duration = Duration::from_millis(1000);

impl Monitor {
    pub(super) fn watch_listeners(&mut self) -> io::Result<()> {
        epoll::add(&self.epoll, &self.setup.listeners.tcp, Source::Listeners.tag(), epoll::EventFlags::IN)?;
        if let Some((unix, _)) = &self.setup.listeners.unix {
            epoll::add(&self.epoll, unix, Source::Listeners.tag(), epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    fn pause_listeners(&mut self) {
        let _ = epoll::delete(&self.epoll, &self.setup.listeners.tcp);
        if let Some((unix, _)) = &self.setup.listeners.unix {
            let _ = epoll::delete(&self.epoll, unix);
        }
        self.listeners_paused_until = Some(Instant::now() + ACCEPT_PAUSE);
    }

    pub(super) fn accept(&mut self) {
        loop {
            match self.setup.listeners.accept() {
                Ok(Some(stream)) => {
                    self.note_lack(None);
                    self.let_in(stream);
                }
                Ok(None) => return,
                Err(error) if is_about_one_connection(&error) => {}
                // Out of descriptors, say: one that has proved nothing gives its own to the next.
                Err(_) if self.show_one_out() => {}
                // The queue stays readable, so looking again at once would be a busy loop.
                Err(error) => {
                    self.note_lack(lack(&error));
                    return self.pause_listeners();
                }
            }
        }
    }

    /// A rank that lacks something for a while cannot be reached: it says so once it waits for a connection.
    fn note_lack(&mut self, lack: Option<String>) {
        let now = Instant::now();
        self.lacks_since = lack.is_some().then(|| self.lacks_since.unwrap_or(now));
        let is_lasting = self.lacks_since.is_some_and(|since| now - since >= LACK_PATIENCE);
        if is_lasting != self.setup.shared.lacks() {
            self.setup.shared.update(|status| status.lack = lack.filter(|_| is_lasting));
        }
    }

    fn let_in(&mut self, stream: Stream) {
        if self.visitors.len() >= Visitor::most() {
            self.show_one_out();
        }
        let number = self.next_visitor;
        self.next_visitor = self.next_visitor.wrapping_add(1);
        let Ok(visitor) = Visitor::new(stream, Instant::now() + VISIT_TIMEOUT) else { return };
        let tag = Source::Visitor(number).tag();
        if epoll::add(&self.epoll, &visitor.stream, tag, epoll::EventFlags::IN).is_ok() {
            self.visitors.insert(number, visitor);
        }
    }

    /// Makes room for one more; whether that could be done.
    fn show_one_out(&mut self) -> bool {
        let place = least_welcome(self.visitors.values());
        let number = place.and_then(|place| self.visitors.keys().nth(place).copied());
        number.is_some_and(|number| self.visitors.remove(&number).is_some())
    }

    pub(super) fn hear(&mut self, number: u32) {
        let Some(visitor) = self.visitors.remove(&number) else { return };
        let (own, nonce, wires, replicas) = (&self.setup.own, self.setup.nonce, &self.wires, self.setup.replicas);
        let has_left = self.end.is_some();
        let answer = visitor.advance(&self.setup.credentials, &mut |greeting| {
            judge(own, nonce, greeting)?;
            expects(own.rank, replicas, wires, has_left, greeting)
        });
        match answer {
            Answer::Waiting(visitor) => {
                self.visitors.insert(number, visitor);
            }
            Answer::Welcome(stream, greeting) => self.welcome(stream, &greeting),
            // A stranger's visit changes nothing.
            Answer::Refused(..) | Answer::WrongToken(_) | Answer::Stranger => {}
        }
    }

    fn welcome(&mut self, stream: Stream, greeting: &Greeting) {
        let _ = epoll::delete(&self.epoll, &stream);
        let peer = greeting.from as usize;
        match greeting.purpose {
            Purpose::Control => {
                if self.add_wire(peer, stream).is_ok() {
                    self.events.push_back(Event::Connected { peer });
                    self.handle_events();
                }
            }
            Purpose::Data => (self.setup.take_link)(peer, stream),
            Purpose::Agreement => self.add_kin(peer, stream),
            Purpose::Rendezvous | Purpose::Member => {}
        }
    }

    pub(super) fn show_out_late_visitors(&mut self) {
        let now = Instant::now();
        self.visitors.retain(|_, visitor| visitor.deadline > now);
        if self.listeners_paused_until.is_some_and(|until| until <= now) {
            self.listeners_paused_until = None;
            if self.watch_listeners().is_err() {
                self.pause_listeners();
            }
        }
    }
}

/// Whether this rank expects such a connection: control comes to hubs, once per rank, from the higher one of two hubs;
/// of a pair of ranks the lower one opens the link.
fn expects(
    own: usize,
    replicas: Replicas,
    wires: &BTreeMap<usize, super::wire::Wire>,
    has_left: bool,
    greeting: &Greeting,
) -> Result<(), Refusal> {
    let peer = greeting.from as usize;
    match greeting.purpose {
        Purpose::Control if replicas.logical(own) != 0 => Err(Refusal::Purpose),
        Purpose::Control if replicas.logical(peer) == 0 && peer < own => Err(Refusal::Purpose),
        Purpose::Control if wires.contains_key(&peer) => Err(Refusal::Taken),
        Purpose::Data if peer > own => Err(Refusal::Purpose),
        Purpose::Agreement if has_left => Err(Refusal::Purpose),
        _ => Ok(()),
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
