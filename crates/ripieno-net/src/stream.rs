//! A connection over TCP, TLS or a Unix socket.

use crate::config::Encryption;
use crate::tls::{BINDING_BYTES, TlsSession};
use rustix::net::RecvFlags;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connection over TCP, optionally encrypted, or over a Unix socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsSession>),
    Unix(UnixStream),
}

impl Stream {
    /// Connect to a TCP address within `timeout`.
    pub fn connect_tcp(address: SocketAddr, timeout: Duration) -> io::Result<Stream> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(stream))
    }

    /// Connect to an abstract Unix socket of this host.
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

    /// Set the timeout of each later read and write.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        // A timeout of zero would disable the timeout.
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

    /// Return keying material that only the two ends of an encrypted connection know, or zeros without encryption.
    pub fn binding(&self) -> io::Result<[u8; BINDING_BYTES]> {
        match self {
            Stream::Tls(session) => session.binding(),
            Stream::Tcp(_) | Stream::Unix(_) => Ok([0; BINDING_BYTES]),
        }
    }

    /// Return whether `tls` allows this connection. Unix sockets are always allowed. Connections within a host may be
    /// encrypted even if that is not required.
    pub fn is_allowed(&self, tls: Encryption) -> bool {
        match self {
            Stream::Tcp(socket) => !tls.covers(stays_on_host(socket)),
            Stream::Tls(_) => tls != Encryption::Off,
            Stream::Unix(_) => true,
        }
    }

    /// Return the source of a TCP connection: its IPv4 address, or its IPv6 network, because a host with one address of
    /// that network usually controls the whole network.
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

    /// Signal that no more data will be sent.
    pub fn end_sending(&mut self) {
        // The peer may have closed first, which is not an error.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write),
            Stream::Tls(session) => {
                session.end_sending();
                Ok(())
            }
            Stream::Unix(stream) => stream.shutdown(std::net::Shutdown::Write),
        };
    }

    /// Return whether the peer has closed its end and all of its data was read.
    pub fn has_ended(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(self, &mut [0u8; 1], flags) {
            Ok((count, _)) => count == 0,
            Err(error) => !is_would_block(&error.into()),
        }
    }

    /// Fill `into` before `deadline` on a blocking stream, even if bytes arrive slowly.
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

/// Return whether both ends of a connection are on one host, judged by their addresses. The kernel drops outside
/// packets with a local source address, so an on-path attacker cannot fake this.
pub(crate) fn stays_on_host(socket: &TcpStream) -> bool {
    let (Ok(own), Ok(peer)) = (socket.local_addr(), socket.peer_addr()) else { return false };
    let [own, peer] = [own, peer].map(|end| end.ip().to_canonical());
    own == peer || own.is_loopback() && peer.is_loopback()
}

/// Return whether a non-blocking call would have blocked or was interrupted, so that it can be repeated.
pub(crate) fn is_would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
