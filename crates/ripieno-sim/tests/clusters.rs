//! Simulations of clusters with unequal links, slow hosts and failing hosts.

use ripieno_plan::simulate::Model;
use ripieno_plan::{Algorithm, Collective, Order, Topology};
use ripieno_sim::{Cluster, ClusterFaults, ConnectionKind, LinkCost, PlanSimulation, SimulationRequest, WireName};
use std::sync::Arc;

const GIB: usize = 1 << 30;
const S_PER_BYTE: f64 = 8e-9;

/// Return racks of nodes with links of 1 Gbit/s. `uplink` is the rate of an uplink relative to such a link.
fn racks(node_count: usize, rack_count: usize, uplink: f64) -> Cluster {
    let racks = (0..node_count).map(|node| node * rack_count / node_count).collect();
    let mut cluster =
        Cluster::uniform(node_count, &Model { alpha_s: 1e-5, beta_s_per_byte: S_PER_BYTE, gamma_s_per_byte: 0.0 });
    cluster.topology = Arc::new(Topology::new((0..node_count).collect(), racks));
    cluster.uplink = LinkCost { alpha_s: 1e-5, beta_s_per_byte: S_PER_BYTE / uplink };
    cluster.segment_bytes = Some(64 << 10);
    cluster
}

fn simulated(collective: Collective, name: &str, order: Order, bytes: usize, cluster: &Cluster) -> PlanSimulation {
    let request = SimulationRequest::new(collective, cluster.topology.size(), bytes, 0);
    request.simulate(Algorithm::by_name(collective, name).unwrap(), order, cluster, &|| false).unwrap()
}

fn chain(order: Order, cluster: &Cluster) -> PlanSimulation {
    simulated(Collective::Broadcast, "chain", order, GIB / 8, cluster)
}

/// Return the transfer time of the bytes, without latency.
fn transfer_s(bytes: usize) -> f64 {
    bytes as f64 * S_PER_BYTE
}

#[test]
fn a_chain_in_rack_order_crosses_each_uplink_once_and_takes_the_time_of_one_rack() {
    let found = chain(Order::Racks, &racks(40, 5, 1.0));

    assert_eq!(found.bytes_by_kind(&racks(40, 5, 1.0))[ConnectionKind::Uplink as usize].1, 4 * GIB / 8);
    let one_rack_s = chain(Order::Racks, &racks(40, 1, 1.0)).time_s().unwrap();
    assert!((found.time_s().unwrap() / one_rack_s - 1.0).abs() < 1e-9);
}

#[test]
fn a_chain_in_random_order_waits_for_the_fullest_uplink() {
    let cluster = racks(40, 5, 1.0);
    let found = chain(Order::Random(1), &cluster);

    let mut crossings = [[0; 5]; 2];
    for transfer in &found.transfers {
        let [from, to] = [transfer.sender, transfer.receiver].map(|rank| cluster.topology.rack(rank));
        if from != to {
            crossings[0][from] += 1;
            crossings[1][to] += 1;
        }
    }
    let fullest = f64::from(*crossings.iter().flatten().max().unwrap());
    let slowdown = found.time_s().unwrap() / transfer_s(GIB / 8);
    assert!(slowdown >= fullest && slowdown < fullest * 1.05, "{slowdown} for {fullest} flows");
    assert!(matches!(found.busiest().unwrap().wire, WireName::UplinkOut(_) | WireName::UplinkIn(_)));
}

#[test]
fn flows_between_racks_share_the_uplinks() {
    let cluster = racks(8, 2, 1.0);
    let found = simulated(Collective::Alltoall, "pairwise", Order::Racks, 8 << 20, &cluster);

    // Each of the 4 nodes of a rack sends 4 chunks of 1 MiB through one uplink of the rate of a network link.
    assert!(found.time_s().unwrap() >= transfer_s(16 << 20));
    assert!(found.time_s().unwrap() < 1.5 * transfer_s(16 << 20));
    let uplinks = found.loads.iter().filter(|load| matches!(load.wire, WireName::UplinkOut(_)));
    assert_eq!(uplinks.map(|load| load.bytes).collect::<Vec<_>>(), [16 << 20; 2]);
}

#[test]
fn all_traffic_between_racks_passes_the_core_switch() {
    let mut cluster = racks(16, 4, 4.0);
    let free_s = simulated(Collective::Alltoall, "pairwise", Order::Racks, 16 << 20, &cluster).time_s().unwrap();
    cluster.core_s_per_byte = S_PER_BYTE;
    let found = simulated(Collective::Alltoall, "pairwise", Order::Racks, 16 << 20, &cluster);

    // Each of the 16 nodes sends 12 of its 16 chunks to other racks.
    let core_s = transfer_s((16 * 12) << 20);
    assert!(found.time_s().unwrap() >= core_s && found.time_s().unwrap() < 1.2 * core_s && free_s < core_s / 4.0);
    assert_eq!(found.busiest().unwrap().wire, WireName::Core);
}

#[test]
fn ranks_of_a_node_share_its_link_and_use_its_memory() {
    let mut cluster = racks(8, 1, 1.0);
    cluster.topology = Arc::new(Topology::new((0..8).map(|rank| rank / 4).collect(), vec![0; 8]));
    cluster.memory = LinkCost { alpha_s: 1e-7, beta_s_per_byte: 1e-10 };
    let found = simulated(Collective::Alltoall, "direct", Order::Racks, 8 << 20, &cluster);

    let [(_, memory), (_, network_link), (_, uplink)] = found.bytes_by_kind(&cluster);
    assert_eq!((memory, network_link, uplink), ((8 * 3) << 20, (8 * 4) << 20, 0));
    assert!(found.time_s().unwrap() >= transfer_s(16 << 20) && found.time_s().unwrap() < 1.1 * transfer_s(16 << 20));
}

#[test]
fn a_slow_host_slows_the_chain_to_its_own_rate() {
    let mut cluster = racks(20, 1, 1.0);
    let even_s = chain(Order::Racks, &cluster).time_s().unwrap();
    cluster.faults = ClusterFaults::default().slow(7, 3.0);

    assert!((chain(Order::Racks, &cluster).time_s().unwrap() / even_s - 3.0).abs() < 0.05);
}

#[test]
fn slow_hosts_drawn_by_a_seed_are_the_same_every_time() {
    let drawn = |seed| ClusterFaults::default().slow_some(100, 5, 2.0, seed);
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}

#[test]
fn ranks_after_a_dead_host_do_not_finish_and_ranks_before_it_do() {
    let mut cluster = racks(10, 1, 1.0);
    cluster.faults = ClusterFaults::default().death(4, 0.5);
    let found = chain(Order::Racks, &cluster);

    let ended: Vec<bool> = found.finish_s.iter().map(Option::is_some).collect();
    assert_eq!(ended, (0..10).map(|rank| rank < 4).collect::<Vec<_>>());
    assert_eq!(found.time_s(), None);
}

#[test]
fn a_cut_link_stops_only_the_traffic_that_depends_on_it() {
    let mut cluster = racks(6, 1, 1.0);
    cluster.faults = ClusterFaults::default().cut(2, 3, 0.1);
    assert_eq!(chain(Order::Racks, &cluster).finish_s.iter().filter(|finish_s| finish_s.is_none()).count(), 4);

    cluster.faults = ClusterFaults::default().cut(2, 4, 0.1);
    assert!(chain(Order::Racks, &cluster).time_s().is_some());
}

#[test]
fn a_bounded_queue_blocks_a_sender_with_a_slow_receiver() {
    let mut cluster = racks(2, 1, 1.0);
    cluster.faults = ClusterFaults::default().slow(1, 4.0);
    // Rank 0 sends to rank 1.
    let ended_s = |cluster: &Cluster| {
        let found = simulated(Collective::PointToPoint, "direct", Order::Racks, GIB, cluster);
        [0, 1].map(|rank| found.finish_s[rank].unwrap())
    };
    let unbounded = ended_s(&cluster);
    cluster.queue_bytes = Some(1 << 20);
    let bounded = ended_s(&cluster);

    assert!((bounded[1] / unbounded[1] - 1.0).abs() < 1e-9);
    assert!((bounded[0] / unbounded[0] - 4.0).abs() < 0.01);

    // Packets stored in a switch do not count against the queue bound.
    (cluster.queue_bytes, cluster.packet_bytes) = (Some(1), 1500);
    assert!((ended_s(&cluster)[1] / unbounded[1] - 1.0).abs() < 1e-5);
}

/// Each switch delays by a packet. Each relay delays by a unit, rounded up to whole packets.
#[test]
fn each_switch_delays_by_a_packet_and_each_relay_by_a_unit() {
    let (p, bytes, packet_bytes) = (6, 1 << 20, 1000);
    let at_end_s = |rack_count: usize, relay_bytes: Option<usize>| {
        let mut cluster = racks(p, rack_count, 1.0);
        (cluster.network_link.alpha_s, cluster.uplink.alpha_s) = (0.0, 0.0);
        (cluster.packet_bytes, cluster.relay_bytes) = (packet_bytes, relay_bytes);
        simulated(Collective::Broadcast, "chain", Order::Racks, bytes, &cluster).time_s().unwrap()
    };

    let behind = |switches: usize, unit_bytes: usize| switches * packet_bytes + (p - 2) * unit_bytes;
    for (rack_count, relay_bytes, expected) in [
        (1, Some(16 << 10), behind(5, 17_000)),
        // One of the five links connects the racks.
        (2, Some(16 << 10), behind(4 + 3, 17_000)),
        (1, None, behind(5, 66_000)),
        (1, Some(GIB), behind(5, 66_000)),
    ] {
        let found_s = at_end_s(rack_count, relay_bytes);
        assert!((found_s / transfer_s(bytes + expected) - 1.0).abs() < 1e-9, "{rack_count} racks, {relay_bytes:?}");
    }
}

/// With packets, messages arrive at the same moment at which others start to wait. Rounding must not reorder these
/// events.
#[test]
fn rounds_of_an_exchange_overlap_if_packets_arrive_simultaneously() {
    let mut cluster = racks(32, 1, 1.0);
    cluster.network_link = LinkCost { alpha_s: 0.0, beta_s_per_byte: 8.0 / 25e6 * (1.0 + 132.0 / 2896.0) };
    (cluster.packet_bytes, cluster.relay_bytes, cluster.gamma_s_per_byte) = (2896, Some(16 << 10), 1.25e-10);
    let found = simulated(Collective::Allreduce, "bidirectional-exchange", Order::Racks, 999_936, &cluster);

    let to_first =
        |sender| found.transfers.iter().find(|transfer| (transfer.sender, transfer.receiver) == (sender, 0)).unwrap();
    let near = to_first(1);
    for far in [2, 4, 8, 16].map(to_first) {
        assert!(far.start_s < near.end_s / 10.0, "rank {} starts at {}", far.sender, far.start_s);
    }
}

#[test]
fn equal_simulations_have_equal_bits() {
    let mut cluster = racks(24, 3, 2.0);
    cluster.faults = ClusterFaults::default().slow_some(24, 3, 2.0, 5);
    for (collective, name) in [(Collective::Allreduce, "double-tree"), (Collective::Allgather, "bruck")] {
        let [first, second] = [0, 1].map(|_| simulated(collective, name, Order::Random(3), 1 << 20, &cluster));
        assert_eq!(first.transfers, second.transfers);
        assert_eq!(first.finish_s, second.finish_s);
    }
}

/// Equation 3 on 100 000 nodes. A simulation of single segments would need 1.6e9 of them.
#[test]
fn a_chain_of_100_000_nodes_is_simulated_within_seconds() {
    let (p, bytes, segment_bytes) = (100_000, GIB, 64 << 10);
    let cluster = racks(p, 2400, 4.0);
    let found = simulated(Collective::Broadcast, "chain", Order::Racks, bytes, &cluster);

    let segment_s = 1e-5 + segment_bytes as f64 * S_PER_BYTE;
    let expected_s = (p - 2 + bytes / segment_bytes) as f64 * segment_s;
    assert!((found.time_s().unwrap() / expected_s - 1.0).abs() < 1e-6);
    assert_eq!(found.transfers.len(), p - 1);
}
