//! Preferred algorithms of one communicator, found by trials of its ranks. They replace
//! [`choose`](ripieno_plan::choose).
//!
//! A preference is a list of rows per collective, by ascending size. Each row applies to sizes up to its total bytes;
//! the last row also applies to larger sizes. The argument of a call and [`Overrides`](crate::choice::Overrides) take
//! precedence.

use crate::error::{Error, argument};
use ripieno_plan::{Algorithm, Collective, Group, Needs};
use ripieno_sim::SimulationRequest;

/// Maximum total bytes, and the name of an algorithm.
pub type PreferredRow = (usize, String);

/// The rows of each collective. Without a trial, a collective has no rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preferred {
    by_collective: [Vec<(usize, &'static Algorithm)>; Collective::ALL.len()],
}

impl Preferred {
    /// Replace the rows of `collective`.
    pub fn set(&mut self, collective: Collective, group: &Group, rows: &[PreferredRow]) -> Result<(), Error> {
        if !rows.windows(2).all(|pair| pair[0].0 < pair[1].0) {
            return Err(argument("rows", format!("{rows:?}"), "ascending bytes"));
        }
        let known = candidates(collective, group);
        let found = rows.iter().map(|(bytes, name)| {
            let algorithm = known.iter().find(|algorithm| algorithm.name == name);
            let names: Vec<&str> = known.iter().map(|algorithm| algorithm.name).collect();
            let algorithm =
                algorithm.ok_or_else(|| argument("algorithm", name, &format!("one of {}", names.join(", "))));
            Ok((*bytes, *algorithm?))
        });
        self.by_collective[collective as usize] = found.collect::<Result<_, Error>>()?;
        Ok(())
    }

    /// Return the preferred algorithm for a vector (all chunks together) of `bytes`, if any.
    #[inline]
    pub fn find(&self, collective: Collective, bytes: usize) -> Option<&'static Algorithm> {
        let rows = &self.by_collective[collective as usize];
        let row = rows.iter().find(|(up_to, _)| bytes <= *up_to).or(rows.last());
        row.map(|(_, algorithm)| *algorithm)
    }
}

/// Return the algorithms that support every call of `collective` by this group.
fn candidates(collective: Collective, group: &Group) -> Vec<&'static Algorithm> {
    let suits = |algorithm: &&Algorithm| match algorithm.needs {
        // No algorithm declares `CommutativeOp` itself.
        Needs::Nothing | Needs::CommutativeOp => true,
        Needs::EvenWorld => group.size() == 1 || group.size().is_multiple_of(2),
        Needs::EqualChunks => false,
    };
    Algorithm::of(collective).filter(suits).collect()
}

/// Return the algorithms that may be preferred, grouped by equal plans on all ranks. `bytes` is defined as in
/// [`SimulationRequest`].
pub fn distinct(collective: Collective, group: &Group, bytes: usize) -> Vec<Vec<&'static str>> {
    let request = SimulationRequest::new(collective, group.size(), bytes, 0);
    let group = group.in_order(ripieno_plan::Order::Racks);
    let mut found: Vec<(Vec<&str>, bool, Vec<_>)> = Vec::new();
    for algorithm in candidates(collective, &group) {
        let plans = algorithm.plans_of(&group, |rank| request.request(rank));
        let plans: Vec<_> = plans.map(|plan| plan.expect("candidates suit the group")).collect();
        match found.iter_mut().find(|(_, rendezvous, known)| *rendezvous == algorithm.rendezvous && *known == plans) {
            Some((names, ..)) => names.push(algorithm.name),
            None => found.push((vec![algorithm.name], algorithm.rendezvous, plans)),
        }
    }
    found.into_iter().map(|(names, ..)| names).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_applies_up_to_its_bytes_and_the_last_row_beyond() {
        let (group, mut preferred) = (Group::new(0, 4), Preferred::default());
        let rows = [(64, "tree".to_string()), (4096, "ring".to_string())];
        preferred.set(Collective::Allreduce, &group, &rows).unwrap();

        let found = |bytes| preferred.find(Collective::Allreduce, bytes).map(|algorithm| algorithm.name);
        assert_eq!([0, 64, 65, 4096, 1 << 30].map(found), ["tree", "tree", "ring", "ring", "ring"].map(Some));
        assert!(preferred.find(Collective::Reduce, 8).is_none());
    }

    #[test]
    fn algorithms_that_not_every_call_supports_are_not_preferred() {
        let mut preferred = Preferred::default();
        let mut reported = |collective, p, name: &str| {
            preferred.set(collective, &Group::new(0, p), &[(8, name.to_string())]).map_err(|error| error.to_string())
        };
        assert!(reported(Collective::Alltoall, 4, "bruck").unwrap_err().contains("expected one of direct, pairwise"));
        assert!(reported(Collective::Allgather, 5, "neighbour-exchange").is_err());
        assert_eq!(reported(Collective::Allgather, 6, "neighbour-exchange"), Ok(()));
        let descending = [(9, "ring".to_string()), (8, "ring".to_string())];
        assert!(preferred.set(Collective::Allreduce, &Group::new(0, 4), &descending).is_err());
    }

    #[test]
    fn algorithms_with_equal_plans_form_one_group() {
        let of_two = distinct(Collective::Broadcast, &Group::new(0, 2), 1 << 20);
        assert!(of_two[0].starts_with(&["flat", "binomial"]), "{of_two:?}");
        let of_many = distinct(Collective::Broadcast, &Group::new(0, 16), 1 << 20);
        let groups = ["flat", "binomial", "chain"].map(|name| of_many.iter().position(|names| names.contains(&name)));
        assert!(groups[0] != groups[1] && groups[1] != groups[2] && !groups.contains(&None), "{of_many:?}");
    }
}
