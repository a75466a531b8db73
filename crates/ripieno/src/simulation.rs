//! Simulations and explanations for callers who name algorithms as in calls: `chain`, `chain@random:7`, `@given`.

use crate::choice::Overrides;
use crate::error::{Error, argument};
use crate::preferred::Preferred;
pub use ripieno_plan::simulate::SimulatedTransfer;
use ripieno_plan::sparse::{Degrees, InvalidDegrees};
pub use ripieno_plan::swarm::{Discipline, MemberFailure};
use ripieno_plan::{Collective, Group};
pub use ripieno_sim::swarm;
pub use ripieno_sim::{
    Candidate, Cluster, ClusterFaults, ConnectionKind, Explanation, LinkCost, PlanCost, Played, WireLoad,
};
use ripieno_sim::{NotSimulable, SimulationRequest, play_sparse};
use swarm::{Casting, Swarmed, Uncast};

/// A collective that was played on a cluster.
pub struct SimulationCall {
    /// The algorithm that was asked for, or chosen.
    pub algorithm: &'static str,
    /// What came of it.
    pub played: Played,
}

/// Plays `collective` on `cluster`; `algorithm` is what a call would name. Bytes are those of the vector; of a rank's
/// block for allgather, gather and scatter; all that a rank sends for alltoall.
pub fn simulate(
    cluster: &Cluster,
    collective: Collective,
    algorithm: Option<&str>,
    bytes: usize,
    root: usize,
) -> Result<SimulationCall, Error> {
    let (asked, group) = asked(cluster, collective, bytes, root)?;
    let (bytes, preferred) = (asked.request(0).length_bytes(), Preferred::default());
    let choice = Overrides::default().choice(collective, algorithm, &group, &preferred, bytes)?;
    let played = asked.play(choice.algorithm, choice.order, cluster).map_err(|unanswered| match unanswered {
        NotSimulable::Unsuitable(unsuitable) => argument("algorithm", choice.algorithm.name, unsuitable.needs.text()),
        NotSimulable::Unplayable(unplayable) => {
            argument("ranks", group.size(), &format!("fewer, for {}: {unplayable}", choice.algorithm.name))
        }
    })?;
    Ok(SimulationCall { algorithm: choice.algorithm.name, played })
}

/// Every algorithm of `collective`, priced and played on `cluster`; `order` is what a call would name, such as
/// `@given`.
pub fn explain(
    cluster: &Cluster,
    collective: Collective,
    order: Option<&str>,
    bytes: usize,
    root: usize,
) -> Result<Explanation, Error> {
    let (asked, group) = asked(cluster, collective, bytes, root)?;
    let order = Overrides::default().choice(collective, order, &group, &Preferred::default(), bytes)?.order;
    Ok(Explanation::of(&asked, order, cluster))
}

/// A reduction of rows by a butterfly of `degrees` on `cluster`; of the features below `features` every rank
/// contributes and wants those of its set, which ascend.
pub fn simulate_sparse(
    cluster: &Cluster,
    degrees: &str,
    features: u64,
    sets: &[Vec<u64>],
    row_bytes: usize,
) -> Result<Played, Error> {
    let p = cluster.topology.size();
    let told: Degrees = degrees.parse().map_err(|error: InvalidDegrees| Error::Argument {
        name: "degrees",
        value: degrees.to_string(),
        expected: error.to_string(),
    })?;
    if told.world_size() != p {
        return Err(argument("degrees", degrees, &format!("those of {p} ranks")));
    }
    if sets.len() != p {
        return Err(argument("sets", sets.len(), &format!("one for each of {p} ranks")));
    }
    if row_bytes == 0 {
        return Err(argument("row_bytes", row_bytes, "at least 1"));
    }
    let is_sound = |keys: &Vec<u64>| keys.is_sorted_by(|a, b| a < b) && keys.last().is_none_or(|&last| last < features);
    if let Some(rank) = sets.iter().position(|keys| !is_sound(keys)) {
        return Err(argument("sets", format!("those of rank {rank}"), &format!("ascending features below {features}")));
    }
    play_sparse(cluster, &told, features, sets, row_bytes)
        .map_err(|unplayable| argument("degrees", degrees, &format!("fewer messages: {unplayable}")))
}

/// More ranks than this share wires by turns, a thousand in the time of the bytes alone: all flows of a swarm concern
/// each other.
const EXACT_RANKS_MAX: usize = 128;

/// One value of `bytes` for all ranks of `cluster` from `root`, by the discipline of that name. A chain runs rack by
/// rack.
pub fn casting(cluster: &Cluster, algorithm: &str, bytes: usize, root: usize) -> Result<Casting, Error> {
    let p = cluster.topology.size();
    asked(cluster, Collective::Broadcast, bytes, root)?;
    let discipline = Discipline::named(algorithm)
        .ok_or_else(|| argument("algorithm", algorithm, &format!("one of {}", Discipline::NAMES.join(", "))))?;
    let at = &cluster.topology;
    let racks_after = |rank: usize| (at.rack(rank) + at.rack_count() - at.rack(root)) % at.rack_count();
    let mut order: Vec<usize> = (1..p).map(|after| (root + after) % p).collect();
    order.sort_by_key(|&rank| (racks_after(rank), at.node(rank) != at.node(root)));
    let mut casting = Casting::of(root, bytes, discipline);
    casting.casts[0].order = Some(order);
    if p > EXACT_RANKS_MAX && !discipline.is_streamed() {
        casting.balance_s = bytes as f64 * cluster.cable.beta_s_per_byte / 1000.0;
    }
    Ok(casting)
}

/// Plays a dynamic broadcast on `cluster`, unless it is interrupted, which is asked from time to time.
pub fn distribute(cluster: &Cluster, casting: &Casting, is_interrupted: &dyn Fn() -> bool) -> Result<Swarmed, Error> {
    swarm::swarm_unless(cluster, casting, is_interrupted).map_err(|uncast| not_cast(cluster, &uncast))
}

/// Each block size that was tried, 4 MiB and its halves, and what it takes on `cluster`, unless it is interrupted.
pub fn search_block_bytes(
    cluster: &Cluster,
    casting: &Casting,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Vec<(usize, f64)>, Error> {
    swarm::search_block_bytes(cluster, casting, is_interrupted).map_err(|uncast| not_cast(cluster, &uncast))
}

fn not_cast(cluster: &Cluster, uncast: &Uncast) -> Error {
    match uncast {
        Uncast::Interrupted => Error::Interrupted,
        _ => argument("ranks", cluster.topology.size(), &uncast.to_string()),
    }
}

fn asked(
    cluster: &Cluster,
    collective: Collective,
    bytes: usize,
    root: usize,
) -> Result<(SimulationRequest, Group), Error> {
    let p = cluster.topology.size();
    if p == 0 {
        return Err(argument("ranks", p, "at least 1"));
    }
    if root >= p {
        return Err(argument("root", root, &format!("a rank, 0 … {}", p - 1)));
    }
    Ok((SimulationRequest::new(collective, p, bytes, root), Group::with_topology(0, cluster.topology.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ripieno_plan::simulate::Model;

    fn told(algorithm: &str, root: usize) -> String {
        let model = Model { alpha_s: 1.0, beta_s_per_byte: 1.0, gamma_s_per_byte: 0.0 };
        let found = simulate(&Cluster::uniform(5, &model), Collective::Allgather, Some(algorithm), 8, root);
        found.map(|found| found.algorithm.to_string()).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn what_cannot_be_played_is_told_with_what_can() {
        assert_eq!(told("neighbour-exchange", 0), "algorithm=neighbour-exchange: expected an even number of ranks");
        assert!(told("chain", 0).starts_with("algorithm=chain: expected one of ring"));
        assert_eq!(told("ring", 5), "root=5: expected a rank, 0 … 4");
        assert_eq!(told("ring@random:7", 0), "ring");
    }

    #[test]
    fn sparse_reductions_that_there_cannot_be_are_told() {
        let model = Model { alpha_s: 1.0, beta_s_per_byte: 1.0, gamma_s_per_byte: 0.0 };
        let told = |degrees: &str, sets: &[Vec<u64>], row_bytes: usize| {
            simulate_sparse(&Cluster::uniform(4, &model), degrees, 10, sets, row_bytes).unwrap_err().to_string()
        };
        let sets = vec![vec![3, 9]; 4];
        assert_eq!(told("3x2", &sets, 4), "degrees=3x2: expected those of 4 ranks");
        assert!(told("0x4", &sets, 4).starts_with("degrees=0x4: expected "));
        assert_eq!(told("2x2", &sets[1..], 4), "sets=3: expected one for each of 4 ranks");
        assert_eq!(told("2x2", &sets, 0), "row_bytes=0: expected at least 1");
        for wrong in [vec![3, 3], vec![9, 3], vec![3, 10]] {
            let sets = [sets[0].clone(), wrong, sets[0].clone(), sets[0].clone()];
            assert_eq!(told("2x2", &sets, 4), "sets=those of rank 1: expected ascending features below 10");
        }
    }
}
