//! Tunnels: encrypted connections for code that can only handle plain sockets. A thread reads bytes from one end of a
//! Unix socket pair and sends them encrypted. It decrypts received bytes and writes them to the same end.

use super::TlsSession;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Limit of buffered bytes per direction, in addition to the socket buffers.
const BUFFER_BYTES: usize = 64 << 10;

/// A running tunnel. It ends after either end is closed and all bytes written before have been forwarded.
pub struct Tunnel {
    ended: Receiver<()>,
}

impl Tunnel {
    /// Start to forward bytes between an established session and the returned descriptor.
    pub(crate) fn open(session: TlsSession) -> io::Result<(Tunnel, OwnedFd)> {
        let (inner, outer) = UnixStream::pair()?;
        inner.set_nonblocking(true)?;
        session.socket().set_nonblocking(true)?;
        let (sender, ended) = channel();
        let forward_both = move || {
            // An error ends the tunnel like a broken connection.
            let _ = forward_both(session, inner);
            drop(sender);
        };
        std::thread::Builder::new().name("ripieno-tunnel".to_string()).spawn(forward_both)?;
        Ok((Tunnel { ended }, outer.into()))
    }

    /// Wait until all written bytes have been forwarded after the descriptor was closed. Return false on timeout.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.ended.recv_timeout(timeout) != Err(RecvTimeoutError::Timeout)
    }
}

/// Bytes that were read and are not written yet.
struct PendingBytes {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    has_ended: bool,
}

impl PendingBytes {
    fn new() -> PendingBytes {
        PendingBytes { bytes: vec![0; BUFFER_BYTES].into(), start: 0, end: 0, has_ended: false }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Return whether all bytes were forwarded and the input has ended.
    fn is_over(&self) -> bool {
        self.has_ended && self.is_empty()
    }

    /// Forward as many bytes as possible without blocking.
    fn forward(&mut self, from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
        loop {
            if self.is_empty() && !self.has_ended {
                let Some(count) = unless_blocked(from.read(&mut self.bytes))? else { return Ok(()) };
                (self.start, self.end, self.has_ended) = (0, count, count == 0);
            }
            if self.is_empty() {
                return Ok(());
            }
            let Some(count) = unless_blocked(to.write(&self.bytes[self.start..self.end]))? else { return Ok(()) };
            self.start += count;
        }
    }
}

fn forward_both(mut session: TlsSession, mut inner: UnixStream) -> io::Result<()> {
    let (mut out, mut back) = (PendingBytes::new(), PendingBytes::new());
    let mut accepts_input = true;
    loop {
        out.forward(&mut inner, &mut session)?;
        if out.is_over() {
            session.end_sending();
            return Ok(());
        }
        if accepts_input {
            match back.forward(&mut session, &mut inner) {
                // The descriptor was closed: bytes written before it are still in flight.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => accepts_input = false,
                outcome => outcome?,
            }
        }
        if back.is_over() {
            return Ok(());
        }
        let flag = |is_set: bool, flag: PollFlags| if is_set { flag } else { PollFlags::empty() };
        let inner_flags = flag(out.is_empty(), PollFlags::IN) | flag(accepts_input && !back.is_empty(), PollFlags::OUT);
        let session_flags =
            flag(accepts_input && back.is_empty(), PollFlags::IN) | flag(!out.is_empty(), PollFlags::OUT);
        let ends = [(inner.as_fd(), inner_flags), (session.as_fd(), session_flags)];
        // Watch only ends with requested events. A closed end without them would wake this thread again and again.
        let requested = ends.iter().filter(|(_, flags)| !flags.is_empty());
        let mut watched: Vec<PollFd<'_>> = requested.map(|(end, flags)| PollFd::new(end, *flags)).collect();
        match poll(&mut watched, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Return the outcome of a non-blocking call, or `None` if it would block.
fn unless_blocked(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(count) => Ok(Some(count)),
        Err(error) if crate::stream::is_would_block(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
