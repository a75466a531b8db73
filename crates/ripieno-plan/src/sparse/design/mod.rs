//! Design: the degrees of the butterfly that suit some data, ranks and links.
//!
//! [`by_packet`] is the rule of the paper: layer by layer the largest degree whose packets are still efficient.
//! [`candidates`] prices every ordered factorization with the measured time of packets, and [`choose`] takes the
//! cheapest. A rank spends in a layer of degree `d`, on the way down and again on the way up,
//!
//! ```text
//! latency + (d-1)·(T(P/d) + crowd) + gamma·P
//! ```
//!
//! where `P` are the bytes that it holds before the layer, by the density curve (eq. 5), and `T` the packet curve.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, sections III.D and IV.

mod packets;

use super::Degrees;
use super::density::Curve;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
pub use packets::{EFFICIENT_SHARE, FEW_PEERS, GAMMA_S_PER_BYTE, PacketCurve};

/// The sets of all ranks that travel in one direction: out-indices down, in-indices up.
#[derive(Clone, Copy, Debug)]
pub struct DirectionSets<'a> {
    /// Densities of their unions. Only its shape counts: `rows` says how much there is.
    pub curve: &'a Curve,
    /// Rows of a rank's set, the mean of all ranks.
    pub rows: f64,
}

/// What passes through a layer in one direction, of a mean rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerFlow {
    /// The part of its features that a rank holds above the layer, by the curve.
    pub density: f64,
    /// Rows that it holds above the layer.
    pub rows: f64,
    /// Bytes of each of the packets to and from the other members of its group.
    pub packet_bytes: f64,
    /// Seconds of the layer in this direction.
    pub seconds: f64,
}

/// One layer, as predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerEstimate {
    /// Members of a group; 1 below the last layer, where nothing travels; 2 for folding.
    pub degree: usize,
    /// Ranks whose sets are united above the layer, the mean where ranks were folded.
    pub set_count: f64,
    /// Into how many parts the features are divided above the layer: a rank holds one.
    pub part_count: usize,
    /// How many ranks hold one: all, or all but those that are folded.
    pub holder_count: usize,
    /// Packets that a rank sends in each direction.
    pub packet_count: usize,
    /// Out-indices, on the way down.
    pub down: LayerFlow,
    /// In-indices, on the way up.
    pub up: LayerFlow,
}

/// Degrees, and what they are predicted to cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    /// The degrees.
    pub degrees: Degrees,
    /// What the surplus ranks give and get, if there are any.
    pub fold: Option<LayerEstimate>,
    /// The layers from the top.
    pub layers: Vec<LayerEstimate>,
    /// What ranks hold below the last layer.
    pub bottom: LayerEstimate,
}

impl Design {
    /// Seconds of a reduction, down and up.
    pub fn seconds(&self) -> f64 {
        self.fold.iter().chain(&self.layers).map(|layer| layer.down.seconds + layer.up.seconds).sum()
    }

    /// Bytes that a rank sends in a reduction, down and up, without what stays with it.
    pub fn sent_bytes(&self) -> f64 {
        let sent =
            |layer: &LayerEstimate| layer.packet_count as f64 * (layer.down.packet_bytes + layer.up.packet_bytes);
        self.fold.iter().chain(&self.layers).map(sent).sum()
    }
}

/// The degrees of section IV for sets of which a rank holds `sets.rows`, `row_bytes` each.
///
/// From the top, each layer gets the largest divisor of what is left of the ranks at which its packets have
/// `least_packet_bytes` at least. If no divisor has such packets, none below will: the layer gets the smallest prime
/// factor, which sends the fewest packets. A number of ranks with a prime factor above 7 is folded to the next smaller
/// one without ([`Degrees::smooth`]), unless the packets of one direct layer are efficient already.
pub fn by_packet(p: usize, sets: DirectionSets<'_>, row_bytes: usize, least_packet_bytes: f64) -> Degrees {
    let top_bytes = sets.rows * row_bytes as f64;
    if p > 1 && top_bytes / p as f64 >= least_packet_bytes {
        return Degrees::direct(p);
    }
    let smooth = Degrees::smooth(p);
    let mut left = smooth.core_size();
    let top_sets = top_sets(left, smooth.folded());
    let (mut layers, mut parts) = (Vec::new(), 1);
    while left > 1 {
        let held_bytes = held(sets, top_sets, parts).rows * row_bytes as f64;
        let efficient = |d: usize| held_bytes / d as f64 >= least_packet_bytes;
        let divisors = || (2..=left).filter(|d| left.is_multiple_of(*d));
        let degree = divisors().rfind(|&d| efficient(d)).or_else(|| divisors().next()).expect("left divides itself");
        layers.push(degree);
        parts *= degree;
        left /= degree;
    }
    Degrees::new(layers, smooth.folded()).expect("factors of a number of ranks")
}

/// The cheapest degrees for sets that come out and in, rows of `row_bytes`, on links with these packets.
pub fn choose(
    p: usize,
    out: DirectionSets<'_>,
    wanted: DirectionSets<'_>,
    row_bytes: usize,
    packets: &PacketCurve,
) -> Design {
    candidates(p, out, wanted, row_bytes, packets).swap_remove(0)
}

/// Every ordered factorization of `p`, and of the number to which [`Degrees::smooth`] folds it, the cheapest first; of
/// equals the one with fewer layers, then the one with larger degrees above.
pub fn candidates(
    p: usize,
    out: DirectionSets<'_>,
    wanted: DirectionSets<'_>,
    row_bytes: usize,
    packets: &PacketCurve,
) -> Vec<Design> {
    let mut designs = Vec::new();
    for all in [Degrees::all(p), Degrees::all_smooth(p)] {
        let (q, folded) = (all[0].core_size(), all[0].folded());
        // Of a smooth number both are the same.
        if folded > 0 || designs.is_empty() {
            let load = RankLoad::new(q, folded, (1..=q).filter(|parts| q.is_multiple_of(*parts)), [out, wanted]);
            designs.extend(all.into_iter().map(|degrees| load.price(degrees, row_bytes, packets)));
        }
    }
    designs.sort_by(|a, b| {
        let by_time = a.seconds().total_cmp(&b.seconds());
        let (a, b) = (a.degrees.layers(), b.degrees.layers());
        by_time.then(a.len().cmp(&b.len())).then(b.cmp(a))
    });
    designs
}

/// What these degrees are predicted to cost.
pub fn estimate(
    degrees: Degrees,
    out: DirectionSets<'_>,
    wanted: DirectionSets<'_>,
    row_bytes: usize,
    packets: &PacketCurve,
) -> Design {
    let load = RankLoad::new(degrees.core_size(), degrees.folded(), parts_above(&degrees), [out, wanted]);
    load.price(degrees, row_bytes, packets)
}

/// Into how many parts the features are divided above each layer, and below the last.
fn parts_above(degrees: &Degrees) -> impl Iterator<Item = usize> {
    let products = degrees.layers().iter().scan(1, |product, degree| {
        *product *= degree;
        Some(*product)
    });
    core::iter::once(1).chain(products)
}

/// What a mean rank holds of the out- and the in-indices.
struct RankLoad {
    /// Ranks of the layers.
    core_size: usize,
    /// Ranks that are folded onto them.
    folded: usize,
    /// As the caller gave it.
    alone: [HeldRows; 2],
    /// Once the features are divided into so many parts.
    divided: BTreeMap<usize, [HeldRows; 2]>,
}

/// A part of the features, and how many rows of them a rank holds.
#[derive(Clone, Copy)]
struct HeldRows {
    density: f64,
    rows: f64,
}

impl RankLoad {
    /// Of `q` ranks to which `folded` others gave theirs.
    fn new(q: usize, folded: usize, parts: impl Iterator<Item = usize>, sets: [DirectionSets<'_>; 2]) -> RankLoad {
        let top_sets = top_sets(q, folded);
        let at = |parts: usize| (parts, sets.map(|sets| held(sets, top_sets, parts)));
        RankLoad { core_size: q, folded, alone: sets.map(|sets| held(sets, 1.0, 1)), divided: parts.map(at).collect() }
    }

    fn price(&self, degrees: Degrees, row_bytes: usize, packets: &PacketCurve) -> Design {
        let (core_size, folded) = (self.core_size, self.folded);
        let of = |degree: usize, set_count: f64, part_count: usize, holder_count: usize, held: [HeldRows; 2]| {
            let packet_count = degree - 1;
            // Who gives away a whole set gives it in one packet.
            let packet_part = if holder_count > core_size { 1 } else { degree };
            let [down, up] = held.map(|HeldRows { density, rows }| {
                let bytes = rows * row_bytes as f64;
                let packet_bytes = bytes / packet_part as f64;
                let seconds = packets.layer_s(packet_count, packet_bytes) + GAMMA_S_PER_BYTE * bytes;
                match packet_count {
                    0 => LayerFlow { density, rows, packet_bytes: 0.0, seconds: 0.0 },
                    _ => LayerFlow { density, rows, packet_bytes, seconds },
                }
            });
            LayerEstimate { degree, set_count, part_count, holder_count, packet_count, down, up }
        };
        let layer = |degree: usize, parts: usize| {
            of(degree, top_sets(core_size, folded) * parts as f64, parts, core_size, self.divided[&parts])
        };
        let fold = (folded > 0).then(|| of(2, 1.0, 1, core_size + folded, self.alone));
        let parts: Vec<usize> = parts_above(&degrees).collect();
        let layers = degrees.layers().iter().zip(&parts).map(|(&degree, &parts)| layer(degree, parts)).collect();
        Design { fold, layers, bottom: layer(1, parts[parts.len() - 1]), degrees }
    }
}

/// Ranks whose sets are united above the first layer, the mean.
fn top_sets(core_size: usize, folded: usize) -> f64 {
    (core_size + folded) as f64 / core_size as f64
}

/// What a rank holds of the union of `top_sets·parts` sets within `1/parts` of the features (eqs. 4 and 5).
fn held(sets: DirectionSets<'_>, top_sets: f64, parts: usize) -> HeldRows {
    let set_count = top_sets * parts as f64;
    let rows = sets.rows * sets.curve.growth(set_count) / parts as f64;
    HeldRows { density: sets.curve.density(set_count), rows }
}

#[cfg(test)]
mod tests;
