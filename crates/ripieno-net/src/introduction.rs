//! Introductions on connections that are made elsewhere: between the process that launches a job and its members.
//!
//! Both ends prove that they know the job's token, as ranks do. With TLS what they tell each other goes through a
//! tunnel, whose descriptor takes the connection's place. Errors are of these kinds: `PermissionDenied` if the other
//! end does not know the token, `TimedOut` if it says too little in time, `ConnectionAborted` if it is gone or speaks
//! another language, `ConnectionRefused` if it is of the job but wants something else.

use crate::auth::{Answer, Denied, Greeting, JobNonce, Purpose, Refusal, Visitor, call, tell_other_token};
use crate::config::Credentials;
use crate::stream::Stream;
use crate::tls::Tunnel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// What a member says first: the server asks for all else later.
const MEMBER: Greeting = Greeting { purpose: Purpose::Member, from: 0, to: 0, world_size: 0, nonce: JobNonce([0; 16]) };

/// What takes an encrypted connection's place.
pub type Tunneled = Option<(Tunnel, OwnedFd)>;

/// Introduces a member to who listens at the other end of a TCP connection. The connection is blocking afterwards.
pub fn join(connection: BorrowedFd<'_>, credentials: &Credentials, timeout: Duration) -> io::Result<Tunneled> {
    let stream = stream(connection)?;
    stream.set_nonblocking(false)?;
    let called = call(stream, credentials, &MEMBER, Instant::now() + timeout).map_err(|denied| {
        let kind = match denied {
            Denied::OtherToken | Denied::Unproven => ErrorKind::PermissionDenied,
            Denied::Refused(_) => ErrorKind::ConnectionRefused,
            Denied::Silent => ErrorKind::TimedOut,
            Denied::Stranger(_) => ErrorKind::ConnectionAborted,
        };
        io::Error::new(kind, denied.to_string())
    });
    tunneled(called?)
}

/// Lets a member at the other end of a TCP connection introduce itself. The connection is non-blocking afterwards.
pub fn admit(connection: BorrowedFd<'_>, credentials: &Credentials, timeout: Duration) -> io::Result<Tunneled> {
    let mut visitor = Visitor::new(stream(connection)?, Instant::now() + timeout)?;
    loop {
        match visitor.advance(credentials, &mut judge) {
            Answer::Welcome(stream, _) => return tunneled(stream),
            Answer::Waiting(waiting) => {
                wait_readable(&waiting.stream, waiting.deadline)?;
                visitor = waiting;
            }
            Answer::WrongToken(mut stream) => {
                tell_other_token(&mut stream);
                return Err(io::Error::new(ErrorKind::PermissionDenied, "who has connected knows another token"));
            }
            Answer::Refused(_, refusal) => {
                return Err(io::Error::new(ErrorKind::ConnectionRefused, refusal.to_string()));
            }
            Answer::Stranger => {
                return Err(io::Error::new(ErrorKind::ConnectionAborted, "who has connected is none of this job"));
            }
        }
    }
}

fn judge(greeting: &Greeting) -> Result<(), Refusal> {
    if greeting.purpose == Purpose::Member { Ok(()) } else { Err(Refusal::Purpose) }
}

fn tunneled(stream: Stream) -> io::Result<Tunneled> {
    match stream {
        Stream::Tls(session) => Tunnel::open(*session).map(Some),
        Stream::Tcp(_) | Stream::Unix(_) => Ok(None),
    }
}

/// The same connection by a descriptor of its own.
fn stream(connection: BorrowedFd<'_>) -> io::Result<Stream> {
    let socket = TcpStream::from(connection.try_clone_to_owned()?);
    socket.set_nodelay(true)?;
    Ok(Stream::Tcp(socket))
}

fn wait_readable(stream: &Stream, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).expect("an introduction takes seconds");
    match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&timeout)) {
        Ok(0) => Err(io::Error::new(ErrorKind::TimedOut, "who has connected took too long to say who it is")),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Encryption;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const PROMPT: Duration = Duration::from_secs(10);

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let member = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (member, listener.accept().unwrap().0)
    }

    fn credentials(secret: &str, tls: bool) -> Credentials {
        Credentials { token: crate::Token::from_secret(secret), tls: Encryption::meant_by(Some(tls)) }
    }

    fn meet(members: &Credentials, servers: &Credentials) -> [Result<Tunneled, ErrorKind>; 2] {
        let (member, server) = pair();
        std::thread::scope(|scope| {
            let joined = scope.spawn(|| join(member.as_fd(), members, PROMPT));
            let admitted = admit(server.as_fd(), servers, PROMPT);
            [joined.join().unwrap(), admitted].map(|met| met.map_err(|error| error.kind()))
        })
    }

    #[test]
    fn who_knows_the_token_is_let_in() {
        let [joined, admitted] = meet(&credentials("a", false), &credentials("a", false));
        assert!(matches!((joined, admitted), (Ok(None), Ok(None))));
    }

    #[test]
    fn what_passes_through_a_tunnel_arrives_whole_and_in_order_until_its_end() {
        let [joined, admitted] = meet(&credentials("a", true), &credentials("a", true));
        let [(there, member), (_, server)] = [joined, admitted].map(|met| met.unwrap().unwrap());
        let [mut member, mut server] = [member, server].map(UnixStream::from);
        let words: Vec<u8> = (0..3_000_000u32).map(|number| (number % 251) as u8).collect();
        std::thread::scope(|scope| {
            let told = &words;
            scope.spawn(move || {
                member.write_all(told).unwrap();
                member.read_exact(&mut [0; 5]).unwrap();
                drop(member);
                assert!(there.wait(PROMPT), "a tunnel ends with its descriptor");
            });
            let mut heard = vec![0; words.len()];
            server.read_exact(&mut heard).unwrap();
            assert!(heard == words);
            server.write_all(b"heard").unwrap();
            assert_eq!(server.read(&mut heard).unwrap(), 0, "until the other end is closed");
        });
    }

    #[test]
    fn a_member_and_a_server_of_which_one_encrypts_refuse_each_other() {
        for tls in [false, true] {
            let met = meet(&credentials("a", tls), &credentials("a", !tls));
            assert!(met.iter().all(|met| met.as_ref().is_err_and(|kind| *kind == ErrorKind::ConnectionRefused)));
        }
    }

    #[test]
    fn both_ends_see_that_tokens_differ() {
        for tls in [false, true] {
            let met = meet(&credentials("a", tls), &credentials("b", tls));
            assert!(met.iter().all(|met| met.as_ref().is_err_and(|kind| *kind == ErrorKind::PermissionDenied)));
        }
    }

    #[test]
    fn who_says_too_little_is_given_up_in_time() {
        let (mut stranger, server) = pair();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                stranger.write_all(b"RIPIENO").unwrap();
                assert_eq!(stranger.read(&mut [0]).unwrap(), 0, "until the server has closed its end");
            });
            let admitted = admit(server.as_fd(), &credentials("a", false), Duration::from_millis(100));
            assert_eq!(admitted.map(drop).unwrap_err().kind(), ErrorKind::TimedOut);
            drop(server);
        });
    }

    #[test]
    fn a_rank_is_no_member() {
        let (member, server) = pair();
        let credentials = credentials("a", false);
        let rank = Greeting { purpose: Purpose::Data, ..MEMBER };
        std::thread::scope(|scope| {
            let admitted = scope.spawn(|| admit(server.as_fd(), &credentials, PROMPT).map_err(|error| error.kind()));
            let called = call(Stream::Tcp(member), &credentials, &rank, Instant::now() + PROMPT);
            assert_eq!(called.unwrap_err(), Denied::Refused(Refusal::Purpose));
            assert_eq!(admitted.join().unwrap().map(drop).unwrap_err(), ErrorKind::ConnectionRefused);
        });
    }
}
