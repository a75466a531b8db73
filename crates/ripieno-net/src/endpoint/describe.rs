//! Provides a description of an endpoint for users: the kind of each link and the failed attempts.

use super::{Endpoint, LinkSlot};
use crate::config::LinkPolicy;
use ripieno_run::LinkId;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The settings and links of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The rank.
    pub rank: usize,
    /// Number of ranks.
    pub world_size: usize,
    /// The host name of the rank.
    pub host: String,
    /// The port that the rank listens on.
    pub port: u16,
    /// The addresses that the rank offers to other hosts.
    pub addresses: Vec<IpAddr>,
    /// The configured link policy.
    pub links: LinkPolicy,
    /// The links to each other rank.
    pub peers: Vec<LinkDescription>,
}

/// The links to one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkDescription {
    /// The rank of the peer.
    pub peer: usize,
    /// The host name of the peer.
    pub host: String,
    /// The kind of link.
    pub kind: LinkKind,
    /// Failed attempts, with their causes.
    pub notes: Vec<String>,
}

/// The kind of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// The link was not needed yet, or is being opened.
    NotOpen,
    /// Shared memory of the host.
    SharedMemory,
    /// A TCP connection.
    Tcp,
    /// An encrypted TCP connection.
    Tls,
    /// The link could not be opened.
    Broken,
}

impl LinkKind {
    /// Return the name of the transport of an open link.
    fn transport(self) -> Option<&'static str> {
        match self {
            LinkKind::NotOpen | LinkKind::Broken => None,
            LinkKind::SharedMemory => Some("shared memory"),
            LinkKind::Tcp => Some("TCP"),
            LinkKind::Tls => Some("TCP, encrypted"),
        }
    }
}

impl LinkDescription {
    /// Return the transport of an open link and the failed attempts before it; `None` if no attempt failed.
    pub(super) fn fallback(&self) -> Option<String> {
        let transport = self.kind.transport().filter(|_| !self.notes.is_empty())?;
        Some(format!("{transport}, cause: {}", self.notes.join("; ")))
    }
}

impl Endpoint {
    /// Describe this endpoint.
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
        // The links for messages are of the same kind.
        let mut slots = LinkId::all_of(peer).map(|id| &self.slots[id.index(self.config.world_size)]).into_iter();
        let requested = slots.find(|slot| !matches!(slot, LinkSlot::NotRequested | LinkSlot::Opening));
        let kind = match requested.unwrap_or(&LinkSlot::NotRequested) {
            LinkSlot::NotRequested | LinkSlot::Opening => LinkKind::NotOpen,
            LinkSlot::Ring(..) => LinkKind::SharedMemory,
            LinkSlot::Tcp(link) if link.is_encrypted() => LinkKind::Tls,
            LinkSlot::Tcp(_) => LinkKind::Tcp,
            LinkSlot::Broken(error) => {
                notes.push(error.reason().to_string());
                LinkKind::Broken
            }
        };
        LinkDescription { peer, host: address.host.clone(), kind, notes }
    }
}
