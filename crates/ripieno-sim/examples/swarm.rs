//! Simulates a dynamic broadcast to many nodes, and prints its simulated time and the run time of the simulation.

use ripieno_plan::Topology;
use ripieno_plan::simulate::Model;
use ripieno_plan::swarm::Discipline;
use ripieno_sim::Cluster;
use ripieno_sim::swarm::{RankOutcome, SwarmRequest, swarm};
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [nodes, mib, block_kib, balance_ms] =
        [0, 1, 2, 3].map(|at| arguments.get(at).map_or(0, |argument| argument.parse().unwrap()));
    let names = arguments.get(4).map_or(Discipline::NAMES.to_vec(), |name| vec![name.as_str()]);
    let model = Model { alpha_s: 50e-6, beta_s_per_byte: 8e-8, gamma_s_per_byte: 0.0 };
    for name in names {
        let mut cluster = Cluster::uniform(nodes, &model);
        cluster.topology = std::sync::Arc::new(Topology::flat(nodes));
        cluster.segment_bytes = Some(64 << 10);
        let mut request = SwarmRequest::of(0, mib << 20, Discipline::named(name).unwrap());
        request.broadcasts[0].block_bytes = (block_kib > 0).then_some(block_kib << 10);
        request.rebalance_interval_s = balance_ms as f64 / 1e3;
        request.time_limit_s = 1000.0;
        let started = Instant::now();
        let found = swarm(&cluster, &request).unwrap();
        let valid_count = found.outcomes[0]
            .iter()
            .filter(|outcome| matches!(outcome, RankOutcome::Done { is_valid: true, .. }))
            .count();
        let ideal_s = (mib << 20) as f64 * 8e-8;
        println!(
            "{name:12} {nodes} nodes: {:.3} of bytes/rate, {valid_count} ranks with the value, most sent {:.2}, \
             root sent {:.2}, {} messages, {:.1} s",
            found.time_s(0) / ideal_s,
            *found.sent_bytes.iter().max().unwrap() as f64 / (mib << 20) as f64,
            found.sent_bytes[0] as f64 / (mib << 20) as f64,
            found.message_count,
            started.elapsed().as_secs_f64()
        );
    }
}
