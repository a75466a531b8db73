"""The Harp paper's operations, and iterations of its applications at its own scale.

Source: Zhang, Ruan and Qiu, "Harp: collective communication on Hadoop", IC2E 2015: table I, figure 4, sections VII.A to
VII.D.
"""

from __future__ import annotations

from ripieno.simulation.cluster import Cluster
from ripieno.simulation.kmeans import kmeans_iteration
from ripieno.simulation.reproduction import FigureRow, Reproduction, seconds_of

NODES = (8, 16, 32, 64, 128)
CORES = 32
#: Rate of a socket between two nodes. An assumption: the paper gives no rate.
RATE_BITS_PER_S = 10e9
#: Rate of a core that assigns points in Java: an assumption.
OPERATIONS_PER_S = 1e9
KMEANS = {"500 M points, 10 k centroids": (500_000_000, 10_000), "5 M points, 1 M centroids": (5_000_000, 1_000_000)}
#: Section VII.C: number of vertices, and seconds of an iteration on 128 nodes.
VERTICES, LAYOUT_S = 477_111, 3.0


def _big_red(nodes: int) -> Cluster:
    return Cluster(nodes=nodes, rate_bits_per_s=RATE_BITS_PER_S)


def harp_figure_4() -> Reproduction:
    """Speedups of K-means and of a force-directed layout on up to 128 nodes."""
    rows = []
    for name, (points, clusters) in KMEANS.items():
        seconds = {
            nodes: kmeans_iteration(
                _big_red(nodes), points=points, dim=3, clusters=clusters, cores=CORES, operations_per_s=OPERATIONS_PER_S
            ).seconds
            for nodes in NODES
        }
        rows += [
            FigureRow(f"K-means, {name}, {nodes} nodes", float(nodes), 8 * seconds[8] / seconds[nodes])
            for nodes in NODES
        ]
    # The layout computes all pairs, so twice the nodes take half the time.
    computing_s = 128 * LAYOUT_S
    positions_bytes = VERTICES * 2 * 8
    layout = {
        nodes: computing_s / nodes + seconds_of("ring", _big_red(nodes), positions_bytes / nodes, "allgather")
        for nodes in (1, *NODES)
    }
    rows += [
        FigureRow(f"layout, {nodes} nodes", 16.0 if nodes == 16 else None, layout[1] / layout[nodes])
        for nodes in layout
    ]
    return Reproduction(
        "harp-figure-4",
        "Harp, figure 4 a and b: speedups on Big Red II, 32 cores a node",
        "x",
        rows,
        (
            "The figure prints no numbers. According to its text, K-means is close to linear in both tests, with a "
            "speedup of 8 on 8 nodes. The layout is almost linear up to 16 nodes, drops smoothly after 32, and falls "
            "steeply on 128.",
            "The paper omits two figures, so they are assumptions: sockets carry 10 Gbit/s, and a core assigns points "
            "with 1 GFLOP/s. An allreduce of sums and weights ends an iteration of K-means. With a million centroids "
            "it is 32 MB, less than a hundredth of the time on 128 nodes.",
            "The 3 s per iteration of the layout on 128 nodes come from the paper. The allgather of 7.6 MB of "
            "positions takes milliseconds, so the simulated speedup stays linear: the collective does not cause the "
            "drop in the paper. The model excludes the mutual slowdown of the 32 threads of a node.",
            "In the paper, WDA-SMACOF of 100 k points communicates 40 % of the time on 128 nodes. Its matrices take "
            "140 GB. Figures 4 c and d are not simulated, because the text gives neither iterations nor seconds.",
        ),
    )


def harp_table_1() -> Reproduction:
    """Operations and their time complexities on 64 equal links."""
    p, n = 64, 64 << 20
    beta = 8 / 1e9
    cluster = Cluster(nodes=p, rate_bits_per_s=1e9, alpha_s=0.0, gamma_s_per_byte=0.0, segment_bytes=None)
    pipelined = Cluster(nodes=p, rate_bits_per_s=1e9, alpha_s=0.0, gamma_s_per_byte=0.0, segment_bytes=4 << 10)
    stated = (
        ("broadcast", "chain", pipelined, "n·beta", n * beta),
        ("allgather", "ring", cluster, "p·n·beta", p * n * beta),
        ("allreduce", "bidirectional-exchange", cluster, "log2(p)·n·beta", 6 * n * beta),
        ("allreduce", "regroup-allgather", cluster, "2·n·beta", 2 * n * beta),
        ("reduce-scatter", "direct", cluster, "n·beta (regroup)", n * beta),
    )
    rows = [
        FigureRow(f"{collective} {name}: {formula}", seconds, seconds_of(name, where, n, collective))
        for collective, name, where, formula, seconds in stated
    ]
    return Reproduction(
        "harp-table-1",
        f"Harp, table I: time complexities, for p = {p} processes with n = 64 MiB each, cables of 1 Gbit/s",
        "s",
        rows,
        (
            "The table omits the startup time of messages, and counts p where p-1 messages are needed. Allgather, "
            "regroup-allgather and regroup take (p-1)/p of the printed times.",
            "The last process of a chain is p-2 segments behind; with segments of 4 KiB this is 0.4 %.",
            '"Send messages to vertices" and "send edges to vertices" send directly, as regroup does: n·beta.',
        ),
    )
