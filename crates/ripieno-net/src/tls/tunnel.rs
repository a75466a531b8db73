//! A tunnel: an encrypted connection for those who know only sockets. What they write into one end of a Unix socket
//! pair goes out encrypted, and what comes is decrypted into it, by a thread of the tunnel's own.

use super::TlsSession;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Bytes on their way in each direction at most, beside what the sockets hold.
const BUFFER_BYTES: usize = 64 << 10;

/// A running tunnel. It ends when either end is closed, once what was written before has been passed on.
pub struct Tunnel {
    ended: Receiver<()>,
}

impl Tunnel {
    /// Carries what passes between a session whose keys are agreed on and the descriptor that it returns.
    pub(crate) fn open(session: TlsSession) -> io::Result<(Tunnel, OwnedFd)> {
        let (inner, outer) = UnixStream::pair()?;
        inner.set_nonblocking(true)?;
        session.socket().set_nonblocking(true)?;
        let (sender, ended) = channel();
        let carry = move || {
            // An error ends the tunnel like a connection that breaks.
            let _ = carry(session, inner);
            drop(sender);
        };
        std::thread::Builder::new().name("ripieno-tunnel".to_string()).spawn(carry)?;
        Ok((Tunnel { ended }, outer.into()))
    }

    /// Waits until all that was written has been passed on, after the descriptor was closed; whether it is in time.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.ended.recv_timeout(timeout) != Err(RecvTimeoutError::Timeout)
    }
}

/// Bytes that were read and are not written yet.
struct Passing {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    has_ended: bool,
}

impl Passing {
    fn new() -> Passing {
        Passing { bytes: vec![0; BUFFER_BYTES].into(), start: 0, end: 0, has_ended: false }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether nothing more will come out of it.
    fn is_over(&self) -> bool {
        self.has_ended && self.is_empty()
    }

    /// Moves what can be moved now.
    fn pass(&mut self, from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
        loop {
            if self.is_empty() && !self.has_ended {
                let Some(count) = now(from.read(&mut self.bytes))? else { return Ok(()) };
                (self.start, self.end, self.has_ended) = (0, count, count == 0);
            }
            if self.is_empty() {
                return Ok(());
            }
            let Some(count) = now(to.write(&self.bytes[self.start..self.end]))? else { return Ok(()) };
            self.start += count;
        }
    }
}

fn carry(mut session: TlsSession, mut inner: UnixStream) -> io::Result<()> {
    let (mut out, mut back) = (Passing::new(), Passing::new());
    let mut is_heard = true;
    loop {
        out.pass(&mut inner, &mut session)?;
        if out.is_over() {
            session.end_sending();
            return Ok(());
        }
        if is_heard {
            match back.pass(&mut session, &mut inner) {
                // The descriptor was closed: what was written before is still on its way.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => is_heard = false,
                passed => passed?,
            }
        }
        if back.is_over() {
            return Ok(());
        }
        let flag = |is_wanted: bool, flag: PollFlags| if is_wanted { flag } else { PollFlags::empty() };
        let inners = flag(out.is_empty(), PollFlags::IN) | flag(is_heard && !back.is_empty(), PollFlags::OUT);
        let sessions = flag(is_heard && back.is_empty(), PollFlags::IN) | flag(!out.is_empty(), PollFlags::OUT);
        let ends = [(inner.as_fd(), inners), (session.as_fd(), sessions)];
        // An end of which nothing is wanted now must not wake this thread because it has been closed.
        let wanted = ends.iter().filter(|(_, flags)| !flags.is_empty());
        let mut watched: Vec<PollFd<'_>> = wanted.map(|(end, flags)| PollFd::new(end, *flags)).collect();
        match poll(&mut watched, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The outcome of a call that does not block, or `None` if it could not be now.
fn now(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(count) => Ok(Some(count)),
        Err(error) if crate::stream::is_not_now(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
