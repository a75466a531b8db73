//! What is on its way between two processes, and what has arrived.

use ripieno_run::membership::MembershipMessage;
use ripieno_run::membership::agreement::AgreementMessage;
use std::collections::VecDeque;

/// What a connection is for. Worlds have numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CablePurpose {
    /// Between a rank and a hub.
    Control(u64),
    Data(u64),
    /// Messages from this rank.
    Messages(u64, usize),
    /// The agreement of survivors.
    Kin,
}

/// One direction of a connection.
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
    /// So many bytes have been taken.
    Room(usize),
    /// The sender's end is closed.
    End,
}

/// One direction of a connection, as both ends see it.
#[derive(Debug, Default)]
pub struct Cable {
    pub on_its_way: VecDeque<(u64, CablePayload)>,
    /// Bytes that can be read.
    pub arrived: VecDeque<u8>,
    /// Bytes that were sent, and not known to be taken.
    pub unread_bytes: usize,
    /// The reader knows that no more comes.
    pub has_ended: bool,
}

/// How far the opening of a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    Asked,
    Open,
    Refused,
}
