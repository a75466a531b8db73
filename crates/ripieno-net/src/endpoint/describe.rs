//! What an endpoint is made of, for people: which link goes where, and what was tried in vain.

use super::{Endpoint, LinkSlot};
use crate::config::LinkPolicy;
use ripieno_run::LinkId;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What an endpoint is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The rank.
    pub rank: usize,
    /// How many ranks there are.
    pub world_size: usize,
    /// Its host.
    pub host: String,
    /// The port it listens on.
    pub port: u16,
    /// The addresses it offers to other hosts.
    pub addresses: Vec<IpAddr>,
    /// The links asked for.
    pub links: LinkPolicy,
    /// The links to each other rank.
    pub peers: Vec<LinkDescription>,
}

/// The links to one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkDescription {
    /// The peer.
    pub peer: usize,
    /// Its host.
    pub host: String,
    /// What carries the bytes.
    pub kind: LinkKind,
    /// What was tried in vain, and why.
    pub notes: Vec<String>,
}

/// What carries the bytes of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// Nothing has needed it yet, or it is being opened.
    NotOpen,
    /// Memory of the host.
    SharedMemory,
    /// A TCP connection.
    Tcp,
    /// A TCP connection that is encrypted.
    Tls,
    /// It could not be opened.
    Broken,
}

impl LinkKind {
    /// What carries the bytes, of a link that stands.
    fn carrier(self) -> Option<&'static str> {
        match self {
            LinkKind::NotOpen | LinkKind::Broken => None,
            LinkKind::SharedMemory => Some("shared memory"),
            LinkKind::Tcp => Some("TCP"),
            LinkKind::Tls => Some("TCP, encrypted"),
        }
    }
}

impl LinkDescription {
    /// What the link is, and what was tried before in vain, if it stands and was no first choice.
    pub(super) fn second_choice(&self) -> Option<String> {
        let carrier = self.kind.carrier().filter(|_| !self.notes.is_empty())?;
        Some(format!("{carrier}, for: {}", self.notes.join("; ")))
    }
}

impl Endpoint {
    /// What this endpoint is made of.
    pub fn describe(&self) -> Description {
        let own = &self.addresses[self.config.rank];
        let peers = (0..self.config.world_size).filter(|peer| *peer != self.config.rank);
        Description {
            rank: own.rank,
            world_size: own.world_size,
            host: own.host.clone(),
            port: own.port,
            addresses: own.usable.clone(),
            links: self.config.links,
            peers: peers.map(|peer| self.describe_link(peer)).collect(),
        }
    }

    fn describe_link(&self, peer: usize) -> LinkDescription {
        let (own, address) = (&self.addresses[self.config.rank], &self.addresses[peer]);
        let mut notes: Vec<String> =
            self.notes.iter().filter(|(about, _)| *about == peer).map(|(_, note)| note.clone()).collect();
        if own.identity.shares_cores(&address.identity) && own.identity != address.identity {
            notes.push("same machine, but another network namespace or user, so no shared memory".to_string());
        }
        // Those for messages are of the same kind.
        let mut slots = LinkId::all_of(peer).map(|id| &self.slots[id.index(self.config.world_size)]).into_iter();
        let asked = slots.find(|slot| !matches!(slot, LinkSlot::Unasked | LinkSlot::Opening));
        let kind = match asked.unwrap_or(&LinkSlot::Unasked) {
            LinkSlot::Unasked | LinkSlot::Opening => LinkKind::NotOpen,
            LinkSlot::Ring(..) => LinkKind::SharedMemory,
            LinkSlot::Tcp(link) if link.is_encrypted() => LinkKind::Tls,
            LinkSlot::Tcp(_) => LinkKind::Tcp,
            LinkSlot::Broken(error) => {
                notes.push(error.why().to_string());
                LinkKind::Broken
            }
        };
        LinkDescription { peer, host: address.host.clone(), kind, notes }
    }
}
