//! What a member sends: of each stripe one block at a time to a peer, so many at once, the others in turn.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Requests that wait at a member; more are refused.
pub(super) const REQUESTS_MAX: usize = 4096;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UploadRequest {
    pub(super) to: usize,
    pub(super) block: usize,
    pub(super) from_bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct Uploads {
    /// Peers and blocks.
    active: BTreeSet<(usize, usize)>,
    stripe_count: usize,
    waiting: Vec<UploadRequest>,
    /// Blocks that were given to anybody.
    given: BTreeSet<usize>,
}

impl Uploads {
    /// Takes a request, unless there are too many.
    pub(super) fn push(&mut self, request: UploadRequest) -> bool {
        let has_room = self.waiting.len() < REQUESTS_MAX;
        if has_room {
            self.waiting.push(request);
        }
        has_room
    }

    /// To how many stripes blocks are dealt.
    pub(super) fn set_stripes(&mut self, stripe_count: usize) {
        self.stripe_count = stripe_count;
    }

    /// Whether a block of the same stripe is on its way to the same peer.
    fn is_busy(&self, request: &UploadRequest) -> bool {
        let stripe = |block: usize| block % self.stripe_count.max(1);
        self.active.range((request.to, 0)..=(request.to, usize::MAX)).any(|it| stripe(it.1) == stripe(request.block))
    }

    /// What to send next, if fewer than `limit` are under way: of what waits, that of which the `turn` is lowest, by
    /// who asks and whether the block was given to anybody before; then what came first.
    pub(super) fn next<T: Ord>(&mut self, limit: usize, turn: impl Fn(usize, bool) -> T) -> Option<UploadRequest> {
        if self.active.len() >= limit {
            return None;
        }
        let idle = self.waiting.iter().enumerate().filter(|(_, request)| !self.is_busy(request));
        let (index, _) =
            idle.min_by_key(|(index, request)| (turn(request.to, self.given.contains(&request.block)), *index))?;
        let request = self.waiting.remove(index);
        self.active.insert((request.to, request.block));
        self.given.insert(request.block);
        Some(request)
    }

    /// A block has gone out.
    pub(super) fn sent(&mut self, to: usize, block: usize) {
        self.active.remove(&(to, block));
    }

    /// Takes back what waits for a block; who does.
    pub(super) fn pass_on(&mut self, block: usize) -> Vec<usize> {
        let waiting = self.waiting.iter().filter(|request| request.block == block).map(|request| request.to).collect();
        self.waiting.retain(|request| request.block != block);
        waiting
    }

    /// Forgets a request; whether it was under way.
    pub(super) fn cancel(&mut self, to: usize, block: usize) -> bool {
        self.waiting.retain(|request| (request.to, request.block) != (to, block));
        self.active.remove(&(to, block))
    }

    /// Forgets a peer; the blocks that were under way to it.
    pub(super) fn forget(&mut self, to: usize) -> Vec<usize> {
        self.waiting.retain(|request| request.to != to);
        let blocks = self.active.range((to, 0)..=(to, usize::MAX)).map(|it| it.1).collect();
        self.active.retain(|it| it.0 != to);
        blocks
    }
}
