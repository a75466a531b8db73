"""Sparse reductions at the scale of the Kylix paper: the plans of its networks, simulated on its cluster.

Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014: figures 2 and 5 to 8, table I,
sections II.A, IV, VI and VII.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

import ripieno._native as _native
from ripieno.simulation.cluster import Cluster
from ripieno.simulation.reproduction import FigureRow, Reproduction, seconds_of
from ripieno.sparse import packets
from ripieno.units import bytes_text

RANKS = 64
#: Section II.A: the network of cc2.8xlarge instances, and the packet size that reaches 80 % of its throughput.
RATE_BITS_PER_S, EFFICIENT_BYTES = 10e9, 5e6
#: Exponent of the power laws.
ALPHA = 1.1
DIRECT, BINARY = "64", "2x2x2x2x2x2"


@dataclass(frozen=True)
class PaperDataset:
    """A data set of section VI: features, the density of a rank's set, and the network that the paper designs for it.

    The simulation divides the number of features by `scale` and lengthens their rows by this factor, so that packets
    keep their bytes.
    """

    name: str
    features: int
    density: float
    degrees: str
    scale: int
    value_bytes: int = 4

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a row of the features that are drawn."""
        return self.value_bytes * self.scale

    def sets(self, seed: int = 0) -> list[list[int]]:
        """Return the features of every rank: the r-th most frequent with probability 1 - exp(-lambda r^-alpha)."""
        count = self.features // self.scale
        law = _native.DensityCurve.power_law(count, ALPHA, self.density)
        assert law.lambda_0 is not None, "power laws have a lambda_0"
        probabilities = -np.expm1(-law.lambda_0 * np.arange(1, count + 1, dtype=np.float64) ** -ALPHA)
        draw = np.random.default_rng(seed)
        # Frequent features are spread over all ranges, as hashing their numbers does.
        spread = draw.permutation(probabilities)
        return [np.flatnonzero(draw.random(count) < spread).tolist() for _ in range(RANKS)]


TWITTER = PaperDataset("Twitter", 60_000_000, 0.21, "8x4x2", 1000)
#: Values of 2 bytes, so that the direct network has the packet size stated in the paper.
TWITTER_HALVED = replace(TWITTER, name="Twitter, values of 2 bytes", value_bytes=2)
YAHOO = PaperDataset("Yahoo", 1_400_000_000, 0.035, "16x4", 10_000)


def ec2() -> Cluster:
    """Return 64 nodes whose messages need 5 MB for 80 % of the throughput."""
    alpha_s = packets.of_rate(RATE_BITS_PER_S, EFFICIENT_BYTES).alpha_s
    return Cluster(nodes=RANKS, rate_bits_per_s=RATE_BITS_PER_S, alpha_s=alpha_s, segment_bytes=None)


def simulated_reduction(graph: PaperDataset, degrees: str) -> tuple[float, float]:
    """Return the seconds of a reduction, and the mean bytes that a rank sends."""
    seconds, sent_bytes = _native.simulate_sparse(
        ec2().native(), degrees, graph.features // graph.scale, graph.sets(), graph.row_bytes
    )
    assert seconds is not None, "no rank fails on this cluster"
    return seconds, float(np.mean(sent_bytes))


def kylix_figure_6() -> Reproduction:
    """Sparse reductions on 64 nodes by direct, designed and binary networks."""
    rows, ratios = [], []
    for graph in (TWITTER, TWITTER_HALVED, YAHOO):
        by_name = {"direct": DIRECT, "designed": graph.degrees, "binary": BINARY}
        found = {name: simulated_reduction(graph, degrees) for name, degrees in by_name.items()}
        for name, (seconds, sent_bytes) in found.items():
            degrees = f" {graph.degrees}" if name == "designed" else ""
            rows.append(FigureRow(f"{graph.name}, {name}{degrees}, {sent_bytes / 1e6:.0f} MB a rank", None, seconds))
        direct, binary = (found[name][0] / found["designed"][0] for name in ("direct", "binary"))
        ratios.append(
            f"{graph.name}: direct takes {direct:.2f} and binary {binary:.2f} times as long as {graph.degrees}."
        )
    return Reproduction(
        "kylix-figure-6",
        "Kylix, figure 6: a reduction by direct, designed and binary networks on 64 nodes, 10 Gbit/s, packets of 5 MB",
        "s",
        rows,
        (
            "The figure prints no numbers. According to its text, the designed network is 3 to 5 times as fast as the "
            "others, and direct sends packets of 0.4 MB, which reach 30 % of the throughput. 60 million features at a "
            "density of 0.21 make packets of 0.8 MB if values have 4 bytes; both sizes are simulated.",
            "Two figures come from the paper: 10 Gbit/s, and 5 MB for 80 % of it, which means 1 ms per message. The "
            "plans are the plans of configured ranks, with sets drawn from power laws of exponent 1.1.",
            *ratios,
            "So the designed network wins if packets are small, but by less than in the paper. By the figures of the "
            "paper, direct could take at most 2.6 times as long: 8x4x2 sends 1.27 times as many bytes, and 30 % of the "
            "throughput takes 3.3 times as long. Binary sends 1.26 to 1.54 times the bytes of the designed network. "
            "Packets and bytes do not explain the rest. The model excludes packet loss where 63 senders share a port, "
            "late ranks, and all costs of merging except addition.",
        ),
    )


#: Figure 2, as far as the text states it: fraction of the throughput by packet bytes.
REPORTED_SHARES = {0.4e6: 0.3, 5e6: 0.8}
#: Section VII.D: the rate that its nodes reach, 3 of 10 Gbit/s, because TCP copies.
ACHIEVED_BITS_PER_S = 3e9
#: Table I: seconds of a reduction by network, nodes, and replicas.
TABLE_1 = {("8x4x2", 64, 1): 0.44, ("8x4", 32, 1): 0.60, ("8x4", 64, 2): 0.75}
#: Figure 8 and section VII.D: seconds of an iteration of PageRank; communication takes 75 to 90 % of it.
PAGERANK_S = {"Twitter": 0.55, "Yahoo": 2.5}
COMMUNICATION_SHARES = (0.75, 0.9)


def kylix_figure_2() -> Reproduction:
    """Throughput against the size of packets."""
    rows = []
    for size_bytes in (64e3, 0.4e6, 1e6, 5e6, 20e6, 100e6):
        pair = replace(ec2(), nodes=2)
        seconds = seconds_of("direct", pair, size_bytes, "point-to-point")
        share = 8 * size_bytes / seconds / RATE_BITS_PER_S
        rows.append(FigureRow(f"packets of {bytes_text(size_bytes)}", REPORTED_SHARES.get(size_bytes), share))
    return Reproduction(
        "kylix-figure-2",
        "Kylix, figure 2: what part of 10 Gbit/s packets reach, by their size",
        "of the rate",
        rows,
        (
            "One figure comes from the paper: 5 MB for 80 %, which means 1 ms per message in addition to its bytes. "
            "The text has one more, 30 % at 0.4 MB; a straight line through the first figure gives 24 %.",
            "`ripieno packets --plot` measures and draws the same figure for the links of this machine.",
        ),
    )


def kylix_figure_5() -> Reproduction:
    """Bytes of all ranks, layer by layer."""
    rows = []
    for graph in (TWITTER, YAHOO):
        curve = _native.DensityCurve.power_law(graph.features, ALPHA, graph.density)
        owned_rows = graph.features * curve.density(1)
        for level, each in enumerate(_levels(graph, curve, owned_rows)):
            rows.append(FigureRow(f"{graph.name}, {graph.degrees}, {each[0]} [{level}]", None, each[1]))
    return Reproduction(
        "kylix-figure-5",
        "Kylix, figure 5: bytes that all ranks send in each layer, packets to themselves included, values of 4 bytes",
        "GB",
        rows,
        (
            "The figure prints no numbers. According to its text, volumes decrease from layer to layer: fast for "
            "Twitter, because its lower layers are dense, and less for Yahoo. The simulated volumes, by equation 5 "
            "with power laws of exponent 1.1, agree.",
            "`benches/sparse.py charts` draws the same figure for 64 configured ranks, with the values of equation 5. "
            "The two agree within 1 %.",
        ),
    )


def kylix_figure_7() -> Reproduction:
    """A reduction by the number of threads that copy, merge and add."""
    seconds_per_byte = 8 / ACHIEVED_BITS_PER_S - 8 / RATE_BITS_PER_S
    rows = []
    for threads in (1, 2, 4, 8, 16, 32):
        cluster = replace(ec2(), gamma_s_per_byte=seconds_per_byte * FIGURE_7_CORES / min(threads, FIGURE_7_CORES))
        seconds = _simulated_s(cluster, TWITTER, TWITTER.degrees)
        rows.append(FigureRow(f"{threads} threads", None, seconds))
    own = _simulated_s(replace(ec2(), gamma_s_per_byte=GAMMA_S_PER_BYTE), TWITTER, TWITTER.degrees)
    rows.append(FigureRow("1 thread that adds as ours do, 0.13 ns a byte", None, own))
    return Reproduction(
        "kylix-figure-7",
        "Kylix, figure 7: a reduction of the Twitter graph by 8x4x2, by the number of threads of a node",
        "s",
        rows,
        (
            "The figure prints no numbers. According to its text, up to 4 threads gain much, and more than 16 threads, "
            "the number of hardware threads of a node with 8 cores, gain almost nothing.",
            "The cost of a byte per core comes from the 3 Gbit/s of a node with all cores (section VII.D), divided "
            "among as many threads as cores. The layers are simulated.",
            "Ripieno adds 0.13 ns per byte with one thread, less than a tenth of the time on the cable. More threads "
            "for addition would gain at most 2 %, so a reduction adds with one thread. The steps outside the layers "
            "use all threads of a rank: sorting and merging the indices, once, and reordering the caller's rows, in "
            "each reduction.",
        ),
    )


def kylix_table_1() -> Reproduction:
    """Reductions with and without replicas."""
    achieved = replace(ec2(), rate_bits_per_s=ACHIEVED_BITS_PER_S)
    rows = []
    for (degrees, nodes, replicas), printed in TABLE_1.items():
        ranks = nodes // replicas
        # A port carries the data for each of the replicas.
        cluster = replace(achieved, nodes=ranks, rate_bits_per_s=ACHIEVED_BITS_PER_S / replicas)
        copies = "" if replicas == 1 else f", {replicas} replicas"
        rows.append(
            FigureRow(f"{degrees}, {nodes} nodes{copies}", printed, _simulated_s(cluster, TWITTER, degrees, ranks))
        )
    return Reproduction(
        "kylix-table-1",
        "Kylix, table I: a reduction of the Twitter graph, with and without replicas",
        "s",
        rows,
        (
            "Two figures come from the paper: 3 Gbit/s, the real rate of its nodes (section VII.D), and 1 ms per "
            "message. With 32 nodes, each node has the data of two.",
            "With replicas a port carries twice the bytes in the model. The paper uses the copy that arrives first and "
            "cancels the other. So replicas cost 25 % in the paper, not 100 %.",
            "A dead node leaves the plans unchanged. In the paper, 1 to 3 dead nodes take 0.73 to 0.76 s, which is "
            "almost equal. `benches/run.py replicas` measures this on emulated hosts.",
        ),
    )


def kylix_figure_8() -> Reproduction:
    """Time of the reduction in an iteration of PageRank."""
    achieved = replace(ec2(), rate_bits_per_s=ACHIEVED_BITS_PER_S)
    rows = []
    for graph in (TWITTER, YAHOO):
        printed = PAGERANK_S[graph.name]
        least, most = (printed * share for share in COMMUNICATION_SHARES)
        seconds = _simulated_s(achieved, graph, graph.degrees)
        rows.append(FigureRow(f"{graph.name}, reduction ({least:.2g} to {most:.2g} s)", (least + most) / 2, seconds))
    return Reproduction(
        "kylix-figure-8",
        "Kylix, figure 8: communication of an iteration of PageRank on 64 nodes",
        "s",
        rows,
        (
            "The text has 0.55 and 2.5 s for an iteration, with 75 to 90 % communication; the table has the middle of "
            "this range. 3 Gbit/s per node and 1 ms per message also come from the paper.",
            "The other systems of the paper, PowerGraph and Hadoop, are not simulated. `benches/run.py pagerank` "
            "compares Ripieno with other systems on this machine.",
        ),
    )


#: Cores of a node.
FIGURE_7_CORES = 8
#: Our time to add a byte of a row through an index map.
GAMMA_S_PER_BYTE = 0.13e-9


def _simulated_s(cluster: Cluster, graph: PaperDataset, degrees: str, ranks: int = RANKS) -> float:
    """Return the seconds of a reduction; `ranks` ranks divide the graph among them."""
    share = RANKS // ranks
    sets = graph.sets()
    merged = [sorted(set().union(*sets[rank * share : (rank + 1) * share])) for rank in range(ranks)]
    seconds, _ = _native.simulate_sparse(
        cluster.native(), degrees, graph.features // graph.scale, merged, graph.row_bytes
    )
    assert seconds is not None, "no rank fails on this cluster"
    return seconds


def _levels(graph: PaperDataset, curve: _native.DensityCurve, owned_rows: float) -> list[tuple[str, float]]:
    """Return the GB of all ranks above each layer, and below the last."""
    priced = _native.design_estimate(
        RANKS, graph.degrees, (curve, owned_rows), (curve, owned_rows), graph.value_bytes, _native.PacketCurve.network()
    )
    named = [(f"layer of {each['degree']}", each) for each in priced["layers"]] + [("bottom", priced["bottom"])]
    return [(name, each["down"]["rows"] * graph.value_bytes * RANKS / 1e9) for name, each in named]
