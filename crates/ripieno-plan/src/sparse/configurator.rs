//! Configuration of a sparse reduction: ranks exchange their keys layer by layer, and each rank derives its routes.
//!
//! [`Configurator`] is a state machine without I/O. In each step it returns the messages to its peers and accepts their
//! messages. Then it holds the unions of the keys in its next, smaller range. Values may travel together with the keys
//! (configreduce): [`Configurator::outgoing_rows`] returns which current values each peer receives, and
//! [`Configurator::down_maps`] returns their target rows.
//!
//! Cost: every key is sent once per layer and merged with the keys of the group.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section III.A and III.C.

use super::butterfly::{Butterfly, Layer};
use super::degrees::Degrees;
use super::encoding;
use super::key_set::{KeySet, length};
use super::routes::{LayerSide, RouteLayer, Routes, Volume};
use super::row_map::RowMap;
use super::team::{SingleThread, WorkTeam, divided, each};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// Default density above which a layer has a row for every key of its range.
///
/// Dense rows need no map, but the rows of missing keys are sent as well. At 0.9 the overhead is at most a ninth.
pub const DENSE_ABOVE: f64 = 0.9;

/// Largest number of missing keys listed as examples.
pub const EXAMPLE_COUNT: usize = 8;

/// Estimated cost of writing a key to a message and of reading a byte of a message, in operations.
const KEY_OPERATIONS: usize = 4;
const BYTE_OPERATIONS: usize = 2;

/// State of one rank during the configuration of a sparse reduction.
#[derive(Clone, Debug)]
pub struct Configurator {
    layers: Vec<Layer>,
    dense_above: f64,
    out_keys: KeySet,
    in_keys: KeySet,
    steps: Vec<RouteLayer>,
    volumes: Vec<Volume>,
}

/// Target rows of the values of one step.
///
/// If the staying rows cover all next rows ([`RowMap::covers`]), the next values start as copies of them. Otherwise the
/// next values start as identities, and the staying rows are combined into them. Then the values of each peer are
/// combined in the order of `arrivals`. So the result has the same bits as the result of [`Routes::plan`].
#[derive(Clone, Debug)]
pub struct DownMaps<'a> {
    /// Number of next rows.
    pub row_count: usize,
    /// The current rows that stay on this rank, and their next rows.
    pub own: (Range<usize>, &'a RowMap),
    /// Per peer: the next row of each row that it sends.
    pub arrivals: Vec<(usize, &'a RowMap)>,
}

/// Keys in a rank's last range that some rank requests and no rank contributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingKeys {
    /// Number of missing keys.
    pub count: u64,
    /// The smallest missing keys, at most [`EXAMPLE_COUNT`].
    pub examples: Vec<u64>,
}

/// Error: a message does not contain valid key sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedKeySets {
    /// The sender.
    pub peer: usize,
    /// The reason.
    pub reason: &'static str,
}

impl fmt::Display for MalformedKeySets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the key sets that rank {} sent cannot be read: {}; do all ranks run the same version?",
            self.peer, self.reason
        )
    }
}

impl core::error::Error for MalformedKeySets {}

/// Return whether 32-bit row numbers suffice for any union of key sets with `row_count` rows in total and keys below
/// `n`.
pub fn fit_row_numbers(row_count: usize, n: u64) -> bool {
    row_count <= u32::MAX as usize || n <= u64::from(u32::MAX)
}

impl Configurator {
    /// Create the state of `rank` before the first step of a butterfly over the keys `0..n`.
    ///
    /// The rank contributes rows for `out_keys` and requests the rows of `in_keys`. Both lists are ascending, and
    /// together they satisfy [`fit_row_numbers`]. A layer is dense above the density `dense_above`, unless its sets
    /// together have less than one key in 32 of the range.
    pub fn new(
        rank: usize,
        degrees: &Degrees,
        n: u64,
        out_keys: Vec<u64>,
        in_keys: Vec<u64>,
        dense_above: f64,
    ) -> Configurator {
        let set = |keys: Vec<u64>| {
            assert!(keys.is_sorted_by(|a, b| a < b) && keys.last().is_none_or(|&last| last < n), "keys below n ascend");
            KeySet::of(0..n, keys)
        };
        assert!(fit_row_numbers(out_keys.len() + in_keys.len(), n), "row numbers fit into 32 bits");
        assert!(dense_above >= 0.0, "the density threshold is not negative");
        let (out_keys, in_keys) = (set(out_keys), set(in_keys));
        let volumes = [Volume::of(&(0..n), &out_keys, &in_keys)].into();
        let layers = Butterfly::new(rank, degrees, n).layers().to_vec();
        Configurator { layers, dense_above, out_keys, in_keys, steps: Vec::new(), volumes }
    }

    /// Return the number of steps: one per layer, and one before them if ranks are folded.
    pub fn step_count(&self) -> usize {
        self.layers.len()
    }

    /// Return the messages to each peer in the next step, which must be `step`.
    pub fn outgoing(&self, step: usize, team: &dyn WorkTeam) -> Vec<(usize, Vec<u8>)> {
        let (layer, operations) = (self.layer(step), KEY_OPERATIONS * self.row_count());
        let (team, of_each) = divided(team, operations, layer.members.len() - 1);
        each(team, operations, layer.after().collect(), |position| {
            let mut bytes = Vec::new();
            encoding::write(&self.out_keys, &layer.ranges[position], &mut bytes, of_each);
            encoding::write(&self.in_keys, &layer.ranges[position], &mut bytes, of_each);
            (layer.members[position], bytes)
        })
    }

    /// Return the range of this rank's current rows that each peer receives in the next step, which must be `step`.
    pub fn outgoing_rows(&self, step: usize) -> Vec<(usize, Range<usize>)> {
        let layer = self.layer(step);
        let rows = |position: usize| (layer.members[position], self.out_keys.rows_in(&layer.ranges[position]));
        layer.after().map(rows).collect()
    }

    /// Return the peers that send a message in this step: the receivers of [`outgoing`](Configurator::outgoing), in
    /// another order.
    pub fn incoming_peers(&self, step: usize) -> Vec<usize> {
        let layer = &self.layers[step];
        layer.before().map(|position| layer.members[position]).collect()
    }

    /// Process the messages of the next step, which must be `step`: one message of each peer, in any order. An error
    /// leaves the state unchanged.
    pub fn absorb<B: AsRef<[u8]>>(
        &mut self,
        step: usize,
        messages: &[(usize, B)],
        team: &dyn WorkTeam,
    ) -> Result<(), MalformedKeySets> {
        let layer = self.layer(step);
        let range = layer.range().clone();
        let messages: Vec<(usize, &[u8])> = messages.iter().map(|(peer, bytes)| (*peer, bytes.as_ref())).collect();
        let operations = BYTE_OPERATIONS * messages.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        let (of_members, of_member) = divided(team, operations, layer.members.len());
        let sets = |(position, &member): (usize, &usize)| {
            if position == layer.position {
                return Ok((self.out_keys.part(&range), self.in_keys.part(&range)));
            }
            let malformed = |reason| MalformedKeySets { peer: member, reason };
            let mut from_member = messages.iter().filter(|(peer, _)| *peer == member);
            let (Some(&(_, mut bytes)), None) = (from_member.next(), from_member.next()) else {
                return Err(malformed("expected one message"));
            };
            let mut set = || encoding::read(&range, &mut bytes, of_member).map_err(malformed);
            let sets = (set()?, set()?);
            if bytes.is_empty() { Ok(sets) } else { Err(malformed("bytes after the last set")) }
        };
        let parts = each(of_members, operations, layer.members.iter().enumerate().collect(), sets);
        let parts: Vec<(KeySet, KeySet)> = parts.into_iter().collect::<Result<_, _>>()?;
        let row_count = parts.iter().map(|(outs, ins)| outs.row_count() + ins.row_count()).sum();
        if !fit_row_numbers(row_count, length(&range)) {
            return Err(MalformedKeySets {
                peer: layer.members[layer.position],
                reason: "more keys than there can be rows",
            });
        }
        let (out_parts, in_parts): (Vec<KeySet>, Vec<KeySet>) = parts.into_iter().unzip();
        let (ins, in_keys) = LayerSide::of(layer, &self.in_keys, in_parts, self.dense_above, team);
        // Requested rows are gathered from contributed rows. After the last step both must use the same rows if the
        // requested keys are dense.
        let shares_rows = step + 1 == self.layers.len() && in_keys.is_dense();
        let dense_above = if shares_rows { -1.0 } else { self.dense_above };
        let (outs, out_keys) = LayerSide::of(layer, &self.out_keys, out_parts, dense_above, team);
        self.steps.push(RouteLayer { layer: layer.clone(), outs, ins });
        self.volumes.push(Volume::of(&range, &out_keys, &in_keys));
        (self.out_keys, self.in_keys) = (out_keys, in_keys);
        Ok(())
    }

    /// Return the target rows of the values of a finished step.
    pub fn down_maps(&self, step: usize) -> DownMaps<'_> {
        let RouteLayer { layer, outs, .. } = &self.steps[step];
        let arrival = |position: usize| (layer.members[position], &outs.maps[position]);
        DownMaps {
            row_count: outs.row_count,
            own: (outs.rows[layer.position].clone(), &outs.maps[layer.position]),
            arrivals: layer.before().map(arrival).collect(),
        }
    }

    /// Return the routes after the last step, and the requested keys of this rank's last range that no rank
    /// contributes.
    pub fn finish(self, team: &dyn WorkTeam) -> (Routes, MissingKeys) {
        assert_eq!(self.steps.len(), self.layers.len(), "all steps have finished");
        let keys = self.in_keys.missing_in(&self.out_keys);
        let missing =
            MissingKeys { count: keys.len() as u64, examples: keys.iter().copied().take(EXAMPLE_COUNT).collect() };
        (Routes::new(self.steps, &self.out_keys, &self.in_keys, &keys, self.volumes, team), missing)
    }

    /// Run the state machines of all ranks in memory and return their results by rank.
    pub fn finish_all(mut machines: Vec<Configurator>) -> Result<Vec<(Routes, MissingKeys)>, MalformedKeySets> {
        for step in 0..machines.first().map_or(0, Configurator::step_count) {
            let mut arrived: Vec<Vec<(usize, Vec<u8>)>> = machines.iter().map(|_| Vec::new()).collect();
            for (from, machine) in machines.iter().enumerate() {
                let messages = machine.outgoing(step, &SingleThread);
                messages.into_iter().for_each(|(to, bytes)| arrived[to].push((from, bytes)));
            }
            for (machine, messages) in machines.iter_mut().zip(&arrived) {
                machine.absorb(step, messages, &SingleThread)?;
            }
        }
        Ok(machines.into_iter().map(|machine| machine.finish(&SingleThread)).collect())
    }

    /// Return the number of this rank's current rows, contributed and requested.
    fn row_count(&self) -> usize {
        self.out_keys.row_count() + self.in_keys.row_count()
    }

    fn layer(&self, step: usize) -> &Layer {
        assert_eq!(step, self.steps.len(), "steps are processed in order");
        &self.layers[step]
    }
}
