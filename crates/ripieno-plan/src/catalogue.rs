//! The catalogue: the one list of all algorithms.
//!
//! An algorithm that stands here is known to users by its name, to peers by its index, and to the laws in `tests/`,
//! which run it for every world size and root.

use crate::algorithms::{
    allgather, allreduce, alltoall, barrier, broadcast, exscan, gather, neighbour_exchange, point_to_point, reduce,
    reduce_scatter, rotate, scan, scatter,
};
use crate::order::in_order;
use crate::request::{Collective, PeerSpan, Request};
use crate::{Group, Op, Plan, Span};
use alloc::vec::Vec;

/// The `plan` function of an algorithm; the variant is its collective.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Planner {
    Broadcast(fn(&Group, usize, Span) -> Plan),
    Reduce(fn(&Group, usize, Span, Op) -> Plan),
    Allreduce(fn(&Group, Span, Op) -> Plan),
    Allgather(fn(&Group, &[Span]) -> Plan),
    ReduceScatter(fn(&Group, &[Span], Op) -> Plan),
    Gather(fn(&Group, usize, &[Span]) -> Plan),
    Scatter(fn(&Group, usize, &[Span]) -> Plan),
    Alltoall(fn(&Group, &[Span], &[Span]) -> Plan),
    Barrier(fn(&Group, Span) -> Plan),
    PointToPoint(fn(&Group, usize, usize, Span) -> Plan),
    Scan(fn(&Group, Span, Op) -> Plan),
    Exscan(fn(&Group, Span, Op) -> Plan),
    Rotate(fn(&Group, usize, Span, Span) -> Plan),
    NeighbourExchange(fn(&Group, &[PeerSpan], &[PeerSpan]) -> Plan),
}

/// One algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// The name that users know, unique within the collective.
    pub name: &'static str,
    /// The number that travels between ranks, unique within the collective; never given to another algorithm.
    pub index: u8,
    /// Cost, as in the header of the algorithm's file.
    pub cost: &'static str,
    /// Who described it.
    pub source: &'static str,
    /// How to make its plans.
    pub planner: Planner,
    /// Whether its ranks stand in the group's [`Order`](crate::Order): chains, rings, and trees over them.
    pub is_ordered: bool,
}

impl Algorithm {
    /// The algorithm of `collective` with this name.
    pub fn by_name(collective: Collective, name: &str) -> Option<&'static Algorithm> {
        Algorithm::of(collective).find(|algorithm| algorithm.name == name)
    }

    /// The algorithm of `collective` with this index.
    pub fn by_index(collective: Collective, index: u8) -> Option<&'static Algorithm> {
        Algorithm::of(collective).find(|algorithm| algorithm.index == index)
    }

    /// All algorithms of `collective`.
    pub fn of(collective: Collective) -> impl Iterator<Item = &'static Algorithm> {
        ALGORITHMS.iter().filter(move |algorithm| algorithm.collective() == collective)
    }

    /// Which collective it performs.
    pub const fn collective(&self) -> Collective {
        match self.planner {
            Planner::Broadcast(_) => Collective::Broadcast,
            Planner::Reduce(_) => Collective::Reduce,
            Planner::Allreduce(_) => Collective::Allreduce,
            Planner::Allgather(_) => Collective::Allgather,
            Planner::ReduceScatter(_) => Collective::ReduceScatter,
            Planner::Gather(_) => Collective::Gather,
            Planner::Scatter(_) => Collective::Scatter,
            Planner::Alltoall(_) => Collective::Alltoall,
            Planner::Barrier(_) => Collective::Barrier,
            Planner::PointToPoint(_) => Collective::PointToPoint,
            Planner::Scan(_) => Collective::Scan,
            Planner::Exscan(_) => Collective::Exscan,
            Planner::Rotate(_) => Collective::Rotate,
            Planner::NeighbourExchange(_) => Collective::NeighbourExchange,
        }
    }

    /// All ranks' plans; `requests` has what each rank asks for.
    pub fn plans(&self, requests: &[Request]) -> Vec<Plan> {
        let plan = |(rank, request)| self.plan(&Group::new(rank, requests.len()), request);
        requests.iter().enumerate().map(plan).collect()
    }

    /// This rank's plan for `request`, which asks for this algorithm's collective.
    pub fn plan(&self, group: &Group, request: &Request) -> Plan {
        match self.is_ordered {
            true => in_order(group, request, |group, request| self.plan_by_rank(group, request)),
            false => self.plan_by_rank(group, request),
        }
    }

    fn plan_by_rank(&self, group: &Group, request: &Request) -> Plan {
        match (self.planner, *request) {
            (Planner::Broadcast(plan), Request::Broadcast { root, vector }) => plan(group, root, vector),
            (Planner::Reduce(plan), Request::Reduce { root, vector, op }) => plan(group, root, vector, op),
            (Planner::Allreduce(plan), Request::Allreduce { vector, op }) => plan(group, vector, op),
            (Planner::Allgather(plan), Request::Allgather { chunks }) => plan(group, chunks),
            (Planner::ReduceScatter(plan), Request::ReduceScatter { chunks, op }) => plan(group, chunks, op),
            (Planner::Gather(plan), Request::Gather { root, chunks }) => plan(group, root, chunks),
            (Planner::Scatter(plan), Request::Scatter { root, chunks }) => plan(group, root, chunks),
            (Planner::Alltoall(plan), Request::Alltoall { out_chunks, in_chunks }) => {
                plan(group, out_chunks, in_chunks)
            }
            (Planner::Barrier(plan), Request::Barrier { token }) => plan(group, token),
            (Planner::PointToPoint(plan), Request::PointToPoint { from, to, vector }) => plan(group, from, to, vector),
            (Planner::Scan(plan), Request::Scan { vector, op }) => plan(group, vector, op),
            (Planner::Exscan(plan), Request::Exscan { vector, op }) => plan(group, vector, op),
            (Planner::Rotate(plan), Request::Rotate { distance, out, into }) => plan(group, distance, out, into),
            (Planner::NeighbourExchange(plan), Request::NeighbourExchange { out, into }) => plan(group, out, into),
            _ => panic!("{} is an algorithm for {}", self.name, self.collective().name()),
        }
    }
}

const HARP: &str = "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I";
const TWISTER: &str = "Zhang and Qiu, \"Clustering social images with MapReduce and high performance collective \
                       communication\" (Twister), section 4";
const MPICH: &str = "Thakur et al., \"Optimization of collective communication operations in MPICH\", IJHPCA 2005";
const RING: &str = "Patarasuk and Yuan, \"Bandwidth optimal all-reduce algorithms\", JPDC 2009";
const BLELLOCH: &str = "Blelloch, \"Prefix sums and their applications\", CMU-CS-90-190, 1990";
const BARRIER: &str = "Hensgen, Finkel, Manber, \"Two algorithms for barrier synchronization\", IJPP 1988";

const SPIDAL: &str = "Ekanayake et al., \"Java thread and process performance for parallel machine learning on \
                      multicore HPC clusters\", IEEE Big Data 2016, section III.C";

const fn entry(name: &'static str, index: u8, planner: Planner, cost: &'static str, source: &'static str) -> Algorithm {
    Algorithm { name, index, cost, source, planner, is_ordered: false }
}

/// The same algorithm, planned for ranks that stand in the group's order. Where there are chunks, it must ask of them
/// no more than that each rank has one.
const fn ordered(algorithm: Algorithm) -> Algorithm {
    Algorithm { is_ordered: true, ..algorithm }
}

/// The index of "two-level" in every collective that has it.
const TWO_LEVEL: u8 = 31;
/// It is as good as what it is made of.
const OF_BOTH_LEVELS: &str = "inside a node + between nodes, each as chosen";

/// Every algorithm. New ones are added with the next free index.
#[rustfmt::skip]
pub static ALGORITHMS: &[Algorithm] = {
    use Planner::*;
    &[
        entry("flat", 0, Broadcast(broadcast::flat::plan), "(p-1)·(alpha + n·beta)", TWISTER),
        ordered(entry("binomial", 1, Broadcast(broadcast::binomial::plan), "ceil(log2 p)·(alpha + n·beta)", TWISTER)),
        ordered(entry("scatter-allgather", 2, Broadcast(broadcast::scatter_allgather::plan),
            "(ceil(log2 p) + p-1)·alpha + 2(p-1)/p·n·beta", TWISTER)),
        ordered(entry("chain", 3, Broadcast(broadcast::chain::plan), "(p-2+k)·(alpha + n/k·beta), k segments", TWISTER)),
        entry("two-level", TWO_LEVEL, Broadcast(broadcast::two_level::plan), OF_BOTH_LEVELS, SPIDAL),
        ordered(entry("binomial", 0, Reduce(reduce::binomial::plan), "ceil(log2 p)·(alpha + n·beta + n·gamma)", MPICH)),
        ordered(entry("chain", 1, Reduce(reduce::chain::plan),
            "(p-2+k)·(alpha + n/k·beta + n/k·gamma), k segments", TWISTER)),
        entry("two-level", TWO_LEVEL, Reduce(reduce::two_level::plan), OF_BOTH_LEVELS, SPIDAL),
        ordered(entry("bidirectional-exchange", 0, Allreduce(allreduce::bidirectional_exchange::plan),
            "log2 p·(alpha + n·beta + n·gamma)", HARP)),
        entry("regroup-allgather", 1, Allreduce(allreduce::regroup_allgather::plan),
            "2(p-1)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma", HARP),
        ordered(entry("ring", 2, Allreduce(allreduce::ring::plan),
            "2(p-1)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma", RING)),
        entry("two-level", TWO_LEVEL, Allreduce(allreduce::two_level::plan), OF_BOTH_LEVELS, SPIDAL),
        ordered(entry("ring", 0, Allgather(allgather::ring::plan), "(p-1)·alpha + (p-1)/p·n·beta", HARP)),
        entry("direct", 1, Allgather(allgather::direct::plan), "(p-1)·alpha + (p-1)/p·n·beta", HARP),
        entry("two-level", TWO_LEVEL, Allgather(allgather::two_level::plan), OF_BOTH_LEVELS, SPIDAL),
        ordered(entry("ring", 0, ReduceScatter(reduce_scatter::ring::plan),
            "(p-1)·alpha + (p-1)/p·n·beta + (p-1)/p·n·gamma", RING)),
        entry("direct", 1, ReduceScatter(reduce_scatter::direct::plan),
            "(p-1)·alpha + (p-1)/p·n·beta + (p-1)/p·n·gamma", HARP),
        entry("two-level", TWO_LEVEL, ReduceScatter(reduce_scatter::two_level::plan), OF_BOTH_LEVELS, SPIDAL),
        entry("direct", 0, Gather(gather::direct::plan), "(p-1)·alpha + (p-1)/p·n·beta", MPICH),
        entry("binomial", 1, Gather(gather::binomial::plan), "ceil(log2 p)·alpha + (p-1)/p·n·beta", MPICH),
        entry("direct", 0, Scatter(scatter::direct::plan), "(p-1)·alpha + (p-1)/p·n·beta", MPICH),
        entry("binomial", 1, Scatter(scatter::binomial::plan), "ceil(log2 p)·alpha + (p-1)/p·n·beta", MPICH),
        entry("direct", 0, Alltoall(alltoall::plan), "(p-1)·alpha + (p-1)/p·n·beta", HARP),
        entry("dissemination", 0, Barrier(barrier::dissemination::plan), "ceil(log2 p)·alpha", BARRIER),
        entry("two-level", TWO_LEVEL, Barrier(barrier::two_level::plan), OF_BOTH_LEVELS, SPIDAL),
        entry("direct", 0, PointToPoint(point_to_point::plan), "alpha + n·beta", HARP),
        entry("chain", 0, Scan(scan::chain::plan), "(p-2+k)·(alpha + n/k·beta + n/k·gamma), k segments", BLELLOCH),
        entry("chain", 0, Exscan(exscan::chain::plan), "(p-2+k)·(alpha + n/k·beta + n/k·gamma), k segments", BLELLOCH),
        entry("direct", 0, Rotate(rotate::plan), "alpha + n·beta", HARP),
        entry("direct", 0, NeighbourExchange(neighbour_exchange::plan), "d·alpha + n·beta, d neighbours", HARP),
    ]
};
