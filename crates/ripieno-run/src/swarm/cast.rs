//! One value on its way: its node, its bytes as far as they are here, and the digests of its blocks.

use super::frame::{Digest, digest};
use super::meter::Meter;
use super::{MemoryPlace, Store};
use ripieno_plan::swarm::{Have, Manifest, SwarmEvent, SwarmNode, SwarmTiming};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The bytes of a value.
pub(super) enum Holding<M> {
    /// What is to come is not known yet.
    Awaited,
    Coming(M),
    /// At the root, which has still to write the rest: the blocks of which digests are known are there.
    Filling(Arc<M>),
    Here(Arc<M>),
}

/// Where a rank stands that waits for the one that fetches for its host.
#[derive(Clone, Copy, Debug)]
pub(super) enum HostSharing {
    Asked { since: Duration },
    Told { since: Duration },
}

pub(super) struct BroadcastRun<M> {
    pub(super) root: usize,
    /// Who fetches for this host, if that is not this rank.
    pub(super) leader: Option<usize>,
    pub(super) sharing: Option<HostSharing>,
    /// Ranks of this host that wait for this one.
    pub(super) sharers: BTreeSet<usize>,
    /// Ranks of this host that have mapped it, and where it lay when they were told.
    pub(super) mappers: BTreeMap<usize, MemoryPlace>,
    pub(super) has_failed: bool,
    /// None until this rank wants the value, or others need this rank for it.
    pub(super) node: Option<SwarmNode>,
    pub(super) holding: Holding<M>,
    /// As far as they are known: those of the first blocks.
    pub(super) digests: Vec<Digest>,
    /// Blocks that came whole before their digests, and from whom.
    unchecked: BTreeMap<usize, usize>,
    /// At the root, while it makes digests: who has been told the first of them.
    pub(super) informed: BTreeSet<usize>,
    /// Blocks that lay here before.
    pub(super) found: Have,
    pub(super) meter: Arc<Meter>,
    /// What is here of blocks that are not whole.
    partial: BTreeMap<usize, usize>,
    /// At the root: ranks that may still ask for it.
    pub(super) open: BTreeSet<usize>,
    /// Whether its user has still a hand on it.
    pub(super) is_kept: bool,
    /// Whether nobody needs this rank for it any more, as far as is known.
    pub(super) is_over: bool,
    /// Peers whose loss the node knows of.
    pub(super) told: BTreeSet<usize>,
}

impl<M: Store> BroadcastRun<M> {
    /// A value that comes from `root`, by way of `leader`.
    pub(super) fn awaited(root: usize, leader: Option<usize>) -> BroadcastRun<M> {
        BroadcastRun {
            root,
            leader,
            sharing: None,
            sharers: BTreeSet::new(),
            mappers: BTreeMap::new(),
            has_failed: false,
            node: None,
            holding: Holding::Awaited,
            digests: Vec::new(),
            unchecked: BTreeMap::new(),
            informed: BTreeSet::new(),
            found: Have::none(0),
            meter: Arc::default(),
            partial: BTreeMap::new(),
            open: BTreeSet::new(),
            is_kept: true,
            is_over: true,
            told: BTreeSet::new(),
        }
    }

    /// A value that comes from `root` into memory that has some of its blocks.
    pub(super) fn begun(root: usize, memory: M, digests: Vec<Digest>, found: Have) -> BroadcastRun<M> {
        BroadcastRun { holding: Holding::Coming(memory), digests, found, ..BroadcastRun::awaited(root, None) }
    }

    /// A value that is here, at its root, as far as there are digests.
    pub(super) fn given(node: SwarmNode, value: Arc<M>, digests: Vec<Digest>) -> BroadcastRun<M> {
        let root = node.rank();
        let holding = Holding::Filling(value);
        let mut cast =
            BroadcastRun { node: Some(node), holding, digests, is_over: false, ..BroadcastRun::awaited(root, None) };
        cast.note_filled();
        cast
    }

    /// At the root: more of the value is there. Whether that is all of it.
    pub(super) fn fill(&mut self, digests: &[Digest]) -> bool {
        self.digests.extend(digests);
        self.note_filled();
        matches!(self.holding, Holding::Here(_))
    }

    fn note_filled(&mut self) {
        let is_filled = self.manifest().is_some_and(|manifest| manifest.block_count() == self.digests.len());
        if let (true, Holding::Filling(value)) = (is_filled, &self.holding) {
            self.holding = Holding::Here(value.clone());
        }
    }

    /// Takes the digests of the first blocks, or of more of them; what the node is to be told.
    pub(super) fn learn(&mut self, first_block: usize, digests: &[Digest]) -> Vec<SwarmEvent> {
        let known = self.digests.len().saturating_sub(first_block);
        if first_block > self.digests.len() || known >= digests.len() {
            return Vec::new();
        }
        self.digests.extend(&digests[known..]);
        let later = self.unchecked.split_off(&self.digests.len());
        let now = std::mem::replace(&mut self.unchecked, later);
        now.into_iter().map(|(block, from)| self.check(block, from)).collect()
    }

    /// Whether a block is what the root has: once all of it has come, and its digest is known.
    fn check(&mut self, block: usize, from: usize) -> SwarmEvent {
        self.partial.remove(&block);
        SwarmEvent::Checked { block, from, is_right: self.digests[block] == digest(self.block(block)) }
    }

    /// Whether nothing was done for it yet.
    pub(super) fn is_awaited(&self) -> bool {
        self.node.is_none() && !matches!(self.holding, Holding::Here(_))
    }

    /// When something has to be done about the rank that fetches for this host.
    pub(super) fn sharing_wake(&self, timing: &SwarmTiming) -> Option<Duration> {
        self.sharing.map(|sharing| match sharing {
            HostSharing::Asked { since } => since + timing.answer,
            HostSharing::Told { since } => since + timing.stall,
        })
    }

    /// Lets `meter` show how far the value is.
    pub(super) fn watch(&mut self, meter: Arc<Meter>) {
        self.meter = meter;
        if let Some(manifest) = self.manifest() {
            self.meter.note_value(manifest.bytes);
        }
    }

    fn manifest(&self) -> Option<&Manifest> {
        self.node.as_ref()?.manifest()
    }

    fn range(&self, block: usize) -> Range<usize> {
        let manifest = self.manifest().expect("who has a block knows of what");
        let start = block * manifest.block_bytes;
        start..start + manifest.block_length(block)
    }

    /// The bytes of a block, those that are to come among them.
    pub(super) fn block(&self, block: usize) -> &[u8] {
        let range = self.range(block);
        match &self.holding {
            Holding::Awaited => &[],
            Holding::Coming(memory) => &memory[range],
            Holding::Filling(value) | Holding::Here(value) => &value[range],
        }
    }

    /// How long a block is.
    pub(super) fn block_length(&self, block: usize) -> usize {
        match &self.holding {
            Holding::Awaited => 0,
            _ => self.range(block).len(),
        }
    }

    /// How much of a block is here.
    pub(super) fn here_bytes(&self, block: usize) -> usize {
        match &self.node {
            _ if matches!(self.holding, Holding::Filling(_)) && block >= self.digests.len() => 0,
            Some(node) if node.have().has(block) => self.range(block).len(),
            _ => self.partial.get(&block).copied().unwrap_or(0),
        }
    }

    /// Takes memory, once it is known for what.
    pub(super) fn prepare(&mut self, make: &dyn Fn(usize) -> io::Result<M>) -> io::Result<()> {
        if let (Holding::Awaited, Some(manifest)) = (&self.holding, self.manifest()) {
            self.holding = Holding::Coming(make(manifest.bytes)?);
        }
        Ok(())
    }

    /// The value is whole: it is not written any more.
    pub(super) fn finish(&mut self) -> Option<Arc<M>> {
        self.holding = match std::mem::replace(&mut self.holding, Holding::Awaited) {
            Holding::Coming(memory) => Holding::Here(Arc::new(memory)),
            other => other,
        };
        match &self.holding {
            Holding::Here(value) => Some(value.clone()),
            _ => None,
        }
    }

    /// Where `length_bytes` of a block belong that come from `peer`, if they are wanted from there.
    pub(super) fn room(&mut self, peer: usize, block: usize, at: usize, length_bytes: usize) -> Option<&mut [u8]> {
        let node = self.node.as_ref()?;
        // A peer may have named a source before anybody has said of what, and of a block that there is not.
        if block >= node.manifest()?.block_count() {
            return None;
        }
        let is_wanted = node.source_of(block) == Some(peer) && at <= self.here_bytes(block);
        if !is_wanted || self.range(block).len() < at.checked_add(length_bytes)? {
            return None;
        }
        let start = self.range(block).start + at;
        match &mut self.holding {
            Holding::Coming(memory) => Some(&mut memory[start..start + length_bytes]),
            _ => None,
        }
    }

    /// Bytes of a block have come, up to `until_bytes`: what the node is to be told.
    pub(super) fn arrived(&mut self, now: Duration, peer: usize, block: usize, until_bytes: usize) -> Vec<SwarmEvent> {
        if until_bytes <= self.here_bytes(block) {
            return Vec::new();
        }
        self.meter.note_came(now, peer, block, until_bytes - self.here_bytes(block));
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
