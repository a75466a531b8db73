//! Detects an unresponsive host at the other end of a TCP connection.
//!
//! After a network path breaks, the operating system retransmits for about 15 minutes before it reports an error. A
//! rank that sleeps on a connection therefore checks for sent but unacknowledged data. If it has sent nothing, TCP
//! keepalive sends probes, which a host acknowledges as well. It acknowledges even if its program reads nothing, so a
//! rank may compute for any time.
//! Cost: one system call per check.

use ripieno_run::membership::MembershipTiming;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// The resolution of the kernel's keepalive times.
const SHORTEST_PROBE: Duration = Duration::from_secs(1);
/// Number of leading 32-bit words of `TCP_INFO` that are read.
const INFO_WORDS: usize = 15;
/// Index of a word. Its last byte counts the unacknowledged probes of keepalive.
const PROBES: usize = 0;
/// Index of the count of unacknowledged segments in flight.
const UNACKNOWLEDGED: usize = 6;
/// Index of the time since the latest acknowledgement, in milliseconds.
const SINCE_ACKNOWLEDGED_MS: usize = 14;

/// The start of a connection's wait for an acknowledgement, as observed by its owner.
#[derive(Debug, Default)]
pub(super) struct AcknowledgementWait {
    since: Option<Instant>,
}

impl AcknowledgementWait {
    /// Return the time for which the other end has not acknowledged sent data or probes.
    pub fn look(&mut self, stream: &TcpStream) -> Duration {
        let Ok([unacknowledged, ago_ms]) = unacknowledged_counts(stream) else { return Duration::ZERO };
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

/// Return whether the other end has not acknowledged all sent data and probes.
pub(super) fn awaits_acknowledgement(stream: &TcpStream) -> bool {
    unacknowledged_counts(stream).is_ok_and(|[unacknowledged, _]| unacknowledged > 0)
}

/// Let the operating system send probes while nothing else is sent. It ends a connection only after the limit of its
/// owner, because an outage may be shorter.
pub(super) fn probe(stream: &TcpStream, timing: MembershipTiming) -> io::Result<()> {
    let interval = timing.heartbeat_interval().max(SHORTEST_PROBE);
    let retries = timing.delivery_limit().div_duration_f64(interval).ceil() as u32 + 1;
    let keepalive = TcpKeepalive::new().with_time(interval).with_interval(interval).with_retries(retries);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

fn unacknowledged_counts(stream: &TcpStream) -> io::Result<[u32; 2]> {
    let mut words = [0u32; INFO_WORDS];
    let mut length = size_of_val(&words) as libc::socklen_t;
    // SAFETY: The system call writes at most `length` bytes to that address.
    let outcome = unsafe {
        let (into, length) = (words.as_mut_ptr().cast(), &raw mut length);
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, into, length)
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    let probe_count = u32::from(words[PROBES].to_ne_bytes()[3]);
    Ok([words[UNACKNOWLEDGED] + probe_count, words[SINCE_ACKNOWLEDGED_MS]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn a_host_that_acknowledges_without_reading_is_responsive() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_there, _) = listener.accept().unwrap();
        let heartbeat_timeout = Duration::from_millis(100);
        probe(&here, MembershipTiming { join_timeout: heartbeat_timeout, heartbeat_timeout }).unwrap();
        here.set_nonblocking(true).unwrap();
        let mut unanswered = AcknowledgementWait::default();
        assert!(!awaits_acknowledgement(&here));
        while here.write(&[0; 1 << 16]).is_ok() {
            assert!(unanswered.look(&here) < Duration::from_secs(1));
        }
        let full = Instant::now();
        while full.elapsed() < Duration::from_millis(300) {
            assert!(unanswered.look(&here) < Duration::from_millis(250), "its window is closed, but it answers");
        }
    }
}
