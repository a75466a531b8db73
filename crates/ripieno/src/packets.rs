//! Packets, measured: how long one keeps a rank when all ranks send some to different ranks at once.
//!
//! Every rank sends packets of one size to the ranks after it around the ring, and gets as many from those before it:
//! what a layer of a sparse reduction does, and as there all begin together. A call with `m` packets takes `latency +
//! m·T`; one with a single packet tells these apart. What many peers add is told by one in which all send to all. RegroupSizes
//! grow until the time is used up. A time is the slowest rank's, so all ranks hold the same curve.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section II.A, figure 2.

use crate::communicator::Communicator;
use crate::error::{Error, argument};
use crate::measuring::batch;
use ripieno_plan::Op;
use ripieno_plan::sparse::design::{FEW_PEERS, PacketCurve};
use ripieno_run::Element;
use std::time::Duration;

/// Sizes that are tried if nobody names others.
pub const SIZES_BYTES: [usize; 10] =
    [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// Bytes that a rank sends in a call, to a few peers, or to fewer where packets are large.
const MOST_BYTES: usize = 16 << 20;
/// Bytes of each packet of a call of all ranks.
const CROWD_BYTES: usize = 1 << 10;
/// Calls per size, of which the median counts.
const MOST_CALLS: f64 = 101.0;

/// Measures packets of `sizes_bytes`, ascending, until about `budget` is used; two sizes at least. Collective.
///
/// A communicator keeps the curve with [`Communicator::keep_packets`].
pub fn measure(comm: &Communicator, sizes_bytes: &[usize], budget: Duration) -> Result<PacketCurve, Error> {
    if comm.world_size() == 1 {
        return Err(argument("world_size", 1, "at least 2: a single rank sends no packets"));
    }
    if sizes_bytes.len() < 2 || sizes_bytes[0] == 0 || !sizes_bytes.windows(2).all(|pair| pair[0] < pair[1]) {
        return Err(argument("sizes_bytes", format!("{sizes_bytes:?}"), "two or more positive sizes, ascending"));
    }
    let budget_s = budget.as_secs_f64();
    // One share for each size, one for a single packet, one for all ranks at once.
    let share_s = budget_s / (sizes_bytes.len() + 2) as f64;
    let single = Packets { bytes: sizes_bytes[0], peer_count: 1 };
    let (single_s, mut spent_s) = timed(share_s, || single.exchange(comm))?;
    let mut calls: Vec<(Packets, f64)> = Vec::new();
    for (index, &bytes) in sizes_bytes.iter().enumerate() {
        let packets = Packets::to_many(comm, bytes);
        let left_s = (budget_s - spent_s).max(0.0);
        let share_s = left_s / (sizes_bytes.len() - index) as f64;
        let (seconds, took_s) = timed(share_s, || packets.exchange(comm))?;
        spent_s += took_s;
        calls.push((packets, seconds));
        let next_s = sizes_bytes.get(index + 1).map(|&next| seconds * next as f64 / bytes as f64);
        if index > 0 && next_s.is_some_and(|next_s| spent_s + next_s > budget_s) {
            break;
        }
    }
    let latency_s = latency_s(single_s, calls[0].0.peer_count, calls[0].1);
    let point = |(packets, seconds): &(Packets, f64)| {
        // However noisy the latency, packets are never free: half of a call is theirs.
        let packets_s = (seconds - latency_s).max(seconds / 2.0);
        (packets.bytes as f64, packets_s / packets.peer_count as f64)
    };
    let curve = PacketCurve::through(calls.iter().map(point).collect(), latency_s);
    let curve = curve.expect("sizes ascend and calls take time");
    let peer_count = comm.world_size() - 1;
    if peer_count <= FEW_PEERS {
        return Ok(curve);
    }
    let (all_s, _) = timed(share_s, || everybody(comm))?;
    let excess_s = (all_s - curve.layer_s(peer_count, CROWD_BYTES as f64)).max(0.0);
    Ok(curve.crowded(excess_s / (peer_count * (peer_count - FEW_PEERS)) as f64))
}

/// Seconds of a call in which every rank sends a packet to every other, which combines them: a layer of all ranks.
fn everybody(comm: &Communicator) -> Result<f64, Error> {
    let p = comm.world_size();
    let (mut vector, counts) = (vec![0u8; p * CROWD_BYTES], vec![CROWD_BYTES; p]);
    batch(comm, 1, &mut |comm| comm.reduce_scatter(&mut vector, Element::U8, &counts, Op::Sum, Some("direct")))
}

/// Seconds of a call, the median, and of measuring them for about `budget_s`; the same on all ranks.
fn timed(budget_s: f64, mut call: impl FnMut() -> Result<f64, Error>) -> Result<(f64, f64), Error> {
    // The first call plans, and may open connections.
    call()?;
    let once_s = call()?;
    let call_count = (budget_s / once_s).min(MOST_CALLS) as usize;
    let more = (1..call_count).map(|_| call()).collect::<Result<Vec<_>, _>>()?;
    let mut seconds: Vec<f64> = std::iter::once(once_s).chain(more).collect();
    seconds.sort_by(f64::total_cmp);
    Ok((seconds[seconds.len() / 2], seconds.iter().sum()))
}

/// What a call takes beside its packets, by one with a single packet and one with several; none where that cannot be
/// told.
fn latency_s(single_s: f64, packet_count: usize, several_s: f64) -> f64 {
    if packet_count == 1 || several_s <= single_s {
        return 0.0;
    }
    let packet_s = (several_s - single_s) / (packet_count - 1) as f64;
    (single_s - packet_s).max(0.0)
}

/// What every rank sends in a call, and gets.
#[derive(Clone, Copy)]
struct Packets {
    bytes: usize,
    peer_count: usize,
}

impl Packets {
    fn to_many(comm: &Communicator, bytes: usize) -> Packets {
        Packets { bytes, peer_count: (comm.world_size() - 1).min(FEW_PEERS).min((MOST_BYTES / bytes).max(1)) }
    }

    /// Seconds of a call.
    fn exchange(self, comm: &Communicator) -> Result<f64, Error> {
        let Packets { bytes, peer_count } = self;
        let (rank, p) = (comm.rank(), comm.world_size());
        let (out, mut into) = (vec![1u8; peer_count * bytes], vec![0u8; peer_count * bytes]);
        let out_peers: Vec<_> = (1..=peer_count).map(|distance| ((rank + distance) % p, bytes)).collect();
        let in_peers: Vec<_> = (1..=peer_count).map(|distance| ((rank + p - distance) % p, bytes)).collect();
        batch(comm, 1, &mut |comm| comm.neighbour_exchange(&out, &out_peers, &mut into, &in_peers, Element::U8, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_is_what_no_packet_adds() {
        // 10 and then 2 per packet.
        assert_eq!(latency_s(12.0, 8, 26.0), 10.0);
        // One packet tells nothing, nor do several that took no longer.
        assert_eq!([latency_s(12.0, 1, 12.0), latency_s(12.0, 8, 11.0)], [0.0; 2]);
        assert_eq!(latency_s(1.0, 3, 9.0), 0.0);
    }
}
