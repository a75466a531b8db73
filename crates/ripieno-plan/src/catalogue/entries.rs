//! The entries of the catalogue.

use super::{Algorithm, Needs, Planner};
use crate::algorithms::{
    allgather, allreduce, alltoall, barrier, broadcast, exscan, gather, neighbour_exchange, point_to_point, reduce,
    reduce_scatter, rotate, scan, scatter,
};

const HARP: &str = "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I";
const TWISTER: &str = "Zhang and Qiu, \"Clustering social images with MapReduce and high performance collective \
                       communication\" (Twister), section 4";
const MPICH: &str = "Thakur et al., \"Optimization of collective communication operations in MPICH\", IJHPCA 2005";
const RING: &str = "Patarasuk and Yuan, \"Bandwidth optimal all-reduce algorithms\", JPDC 2009";
const POSTAL: &str = "Bar-Noy and Kipnis, \"Designing broadcasting algorithms in the postal model for message-passing \
                      systems\", SPAA 1992";
const BINARY: &str =
    "Pješivac-Grbović et al., \"Performance analysis of MPI collective operations\", Cluster Computing 2007";
const TWO_TREES: &str = "Sanders, Speck, Träff, \"Two-tree algorithms for full bandwidth broadcast, reduction and scan\", \
                         Parallel Computing 2009";
const RABENSEIFNER: &str = "Rabenseifner, \"Optimization of collective reduction operations\", ICCS 2004";
const BRUCK: &str = "Bruck et al., \"Efficient algorithms for all-to-all communications in multiport message-passing \
                     systems\", TPDS 1997";
const CHEN: &str = "Chen, Zhang, Zhang, Yuan, \"Performance evaluation of allgather algorithms on terascale Linux cluster \
                    with fast Ethernet\", HPC Asia 2005";
const HILLIS: &str = "Hillis and Steele, \"Data parallel algorithms\", CACM 1986";
const ARRIVALS: &str = "Mellor-Crummey and Scott, \"Algorithms for scalable synchronization on shared-memory \
                        multiprocessors\", TOCS 1991";
const BLELLOCH: &str = "Blelloch, \"Prefix sums and their applications\", CMU-CS-90-190, 1990";
const BARRIER: &str = "Hensgen, Finkel, Manber, \"Two algorithms for barrier synchronization\", IJPP 1988";

const SPIDAL: &str = "Ekanayake et al., \"Java thread and process performance for parallel machine learning on \
                      multicore HPC clusters\", IEEE Big Data 2016, section III.C";

/// The index of "two-level" in every collective that has it.
const TWO_LEVEL: u8 = 31;
/// It is as good as what it is made of.
const OF_BOTH_LEVELS: &str = "inside a node + between nodes, each as chosen";

const fn entry(name: &'static str, index: u8, planner: Planner, cost: &'static str, source: &'static str) -> Algorithm {
    Algorithm { name, index, cost, source, planner, is_ordered: false, needs: Needs::Nothing, rendezvous: true }
}

/// Every algorithm, ordered by collective and index. New ones are added with the next free index.
#[rustfmt::skip]
pub static ALGORITHMS: &[Algorithm] = {
    use Planner::*;
    &[
        entry("flat", 0, Broadcast(broadcast::flat::plan), "(p-1)·(alpha + n·beta)", TWISTER),
        entry("binomial", 1, Broadcast(broadcast::binomial::plan), "ceil(log2 p)·(alpha + n·beta)", TWISTER).ordered(),
        entry("scatter-allgather", 2, Broadcast(broadcast::scatter_allgather::plan),
            "(ceil(log2 p) + p-1)·alpha + 2(p-1)/p·n·beta", TWISTER).ordered(),
        entry("chain", 3, Broadcast(broadcast::chain::plan), "(p-2+k)·(alpha + n/k·beta), k segments", TWISTER).ordered(),
        entry("k-nomial", 4, Broadcast(broadcast::knomial::plan),
            "3·ceil(log4 p)·(alpha + n·beta) at most", POSTAL).ordered(),
        entry("binary", 5, Broadcast(broadcast::binary::plan),
            "2(floor(log2 p) - 1 + k)·(alpha + n/k·beta) at most, k segments", BINARY).ordered(),
        entry("double-tree", 6, Broadcast(broadcast::double_tree::plan),
            "about (2·log2 p + k)·(alpha + n/k·beta), k segments", TWO_TREES).ordered(),
        entry("two-level", TWO_LEVEL, Broadcast(broadcast::two_level::plan), OF_BOTH_LEVELS, SPIDAL),
        entry("binomial", 0, Reduce(reduce::binomial::plan), "ceil(log2 p)·(alpha + n·beta + n·gamma)", MPICH).ordered(),
        entry("chain", 1, Reduce(reduce::chain::plan), "(p-2+k)·(alpha + n/k·beta + n/k·gamma), k segments", TWISTER).ordered(),
        entry("k-nomial", 2, Reduce(reduce::knomial::plan),
            "3·ceil(log4 p)·(alpha + n·beta + n·gamma) at most", POSTAL).ordered(),
        entry("binary", 3, Reduce(reduce::binary::plan),
            "2(floor(log2 p) - 1 + k)·(alpha + n/k·beta + n/k·gamma) at most, k segments", BINARY).ordered(),
        entry("double-tree", 4, Reduce(reduce::double_tree::plan),
            "about (2·log2 p + k)·(alpha + n/k·beta + n/k·gamma), k segments", TWO_TREES).ordered(),
        entry("reduce-scatter-gather", 5, Reduce(reduce::reduce_scatter_gather::plan),
            "2·ceil(log2 p)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma", RABENSEIFNER).ordered(),
        entry("two-level", TWO_LEVEL, Reduce(reduce::two_level::plan), OF_BOTH_LEVELS, SPIDAL),
        entry("bidirectional-exchange", 0, Allreduce(allreduce::bidirectional_exchange::plan),
            "log2 p·(alpha + n·beta + n·gamma)", HARP).ordered().buffered(),
        entry("regroup-allgather", 1, Allreduce(allreduce::regroup_allgather::plan),
            "2(p-1)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma", HARP),
        entry("ring", 2, Allreduce(allreduce::ring::plan),
            "2(p-1)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma", RING).ordered(),
        entry("halving-doubling", 3, Allreduce(allreduce::halving_doubling::plan),
            "2·ceil(log2 p)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma", RABENSEIFNER).ordered(),
        entry("tree", 4, Allreduce(allreduce::tree::plan),
            "3·ceil(log4 p)·(2·alpha + 2·n·beta + n·gamma) at most", POSTAL).ordered(),
        entry("one-round", 5, Allreduce(allreduce::one_round::plan), "(p-1)·(alpha + n·beta + n·gamma) at most", HARP),
        entry("double-tree", 6, Allreduce(allreduce::double_tree::plan),
            "about (4·log2 p + 2k)·(alpha + n/k·beta) + (2·log2 p + k)·n/k·gamma, k segments", TWO_TREES).ordered(),
        entry("two-level", TWO_LEVEL, Allreduce(allreduce::two_level::plan), OF_BOTH_LEVELS, SPIDAL).buffered(),
        entry("ring", 0, Allgather(allgather::ring::plan), "(p-1)·alpha + (p-1)/p·n·beta", HARP).ordered(),
        entry("direct", 1, Allgather(allgather::direct::plan), "(p-1)·alpha + (p-1)/p·n·beta", HARP),
        entry("bruck", 2, Allgather(allgather::bruck::plan), "ceil(log2 p)·alpha + (p-1)/p·n·beta", BRUCK),
        entry("recursive-doubling", 3, Allgather(allgather::recursive_doubling::plan),
            "ceil(log2 p)·alpha + (p-1)/p·n·beta", MPICH),
        entry("neighbour-exchange", 4, Allgather(allgather::neighbour_exchange::plan),
            "p/2·alpha + (p-1)/p·n·beta", CHEN).needing(Needs::EvenWorld),
        entry("two-level", TWO_LEVEL, Allgather(allgather::two_level::plan), OF_BOTH_LEVELS, SPIDAL),
        entry("ring", 0, ReduceScatter(reduce_scatter::ring::plan),
            "(p-1)·alpha + (p-1)/p·n·beta + (p-1)/p·n·gamma", RING).ordered(),
        entry("direct", 1, ReduceScatter(reduce_scatter::direct::plan),
            "(p-1)·alpha + (p-1)/p·n·beta + (p-1)/p·n·gamma", HARP),
        entry("halving", 2, ReduceScatter(reduce_scatter::halving::plan),
            "ceil(log2 p)·alpha + (p-1)/p·n·beta + (p-1)/p·n·gamma", MPICH),
        entry("two-level", TWO_LEVEL, ReduceScatter(reduce_scatter::two_level::plan), OF_BOTH_LEVELS, SPIDAL),
        entry("direct", 0, Gather(gather::direct::plan), "(p-1)·alpha + (p-1)/p·n·beta", MPICH),
        entry("binomial", 1, Gather(gather::binomial::plan), "ceil(log2 p)·alpha + (p-1)/p·n·beta", MPICH),
        entry("direct", 0, Scatter(scatter::direct::plan), "(p-1)·alpha + (p-1)/p·n·beta", MPICH),
        entry("binomial", 1, Scatter(scatter::binomial::plan), "ceil(log2 p)·alpha + (p-1)/p·n·beta", MPICH),
        entry("direct", 0, Alltoall(alltoall::direct::plan), "(p-1)·alpha + (p-1)/p·n·beta", HARP),
        entry("bruck", 1, Alltoall(alltoall::bruck::plan), "ceil(log2 p)·(alpha + n/2·beta)", BRUCK)
            .needing(Needs::EqualChunks),
        entry("pairwise", 2, Alltoall(alltoall::pairwise::plan), "(p-1)·alpha + (p-1)/p·n·beta", MPICH),
        entry("dissemination", 0, Barrier(barrier::dissemination::plan), "ceil(log2 p)·alpha", BARRIER).buffered(),
        entry("tree", 1, Barrier(barrier::tree::plan), "6·ceil(log4 p)·alpha at most", ARRIVALS),
        entry("two-level", TWO_LEVEL, Barrier(barrier::two_level::plan), OF_BOTH_LEVELS, SPIDAL).buffered(),
        entry("direct", 0, PointToPoint(point_to_point::plan), "alpha + n·beta", HARP),
        entry("chain", 0, Scan(scan::chain::plan), "(p-2+k)·(alpha + n/k·beta + n/k·gamma), k segments", BLELLOCH),
        entry("recursive-doubling", 1, Scan(scan::recursive_doubling::plan),
            "ceil(log2 p)·(alpha + n·beta + n·gamma)", HILLIS),
        entry("chain", 0, Exscan(exscan::chain::plan), "(p-2+k)·(alpha + n/k·beta + n/k·gamma), k segments", BLELLOCH),
        entry("recursive-doubling", 1, Exscan(exscan::recursive_doubling::plan),
            "ceil(log2 p)·(alpha + n·beta + 2·n·gamma) at most", HILLIS),
        entry("direct", 0, Rotate(rotate::plan), "alpha + n·beta", HARP),
        entry("direct", 0, NeighbourExchange(neighbour_exchange::plan), "d·alpha + n·beta, d neighbours", HARP),
    ]
};
