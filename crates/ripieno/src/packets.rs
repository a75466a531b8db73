//! Packets, measured: how long one keeps a rank when all ranks send some to different ranks at once.
//!
//! Every rank sends packets of one size to the ranks after it around the ring, and gets as many from those before it: what
//! a layer of a sparse reduction does. Sizes grow until the time is used up. A time is the slowest rank's, so all ranks
//! hold the same curve.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section II.A, figure 2.

use crate::communicator::Communicator;
use crate::error::{Error, argument};
use crate::measuring::batch;
use ripieno_plan::sparse::design::PacketCurve;
use ripieno_run::Element;
use std::time::Duration;

/// Sizes that are tried if nobody names others.
pub const SIZES_BYTES: [usize; 10] =
    [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// Packets that a rank sends in a call: to so many peers, or fewer where packets are large.
const MOST_PEERS: usize = 8;
const MOST_BYTES: usize = 16 << 20;
/// Batches of calls per size, of which the median counts.
const BATCH_COUNT: usize = 5;
const MOST_CALLS_OF_BATCH: f64 = 1000.0;

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
    // Opens the connections.
    Packets::to_many(comm, sizes_bytes[0]).exchange(comm, 1)?;
    let share_s = budget_s / (sizes_bytes.len() + 1) as f64;
    let (single_s, mut spent_s) = Packets { bytes: sizes_bytes[0], peer_count: 1 }.timed(comm, share_s)?;
    let mut points = Vec::new();
    for (index, &bytes) in sizes_bytes.iter().enumerate() {
        let packets = Packets::to_many(comm, bytes);
        let left_s = (budget_s - spent_s).max(0.0);
        let (seconds, took_s) = packets.timed(comm, left_s / (sizes_bytes.len() - index) as f64)?;
        spent_s += took_s;
        points.push((bytes as f64, seconds / packets.peer_count as f64));
        let next_s = sizes_bytes.get(index + 1).map(|&next| seconds * next as f64 / bytes as f64);
        if index > 0 && next_s.is_some_and(|next_s| spent_s + next_s > budget_s) {
            break;
        }
    }
    let latency_s = (single_s - points[0].1).max(0.0);
    Ok(PacketCurve::through(points, latency_s).expect("sizes ascend and calls take time"))
}

/// What every rank sends in a call, and gets.
#[derive(Clone, Copy)]
struct Packets {
    bytes: usize,
    peer_count: usize,
}

impl Packets {
    fn to_many(comm: &Communicator, bytes: usize) -> Packets {
        Packets { bytes, peer_count: (comm.world_size() - 1).min(MOST_PEERS).min((MOST_BYTES / bytes).max(1)) }
    }

    /// Seconds of a call, and of measuring them for about `budget_s`; the same on all ranks.
    fn timed(self, comm: &Communicator, budget_s: f64) -> Result<(f64, f64), Error> {
        let once_s = self.exchange(comm, 1)?;
        let call_count = (budget_s / BATCH_COUNT as f64 / once_s).min(MOST_CALLS_OF_BATCH) as usize;
        if call_count == 0 {
            return Ok((once_s, once_s));
        }
        let batches = (0..BATCH_COUNT).map(|_| self.exchange(comm, call_count));
        let mut seconds = batches.collect::<Result<Vec<_>, _>>()?;
        seconds.sort_by(f64::total_cmp);
        Ok((seconds[BATCH_COUNT / 2], once_s + call_count as f64 * seconds.iter().sum::<f64>()))
    }

    /// Seconds per call of so many after each other.
    fn exchange(self, comm: &Communicator, call_count: usize) -> Result<f64, Error> {
        let Packets { bytes, peer_count } = self;
        let (rank, p) = (comm.rank(), comm.world_size());
        let (out, mut into) = (vec![1u8; peer_count * bytes], vec![0u8; peer_count * bytes]);
        let out_peers: Vec<_> = (1..=peer_count).map(|distance| ((rank + distance) % p, bytes)).collect();
        let in_peers: Vec<_> = (1..=peer_count).map(|distance| ((rank + p - distance) % p, bytes)).collect();
        batch(comm, call_count, &mut |comm| {
            comm.neighbour_exchange(&out, &out_peers, &mut into, &in_peers, Element::U8, None)
        })
    }
}
