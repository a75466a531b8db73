//! Messages of a step: the keys that a rank sends to each peer, and the rows of these keys.
//!
//! Cost: two messages to each peer. The first has 16 bytes, the lengths of keys and rows in the second.

use crate::agree::words;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::task::CollectiveTask;
use ripieno_run::{BufferMemory, Element};
use std::ops::Range;

/// Messages to or from some peers, stored one after the other.
#[derive(Default)]
pub(super) struct PeerMessages {
    bytes: Vec<u8>,
    messages: Vec<SparseMessage>,
}

/// The ranges of a peer's keys and rows in the bytes.
struct SparseMessage {
    peer: usize,
    keys: Range<usize>,
    rows: Range<usize>,
}

impl PeerMessages {
    /// Add the message for a peer.
    pub fn add(&mut self, peer: usize, keys: &[u8], rows: &[u8]) {
        self.bytes.extend_from_slice(keys);
        self.bytes.extend_from_slice(rows);
        self.push(peer, keys.len(), rows.len());
    }

    /// Send each peer its message and receive the messages of `peers`.
    pub fn exchange(self, comm: &Communicator, peers: &[usize]) -> Result<PeerMessages, Error> {
        let lengths = |message: &SparseMessage| [message.keys.len() as u64, message.rows.len() as u64];
        let out: Vec<u8> = self.messages.iter().flat_map(lengths).flat_map(u64::to_ne_bytes).collect();
        let out_peers: Vec<_> = self.messages.iter().map(|message| (message.peer, 2)).collect();
        let in_peers: Vec<_> = peers.iter().map(|&peer| (peer, 2)).collect();
        let mut into = vec![0; 16 * peers.len()];
        comm.neighbour_exchange(&out, &out_peers, &mut into, &in_peers, Element::U64, None)?;

        let mut arrived = PeerMessages::default();
        let mut lengths = words(&into).map(|length| length as usize);
        for &peer in peers {
            let mut next = || lengths.next().expect("two lengths per peer");
            let (keys, rows) = (next(), next());
            let end = keys.checked_add(rows).and_then(|length| arrived.total_bytes().checked_add(length));
            if end.is_none() {
                let cause = format!("rank {peer} announced {keys} bytes of keys and {rows} of values");
                return Err(Error::Malformed { cause });
            }
            arrived.push(peer, keys, rows);
        }
        let length_bytes = arrived.total_bytes();
        let reserved = arrived.bytes.try_reserve_exact(length_bytes);
        reserved.map_err(|error| Error::Memory { length_bytes, cause: error.to_string() })?;
        arrived.bytes.resize(length_bytes, 0);
        let (out_peers, in_peers) = (self.by_peer(), arrived.by_peer());
        let task = CollectiveTask::NeighbourExchange { out: &out_peers, into: &in_peers };
        comm.run_once(&task, Element::U8, [BufferMemory::Read(&self.bytes), BufferMemory::Write(&mut arrived.bytes)])?;
        Ok(arrived)
    }

    /// Return the keys by peer.
    pub fn keys(&self) -> Vec<(usize, &[u8])> {
        self.messages.iter().map(|message| (message.peer, &self.bytes[message.keys.clone()])).collect()
    }

    /// Return the rows by peer.
    pub fn rows(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.messages.iter().map(|message| (message.peer, &self.bytes[message.rows.clone()]))
    }

    fn push(&mut self, peer: usize, key_bytes: usize, row_bytes: usize) {
        let start = self.total_bytes();
        let middle = start + key_bytes;
        self.messages.push(SparseMessage { peer, keys: start..middle, rows: middle..middle + row_bytes });
    }

    fn total_bytes(&self) -> usize {
        self.messages.last().map_or(0, |message| message.rows.end)
    }

    fn by_peer(&self) -> Vec<(usize, usize)> {
        self.messages.iter().map(|message| (message.peer, message.rows.end - message.keys.start)).collect()
    }
}
