//! Call history: the latest collectives of a rank, to answer queries of other ranks while it computes or waits.

use super::message::truncate_end;
use crate::call::{CollectiveId, DescribedCall, Header};
use std::collections::{BTreeMap, VecDeque};

/// Number of recorded collectives.
pub const CALL_COUNT_MAX: usize = 64;
/// Number of communicators with a record of their last collective.
const COMMUNICATOR_COUNT_MAX: usize = 1024;
/// Number of recorded signature descriptions.
pub const SIGNATURE_COUNT_MAX: usize = 256;
/// Maximum length of a signature description in bytes.
const SIGNATURE_BYTES_MAX: usize = 1024;

/// A ring of the last [`CALL_COUNT_MAX`] headers, the last header of every communicator, and descriptions of their
/// signatures.
#[derive(Clone, Debug)]
pub struct CallHistory {
    ring: [Option<Header>; CALL_COUNT_MAX],
    /// Index of the latest header.
    latest: usize,
    /// The last header of every communicator except the latest one's.
    last_calls: BTreeMap<u32, Header>,
    has_evicted: bool,
    signatures: Signatures,
}

/// Descriptions of signatures. The oldest are evicted.
#[derive(Clone, Debug, Default)]
struct Signatures {
    text: BTreeMap<u32, String>,
    order: VecDeque<u32>,
}

/// The last collective of every communicator that a leaving rank took part in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastCalls {
    /// The headers, latest first.
    pub headers: Vec<Header>,
    /// Whether some communicators were evicted.
    pub has_evicted: bool,
    /// Description of the latest header's signature.
    pub signature: String,
}

impl Default for CallHistory {
    fn default() -> Self {
        CallHistory {
            ring: [None; CALL_COUNT_MAX],
            latest: 0,
            last_calls: BTreeMap::new(),
            has_evicted: false,
            signatures: Signatures::default(),
        }
    }
}

impl CallHistory {
    /// Record that the rank enters a collective.
    #[inline]
    pub fn enter(&mut self, header: Header) {
        if let Some(previous) = self.last()
            && previous.communicator != header.communicator
        {
            self.archive(previous);
        }
        self.latest = slot(header.collective_id());
        self.ring[self.latest] = Some(header);
    }

    /// Record the description of a signature before the call that uses it. It is available until
    /// [`SIGNATURE_COUNT_MAX`] other signatures have been recorded.
    pub fn note_signature(&mut self, signature: u32, text: &dyn Fn() -> String) {
        if self.signatures.text.contains_key(&signature) {
            self.signatures.order.retain(|known| *known != signature);
            self.signatures.order.push_back(signature);
            return;
        }
        if self.signatures.order.len() == SIGNATURE_COUNT_MAX
            && let Some(oldest) = self.signatures.order.pop_front()
        {
            self.signatures.text.remove(&oldest);
        }
        self.signatures.order.push_back(signature);
        self.signatures.text.insert(signature, truncate_end(text(), SIGNATURE_BYTES_MAX));
    }

    /// Return the description of a signature, or an empty string if it is unknown or 0.
    pub fn signature(&self, signature: u32) -> String {
        self.signatures.text.get(&signature).cloned().unwrap_or_default()
    }

    /// Return a call of this rank with the description of its signature.
    pub fn describe(&self, header: Header) -> DescribedCall {
        DescribedCall { header, signature: self.signature(header.call.signature) }
    }

    /// Return the rank's call at `id`, or `None` if the rank has not reached it or the entry was evicted.
    pub fn at(&self, id: CollectiveId) -> Option<Header> {
        self.ring[slot(id)].filter(|header| header.collective_id() == id)
    }

    /// Return the latest collective of one communicator.
    pub fn last_of(&self, communicator: u32) -> Option<Header> {
        let latest = self.last().filter(|latest| latest.communicator == communicator);
        latest.or_else(|| self.last_calls.get(&communicator).copied())
    }

    /// Return the latest collective.
    pub fn last(&self) -> Option<Header> {
        self.ring[self.latest]
    }

    /// Return the last collective of every communicator.
    pub fn last_calls(&self) -> LastCalls {
        let latest = self.last();
        let others = self.last_calls.values().filter(|last| latest.is_none_or(|l| l.communicator != last.communicator));
        LastCalls {
            headers: latest.iter().chain(others).copied().collect(),
            has_evicted: self.has_evicted,
            signature: latest.map(|latest| self.signature(latest.call.signature)).unwrap_or_default(),
        }
    }

    fn archive(&mut self, last: Header) {
        self.last_calls.insert(last.communicator, last);
        if self.last_calls.len() > COMMUNICATOR_COUNT_MAX {
            // Never evict the communicator of all ranks, which lives longest.
            let forgotten = self.last_calls.range(1..).next().map(|(&communicator, _)| communicator);
            if let Some(communicator) = forgotten {
                self.last_calls.remove(&communicator);
            }
            self.has_evicted = true;
        }
    }
}

impl LastCalls {
    /// Return whether the rank left without entering `id`, as far as the history shows.
    pub fn left_before(&self, id: CollectiveId) -> bool {
        match self.headers.iter().find(|last| last.communicator == id.communicator) {
            Some(last) => last.sequence < id.sequence,
            None => !self.has_evicted,
        }
    }

    /// Return the rank's call at `id`, if it was the last of its communicator.
    pub fn at(&self, id: CollectiveId) -> Option<DescribedCall> {
        let at = self.headers.iter().position(|last| last.collective_id() == id)?;
        let signature = if at == 0 { self.signature.clone() } else { String::new() };
        Some(DescribedCall { header: self.headers[at], signature })
    }
}

fn slot(id: CollectiveId) -> usize {
    // Alternating communicators with equal sequence numbers use different slots.
    let at = id.sequence.wrapping_add(u64::from(id.communicator) * (CALL_COUNT_MAX as u64 / 2 - 1));
    (at % CALL_COUNT_MAX as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::inquiry::tests::barrier;

    #[test]
    fn the_last_64_collectives_are_recorded() {
        let mut history = CallHistory::default();
        assert_eq!(history.last(), None);

        (0..100).for_each(|sequence| history.enter(barrier(sequence)));

        assert_eq!(history.at(world(35)), None);
        assert_eq!(history.at(world(36)), Some(barrier(36)));
        assert_eq!(history.at(world(99)), Some(barrier(99)));
        assert_eq!(history.at(world(100)), None);
        assert_eq!(history.last(), Some(barrier(99)));
    }

    fn world(sequence: u64) -> CollectiveId {
        CollectiveId { communicator: 0, sequence }
    }

    fn of(communicator: u32, sequence: u64) -> Header {
        Header { communicator, ..barrier(sequence) }
    }

    #[test]
    fn every_communicator_has_a_last_collective() {
        let mut history = CallHistory::default();
        [of(0, 5), of(3, 0), of(3, 1), of(0, 6), of(9, 0)].into_iter().for_each(|header| history.enter(header));

        assert_eq!([0, 3, 9, 4].map(|c| history.last_of(c)), [Some(of(0, 6)), Some(of(3, 1)), Some(of(9, 0)), None]);
        let last_calls = history.last_calls();
        assert_eq!(last_calls.headers[0], of(9, 0));
        let has_left = [of(0, 6), of(0, 7), of(3, 1), of(3, 2), of(4, 0)]
            .map(|header| last_calls.left_before(header.collective_id()));
        assert_eq!(has_left, [false, true, false, true, true]);
    }

    #[test]
    fn the_latest_256_signature_descriptions_are_recorded() {
        let mut history = CallHistory::default();
        (1..=300).for_each(|signature| history.note_signature(signature, &|| format!("shape ({signature},)")));
        history.note_signature(45, &|| unreachable!("it is known"));
        assert_eq!(
            (history.signature(44), history.signature(45), history.signature(0)),
            ("".into(), "shape (45,)".into(), "".into())
        );
        history.note_signature(301, &|| "this evicts the oldest".into());
        assert_eq!((history.signature(45), history.signature(46)), ("shape (45,)".into(), "".into()));
        history.note_signature(7, &|| "ä".repeat(SIGNATURE_BYTES_MAX));
        assert!(history.signature(7).len() <= SIGNATURE_BYTES_MAX + '…'.len_utf8());
    }

    #[test]
    fn an_evicted_call_does_not_count_as_absent() {
        let mut history = CallHistory::default();
        history.enter(of(0, 4));
        (1..=COMMUNICATOR_COUNT_MAX as u32 + 2).for_each(|communicator| history.enter(of(communicator, 0)));
        assert!(!history.last_calls().left_before(of(1, 0).collective_id()), "the first communicator is evicted");
        assert!(history.last_calls().left_before(of(9, 1).collective_id()));
        assert!(
            history.last_calls().left_before(of(0, 5).collective_id()),
            "the communicator of all ranks is not evicted"
        );
    }
}
