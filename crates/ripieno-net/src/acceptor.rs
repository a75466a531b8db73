//! Provides the acceptor, which accepts and authenticates connections without blocking. An unauthenticated peer
//! delays no other peer.
//!
//! One epoll set watches the listeners and all pending connections. The owner polls its descriptor next to its other
//! descriptors. The acceptor reads from a new connection immediately. The first bytes usually suffice to recognize an
//! unauthenticated peer. The acceptor closes its connection, finishes the current step, and pauses accepting for
//! [`REJECTION_PAUSE`]. Afterwards it handles all queued connections as one batch. A flood therefore does not wake the
//! owner more often. Cost: a few system calls per unauthenticated peer, and one wake-up for all connections that arrive
//! within [`REJECTION_PAUSE`].

use crate::auth::{Answer, Greeting, PendingConnection, Refusal, connection_to_evict};
use crate::config::Credentials;
use crate::listeners::ListenerSet;
use crate::shortage::shortage;
use rustix::event::{Timespec, epoll};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A pending connection that has not authenticated within this time is closed.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause of accepting after an unauthenticated peer. The listen backlog holds 1000 connections meanwhile.
const REJECTION_PAUSE: Duration = Duration::from_millis(10);
/// Pause of accepting when the process has no descriptors left.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);
/// A resource that is exhausted for this long is reported as exhausted.
const SHORTAGE_REPORTED_AFTER: Duration = Duration::from_millis(1000);
/// Connections accepted before the owner gets a chance to handle its other work.
const ACCEPTS_PER_STEP: usize = 256;

const EVENTS_MAX: usize = 256;
/// Epoll tag of the listeners; pending connections use their numbers as tags.
const LISTENERS: u64 = u64::MAX;

/// Listeners and the pending connections that they accepted.
pub(crate) struct Acceptor {
    listeners: ListenerSet,
    epoll: OwnedFd,
    /// Keyed by number, so the oldest connection comes first.
    pending_connections: BTreeMap<u64, PendingConnection>,
    next_number: u64,
    /// Time until which the listeners are not watched.
    paused_until: Option<Instant>,
    step: Option<AcceptStep>,
    /// The resource that the process lacks to accept connections, and the start of the shortage.
    shortage: Option<(Instant, String)>,
}

/// Remaining work for the events that the last poll returned.
struct AcceptStep {
    readable: Vec<u64>,
    /// Number of connections that may still be accepted, if the listeners are watched.
    accept_limit: Option<usize>,
    /// Length of the pause after this step.
    pause: Option<Duration>,
}

impl Acceptor {
    pub fn new(listeners: ListenerSet) -> io::Result<Acceptor> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for listener in listeners.sockets() {
            epoll::add(&epoll, listener, epoll::EventData::new_u64(LISTENERS), epoll::EventFlags::IN)?;
        }
        Ok(Acceptor {
            listeners,
            epoll,
            pending_connections: BTreeMap::new(),
            next_number: 0,
            paused_until: None,
            step: None,
            shortage: None,
        })
    }

    /// Return the time at which the owner must call again, even if no event arrives.
    pub fn due(&self) -> Option<Instant> {
        let oldest = self.pending_connections.values().next().map(|pending| pending.deadline);
        oldest.into_iter().chain(self.paused_until).min()
    }

    /// Return the resource that the process has lacked for at least [`SHORTAGE_REPORTED_AFTER`], if any.
    pub fn lasting_shortage(&self) -> Option<&str> {
        let shortage = self.shortage.as_ref().filter(|(since, _)| since.elapsed() >= SHORTAGE_REPORTED_AFTER);
        shortage.map(|(_, cause)| cause.as_str())
    }

    /// Return the next authenticated peer, or the next peer with another token; `None` if none is available now.
    /// `authorize` decides whether to accept an authenticated peer.
    pub fn next_answer(
        &mut self,
        credentials: &Credentials,
        authorize: &mut dyn FnMut(&Greeting) -> Result<(), Refusal>,
    ) -> Option<Answer> {
        while let Some((number, pending)) = self.next() {
            match pending.advance(credentials, authorize) {
                Answer::Waiting(pending) => self.store_pending(number, pending),
                Answer::Unauthenticated => self.pause_after_step(REJECTION_PAUSE),
                Answer::WrongToken(stream) => {
                    self.pause_after_step(REJECTION_PAUSE);
                    return Some(Answer::WrongToken(stream));
                }
                Answer::Accepted(stream, greeting) => {
                    let _ = epoll::delete(&self.epoll, &stream);
                    return Some(Answer::Accepted(stream, greeting));
                }
                refused @ Answer::Refused(..) => return Some(refused),
            }
        }
        None
    }

    /// Return the next connection that may have data to read, and its number unless it is new.
    fn next(&mut self) -> Option<(Option<u64>, PendingConnection)> {
        if self.step.is_none() {
            self.step = Some(self.poll_events());
        }
        while let Some(number) = self.step.as_mut()?.readable.pop() {
            if let Some(pending) = self.pending_connections.remove(&number) {
                return Some((Some(number), pending));
            }
        }
        let accepted = self.accept_next();
        if accepted.is_none() {
            self.end_step();
        }
        accepted.map(|pending| (None, pending))
    }

    fn poll_events(&mut self) -> AcceptStep {
        let now = Instant::now();
        let count = self.pending_connections.len();
        self.pending_connections.retain(|_, pending| pending.deadline > now);
        let pause = (self.pending_connections.len() < count).then_some(REJECTION_PAUSE);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        // An interrupted poll reports no event.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&Timespec::default()));
        let mut readable: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
        let may_accept = readable.contains(&LISTENERS) || self.paused_until.is_some_and(|until| until <= now);
        readable.retain(|&number| number != LISTENERS);
        AcceptStep { readable, accept_limit: may_accept.then_some(ACCEPTS_PER_STEP), pause }
    }

    fn accept_next(&mut self) -> Option<PendingConnection> {
        while let Some(accept_limit @ 1..) = self.step.as_mut()?.accept_limit.as_mut() {
            *accept_limit -= 1;
            match self.listeners.accept() {
                Ok(Some(stream)) => {
                    self.shortage = None;
                    if let Ok(pending) = PendingConnection::new(stream, Instant::now() + AUTHENTICATION_TIMEOUT) {
                        return Some(pending);
                    }
                }
                Ok(None) => return None,
                Err(error) if is_about_one_connection(&error) => self.pause_after_step(REJECTION_PAUSE),
                // For example, the process has no free descriptor: close a pending connection to free one.
                Err(_) if self.evict_one() => {}
                Err(error) => {
                    let since = self.shortage.take().map_or_else(Instant::now, |(since, _)| since);
                    self.shortage = shortage(&error).map(|cause| (since, cause));
                    self.pause_after_step(SHORTAGE_PAUSE);
                    return None;
                }
            }
        }
        None
    }

    /// Store a pending connection until it sends more.
    fn store_pending(&mut self, number: Option<u64>, pending: PendingConnection) {
        if let Some(number) = number {
            self.pending_connections.insert(number, pending);
            return;
        }
        if self.pending_connections.len() >= PendingConnection::max_count() {
            self.evict_one();
        }
        let tag = epoll::EventData::new_u64(self.next_number);
        if epoll::add(&self.epoll, &pending.stream, tag, epoll::EventFlags::IN).is_ok() {
            self.pending_connections.insert(self.next_number, pending);
            self.next_number += 1;
        }
    }

    /// Close one pending connection to make space; return false if none is pending.
    fn evict_one(&mut self) -> bool {
        self.pause_after_step(REJECTION_PAUSE);
        let index = connection_to_evict(self.pending_connections.values());
        let number = index.and_then(|index| self.pending_connections.keys().nth(index).copied());
        number.is_some_and(|number| self.pending_connections.remove(&number).is_some())
    }

    fn pause_after_step(&mut self, pause: Duration) {
        if let Some(step) = &mut self.step {
            step.pause = step.pause.max(Some(pause));
        }
    }

    fn end_step(&mut self) {
        let now = Instant::now();
        let Some(step) = self.step.take() else { return };
        let is_paused = self.paused_until.is_some_and(|until| until > now);
        // At the accept limit, more connections may be queued: the next step is due immediately.
        if is_paused || step.accept_limit == Some(0) {
            return;
        }
        let were_watched = self.paused_until.is_none();
        self.paused_until = step.pause.map(|pause| now + pause);
        if were_watched != self.paused_until.is_none() {
            self.watch_listeners(!were_watched);
        }
    }

    fn watch_listeners(&self, are_watched: bool) {
        let flags = if are_watched { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        for listener in self.listeners.sockets() {
            // The listeners stay in the set as long as the set lives, so this cannot fail.
            let _ = epoll::modify(&self.epoll, listener, epoll::EventData::new_u64(LISTENERS), flags);
        }
    }
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, PermissionDenied};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{ConnectionPurpose, JobNonce, call};
    use crate::config::{Encryption, Ports, Token};
    use crate::listeners::bind_first;
    use crate::stream::Stream;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpStream};

    const GREETING: Greeting =
        Greeting { purpose: ConnectionPurpose::Data, from: 3, to: 0, world_size: 4, nonce: JobNonce([7; 16]) };
    const PROMPT: Duration = Duration::from_secs(10);

    fn credentials() -> Credentials {
        Credentials { token: Token::from_secret("a"), tls: Encryption::Off }
    }

    fn acceptor() -> (Acceptor, SocketAddr) {
        let listener = bind_first(&[Ipv4Addr::LOCALHOST.into()], Ports::default()).unwrap();
        let address = listener.local_addr().unwrap();
        (Acceptor::new(ListenerSet::new(listener, None).unwrap()).unwrap(), address)
    }

    fn unauthenticated(address: SocketAddr) -> TcpStream {
        let mut unauthenticated = TcpStream::connect(address).unwrap();
        unauthenticated.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        unauthenticated.set_read_timeout(Some(PROMPT)).unwrap();
        unauthenticated
    }

    /// Poll like an owner; return whether an event arrived before the timeout.
    fn wait(acceptor: &Acceptor, timeout: Duration) -> bool {
        let timeout = Timespec::try_from(timeout).unwrap();
        poll(&mut [PollFd::new(acceptor, PollFlags::IN)], Some(&timeout)).unwrap() > 0
    }

    #[test]
    fn after_an_unauthenticated_peer_waiting_connections_are_handled_together_and_get_no_reply() {
        let (mut acceptor, address) = acceptor();
        let first = unauthenticated(address);
        assert!(wait(&acceptor, PROMPT));
        while acceptor.due().is_none_or(|due| due > Instant::now() + REJECTION_PAUSE) {
            assert!(acceptor.next_answer(&credentials(), &mut |_| Ok(())).is_none());
        }

        let connections: Vec<TcpStream> = (0..20).map(|_| unauthenticated(address)).chain([first]).collect();
        assert!(!wait(&acceptor, Duration::ZERO), "no event arrives during the pause");
        std::thread::sleep(acceptor.due().unwrap().saturating_duration_since(Instant::now()));
        assert!(acceptor.next_answer(&credentials(), &mut |_| Ok(())).is_none());

        for mut unauthenticated in connections {
            let mut received = Vec::new();
            let _ = unauthenticated.read_to_end(&mut received);
            assert!(received.is_empty());
        }
        std::thread::sleep(REJECTION_PAUSE);
        assert!(acceptor.next_answer(&credentials(), &mut |_| Ok(())).is_none());
        assert_eq!(acceptor.due(), None, "the listeners are watched again");
        let _last = unauthenticated(address);
        assert!(wait(&acceptor, PROMPT));
    }

    #[test]
    fn a_peer_that_sends_too_little_is_closed_at_its_deadline() {
        let (mut acceptor, address) = acceptor();
        let mut slow = TcpStream::connect(address).unwrap();
        slow.write_all(b"RIPIENO").unwrap();
        slow.set_read_timeout(Some(PROMPT)).unwrap();
        assert!(wait(&acceptor, PROMPT));
        assert!(acceptor.next_answer(&credentials(), &mut |_| Ok(())).is_none());
        assert_eq!(acceptor.due(), acceptor.pending_connections.values().next().map(|pending| pending.deadline));

        acceptor.pending_connections.values_mut().for_each(|pending| pending.deadline = Instant::now());
        assert!(acceptor.next_answer(&credentials(), &mut |_| Ok(())).is_none());

        assert_eq!(slow.read(&mut [0]).unwrap(), 0, "the acceptor sends no reply");
    }

    #[test]
    fn a_rank_of_the_job_connects_among_unauthenticated_peers() {
        let (mut acceptor, address) = acceptor();
        let connections: Vec<TcpStream> = (0..400).map(|_| unauthenticated(address)).collect();
        let silent: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(address).unwrap()).collect();
        let deadline = Instant::now() + PROMPT;
        std::thread::scope(|scope| {
            let called = scope.spawn(|| {
                let stream = Stream::connect_tcp(address, PROMPT).unwrap();
                call(stream, &credentials(), &GREETING, deadline)
            });
            let answer = loop {
                if let Some(answer) = acceptor.next_answer(&credentials(), &mut |_| Ok(())) {
                    break answer;
                }
                let due = acceptor.due().map_or(PROMPT, |due| due.saturating_duration_since(Instant::now()));
                wait(&acceptor, due);
            };
            assert!(matches!(answer, Answer::Accepted(_, GREETING)), "{answer:?}");
            assert!(called.join().unwrap().is_ok());
        });
        drop((connections, silent));
    }
}
