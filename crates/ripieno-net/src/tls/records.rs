//! Reads the bytes of a socket record by record.
//!
//! Until a link enables read-ahead, only the requested record is taken from the socket. Polling the socket therefore
//! misses no data, because every byte taken has been delivered.

use rustix::net::RecvFlags;
use std::io::{self, Read};
use std::net::TcpStream;

/// Bytes of a record header: the type, a version and the length of the body.
const HEADER_BYTES: usize = 5;
/// Limit of read-ahead in bytes.
const AHEAD_BYTES: usize = 128 << 10;

/// The position within the current record of a socket.
#[derive(Debug, Default)]
pub(super) struct TlsRecords {
    header: [u8; HEADER_BYTES],
    header_filled: usize,
    /// Bytes of the record body that were delivered (`delivered`) and that are outstanding (`left`).
    delivered: usize,
    left: usize,
    ahead: Box<[u8]>,
    /// Bytes that were read ahead are in `ahead[start..end]`.
    start: usize,
    end: usize,
}

/// A socket with its record position.
pub(super) struct RecordReader<'a> {
    pub records: &'a mut TlsRecords,
    pub socket: &'a TcpStream,
}

impl TlsRecords {
    /// Enable read-ahead: from now on, take all bytes that the socket has.
    pub fn read_ahead(&mut self) {
        self.ahead = vec![0; AHEAD_BYTES].into();
    }

    /// Return the number of bytes that were taken from the socket but are not part of a decrypted record yet.
    pub fn pending(&self) -> usize {
        self.end - self.start + self.header_filled + self.delivered
    }

    fn read_socket(&mut self, socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
        if self.ahead.is_empty() {
            return receive(socket, into);
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.end = receive(socket, &mut self.ahead)?;
        }
        let count = into.len().min(self.end - self.start);
        into[..count].copy_from_slice(&self.ahead[self.start..self.start + count]);
        self.start += count;
        Ok(count)
    }
}

impl Read for RecordReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let records = &mut *self.records;
        let is_header = records.left == 0;
        let missing = if is_header { HEADER_BYTES - records.header_filled } else { records.left };
        let max_bytes = into.len().min(missing);
        let count = records.read_socket(self.socket, &mut into[..max_bytes])?;
        if !is_header {
            records.left -= count;
            records.delivered = if records.left == 0 { 0 } else { records.delivered + count };
            return Ok(count);
        }
        records.header[records.header_filled..][..count].copy_from_slice(&into[..count]);
        records.header_filled += count;
        if records.header_filled == HEADER_BYTES {
            records.header_filled = 0;
            records.left = usize::from(u16::from_be_bytes([records.header[3], records.header[4]]));
        }
        Ok(count)
    }
}

fn receive(socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(socket, into, RecvFlags::empty())?.0)
}
