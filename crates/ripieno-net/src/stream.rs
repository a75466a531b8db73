//! A connection, whichever family it is of, encrypted or not.

use crate::config::Encryption;
use crate::tls::{BINDING_BYTES, TlsSession};
use rustix::net::RecvFlags;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connection over TCP or over a Unix socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsSession>),
    Unix(UnixStream),
}

impl Stream {
    /// Connects to a TCP address, waiting no longer than `timeout`.
    pub fn connect_tcp(address: SocketAddr, timeout: Duration) -> io::Result<Stream> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(stream))
    }

    /// Connects to an abstract Unix socket of this host.
    pub fn connect_unix(name: &str) -> io::Result<Stream> {
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        UnixStream::connect_addr(&address).map(Stream::Unix)
    }

    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Stream::Tls(session) => session.socket().set_nonblocking(nonblocking),
            Stream::Unix(stream) => stream.set_nonblocking(nonblocking),
        }
    }

    /// Bounds each read and write from now on.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        // A timeout of zero would mean none at all.
        let timeout = Some(timeout.max(Duration::from_millis(1)));
        let socket = match self {
            Stream::Tcp(stream) => stream,
            Stream::Tls(session) => session.socket(),
            Stream::Unix(stream) => {
                return stream.set_read_timeout(timeout).and(stream.set_write_timeout(timeout));
            }
        };
        socket.set_read_timeout(timeout).and(socket.set_write_timeout(timeout))
    }

    /// What the two ends of an encrypted connection alone know; zeros for another.
    pub fn binding(&self) -> io::Result<[u8; BINDING_BYTES]> {
        match self {
            Stream::Tls(session) => session.binding(),
            Stream::Tcp(_) | Stream::Unix(_) => Ok([0; BINDING_BYTES]),
        }
    }

    /// Whether it is encrypted, or not, as `tls` lets it be: Unix sockets never are, and between ends of one host it
    /// may be more than is wanted.
    pub fn is_allowed(&self, tls: Encryption) -> bool {
        match self {
            Stream::Tcp(socket) => !tls.covers(stays_on_host(socket)),
            Stream::Tls(_) => tls != Encryption::Off,
            Stream::Unix(_) => true,
        }
    }

    /// From where the peer of a TCP connection comes: its address, or of IPv6 the network that has it, for whoever has
    /// one such address has all of that.
    pub fn source(&self) -> Option<IpAddr> {
        let socket = match self {
            Stream::Tcp(socket) => socket,
            Stream::Tls(session) => session.socket(),
            Stream::Unix(_) => return None,
        };
        Some(match socket.peer_addr().ok()?.ip().to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
            address => address,
        })
    }

    /// Says that nothing more will be sent.
    pub fn end_sending(&mut self) {
        // The peer may have closed first, which is as good.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write),
            Stream::Tls(session) => {
                session.end_sending();
                Ok(())
            }
            Stream::Unix(stream) => stream.shutdown(std::net::Shutdown::Write),
        };
    }

    /// Whether the peer has closed its end and everything that it said was read.
    pub fn has_ended(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(self, &mut [0u8; 1], flags) {
            Ok((count, _)) => count == 0,
            Err(error) => !is_not_now(&error.into()),
        }
    }

    /// Fills `into` before `deadline`, on a blocking stream, however slowly the bytes drip.
    pub fn read_exact_until(&mut self, into: &mut [u8], deadline: Instant) -> io::Result<()> {
        let mut filled = 0;
        while filled < into.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.set_timeout(left)?;
            match self.read(&mut into[filled..]) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")),
                Ok(count) => filled += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Tls(session) => session.read(into),
            Stream::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Tls(session) => session.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Tls(session) => session.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Whether both ends of a connection are on one host, as its addresses tell. The kernel takes no packet from outside
/// that bears an address of its own, so nobody on the way can make it look like that.
pub(crate) fn stays_on_host(socket: &TcpStream) -> bool {
    let (Ok(own), Ok(peer)) = (socket.local_addr(), socket.peer_addr()) else { return false };
    let [own, peer] = [own, peer].map(|end| end.ip().to_canonical());
    own == peer || own.is_loopback() && peer.is_loopback()
}

/// Whether an error of a non-blocking call only means "not now".
pub(crate) fn is_not_now(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
