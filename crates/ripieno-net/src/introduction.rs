//! Introductions on connections that are made elsewhere: between the process that launches a job and its members.
//!
//! Both ends prove that they know the job's token, as ranks do. Errors are of these kinds: `PermissionDenied` if the
//! other end does not know the token, `TimedOut` if it says too little in time, `ConnectionAborted` if it is gone or
//! speaks another language, `ConnectionRefused` if it is of the job but wants something else.

use crate::auth::{Answer, Denied, Greeting, JobNonce, Purpose, Refusal, Visitor, call};
use crate::config::Token;
use crate::stream::Stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// What a member says first: the server asks for all else later.
const MEMBER: Greeting = Greeting { purpose: Purpose::Member, from: 0, to: 0, world_size: 0, nonce: JobNonce([0; 16]) };

/// Introduces a member to who listens at the other end of a TCP connection. The connection is blocking afterwards.
pub fn join(connection: BorrowedFd<'_>, token: &Token, timeout: Duration) -> io::Result<()> {
    let mut stream = stream(connection)?;
    stream.set_nonblocking(false)?;
    call(&mut stream, token, &MEMBER, Instant::now() + timeout).map_err(|denied| {
        let kind = match denied {
            Denied::Refused(Refusal::Token) | Denied::Unproven => ErrorKind::PermissionDenied,
            Denied::Refused(_) => ErrorKind::ConnectionRefused,
            Denied::Silent => ErrorKind::TimedOut,
            Denied::Stranger(_) => ErrorKind::ConnectionAborted,
        };
        io::Error::new(kind, denied.to_string())
    })
}

/// Lets a member at the other end of a TCP connection introduce itself. The connection is non-blocking afterwards.
pub fn admit(connection: BorrowedFd<'_>, token: &Token, timeout: Duration) -> io::Result<()> {
    let mut visitor = Visitor::new(stream(connection)?, Instant::now() + timeout)?;
    loop {
        match visitor.advance(token, &mut judge) {
            Answer::Welcome(..) => return Ok(()),
            Answer::Waiting(waiting) => {
                wait_readable(&waiting.stream, waiting.deadline)?;
                visitor = waiting;
            }
            Answer::WrongToken => {
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

/// The same connection by a descriptor of its own.
fn stream(connection: BorrowedFd<'_>) -> io::Result<Stream> {
    Ok(Stream::Tcp(TcpStream::from(connection.try_clone_to_owned()?)))
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
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    const PROMPT: Duration = Duration::from_secs(10);

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let member = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (member, listener.accept().unwrap().0)
    }

    fn meet(members: &str, servers: &str) -> [Result<(), ErrorKind>; 2] {
        let (member, server) = pair();
        std::thread::scope(|scope| {
            let joined = scope.spawn(|| join(member.as_fd(), &Token::from_secret(members), PROMPT));
            let admitted = admit(server.as_fd(), &Token::from_secret(servers), PROMPT);
            [joined.join().unwrap(), admitted].map(|met| met.map_err(|error| error.kind()))
        })
    }

    #[test]
    fn who_knows_the_token_is_let_in() {
        assert_eq!(meet("a", "a"), [Ok(()), Ok(())]);
    }

    #[test]
    fn both_ends_see_that_tokens_differ() {
        assert_eq!(meet("a", "b"), [Err(ErrorKind::PermissionDenied); 2]);
    }

    #[test]
    fn who_says_too_little_is_given_up_in_time() {
        let (mut stranger, server) = pair();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                stranger.write_all(b"RIPIENO").unwrap();
                assert_eq!(stranger.read(&mut [0]).unwrap(), 0, "until the server has closed its end");
            });
            let admitted = admit(server.as_fd(), &Token::from_secret("a"), Duration::from_millis(100));
            assert_eq!(admitted.unwrap_err().kind(), ErrorKind::TimedOut);
            drop(server);
        });
    }

    #[test]
    fn a_rank_is_no_member() {
        let (member, server) = pair();
        let token = Token::from_secret("a");
        let rank = Greeting { purpose: Purpose::Data, ..MEMBER };
        std::thread::scope(|scope| {
            let admitted = scope.spawn(|| admit(server.as_fd(), &token, PROMPT).map_err(|error| error.kind()));
            let called = call(&mut Stream::Tcp(member), &token, &rank, Instant::now() + PROMPT);
            assert_eq!(called, Err(Denied::Refused(Refusal::Purpose)));
            assert_eq!(admitted.join().unwrap(), Err(ErrorKind::ConnectionRefused));
        });
    }
}
