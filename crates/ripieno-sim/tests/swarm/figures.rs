//! Measured ratios to the time that the bytes alone take at the rate of one host.

use super::*;
use ripieno_plan::{Topology, next_random};
use ripieno_sim::{ClusterFaults, LinkCost};
use std::sync::Arc;

const BYTES: usize = 64 * MIB;

/// Return the time of the last receiver as a multiple of bytes / rate.
fn time_ratio(cluster: &Cluster, discipline: Discipline) -> f64 {
    let request = SwarmRequest::of(0, BYTES, discipline);
    let found = simulated(cluster, &request);
    check_invariants("a figure", &request, &found, &[]);
    found.time_s(0) / (BYTES as f64 * BETA)
}

fn named(name: &str) -> Discipline {
    Discipline::named(name).unwrap()
}

#[test]
fn a_broadcast_of_64_mib_reaches_8_and_32_hosts_near_the_rate_limit() {
    let most = [("chain", 1.06, 1.08), ("splitstream", 1.15, 1.2), ("csb", 1.3, 1.5), ("bittorrent", 1.5, 1.6)];
    for (name, most_8, most_32) in most {
        let [at_8, at_32] = [8, 32].map(|hosts| time_ratio(&cluster(hosts + 1), named(name)));
        println!("{name}: 8 hosts {at_8:.3}, 32 hosts {at_32:.3}");
        assert!(at_8 <= most_8 && at_32 <= most_32, "{name}: {at_8} and {at_32}");
    }
}

#[test]
fn a_broadcast_to_64_hosts_takes_little_longer_than_to_8() {
    for (name, most) in [("chain", 1.1), ("splitstream", 1.3), ("csb", 1.3), ("bittorrent", 1.3)] {
        let [at_8, at_64] = [8, 64].map(|hosts| time_ratio(&cluster(hosts + 1), named(name)));
        println!("{name}: 64 hosts {at_64:.3}, {:.3} times 8", at_64 / at_8);
        assert!(at_64 / at_8 <= most, "{name}: {at_8} and {at_64}");
    }
}

#[test]
fn the_root_of_bittorrent_sends_few_blocks_twice_before_it_has_sent_all() {
    for hosts in [8, 64] {
        let request = SwarmRequest { records_fetches: true, ..SwarmRequest::of(0, BYTES, named("bittorrent")) };
        let found = simulated(&cluster(hosts + 1), &request);
        let root_fetches: Vec<_> = found.fetches.iter().filter(|fetch| fetch.sender == 0).collect();
        let block_count = found.manifests[0].block_count();
        let sent_s = |block| {
            root_fetches
                .iter()
                .filter(|fetch| fetch.block == block)
                .map(|fetch| fetch.end_s)
                .fold(f64::INFINITY, f64::min)
        };
        let all_sent_s = (0..block_count).map(sent_s).fold(0.0, f64::max);
        let count = root_fetches.iter().filter(|fetch| fetch.start_s < all_sent_s).count();
        println!("{hosts} hosts: {block_count} blocks are sent after {:.3}", all_sent_s / (BYTES as f64 * BETA));
        assert!(
            count as f64 <= 1.1 * block_count as f64,
            "{hosts} hosts: {count} sends before {block_count} blocks were sent"
        );
    }
}

#[test]
fn a_chain_in_rack_order_is_six_times_as_fast_as_in_random_order() {
    let (racks, hosts) = (4, 8);
    let topology = Topology::new((0..racks * hosts).collect(), (0..racks * hosts).map(|rank| rank / hosts).collect());
    let plain = cluster(racks * hosts);
    let uplink = LinkCost { beta_s_per_byte: BETA, ..plain.uplink };
    let cluster = Cluster { topology: Arc::new(topology), uplink, ..plain };
    let time_s = |order: Vec<usize>| {
        let mut request = SwarmRequest::of(0, BYTES, Discipline::Chain);
        request.broadcasts[0].order = Some(order);
        simulated(&cluster, &request).time_s(0)
    };
    let mut random: Vec<usize> = (1..racks * hosts).collect();
    let mut state = 7;
    (1..random.len()).rev().for_each(|end| random.swap(end, next_random(&mut state) as usize % (end + 1)));
    let [by_racks_s, random_s] = [time_s((1..racks * hosts).collect()), time_s(random)];
    println!("random order takes {:.2} times as long", random_s / by_racks_s);
    assert!(random_s / by_racks_s >= 6.0, "{by_racks_s} and {random_s} s");
}

#[test]
fn three_of_32_receivers_may_be_killed_at_half_of_the_time() {
    for name in ["chain", "splitstream", "csb", "bittorrent"] {
        let undisturbed = time_ratio(&cluster(33), named(name));
        let at_s = undisturbed * BYTES as f64 * BETA / 2.0;
        let faults = [5, 16, 27].into_iter().fold(ClusterFaults::default(), |faults, rank| faults.death(rank, at_s));
        let request = SwarmRequest::of(0, BYTES, named(name));
        let found = simulated(&Cluster { faults, ..cluster(33) }, &request);
        check_invariants(name, &request, &found, &[5, 16, 27]);
        let ratio = found.time_s(0) / (undisturbed * BYTES as f64 * BETA);
        println!("{name}: {ratio:.3} times the undisturbed time");
        assert!(ratio <= 1.25, "{name}: {ratio}");
    }
}

#[test]
fn a_slow_host_does_not_delay_the_other_hosts() {
    for name in ["csb", "bittorrent"] {
        let undisturbed = time_ratio(&cluster(33), named(name));
        // Rank 1 is also the first rank that sends a request.
        for slow in [1, 5] {
            let request = SwarmRequest::of(0, BYTES, named(name));
            let found =
                simulated(&Cluster { faults: ClusterFaults::default().slow(slow, 5.0), ..cluster(33) }, &request);
            check_invariants(name, &request, &found, &[]);
            let others = found.outcomes[0].iter().enumerate().filter(|(rank, _)| *rank != slow);
            let others_s = others.map(|(_, outcome)| match outcome {
                RankOutcome::Done { at_s, .. } => *at_s,
                other => panic!("{name}: {other:?}"),
            });
            let ratio = others_s.fold(0.0, f64::max) / (undisturbed * BYTES as f64 * BETA);
            println!("{name}: rank {slow} is slow: {ratio:.3} times the undisturbed time");
            assert!(ratio <= 1.3, "{name}: rank {slow}: {ratio}");
        }
    }
}
