//! Simulations and explanations for callers who name algorithms as in calls: `chain`, `chain@random:7`, `@given`.

use crate::choice::Overrides;
use crate::error::{Error, argument};
pub use ripieno_plan::simulate::Transfer;
use ripieno_plan::{Collective, Group};
use ripieno_sim::{Asked, Unanswered};
pub use ripieno_sim::{Candidate, Cluster, Explanation, Faults, Kind, Link, Outcome, Played};

/// A collective that was played on a cluster.
pub struct Simulation {
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
) -> Result<Simulation, Error> {
    let (asked, group) = asked(cluster, collective, bytes, root)?;
    let choice = Overrides::default().choice(collective, algorithm, &group, asked.request(0).length_bytes())?;
    let played = asked.play(choice.algorithm, choice.order, cluster).map_err(|unanswered| match unanswered {
        Unanswered::Unsuitable(unsuitable) => argument("algorithm", choice.algorithm.name, unsuitable.needs.text()),
        Unanswered::Unplayable(unplayable) => {
            argument("ranks", group.size(), &format!("fewer, for {}: {unplayable}", choice.algorithm.name))
        }
    })?;
    Ok(Simulation { algorithm: choice.algorithm.name, played })
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
    let order = Overrides::default().choice(collective, order, &group, bytes)?.order;
    Ok(Explanation::of(&asked, order, cluster))
}

fn asked(cluster: &Cluster, collective: Collective, bytes: usize, root: usize) -> Result<(Asked, Group), Error> {
    let p = cluster.topology.size();
    if p == 0 {
        return Err(argument("ranks", p, "at least 1"));
    }
    if root >= p {
        return Err(argument("root", root, &format!("a rank, 0 … {}", p - 1)));
    }
    Ok((Asked::new(collective, p, bytes, root), Group::with_topology(0, cluster.topology.clone())))
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
}
