//! Inquiry into one collective: collects the calls of the ranks and formats a mismatch as one sentence.

use crate::call::{CollectiveId, DescribedCall, Header};
use std::collections::BTreeMap;
use std::time::Duration;

/// Collected answers about one collective.
#[derive(Debug, Default)]
pub(super) struct Inquiry {
    /// The call that each rank reported.
    pub calls: BTreeMap<usize, DescribedCall>,
    /// Time of the last query to each rank.
    pub queried: BTreeMap<usize, Duration>,
    /// Ranks that reported that they have not reached the collective, each with the time of its last report.
    pub absent: BTreeMap<usize, Duration>,
    /// Time of the last query about the collective.
    pub last_used: Duration,
    /// After a mismatch: time at which it is reported even if answers are missing.
    pub due: Option<Duration>,
}

impl Inquiry {
    /// Record the call of `rank`.
    pub fn record_call(&mut self, rank: usize, reported: DescribedCall) {
        if reported.is_described() || !self.calls.contains_key(&rank) {
            self.calls.insert(rank, reported);
        }
        self.absent.remove(&rank);
        self.queried.remove(&rank);
    }

    /// Return whether the recorded calls differ.
    pub fn differs(&self) -> bool {
        let mut calls = self.calls.values().map(|reported| reported.header.call);
        calls.next().is_some_and(|first| calls.any(|other| other != first))
    }
}

/// Format the recorded calls, with ranks of equal calls grouped: `collective 7: rank 0 called allreduce(float32 × 10,
/// sum, ring); rank 1 called barrier`.
pub fn describe(id: CollectiveId, calls: &BTreeMap<usize, DescribedCall>) -> String {
    let mut groups: Vec<(&DescribedCall, Vec<usize>)> = Vec::new();
    for (&rank, reported) in calls {
        match groups.iter_mut().find(|(known, _)| known.header.call == reported.header.call) {
            Some((known, ranks)) => {
                ranks.push(rank);
                *known = if known.is_described() { known } else { reported };
            }
            None => groups.push((reported, vec![rank])),
        }
    }
    let parts: Vec<String> =
        groups.iter().map(|(reported, ranks)| format!("{} called {}", name_ranks(ranks), reported.call())).collect();
    format!("{id}: {}", parts.join("; "))
}

/// Format the calls of two ranks that met on a link with different headers.
pub fn describe_pair(pair: [(usize, DescribedCall); 2]) -> String {
    let [(rank, mine), (peer, theirs)] = &pair;
    match is_same_collective(&mine.header, &theirs.header) {
        true => describe(mine.header.collective_id(), &BTreeMap::from(pair)),
        false => format!("rank {rank} called {mine}; rank {peer} called {theirs}"),
    }
}

/// Return whether both headers belong to the same collective of all ranks.
pub fn is_same_collective(one: &Header, other: &Header) -> bool {
    one.collective_id() == other.collective_id() && one.call.concerns_all() && other.call.concerns_all()
}

/// Format ranks compactly: `rank 3`, or `ranks 0-2, 5`.
pub fn name_ranks(ranks: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let names: Vec<String> = runs
        .iter()
        .map(|&(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, names.join(", "))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::call::{Call, CallKind, Element, Header};
    use ripieno_plan::Collective;
    use ripieno_plan::Op;

    pub fn call(collective: Collective, element_count: u64) -> Call {
        let op = (collective == Collective::Allreduce).then_some(Op::Sum);
        let kind = CallKind::Catalogued { collective, algorithm: 0, op, root: 0, element_count };
        Call { kind, element: Element::F32, signature: 0 }
    }

    pub fn barrier(sequence: u64) -> Header {
        Header { communicator: 0, sequence, call: call(Collective::Barrier, 0) }
    }

    pub fn message_to(to: u32, sequence: u64) -> Header {
        let kind = CallKind::Message { algorithm: 0, to, element_count: 0 };
        Header { communicator: 0, sequence, call: Call { kind, element: Element::F32, signature: 0 } }
    }

    pub fn allreduce(sequence: u64) -> Header {
        Header { communicator: 0, sequence, call: call(Collective::Allreduce, 10) }
    }

    #[test]
    fn a_mismatch_names_every_rank_and_its_call() {
        let calls = [0, 1, 2, 4].map(|rank| (rank, DescribedCall::undescribed(allreduce(7)))).into_iter();
        let calls: BTreeMap<usize, DescribedCall> =
            calls.chain([(3, DescribedCall::undescribed(barrier(7)))]).collect();
        let id = barrier(7).collective_id();
        let (allreduce, barrier) = (allreduce(7).call, barrier(7).call);
        let expected = format!("collective 7: ranks 0-2, 4 called {allreduce}; rank 3 called {barrier}");
        assert_eq!(describe(id, &calls), expected);
    }
}
