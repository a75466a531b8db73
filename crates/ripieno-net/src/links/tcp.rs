//! A link over a TCP connection.
//!
//! Large receives go straight to where they belong; small ones and peeks go through a staging buffer, so that a message
//! of many small parts costs one system call. A socket that had nothing to give, or took less than all, is left alone
//! until a sleep shows that it is ready. Cost of a message: one system call to send it, one to sleep, one to take it.

use ripieno_run::{Link, LinkError};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sockopt};
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

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
    stream: TcpStream,
    staging: Box<[u8]>,
    /// The staged bytes are `staging[start..end]`.
    start: usize,
    end: usize,
    incoming: Rest,
    outgoing: Rest,
    /// Bytes that are sure to come.
    expected: usize,
    /// Bytes that the socket holds before it wakes a sleeper.
    low_water: usize,
    /// Why nothing more will arrive.
    ended: Option<String>,
}

impl TcpLink {
    /// A link over `stream`, which is connected and authenticated and has no bytes read ahead.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // Setting a size ends the kernel's autotuning, so it is done only where autotuning would stay below.
        if autotuned_bytes("tcp_wmem").unwrap_or(sockopt::socket_send_buffer_size(&stream)?) < MIN_SOCKET_BUFFER_BYTES {
            sockopt::set_socket_send_buffer_size(&stream, MIN_SOCKET_BUFFER_BYTES)?;
        }
        if autotuned_bytes("tcp_rmem").unwrap_or(sockopt::socket_recv_buffer_size(&stream)?) < MIN_SOCKET_BUFFER_BYTES {
            sockopt::set_socket_recv_buffer_size(&stream, MIN_SOCKET_BUFFER_BYTES)?;
        }
        Ok(TcpLink {
            stream,
            staging: vec![0; STAGING_BYTES].into(),
            start: 0,
            end: 0,
            incoming: Rest::default(),
            outgoing: Rest::default(),
            expected: 1,
            low_water: 1,
            ended: None,
        })
    }

    /// Has the socket wake this rank only for what it expects; called before a sleep until there is something to read.
    pub fn prepare_sleep(&mut self) {
        let missing = self.expected.saturating_sub(self.staged()).min(MAX_LOW_WATER_BYTES);
        let low_water = if missing < MIN_LOW_WATER_BYTES { 1 } else { missing };
        // A socket that refuses keeps what it has, so one that wakes early or late is told again before the next sleep.
        if low_water != self.low_water && set_low_water(&self.stream, low_water).is_ok() {
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
        self.end += self.incoming.read(&self.stream, &mut self.staging[self.end..], &mut self.ended)?;
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
        let mut control = SendAncillaryBuffer::default();
        match rustix::net::sendmsg(&self.stream, &slices[..count], &mut control, SendFlags::NOSIGNAL) {
            Ok(sent) => {
                self.outgoing.begin_if(sent < offered);
                Ok(sent)
            }
            Err(rustix::io::Errno::AGAIN) => {
                self.outgoing.begin_if(true);
                Ok(0)
            }
            Err(rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(LinkError::Closed { cause: io::Error::from(error).to_string() }),
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
                return self.incoming.read(&self.stream, into, &mut self.ended);
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

    fn is_memory(&self) -> bool {
        false
    }
}

impl AsFd for TcpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
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

/// The size up to which the kernel lets a socket buffer grow by itself.
fn autotuned_bytes(setting: &str) -> Option<usize> {
    let limits = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{setting}")).ok()?;
    limits.split_whitespace().nth(2)?.parse().ok()
}

/// How often more a direction is left alone, because it could not go on.
#[derive(Default)]
struct Rest {
    left: u32,
}

impl Rest {
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
    fn read(&mut self, stream: &TcpStream, into: &mut [u8], ended: &mut Option<String>) -> Result<usize, LinkError> {
        if ended.is_none() {
            if self.goes_on() {
                return Ok(0);
            }
            match rustix::net::recv(stream, &mut *into, RecvFlags::empty()) {
                Ok((0, _)) => *ended = Some("the peer closed the connection".into()),
                Ok((count, _)) => {
                    self.begin_if(count < into.len());
                    return Ok(count);
                }
                Err(rustix::io::Errno::AGAIN) => {
                    self.begin_if(true);
                    return Ok(0);
                }
                Err(rustix::io::Errno::INTR) => return Ok(0),
                Err(error) => *ended = Some(io::Error::from(error).to_string()),
            }
        }
        Err(LinkError::Closed { cause: ended.clone().unwrap_or_default() })
    }
}
