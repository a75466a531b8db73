//! Clusters: the cost of a message between two ranks, and the wires that it shares with other messages.
//!
//! A rank has one output port and one input port. Ranks of one node communicate through its memory. Ranks of different
//! nodes use the nodes' network links and, between racks, also the racks' uplinks and the core switch. Every wire is
//! full duplex: its two directions are separate wires. The core switch buffers data for a busy receiver, up to a limit.

use crate::faults::ClusterFaults;
use ripieno_plan::Topology;
use ripieno_plan::simulate::Model;
use std::sync::Arc;

/// Kind of the connection between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionKind {
    /// The memory of a node.
    Memory,
    /// The network links of two nodes in one rack.
    NetworkLink,
    /// The network links of two nodes and the uplinks of their racks.
    Uplink,
}

/// Cost of a message at the ports of its two ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkCost {
    /// Seconds per message, or per segment of a message.
    pub alpha_s: f64,
    /// Seconds per byte.
    pub beta_s_per_byte: f64,
}

/// A cluster model.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Placement of the ranks on nodes and racks.
    pub topology: Arc<Topology>,
    /// Cost between ranks of one node.
    pub memory: LinkCost,
    /// Cost between nodes of one rack.
    pub network_link: LinkCost,
    /// Cost between racks: latency of a message, and seconds per byte of the uplink in each direction. The bytes also
    /// pass the network links.
    pub uplink: LinkCost,
    /// Seconds per byte of the core switch, shared by all racks; 0 if it is never a bottleneck.
    pub core_s_per_byte: f64,
    /// Seconds to combine a byte.
    pub gamma_s_per_byte: f64,
    /// Segment size in bytes. Each segment costs its own alpha. If `None`, messages are not split.
    pub segment_bytes: Option<usize>,
    /// Minimum number of bytes that a relay forwards. Defaults to a segment, which is also the upper limit.
    pub relay_bytes: Option<usize>,
    /// Maximum number of bytes of a message that the network buffers for a busy receiver. Unlimited if `None`.
    pub queue_bytes: Option<usize>,
    /// Packet size in bytes of store-and-forward switches; 0 for cut-through switches.
    pub packet_bytes: usize,
    /// Faults of the cluster.
    pub faults: ClusterFaults,
}

/// Index of a wire.
pub(crate) type WireIndex = u32;

/// Wires that one end of a message uses, each with its seconds per byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WireUses {
    wires: [(WireIndex, f64); 4],
    count: u8,
}

impl WireUses {
    fn with(mut self, wire: usize, s_per_byte: f64) -> WireUses {
        if s_per_byte > 0.0 {
            self.wires[usize::from(self.count)] = (wire as WireIndex, s_per_byte);
            self.count += 1;
        }
        self
    }

    /// Return the wires with their seconds per byte as a slice.
    pub(crate) fn as_slice(&self) -> &[(WireIndex, f64)] {
        &self.wires[..usize::from(self.count)]
    }

    /// Return the wires with their seconds per byte.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.as_slice().iter().map(|&(wire, s_per_byte)| (wire as usize, s_per_byte))
    }
}

/// Readable identity of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireName {
    /// The output port of a rank.
    Out(usize),
    /// The input port of a rank.
    In(usize),
    /// The outgoing network link of a node with several ranks.
    LinkOut(usize),
    /// The incoming network link of a node with several ranks.
    LinkIn(usize),
    /// The outgoing uplink of a rack.
    UplinkOut(usize),
    /// The incoming uplink of a rack.
    UplinkIn(usize),
    /// The core switch.
    Core,
}

impl std::fmt::Display for WireName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WireName::Out(rank) => write!(f, "port out of rank {rank}"),
            WireName::In(rank) => write!(f, "port into rank {rank}"),
            WireName::LinkOut(node) => write!(f, "link out of node {node}"),
            WireName::LinkIn(node) => write!(f, "link into node {node}"),
            WireName::UplinkOut(rack) => write!(f, "uplink out of rack {rack}"),
            WireName::UplinkIn(rack) => write!(f, "uplink into rack {rack}"),
            WireName::Core => write!(f, "core switch"),
        }
    }
}

impl Cluster {
    /// Return a network of equal links, as assumed by the [cost model](ripieno_plan::simulate) of plans.
    pub fn uniform(rank_count: usize, model: &Model) -> Cluster {
        let link = LinkCost { alpha_s: model.alpha_s, beta_s_per_byte: model.beta_s_per_byte };
        Cluster {
            topology: Arc::new(Topology::flat(rank_count)),
            memory: link,
            network_link: link,
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

    /// Return the cluster of some ranks, evenly spaced, without faults.
    pub fn part(&self, rank_count: usize) -> Cluster {
        let stride = self.topology.size() / rank_count;
        let ranks: Vec<usize> = (0..rank_count).map(|index| index * stride).collect();
        Cluster { topology: Arc::new(self.topology.of(&ranks)), faults: ClusterFaults::default(), ..self.clone() }
    }

    /// Return whether every rank has its own node, all nodes are in one rack, and none has a fault.
    pub(crate) fn has_equal_links(&self) -> bool {
        let topology = &self.topology;
        topology.node_count() == topology.size()
            && topology.rack_count() <= 1
            && self.faults == ClusterFaults::default()
    }

    /// Return the kind of the connection between two ranks.
    pub fn kind(&self, first: usize, second: usize) -> ConnectionKind {
        let topology = &self.topology;
        match () {
            () if topology.node(first) == topology.node(second) => ConnectionKind::Memory,
            () if topology.rack(first) == topology.rack(second) => ConnectionKind::NetworkLink,
            () => ConnectionKind::Uplink,
        }
    }

    /// Return the number of segments of a message.
    pub(crate) fn segment_count(&self, length_bytes: usize) -> usize {
        self.segment_bytes.map_or(1, |segment_bytes| length_bytes.div_ceil(segment_bytes))
    }

    /// Return the minimum number of bytes that a rank forwards of a partial message: a relay unit, rounded up to whole
    /// packets.
    pub(crate) fn relayed_bytes(&self) -> Option<usize> {
        let segment_bytes = self.segment_bytes?;
        let unit_bytes = self.relay_bytes.map_or(segment_bytes, |relay_bytes| relay_bytes.min(segment_bytes));
        Some(if self.packet_bytes == 0 { unit_bytes } else { unit_bytes.next_multiple_of(self.packet_bytes) })
    }

    /// Return the number of bytes that a sender has sent when the first byte leaves the last switch on the path.
    pub(crate) fn stored_bytes(&self, sender: usize, receiver: usize) -> usize {
        let switch_count = match self.kind(sender, receiver) {
            ConnectionKind::Memory => 0,
            ConnectionKind::NetworkLink => 1,
            ConnectionKind::Uplink => 3,
        };
        switch_count * self.packet_bytes
    }

    /// Return the number of wires.
    pub(crate) fn wire_count(&self) -> usize {
        2 * (self.topology.size() + self.topology.node_count() + self.topology.rack_count()) + 1
    }

    /// Return the identity of a wire.
    pub(crate) fn name(&self, wire: usize) -> WireName {
        let (p, nodes, racks) = (self.topology.size(), self.topology.node_count(), self.topology.rack_count());
        let (ports, network_links) = (2 * p, 2 * (p + nodes));
        let is_outgoing = wire.is_multiple_of(2);
        match wire {
            _ if wire < ports => (if is_outgoing { WireName::Out } else { WireName::In })(wire / 2),
            _ if wire < network_links => {
                (if is_outgoing { WireName::LinkOut } else { WireName::LinkIn })((wire - ports) / 2)
            }
            _ if wire < network_links + 2 * racks => {
                (if is_outgoing { WireName::UplinkOut } else { WireName::UplinkIn })((wire - network_links) / 2)
            }
            _ => WireName::Core,
        }
    }

    /// Return the wires used by the sender's end of a message.
    pub(crate) fn sending(&self, sender: usize, receiver: usize, length_bytes: usize) -> WireUses {
        let uses = self.passing(0, sender, receiver, length_bytes, 0.0);
        let crosses_racks = self.kind(sender, receiver) == ConnectionKind::Uplink;
        if crosses_racks { uses.with(self.wire_count() - 1, self.core_s_per_byte) } else { uses }
    }

    /// Return the wires used by the receiver's end of a message.
    pub(crate) fn receiving(&self, sender: usize, receiver: usize, length_bytes: usize, combines: bool) -> WireUses {
        self.passing(1, receiver, sender, length_bytes, if combines { self.gamma_s_per_byte } else { 0.0 })
    }

    /// Return the wires of `rank`'s end towards `peer`. `direction` is 0 for output, 1 for input.
    fn passing(
        &self,
        direction: usize,
        rank: usize,
        peer: usize,
        length_bytes: usize,
        extra_s_per_byte: f64,
    ) -> WireUses {
        let (topology, p) = (&self.topology, self.topology.size());
        let kind = self.kind(rank, peer);
        let (alpha_s, beta_s_per_byte) = match kind {
            ConnectionKind::Memory => (self.memory.alpha_s, self.memory.beta_s_per_byte),
            ConnectionKind::NetworkLink => (self.network_link.alpha_s, self.network_link.beta_s_per_byte),
            ConnectionKind::Uplink => (self.uplink.alpha_s, self.network_link.beta_s_per_byte),
        };
        let latency_s = self.segment_count(length_bytes) as f64 * alpha_s;
        let slow = self.faults.slowness(topology.node(rank));
        let port = WireUses::default()
            .with(2 * rank + direction, slow * (latency_s / length_bytes as f64 + beta_s_per_byte + extra_s_per_byte));
        if kind == ConnectionKind::Memory {
            return port;
        }
        let has_shared_link = topology.node_count() < p;
        let link_s_per_byte = if has_shared_link { slow * beta_s_per_byte } else { 0.0 };
        let uses = port.with(2 * (p + topology.node(rank)) + direction, link_s_per_byte);
        if kind == ConnectionKind::NetworkLink {
            return uses;
        }
        uses.with(2 * (p + topology.node_count() + topology.rack(rank)) + direction, self.uplink.beta_s_per_byte)
    }
}
