//! Configuration and reduction in one pass: ranks send values down the layers together with their keys.
//!
//! Cost: the cost of configuration, with rows added to its second messages, and of the upward pass of a reduction. Rows
//! are combined in the order of a plan, so the result is bitwise identical to `sparse` followed by `reduce`.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section III.C.

use super::configure::{check_missing, malformed, prepare};
use super::indices::InConversion;
use super::messages::PeerMessages;
use super::reduce::{SparseSchema, check_rows, take};
use super::team::{combine_from, fill_rows};
use super::{SparseOptions, abort_on_error, next_configuration};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::pool::{BufferPool, PooledBuffer};
use ripieno_plan::sparse::team::WorkTeam;
use ripieno_plan::sparse::{DownMaps, Routes, RowMap};
use ripieno_run::BufferMemory;
use ripieno_run::reduction::Reduction;
use std::ops::Range;

/// Approximate size of a key in the messages down the layers.
const KEY_BYTES: usize = 2;

impl Communicator {
    /// Run [`Communicator::sparse`] and [`SparseReduce::reduce`](super::SparseReduce::reduce) in one pass, for index
    /// sets that are reduced once.
    ///
    /// `values` has a row for each of `out_indices`; `into` receives the combined rows of `in_indices`. Every rank must
    /// call this, with the same `schema` and `options`. It returns the errors of both functions. A rank without memory
    /// for its rows ends the job, because the other ranks have already begun to send.
    pub fn sparse_reduce(
        &self,
        out_indices: &[i64],
        values: &[u8],
        in_indices: &[i64],
        into: &mut [u8],
        schema: SparseSchema<'_>,
        options: &SparseOptions,
    ) -> Result<(), Error> {
        abort_on_error(self, || self.in_one_pass(out_indices, values, in_indices, into, schema, options))
    }

    fn in_one_pass(
        &self,
        out_indices: &[i64],
        values: &[u8],
        in_indices: &[i64],
        into: &mut [u8],
        schema: SparseSchema<'_>,
        options: &SparseOptions,
    ) -> Result<(), Error> {
        let (reduction, row_bytes) = (schema.reduction()?, schema.row_bytes());
        check_rows("values", values.len(), out_indices.len(), row_bytes)?;
        check_rows("into", into.len(), in_indices.len(), row_bytes)?;
        let designed_bytes = row_bytes + KEY_BYTES;
        let mut prepared = prepare(self, out_indices, in_indices, options, designed_bytes, &format!(", {schema}"))?;
        let (pool, number) = next_configuration(self)?;

        let mut held = take(&pool, prepared.out_rows.key_count() * row_bytes)?;
        prepared.out_rows.out_conversion(&prepared.team).fill(held.bytes_mut(), values, schema, &prepared.team)?;
        for step in 0..prepared.machine.step_count() {
            let (machine, team) = (&mut prepared.machine, &prepared.team);
            let mut messages = PeerMessages::default();
            for ((peer, keys), (_, rows)) in machine.outgoing(step, team).iter().zip(machine.outgoing_rows(step)) {
                messages.add(*peer, keys, &held.bytes_mut()[rows.start * row_bytes..rows.end * row_bytes]);
            }
            let arrived = messages.exchange(self, &machine.incoming_peers(step))?;
            machine.absorb(step, &arrived.keys(), team).map_err(malformed)?;
            held = next_layer(&pool, &machine.down_maps(step), &mut held, &arrived, (row_bytes, reduction), team)?;
        }
        let (routes, missing) = prepared.machine.finish(&prepared.team);
        if !options.missing_is_zero {
            check_missing(self, &missing, &prepared.permutation)?;
        }
        let (row_count, in_conversion) = (prepared.in_rows.key_count(), prepared.in_rows.in_conversion());
        if let InConversion::Identity = in_conversion {
            return self.send_up(&pool, &routes, &mut held, into, schema, number);
        }
        let mut rows = take(&pool, row_count * row_bytes)?;
        self.send_up(&pool, &routes, &mut held, rows.bytes_mut(), schema, number)?;
        in_conversion.fill(into, rows.bytes_mut(), row_bytes, &prepared.team);
        Ok(())
    }

    /// Send the reduced rows up to the ranks that requested them.
    fn send_up(
        &self,
        pool: &BufferPool,
        routes: &Routes,
        held: &mut PooledBuffer,
        output: &mut [u8],
        schema: SparseSchema<'_>,
        number: u32,
    ) -> Result<(), Error> {
        let (shared, communicator) = self.core_and_number();
        let mut core = shared.hold()?;
        let (mut runtime, state) = core.communicator(communicator)?;
        let schedule = state.schedule(routes.up_plan(schema.row_bytes(), schema.element.size_bytes(), schema.op));
        let held = held.bytes_mut();
        let mut scratch = take(pool, schedule.scratch_bytes().max(held.len()))?;
        scratch.bytes_mut()[..held.len()].copy_from_slice(held);
        let buffers = [BufferMemory::Read(&[]), BufferMemory::Write(output), BufferMemory::Write(scratch.bytes_mut())];
        let call = schema.call(number, runtime.fabric);
        state.run_uncatalogued(&mut runtime, call, schedule, buffers)
    }
}

/// Return the rows of the next layer: this rank's own rows, combined with the received rows.
fn next_layer(
    pool: &BufferPool,
    maps: &DownMaps<'_>,
    held: &mut PooledBuffer,
    arrived: &PeerMessages,
    (row_bytes, reduction): (usize, &Reduction),
    team: &dyn WorkTeam,
) -> Result<PooledBuffer, Error> {
    let mut arrivals = Vec::new();
    for (&(peer, map), (sender, received)) in maps.arrivals.iter().zip(arrived.rows()) {
        assert_eq!(peer, sender, "messages arrive in the order of combination");
        if received.len() != map.len() * row_bytes {
            let cause = format!("rank {peer} sent {} bytes of values for {} keys", received.len(), map.len());
            return Err(Error::Malformed { cause });
        }
        arrivals.push((received, map));
    }
    let mut next = take(pool, maps.row_count * row_bytes)?;
    let (own, own_map) = &maps.own;
    let own = &held.bytes_mut()[own.start * row_bytes..own.end * row_bytes];
    let moved_count = own_map.len() + arrivals.iter().map(|(_, map)| map.len()).sum::<usize>();
    fill_rows(team, next.bytes_mut(), row_bytes, moved_count, |piece, rows| {
        match own_map.covers(maps.row_count) {
            true => rows.copy_from_slice(&own[piece.start * row_bytes..piece.end * row_bytes]),
            false => {
                (reduction.fill)(rows);
                combine(rows, &piece, own, own_map, row_bytes, reduction);
            }
        }
        arrivals.iter().for_each(|(received, map)| combine(rows, &piece, received, map, row_bytes, reduction));
    });
    Ok(next)
}

/// Combine into `piece_rows` the rows of `from` that `map` assigns to `piece`.
fn combine(
    piece_rows: &mut [u8],
    piece: &Range<usize>,
    from: &[u8],
    map: &RowMap,
    row_bytes: usize,
    reduction: &Reduction,
) {
    let there = map.rows_to(piece);
    if there.is_empty() {
        return;
    }
    let from = &from[there.start * row_bytes..there.end * row_bytes];
    match map {
        RowMap::Run(run) => {
            let first = (run.start + there.start - piece.start) * row_bytes;
            (reduction.combine)(&mut piece_rows[first..first + from.len()], from);
        }
        RowMap::Rows(numbers) => combine_from(piece_rows, piece.start, from, &numbers[there], row_bytes, reduction),
    }
}
