//! Index sets for each rank, and the expected results of their reductions.

use ripieno::Op;
use std::collections::{BTreeMap, BTreeSet};

/// Distribution of the indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetKind {
    /// Random indices with repetitions.
    Random,
    /// Small indices are much more frequent.
    PowerLaw,
    /// Only every third rank contributes indices; all ranks request them.
    Sparse,
    /// No rank contributes or requests an index.
    Empty,
    /// No two ranks contribute the same index.
    Disjoint,
    /// All ranks contribute and request the same indices.
    Identical,
    /// All ranks contribute the same single index.
    Single,
}

pub const KINDS: [SetKind; 7] = [
    SetKind::Random,
    SetKind::PowerLaw,
    SetKind::Sparse,
    SetKind::Empty,
    SetKind::Disjoint,
    SetKind::Identical,
    SetKind::Single,
];

/// The contributed (`out_indices`) and requested (`in_indices`) indices of all ranks.
pub struct IndexSets {
    pub kind: SetKind,
    pub out_indices: Vec<Vec<i64>>,
    pub in_indices: Vec<Vec<i64>>,
}

impl IndexSets {
    /// Return sets for `p` ranks, with indices up to about `n`. At least one rank contributes each requested index.
    pub fn new(kind: SetKind, p: usize, n: u64) -> IndexSets {
        let mut random = SetRandom(p as u64 * 1000 + n);
        let out_indices: Vec<Vec<i64>> = (0..p).map(|rank| contributed(kind, rank, p, n, &mut random)).collect();
        let all: Vec<i64> = out_indices.iter().flatten().copied().collect::<BTreeSet<i64>>().into_iter().collect();
        let in_indices = |rank: usize| match kind {
            _ if all.is_empty() => Vec::new(),
            SetKind::Identical | SetKind::Single => out_indices[rank].clone(),
            _ => {
                (0..random.below(all.len() as u64 + 3)).map(|_| all[random.below(all.len() as u64) as usize]).collect()
            }
        };
        let in_indices = (0..p).map(in_indices).collect();
        IndexSets { kind, out_indices, in_indices }
    }
}

fn contributed(kind: SetKind, rank: usize, p: usize, n: u64, random: &mut SetRandom) -> Vec<i64> {
    let count = random.below(n);
    let any = |random: &mut SetRandom| (0..count).map(|_| random.below(n) as i64).collect();
    match kind {
        SetKind::Random => any(random),
        SetKind::PowerLaw => {
            (0..count).map(|_| (n / (1 + random.below(n))) as i64 - 1).filter(|&index| index >= 0).collect()
        }
        SetKind::Sparse if rank % 3 == 1 => any(random),
        SetKind::Sparse | SetKind::Empty => Vec::new(),
        SetKind::Disjoint => (0..n / 4).map(|at| (at * p as u64 + rank as u64) as i64).rev().collect(),
        SetKind::Identical => (0..n as i64).step_by(3).collect(),
        SetKind::Single => vec![n as i64 - 1],
    }
}

/// Return the rows that `rank` contributes for its indices; the values are small.
pub fn rows(rank: usize, out_indices: &[i64], width: usize) -> Vec<i64> {
    let element = |position: usize, column: usize| (rank as i64 * 31 + position as i64 * 7 + column as i64) % 13 - 5;
    (0..out_indices.len()).flat_map(|position| (0..width).map(move |column| element(position, column))).collect()
}

/// Return the expected result of `rank`.
pub fn combined(sets: &IndexSets, rank: usize, width: usize, op: Op) -> Vec<i64> {
    let mut found: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (rank, out_indices) in sets.out_indices.iter().enumerate() {
        for (index, row) in out_indices.iter().zip(rows(rank, out_indices, width).chunks(width)) {
            match found.get_mut(index) {
                None => drop(found.insert(*index, row.to_vec())),
                Some(known) => known.iter_mut().zip(row).for_each(|(a, &b)| *a = apply(op, *a, b)),
            }
        }
    }
    sets.in_indices[rank].iter().flat_map(|index| found[index].clone()).collect()
}

fn apply(op: Op, a: i64, b: i64) -> i64 {
    match op {
        Op::Sum => a.wrapping_add(b),
        Op::Prod => a.wrapping_mul(b),
        Op::Min => a.min(b),
        Op::Max => a.max(b),
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
        Op::Function => unreachable!("rows combine by operations"),
    }
}

/// Pseudo-random numbers, the same in each run.
pub struct SetRandom(pub u64);

impl SetRandom {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Return a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
