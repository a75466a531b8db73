//! A link over a TCP connection, encrypted or not.
//!
//! Large receives go directly to their destination. Small receives and peeks use a staging buffer, so a message of many
//! small parts costs one system call. After a socket had no data, or accepted only a part, the link does not try again
//! until a sleep reports it ready. Cost of a message: one system call to send it, one to sleep, one to receive it.

use super::unanswered::{AcknowledgementWait, awaits_acknowledgement, probe};
use crate::stream::Stream;
use crate::tls::TlsSession;
use ripieno_run::membership::MembershipTiming;
use ripieno_run::{Link, LinkError};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sockopt};
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Minimum size of the socket buffers.
const MIN_SOCKET_BUFFER_BYTES: usize = 128 << 10;

/// Size of the staging buffer: the limit of bytes read ahead.
const STAGING_BYTES: usize = 256 << 10;

/// A receive of at least this size bypasses the staging buffer.
const DIRECT_BYTES: usize = 16 << 10;

/// Limit of parts per system call.
const MAX_PART_COUNT: usize = 16;

/// Number of skipped attempts after a direction was exhausted, unless a sleep reports it ready. A rank that never
/// sleeps, because other links keep it busy, thus still checks this link occasionally.
const SKIPPED_ATTEMPT_COUNT: u32 = 16;

/// Limit of the low-water mark, well below the size of a socket buffer.
const MAX_LOW_WATER_BYTES: usize = 32 << 10;

/// Below this size the data arrives in one or two packets, so waiting for all of it saves nothing.
const MIN_LOW_WATER_BYTES: usize = 4 << 10;

/// One end of a link over a TCP connection.
pub struct TcpLink {
    transport: TcpTransport,
    staging: Box<[u8]>,
    /// The staged bytes are `staging[start..end]`.
    start: usize,
    end: usize,
    incoming: Backoff,
    outgoing: Backoff,
    /// Bytes that are certain to arrive.
    expected: usize,
    /// Bytes that must be in the socket before it wakes a sleeping rank (`SO_RCVLOWAT`).
    low_water: usize,
    /// The reason why no more data will arrive.
    ended: Option<String>,
    unanswered: AcknowledgementWait,
}

/// The connection that carries the bytes.
enum TcpTransport {
    Plain(TcpStream),
    Encrypted(Box<TlsSession>),
}

impl TcpLink {
    /// Create a link over `stream`, which is connected and authenticated and has no bytes read ahead.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        TcpLink::with(TcpTransport::Plain(stream))
    }

    /// Create a link over any stream that can carry one.
    pub(crate) fn over(stream: Stream) -> Result<Self, LinkError> {
        let closed = |cause: String| LinkError::Closed { cause };
        let transport = match stream {
            Stream::Tcp(stream) => TcpTransport::Plain(stream),
            Stream::Tls(mut session) => {
                session.read_ahead();
                TcpTransport::Encrypted(session)
            }
            Stream::Unix(_) => return Err(closed("a Unix socket cannot carry a link".to_string())),
        };
        TcpLink::with(transport).map_err(|error| closed(error.to_string()))
    }

    /// Return whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.transport, TcpTransport::Encrypted(_))
    }

    fn with(transport: TcpTransport) -> io::Result<Self> {
        let stream = transport.socket();
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // Setting a size disables the kernel's autotuning, so a size is set only if autotuning would stay below it.
        if autotuned_bytes("tcp_wmem").unwrap_or(sockopt::socket_send_buffer_size(stream)?) < MIN_SOCKET_BUFFER_BYTES {
            sockopt::set_socket_send_buffer_size(stream, MIN_SOCKET_BUFFER_BYTES)?;
        }
        if autotuned_bytes("tcp_rmem").unwrap_or(sockopt::socket_recv_buffer_size(stream)?) < MIN_SOCKET_BUFFER_BYTES {
            sockopt::set_socket_recv_buffer_size(stream, MIN_SOCKET_BUFFER_BYTES)?;
        }
        Ok(TcpLink {
            transport,
            staging: vec![0; STAGING_BYTES].into(),
            start: 0,
            end: 0,
            incoming: Backoff::default(),
            outgoing: Backoff::default(),
            expected: 1,
            low_water: 1,
            ended: None,
            unanswered: AcknowledgementWait::default(),
        })
    }

    /// Let the system check that the other host answers while nothing is sent to it.
    pub(crate) fn probe(&self, timing: MembershipTiming) -> io::Result<()> {
        probe(self.transport.socket(), timing)
    }

    /// Return the time for which the other host has not acknowledged sent bytes, as of the last sample.
    pub(crate) fn unanswered(&mut self) -> Duration {
        self.unanswered.look(self.transport.socket())
    }

    /// Return whether the other host has not acknowledged all sent bytes.
    pub(crate) fn awaits_acknowledgement(&self) -> bool {
        awaits_acknowledgement(self.transport.socket())
    }

    /// Set the low-water mark to the expected bytes. Call before a sleep until the link is readable.
    pub fn prepare_sleep(&mut self) {
        // Ciphertext is never shorter than its plaintext.
        let here = self.staged() + self.transport.pending();
        let missing = self.expected.saturating_sub(here).min(MAX_LOW_WATER_BYTES);
        let low_water = if missing < MIN_LOW_WATER_BYTES { 1 } else { missing };
        // If setting the option fails, the socket keeps its previous value, and the next sleep tries again.
        if low_water != self.low_water && set_low_water(self.transport.socket(), low_water).is_ok() {
            self.low_water = low_water;
        }
    }

    /// Record the result of a sleep: whether data (or the end) is readable, and whether the socket is writable.
    pub fn note_ready(&mut self, readable: bool, writable: bool) {
        self.incoming.end_if(readable);
        self.outgoing.end_if(writable);
    }

    fn staged(&self) -> usize {
        self.end - self.start
    }

    /// Read once, behind the staged bytes.
    fn stage(&mut self) -> Result<(), LinkError> {
        self.staging.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.staged());
        self.end += self.incoming.read(&mut self.transport, &mut self.staging[self.end..], &mut self.ended)?;
        Ok(())
    }
}

impl Link for TcpLink {
    fn send(&mut self, parts: &[&[u8]]) -> Result<usize, LinkError> {
        let mut slices = [IoSlice::new(&[]); MAX_PART_COUNT];
        let mut count = 0;
        for part in parts.iter().filter(|part| !part.is_empty()).take(MAX_PART_COUNT) {
            slices[count] = IoSlice::new(part);
            count += 1;
        }
        if count == 0 || self.outgoing.skips() {
            return Ok(0);
        }
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        match self.transport.send(&slices[..count]) {
            Ok(sent) => {
                self.outgoing.start_if(self.transport.has_filled_up(sent, offered));
                Ok(sent)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.outgoing.start_if(true);
                Ok(0)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(LinkError::Closed { cause: error.to_string() }),
        }
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        if into.is_empty() {
            return Ok(0);
        }
        if self.staged() == 0 {
            if into.len() >= DIRECT_BYTES {
                return self.incoming.read(&mut self.transport, into, &mut self.ended);
            }
            self.stage()?;
        }
        let count = self.staged().min(into.len());
        into[..count].copy_from_slice(&self.staging[self.start..self.start + count]);
        self.consume(count);
        Ok(count)
    }

    fn peek(&mut self, min_bytes: usize) -> Result<&[u8], LinkError> {
        if self.staged() < min_bytes.max(1) {
            self.stage()?;
        }
        Ok(&self.staging[self.start..self.end])
    }

    fn consume(&mut self, count: usize) {
        assert!(count <= self.staged(), "no more bytes are consumed than have arrived");
        self.start += count;
    }

    fn expect(&mut self, bytes: usize) {
        self.expected = bytes;
    }

    fn unsent_bytes(&self) -> Result<usize, LinkError> {
        unsent_bytes(self.transport.socket()).map_err(|error| LinkError::Closed { cause: error.to_string() })
    }

    fn is_memory(&self) -> bool {
        false
    }
}

impl AsFd for TcpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.socket().as_fd()
    }
}

impl TcpTransport {
    fn socket(&self) -> &TcpStream {
        match self {
            TcpTransport::Plain(stream) => stream,
            TcpTransport::Encrypted(session) => session.socket(),
        }
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            TcpTransport::Plain(stream) => {
                let mut control = SendAncillaryBuffer::default();
                Ok(rustix::net::sendmsg(stream, parts, &mut control, SendFlags::NOSIGNAL)?)
            }
            TcpTransport::Encrypted(session) => session.write_parts(parts),
        }
    }

    /// Return whether the socket is full after it accepted `sent` of the `offered` bytes.
    fn has_filled_up(&self, sent: usize, offered: usize) -> bool {
        // A session accepts a few records at a time and itself waits until they are in the socket.
        matches!(self, TcpTransport::Plain(_)) && sent < offered
    }

    /// Receive as much as is available and fits; 0 at the end.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            TcpTransport::Plain(stream) => Ok(rustix::net::recv(stream, into, RecvFlags::empty())?.0),
            TcpTransport::Encrypted(session) => session.read_all(into),
        }
    }

    /// Return the number of bytes that were taken from the socket but cannot be received yet.
    fn pending(&self) -> usize {
        match self {
            TcpTransport::Plain(_) => 0,
            TcpTransport::Encrypted(session) => session.pending(),
        }
    }
}

/// Set the number of bytes that must arrive in a socket before it wakes a sleeping thread.
fn set_low_water(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    let bytes = bytes as libc::c_int;
    // SAFETY: The option is an int, which the call reads before it returns.
    let outcome = unsafe {
        let value = (&raw const bytes).cast();
        let length = size_of_val(&bytes) as libc::socklen_t;
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, value, length)
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Return the number of bytes in a socket that it has not sent even once.
fn unsent_bytes(stream: &TcpStream) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: The system call writes an int to that address.
    match unsafe { libc::ioctl(stream.as_raw_fd(), libc::SIOCOUTQNSD, &raw mut bytes) } {
        0 => Ok(bytes as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Return the size up to which the kernel autotunes a socket buffer.
fn autotuned_bytes(setting: &str) -> Option<usize> {
    let limits = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{setting}")).ok()?;
    limits.split_whitespace().nth(2)?.parse().ok()
}

/// The remaining number of skipped attempts after a direction was exhausted.
#[derive(Default)]
struct Backoff {
    left: u32,
}

impl Backoff {
    fn start_if(&mut self, exhausted: bool) {
        if exhausted {
            self.left = SKIPPED_ATTEMPT_COUNT;
        }
    }

    fn end_if(&mut self, ready: bool) {
        if ready {
            self.left = 0;
        }
    }

    /// Return whether to skip this attempt.
    fn skips(&mut self) -> bool {
        let is_skipped = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_skipped
    }

    /// Read once; return 0 if no data is available. The first end of the stream is final.
    fn read(
        &mut self,
        transport: &mut TcpTransport,
        into: &mut [u8],
        ended: &mut Option<String>,
    ) -> Result<usize, LinkError> {
        if ended.is_none() {
            if self.skips() {
                return Ok(0);
            }
            match transport.receive(into) {
                Ok(0) => *ended = Some("the peer closed the connection".into()),
                Ok(count) => {
                    self.start_if(count < into.len());
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.start_if(true);
                    return Ok(0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
                Err(error) => *ended = Some(error.to_string()),
            }
        }
        Err(LinkError::Closed { cause: ended.clone().unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Token;
    use crate::links::{Doorbell, WatchedDescriptor};
    use ripieno_run::conformance::{LinkEnd, LinkPair, Parker};
    use std::net::TcpListener;

    /// The conformance suite of links; tests/links.rs runs it for all other kinds.
    mod encrypted {
        ripieno_run::link_laws!(super::links, super::ends);
    }

    #[test]
    fn tampered_bytes_are_never_received() {
        let [mut sender, mut receiver] = sessions().map(|session| TcpLink::over(Stream::Tls(session)).unwrap());
        assert_eq!(sender.send(&[b"whole"]), Ok(5));
        let taken = (0..).find_map(|_| receiver.peek(5).unwrap().first_chunk::<5>().copied());
        assert_eq!(taken.as_ref(), Some(b"whole"));
        receiver.consume(5);
        // A forged record: a header of five bytes and an invalid tag.
        let forged = [&[23, 3, 3, 0, 22][..], &[7; 22]].concat();
        std::io::Write::write_all(&mut sender.transport.socket(), &forged).unwrap();
        let error = (0..).find_map(|_| receiver.receive(&mut [0; 64]).err()).unwrap();
        assert!(error.to_string().contains("decrypt"), "{error}");
        assert!(receiver.receive(&mut [0; 64]).is_err(), "the error is permanent");
    }

    /// Return both ends of a session after its handshake.
    fn sessions() -> [Box<TlsSession>; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (there, _) = listener.accept().unwrap();
        let token = Token::from_secret("test");
        let sessions = [TlsSession::call(here, &token).unwrap(), TlsSession::answer(there, &token).unwrap()];
        let threads = sessions.map(|mut session| {
            std::thread::spawn(move || {
                while !session.handshake().unwrap() {}
                Box::new(session)
            })
        });
        threads.map(|thread| thread.join().unwrap())
    }

    fn links() -> LinkPair {
        let (first, second) = ends();
        (first.link, second.link)
    }

    fn ends() -> (LinkEnd, LinkEnd) {
        let [first, second] = sessions().map(|session| {
            let socket = session.socket().try_clone().unwrap();
            let parker = TcpDoorbell { doorbell: Doorbell::new().unwrap(), socket };
            LinkEnd { link: Box::new(TcpLink::over(Stream::Tls(session)).unwrap()), parker: Box::new(parker) }
        });
        (first, second)
    }

    struct TcpDoorbell {
        doorbell: Doorbell,
        socket: TcpStream,
    }

    impl Parker for TcpDoorbell {
        fn prepare(&mut self) {
            self.doorbell.prepare();
        }

        fn park(&mut self, readable: bool, writable: bool, timeout: Duration) {
            let watch = WatchedDescriptor { fd: self.socket.as_fd(), readable, writable };
            self.doorbell.wait(std::iter::once(watch), timeout).unwrap();
        }

        fn cancel(&mut self) {
            self.doorbell.cancel();
        }
    }
}
