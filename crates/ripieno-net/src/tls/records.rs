//! The bytes of a socket, record by record.
//!
//! Until a link begins to read ahead nothing is taken from the socket but the record that is wanted, so that who waits
//! for the socket misses nothing: what has been taken has been read.

use rustix::net::RecvFlags;
use std::io::{self, Read};
use std::net::TcpStream;

/// Of a record: its kind, a version, and how many bytes follow.
const HEADER_BYTES: usize = 5;
/// Bytes that a link reads ahead at most.
const AHEAD_BYTES: usize = 128 << 10;

/// Where a socket stands among its records.
#[derive(Debug, Default)]
pub(super) struct TlsRecords {
    header: [u8; HEADER_BYTES],
    header_filled: usize,
    /// Bytes of the record, behind its header, that are given, and that are still to come.
    given: usize,
    left: usize,
    ahead: Box<[u8]>,
    /// What was read ahead is `ahead[start..end]`.
    start: usize,
    end: usize,
}

/// A socket with its place.
pub(super) struct RecordReader<'a> {
    pub records: &'a mut TlsRecords,
    pub socket: &'a TcpStream,
}

impl TlsRecords {
    /// Takes from now on whatever the socket has.
    pub fn read_ahead(&mut self) {
        self.ahead = vec![0; AHEAD_BYTES].into();
    }

    /// Bytes that have left the socket and of which nothing could be read yet.
    pub fn pending(&self) -> usize {
        self.end - self.start + self.header_filled + self.given
    }

    fn take(&mut self, socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
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
        let wanted = if is_header { HEADER_BYTES - records.header_filled } else { records.left };
        let most = into.len().min(wanted);
        let count = records.take(self.socket, &mut into[..most])?;
        if !is_header {
            records.left -= count;
            records.given = if records.left == 0 { 0 } else { records.given + count };
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
