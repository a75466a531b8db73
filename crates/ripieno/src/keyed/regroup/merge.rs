//! Merging: combines the pieces of each part from all ranks into one block, once a wave has arrived.

use super::super::block::{KeyedBlock, KeyedSchema, PartSize};
use super::super::part::{KeyedPart, PartScratch};
use super::encoding::{ReceivedBlock, encoded_bytes};
use super::wave::Wave;
use super::{OnBlock, Regrouping};
use crate::error::Error;
use ripieno_kernels::Threads;
use std::time::Instant;

/// The pieces of one part from all ranks.
struct PartPieces<'a> {
    /// Ordered by rank.
    pieces: Vec<RankPiece<'a>>,
    into: &'a mut KeyedBlock,
}

/// The piece of one part from one rank.
enum RankPiece<'a> {
    Own(KeyedBlock),
    Received { from: usize, size: PartSize, bytes: &'a [u8] },
}

impl RankPiece<'_> {
    fn row_count(&self) -> u64 {
        match self {
            RankPiece::Own(block) => block.view().row_count(),
            RankPiece::Received { size, .. } => size.rows,
        }
    }
}

impl Regrouping<'_> {
    /// Merge the received blocks with this rank's own, and pass the result to `on_block`.
    pub fn merge(&mut self, mut wave: Wave, on_block: &mut OnBlock<'_>) -> Result<(), Error> {
        let started = Instant::now();
        let rank = self.comm.rank();
        let schema = *self.parts.schema();
        let merged_form = self.regrouped.schema;
        let own = self.sizes.waves.parts(rank, wave.number);
        let mut blocks = vec![KeyedBlock::none(&merged_form); own.len()];
        let mut received = wave.blocks();
        let mut all = Vec::new();
        for (&part, into) in own.iter().zip(&mut blocks) {
            let mut pieces = Vec::new();
            for (from, received) in received.iter_mut().enumerate() {
                let size = self.sizes.incoming(from, part);
                if size.keys == 0 {
                    continue;
                }
                if from == rank {
                    self.regrouped.rows_in += size.rows;
                    pieces.push(RankPiece::Own(self.parts.take_held(part)?));
                    continue;
                }
                let length = encoded_bytes(&schema, size).expect("sizes have been checked");
                let bytes = received.split_off(..length as usize).expect("sizes were added up");
                pieces.push(RankPiece::Received { from, size, bytes });
            }
            all.push(PartPieces { pieces, into });
        }
        merge_all(all, &schema, &merged_form, &Threads::new(self.options.threads.get()))?;
        drop(wave);
        self.regrouped.merge += started.elapsed();

        let started = Instant::now();
        for block in blocks {
            self.regrouped.keys += block.keys.len() as u64;
            self.regrouped.rows += block.view().row_count();
            on_block(&merged_form, block)?;
        }
        self.regrouped.callback += started.elapsed();
        Ok(())
    }
}

/// Cost of inserting a row into a table, about 20 ns, as a number of vectorized arithmetic operations.
const MERGING_OPERATIONS: usize = 1000;

/// Merge parts, each on any free thread.
fn merge_all(
    all: Vec<PartPieces<'_>>,
    schema: &KeyedSchema,
    merged_form: &KeyedSchema,
    threads: &Threads,
) -> Result<(), Error> {
    let rows: u64 = all.iter().flat_map(|parts| &parts.pieces).map(RankPiece::row_count).sum();
    let operations = MERGING_OPERATIONS * rows as usize / all.len().max(1);
    let mut outcomes: Vec<_> = all.iter().map(|_| Ok(())).collect();
    let parts = all.into_iter().zip(&mut outcomes).collect();
    threads.for_each(parts, operations, PartScratch::default, |scratch, (PartPieces { pieces, into }, outcome)| {
        *outcome = merged(pieces, schema, merged_form, scratch).map(|block| *into = block);
    });
    outcomes.into_iter().collect()
}

/// Merge the pieces into one block, in the order of the ranks, rounded to the type of its schema.
fn merged(
    mut pieces: Vec<RankPiece<'_>>,
    schema: &KeyedSchema,
    merged_form: &KeyedSchema,
    scratch: &mut PartScratch,
) -> Result<KeyedBlock, Error> {
    let held = schema.held_element();
    // A single piece from this rank needs no merge.
    if let ([RankPiece::Own(_)], true) = (&pieces[..], schema == merged_form)
        && let Some(RankPiece::Own(block)) = pieces.pop()
    {
        return Ok(block.converted(held, schema.element));
    }
    let mut part = KeyedPart::new(merged_form, merged_form.reduction()?);
    for piece in &pieces {
        let arrived;
        let view = match piece {
            RankPiece::Own(block) => block.view(),
            RankPiece::Received { from, size, bytes } => {
                let malformed = |cause| Error::Malformed { cause: format!("rank {from} sent {cause}") };
                arrived = ReceivedBlock::read(schema, size, &mut &**bytes).map_err(malformed)?;
                arrived.view()
            }
        };
        part.add_block(&view, held, scratch);
    }
    Ok(part.into_block().converted(merged_form.held_element(), merged_form.element))
}
