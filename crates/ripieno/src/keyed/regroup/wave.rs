//! Waves: each packs some parts of every rank, sends them to their owners, and receives the parts of other ranks.

use super::super::block::PartSize;
use super::super::parts::Parts;
use super::Regrouping;
use super::encoding::{encoded_bytes, write};
use super::sizes::RegroupSizes;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::handle::Handle;
use crate::owned_buffers::OwnedBuffers;
use crate::pool::PooledBuffer;
use ripieno_plan::regroup::{ExchangeBlocks, plan};
use ripieno_plan::{Buffer, Span};
use ripieno_run::BufferMemory;
use std::ops::Range;
use std::time::Instant;

/// A wave in flight.
pub(super) struct InFlightWave {
    number: usize,
    handle: Handle<Buffers>,
    into: ExchangeBlocks,
}

/// A completed wave.
pub(super) struct Wave {
    pub number: usize,
    buffer: PooledBuffer,
    blocks: ExchangeBlocks,
}

/// The send buffer and the receive buffer.
struct Buffers {
    out: PooledBuffer,
    into: PooledBuffer,
}

// SAFETY: pooled buffers own their bytes, and moving a buffer does not move its bytes.
unsafe impl OwnedBuffers for Buffers {
    fn buffers(&mut self) -> [BufferMemory<'_>; 2] {
        [BufferMemory::Write(self.out.bytes_mut()), BufferMemory::Write(self.into.bytes_mut())]
    }
}

/// The blocks that this rank sends and receives in each wave, and the sizes of the two buffers.
pub(super) struct WaveExchanges {
    waves: Vec<[ExchangeBlocks; 2]>,
    largest_bytes: [usize; 2],
}

impl WaveExchanges {
    pub fn new(comm: &Communicator, parts: &Parts, sizes: &RegroupSizes, eager_bytes: usize) -> WaveExchanges {
        let (rank, p) = (comm.rank(), comm.world_size());
        let bytes = |size: PartSize| encoded_bytes(parts.schema(), size).expect("sizes have been checked") as usize;
        let sent =
            |wave, to| -> usize { sizes.waves.parts(to, wave).iter().map(|&part| bytes(parts.size(part))).sum() };
        let received = |wave, from| -> usize {
            sizes.waves.parts(rank, wave).iter().map(|&part| bytes(sizes.incoming(from, part))).sum()
        };
        let blocks = |buffer, wave: usize, length: &dyn Fn(usize, usize) -> usize| {
            let lengths = (0..p).map(|peer| if peer == rank { 0 } else { length(wave, peer) });
            ExchangeBlocks::new(buffer, &lengths.collect::<Vec<_>>(), eager_bytes)
        };
        let wave = |wave| [blocks(Buffer::MAIN, wave, &sent), blocks(Buffer::OUTPUT, wave, &received)];
        let waves: Vec<[ExchangeBlocks; 2]> = (0..sizes.waves.count()).map(wave).collect();
        let largest = |side: usize| waves.iter().map(|wave| wave[side].total_bytes()).max().unwrap_or(0);
        WaveExchanges { largest_bytes: [0, 1].map(largest), waves }
    }
}

impl Regrouping<'_> {
    /// Pack this rank's blocks for the other ranks in `wave`, and start the exchange. Return `None` after the last
    /// wave.
    pub fn start(&mut self, wave: usize) -> Result<Option<InFlightWave>, Error> {
        let Some([out, into]) = self.exchanges.waves.get(wave).cloned() else { return Ok(None) };
        let started = Instant::now();
        let (rank, p) = (self.comm.rank(), self.comm.world_size());
        // All waves use buffers of the same size, which the pool can reuse.
        let [out_bytes, into_bytes] = self.exchanges.largest_bytes;
        let mut buffers = Buffers { out: self.comm.scratch(out_bytes)?, into: self.comm.scratch(into_bytes)? };
        for peer in (0..p).filter(|&peer| peer != rank) {
            self.pack(peer, wave, &mut buffers.out.bytes_mut()[range(out.span(peer))])?;
        }
        let plan = plan(&self.comm.group_of_all(), &out, &into, self.options.pulls.get());
        let handle = self.comm.start_uncatalogued(self.steps.next_call(self.comm)?, plan, buffers)?;
        self.regrouped.exchange += started.elapsed();
        Ok(Some(InFlightWave { number: wave, handle, into }))
    }

    /// Write the parts for `peer`, one after the other.
    fn pack(&mut self, peer: usize, wave: usize, mut into: &mut [u8]) -> Result<(), Error> {
        for &part in self.sizes.waves.parts(peer, wave) {
            let size = self.parts.size(part);
            let bytes = encoded_bytes(self.parts.schema(), size).expect("sizes have been checked") as usize;
            let place = into.split_off_mut(..bytes).expect("sizes were added up");
            if size.keys > 0 {
                write(&self.parts.take_held(part)?, place)?;
            }
            self.regrouped.rows_in += size.rows;
            self.regrouped.rows_sent += size.rows;
        }
        Ok(())
    }

    /// Wait until all blocks for this rank have arrived.
    pub fn finish(&mut self, wave_in_flight: InFlightWave) -> Result<Wave, Error> {
        let started = Instant::now();
        let Buffers { into, .. } = wave_in_flight.handle.wait()?;
        self.regrouped.exchange += started.elapsed();
        Ok(Wave { number: wave_in_flight.number, buffer: into, blocks: wave_in_flight.into })
    }
}

impl Wave {
    /// Return the received blocks, ordered by rank.
    pub fn blocks(&mut self) -> Vec<&[u8]> {
        let (bytes, blocks): (&[u8], _) = (self.buffer.bytes_mut(), &self.blocks);
        (0..blocks.rank_count()).map(|rank| &bytes[range(blocks.span(rank))]).collect()
    }
}

fn range(span: Span) -> Range<usize> {
    span.start_bytes..span.end_bytes()
}
