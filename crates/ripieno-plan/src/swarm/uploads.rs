//! Upload queue of a member: one block per stripe and peer at a time, with a limit on concurrent uploads.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Limit of queued requests at a member. It refuses further requests.
pub(super) const REQUEST_COUNT_MAX: usize = 4096;

/// A queued request for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UploadRequest {
    pub(super) to: usize,
    pub(super) block: usize,
    pub(super) from_bytes: usize,
}

/// Running and queued uploads of a member.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    /// Running uploads: peer and block.
    active: BTreeSet<(usize, usize)>,
    stripe_count: usize,
    waiting: Vec<UploadRequest>,
    /// Blocks that were sent to any peer.
    sent_blocks: BTreeSet<usize>,
}

impl Uploads {
    /// Queue a request. Return false if the queue is full.
    pub(super) fn push(&mut self, request: UploadRequest) -> bool {
        let is_accepted = self.waiting.len() < REQUEST_COUNT_MAX;
        if is_accepted {
            self.waiting.push(request);
        }
        is_accepted
    }

    /// Set the number of stripes among which the blocks are distributed.
    pub(super) fn set_stripes(&mut self, stripe_count: usize) {
        self.stripe_count = stripe_count;
    }

    /// Whether a block of the same stripe is being sent to the same peer.
    fn is_busy(&self, request: &UploadRequest) -> bool {
        let stripe = |block: usize| block % self.stripe_count.max(1);
        self.active
            .range((request.to, 0)..=(request.to, usize::MAX))
            .any(|&(_, active)| stripe(active) == stripe(request.block))
    }

    /// Start the next upload if fewer than `limit` are running.
    ///
    /// `priority` maps the requester, and whether the block was sent to any peer before, to a priority. The request
    /// with the lowest priority value is next, and among equals the oldest.
    pub(super) fn next<T: Ord>(&mut self, limit: usize, priority: impl Fn(usize, bool) -> T) -> Option<UploadRequest> {
        if self.active.len() >= limit {
            return None;
        }
        let idle = self.waiting.iter().enumerate().filter(|(_, request)| !self.is_busy(request));
        let (index, _) = idle
            .min_by_key(|(index, request)| (priority(request.to, self.sent_blocks.contains(&request.block)), *index))?;
        let request = self.waiting.remove(index);
        self.active.insert((request.to, request.block));
        self.sent_blocks.insert(request.block);
        Some(request)
    }

    /// Record that a block was sent.
    pub(super) fn sent(&mut self, to: usize, block: usize) {
        self.active.remove(&(to, block));
    }

    /// Remove all queued requests for a block and return their senders.
    pub(super) fn remove_requests(&mut self, block: usize) -> Vec<usize> {
        let waiting = self.waiting.iter().filter(|request| request.block == block).map(|request| request.to).collect();
        self.waiting.retain(|request| request.block != block);
        waiting
    }

    /// Remove a request and return whether its upload was running.
    pub(super) fn cancel(&mut self, to: usize, block: usize) -> bool {
        self.waiting.retain(|request| (request.to, request.block) != (to, block));
        self.active.remove(&(to, block))
    }

    /// Remove a peer and return the blocks that were being sent to it.
    pub(super) fn forget(&mut self, to: usize) -> Vec<usize> {
        self.waiting.retain(|request| request.to != to);
        let blocks = self.active.range((to, 0)..=(to, usize::MAX)).map(|&(_, block)| block).collect();
        self.active.retain(|&(peer, _)| peer != to);
        blocks
    }
}
