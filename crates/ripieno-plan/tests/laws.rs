//! The laws: what every algorithm of the catalogue keeps, for every world size up to 64 and every root. Those of two levels
//! are in `two_levels.rs`: here, where every rank is a node, they are what is chosen there.

mod common;

use common::{Layout, neighbour_distances, roots};
use ripieno_plan::checker::{Report, check};
use ripieno_plan::cost::{Model, cost_s};
use ripieno_plan::{Algorithm, Collective, Group, Needs, Op, promises};
use std::ops::RangeInclusive;

const WORLD_SIZES: RangeInclusive<usize> = 1..=64;

/// Checks all algorithms of a collective, and their traffic and rounds against theory.
fn law(collective: Collective) {
    for algorithm in one_level(collective) {
        for p in world_sizes(algorithm) {
            for element_count in [2 * p + 3, p / 2, 0] {
                let layout = Layout::suiting(algorithm, p, element_count);
                for root in roots(collective, p) {
                    let peer = (root + 1 + p / 3) % p;
                    let report = kept(algorithm, &layout, root, peer);
                    let case = format!("{} {}, p {p}, root {root}", collective.name(), algorithm.name);
                    let sent_bytes: usize = report.ranks.iter().map(|rank| rank.sent_bytes).sum();
                    assert_eq!(sent_bytes, total_bytes(algorithm, &layout, root, peer), "{case}");
                    if element_count > p {
                        assert!(hop_counts(algorithm, p, root).contains(&report.round_count), "{case}: {report:?}");
                    }
                }
            }
        }
    }
}

/// The algorithms that do not depend on where the ranks stand.
fn one_level(collective: Collective) -> impl Iterator<Item = &'static Algorithm> {
    Algorithm::of(collective).filter(|algorithm| algorithm.name != "two-level")
}

/// All world sizes that the algorithm can do.
fn world_sizes(algorithm: &Algorithm) -> impl Iterator<Item = usize> {
    WORLD_SIZES.filter(|&p| algorithm.needs != Needs::EvenWorld || p == 1 || p % 2 == 0)
}

fn kept(algorithm: &Algorithm, layout: &Layout, root: usize, peer: usize) -> Report {
    let requests = layout.requests(algorithm.collective(), root, peer, Op::Sum);
    check(&algorithm.plans(&requests).unwrap(), &promises(&requests)).unwrap_or_else(|fault| {
        let p = layout.world_size();
        panic!("{} {}, p {p}, root {root}: {fault}", algorithm.collective().name(), algorithm.name)
    })
}

/// Bytes that all ranks together send.
fn total_bytes(algorithm: &Algorithm, layout: &Layout, root: usize, peer: usize) -> usize {
    let (p, n) = (layout.world_size(), layout.vector.length_bytes);
    // In a binomial tree the chunk for distance d makes one hop for every bit of d.
    let hops = |distance: usize| distance.count_ones() as usize;
    let by_rank = |rank: usize| layout.chunks[rank].length_bytes * hops((rank + p - root) % p);
    let core_size = 1 << p.ilog2();
    match (algorithm.collective(), algorithm.name) {
        (Collective::Reduce, "reduce-scatter-gather") => {
            (p - 1) * n + (0..p).map(|distance| layout.chunks[distance].length_bytes * hops(distance)).sum::<usize>()
        }
        (Collective::Broadcast | Collective::Reduce, _) => (p - 1) * n,
        (Collective::Allreduce, "bidirectional-exchange") => {
            core_size * p.ilog2() as usize * n + 2 * (p - core_size) * n
        }
        (Collective::Allreduce, "one-round") => p * (p - 1) * n,
        (Collective::Allreduce, _) => 2 * (p - 1) * n,
        (Collective::Allgather | Collective::ReduceScatter, _) => (p - 1) * n,
        (Collective::Gather | Collective::Scatter, "binomial") => (0..p).map(by_rank).sum(),
        (Collective::Gather | Collective::Scatter, _) => n - layout.chunks[root].length_bytes,
        // A chunk makes one hop for every bit of its way.
        (Collective::Alltoall, "bruck") => p * (0..p).map(hops).sum::<usize>() * layout.out_chunks[0][0].length_bytes,
        (Collective::Alltoall, _) => {
            let others = |rank: usize| (0..p).filter(move |&to| to != rank);
            (0..p).flat_map(|rank| others(rank).map(move |to| layout.out_chunks[rank][to].length_bytes)).sum()
        }
        (Collective::Rotate, _) if root == 0 => 0,
        (Collective::Rotate, _) => (0..p).map(|rank| layout.out_chunks[rank][(rank + root) % p].length_bytes).sum(),
        (Collective::NeighbourExchange, _) => {
            let others = |rank: usize| layout.out_neighbours[rank].iter().filter(move |(to, _)| *to != rank);
            (0..p).flat_map(|rank| others(rank).map(|(_, span)| span.length_bytes)).sum()
        }
        (Collective::Scan | Collective::Exscan, "chain") => (p - 1) * n,
        (Collective::Scan | Collective::Exscan, "recursive-doubling") => {
            (0..ceil_log2(p)).map(|round| (p - (1 << round)) * n).sum()
        }
        (Collective::Barrier, "dissemination") => p * ceil_log2(p),
        (Collective::Barrier, "tree") => 2 * (p - 1),
        (Collective::PointToPoint, _) => n * usize::from(root != peer),
        (_, name) => panic!("how many bytes does {name} send?"),
    }
}

/// The longest chain of messages, where a rank may talk to all others at once.
fn hop_counts(algorithm: &Algorithm, p: usize, root: usize) -> RangeInclusive<usize> {
    let floor_log2 = p.ilog2() as usize;
    let exactly = |count: usize| if p == 1 { 0..=0 } else { count..=count };
    // Where `p` is no power of two, the first round may leave some chunks to the next, and where a run of chunks wraps
    // around, a second message follows on the link.
    let halving = |times: usize| times * floor_log2..=times * ceil_log2(p) * if p.is_power_of_two() { 1 } else { 2 };
    // Of two ranks both halves share the link, one after the other.
    let double = |times: usize| times * (1 + (p - 1).max(1).ilog2() as usize) + usize::from(p == 2);
    match (algorithm.collective(), algorithm.name) {
        (Collective::Broadcast, "scatter-allgather") => p - 1..=ceil_log2(p) + p - 1,
        (Collective::Broadcast | Collective::Reduce, "binomial" | "binary") => exactly(floor_log2),
        (Collective::Broadcast | Collective::Reduce, "k-nomial") => exactly(knomial_depth(p)),
        (Collective::Broadcast | Collective::Reduce, "double-tree") => exactly(double(1)),
        (Collective::Reduce, "reduce-scatter-gather") => halving(2),
        // A subtree that wraps around makes a second message on a link.
        (Collective::Gather | Collective::Scatter, "binomial") => floor_log2..=floor_log2 + 1,
        (Collective::Allreduce, "bidirectional-exchange") if p.is_power_of_two() => exactly(floor_log2),
        // A vector that is folded in and the first that is exchanged may come at the same time.
        (Collective::Allreduce, "bidirectional-exchange") => floor_log2 + 1..=floor_log2 + 2,
        (Collective::Allreduce, "regroup-allgather") => exactly(2),
        (Collective::Allreduce, "ring") => exactly(2 * (p - 1)),
        (Collective::Allreduce, "halving-doubling") => halving(2),
        (Collective::Allreduce | Collective::Barrier, "tree") => exactly(2 * knomial_depth(p)),
        (Collective::Allreduce, "double-tree") => exactly(double(2)),
        (Collective::Allgather, "bruck") => floor_log2..=2 * ceil_log2(p),
        (Collective::Allgather, "recursive-doubling") => halving(1),
        (Collective::Allgather, "neighbour-exchange") => exactly(p / 2),
        (Collective::ReduceScatter, "halving") => halving(1),
        (Collective::Alltoall, "bruck") => floor_log2..=ceil_log2(p),
        // No hop waits for another at the same rank for longer than it takes to leave.
        (Collective::Alltoall, "pairwise") => exactly(1),
        (Collective::Barrier, "dissemination") => exactly(ceil_log2(p)),
        (Collective::Rotate, _) if root == 0 => 0..=0,
        (Collective::Scan | Collective::Exscan, "recursive-doubling") => exactly(floor_log2),
        (_, "ring" | "chain") => exactly(p - 1),
        (_, "direct" | "flat" | "one-round") => exactly(1),
        (_, name) => panic!("what is the theory of {name}?"),
    }
}

/// How many digits to the base 4 are not 0, at most, in a distance below `p`.
fn knomial_depth(p: usize) -> usize {
    let digit_count = |distance: usize| (0..10).filter(|digit| (distance >> (2 * digit)) & 3 != 0).count();
    (0..p).map(digit_count).max().unwrap()
}

/// Rounds in which a rank sends one message and receives one.
fn round_counts(algorithm: &Algorithm, p: usize) -> RangeInclusive<usize> {
    let exactly = |count: usize| count..=count;
    // A run of chunks that wraps around makes two messages, and ranks that have one wait for those that have two.
    let wrapping = |count: usize| count..=if p.is_power_of_two() { count } else { 3 * count };
    let binary = ceil_log2(p)..=2 * p.ilog2() as usize;
    let knomial = ceil_log2(p)..=3 * ceil_log2(p).div_ceil(2);
    let double = ceil_log2(p)..=2 * ceil_log2(p) + 1;
    let twice = |counts: RangeInclusive<usize>| 2 * counts.start()..=2 * counts.end();
    match (algorithm.collective(), algorithm.name) {
        (Collective::Broadcast, "scatter-allgather") => exactly(ceil_log2(p) + p - 1),
        (Collective::Allreduce, "bidirectional-exchange") if p.is_power_of_two() => exactly(ceil_log2(p)),
        (Collective::Allreduce, "bidirectional-exchange") => exactly(p.ilog2() as usize + 2),
        (Collective::Allreduce, "halving-doubling") => wrapping(2 * ceil_log2(p)),
        (Collective::Allreduce | Collective::Barrier, "tree") => twice(knomial),
        (Collective::Allreduce, "double-tree") => twice(double),
        (Collective::Allreduce, "ring" | "regroup-allgather") => exactly(2 * (p - 1)),
        (Collective::Reduce, "reduce-scatter-gather") => wrapping(2 * ceil_log2(p)),
        (Collective::ReduceScatter, "halving") => wrapping(ceil_log2(p)),
        (Collective::Allgather, "bruck") => ceil_log2(p)..=3 * ceil_log2(p),
        (Collective::Allgather, "recursive-doubling") => wrapping(ceil_log2(p)),
        (Collective::Allgather, "neighbour-exchange") => exactly(p / 2),
        (Collective::Alltoall, "bruck") => exactly(ceil_log2(p)),
        (Collective::PointToPoint | Collective::Rotate, _) => exactly(p.min(2) - 1),
        (Collective::NeighbourExchange, _) => exactly(neighbour_distances(p).len() - 1),
        (_, "binomial" | "dissemination" | "recursive-doubling") => exactly(ceil_log2(p)),
        (_, "k-nomial") => knomial,
        (_, "binary") => binary,
        (_, "double-tree") => double,
        (_, "ring" | "chain" | "direct" | "flat" | "one-round" | "pairwise") => exactly(p - 1),
        (_, name) => panic!("how many rounds does {name} take?"),
    }
}

fn ceil_log2(p: usize) -> usize {
    p.next_power_of_two().ilog2() as usize
}

#[test]
fn every_rank_ends_with_the_roots_vector() {
    law(Collective::Broadcast);
}

#[test]
fn every_contribution_reaches_the_root_exactly_once() {
    law(Collective::Reduce);
}

#[test]
fn every_contribution_reaches_every_rank_exactly_once_and_in_the_same_order() {
    law(Collective::Allreduce);
}

#[test]
fn every_chunk_reaches_every_rank() {
    law(Collective::Allgather);
}

#[test]
fn every_contribution_to_a_chunk_reaches_its_rank_exactly_once() {
    law(Collective::ReduceScatter);
}

#[test]
fn every_chunk_reaches_the_root() {
    law(Collective::Gather);
}

#[test]
fn every_chunk_reaches_its_rank() {
    law(Collective::Scatter);
}

#[test]
fn every_chunk_changes_from_its_sender_to_its_receiver() {
    law(Collective::Alltoall);
}

#[test]
fn every_rank_hears_of_every_other_before_it_goes_on() {
    law(Collective::Barrier);
}

#[test]
fn the_vector_reaches_the_receiver() {
    law(Collective::PointToPoint);
}

#[test]
fn every_contribution_reaches_the_ranks_from_its_own_on_exactly_once() {
    law(Collective::Scan);
}

#[test]
fn every_contribution_reaches_the_ranks_after_its_own_exactly_once() {
    law(Collective::Exscan);
}

#[test]
fn every_block_moves_on_by_the_distance() {
    law(Collective::Rotate);
}

#[test]
fn every_span_reaches_the_neighbour_it_is_for() {
    law(Collective::NeighbourExchange);
}

#[test]
fn every_algorithm_takes_as_many_rounds_as_theory_says() {
    for collective in Collective::catalogued() {
        for algorithm in one_level(collective) {
            for p in world_sizes(algorithm).step_by(3).chain([2, 8, 16, 32]) {
                let root = usize::from(collective == Collective::Rotate) % p;
                let plans = Layout::suiting(algorithm, p, 2 * p + 3).plans(algorithm, root);
                let found = cost_s(&plans, &Model::ROUNDS).unwrap() as usize;
                let expected = round_counts(algorithm, p);
                let case = format!("{} {}, p {p}", collective.name(), algorithm.name);
                assert!(expected.contains(&found), "{case}: {found}, expected {expected:?}");
            }
        }
    }
}

#[test]
fn every_operation_combines_as_asked() {
    for op in Op::ALL {
        let combining = [Collective::Reduce, Collective::Allreduce, Collective::ReduceScatter];
        for collective in combining.into_iter().chain([Collective::Scan, Collective::Exscan]) {
            for algorithm in one_level(collective) {
                let layout = Layout::even(6, 15);
                let requests = layout.requests(collective, 2, 0, op);
                check(&algorithm.plans(&requests).unwrap(), &promises(&requests)).unwrap();
            }
        }
    }
}

#[test]
fn a_lone_rank_sends_nothing() {
    for algorithm in ripieno_plan::catalogue::ALGORITHMS {
        let layout = Layout::suiting(algorithm, 1, 5);
        let plan = &layout.plans(algorithm, 0)[0];
        let to_itself = [Collective::Alltoall, Collective::Rotate, Collective::NeighbourExchange];
        let copy_count = usize::from(to_itself.contains(&algorithm.collective()));
        assert_eq!(plan.operations().len(), copy_count, "{}", algorithm.name);
    }
}

#[test]
fn an_algorithm_says_what_it_cannot_do() {
    let bruck = Algorithm::by_name(Collective::Alltoall, "bruck").unwrap();
    let asked = |layout: &Layout| bruck.plans(&layout.requests(Collective::Alltoall, 0, 0, Op::Sum));
    assert!(asked(&Layout::equal(5, 3)).is_ok());
    let refused = asked(&Layout::even(5, 3)).unwrap_err();
    assert_eq!(refused.to_string(), "bruck needs equally long chunks on all ranks");

    let by_neighbours = Algorithm::by_name(Collective::Allgather, "neighbour-exchange").unwrap();
    let asked = |p: usize| by_neighbours.plans(&Layout::even(p, 9).requests(Collective::Allgather, 0, 0, Op::Sum));
    assert!((1..=8).filter(|&p| asked(p).is_ok()).eq([1, 2, 4, 6, 8]));
}

#[test]
fn names_and_indices_are_unique_within_a_collective() {
    for algorithm in ripieno_plan::catalogue::ALGORITHMS {
        let collective = algorithm.collective();
        let by_name = Algorithm::by_name(collective, algorithm.name).unwrap();
        let by_index = Algorithm::by_index(collective, algorithm.index).unwrap();
        assert!(std::ptr::eq(by_name, algorithm) && std::ptr::eq(by_index, algorithm), "{}", algorithm.name);
    }
}

#[test]
fn every_choice_is_an_algorithm_of_its_collective() {
    for collective in Collective::catalogued() {
        for p in WORLD_SIZES {
            for bytes in [0, 1, 1 << 14, (1 << 14) + 1, 1 << 20, 1 << 30] {
                assert_eq!(ripieno_plan::choose(collective, &Group::new(0, p), bytes).collective(), collective);
            }
        }
    }
}
