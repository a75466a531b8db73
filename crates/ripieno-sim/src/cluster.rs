//! Clusters: what a message between two ranks costs, and which wires it shares with others.
//!
//! A rank has one port out and one port in. Ranks of one node talk through its memory; those of different nodes by the
//! nodes' cables, and, where the racks differ, by the racks' uplinks and the core switch. Every wire is full duplex:
//! its two directions are wires of their own. The core switch stores what a receiver has no time for, up to a limit.

use crate::faults::ClusterFaults;
use ripieno_plan::Topology;
use ripieno_plan::simulate::Model;
use std::sync::Arc;

/// How two ranks are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionKind {
    /// The memory of a node.
    Memory,
    /// Cables of nodes in one rack.
    Cable,
    /// Cables, and the uplinks of two racks.
    Uplink,
}

/// What a message costs the ports at its ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkCost {
    /// Seconds per message, or per segment of one.
    pub alpha_s: f64,
    /// Seconds per byte.
    pub beta_s_per_byte: f64,
}

/// A cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Where the ranks stand.
    pub topology: Arc<Topology>,
    /// Between ranks of a node.
    pub memory: LinkCost,
    /// Between nodes of a rack.
    pub cable: LinkCost,
    /// Between racks: a message's start, and the uplink's seconds per byte, each way; its bytes pass the cables, too.
    pub uplink: LinkCost,
    /// The core switch's seconds per byte, all racks together; 0 where it is never in the way.
    pub core_s_per_byte: f64,
    /// Seconds to combine a byte.
    pub gamma_s_per_byte: f64,
    /// Messages go by segments of so many bytes, each with its alpha; as wholes, if none.
    pub segment_bytes: Option<usize>,
    /// Ranks pass on what has come once it is so many bytes; a segment, if none or if that is less.
    pub relay_bytes: Option<usize>,
    /// How many bytes of a message the network holds while its receiver has no time for them; any number, if none.
    pub queue_bytes: Option<usize>,
    /// A switch passes a packet on once it has it all, and packets carry so many bytes; 0 if bytes pass as they come.
    pub packet_bytes: usize,
    /// What goes wrong.
    pub faults: ClusterFaults,
}

/// The number of a wire.
pub(crate) type WireIndex = u32;

/// The wires that one end of a message uses, with its seconds per byte on each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Uses {
    wires: [(WireIndex, f64); 4],
    count: u8,
}

impl Uses {
    fn with(mut self, wire: usize, s_per_byte: f64) -> Uses {
        if s_per_byte > 0.0 {
            self.wires[usize::from(self.count)] = (wire as WireIndex, s_per_byte);
            self.count += 1;
        }
        self
    }

    /// The wires.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.wires[..usize::from(self.count)].iter().map(|&(wire, s_per_byte)| (wire as usize, s_per_byte))
    }
}

/// Which wire it is, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireName {
    /// The port out of a rank.
    Out(usize),
    /// The port into a rank.
    In(usize),
    /// The cable out of a node that several ranks share.
    CableOut(usize),
    /// The cable into a node that several ranks share.
    CableIn(usize),
    /// The uplink out of a rack.
    UplinkOut(usize),
    /// The uplink into a rack.
    UplinkIn(usize),
    /// The core switch.
    Core,
}

impl std::fmt::Display for WireName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WireName::Out(rank) => write!(f, "port out of rank {rank}"),
            WireName::In(rank) => write!(f, "port into rank {rank}"),
            WireName::CableOut(node) => write!(f, "cable out of node {node}"),
            WireName::CableIn(node) => write!(f, "cable into node {node}"),
            WireName::UplinkOut(rack) => write!(f, "uplink out of rack {rack}"),
            WireName::UplinkIn(rack) => write!(f, "uplink into rack {rack}"),
            WireName::Core => write!(f, "core switch"),
        }
    }
}

impl Cluster {
    /// A network of equal links, as the [cost](ripieno_plan::simulate) of plans has it.
    pub fn uniform(rank_count: usize, model: &Model) -> Cluster {
        let link = LinkCost { alpha_s: model.alpha_s, beta_s_per_byte: model.beta_s_per_byte };
        Cluster {
            topology: Arc::new(Topology::flat(rank_count)),
            memory: link,
            cable: link,
            uplink: LinkCost { beta_s_per_byte: 0.0, ..link },
            core_s_per_byte: 0.0,
            gamma_s_per_byte: model.gamma_s_per_byte,
            segment_bytes: None,
            relay_bytes: None,
            queue_bytes: None,
            packet_bytes: 0,
            faults: ClusterFaults::default(),
        }
    }

    /// How two ranks are connected.
    pub fn kind(&self, one: usize, other: usize) -> ConnectionKind {
        let at = &self.topology;
        match () {
            () if at.node(one) == at.node(other) => ConnectionKind::Memory,
            () if at.rack(one) == at.rack(other) => ConnectionKind::Cable,
            () => ConnectionKind::Uplink,
        }
    }

    /// How many segments a message of so many bytes is.
    pub(crate) fn segment_count(&self, length_bytes: usize) -> usize {
        self.segment_bytes.map_or(1, |segment_bytes| length_bytes.div_ceil(segment_bytes))
    }

    /// What a rank has at least when it passes on a part of a message: a relay's unit, to the end of its last packet.
    pub(crate) fn relayed_bytes(&self) -> Option<usize> {
        let segment_bytes = self.segment_bytes?;
        let unit_bytes = self.relay_bytes.map_or(segment_bytes, |relay_bytes| relay_bytes.min(segment_bytes));
        Some(if self.packet_bytes == 0 { unit_bytes } else { unit_bytes.next_multiple_of(self.packet_bytes) })
    }

    /// How far a message is at its sender when its first byte comes out of the last switch.
    pub(crate) fn stored_bytes(&self, sender: usize, receiver: usize) -> usize {
        let switch_count = match self.kind(sender, receiver) {
            ConnectionKind::Memory => 0,
            ConnectionKind::Cable => 1,
            ConnectionKind::Uplink => 3,
        };
        switch_count * self.packet_bytes
    }

    /// How many wires there are.
    pub(crate) fn wire_count(&self) -> usize {
        2 * (self.topology.size() + self.topology.node_count() + self.topology.rack_count()) + 1
    }

    /// What a wire is.
    pub(crate) fn name(&self, wire: usize) -> WireName {
        let (p, nodes, racks) = (self.topology.size(), self.topology.node_count(), self.topology.rack_count());
        let (ports, cables) = (2 * p, 2 * (p + nodes));
        let way = wire.is_multiple_of(2);
        match wire {
            _ if wire < ports => (if way { WireName::Out } else { WireName::In })(wire / 2),
            _ if wire < cables => (if way { WireName::CableOut } else { WireName::CableIn })((wire - ports) / 2),
            _ if wire < cables + 2 * racks => {
                (if way { WireName::UplinkOut } else { WireName::UplinkIn })((wire - cables) / 2)
            }
            _ => WireName::Core,
        }
    }

    /// What the sender's end of a message uses.
    pub(crate) fn sending(&self, sender: usize, receiver: usize, length_bytes: usize) -> Uses {
        let uses = self.passing(0, sender, receiver, length_bytes, 0.0);
        let is_far = self.kind(sender, receiver) == ConnectionKind::Uplink;
        if is_far { uses.with(self.wire_count() - 1, self.core_s_per_byte) } else { uses }
    }

    /// What the receiver's end of a message uses.
    pub(crate) fn receiving(&self, sender: usize, receiver: usize, length_bytes: usize, combines: bool) -> Uses {
        self.passing(1, receiver, sender, length_bytes, if combines { self.gamma_s_per_byte } else { 0.0 })
    }

    /// The wires of `rank`'s end towards `other`, `way` 0 out, 1 in.
    fn passing(&self, way: usize, rank: usize, other: usize, length_bytes: usize, more_s_per_byte: f64) -> Uses {
        let (at, p) = (&self.topology, self.topology.size());
        let kind = self.kind(rank, other);
        let (alpha_s, beta_s_per_byte) = match kind {
            ConnectionKind::Memory => (self.memory.alpha_s, self.memory.beta_s_per_byte),
            ConnectionKind::Cable => (self.cable.alpha_s, self.cable.beta_s_per_byte),
            ConnectionKind::Uplink => (self.uplink.alpha_s, self.cable.beta_s_per_byte),
        };
        let starts_s = self.segment_count(length_bytes) as f64 * alpha_s;
        let slow = self.faults.slowness(at.node(rank));
        let port = Uses::default()
            .with(2 * rank + way, slow * (starts_s / length_bytes as f64 + beta_s_per_byte + more_s_per_byte));
        if kind == ConnectionKind::Memory {
            return port;
        }
        let has_shared_cable = at.node_count() < p;
        let cable = if has_shared_cable { slow * beta_s_per_byte } else { 0.0 };
        let uses = port.with(2 * (p + at.node(rank)) + way, cable);
        if kind == ConnectionKind::Cable {
            return uses;
        }
        uses.with(2 * (p + at.node_count() + at.rack(rank)) + way, self.uplink.beta_s_per_byte)
    }
}
