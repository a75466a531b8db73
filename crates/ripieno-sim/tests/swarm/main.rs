//! Dynamic broadcast on simulated clusters: time ratios, invariants for few ranks, and random faults.

mod faults;
mod figures;

use ripieno_plan::simulate::Model;
use ripieno_plan::swarm::{Discipline, MemberFailure};
use ripieno_sim::Cluster;
use ripieno_sim::swarm::{RankOutcome, SwarmError, SwarmOutcome, SwarmRequest, swarm, swarm_interruptible};
use std::cell::Cell;

/// Seconds per byte at 100 Mbit/s.
const BETA: f64 = 8e-8;
const MIB: usize = 1 << 20;

fn cluster(p: usize) -> Cluster {
    let model = Model { alpha_s: 50e-6, beta_s_per_byte: BETA, gamma_s_per_byte: 0.0 };
    Cluster { segment_bytes: Some(64 << 10), ..Cluster::uniform(p, &model) }
}

fn disciplines() -> impl Iterator<Item = (&'static str, Discipline)> {
    Discipline::NAMES.into_iter().map(|name| (name, Discipline::named(name).unwrap()))
}

fn simulated(cluster: &Cluster, request: &SwarmRequest) -> SwarmOutcome {
    swarm(cluster, request).unwrap()
}

/// Check the invariants of every broadcast, with any faults.
fn check_invariants(case_text: &str, request: &SwarmRequest, found: &SwarmOutcome, ranks_lost: &[usize]) {
    for (broadcast, outcomes) in request.broadcasts.iter().zip(&found.outcomes) {
        let is_root_lost = ranks_lost.contains(&broadcast.root);
        for (rank, outcome) in outcomes.iter().enumerate() {
            match outcome {
                RankOutcome::Done { is_valid, .. } => assert!(is_valid, "{case_text}: rank {rank} has wrong bytes"),
                RankOutcome::Lost { .. } => {
                    assert!(ranks_lost.contains(&rank), "{case_text}: rank {rank} was lost unexpectedly")
                }
                RankOutcome::Failed { failure, .. } => {
                    assert!(is_root_lost, "{case_text}: rank {rank} failed although the root is alive: {failure}");
                    assert!(
                        matches!(failure, MemberFailure::RootLost { root, .. } if *root == broadcast.root),
                        "{case_text}: rank {rank}: {failure}"
                    );
                }
                RankOutcome::Waiting => panic!("{case_text}: rank {rank} waits forever, until {} s", found.end_s),
            }
        }
    }
    if let [broadcast] = &request.broadcasts[..]
        && !ranks_lost.contains(&broadcast.root)
    {
        let settled = found.settled[0].as_ref().unwrap_or_else(|| panic!("{case_text}: the root has no final report"));
        for (rank, outcome) in found.outcomes[0].iter().enumerate().filter(|(rank, _)| *rank != broadcast.root) {
            let (acknowledged, lost) = (settled.acknowledged.contains(&rank), settled.lost.contains(&rank));
            match outcome {
                RankOutcome::Lost { .. } => {
                    assert!(
                        lost != acknowledged,
                        "{case_text}: lost rank {rank} is lost or acknowledged, not both: {settled:?}"
                    )
                }
                _ => {
                    assert!(
                        acknowledged || ranks_lost.contains(&rank),
                        "{case_text}: the root reports no acknowledgement of rank {rank}: {settled:?}"
                    )
                }
            }
        }
    }
}

#[test]
fn a_simulation_ends_when_it_is_interrupted() {
    let call_count = Cell::new(0);
    let is_interrupted = || {
        call_count.set(call_count.get() + 1);
        call_count.get() == 3
    };
    let found =
        swarm_interruptible(&cluster(65), &SwarmRequest::of(0, 64 * MIB, Discipline::BITTORRENT), &is_interrupted);
    assert_eq!((found.err(), call_count.get()), (Some(SwarmError::Interrupted), 3));
}

#[test]
fn a_simulation_is_interrupted_among_simultaneous_events() {
    // All ranks begin at once: more events than between two checks.
    let request = SwarmRequest::of(0, 1, Discipline::named("tree").unwrap());
    let found = swarm_interruptible(&cluster(300), &request, &|| true);
    assert_eq!(found.err(), Some(SwarmError::Interrupted));
}

#[test]
fn members_that_join_one_after_the_other_are_as_fast_as_members_that_join_together() {
    let at_once = SwarmRequest::of(0, 16 * MIB, Discipline::BITTORRENT);
    let one_by_one =
        SwarmRequest { late_joins: (1..65).map(|rank| (rank, 1e-3 * rank as f64)).collect(), ..at_once.clone() };
    let [at_once_s, one_by_one_s] = [at_once, one_by_one].map(|request| simulated(&cluster(65), &request).time_s(0));
    println!("64 ranks that join one by one take {:.3} times as long", one_by_one_s / at_once_s);
    assert!(one_by_one_s <= 1.1 * at_once_s, "{one_by_one_s} and {at_once_s} s");
}
