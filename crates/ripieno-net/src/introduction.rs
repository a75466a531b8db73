//! Authentication between the process that launches a job and its members, on connections that the caller opens.
//!
//! Both ends prove that they know the job's token, as ranks do. With TLS, data travels through a tunnel, and the
//! tunnel's descriptor replaces the connection. Errors have these kinds:
//!
//! - `PermissionDenied`: the other end does not know the token.
//! - `TimedOut`: the handshake did not complete in time.
//! - `ConnectionAborted`: the other end closed the connection or does not speak the protocol.
//! - `ConnectionRefused`: the other end belongs to the job but has another purpose.

use crate::acceptor::Acceptor;
use crate::auth::{Answer, ConnectionPurpose, Denied, Greeting, JobNonce, Refusal, call, send_wrong_token};
use crate::config::Credentials;
use crate::listeners::ListenerSet;
use crate::stream::Stream;
use crate::tls::Tunnel;
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The greeting of a member. The server requests all other data later.
const MEMBER: Greeting =
    Greeting { purpose: ConnectionPurpose::Member, from: 0, to: 0, world_size: 0, nonce: JobNonce([0; 16]) };

/// The tunnel that replaces an encrypted connection; `None` without TLS.
pub type TunneledConnection = Option<(Tunnel, OwnedFd)>;

/// Authenticate as a member to the server at the other end of a TCP connection. The connection is blocking afterwards.
pub fn join(
    connection: BorrowedFd<'_>,
    credentials: &Credentials,
    timeout: Duration,
) -> io::Result<TunneledConnection> {
    let socket = TcpStream::from(connection.try_clone_to_owned()?);
    socket.set_nodelay(true)?;
    socket.set_nonblocking(false)?;
    let called = call(Stream::Tcp(socket), credentials, &MEMBER, Instant::now() + timeout).map_err(|denied| {
        let kind = match denied {
            Denied::OtherToken | Denied::Unproven => ErrorKind::PermissionDenied,
            Denied::Refused(_) => ErrorKind::ConnectionRefused,
            Denied::Silent => ErrorKind::TimedOut,
            Denied::Unauthenticated(_) => ErrorKind::ConnectionAborted,
        };
        io::Error::new(kind, denied.to_string())
    });
    tunneled(called?)
}

/// A member that has authenticated itself.
pub struct IntroducedMember {
    /// The non-blocking connection of the member.
    pub connection: OwnedFd,
    /// The tunnel that replaces the connection.
    pub tunneled: TunneledConnection,
}

/// Accepts members without blocking. An unauthenticated peer costs as little as in a rank's acceptor.
///
/// Its descriptor becomes readable when a connection may have data to handle.
pub struct MemberAcceptor {
    acceptor: Acceptor,
    credentials: Credentials,
}

impl MemberAcceptor {
    /// Accept connections from `listener`, which becomes non-blocking.
    pub fn new(listener: BorrowedFd<'_>, credentials: Credentials) -> io::Result<MemberAcceptor> {
        let listeners = ListenerSet::new(TcpListener::from(listener.try_clone_to_owned()?), None)?;
        Ok(MemberAcceptor { acceptor: Acceptor::new(listeners)?, credentials })
    }

    /// Return the time at which to call again, even if the descriptor is not readable.
    pub fn due(&self) -> Option<Instant> {
        self.acceptor.due()
    }

    /// Return the resource, such as descriptors, that this process has lacked for some time to accept connections.
    pub fn shortage(&self) -> Option<&str> {
        self.acceptor.lasting_shortage()
    }

    /// Return the next member; `None` when no more is available now.
    pub fn next_member(&mut self) -> Option<IntroducedMember> {
        loop {
            match self.acceptor.next_answer(&self.credentials, &mut authorize)? {
                Answer::Accepted(stream, _) => {
                    // Without a free descriptor or thread, the member is disconnected and connects again.
                    if let Ok(member) = IntroducedMember::on(stream) {
                        return Some(member);
                    }
                }
                Answer::WrongToken(mut stream) => send_wrong_token(&mut stream),
                Answer::Refused(..) | Answer::Unauthenticated | Answer::Waiting(_) => {}
            }
        }
    }
}

impl AsFd for MemberAcceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.acceptor.as_fd()
    }
}

impl IntroducedMember {
    fn on(stream: Stream) -> io::Result<IntroducedMember> {
        let connection = match &stream {
            Stream::Tls(session) => session.socket().as_fd(),
            Stream::Tcp(socket) => socket.as_fd(),
            Stream::Unix(socket) => socket.as_fd(),
        };
        Ok(IntroducedMember { connection: connection.try_clone_to_owned()?, tunneled: tunneled(stream)? })
    }
}

fn authorize(greeting: &Greeting) -> Result<(), Refusal> {
    if greeting.purpose == ConnectionPurpose::Member { Ok(()) } else { Err(Refusal::Purpose) }
}

fn tunneled(stream: Stream) -> io::Result<TunneledConnection> {
    match stream {
        Stream::Tls(session) => Tunnel::open(*session).map(Some),
        Stream::Tcp(_) | Stream::Unix(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Encryption;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::os::unix::net::UnixStream;

    const PROMPT: Duration = Duration::from_secs(10);
    const POLL_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

    fn acceptor(credentials: &Credentials) -> (MemberAcceptor, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        (MemberAcceptor::new(listener.as_fd(), credentials.clone()).unwrap(), address)
    }

    fn credentials(secret: &str, tls: bool) -> Credentials {
        Credentials { token: crate::Token::from_secret(secret), tls: Encryption::from_setting(Some(tls)) }
    }

    /// Receive until `is_over`; return the accepted member.
    fn receive(acceptor: &mut MemberAcceptor, is_over: &dyn Fn() -> bool) -> Option<IntroducedMember> {
        let deadline = Instant::now() + PROMPT;
        loop {
            let member = acceptor.next_member();
            if member.is_some() || is_over() {
                return member;
            }
            assert!(Instant::now() < deadline, "no member connects");
            poll(&mut [PollFd::new(acceptor, PollFlags::IN)], Some(&POLL_TIMEOUT)).unwrap();
        }
    }

    fn introduce(members: &Credentials, servers: &Credentials) -> [Option<Result<TunneledConnection, ErrorKind>>; 2] {
        let (mut acceptor, address) = acceptor(servers);
        let member = TcpStream::connect(address).unwrap();
        std::thread::scope(|scope| {
            let joined = scope.spawn(|| join(member.as_fd(), members, PROMPT).map_err(|error| error.kind()));
            let received = receive(&mut acceptor, &|| joined.is_finished());
            [Some(joined.join().unwrap()), received.map(|member| Ok(member.tunneled))]
        })
    }

    #[test]
    fn a_member_with_the_token_is_accepted() {
        let results = introduce(&credentials("a", false), &credentials("a", false));
        assert!(matches!(results, [Some(Ok(None)), Some(Ok(None))]));
    }

    #[test]
    fn a_tunnel_delivers_all_bytes_in_order_until_its_end() {
        let results = introduce(&credentials("a", true), &credentials("a", true));
        let [(there, member), (_, server)] = results.map(|results| results.unwrap().unwrap().unwrap());
        let [mut member, mut server] = [member, server].map(UnixStream::from);
        let data: Vec<u8> = (0..3_000_000u32).map(|number| (number % 251) as u8).collect();
        std::thread::scope(|scope| {
            let sent = &data;
            scope.spawn(move || {
                member.write_all(sent).unwrap();
                member.read_exact(&mut [0; 5]).unwrap();
                drop(member);
                assert!(there.wait(PROMPT), "a tunnel ends with its descriptor");
            });
            let mut received = vec![0; data.len()];
            server.read_exact(&mut received).unwrap();
            assert!(received == data);
            server.write_all(b"reply").unwrap();
            assert_eq!(server.read(&mut received).unwrap(), 0, "until the other end is closed");
        });
    }

    #[test]
    fn a_member_and_a_server_with_different_tls_settings_refuse_each_other() {
        for tls in [false, true] {
            let results = introduce(&credentials("a", tls), &credentials("a", !tls));
            assert!(matches!(results, [Some(Err(ErrorKind::ConnectionRefused)), None]));
        }
    }

    #[test]
    fn a_member_is_notified_that_tokens_differ() {
        for tls in [false, true] {
            let results = introduce(&credentials("a", tls), &credentials("b", tls));
            assert!(matches!(results, [Some(Err(ErrorKind::PermissionDenied)), None]));
        }
    }

    #[test]
    fn a_rank_is_no_member() {
        let credentials = credentials("a", false);
        let (mut acceptor, address) = acceptor(&credentials);
        let rank = Greeting { purpose: ConnectionPurpose::Data, ..MEMBER };
        std::thread::scope(|scope| {
            let called = scope.spawn(|| {
                let stream = Stream::connect_tcp(address, PROMPT).unwrap();
                call(stream, &credentials, &rank, Instant::now() + PROMPT)
            });
            assert!(receive(&mut acceptor, &|| called.is_finished()).is_none());
            assert_eq!(called.join().unwrap().unwrap_err(), Denied::Refused(Refusal::Purpose));
        });
    }
}
