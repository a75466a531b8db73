//! One end of an encrypted connection, over a blocking or a non-blocking socket.

use super::records::{RecordReader, TlsRecords};
use super::{answering, calling};
use crate::config::Token;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes of keying material that identify a session.
pub(crate) const BINDING_BYTES: usize = 32;

/// One end of an encrypted connection. Reads and writes behave like reads and writes of its socket.
pub(crate) struct TlsSession {
    socket: TcpStream,
    state: Box<rustls::Connection>,
    records: TlsRecords,
    /// Bytes that are encrypted but not yet completely in the socket. They count as written only once they are in the
    /// socket; until then the caller offers them again.
    accepted: usize,
    /// The reason why reading has stopped, for example data that the peer has not sent.
    broken: Option<rustls::Error>,
}

impl TlsSession {
    /// Start a session as the caller on `socket`.
    pub fn call(socket: TcpStream, token: &Token) -> io::Result<TlsSession> {
        Ok(TlsSession::new(socket, calling(token).map_err(io::Error::other)?))
    }

    /// Start a session as the answerer on `socket`.
    pub fn answer(socket: TcpStream, token: &Token) -> io::Result<TlsSession> {
        Ok(TlsSession::new(socket, answering(token).map_err(io::Error::other)?))
    }

    fn new(socket: TcpStream, state: rustls::Connection) -> TlsSession {
        TlsSession { socket, state: Box::new(state), records: TlsRecords::default(), accepted: 0, broken: None }
    }

    /// Run the next step of the handshake; return whether the handshake is complete.
    pub fn handshake(&mut self) -> io::Result<bool> {
        if self.state.wants_write() {
            self.state.write_tls(&mut self.socket)?;
        } else if self.state.is_handshaking() && !self.pull()? {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
        }
        Ok(!self.state.is_handshaking() && !self.state.wants_write())
    }

    /// Return keying material that only the two ends of this session know.
    pub fn binding(&self) -> io::Result<[u8; BINDING_BYTES]> {
        let exported = self.state.export_keying_material([0; BINDING_BYTES], b"EXPORTER-ripieno authentication", None);
        exported.map_err(io::Error::other)
    }

    /// Return the name of the negotiated cipher suite.
    #[cfg(test)]
    pub fn cipher(&self) -> Option<&'static str> {
        self.state.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str())
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Enable read-ahead for a caller that reads until the socket has no more data.
    pub fn read_ahead(&mut self) {
        self.records.read_ahead();
    }

    /// Return the number of bytes that were taken from the socket but are not part of a complete record yet.
    pub fn pending(&self) -> usize {
        self.records.pending()
    }

    /// Read as much as is available and fits. Return `WouldBlock` if nothing is available, and 0 at the end.
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

    /// Write from the concatenation of `parts` and return the byte count. The caller must offer rejected bytes again,
    /// at once or in pieces, before it writes other bytes.
    pub fn write_parts(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.accepted == 0 {
            self.accepted = self.state.writer().write_vectored(parts)?;
        }
        self.push()?;
        let count = self.accepted.min(parts.iter().map(|part| part.len()).sum());
        self.accepted -= count;
        Ok(count)
    }

    /// Signal that no more data will be written.
    pub fn end_sending(&mut self) {
        self.state.send_close_notify();
        // The peer may have closed first, which is not an error.
        let _ = self.push();
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    fn push(&mut self) -> io::Result<()> {
        while self.state.wants_write() {
            self.state.write_tls(&mut self.socket)?;
        }
        Ok(())
    }

    /// Read the next bytes from the socket; return false at its end.
    fn pull(&mut self) -> io::Result<bool> {
        if let Some(error) = &self.broken {
            return Err(io::Error::new(io::ErrorKind::InvalidData, error.clone()));
        }
        let count = self.state.read_tls(&mut RecordReader { records: &mut self.records, socket: &self.socket })?;
        if let Err(error) = self.state.process_new_packets() {
            // The peer receives the reason if it still listens.
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
                // A killed peer sends no close notification. Every message has a length, so a truncated one is
                // detected.
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
