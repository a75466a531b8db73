"""Provide the Harp paper's operations, and the speedup of its K-means at its own scale.

Source: Zhang, Ruan and Qiu, "Harp: collective communication on Hadoop", IC2E 2015: table I, figure 4, sections VII.A to
VII.D.
"""

from __future__ import annotations

from ripieno.simulation.cluster import Cluster
from ripieno.simulation.kmeans import kmeans_iteration
from ripieno.simulation.reproduction import ASSUMPTION, Claim, FigureRow, Input, Kind, Reproduction, seconds_of

NODES = (8, 16, 32, 64, 128)
CORES = 32
KMEANS = {"500 M points, 10 k centroids": (500_000_000, 10_000), "5 M points, 1 M centroids": (5_000_000, 1_000_000)}
#: The paper states neither rate. Slow links and fast cores make communication weigh most. Name: bits/s, operations/s.
MACHINES = {"base case": (10e9, 1e9), "slow links, fast cores": (1e9, 4e9)}


def harp_figure_4() -> Reproduction:
    """Speedups of K-means on up to 128 nodes."""
    rows = []
    for machine, (rate_bits_per_s, operations_per_s) in MACHINES.items():
        for name, (points, clusters) in KMEANS.items():
            seconds = {
                nodes: kmeans_iteration(
                    Cluster(nodes=nodes, rate_bits_per_s=rate_bits_per_s),
                    points=points,
                    dim=3,
                    clusters=clusters,
                    cores=CORES,
                    operations_per_s=operations_per_s,
                ).seconds
                for nodes in NODES
            }
            rows += [
                FigureRow(f"{machine}: {name}, {nodes} nodes", None, 8 * seconds[8] / seconds[nodes]) for nodes in NODES
            ]
    return Reproduction(
        "harp-figure-4",
        "Harp, figure 4 a: speedups of K-means on Big Red II, 8 on 8 nodes by definition",
        Kind.SIMULATED,
        "x",
        (
            Input(
                "3-d points and centroids: 500 M and 10 k, or 5 M and 1 M; 8 to 128 nodes of 32 cores",
                "sections VII.A and B",
            ),
            Input("base case: a socket carries 10 Gbit/s, a core computes 1 GFLOP/s", ASSUMPTION),
            Input("slow links, fast cores: a socket carries 1 Gbit/s, a core computes 4 GFLOP/s", ASSUMPTION),
        ),
        rows,
        (
            Claim("The speedup of K-means is close to linear in both tests, up to 128 nodes.", _nearly_linear(rows)),
            Claim(
                "With few nodes, 5 M points and 1 M centroids are slower than the other test, by the cache.",
                "Not simulated: the model has no caches.",
            ),
            Claim(
                "The layout of 477,111 vertices is almost linear up to 16 nodes and falls steeply on 128, where an "
                "iteration takes about 3 s.",
                "Not simulated: only this one time is known, and a rate taken from it would make the result linear by "
                "construction.",
            ),
            Claim(
                "WDA-SMACOF of 100 k points communicates about 40 % of the time on 128 nodes.",
                "Not simulated: neither iterations nor seconds are stated.",
            ),
        ),
        ("An allreduce of sums and weights ends an iteration. With a million centroids it has 32 MB.",),
    )


def _nearly_linear(rows: list[FigureRow]) -> str:
    usual, adverse = (
        min(row.value for row in rows if row.label.startswith(f"{machine}: ") and " 128 " in row.label)
        for machine in MACHINES
    )
    return f"Holds: on 128 nodes at least {usual:.0f}, and {adverse:.0f} with slow links and fast cores."


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
        "Harp, table I: time complexities",
        Kind.SIMULATED,
        "s",
        (
            Input(f"p = {p} processes, n = 64 MiB each, links of 1 Gbit/s (beta)", "chosen; any values do"),
            Input("no startup time of messages", "section IV.B"),
        ),
        rows,
        (),
        (
            "The formulas count p where p-1 messages are needed. Allgather, regroup-allgather and regroup take (p-1)/p "
            "of them.",
            "The last process of a chain is p-2 segments behind; with segments of 4 KiB this is 0.4 %.",
            '"Send messages to vertices" and "send edges to vertices" send directly, as regroup does: n·beta.',
        ),
        reference="formula",
    )
