//! Streamed stripes: each stripe has one source, which forwards the blocks in order as they arrive.

use super::{SwarmMember, send};
use crate::swarm::{Action, BlockManifest, SwarmMessage};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// Number of blocks of a stripe requested ahead, so that the source always has a block to send.
const WINDOW_BLOCK_COUNT: usize = 4;

/// The streams of this member, one per stripe.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Source of each stripe.
    sources: Vec<Option<usize>>,
    /// Next block to request per stripe. All earlier blocks of the stripe have arrived or are requested.
    next: Vec<usize>,
}

impl Streams {
    pub(super) fn begin(&mut self, sources: Vec<usize>) {
        self.next = (0..sources.len()).collect();
        self.sources = sources.into_iter().map(Some).collect();
    }

    /// Request a block again.
    pub(super) fn request_again(&mut self, block: usize) {
        let stripe_count = self.next.len().max(1);
        if let Some(next) = self.next.get_mut(block % stripe_count) {
            *next = block.min(*next);
        }
    }
}

impl SwarmMember {
    pub(super) fn fetch_stream_blocks(&mut self, now: Duration, manifest: &BlockManifest, out: &mut Vec<Action>) {
        let stripe_count = self.streams.sources.len();
        if stripe_count == 0 {
            // The tracker has not assigned the sources yet, but a message from it has already started a fetch.
            return;
        }
        let mut requested = vec![0; stripe_count];
        self.fetches.keys().for_each(|&block| requested[block % stripe_count] += 1);
        for (stripe, requested) in requested.into_iter().enumerate() {
            let Some(source) = self.streams.sources[stripe] else { continue };
            let mut free_count = WINDOW_BLOCK_COUNT - requested.min(WINDOW_BLOCK_COUNT);
            while free_count > 0 && self.streams.next[stripe] < manifest.block_count() {
                let block = self.streams.next[stripe];
                self.streams.next[stripe] += stripe_count;
                if !self.have.has(block) && !self.fetches.contains_key(&block) {
                    self.fetch(now, block, source, out);
                    free_count -= 1;
                }
            }
        }
    }

    /// Set the source of a stripe. Requests to the previous source move to the new source.
    pub(super) fn set_source(&mut self, now: Duration, stripe: usize, source: usize, out: &mut Vec<Action>) {
        let stripe_count = self.streams.sources.len();
        if stripe >= stripe_count || self.streams.sources[stripe] == Some(source) {
            return;
        }
        if self.lost.contains(&source) {
            send(out, self.tracker, SwarmMessage::Ask { part: stripe, failed_source: source });
            return;
        }
        self.streams.sources[stripe] = Some(source);
        let blocks: Vec<usize> = self.fetches.keys().copied().filter(|block| block % stripe_count == stripe).collect();
        for block in blocks {
            let old = self.fetches.remove(&block).expect("the block is being fetched").source;
            send(out, old, SwarmMessage::Cancel { block });
            self.streams.request_again(block);
        }
        self.start_fetches(now, out);
    }

    /// Drop `source` from all stripes and ask the tracker for other sources.
    pub(super) fn drop_streams(&mut self, source: usize, out: &mut Vec<Action>) {
        for stripe in 0..self.streams.sources.len() {
            if self.streams.sources[stripe] == Some(source) {
                self.streams.sources[stripe] = None;
                self.streams.next[stripe] = stripe;
                send(out, self.tracker, SwarmMessage::Ask { part: stripe, failed_source: source });
            }
        }
    }
}
