//! Default choice of the algorithm for a collective.
//!
//! Two tables map the number of ranks and bytes to an algorithm: one for ranks that share a node's memory, one for
//! ranks on different nodes. Short messages use algorithms with few rounds, long messages use algorithms with few bytes
//! per rank. Groups with both kinds of neighbors use two levels, and each level is looked up in its own table. Every
//! rank makes the same choice, because the choice depends only on the arguments.
//!
//! To calibrate: run `ripieno bench` over 8 B … 64 MiB and 2 … 32 ranks with every algorithm of a collective. Use
//! shared memory for [`NODE`], the lab with one rank per host for [`NETWORK`], and an otherwise idle machine. The first
//! matching row of a table is used. If it is more than 15 % slower than the best algorithm, change its limit or insert
//! a row before it. In shared memory also measure arrays of `rp.empty`: they are sent without a copy, as are most
//! results of calls from Python. For [`ONE_LEADER_BYTES`] use the lab with several ranks per host.

use crate::catalogue::{ALGORITHMS, Algorithm, Needs, PlacementUse};
use crate::group::Group;
use crate::request::Collective;
use Collective::*;
use SizeLimit::{Any, Bytes, PerRank};

/// Largest vector that a two-level allreduce handles with one leader rank per node. Above it, bytes cost more than
/// messages.
pub(crate) const ONE_LEADER_BYTES: usize = 16 * KIB;

/// Ranks that share memory. From measurements with 2, 4, 8 and 32 ranks on 2 cores.
static NODE: &[ChoiceTable] = &[
    ChoiceTable(
        Broadcast,
        &rows(
            Broadcast,
            [
                row(FEW_RANKS, PerRank(128 * KIB), "binomial"),
                // With more ranks than cores, ranks wait for a core at every level of a tree.
                row(ANY_RANKS, Bytes(64 * KIB), "k-nomial"),
                row(ANY_RANKS, PerRank(128 * KIB), "binomial"),
                row(ANY_RANKS, Any, "chain"),
            ],
        ),
    ),
    ChoiceTable(
        Reduce,
        &rows(
            Reduce,
            [
                row(FEW_RANKS, PerRank(128 * KIB), "binomial"),
                row(ANY_RANKS, PerRank(128 * KIB), "k-nomial"),
                row(ANY_RANKS, Any, "chain"),
            ],
        ),
    ),
    ChoiceTable(
        Allreduce,
        &rows(
            Allreduce,
            [
                row(FEW_RANKS, Bytes(64 * KIB), "bidirectional-exchange"),
                // With zero-copy memory, 2 ranks that reduce one half each take 0.5 of the time of a tree, where one
                // rank reduces everything. With other memory they take 0.9 to 1.3 of it.
                row(2, Any, "halving-doubling"),
                row(FEW_RANKS, Bytes(4096 * KIB), "halving-doubling"),
                row(FEW_RANKS, Any, "ring"),
                // With many more ranks than cores every message costs a context switch, and a tree sends the fewest
                // messages.
                row(ANY_RANKS, Bytes(512 * KIB), "tree"),
                row(ANY_RANKS, Any, "ring"),
            ],
        ),
    ),
    ChoiceTable(
        Allgather,
        &rows(
            Allgather,
            [
                row(FEW_RANKS, Bytes(512 * KIB), "direct"),
                row(FEW_RANKS, Any, "ring"),
                row(ANY_RANKS, Bytes(4096 * KIB), "recursive-doubling"),
                row(ANY_RANKS, Any, "ring"),
            ],
        ),
    ),
    ChoiceTable(
        ReduceScatter,
        &rows(
            ReduceScatter,
            [
                row(FEW_RANKS, Bytes(512 * KIB), "direct"),
                row(FEW_RANKS, Any, "ring"),
                row(ANY_RANKS, Bytes(1024 * KIB), "halving"),
                row(ANY_RANKS, Any, "ring"),
            ],
        ),
    ),
];

/// Ranks on different nodes. From measurements with 8, 16 and 32 emulated hosts of 100 Mbit/s.
static NETWORK: &[ChoiceTable] = &[
    ChoiceTable(Broadcast, &rows(Broadcast, TREES_OR_CHAIN)),
    // A reduction is a reversed broadcast.
    ChoiceTable(Reduce, &rows(Reduce, TREES_OR_CHAIN)),
    ChoiceTable(
        Allreduce,
        &rows(
            Allreduce,
            [
                row(2, Bytes(256 * KIB), "bidirectional-exchange"),
                row(FEW_RANKS, Bytes(2 * KIB), "bidirectional-exchange"),
                // With more ranks, messages cost more than hops: for 32 ranks a tree sends 62 messages, an exchange
                // 160.
                row(ANY_RANKS, Bytes(4 * KIB), "tree"),
                row(ANY_RANKS, Bytes(8 * KIB), "double-tree"),
                // Two hops, but all ranks send to all ranks at once, so switches are more congested than with a ring.
                row(FEW_RANKS, Bytes(256 * KIB), "regroup-allgather"),
                row(FEW_RANKS, Any, "ring"),
                row(ANY_RANKS, Bytes(16 * KIB), "double-tree"),
                // The same number of bytes as a ring in far fewer rounds, but over longer paths.
                row(ANY_RANKS, PerRank(3 * KIB), "halving-doubling"),
                row(ANY_RANKS, Any, "ring"),
            ],
        ),
    ),
    ChoiceTable(Allgather, &rows(Allgather, DIRECT_THEN_RING)),
    ChoiceTable(ReduceScatter, &rows(ReduceScatter, DIRECT_THEN_RING)),
];

/// Collectives that do not depend on the placement of ranks.
static ANYWHERE: &[ChoiceTable] = &[
    ChoiceTable(Gather, &rows(Gather, TREE_OR_DIRECT)),
    ChoiceTable(Scatter, &rows(Scatter, TREE_OR_DIRECT)),
    // On 32 emulated hosts pairwise took 1.03 to 1.09 times as long, with and without packet loss in queues.
    ChoiceTable(Alltoall, &rows(Alltoall, [row(ANY_RANKS, Any, "direct")])),
    ChoiceTable(Barrier, &rows(Barrier, [row(FEW_RANKS, Any, "dissemination"), row(ANY_RANKS, Any, "tree")])),
    ChoiceTable(PointToPoint, &rows(PointToPoint, [row(ANY_RANKS, Any, "direct")])),
    ChoiceTable(Scan, &rows(Scan, [row(ANY_RANKS, Any, "chain")])),
    ChoiceTable(Exscan, &rows(Exscan, [row(ANY_RANKS, Any, "chain")])),
    ChoiceTable(Rotate, &rows(Rotate, [row(ANY_RANKS, Any, "direct")])),
    ChoiceTable(NeighbourExchange, &rows(NeighbourExchange, [row(ANY_RANKS, Any, "direct")])),
];

/// Between hosts, two trees use the full bandwidth like a chain, with fewer hops. A chain is faster once every rank has
/// a segment to forward.
const TREES_OR_CHAIN: [NamedRow; 3] = [
    row(ANY_RANKS, Bytes(8 * KIB), "binomial"),
    row(ANY_RANKS, PerRank(32 * KIB), "double-tree"),
    row(ANY_RANKS, Any, "chain"),
];
/// Between hosts, many streams into one port lose packets, so only short chunks are sent directly.
const DIRECT_THEN_RING: [NamedRow; 2] = [row(ANY_RANKS, Bytes(16 * KIB), "direct"), row(ANY_RANKS, Any, "ring")];
const TREE_OR_DIRECT: [NamedRow; 2] = [row(ANY_RANKS, Bytes(16 * KIB), "binomial"), row(ANY_RANKS, Any, "direct")];

/// Up to this number of ranks, a link between every pair is cheap, and direct sending has the fewest hops.
const FEW_RANKS: usize = 8;
const ANY_RANKS: usize = usize::MAX;
const KIB: usize = 1 << 10;

/// Return the default algorithm of `collective` for `group` and a vector, or all chunks together, of `bytes`.
pub fn choose(collective: Collective, group: &Group, bytes: usize) -> &'static Algorithm {
    let is_mixed = 1 < group.topology().node_count() && group.topology().node_count() < group.size();
    let in_two_levels = |algorithm: &&Algorithm| algorithm.placement == PlacementUse::TwoLevels;
    let two_level = if is_mixed { Algorithm::of(collective).find(in_two_levels) } else { None };
    two_level.unwrap_or_else(|| first(collective, group, bytes, |_| true))
}

/// Return the default algorithm for chunks that are not contiguous.
pub(crate) fn choose_for_scattered(collective: Collective, group: &Group, bytes: usize) -> &'static Algorithm {
    first(collective, group, bytes, |algorithm| !algorithm.joins_chunks)
}

/// Return the algorithm of `collective` that combines in rank order, for non-commutative operations.
pub fn choose_in_rank_order(collective: Collective) -> Option<&'static Algorithm> {
    Algorithm::of(collective).find(|algorithm| algorithm.in_rank_order)
}

/// Return the algorithm of the first matching row.
fn first(
    collective: Collective,
    group: &Group,
    bytes: usize,
    is_allowed: impl Fn(&Algorithm) -> bool,
) -> &'static Algorithm {
    let level = if group.topology().node_count() == 1 { NODE } else { NETWORK };
    let ChoiceTable(_, rows) =
        level.iter().chain(ANYWHERE).find(|table| table.0 == collective).expect("every collective has a table");
    let fits = |row: &&ChoiceRow| row.fits(group.size(), bytes) && is_allowed(row.algorithm);
    rows.iter().find(fits).expect("the last row of a table always fits").algorithm
}

/// The rows of one collective.
struct ChoiceTable(Collective, &'static [ChoiceRow]);

/// A row: the algorithm for up to a number of ranks and up to a size.
struct ChoiceRow {
    rank_count_max: usize,
    limit: SizeLimit,
    algorithm: &'static Algorithm,
}

/// Size limit of a row.
#[derive(Clone, Copy)]
enum SizeLimit {
    /// Total number of bytes.
    Bytes(usize),
    /// Number of bytes per rank.
    PerRank(usize),
    /// No limit.
    Any,
}

impl ChoiceRow {
    fn fits(&self, rank_count: usize, bytes: usize) -> bool {
        let limit_bytes = match self.limit {
            Bytes(limit) => limit,
            PerRank(limit) => limit.saturating_mul(rank_count),
            Any => usize::MAX,
        };
        rank_count <= self.rank_count_max && bytes <= limit_bytes
    }
}

/// A row with the name of its algorithm.
type NamedRow = (usize, SizeLimit, &'static str);

const fn row(rank_count_max: usize, limit: SizeLimit, name: &'static str) -> NamedRow {
    (rank_count_max, limit, name)
}

/// Look up the algorithms of `collective` for the rows. An unknown name is a compile-time error.
const fn rows<const N: usize>(collective: Collective, named: [NamedRow; N]) -> [ChoiceRow; N] {
    let mut rows = [const { ChoiceRow { rank_count_max: 0, limit: Any, algorithm: &ALGORITHMS[0] } }; N];
    let mut index = 0;
    while index < N {
        let (rank_count_max, limit, name) = named[index];
        rows[index] = ChoiceRow { rank_count_max, limit, algorithm: algorithm(collective, name) };
        index += 1;
    }
    rows
}

const fn algorithm(collective: Collective, name: &str) -> &'static Algorithm {
    let mut index = 0;
    while index < ALGORITHMS.len() {
        let algorithm = &ALGORITHMS[index];
        if algorithm.entry.collective() as u8 == collective as u8
            && is_equal(algorithm.entry.name.as_bytes(), name.as_bytes())
        {
            assert!(
                matches!(algorithm.entry.needs, Needs::Nothing),
                "a table row names an algorithm that has requirements"
            );
            return algorithm;
        }
        index += 1;
    }
    panic!("a table row names an algorithm that is not in the catalogue")
}

const fn is_equal(left: &[u8], right: &[u8]) -> bool {
    let mut index = 0;
    while index < left.len() && index < right.len() && left[index] == right[index] {
        index += 1;
    }
    index == left.len() && index == right.len()
}
