//! Data in transit between two processes, and received data.

use ripieno_run::membership::MembershipMessage;
use ripieno_run::membership::agreement::AgreementMessage;
use std::collections::VecDeque;

/// The purpose of a connection, with the number of its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimulatedPurpose {
    /// Control connection between a rank and a hub.
    Control(u64),
    Data(u64),
    /// Messages that the given rank sends.
    Messages(u64, usize),
    /// Connection for the agreement of survivors.
    Survivor,
}

impl SimulatedPurpose {
    /// Return whether this is a link of `world`, which carries the data of collectives or messages.
    pub fn is_link_of(self, world: u64) -> bool {
        matches!(self, SimulatedPurpose::Data(of) | SimulatedPurpose::Messages(of, _) if of == world)
    }
}

/// Address of one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Direction {
    pub purpose: SimulatedPurpose,
    pub from: usize,
    pub to: usize,
}

impl Direction {
    /// Return the opposite direction of the same connection.
    pub fn back(self) -> Direction {
        Direction { from: self.to, to: self.from, ..self }
    }
}

#[derive(Clone, Debug)]
pub enum Payload {
    Message(Box<MembershipMessage>),
    Agreement(Box<AgreementMessage>),
    Bytes(Vec<u8>),
    /// The reader has consumed this number of bytes.
    Writable(usize),
    /// The sender has closed its end.
    End,
}

/// State of one direction of a connection, as both ends see it.
#[derive(Debug, Default)]
pub struct SimulatedConnection {
    pub in_transit: VecDeque<(u64, Payload)>,
    /// Received bytes that the reader has not consumed.
    pub arrived: VecDeque<u8>,
    /// Sent bytes without a confirmation that the reader has consumed them.
    pub unread_bytes: usize,
    /// Whether the reader knows that no more data follows.
    pub has_ended: bool,
}

/// Progress of the opening of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    Requested,
    Open,
    Refused,
}
