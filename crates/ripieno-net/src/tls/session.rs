//! One end of an encrypted connection, over a blocking or a non-blocking socket.

use super::records::{RecordReader, TlsRecords};
use super::{answering, calling};
use crate::config::Token;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes of keying material that stand for a session.
pub(crate) const BINDING_BYTES: usize = 32;

/// One end of an encrypted connection. Reads and writes behave as those of its socket.
pub(crate) struct TlsSession {
    socket: TcpStream,
    state: Box<rustls::Connection>,
    records: TlsRecords,
    /// Bytes that are encrypted, but of which not all are in the socket: they count as written only when they are, and
    /// until then they are offered again.
    taken: usize,
    /// Why nothing more is read: what came was not what the peer has sent, say.
    broken: Option<rustls::Error>,
}

impl TlsSession {
    /// Begins to call who listens at the other end of `socket`.
    pub fn call(socket: TcpStream, token: &Token) -> io::Result<TlsSession> {
        Ok(TlsSession::new(socket, calling(token).map_err(io::Error::other)?))
    }

    /// Begins to answer who has connected by `socket`.
    pub fn answer(socket: TcpStream, token: &Token) -> io::Result<TlsSession> {
        Ok(TlsSession::new(socket, answering(token).map_err(io::Error::other)?))
    }

    fn new(socket: TcpStream, state: rustls::Connection) -> TlsSession {
        TlsSession { socket, state: Box::new(state), records: TlsRecords::default(), taken: 0, broken: None }
    }

    /// Does the next step until both ends have proved themselves; returns whether that is done.
    pub fn shake_hands(&mut self) -> io::Result<bool> {
        if self.state.wants_write() {
            self.state.write_tls(&mut self.socket)?;
        } else if self.state.is_handshaking() && !self.pull()? {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
        }
        Ok(!self.state.is_handshaking() && !self.state.wants_write())
    }

    /// What both ends of this session know, and nobody else.
    pub fn binding(&self) -> io::Result<[u8; BINDING_BYTES]> {
        let exported = self.state.export_keying_material([0; BINDING_BYTES], b"EXPORTER-ripieno authentication", None);
        exported.map_err(io::Error::other)
    }

    /// The name of the cipher suite, once it is agreed on.
    #[cfg(test)]
    pub fn cipher(&self) -> Option<&'static str> {
        self.state.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str())
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Reads from now on whatever the socket has: for who reads on until nothing is there.
    pub fn read_ahead(&mut self) {
        self.records.read_ahead();
    }

    /// Bytes that have left the socket and are no part of a whole record yet.
    pub fn pending(&self) -> usize {
        self.records.pending()
    }

    /// Reads all that is there, as far as there is room. `WouldBlock` if that is nothing, 0 at the end.
    pub fn read_all(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match self.read(&mut into[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Writes of the concatenation of `parts`; returns how much. What was offered in vain is offered again, at once or
    /// in pieces, before anything else.
    pub fn write_parts(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.taken == 0 {
            self.taken = self.state.writer().write_vectored(parts)?;
        }
        self.push()?;
        let count = self.taken.min(parts.iter().map(|part| part.len()).sum());
        self.taken -= count;
        Ok(count)
    }

    /// Says that nothing more will be written.
    pub fn end_sending(&mut self) {
        self.state.send_close_notify();
        // The peer may have closed first, which is as good.
        let _ = self.push();
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    fn push(&mut self) -> io::Result<()> {
        while self.state.wants_write() {
            self.state.write_tls(&mut self.socket)?;
        }
        Ok(())
    }

    /// Takes the next bytes of the socket; false at their end.
    fn pull(&mut self) -> io::Result<bool> {
        if let Some(error) = &self.broken {
            return Err(io::Error::new(io::ErrorKind::InvalidData, error.clone()));
        }
        let count = self.state.read_tls(&mut RecordReader { records: &mut self.records, socket: &self.socket })?;
        if let Err(error) = self.state.process_new_packets() {
            // The peer is told why, if it still listens.
            let _ = self.push();
            self.broken = Some(error.clone());
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(count > 0)
    }
}

impl Read for TlsSession {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.state.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Who is killed says no goodbye; what it said is whole or is missed, for all that passes has a length.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                outcome => return outcome,
            }
            self.pull()?;
        }
    }
}

impl Write for TlsSession {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_parts(&[IoSlice::new(bytes)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for TlsSession {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?})", self.socket)
    }
}
