//! Data in transit between two processes, and received data.

use ripieno_run::membership::MembershipMessage;
use ripieno_run::membership::agreement::AgreementMessage;
use std::collections::VecDeque;

/// The purpose of a connection. Worlds have numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CablePurpose {
    /// Control connection between a rank and a hub.
    Control(u64),
    Data(u64),
    /// Messages that the given rank sends.
    Messages(u64, usize),
    /// Connection for the agreement of survivors.
    Kin,
}

/// Address of one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CableDirection {
    pub purpose: CablePurpose,
    pub from: usize,
    pub to: usize,
}

impl CableDirection {
    pub fn back(self) -> CableDirection {
        CableDirection { from: self.to, to: self.from, ..self }
    }
}

#[derive(Clone, Debug)]
pub enum CablePayload {
    Message(Box<MembershipMessage>),
    Word(Box<AgreementMessage>),
    Bytes(Vec<u8>),
    /// The reader has consumed this number of bytes.
    Room(usize),
    /// The sender has closed its end.
    End,
}

/// State of one direction of a connection, as both ends see it.
#[derive(Debug, Default)]
pub struct Cable {
    pub on_its_way: VecDeque<(u64, CablePayload)>,
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
    Asked,
    Open,
    Refused,
}
