//! The two listeners of a worker: one TCP port for all purposes, one abstract Unix socket for peers on the same host.

use crate::config::{Config, Ports, fill_random};
use crate::error::NetError;
use crate::host::{Addresses, host_name};
use crate::shortage::{shortage, with_advice};
use crate::stream::Stream;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};

const BACKLOG: i32 = 1024;

/// Both listeners of a worker, and the addresses that peers need.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub listeners: ListenerSet,
    pub port: u16,
    /// The name of the Unix socket; `None` if Unix sockets are not available.
    pub unix: Option<String>,
    pub addresses: Addresses,
}

/// The sockets that accept connections.
#[derive(Debug)]
pub(crate) struct ListenerSet {
    tcp: TcpListener,
    unix: Option<UnixListener>,
}

impl Listeners {
    pub fn open(config: &Config) -> Result<Listeners, NetError> {
        let (listener, addresses) = match &config.host {
            Some(host) => on_host(config, host)?,
            None => everywhere(config)?,
        };
        let os =
            |action| move |error: io::Error| NetError::Os { rank: config.rank, action, cause: with_advice(&error) };
        let port = listener.local_addr().map_err(os("listen"))?.port();
        let (unix, name) = unix()?.unzip();
        let listeners = ListenerSet::new(listener, unix).map_err(os("listen"))?;
        Ok(Listeners { listeners, port, unix: name, addresses })
    }
}

impl ListenerSet {
    /// Create the set of these listeners, which become non-blocking.
    pub fn new(tcp: TcpListener, unix: Option<UnixListener>) -> io::Result<ListenerSet> {
        tcp.set_nonblocking(true)?;
        unix.as_ref().map_or(Ok(()), |unix| unix.set_nonblocking(true))?;
        Ok(ListenerSet { tcp, unix })
    }

    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let unix = self.unix.as_ref().map(UnixListener::as_fd);
        std::iter::once(self.tcp.as_fd()).chain(unix)
    }

    /// Return the next connection; `None` if none is pending. Processes of other users of the host are rejected with
    /// `PermissionDenied`.
    pub fn accept(&self) -> io::Result<Option<Stream>> {
        let accepted = match self.tcp.accept() {
            Ok((stream, _)) => stream.set_nodelay(true).map(|()| Stream::Tcp(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => match &self.unix {
                Some(listener) => accept_own(listener).map(Stream::Unix),
                None => Err(error),
            },
            Err(error) => Err(error),
        };
        match accepted {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Accept the next connection if its process belongs to this user.
fn accept_own(listener: &UnixListener) -> io::Result<UnixStream> {
    let (stream, _) = listener.accept()?;
    let is_own = socket_peercred(&stream)?.uid == geteuid();
    if is_own { Ok(stream) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

fn everywhere(config: &Config) -> Result<(TcpListener, Addresses), NetError> {
    let addresses = Addresses::of_interfaces().map_err(|error| address_error(config, &host_name(), &error))?;
    // One dual-stack socket serves both families; a kernel without IPv6 supports only IPv4.
    let any = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    let listener = bind_first(&any, config.ports).map_err(|error| bind_error(config, "*", error))?;
    Ok((listener, addresses))
}

fn on_host(config: &Config, host: &str) -> Result<(TcpListener, Addresses), NetError> {
    let mut addresses = Addresses::of_name(host).map_err(|error| address_error(config, host, &error))?;
    let candidates: Vec<IpAddr> = addresses.usable.iter().chain(&addresses.loopback).copied().collect();
    if candidates.is_empty() {
        return Err(NetError::Address { rank: config.rank, host: host.to_string(), cause: addresses.explain() });
    }
    let listener = bind_first(&candidates, config.ports).map_err(|error| bind_error(config, host, error))?;
    let bound = listener.local_addr().map_err(|error| bind_error(config, host, error))?.ip();
    addresses.usable.retain(|address| *address == bound);
    addresses.loopback.retain(|address| *address == bound);
    Ok((listener, addresses))
}

fn address_error(config: &Config, host: &str, error: &io::Error) -> NetError {
    let rank = config.rank;
    match shortage(error) {
        Some(cause) => NetError::Os { rank, action: "look up addresses", cause },
        None => NetError::Address { rank, host: host.to_string(), cause: error.to_string() },
    }
}

fn bind_error(config: &Config, host: &str, error: io::Error) -> NetError {
    if let Some(cause) = shortage(&error) {
        return NetError::Os { rank: config.rank, action: "listen on a port", cause };
    }
    let (rank, host, ports) = (config.rank, host.to_string(), config.ports.to_string());
    NetError::Bind { rank, host, ports, cause: error.to_string() }
}

/// Listen on the first address and port that is available.
pub(crate) fn bind_first(addresses: &[IpAddr], ports: Ports) -> io::Result<TcpListener> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for &address in addresses {
        for port in ports.first..=ports.last {
            match bind(SocketAddr::new(address, port)) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
    }
    Err(last)
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Reuse a port with old connections in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn unix() -> Result<Option<(UnixListener, String)>, NetError> {
    let mut suffix = [0; 16];
    fill_random(&mut suffix)?;
    let name = format!("ripieno-{}", suffix.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let listener =
        std::os::unix::net::SocketAddr::from_abstract_name(&name).and_then(|address| UnixListener::bind_addr(&address));
    Ok(listener.ok().map(|listener| (listener, name)))
}
