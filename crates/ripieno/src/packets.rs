//! Measurement of packet costs: the time that a packet takes when all ranks send to different ranks at once.
//!
//! Every rank sends packets of one size to the next ranks around the ring, and receives equally many from the previous
//! ranks. A layer of a sparse reduction has the same pattern. A call with `m` packets takes `latency + m·T`; a call
//! with a single packet separates the two terms. An exchange between all ranks measures the additional cost of many
//! peers. Sizes grow until the time budget is used. A time is the maximum over ranks, so all ranks get the same curve.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section II.A, figure 2.

use crate::communicator::Communicator;
use crate::error::{Error, argument};
use crate::measuring::batch;
use ripieno_plan::Op;
use ripieno_plan::sparse::design::{PacketCurve, UNCONTENDED_PEER_COUNT};
use ripieno_run::Element;
use std::time::Duration;

/// Default packet sizes.
pub const SIZES_BYTES: [usize; 10] =
    [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// Maximum bytes that a rank sends in a call. It limits the number of peers for large packets.
const MAX_CALL_BYTES: usize = 16 << 20;
/// Size of each packet in an exchange between all ranks.
const CONGESTION_BYTES: usize = 1 << 10;
/// Maximum number of calls per size. The result is their median.
const MAX_CALL_COUNT: f64 = 101.0;

/// Measure packets of `sizes_bytes`, in ascending order, until about `budget` is used, but at least two sizes.
///
/// All ranks must call this. [`Communicator::keep_packets`] sets the result on a communicator.
pub fn measure(comm: &Communicator, sizes_bytes: &[usize], budget: Duration) -> Result<PacketCurve, Error> {
    if comm.world_size() == 1 {
        return Err(argument("world_size", 1, "at least 2: a single rank sends no packets"));
    }
    if sizes_bytes.len() < 2 || sizes_bytes[0] == 0 || !sizes_bytes.windows(2).all(|pair| pair[0] < pair[1]) {
        return Err(argument("sizes_bytes", format!("{sizes_bytes:?}"), "two or more positive sizes, ascending"));
    }
    let budget_s = budget.as_secs_f64();
    // One share for each size, one for the single packet, and one for the exchange between all ranks.
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
        // The measured latency may be noisy: assume that packets take at least half of a call.
        let packets_s = (seconds - latency_s).max(seconds / 2.0);
        (packets.bytes as f64, packets_s / packets.peer_count as f64)
    };
    let curve = PacketCurve::through(calls.iter().map(point).collect(), latency_s);
    let curve = curve.expect("sizes ascend and calls take time");
    let peer_count = comm.world_size() - 1;
    if peer_count <= UNCONTENDED_PEER_COUNT {
        return Ok(curve);
    }
    let (all_s, _) = timed(share_s, || all_ranks_exchange(comm))?;
    let excess_s = (all_s - curve.layer_s(peer_count, CONGESTION_BYTES as f64)).max(0.0);
    Ok(curve.with_contention(excess_s / (peer_count * (peer_count - UNCONTENDED_PEER_COUNT)) as f64))
}

/// Time an exchange between all ranks in seconds: each rank sends a packet to every other rank, which combines them.
fn all_ranks_exchange(comm: &Communicator) -> Result<f64, Error> {
    let p = comm.world_size();
    let (mut vector, counts) = (vec![0u8; p * CONGESTION_BYTES], vec![CONGESTION_BYTES; p]);
    batch(comm, 1, &mut |comm| comm.reduce_scatter(&mut vector, Element::U8, &counts, Op::Sum, Some("direct")))
}

/// Repeat `call` for about `budget_s`. Return the median and the total time of the calls in seconds, equal on all
/// ranks.
fn timed(budget_s: f64, mut call: impl FnMut() -> Result<f64, Error>) -> Result<(f64, f64), Error> {
    // The first call creates the plan and may open connections.
    call()?;
    let once_s = call()?;
    let call_count = (budget_s / once_s).min(MAX_CALL_COUNT) as usize;
    let more = (1..call_count).map(|_| call()).collect::<Result<Vec<_>, _>>()?;
    let mut seconds: Vec<f64> = std::iter::once(once_s).chain(more).collect();
    seconds.sort_by(f64::total_cmp);
    Ok((seconds[seconds.len() / 2], seconds.iter().sum()))
}

/// Return the latency of a call without its packets, from the times of calls with one and with several packets. Returns
/// 0 if the times do not determine it.
fn latency_s(single_s: f64, packet_count: usize, several_s: f64) -> f64 {
    if packet_count == 1 || several_s <= single_s {
        return 0.0;
    }
    let packet_s = (several_s - single_s) / (packet_count - 1) as f64;
    (single_s - packet_s).max(0.0)
}

/// The packets that every rank sends and receives in a call.
#[derive(Clone, Copy)]
struct Packets {
    bytes: usize,
    peer_count: usize,
}

impl Packets {
    fn to_many(comm: &Communicator, bytes: usize) -> Packets {
        Packets {
            bytes,
            peer_count: (comm.world_size() - 1).min(UNCONTENDED_PEER_COUNT).min((MAX_CALL_BYTES / bytes).max(1)),
        }
    }

    /// Time a call in seconds.
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
    fn the_latency_excludes_packets() {
        // A latency of 10, and 2 per packet.
        assert_eq!(latency_s(12.0, 8, 26.0), 10.0);
        // Calls with one packet, or calls that take no longer with several packets, do not determine a latency.
        assert_eq!([latency_s(12.0, 1, 12.0), latency_s(12.0, 8, 11.0)], [0.0; 2]);
        assert_eq!(latency_s(1.0, 3, 9.0), 0.0);
    }
}
