//! Whether the host at the other end of a TCP connection answers at all.
//!
//! A cable that is cut between two hosts says nothing, and the system sends again for a quarter of an hour before it
//! does. So whoever sleeps on a connection looks at what it was sent and has not acknowledged; one that has sent
//! nothing has the system probe the other end. A host whose program only reads nothing does answer, so that a rank may
//! compute for as long as it likes. Cost: one system call per look.

use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// The system counts these times in seconds.
const SHORTEST_PROBE: Duration = Duration::from_secs(1);
/// What the system tells of a connection, in words of four bytes, begins with these.
const INFO_WORDS: usize = 15;
/// Segments on their way that are not acknowledged.
const UNACKNOWLEDGED: usize = 6;
/// Milliseconds since the latest acknowledgement.
const SINCE_ACKNOWLEDGED_MS: usize = 14;

/// Since when a connection has been waiting for an acknowledgement, as far as its owner has seen.
#[derive(Debug, Default)]
pub(super) struct AcknowledgementWait {
    since: Option<Instant>,
}

impl AcknowledgementWait {
    /// How long the other end has acknowledged nothing of what it was sent.
    pub fn look(&mut self, stream: &TcpStream) -> Duration {
        let Ok([unacknowledged, ago_ms]) = counts(stream) else { return Duration::ZERO };
        if unacknowledged == 0 {
            self.since = None;
            return Duration::ZERO;
        }
        let now = Instant::now();
        let waited = now - *self.since.get_or_insert(now);
        let answered = Duration::from_millis(ago_ms.into());
        if answered < waited {
            self.since = now.checked_sub(answered);
        }
        waited.min(answered)
    }
}

/// Has the system find out within about `limit` if the other end is gone while nothing is sent to it.
pub(super) fn probe(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    let idle = (limit / 2).max(SHORTEST_PROBE);
    let retries = (limit.saturating_sub(idle).as_secs() as u32).max(1);
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(SHORTEST_PROBE).with_retries(retries);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

fn counts(stream: &TcpStream) -> io::Result<[u32; 2]> {
    let mut words = [0u32; INFO_WORDS];
    let mut length = size_of_val(&words) as libc::socklen_t;
    // SAFETY: the system writes at most `length` bytes there.
    let outcome = unsafe {
        let (into, length) = (words.as_mut_ptr().cast(), &raw mut length);
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, into, length)
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok([words[UNACKNOWLEDGED], words[SINCE_ACKNOWLEDGED_MS]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn who_acknowledges_and_reads_nothing_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_there, _) = listener.accept().unwrap();
        probe(&here, Duration::from_millis(100)).unwrap();
        here.set_nonblocking(true).unwrap();
        let mut unanswered = AcknowledgementWait::default();
        while here.write(&[0; 1 << 16]).is_ok() {
            assert!(unanswered.look(&here) < Duration::from_secs(1));
        }
        let full = Instant::now();
        while full.elapsed() < Duration::from_millis(300) {
            assert!(unanswered.look(&here) < Duration::from_millis(250), "its window is closed, but it answers");
        }
    }
}
