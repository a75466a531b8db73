//! Design: selection of the butterfly degrees for given data, ranks and links.
//!
//! [`by_packet`] is the rule of the paper: layer by layer it takes the largest degree with efficient packets.
//! [`candidates`] estimates every ordered factorization from the measured time of packets, and [`choose`] returns the
//! fastest. In a layer of degree `d`, a rank spends on the way down and again on the way up
//!
//! ```text
//! latency + (d-1)·(T(P/d) + contention) + gamma·P
//! ```
//!
//! where `P` is the number of bytes that it holds before the layer, by the density curve (eq. 5), and `T` is the packet
//! curve. The contention is 0 for few peers, see [`PacketCurve::with_contention`].
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, sections III.D and IV.

mod packets;

use super::Degrees;
use super::density::Curve;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
pub use packets::{EFFICIENT_SHARE, GAMMA_S_PER_BYTE, PacketCurve, UNCONTENDED_PEER_COUNT};

/// The sets of all ranks in one direction: out-indices on the way down, in-indices on the way up.
#[derive(Clone, Copy, Debug)]
pub struct DirectionSets<'a> {
    /// Densities of their unions. Only the shape of the curve matters, because `rows` gives the amount.
    pub curve: &'a Curve,
    /// Mean number of rows of a rank's set.
    pub rows: f64,
}

/// Mean traffic of a rank in one layer and direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerFlow {
    /// Fraction of its features that a rank holds above the layer, by the curve.
    pub density: f64,
    /// Number of rows that a rank holds above the layer.
    pub rows: f64,
    /// Size of the packet exchanged with each other member of the group, in bytes.
    pub packet_bytes: f64,
    /// Time of the layer in this direction, in seconds.
    pub seconds: f64,
}

/// Prediction for one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerEstimate {
    /// Members of a group: 1 below the last layer, where nothing is sent; 2 for folding.
    pub degree: usize,
    /// Number of ranks with sets united above the layer; the mean if ranks were folded.
    pub set_count: f64,
    /// Number of parts of the features above the layer. A rank holds one part.
    pub part_count: usize,
    /// Number of ranks that hold a part: all ranks, or all except the folded ones.
    pub holder_count: usize,
    /// Number of packets that a rank sends in each direction.
    pub packet_count: usize,
    /// Traffic of the out-indices, on the way down.
    pub down: LayerFlow,
    /// Traffic of the in-indices, on the way up.
    pub up: LayerFlow,
}

/// Degrees with their predicted cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    /// The degrees.
    pub degrees: Degrees,
    /// Traffic of the folded ranks, if any.
    pub fold: Option<LayerEstimate>,
    /// The layers from the top.
    pub layers: Vec<LayerEstimate>,
    /// The rows that ranks hold below the last layer.
    pub bottom: LayerEstimate,
}

impl Design {
    /// Return the time of a reduction, down and up, in seconds.
    pub fn seconds(&self) -> f64 {
        self.fold.iter().chain(&self.layers).map(|layer| layer.down.seconds + layer.up.seconds).sum()
    }

    /// Return the bytes that a rank sends to other ranks in a reduction, down and up.
    pub fn sent_bytes(&self) -> f64 {
        let sent =
            |layer: &LayerEstimate| layer.packet_count as f64 * (layer.down.packet_bytes + layer.up.packet_bytes);
        self.fold.iter().chain(&self.layers).map(sent).sum()
    }
}

/// Return the degrees by the rule of section IV. A rank holds `sets.rows` rows of `row_bytes` each.
///
/// From the top, each layer gets the largest divisor of the remaining number of ranks with packets of at least
/// `min_packet_bytes`. If no divisor has such packets, no later layer will have them either. Then the layer gets the
/// smallest prime factor, which sends the fewest packets. A number of ranks with a prime factor above 7 is folded to
/// the next smaller number without one ([`Degrees::smooth`]). Exception: if a single direct layer has efficient
/// packets, it is used.
pub fn by_packet(p: usize, sets: DirectionSets<'_>, row_bytes: usize, min_packet_bytes: f64) -> Degrees {
    let top_bytes = sets.rows * row_bytes as f64;
    if p > 1 && top_bytes / p as f64 >= min_packet_bytes {
        return Degrees::direct(p);
    }
    let smooth = Degrees::smooth(p);
    let mut remaining = smooth.core_size();
    let top_sets = top_sets(remaining, smooth.folded());
    let (mut layers, mut parts) = (Vec::new(), 1);
    while remaining > 1 {
        let held_bytes = held(sets, top_sets, parts).rows * row_bytes as f64;
        let efficient = |d: usize| held_bytes / d as f64 >= min_packet_bytes;
        let divisors = || (2..=remaining).filter(|d| remaining.is_multiple_of(*d));
        let degree =
            divisors().rfind(|&d| efficient(d)).or_else(|| divisors().next()).expect("a number divides itself");
        layers.push(degree);
        parts *= degree;
        remaining /= degree;
    }
    Degrees::new(layers, smooth.folded()).expect("the layers are factors of the number of ranks")
}

/// Return the fastest degrees for out- and in-sets with rows of `row_bytes` on links with this packet curve.
pub fn choose(
    p: usize,
    out_sets: DirectionSets<'_>,
    in_sets: DirectionSets<'_>,
    row_bytes: usize,
    packets: &PacketCurve,
) -> Design {
    candidates(p, out_sets, in_sets, row_bytes, packets).swap_remove(0)
}

/// Return the estimates of all ordered factorizations of `p`, and of the number that [`Degrees::smooth`] folds it to.
/// The fastest is first. Ties go to fewer layers, then to larger degrees at the top.
pub fn candidates(
    p: usize,
    out_sets: DirectionSets<'_>,
    in_sets: DirectionSets<'_>,
    row_bytes: usize,
    packets: &PacketCurve,
) -> Vec<Design> {
    let mut designs = Vec::new();
    for all in [Degrees::all(p), Degrees::all_smooth(p)] {
        let (q, folded) = (all[0].core_size(), all[0].folded());
        // For a smooth number both lists are equal.
        if folded > 0 || designs.is_empty() {
            let load = RankLoad::new(q, folded, (1..=q).filter(|parts| q.is_multiple_of(*parts)), [out_sets, in_sets]);
            designs.extend(all.into_iter().map(|degrees| load.estimate(degrees, row_bytes, packets)));
        }
    }
    designs.sort_by(|a, b| {
        let by_time = a.seconds().total_cmp(&b.seconds());
        let (a, b) = (a.degrees.layers(), b.degrees.layers());
        by_time.then(a.len().cmp(&b.len())).then(b.cmp(a))
    });
    designs
}

/// Predict the cost of these degrees.
pub fn estimate(
    degrees: Degrees,
    out_sets: DirectionSets<'_>,
    in_sets: DirectionSets<'_>,
    row_bytes: usize,
    packets: &PacketCurve,
) -> Design {
    let load = RankLoad::new(degrees.core_size(), degrees.folded(), parts_above(&degrees), [out_sets, in_sets]);
    load.estimate(degrees, row_bytes, packets)
}

/// Iterate over the number of parts of the features above each layer, and below the last layer.
fn parts_above(degrees: &Degrees) -> impl Iterator<Item = usize> {
    let products = degrees.layers().iter().scan(1, |product, degree| {
        *product *= degree;
        Some(*product)
    });
    core::iter::once(1).chain(products)
}

/// Out- and in-rows that a mean rank holds.
struct RankLoad {
    /// Number of ranks in the layers.
    core_size: usize,
    /// Number of folded ranks.
    folded: usize,
    /// Rows of a rank before folding.
    before_folding: [HeldRows; 2],
    /// Rows by the number of parts of the features.
    by_part_count: BTreeMap<usize, [HeldRows; 2]>,
}

/// Density of a part of the features, and the number of its rows that a rank holds.
#[derive(Clone, Copy)]
struct HeldRows {
    density: f64,
    rows: f64,
}

impl RankLoad {
    /// Compute the load of `q` ranks onto which `folded` other ranks are folded.
    fn new(q: usize, folded: usize, parts: impl Iterator<Item = usize>, sets: [DirectionSets<'_>; 2]) -> RankLoad {
        let top_sets = top_sets(q, folded);
        let at = |parts: usize| (parts, sets.map(|sets| held(sets, top_sets, parts)));
        RankLoad {
            core_size: q,
            folded,
            before_folding: sets.map(|sets| held(sets, 1.0, 1)),
            by_part_count: parts.map(at).collect(),
        }
    }

    fn estimate(&self, degrees: Degrees, row_bytes: usize, packets: &PacketCurve) -> Design {
        let (core_size, folded) = (self.core_size, self.folded);
        let layer_of = |degree: usize, set_count: f64, part_count: usize, holder_count: usize, held: [HeldRows; 2]| {
            let packet_count = degree - 1;
            // A folded rank sends its whole set in one packet.
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
            layer_of(degree, top_sets(core_size, folded) * parts as f64, parts, core_size, self.by_part_count[&parts])
        };
        let fold = (folded > 0).then(|| layer_of(2, 1.0, 1, core_size + folded, self.before_folding));
        let parts: Vec<usize> = parts_above(&degrees).collect();
        let layers = degrees.layers().iter().zip(&parts).map(|(&degree, &parts)| layer(degree, parts)).collect();
        Design { fold, layers, bottom: layer(1, parts[parts.len() - 1]), degrees }
    }
}

/// Return the mean number of sets united above the first layer.
fn top_sets(core_size: usize, folded: usize) -> f64 {
    (core_size + folded) as f64 / core_size as f64
}

/// Return the rows that a rank holds of the union of `top_sets·parts` sets within `1/parts` of the features (eqs. 4 and
/// 5).
fn held(sets: DirectionSets<'_>, top_sets: f64, parts: usize) -> HeldRows {
    let set_count = top_sets * parts as f64;
    let rows = sets.rows * sets.curve.growth(set_count) / parts as f64;
    HeldRows { density: sets.curve.density(set_count), rows }
}

#[cfg(test)]
mod tests;
