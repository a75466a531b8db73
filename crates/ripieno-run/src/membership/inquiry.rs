//! Who called what in one collective: found by asking, told as one sentence.

use crate::call::{CollectiveId, DescribedCall, Header};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is known of one collective.
#[derive(Debug, Default)]
pub(super) struct Inquiry {
    /// What ranks said they called.
    pub calls: BTreeMap<usize, DescribedCall>,
    /// When ranks were asked last.
    pub asked: BTreeMap<usize, Duration>,
    /// Who said, at the latest when, that it has not come so far.
    pub absent: BTreeMap<usize, Duration>,
    /// When somebody asked last.
    pub touched: Duration,
    /// Once calls differ: when to tell, even if ranks have not answered.
    pub due: Option<Duration>,
}

impl Inquiry {
    /// Notes what `rank` called.
    pub fn learn(&mut self, rank: usize, told: DescribedCall) {
        if told.is_whole() || !self.calls.contains_key(&rank) {
            self.calls.insert(rank, told);
        }
        self.absent.remove(&rank);
        self.asked.remove(&rank);
    }

    /// Whether two ranks called different things.
    pub fn differs(&self) -> bool {
        let mut calls = self.calls.values().map(|told| told.header.call);
        calls.next().is_some_and(|first| calls.any(|other| other != first))
    }
}

/// `collective 7: rank 0 called allreduce(float32 × 10, sum, ring); rank 1 called barrier`: every rank known and its
/// call, ranks with equal calls together.
pub fn describe(id: CollectiveId, calls: &BTreeMap<usize, DescribedCall>) -> String {
    let mut groups: Vec<(&DescribedCall, Vec<usize>)> = Vec::new();
    for (&rank, told) in calls {
        match groups.iter_mut().find(|(known, _)| known.header.call == told.header.call) {
            Some((known, ranks)) => {
                ranks.push(rank);
                *known = if known.is_whole() { known } else { told };
            }
            None => groups.push((told, vec![rank])),
        }
    }
    let parts: Vec<String> =
        groups.iter().map(|(told, ranks)| format!("{} called {}", name_ranks(ranks), told.call())).collect();
    format!("{id}: {}", parts.join("; "))
}

/// Who called what, of two ranks that met on a link with different headers.
pub fn describe_pair(pair: [(usize, DescribedCall); 2]) -> String {
    let [(rank, mine), (peer, theirs)] = &pair;
    match is_one_collective(&mine.header, &theirs.header) {
        true => describe(mine.header.collective_id(), &BTreeMap::from(pair)),
        false => format!("rank {rank} called {mine}; rank {peer} called {theirs}"),
    }
}

/// Whether the two are what ranks called in one collective in which all take part.
pub fn is_one_collective(one: &Header, other: &Header) -> bool {
    one.collective_id() == other.collective_id() && one.call.concerns_all() && other.call.concerns_all()
}

/// `rank 3`, or `ranks 0-2, 5`.
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
        Call { kind, element: Element::F32, form: 0 }
    }

    pub fn barrier(sequence: u64) -> Header {
        Header { communicator: 0, sequence, call: call(Collective::Barrier, 0) }
    }

    pub fn message_to(to: u32, sequence: u64) -> Header {
        let kind = CallKind::Message { algorithm: 0, to, element_count: 0 };
        Header { communicator: 0, sequence, call: Call { kind, element: Element::F32, form: 0 } }
    }

    pub fn allreduce(sequence: u64) -> Header {
        Header { communicator: 0, sequence, call: call(Collective::Allreduce, 10) }
    }

    #[test]
    fn a_mismatch_names_every_rank_and_its_call() {
        let calls = [0, 1, 2, 4].map(|rank| (rank, DescribedCall::untold(allreduce(7)))).into_iter();
        let calls: BTreeMap<usize, DescribedCall> = calls.chain([(3, DescribedCall::untold(barrier(7)))]).collect();
        let id = barrier(7).collective_id();
        let (allreduce, barrier) = (allreduce(7).call, barrier(7).call);
        let expected = format!("collective 7: ranks 0-2, 4 called {allreduce}; rank 3 called {barrier}");
        assert_eq!(describe(id, &calls), expected);
    }
}
