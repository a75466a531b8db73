//! Configuring: the ranks tell each other which keys they have and want, layer by layer, and each finds its routes.
//!
//! A machine without I/O. In each step it says what goes to whom, takes what came from the same peers, and keeps the
//! unions: the keys of its next, smaller range. Values may travel with the keys (configreduce):
//! [`Configuring::outgoing_rows`] says which of the rank's current values go where, [`Configuring::down_maps`] into
//! which rows of the next ones they go.
//! Cost: every key is sent once per layer, and merged with those of the group.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section III.A and III.C.

use super::butterfly::{Butterfly, Layer};
use super::degrees::Degrees;
use super::encoding;
use super::key_set::{KeySet, length};
use super::routes::{LayerSide, RouteLayer, Routes, Volume};
use super::row_map::RowMap;
use super::team::{Alone, WorkTeam, divided, each};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// The density from which on a layer has a row for every key of its range, unless the caller says otherwise.
///
/// Dense rows need no map, but those of missing keys travel as well. At 0.9 that is at most a ninth more than the keys
/// alone.
pub const DENSE_ABOVE: f64 = 0.9;

/// So many missing keys are named.
pub const EXAMPLE_COUNT: usize = 8;

/// About what it costs to write a key to a message, and to read a byte of one, in operations.
const KEY_OPERATIONS: usize = 4;
const BYTE_OPERATIONS: usize = 2;

/// One rank in the middle of configuring a sparse reduction.
#[derive(Clone, Debug)]
pub struct Configuring {
    layers: Vec<Layer>,
    dense_above: f64,
    out_keys: KeySet,
    in_keys: KeySet,
    steps: Vec<RouteLayer>,
    volumes: Vec<Volume>,
}

/// Where the values of a step go: into which of the rank's next rows.
///
/// Where the rows that stay are all the next ones ([`RowMap::covers`]), the next values begin as theirs; otherwise they
/// begin as identities, and those that stay are combined into them. Then the values of each peer are combined, in this
/// order. So the result has the same bits as that of [`Routes::plan`].
#[derive(Clone, Debug)]
pub struct DownMaps<'a> {
    /// How many next rows there are.
    pub row_count: usize,
    /// The current rows that stay, and the next row of each.
    pub own: (Range<usize>, &'a RowMap),
    /// Per peer: the next row of each row that it sends.
    pub arrivals: Vec<(usize, &'a RowMap)>,
}

/// Keys of a rank's last range that are wanted, but that nobody contributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// How many.
    pub count: u64,
    /// The smallest of them, at most [`EXAMPLE_COUNT`].
    pub examples: Vec<u64>,
}

/// A message that holds no key sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedKeySets {
    /// Who sent it.
    pub peer: usize,
    /// What is wrong.
    pub what: &'static str,
}

impl fmt::Display for MalformedKeySets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the key sets that rank {} sent cannot be read: {}; do all ranks run the same version?",
            self.peer, self.what
        )
    }
}

impl core::error::Error for MalformedKeySets {}

/// Whether so many rows, of sets of keys below `n`, have numbers of 32 bits in any union of the sets.
pub fn have_numbers(row_count: usize, n: u64) -> bool {
    row_count <= u32::MAX as usize || n <= u64::from(u32::MAX)
}

impl Configuring {
    /// Before the first step: `rank` of a butterfly over the keys `0..n` contributes rows for `out_keys` and wants
    /// those of `in_keys`; both ascend, and they [`have_numbers`] together. A layer is dense above the density
    /// `dense_above`, unless its sets together have less than one key in 32 of the range.
    pub fn new(
        rank: usize,
        degrees: &Degrees,
        n: u64,
        out_keys: Vec<u64>,
        in_keys: Vec<u64>,
        dense_above: f64,
    ) -> Configuring {
        let set = |keys: Vec<u64>| {
            assert!(keys.is_sorted_by(|a, b| a < b) && keys.last().is_none_or(|&last| last < n), "keys below n ascend");
            KeySet::of(0..n, keys)
        };
        assert!(have_numbers(out_keys.len() + in_keys.len(), n), "rows have numbers of 32 bits");
        assert!(dense_above >= 0.0, "a density is not negative");
        let (out_keys, in_keys) = (set(out_keys), set(in_keys));
        let volumes = [Volume::of(&(0..n), &out_keys, &in_keys)].into();
        let layers = Butterfly::new(rank, degrees, n).layers().to_vec();
        Configuring { layers, dense_above, out_keys, in_keys, steps: Vec::new(), volumes }
    }

    /// How many steps there are: one per layer, and one before them where ranks are folded.
    pub fn step_count(&self) -> usize {
        self.layers.len()
    }

    /// What goes to each peer in this step, the next one.
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

    /// Which of the rank's current values, one per row, go to each peer in this step, the next one.
    pub fn outgoing_rows(&self, step: usize) -> Vec<(usize, Range<usize>)> {
        let layer = self.layer(step);
        let rows = |position: usize| (layer.members[position], self.out_keys.rows_in(&layer.ranges[position]));
        layer.after().map(rows).collect()
    }

    /// Who sends a message in this step: the peers that get one, in another order.
    pub fn incoming_peers(&self, step: usize) -> Vec<usize> {
        let layer = &self.layers[step];
        layer.before().map(|position| layer.members[position]).collect()
    }

    /// Takes the messages of this step, the next one: one of each peer, in any order. After an error nothing has
    /// changed.
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
            let malformed = |what| MalformedKeySets { peer: member, what };
            let mut from_member = messages.iter().filter(|(peer, _)| *peer == member);
            let (Some(&(_, mut bytes)), None) = (from_member.next(), from_member.next()) else {
                return Err(malformed("not one message"));
            };
            let mut set = || encoding::read(&range, &mut bytes, of_member).map_err(malformed);
            let sets = (set()?, set()?);
            if bytes.is_empty() { Ok(sets) } else { Err(malformed("bytes behind the last set")) }
        };
        let parts = each(of_members, operations, layer.members.iter().enumerate().collect(), sets);
        let parts: Vec<(KeySet, KeySet)> = parts.into_iter().collect::<Result<_, _>>()?;
        let row_count = parts.iter().map(|(outs, ins)| outs.row_count() + ins.row_count()).sum();
        if !have_numbers(row_count, length(&range)) {
            return Err(MalformedKeySets {
                peer: layer.members[layer.position],
                what: "more keys than there can be rows",
            });
        }
        let (out_parts, in_parts): (Vec<KeySet>, Vec<KeySet>) = parts.into_iter().unzip();
        let (ins, in_keys) = LayerSide::of(layer, &self.in_keys, in_parts, self.dense_above, team);
        // What is wanted is gathered from what is there: after the last step rows of the one are rows of the other.
        let follows = step + 1 == self.layers.len() && in_keys.is_dense();
        let dense_above = if follows { -1.0 } else { self.dense_above };
        let (outs, out_keys) = LayerSide::of(layer, &self.out_keys, out_parts, dense_above, team);
        self.steps.push(RouteLayer { layer: layer.clone(), outs, ins });
        self.volumes.push(Volume::of(&range, &out_keys, &in_keys));
        (self.out_keys, self.in_keys) = (out_keys, in_keys);
        Ok(())
    }

    /// Where the values of a step that is over go.
    pub fn down_maps(&self, step: usize) -> DownMaps<'_> {
        let RouteLayer { layer, outs, .. } = &self.steps[step];
        let arrival = |position: usize| (layer.members[position], &outs.maps[position]);
        DownMaps {
            row_count: outs.row_count,
            own: (outs.rows[layer.position].clone(), &outs.maps[layer.position]),
            arrivals: layer.before().map(arrival).collect(),
        }
    }

    /// What was found, after the last step: the routes, and the keys of this rank's last range that nobody contributes.
    pub fn finish(self, team: &dyn WorkTeam) -> (Routes, Missing) {
        assert_eq!(self.steps.len(), self.layers.len(), "the last step is over");
        let keys = self.in_keys.missing_in(&self.out_keys);
        let missing =
            Missing { count: keys.len() as u64, examples: keys.iter().copied().take(EXAMPLE_COUNT).collect() };
        (Routes::new(self.steps, &self.out_keys, &self.in_keys, &keys, self.volumes, team), missing)
    }

    /// What all ranks find, by rank: their machines, run in memory.
    pub fn finish_all(mut machines: Vec<Configuring>) -> Result<Vec<(Routes, Missing)>, MalformedKeySets> {
        for step in 0..machines.first().map_or(0, Configuring::step_count) {
            let mut arrived: Vec<Vec<(usize, Vec<u8>)>> = machines.iter().map(|_| Vec::new()).collect();
            for (from, machine) in machines.iter().enumerate() {
                let messages = machine.outgoing(step, &Alone);
                messages.into_iter().for_each(|(to, bytes)| arrived[to].push((from, bytes)));
            }
            for (machine, messages) in machines.iter_mut().zip(&arrived) {
                machine.absorb(step, messages, &Alone)?;
            }
        }
        Ok(machines.into_iter().map(|machine| machine.finish(&Alone)).collect())
    }

    /// Rows of both kinds that this rank has at present.
    fn row_count(&self) -> usize {
        self.out_keys.row_count() + self.in_keys.row_count()
    }

    fn layer(&self, step: usize) -> &Layer {
        assert_eq!(step, self.steps.len(), "steps come one after the other");
        &self.layers[step]
    }
}
