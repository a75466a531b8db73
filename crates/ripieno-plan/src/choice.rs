//! The choice: which algorithm runs when the caller names none.
//!
//! A rule of thumb: few rounds while messages are small, few bytes per rank once they are large. Every rank makes the
//! same choice, because it depends on nothing but the arguments.

use crate::catalogue::Algorithm;
use crate::group::Group;
use crate::request::Collective;

/// Up to here the number of rounds decides, beyond the number of bytes.
const SMALL_BYTES: usize = 16 << 10;
/// Two ranks exchange as many bytes by either algorithm, so one round wins until the halved reduction counts.
const PAIR_BYTES: usize = 256 << 10;
/// Up to this world size a link between every two ranks is cheap, and direct sending has the fewest hops.
const FULL_MESH_SIZE: usize = 8;
/// A chain is worth its fill time once every rank has a few segments' worth of bytes to forward.
const CHAIN_BYTES_PER_RANK: usize = 32 << 10;

/// The default algorithm of `collective` for `group` and a vector (all chunks together) of `bytes`.
///
/// | collective | up to 16 KiB | beyond |
/// |---|---|---|
/// | broadcast | binomial | chain from 32 KiB per rank, scatter-allgather below |
/// | reduce | binomial | chain from 32 KiB per rank, binomial below |
/// | allreduce | bidirectional-exchange | for p = 2 the same up to 256 KiB; regroup-allgather for p ≤ 8, else ring |
/// | allgather, reduce-scatter | direct | direct for p ≤ 8, else ring |
/// | gather, scatter | binomial | direct |
pub fn choose(collective: Collective, group: &Group, bytes: usize) -> &'static Algorithm {
    let p = group.size();
    let small = bytes <= SMALL_BYTES;
    let full_mesh = p <= FULL_MESH_SIZE;
    let long_chain = bytes >= p * CHAIN_BYTES_PER_RANK;
    let name = match collective {
        Collective::Broadcast if small => "binomial",
        Collective::Broadcast if long_chain => "chain",
        Collective::Broadcast => "scatter-allgather",
        Collective::Reduce if small || !long_chain => "binomial",
        Collective::Reduce => "chain",
        Collective::Allreduce if small || (p == 2 && bytes <= PAIR_BYTES) => "bidirectional-exchange",
        Collective::Allreduce if full_mesh => "regroup-allgather",
        Collective::Allreduce => "ring",
        Collective::Allgather | Collective::ReduceScatter if small || full_mesh => "direct",
        Collective::Allgather | Collective::ReduceScatter => "ring",
        Collective::Gather | Collective::Scatter if small => "binomial",
        Collective::Gather | Collective::Scatter => "direct",
        Collective::Alltoall | Collective::PointToPoint | Collective::Rotate | Collective::NeighbourExchange => {
            "direct"
        }
        Collective::Scan | Collective::Exscan => "chain",
        Collective::Barrier => "dissemination",
    };
    Algorithm::by_name(collective, name).expect("the rule names algorithms of the catalogue")
}
