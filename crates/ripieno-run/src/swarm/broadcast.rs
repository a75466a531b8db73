//! One broadcast on a rank: its swarm node, the bytes received so far, and the block digests.

use super::frame::{Digest, digest};
use super::meter::Meter;
use super::{MemoryLocation, Store};
use ripieno_plan::swarm::{BlockManifest, BlockSet, SwarmEvent, SwarmNode, SwarmTiming};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// State of a value and its memory.
pub(super) enum ValueState<M> {
    /// The size of the value is not known yet.
    Unknown,
    Receiving(M),
    /// On the root, which still writes the value. Only the blocks with digests are complete.
    Filling(Arc<M>),
    Complete(Arc<M>),
}

/// State of a rank that waits for the leader of its host.
#[derive(Clone, Copy, Debug)]
pub(super) enum HostSharing {
    Requested { since: Duration },
    Confirmed { since: Duration },
}

pub(super) struct BroadcastRun<M> {
    pub(super) root: usize,
    /// The rank that fetches for this host, unless this rank does.
    pub(super) leader: Option<usize>,
    pub(super) sharing: Option<HostSharing>,
    /// Ranks of this host that wait for this rank.
    pub(super) sharers: BTreeSet<usize>,
    /// Ranks of this host that have mapped the value, each with the location last sent to it.
    pub(super) mappers: BTreeMap<usize, MemoryLocation>,
    pub(super) has_failed: bool,
    /// `None` until this rank requests the value or other ranks need this rank for it.
    pub(super) node: Option<SwarmNode>,
    pub(super) state: ValueState<M>,
    /// Digests of the first blocks, as far as they are known.
    pub(super) digests: Vec<Digest>,
    /// Blocks that arrived completely before their digests, each with its sender.
    unchecked: BTreeMap<usize, usize>,
    /// On the root, while it computes digests: ranks that received the first digests.
    pub(super) informed: BTreeSet<usize>,
    /// Blocks that were present from the start.
    pub(super) found: BlockSet,
    pub(super) meter: Arc<Meter>,
    /// Number of bytes received of each incomplete block.
    partial: BTreeMap<usize, usize>,
    /// On the root: ranks that may still request the value.
    pub(super) open: BTreeSet<usize>,
    /// Whether the local application still holds the value.
    pub(super) is_retained: bool,
    /// Whether no other rank is known to need this rank for the value.
    pub(super) is_over: bool,
    /// Lost peers that were reported to the node.
    pub(super) notified: BTreeSet<usize>,
}

impl<M: Store> BroadcastRun<M> {
    /// Return a broadcast to be received from `root`, or shared by `leader` if set.
    pub(super) fn awaited(root: usize, leader: Option<usize>) -> BroadcastRun<M> {
        BroadcastRun {
            root,
            leader,
            sharing: None,
            sharers: BTreeSet::new(),
            mappers: BTreeMap::new(),
            has_failed: false,
            node: None,
            state: ValueState::Unknown,
            digests: Vec::new(),
            unchecked: BTreeMap::new(),
            informed: BTreeSet::new(),
            found: BlockSet::none(0),
            meter: Arc::default(),
            partial: BTreeMap::new(),
            open: BTreeSet::new(),
            is_retained: true,
            is_over: true,
            notified: BTreeSet::new(),
        }
    }

    /// Return a broadcast from `root` into memory that already contains the blocks in `found`.
    pub(super) fn into_memory(root: usize, memory: M, digests: Vec<Digest>, found: BlockSet) -> BroadcastRun<M> {
        BroadcastRun { state: ValueState::Receiving(memory), digests, found, ..BroadcastRun::awaited(root, None) }
    }

    /// Return a broadcast on its root. The blocks with digests are complete.
    pub(super) fn on_root(node: SwarmNode, value: Arc<M>, digests: Vec<Digest>) -> BroadcastRun<M> {
        let root = node.rank();
        let state = ValueState::Filling(value);
        let mut broadcast =
            BroadcastRun { node: Some(node), state, digests, is_over: false, ..BroadcastRun::awaited(root, None) };
        broadcast.update_filled();
        broadcast
    }

    /// Add digests on the root. Return whether the value is complete.
    pub(super) fn fill(&mut self, digests: &[Digest]) -> bool {
        self.digests.extend(digests);
        self.update_filled();
        matches!(self.state, ValueState::Complete(_))
    }

    fn update_filled(&mut self) {
        let is_filled = self.manifest().is_some_and(|manifest| manifest.block_count() == self.digests.len());
        if let (true, ValueState::Filling(value)) = (is_filled, &self.state) {
            self.state = ValueState::Complete(value.clone());
        }
    }

    /// Add digests from `first_block` on. Return the events for the node.
    pub(super) fn add_digests(&mut self, first_block: usize, digests: &[Digest]) -> Vec<SwarmEvent> {
        let known = self.digests.len().saturating_sub(first_block);
        if first_block > self.digests.len() || known >= digests.len() {
            return Vec::new();
        }
        self.digests.extend(&digests[known..]);
        let later = self.unchecked.split_off(&self.digests.len());
        let now = std::mem::replace(&mut self.unchecked, later);
        now.into_iter().map(|(block, from)| self.check(block, from)).collect()
    }

    /// Verify a complete block against the digest of the root, unless the root has disabled verification.
    fn check(&mut self, block: usize, from: usize) -> SwarmEvent {
        self.partial.remove(&block);
        let is_verified = self.manifest().is_none_or(|manifest| manifest.is_verified);
        let is_valid = !is_verified || self.digests[block] == digest(self.block(block));
        SwarmEvent::Checked { block, from, is_valid }
    }

    /// Return whether the transfer has not started yet.
    pub(super) fn is_awaited(&self) -> bool {
        self.node.is_none() && !matches!(self.state, ValueState::Complete(_))
    }

    /// Return the time at which the request to the leader times out.
    pub(super) fn sharing_wake(&self, timing: &SwarmTiming) -> Option<Duration> {
        self.sharing.map(|sharing| match sharing {
            HostSharing::Requested { since } => since + timing.answer_timeout,
            HostSharing::Confirmed { since } => since + timing.stall_timeout,
        })
    }

    /// Let `meter` record the progress of the value.
    pub(super) fn watch(&mut self, meter: Arc<Meter>) {
        self.meter = meter;
        if let Some(manifest) = self.manifest() {
            self.meter.note_value(manifest.bytes);
        }
    }

    fn manifest(&self) -> Option<&BlockManifest> {
        self.node.as_ref()?.manifest()
    }

    fn range(&self, block: usize) -> Range<usize> {
        let manifest = self.manifest().expect("the owner of a block knows its value");
        let start = block * manifest.block_bytes;
        start..start + manifest.block_length(block)
    }

    /// Return the memory of a block, including bytes that have not arrived.
    pub(super) fn block(&self, block: usize) -> &[u8] {
        let range = self.range(block);
        match &self.state {
            ValueState::Unknown => &[],
            ValueState::Receiving(memory) => &memory[range],
            ValueState::Filling(value) | ValueState::Complete(value) => &value[range],
        }
    }

    /// Return the length of a block in bytes.
    pub(super) fn block_length(&self, block: usize) -> usize {
        match &self.state {
            ValueState::Unknown => 0,
            _ => self.range(block).len(),
        }
    }

    /// Return the number of bytes of a block that are present.
    pub(super) fn available_bytes(&self, block: usize) -> usize {
        match &self.node {
            _ if matches!(self.state, ValueState::Filling(_)) && block >= self.digests.len() => 0,
            Some(node) if node.have().has(block) => self.range(block).len(),
            _ => self.partial.get(&block).copied().unwrap_or(0),
        }
    }

    /// Allocate memory once the size is known.
    pub(super) fn prepare(&mut self, make: &dyn Fn(usize) -> io::Result<M>) -> io::Result<()> {
        if let (ValueState::Unknown, Some(manifest)) = (&self.state, self.manifest()) {
            self.state = ValueState::Receiving(make(manifest.bytes)?);
        }
        Ok(())
    }

    /// Finish the value: its memory is read-only from now on.
    pub(super) fn finish(&mut self) -> Option<Arc<M>> {
        self.state = match std::mem::replace(&mut self.state, ValueState::Unknown) {
            ValueState::Receiving(memory) => ValueState::Complete(Arc::new(memory)),
            other => other,
        };
        match &self.state {
            ValueState::Complete(value) => Some(value.clone()),
            _ => None,
        }
    }

    /// Return the destination of `length_bytes` of a block, if this rank fetches the block from `peer`.
    pub(super) fn destination(
        &mut self,
        peer: usize,
        block: usize,
        at: usize,
        length_bytes: usize,
    ) -> Option<&mut [u8]> {
        let node = self.node.as_ref()?;
        // A peer may send before the manifest is known, or send a block that does not exist.
        if block >= node.manifest()?.block_count() {
            return None;
        }
        let is_wanted = node.source_of(block) == Some(peer) && at <= self.available_bytes(block);
        if !is_wanted || self.range(block).len() < at.checked_add(length_bytes)? {
            return None;
        }
        let start = self.range(block).start + at;
        match &mut self.state {
            ValueState::Receiving(memory) => Some(&mut memory[start..start + length_bytes]),
            _ => None,
        }
    }

    /// Record that a block has arrived up to `until_bytes`. Return the events for the node.
    pub(super) fn arrived(&mut self, now: Duration, peer: usize, block: usize, until_bytes: usize) -> Vec<SwarmEvent> {
        if until_bytes <= self.available_bytes(block) {
            return Vec::new();
        }
        self.meter.note_received(now, peer, block, until_bytes - self.available_bytes(block));
        self.partial.insert(block, until_bytes);
        let mut events = vec![SwarmEvent::Arrived { block, until_bytes }];
        if until_bytes == self.range(block).len() {
            if block < self.digests.len() {
                events.push(self.check(block, peer));
            } else {
                self.unchecked.insert(block, peer);
            }
        }
        events
    }
}
