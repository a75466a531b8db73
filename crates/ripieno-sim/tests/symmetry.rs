//! Simulations by symmetry compared with simulations of all ranks.

use crate::oracles::assert_close;
use ripieno_plan::catalogue::ALGORITHMS;
use ripieno_plan::simulate::Model;
use ripieno_plan::{Algorithm, Collective, Order, Topology};
use ripieno_sim::{Cluster, NotSimulable, PlanSimulation, SimulationError, SimulationRequest};
use std::sync::Arc;

const MODEL: Model = Model { alpha_s: 4.0, beta_s_per_byte: 0.25, gamma_s_per_byte: 0.125 };

/// A cluster in which messages have one segment, and one with segments and relays of these lengths.
fn clusters(p: usize) -> [Cluster; 2] {
    let whole = Cluster::uniform(p, &MODEL);
    [whole.clone(), Cluster { segment_bytes: Some(64), relay_bytes: Some(16), ..whole }]
}

fn by_symmetry(request: &SimulationRequest, algorithm: &Algorithm, cluster: &Cluster) -> Option<PlanSimulation> {
    request.simulate_by_symmetry(algorithm, Order::Racks, cluster, &|| false).ok().flatten()
}

fn of_all_ranks(request: &SimulationRequest, algorithm: &Algorithm, cluster: &Cluster) -> PlanSimulation {
    request.simulate(algorithm, Order::Racks, cluster, &|| false).unwrap()
}

#[test]
fn one_rank_gives_the_result_of_all_ranks_for_every_symmetric_algorithm() {
    let mut symmetric = std::collections::BTreeSet::new();
    let sizes = [2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 33, 64];
    let cases = ALGORITHMS.iter().filter(|algorithm| algorithm.collective() != Collective::PointToPoint);
    for (algorithm, p) in cases.flat_map(|algorithm| sizes.map(|p| (algorithm, p))) {
        for cluster in clusters(p) {
            let request = SimulationRequest::new(algorithm.collective(), p, 48 * p, 0);
            let Some(found) = by_symmetry(&request, algorithm, &cluster) else { continue };

            let expected = of_all_ranks(&request, algorithm, &cluster);
            let case_text = format!("{} {} p {p}", algorithm.collective().name(), algorithm.name);
            assert_close(found.time_s().unwrap(), expected.time_s().unwrap(), &case_text);
            assert_eq!(found.finish_s.len(), p, "{case_text}");
            assert_eq!(found.sent_bytes, expected.sent_bytes, "{case_text}");
            assert_eq!(found.message_count(), expected.message_count(), "{case_text}");
            assert_eq!(found.bytes_by_kind(&cluster), expected.bytes_by_kind(&cluster), "{case_text}");
            assert_eq!(found.loads.len(), expected.loads.len(), "{case_text}");
            symmetric.insert((algorithm.collective().name(), algorithm.name));
        }
    }
    for expected in [("allreduce", "ring"), ("allgather", "ring"), ("reduce-scatter", "ring"), ("alltoall", "direct")] {
        assert!(symmetric.contains(&expected), "{expected:?} is not among {symmetric:?}");
    }
    for expected in [("allreduce", "bidirectional-exchange"), ("barrier", "dissemination")] {
        assert!(symmetric.contains(&expected), "{expected:?} is not among {symmetric:?}");
    }
    assert!(!symmetric.contains(&("allreduce", "double-tree")), "{symmetric:?}");
}

#[test]
fn a_ring_of_uneven_chunks_takes_the_time_of_its_largest_chunks() {
    let ring = Algorithm::by_name(Collective::Allreduce, "ring").unwrap();
    for p in 2..=64 {
        for bytes in [p * 5 + 1, p * 5 + p / 2, p * 6 - 1, p / 2 + 1] {
            let request = SimulationRequest::new(Collective::Allreduce, p, bytes, 0);
            let cluster = Cluster::uniform(p, &MODEL);
            let found = by_symmetry(&request, ring, &cluster).unwrap();
            let expected = of_all_ranks(&request, ring, &cluster);
            let case_text = format!("p {p}, {bytes} bytes");
            assert_close(found.time_s().unwrap(), expected.time_s().unwrap(), &case_text);
            assert_eq!(found.sent_bytes, expected.sent_bytes, "{case_text}");
        }
    }
}

/// A chunk that is relayed while it arrives delays others by at most the missing byte of the smaller chunks.
#[test]
fn a_ring_of_uneven_relayed_chunks_deviates_by_at_most_a_byte_per_chunk() {
    let ring = Algorithm::by_name(Collective::Allreduce, "ring").unwrap();
    for p in [3, 8, 17, 33, 64] {
        let request = SimulationRequest::new(Collective::Allreduce, p, p * 100 + p / 3, 0);
        let [_, cluster] = clusters(p);
        let found_s = by_symmetry(&request, ring, &cluster).unwrap().time_s().unwrap();
        let expected_s = of_all_ranks(&request, ring, &cluster).time_s().unwrap();
        assert!(found_s >= expected_s * (1.0 - 1e-9), "p {p}: {found_s} s, {expected_s} s");
        assert!(found_s <= expected_s * 1.01, "p {p}: {found_s} s, {expected_s} s");
    }
}

#[test]
fn unequal_links_faults_and_random_orders_have_no_symmetry() {
    let ring = Algorithm::by_name(Collective::Allreduce, "ring").unwrap();
    let request = SimulationRequest::new(Collective::Allreduce, 8, 800, 0);
    let equal = Cluster::uniform(8, &MODEL);
    let racks = Topology::new((0..8).collect(), (0..8).map(|node| node / 4).collect());
    let unequal = [
        Cluster { topology: Arc::new(racks), ..equal.clone() },
        Cluster { faults: equal.faults.clone().slow(3, 2.0), ..equal.clone() },
        Cluster { faults: equal.faults.clone().death(3, 1.0), ..equal.clone() },
    ];
    for cluster in &unequal {
        assert!(by_symmetry(&request, ring, cluster).is_none());
    }
    let random = request.simulate_by_symmetry(ring, Order::Random(7), &equal, &|| false).unwrap();
    assert!(random.is_none());
    assert!(by_symmetry(&request, ring, &equal).is_some());
}

/// 100,000 ranks: a plan of 399,996 operations represents 40 billion.
#[test]
fn a_ring_of_100_000_ranks_takes_the_time_of_its_formula() {
    let p = 100_000;
    let ring = Algorithm::by_name(Collective::Allreduce, "ring").unwrap();
    let request = SimulationRequest::new(Collective::Allreduce, p, 100_000_000, 0);
    let cluster = Cluster { relay_bytes: Some(16 << 10), segment_bytes: Some(64 << 10), ..Cluster::uniform(p, &MODEL) };

    let found = by_symmetry(&request, ring, &cluster).unwrap();

    let [steps, chunk] = [99_999.0, 1000.0];
    let expected_s = steps * (2.0 * (MODEL.alpha_s + chunk * MODEL.beta_s_per_byte) + chunk * MODEL.gamma_s_per_byte);
    assert_close(found.time_s().unwrap(), expected_s, "ring of 100,000 ranks");
    assert_eq!(found.message_count(), 2 * 99_999 * p);
}

#[test]
fn a_simulation_ends_within_a_settling_of_many_flows_when_it_is_interrupted() {
    let p = 20_000;
    let exchange = Algorithm::by_name(Collective::Allreduce, "ring").unwrap();
    let request = SimulationRequest::new(Collective::Allreduce, p, 20_000, 0);
    let cluster = Cluster::uniform(p, &MODEL);
    let checks = std::cell::Cell::new(0);
    let is_interrupted = || {
        checks.set(checks.get() + 1);
        checks.get() > 8
    };

    let found = request.simulate_by_symmetry(exchange, Order::Racks, &cluster, &is_interrupted);

    assert_eq!(found.err(), Some(NotSimulable::SimulationError(SimulationError::Interrupted)));
}
