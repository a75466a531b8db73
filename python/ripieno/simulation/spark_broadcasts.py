"""The broadcasts of the report on Spark, simulated with the current state machines at the report's scale.

Source: Chowdhury, "Performance and scalability of broadcast in Spark", UC Berkeley 2010: figures 6 to 9, table 1,
sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence

from ripieno.simulation.cluster import Cluster
from ripieno.simulation.distribution import distribute
from ripieno.simulation.reproduction import FigureRow, Reproduction
from ripieno.simulation.spark_report import BLOCK_BYTES, MB, POINT_TO_POINT_BITS_PER_S

GB = 1000 * MB
#: Latency of a message between two machines of that cloud: an assumption, the report has no such figure.
ALPHA_S = 0.5e-3
NODES = (1, 5, 10, 20, 30, 40, 60)
#: Section 5.3.1: default piece size of BitTorrent.
PIECE_BYTES = 256 << 10
#: Seconds for 1 GB to 40 nodes.
TABLE_1 = {"csb-llcf": 53, "bittorrent": 90}
SUMMED_UP_NODES = 40
NAMES = {"csb-llcf": "CSB", "bittorrent": "BTB", "splitstream": "SSB", "chain": "chain"}
_CLUSTER = (
    f"Cables carry {POINT_TO_POINT_BITS_PER_S / 1e6:g} Mbit/s, as measured between two machines in the report. "
    f"A message takes {1e3 * ALPHA_S:g} ms, an assumption. 1 GB alone takes {8 * GB / POINT_TO_POINT_BITS_PER_S:.3g} s."
)


def seconds_to_nodes(algorithm: str, nodes: int, nbytes: int, block_bytes: int = BLOCK_BYTES) -> float:
    """Return the seconds of a fault-tolerant broadcast from a master to this number of nodes."""
    cluster = Cluster(
        nodes=nodes + 1,
        rate_bits_per_s=POINT_TO_POINT_BITS_PER_S,
        alpha_s=ALPHA_S,
        segment_bytes=block_bytes,
        relay_bytes=None,
    )
    return distribute(cluster, nbytes=nbytes, algorithm=algorithm, block_bytes=block_bytes).seconds


def _growth(algorithm: str, sizes: Sequence[int], block_bytes: int = BLOCK_BYTES) -> list[FigureRow]:
    return [
        FigureRow(f"{size // MB:,} MB, {nodes} nodes", None, seconds_to_nodes(algorithm, nodes, size, block_bytes))
        for size in sizes
        for nodes in NODES
    ]


def spark_table_1() -> Reproduction:
    """Mechanisms of broadcast, 1 GB to 40 nodes."""
    rows = [
        FigureRow(NAMES[algorithm], TABLE_1.get(algorithm), seconds_to_nodes(algorithm, SUMMED_UP_NODES, GB))
        for algorithm in NAMES
    ]
    return Reproduction(
        "spark-table-1",
        "Spark, table 1: broadcast of 1 GB to 40 nodes in blocks of 4 MB",
        "s",
        rows,
        (
            _CLUSTER,
            "The printed times belong to programs that copied each block through the JVM and queried the tracker in "
            "between. CSB served one or two peers in a tree; BTB hashed and choked. They used 26 and 15 % of the "
            "cables. The simulated state machines request several blocks at once, and forward them immediately.",
            "The table has no time for SSB, which lost blocks, and the report has no chain. CHB, 57 s, depends on the "
            "file system.",
        ),
    )


def spark_figure_6() -> Reproduction:
    """CSB of 1 GB to 30 nodes by block size."""
    rows = [
        FigureRow(f"blocks of {kib / 1024:g} MiB", None, seconds_to_nodes("csb-llcf", 30, GB, kib << 10))
        for kib in (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
    ]
    return Reproduction(
        "spark-figure-6",
        "Spark, figure 6: the search for a size of blocks, CSB of 1 GB to 30 nodes",
        "s",
        rows,
        (
            _CLUSTER,
            "The figure prints no numbers; according to its text, 4 MB was the best size. Here 2 and 4 MiB are best, "
            "within 1 %. Smaller blocks cost more messages to the tracker. With larger blocks, nodes wait longer for "
            "their first block to forward.",
        ),
    )


def spark_figure_7() -> Reproduction:
    """Time of CSB by the number of nodes."""
    return Reproduction(
        "spark-figure-7",
        "Spark, figure 7: chained streaming broadcast (CSB) to 1 to 60 nodes in blocks of 4 MB",
        "s",
        _growth("csb-llcf", (100 * MB, GB)),
        (
            _CLUSTER,
            "The figure prints no numbers. According to its text, times rise less than linearly, because of two slow "
            "nodes. Without slow nodes they rise with the logarithm of the nodes, the number of rounds until each node "
            "has a block.",
        ),
    )


def spark_figure_8() -> Reproduction:
    """Time of BitTorrent with its default pieces by the number of nodes."""
    return Reproduction(
        "spark-figure-8",
        "Spark, figure 8: BitTorrent with pieces of 256 KB to 1 to 60 nodes",
        "s",
        _growth("bittorrent", (100 * MB,), PIECE_BYTES),
        (
            _CLUSTER,
            "The figure prints no numbers. According to its text, times rise suddenly after 30 nodes, for unknown "
            "reasons. The simulated state machine does not choke peers or limit rates, and shows no such rise: from "
            "the defaults of BitTorrent it uses only the piece size.",
        ),
    )


def spark_figure_9() -> Reproduction:
    """Time of BitTorrent, modified for a data center, by the number of nodes."""
    return Reproduction(
        "spark-figure-9",
        "Spark, figure 9: modified BitTorrent (BTB, pieces of 4 MB, 8 uploads) to 1 to 60 nodes",
        "s",
        _growth("bittorrent", (100 * MB, GB)),
        (
            _CLUSTER,
            "The figure prints no numbers. According to its text, times stay constant for smaller variables, rise less "
            "than the times of CSB for larger ones, and are longer than the times of CSB. The simulated state machine "
            "is slower than CSB, too. It rises more than CSB: 100 MB are 24 pieces, too few for 60 nodes to have "
            "different ones.",
        ),
    )
