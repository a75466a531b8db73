//! Accepts and authenticates incoming connections without blocking. An unauthenticated peer delays no other peer.
//!
//! One epoll set watches the listeners and all pending connections. The owner polls its descriptor next to its other
//! descriptors. The acceptor reads from a new connection immediately. The first bytes mostly suffice to recognize an
//! unauthenticated peer, and the acceptor closes its connection. It then pauses accepting for [`REST`] and handles the
//! connections that queued meanwhile as one batch. A flood therefore does not wake the owner more often.
//! Cost: a few system calls per unauthenticated peer, and one wake-up for all connections that arrive within [`REST`].

use crate::auth::{Answer, Greeting, PendingConnection, Refusal, least_welcome};
use crate::config::Credentials;
use crate::lack::lack;
use crate::listeners::ListenerSet;
use rustix::event::{Timespec, epoll};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A pending connection that has not authenticated within this time is closed.
const VISIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause of accepting after an unauthenticated peer. The listen backlog holds 1000 connections meanwhile.
const REST: Duration = Duration::from_millis(10);
/// Pause of accepting when the process has no descriptors left.
const LACK_PAUSE: Duration = Duration::from_millis(100);
/// A resource that is exhausted for this long is reported as exhausted.
const LACK_PATIENCE: Duration = Duration::from_millis(1000);
/// Connections accepted before the owner gets a chance to handle its other work.
const CALLERS_PER_TURN: usize = 256;

const EVENTS_MAX: usize = 256;
/// Epoll tag of the listeners; pending connections use their numbers as tags.
const DOORS: u64 = u64::MAX;

/// Listeners and the pending connections that they accepted.
pub(crate) struct Acceptor {
    doors: ListenerSet,
    epoll: OwnedFd,
    /// Keyed by number, so the oldest connection comes first.
    visitors: BTreeMap<u64, PendingConnection>,
    next_number: u64,
    /// Time until which the listeners are not watched.
    rests_until: Option<Instant>,
    turn: Option<AcceptStep>,
    /// The resource that the process lacks to accept connections, and since when.
    lack: Option<(Instant, String)>,
}

/// Remaining work for the events that the last poll returned.
struct AcceptStep {
    speaking: Vec<u64>,
    /// Number of connections that may still be accepted, if the listeners are watched.
    places: Option<usize>,
    /// Length of the pause after this step.
    rest: Option<Duration>,
}

impl Acceptor {
    pub fn new(doors: ListenerSet) -> io::Result<Acceptor> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for door in doors.sockets() {
            epoll::add(&epoll, door, epoll::EventData::new_u64(DOORS), epoll::EventFlags::IN)?;
        }
        Ok(Acceptor {
            doors,
            epoll,
            visitors: BTreeMap::new(),
            next_number: 0,
            rests_until: None,
            turn: None,
            lack: None,
        })
    }

    /// Return the time at which the owner must call again, even if no event arrives.
    pub fn due(&self) -> Option<Instant> {
        let oldest = self.visitors.values().next().map(|visitor| visitor.deadline);
        oldest.into_iter().chain(self.rests_until).min()
    }

    /// Return the resource that the process has lacked for at least [`LACK_PATIENCE`], if any.
    pub fn lasting_lack(&self) -> Option<&str> {
        let lack = self.lack.as_ref().filter(|(since, _)| since.elapsed() >= LACK_PATIENCE);
        lack.map(|(_, what)| what.as_str())
    }

    /// Return the next authenticated peer, or a peer that speaks the protocol with another token; `None` when no more
    /// is available now. `judge` decides whether to accept an authenticated peer.
    pub fn hear(
        &mut self,
        credentials: &Credentials,
        judge: &mut dyn FnMut(&Greeting) -> Result<(), Refusal>,
    ) -> Option<Answer> {
        while let Some((number, visitor)) = self.next() {
            match visitor.advance(credentials, judge) {
                Answer::Waiting(visitor) => self.keep(number, visitor),
                Answer::Unauthenticated => self.rest_after_turn(REST),
                Answer::WrongToken(stream) => {
                    self.rest_after_turn(REST);
                    return Some(Answer::WrongToken(stream));
                }
                Answer::Welcome(stream, greeting) => {
                    let _ = epoll::delete(&self.epoll, &stream);
                    return Some(Answer::Welcome(stream, greeting));
                }
                refused @ Answer::Refused(..) => return Some(refused),
            }
        }
        None
    }

    /// Return the next connection that may have data to read, and its number unless it is new.
    fn next(&mut self) -> Option<(Option<u64>, PendingConnection)> {
        if self.turn.is_none() {
            self.turn = Some(self.look());
        }
        while let Some(number) = self.turn.as_mut()?.speaking.pop() {
            if let Some(visitor) = self.visitors.remove(&number) {
                return Some((Some(number), visitor));
            }
        }
        let newcomer = self.let_in();
        if newcomer.is_none() {
            self.end_turn();
        }
        newcomer.map(|visitor| (None, visitor))
    }

    fn look(&mut self) -> AcceptStep {
        let now = Instant::now();
        let count = self.visitors.len();
        self.visitors.retain(|_, visitor| visitor.deadline > now);
        let rest = (self.visitors.len() < count).then_some(REST);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        // An interrupted poll reports no event.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&Timespec::default()));
        let mut speaking: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
        let somebody_comes = speaking.contains(&DOORS) || self.rests_until.is_some_and(|until| until <= now);
        speaking.retain(|&number| number != DOORS);
        AcceptStep { speaking, places: somebody_comes.then_some(CALLERS_PER_TURN), rest }
    }

    fn let_in(&mut self) -> Option<PendingConnection> {
        while let Some(places @ 1..) = self.turn.as_mut()?.places.as_mut() {
            *places -= 1;
            match self.doors.accept() {
                Ok(Some(stream)) => {
                    self.lack = None;
                    if let Ok(visitor) = PendingConnection::new(stream, Instant::now() + VISIT_TIMEOUT) {
                        return Some(visitor);
                    }
                }
                Ok(None) => return None,
                Err(error) if is_about_one_connection(&error) => self.rest_after_turn(REST),
                // The process is out of descriptors, for example: close an unauthenticated connection to free one.
                Err(_) if self.show_one_out() => {}
                Err(error) => {
                    let since = self.lack.take().map_or_else(Instant::now, |(since, _)| since);
                    self.lack = lack(&error).map(|what| (since, what));
                    self.rest_after_turn(LACK_PAUSE);
                    return None;
                }
            }
        }
        None
    }

    /// Keep a pending connection until it sends more.
    fn keep(&mut self, number: Option<u64>, visitor: PendingConnection) {
        if let Some(number) = number {
            self.visitors.insert(number, visitor);
            return;
        }
        if self.visitors.len() >= PendingConnection::most() {
            self.show_one_out();
        }
        let tag = epoll::EventData::new_u64(self.next_number);
        if epoll::add(&self.epoll, &visitor.stream, tag, epoll::EventFlags::IN).is_ok() {
            self.visitors.insert(self.next_number, visitor);
            self.next_number += 1;
        }
    }

    /// Close one pending connection to free its place; return whether that was possible.
    fn show_one_out(&mut self) -> bool {
        self.rest_after_turn(REST);
        let place = least_welcome(self.visitors.values());
        let number = place.and_then(|place| self.visitors.keys().nth(place).copied());
        number.is_some_and(|number| self.visitors.remove(&number).is_some())
    }

    fn rest_after_turn(&mut self, rest: Duration) {
        if let Some(turn) = &mut self.turn {
            turn.rest = turn.rest.max(Some(rest));
        }
    }

    fn end_turn(&mut self) {
        let now = Instant::now();
        let Some(turn) = self.turn.take() else { return };
        let is_resting = self.rests_until.is_some_and(|until| until > now);
        // With all places taken, more connections may be queued: the next step is due immediately.
        if is_resting || turn.places == Some(0) {
            return;
        }
        let were_watched = self.rests_until.is_none();
        self.rests_until = turn.rest.map(|rest| now + rest);
        if were_watched != self.rests_until.is_none() {
            self.watch_doors(!were_watched);
        }
    }

    fn watch_doors(&self, are_watched: bool) {
        let flags = if are_watched { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        for door in self.doors.sockets() {
            // The listeners stay in the set as long as the set lives, so this cannot fail.
            let _ = epoll::modify(&self.epoll, door, epoll::EventData::new_u64(DOORS), flags);
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

    fn entrance() -> (Acceptor, SocketAddr) {
        let listener = bind_first(&[Ipv4Addr::LOCALHOST.into()], Ports::default()).unwrap();
        let address = listener.local_addr().unwrap();
        (Acceptor::new(ListenerSet::new(listener, None).unwrap()).unwrap(), address)
    }

    fn stranger(address: SocketAddr) -> TcpStream {
        let mut stranger = TcpStream::connect(address).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        stranger.set_read_timeout(Some(PROMPT)).unwrap();
        stranger
    }

    /// Poll like an owner; return whether an event arrived before the timeout.
    fn wait(entrance: &Acceptor, timeout: Duration) -> bool {
        let timeout = Timespec::try_from(timeout).unwrap();
        poll(&mut [PollFd::new(entrance, PollFlags::IN)], Some(&timeout)).unwrap() > 0
    }

    #[test]
    fn after_a_stranger_those_who_come_are_heard_together_and_hear_nothing() {
        let (mut entrance, address) = entrance();
        let first = stranger(address);
        assert!(wait(&entrance, PROMPT));
        while entrance.due().is_none_or(|due| due > Instant::now() + REST) {
            assert!(entrance.hear(&credentials(), &mut |_| Ok(())).is_none());
        }

        let crowd: Vec<TcpStream> = (0..20).map(|_| stranger(address)).chain([first]).collect();
        assert!(!wait(&entrance, Duration::ZERO), "nobody is woken while the doors rest");
        std::thread::sleep(entrance.due().unwrap().saturating_duration_since(Instant::now()));
        assert!(entrance.hear(&credentials(), &mut |_| Ok(())).is_none());

        for mut stranger in crowd {
            let mut heard = Vec::new();
            let _ = stranger.read_to_end(&mut heard);
            assert!(heard.is_empty());
        }
        std::thread::sleep(REST);
        assert!(entrance.hear(&credentials(), &mut |_| Ok(())).is_none());
        assert_eq!(entrance.due(), None, "the doors are watched again");
        let _last = stranger(address);
        assert!(wait(&entrance, PROMPT));
    }

    #[test]
    fn who_says_too_little_is_shown_out_when_its_time_is_over() {
        let (mut entrance, address) = entrance();
        let mut slow = TcpStream::connect(address).unwrap();
        slow.write_all(b"RIPIENO").unwrap();
        slow.set_read_timeout(Some(PROMPT)).unwrap();
        assert!(wait(&entrance, PROMPT));
        assert!(entrance.hear(&credentials(), &mut |_| Ok(())).is_none());
        assert_eq!(entrance.due(), entrance.visitors.values().next().map(|visitor| visitor.deadline));

        entrance.visitors.values_mut().for_each(|visitor| visitor.deadline = Instant::now());
        assert!(entrance.hear(&credentials(), &mut |_| Ok(())).is_none());

        assert_eq!(slow.read(&mut [0]).unwrap(), 0, "it hears nothing");
    }

    #[test]
    fn one_of_the_job_comes_in_amid_strangers() {
        let (mut entrance, address) = entrance();
        let crowd: Vec<TcpStream> = (0..400).map(|_| stranger(address)).collect();
        let silent: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(address).unwrap()).collect();
        let deadline = Instant::now() + PROMPT;
        std::thread::scope(|scope| {
            let called = scope.spawn(|| {
                let stream = Stream::connect_tcp(address, PROMPT).unwrap();
                call(stream, &credentials(), &GREETING, deadline)
            });
            let answer = loop {
                if let Some(answer) = entrance.hear(&credentials(), &mut |_| Ok(())) {
                    break answer;
                }
                let due = entrance.due().map_or(PROMPT, |due| due.saturating_duration_since(Instant::now()));
                wait(&entrance, due);
            };
            assert!(matches!(answer, Answer::Welcome(_, GREETING)), "{answer:?}");
            assert!(called.join().unwrap().is_ok());
        });
        drop((crowd, silent));
    }
}
