//! A link over a TCP connection, encrypted or not.
//!
//! Large receives go straight to where they belong; small ones and peeks go through a staging buffer, so that a message
//! of many small parts costs one system call. A socket that had nothing to give, or took less than all, is left alone
//! until a sleep shows that it is ready. Cost of a message: one system call to send it, one to sleep, one to take it.

use super::unanswered::{AcknowledgementWait, probe};
use crate::stream::Stream;
use crate::tls::TlsSession;
use ripieno_run::{Link, LinkError};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sockopt};
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Socket buffers are at least so large, once they are needed.
const MIN_SOCKET_BUFFER_BYTES: usize = 128 << 10;

/// Bytes read ahead at most.
const STAGING_BYTES: usize = 256 << 10;

/// A receive into at least so many bytes goes past the staging buffer.
const DIRECT_BYTES: usize = 16 << 10;

/// Parts that go in one system call at most.
const MAX_PARTS: usize = 16;

/// So often a direction that could not go on is left alone, unless a sleep shows that it can. A rank that does not
/// sleep, because other links keep it busy, thus looks at this one once in a while.
const REST_COUNT: u32 = 16;

/// A sleeper waits for so many bytes at most, which must be well below a socket buffer.
const MAX_LOW_WATER_BYTES: usize = 32 << 10;

/// Fewer bytes than these come in one packet or two, so that waiting for all of them saves nothing.
const MIN_LOW_WATER_BYTES: usize = 4 << 10;

/// One end of a link over a TCP connection.
pub struct TcpLink {
    carrier: Carrier,
    staging: Box<[u8]>,
    /// The staged bytes are `staging[start..end]`.
    start: usize,
    end: usize,
    incoming: PartialWrite,
    outgoing: PartialWrite,
    /// Bytes that are sure to come.
    expected: usize,
    /// Bytes that the socket holds before it wakes a sleeper.
    low_water: usize,
    /// Why nothing more will arrive.
    ended: Option<String>,
    unanswered: AcknowledgementWait,
}

/// What the bytes pass through.
enum Carrier {
    Plain(TcpStream),
    Encrypted(Box<TlsSession>),
}

impl TcpLink {
    /// A link over `stream`, which is connected and authenticated and has no bytes read ahead.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        TcpLink::with(Carrier::Plain(stream))
    }

    /// The same over any connection that can carry one.
    pub(crate) fn over(stream: Stream) -> Result<Self, LinkError> {
        let closed = |cause: String| LinkError::Closed { cause };
        let carrier = match stream {
            Stream::Tcp(stream) => Carrier::Plain(stream),
            Stream::Tls(mut session) => {
                session.read_ahead();
                Carrier::Encrypted(session)
            }
            Stream::Unix(_) => return Err(closed("a Unix socket carries no link of its own".to_string())),
        };
        TcpLink::with(carrier).map_err(|error| closed(error.to_string()))
    }

    /// Whether what passes is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.carrier, Carrier::Encrypted(_))
    }

    fn with(carrier: Carrier) -> io::Result<Self> {
        let stream = carrier.socket();
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // Setting a size ends the kernel's autotuning, so it is done only where autotuning would stay below.
        if autotuned_bytes("tcp_wmem").unwrap_or(sockopt::socket_send_buffer_size(stream)?) < MIN_SOCKET_BUFFER_BYTES {
            sockopt::set_socket_send_buffer_size(stream, MIN_SOCKET_BUFFER_BYTES)?;
        }
        if autotuned_bytes("tcp_rmem").unwrap_or(sockopt::socket_recv_buffer_size(stream)?) < MIN_SOCKET_BUFFER_BYTES {
            sockopt::set_socket_recv_buffer_size(stream, MIN_SOCKET_BUFFER_BYTES)?;
        }
        Ok(TcpLink {
            carrier,
            staging: vec![0; STAGING_BYTES].into(),
            start: 0,
            end: 0,
            incoming: PartialWrite::default(),
            outgoing: PartialWrite::default(),
            expected: 1,
            low_water: 1,
            ended: None,
            unanswered: AcknowledgementWait::default(),
        })
    }

    /// Has the system end the connection if the other host says nothing for about `limit` while nothing is sent to it.
    pub(crate) fn probe(&self, limit: Duration) -> io::Result<()> {
        probe(self.carrier.socket(), limit)
    }

    /// How long the other host has acknowledged nothing of what it was sent; looked at now and then.
    pub(crate) fn unanswered(&mut self) -> Duration {
        self.unanswered.look(self.carrier.socket())
    }

    /// Has the socket wake this rank only for what it expects; called before a sleep until there is something to read.
    pub fn prepare_sleep(&mut self) {
        // What is encrypted is no shorter than what it stands for.
        let here = self.staged() + self.carrier.pending();
        let missing = self.expected.saturating_sub(here).min(MAX_LOW_WATER_BYTES);
        let low_water = if missing < MIN_LOW_WATER_BYTES { 1 } else { missing };
        // A socket that refuses keeps what it has, so one that wakes early or late is told again before the next sleep.
        if low_water != self.low_water && set_low_water(self.carrier.socket(), low_water).is_ok() {
            self.low_water = low_water;
        }
    }

    /// Notes what a sleep has shown: that bytes, or the end, can be read; that bytes can be written.
    pub fn note_ready(&mut self, readable: bool, writable: bool) {
        self.incoming.end_if(readable);
        self.outgoing.end_if(writable);
    }

    fn staged(&self) -> usize {
        self.end - self.start
    }

    /// Reads once behind the staged bytes.
    fn stage(&mut self) -> Result<(), LinkError> {
        self.staging.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.staged());
        self.end += self.incoming.read(&mut self.carrier, &mut self.staging[self.end..], &mut self.ended)?;
        Ok(())
    }
}

impl Link for TcpLink {
    fn send(&mut self, parts: &[&[u8]]) -> Result<usize, LinkError> {
        let mut slices = [IoSlice::new(&[]); MAX_PARTS];
        let mut count = 0;
        for part in parts.iter().filter(|part| !part.is_empty()).take(MAX_PARTS) {
            slices[count] = IoSlice::new(part);
            count += 1;
        }
        if count == 0 || self.outgoing.goes_on() {
            return Ok(0);
        }
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        match self.carrier.send(&slices[..count]) {
            Ok(sent) => {
                self.outgoing.begin_if(self.carrier.has_filled_up(sent, offered));
                Ok(sent)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.outgoing.begin_if(true);
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
                return self.incoming.read(&mut self.carrier, into, &mut self.ended);
            }
            self.stage()?;
        }
        let count = self.staged().min(into.len());
        into[..count].copy_from_slice(&self.staging[self.start..self.start + count]);
        self.consume(count);
        Ok(count)
    }

    fn peek(&mut self, least: usize) -> Result<&[u8], LinkError> {
        if self.staged() < least.max(1) {
            self.stage()?;
        }
        Ok(&self.staging[self.start..self.end])
    }

    fn consume(&mut self, count: usize) {
        assert!(count <= self.staged(), "no more is taken than has arrived");
        self.start += count;
    }

    fn expect(&mut self, bytes: usize) {
        self.expected = bytes;
    }

    fn unsent_bytes(&self) -> Result<usize, LinkError> {
        unsent_bytes(self.carrier.socket()).map_err(|error| LinkError::Closed { cause: error.to_string() })
    }

    fn is_memory(&self) -> bool {
        false
    }
}

impl AsFd for TcpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.carrier.socket().as_fd()
    }
}

impl Carrier {
    fn socket(&self) -> &TcpStream {
        match self {
            Carrier::Plain(stream) => stream,
            Carrier::Encrypted(session) => session.socket(),
        }
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Carrier::Plain(stream) => {
                let mut control = SendAncillaryBuffer::default();
                Ok(rustix::net::sendmsg(stream, parts, &mut control, SendFlags::NOSIGNAL)?)
            }
            Carrier::Encrypted(session) => session.write_parts(parts),
        }
    }

    /// Whether the socket has no more room, now that it has taken `sent` bytes of those that were offered.
    fn has_filled_up(&self, sent: usize, offered: usize) -> bool {
        // A session takes a few records at a time, and waits by itself until they are in the socket.
        matches!(self, Carrier::Plain(_)) && sent < offered
    }

    /// All that is there, as far as there is room; 0 at the end.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Carrier::Plain(stream) => Ok(rustix::net::recv(stream, into, RecvFlags::empty())?.0),
            Carrier::Encrypted(session) => session.read_all(into),
        }
    }

    /// Bytes that have left the socket and cannot be received yet.
    fn pending(&self) -> usize {
        match self {
            Carrier::Plain(_) => 0,
            Carrier::Encrypted(session) => session.pending(),
        }
    }
}

/// Sets how many bytes a socket holds before it wakes a sleeper.
fn set_low_water(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    let bytes = bytes as libc::c_int;
    // SAFETY: the option is an int, which the call reads before it returns.
    let outcome = unsafe {
        let value = (&raw const bytes).cast();
        let length = size_of_val(&bytes) as libc::socklen_t;
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, value, length)
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What a socket holds that it has not sent even once.
fn unsent_bytes(stream: &TcpStream) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the system writes an int there.
    match unsafe { libc::ioctl(stream.as_raw_fd(), libc::SIOCOUTQNSD, &raw mut bytes) } {
        0 => Ok(bytes as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The size up to which the kernel lets a socket buffer grow by itself.
fn autotuned_bytes(setting: &str) -> Option<usize> {
    let limits = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{setting}")).ok()?;
    limits.split_whitespace().nth(2)?.parse().ok()
}

/// How often more a direction is left alone, because it could not go on.
#[derive(Default)]
struct PartialWrite {
    left: u32,
}

impl PartialWrite {
    fn begin_if(&mut self, exhausted: bool) {
        if exhausted {
            self.left = REST_COUNT;
        }
    }

    fn end_if(&mut self, ready: bool) {
        if ready {
            self.left = 0;
        }
    }

    /// Whether the direction is left alone this time.
    fn goes_on(&mut self) -> bool {
        let rests = self.left > 0;
        self.left = self.left.saturating_sub(1);
        rests
    }

    /// Reads once; 0 when nothing is there. The first end of the stream stays its end.
    fn read(&mut self, carrier: &mut Carrier, into: &mut [u8], ended: &mut Option<String>) -> Result<usize, LinkError> {
        if ended.is_none() {
            if self.goes_on() {
                return Ok(0);
            }
            match carrier.receive(into) {
                Ok(0) => *ended = Some("the peer closed the connection".into()),
                Ok(count) => {
                    self.begin_if(count < into.len());
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.begin_if(true);
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
    use ripieno_run::conformance::{LinkEnd, LinkPair, Sleeper};
    use std::net::TcpListener;

    /// The laws of links, which tests/links.rs has for every other kind.
    mod encrypted {
        ripieno_run::link_laws!(super::links, super::ends);
    }

    #[test]
    fn no_byte_is_taken_that_was_changed_on_its_way() {
        let [mut sender, mut receiver] = sessions().map(|session| TcpLink::over(Stream::Tls(session)).unwrap());
        assert_eq!(sender.send(&[b"whole"]), Ok(5));
        let taken = (0..).find_map(|_| receiver.peek(5).unwrap().first_chunk::<5>().copied());
        assert_eq!(taken.as_ref(), Some(b"whole"));
        receiver.consume(5);
        // A record of five bytes and a tag that nobody has made.
        let forged = [&[23, 3, 3, 0, 22][..], &[7; 22]].concat();
        std::io::Write::write_all(&mut sender.carrier.socket(), &forged).unwrap();
        let error = (0..).find_map(|_| receiver.receive(&mut [0; 64]).err()).unwrap();
        assert!(error.to_string().contains("decrypt"), "{error}");
        assert!(receiver.receive(&mut [0; 64]).is_err(), "for good");
    }

    /// Both ends of a session whose keys are agreed on.
    fn sessions() -> [Box<TlsSession>; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (there, _) = listener.accept().unwrap();
        let token = Token::from_secret("test");
        let sessions = [TlsSession::call(here, &token).unwrap(), TlsSession::answer(there, &token).unwrap()];
        let agreed = sessions.map(|mut session| {
            std::thread::spawn(move || {
                while !session.shake_hands().unwrap() {}
                Box::new(session)
            })
        });
        agreed.map(|thread| thread.join().unwrap())
    }

    fn links() -> LinkPair {
        let (first, second) = ends();
        (first.link, second.link)
    }

    fn ends() -> (LinkEnd, LinkEnd) {
        let [first, second] = sessions().map(|session| {
            let socket = session.socket().try_clone().unwrap();
            let sleeper = TcpDoorbell { doorbell: Doorbell::new().unwrap(), socket };
            LinkEnd { link: Box::new(TcpLink::over(Stream::Tls(session)).unwrap()), sleeper: Box::new(sleeper) }
        });
        (first, second)
    }

    struct TcpDoorbell {
        doorbell: Doorbell,
        socket: TcpStream,
    }

    impl Sleeper for TcpDoorbell {
        fn prepare(&mut self) {
            self.doorbell.prepare();
        }

        fn sleep(&mut self, readable: bool, writable: bool, timeout: Duration) {
            let watch = WatchedDescriptor { fd: self.socket.as_fd(), readable, writable };
            self.doorbell.wait(std::iter::once(watch), timeout).unwrap();
        }

        fn cancel(&mut self) {
            self.doorbell.cancel();
        }
    }
}
