//! Butterfly topology: the exchange groups of each layer and the range of keys that each member keeps.

use super::degrees::Degrees;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// One layer from the view of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The ranks of the exchange group by position, including this rank.
    pub members: Vec<usize>,
    /// The position of this rank.
    pub position: usize,
    /// Per position: the range of keys that the member keeps. The ranges are consecutive and form the members' common
    /// previous range.
    pub ranges: Vec<Range<u64>>,
}

impl Layer {
    /// Return the range of keys that this rank keeps.
    pub fn range(&self) -> &Range<u64> {
        &self.ranges[self.position]
    }

    /// Iterate over the positions of the other members, starting after this rank and wrapping around.
    pub fn after(&self) -> impl Iterator<Item = usize> + use<> {
        let (position, degree) = (self.position, self.members.len());
        (1..degree).map(move |distance| (position + distance) % degree)
    }

    /// Iterate over the positions of the other members, starting before this rank and wrapping around. This rank is the
    /// `k`-th receiver of the `k`-th member returned.
    pub fn before(&self) -> impl Iterator<Item = usize> + use<> {
        let (position, degree) = (self.position, self.members.len());
        (1..degree).map(move |distance| (position + degree - distance) % degree)
    }
}

/// The layers of a butterfly over the keys `0..n` from the view of one rank, from the top.
///
/// The members of a group in the first layer have consecutive numbers. In the next layer they differ by the degree of
/// the first, and so on. If ranks are numbered host by host, the top layers, which have the largest messages, stay on a
/// host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Butterfly {
    layers: Vec<Layer>,
}

impl Butterfly {
    /// Create the layers of `rank`.
    ///
    /// With folded ranks there is an additional first layer. Its groups are pairs of a core rank and a folded rank, or
    /// single ranks.
    pub fn new(rank: usize, degrees: &Degrees, n: u64) -> Butterfly {
        assert!(rank < degrees.world_size(), "the rank is below the world size");
        let (core_size, folded) = (degrees.core_size(), degrees.folded());
        let mut layers = Vec::new();
        if folded > 0 {
            let core_rank = rank % core_size;
            let members = if core_rank < folded { vec![core_rank, core_size + core_rank] } else { vec![core_rank] };
            let ranges = members.iter().map(|&member| if member < core_size { 0..n } else { n..n }).collect();
            layers.push(Layer { position: usize::from(rank >= core_size), members, ranges });
        }
        let mut range = if rank < core_size { 0..n } else { n..n };
        let mut stride = 1;
        for &degree in degrees.layers() {
            if rank >= core_size {
                layers.push(Layer { members: vec![rank], position: 0, ranges: vec![range.clone()] });
                continue;
            }
            let position = rank / stride % degree;
            let first = rank - position * stride;
            let members = (0..degree).map(|position| first + position * stride).collect();
            let ranges: Vec<Range<u64>> = (0..degree).map(|position| part(&range, position, degree)).collect();
            range = ranges[position].clone();
            layers.push(Layer { members, position, ranges });
            stride *= degree;
        }
        Butterfly { layers }
    }

    /// Return the layers, from the top.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }
}

/// Return part `index` of a range divided into `count` equal parts.
fn part(range: &Range<u64>, index: usize, count: usize) -> Range<u64> {
    let length = u128::from(range.end - range.start);
    let cut = |index: usize| range.start + (length * index as u128 / count as u128) as u64;
    cut(index)..cut(index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worlds() -> impl Iterator<Item = Degrees> {
        (1..=36).flat_map(|p| Degrees::all(p).into_iter().chain([Degrees::smooth(p)]))
    }

    #[test]
    fn members_of_a_group_compute_the_same_group() {
        for degrees in worlds() {
            let all: Vec<Butterfly> =
                (0..degrees.world_size()).map(|rank| Butterfly::new(rank, &degrees, 1000)).collect();
            for (rank, butterfly) in all.iter().enumerate() {
                assert_eq!(butterfly.layers.len(), degrees.layers().len() + usize::from(degrees.folded() > 0));
                for (index, layer) in butterfly.layers.iter().enumerate() {
                    assert_eq!(layer.members[layer.position], rank);
                    for (position, &member) in layer.members.iter().enumerate() {
                        let theirs = &all[member].layers[index];
                        assert_eq!((&theirs.members, &theirs.ranges), (&layer.members, &layer.ranges));
                        assert_eq!(theirs.position, position);
                    }
                }
            }
        }
    }

    #[test]
    fn the_last_ranges_divide_the_keys_evenly() {
        for degrees in worlds().filter(|degrees| degrees.world_size() > 1) {
            for n in [0, 1, 7, 1000, 1 << 63] {
                let last = |rank| Butterfly::new(rank, &degrees, n).layers.last().unwrap().range().clone();
                let mut ranges: Vec<Range<u64>> = (0..degrees.core_size()).map(last).collect();
                ranges.sort_unstable_by_key(|range| (range.start, range.end));
                let mut next = 0;
                for range in &ranges {
                    assert_eq!(range.start, next);
                    let even = n / ranges.len() as u64;
                    assert!((range.end - range.start).abs_diff(even) <= degrees.layers().len() as u64);
                    next = range.end;
                }
                assert_eq!(next, n);
            }
        }
    }

    #[test]
    fn senders_and_receivers_of_each_turn_agree() {
        for degrees in worlds() {
            for rank in 0..degrees.world_size() {
                let butterfly = Butterfly::new(rank, &degrees, 1000);
                for (index, layer) in butterfly.layers.iter().enumerate() {
                    for (turn, position) in layer.after().enumerate() {
                        let theirs = Butterfly::new(layer.members[position], &degrees, 1000).layers[index].clone();
                        assert_eq!(theirs.before().nth(turn), Some(layer.position));
                    }
                }
            }
        }
    }
}
