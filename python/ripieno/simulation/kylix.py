"""Provide simulations of the Kylix paper's sparse reductions, at its scale: plans of its networks on its cluster.

Links have the rated throughput. The paper prints the share of it that one size of packet reaches (figure 2); the cost
of a message follows from this share. In its experiments the nodes reach 3 of 10 Gbit/s (section VII.D). The simulations
do not use that rate, because they predict the results of the same experiments.

Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014: figures 5, 6, 8 and 9, table I,
sections II.A, III.D, IV, VI and VII.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

import ripieno._native as _native
from ripieno.simulation.cluster import Cluster
from ripieno.simulation.reproduction import ASSUMPTION, Claim, FigureRow, Input, Kind, Reproduction

RANKS = 64
#: Section II.A: the network of cc2.8xlarge instances.
RATE_BITS_PER_S = 10e9
#: Section III.D, from figure 2: the share of the throughput that packets of this size reach.
PACKET_BYTES, PACKET_SHARE = 0.4e6, 0.3
#: Seconds of a message in addition to its bytes, from both.
ALPHA_S = 8 * PACKET_BYTES / RATE_BITS_PER_S * (1 / PACKET_SHARE - 1)
#: Section III.D: packets should have at least this size.
EFFICIENT_BYTES = 5e6
#: Exponents of the power laws: the one that is simulated, and the bounds of section IV.
EXPONENT, EXPONENTS = 1.1, (0.5, 1.1, 2.0)
DIRECT, BINARY = "64", "2x2x2x2x2x2"
#: Section VII.D: communication as a share of an iteration on 64 nodes.
COMMUNICATION_SHARES = (0.75, 0.9)
#: Table I: seconds of a reduction by network, nodes, and replicas.
TABLE_1 = {("8x4x2", 64, 1): 0.44, ("8x4", 32, 1): 0.60, ("8x4", 64, 2): 0.75}

_LINKS = Input("nodes of 10 Gbit/s", "section II.A")
_MESSAGE = Input(
    f"{1e3 * ALPHA_S:.2f} ms a message: packets of 0.4 MB reach 30 % of the throughput", "section III.D, from figure 2"
)
_GRAPHS = Input(
    "60 M features at a density of 0.21, networks 8x4x2 (Twitter); 1.4 G at 0.035, 16x4 (Yahoo)", "section VII"
)
_POWER_LAW = Input(f"sets drawn from power laws of exponent {EXPONENT}", f"{ASSUMPTION}; 0.5 to 2 by section IV")
_VALUES = Input("values of 4 bytes", ASSUMPTION)


@dataclass(frozen=True)
class PaperDataset:
    """A data set of section VII: features, the density of a rank's set, and the paper's network for it.

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

    def curve(self, exponent: float = EXPONENT) -> _native.DensityCurve:
        """Return the density of the union of several ranks' sets."""
        return _native.DensityCurve.power_law(self.features // self.scale, exponent, self.density)

    def sets(self, ranks: int = RANKS, seed: int = 0) -> list[list[int]]:
        """Return the features of every rank if `ranks` ranks divide the graph among them.

        The r-th most frequent feature is in a set with probability 1 - exp(-lambda r^-alpha).
        """
        count = self.features // self.scale
        law = self.curve()
        assert law.lambda_0 is not None, "power laws have a lambda_0"
        scaling = law.lambda_0 * RANKS / ranks
        probabilities = -np.expm1(-scaling * np.arange(1, count + 1, dtype=np.float64) ** -EXPONENT)
        draw = np.random.default_rng(seed)
        # Frequent features are spread over all ranges, as hashing their numbers does.
        spread = draw.permutation(probabilities)
        return [np.flatnonzero(draw.random(count) < spread).tolist() for _ in range(ranks)]


TWITTER = PaperDataset("Twitter", 60_000_000, 0.21, "8x4x2", 1000)
#: Values of 2 bytes, so that the direct network has the packet size stated in the paper.
TWITTER_HALVED = replace(TWITTER, name="Twitter, values of 2 bytes", value_bytes=2)
YAHOO = PaperDataset("Yahoo", 1_400_000_000, 0.035, "16x4", 10_000)


def ec2(nodes: int = RANKS) -> Cluster:
    """Return nodes of the rated throughput. Packets of 0.4 MB reach 30 % of it."""
    return Cluster(nodes=nodes, rate_bits_per_s=RATE_BITS_PER_S, alpha_s=ALPHA_S, segment_bytes=None)


def packet_curve() -> _native.PacketCurve:
    """Return the costs of packets on these nodes."""
    return _native.PacketCurve([(size, ALPHA_S + 8 * size / RATE_BITS_PER_S) for size in (1.0, 1e12)], 0.0)


def simulated_reduction(
    graph: PaperDataset, degrees: str, ranks: int = RANKS, cluster: Cluster | None = None
) -> tuple[float, float]:
    """Return the seconds of a reduction by ranks that divide the graph, and the mean bytes that a rank sends."""
    seconds, sent_bytes = _native.simulate_sparse(
        (cluster or ec2(ranks)).native(), degrees, graph.features // graph.scale, graph.sets(ranks), graph.row_bytes
    )
    assert seconds is not None, "no rank fails on this cluster"
    return seconds, float(np.mean(sent_bytes))


def kylix_figure_5() -> Reproduction:
    """Bytes of all ranks, layer by layer."""
    rows = [
        FigureRow(f"{graph.name}, {graph.degrees}, {layer} [{level}]", None, gb)
        for graph in (TWITTER, YAHOO)
        for level, (layer, gb) in enumerate(_levels(graph, EXPONENT))
    ]
    decreasing = [
        exponent
        for exponent in EXPONENTS
        if all(
            volumes == sorted(volumes, reverse=True)
            for volumes in ([gb for _, gb in _levels(graph, exponent)] for graph in (TWITTER, YAHOO))
        )
    ]
    assert decreasing == list(EXPONENTS), "equation 5 decreases for every exponent"
    return Reproduction(
        "kylix-figure-5",
        "Kylix, figure 5: bytes that all ranks send in each layer by equation 5, packets to themselves included",
        Kind.FORMULA,
        "GB",
        (_GRAPHS, Input(f"power laws of exponent {EXPONENT}", f"{ASSUMPTION}; 0.5 to 2 by section IV"), _VALUES),
        rows,
        (
            Claim("The total volume decreases from layer to layer.", "Holds for exponents of 0.5, 1.1 and 2."),
            Claim(
                "Twitter shrinks very fast in lower layers, where vectors are dense; Yahoo less.",
                f"Holds: below the last layer Twitter has {_shrunk(TWITTER):.0%} of the first one's bytes, Yahoo "
                f"{_shrunk(YAHOO):.0%}.",
            ),
        ),
        (
            "`benches/sparse.py charts` draws the same figure for 64 configured ranks; they agree with equation 5 "
            "within 1 %.",
        ),
    )


def kylix_figure_6() -> Reproduction:
    """Sparse reductions on 64 nodes: the factors of direct and binary networks over the designed one."""
    rows, bounds = [], []
    for graph in (TWITTER, TWITTER_HALVED, YAHOO):
        designed_s, designed_bytes = simulated_reduction(graph, graph.degrees)
        rows.append(FigureRow(f"{graph.name}, designed {graph.degrees}, seconds", None, designed_s))
        for name, degrees in (("direct", DIRECT), ("binary", BINARY)):
            seconds, sent_bytes = simulated_reduction(graph, degrees)
            rows.append(FigureRow(f"{graph.name}, {name}, times as long", None, seconds / designed_s))
            bounds.append(
                f"{graph.name}, {name}: {sent_bytes / designed_bytes:.2f} times the bytes; the links alone need "
                f"{8 * sent_bytes / RATE_BITS_PER_S / seconds:.0%} of its time and "
                f"{8 * designed_bytes / RATE_BITS_PER_S / designed_s:.0%} of the time of {graph.degrees}."
            )
    factors = [row.value for row in rows if row.label.endswith("times as long")]
    return Reproduction(
        "kylix-figure-6",
        "Kylix, figure 6: a reduction by direct, designed and binary networks on 64 nodes",
        Kind.SIMULATED,
        "s or x",
        (
            *(_LINKS, _MESSAGE, _GRAPHS, _POWER_LAW),
            Input("values of 4 bytes, and of 2 for the packets of 0.4 MB that section VII.A states", ASSUMPTION),
        ),
        rows,
        (
            Claim(
                "The designed network is 3 to 5 times as fast as the others.",
                f"Does not hold: {min(factors):.2f} to {max(factors):.2f} times. Smaller packets gain more; direct is "
                "as fast for Yahoo, where its packets have 6 MB.",
            ),
        ),
        (
            *bounds,
            "So bytes and the cost of messages bound the factors. Direct at 30 % of the throughput could take at most "
            "2.6 times as long, because 8x4x2 sends 1.27 times the bytes. The model excludes packet loss where 63 "
            "senders share a port, late ranks, and all costs of merging except addition.",
        ),
    )


def kylix_figure_8() -> Reproduction:
    """Time of the reduction in an iteration of PageRank."""
    rows = [
        FigureRow(f"{graph.name}, reduction", None, simulated_reduction(graph, graph.degrees)[0])
        for graph in (TWITTER, YAHOO)
    ]
    return Reproduction(
        "kylix-figure-8",
        "Kylix, figure 8: the reduction of an iteration of PageRank on 64 nodes",
        Kind.SIMULATED,
        "s",
        (_LINKS, _MESSAGE, _GRAPHS, _POWER_LAW, _VALUES),
        rows,
        (
            Claim(
                "An iteration takes 0.55 s (Twitter) and 2.5 s (Yahoo); communication is 75 to 90 % of it.",
                f"Does not hold on links of the rated throughput: the reduction takes {rows[0].value:.2g} and "
                f"{rows[1].value:.2g} s. The paper reports that its nodes reach 3 Gbit/s, by copies in TCP.",
            ),
            Claim("Kylix is 3 to 7 times as fast as PowerGraph, 500 times as fast as Hadoop.", "Not simulated."),
        ),
        ("`benches/run.py pagerank` compares Ripieno with other systems on this machine.",),
    )


def kylix_figure_9() -> Reproduction:
    """Speedup of the reduction from 4 to 64 nodes."""
    rows = []
    for graph in (TWITTER, YAHOO):
        seconds = {}
        for nodes in (4, 8, 16, 32, 64):
            degrees = _designed(graph, nodes)
            seconds[nodes], _ = simulated_reduction(graph, degrees, nodes)
            rows.append(FigureRow(f"{graph.name}, {nodes} nodes, {degrees}", None, seconds[4] / seconds[nodes]))
    gains = [row.value for row in rows if ", 64 nodes" in row.label]
    # With this share of communication on 64 nodes, computation that divides evenly takes 16 times the rest on 4.
    in_all = [gain * share + 16 * (1 - share) for gain in gains for share in COMMUNICATION_SHARES]
    return Reproduction(
        "kylix-figure-9",
        "Kylix, figure 9: speedup of the communication of an iteration of PageRank over 4 nodes",
        Kind.SIMULATED,
        "x",
        (
            *(_LINKS, _MESSAGE, _GRAPHS, _POWER_LAW, _VALUES),
            Input("degrees of 64 nodes", "section VII.A"),
            Input("degrees of fewer nodes, by the rule of packets of at least 5 MB", "section IV"),
        ),
        rows,
        (
            Claim(
                "64 nodes are 7 to 11 times as fast as 4, computation included; 16 would be linear.",
                f"In part: communication gains {gains[0]:.1f} and {gains[1]:.1f} times. If it takes 75 to 90 % on 64 "
                f"nodes, as the paper states, an iteration gains {min(in_all):.1f} to {max(in_all):.1f} times.",
            ),
            Claim(
                "Communication dominates after 32 nodes, by a lack of synchronization.",
                "Not simulated: the rate of its computation is not stated, and the model has no late ranks.",
            ),
        ),
    )


def kylix_table_1() -> Reproduction:
    """Reductions with and without replicas."""
    rows = []
    for (degrees, nodes, replicas), printed in TABLE_1.items():
        ranks = nodes // replicas
        # A port carries the data for each of the replicas.
        cluster = replace(ec2(ranks), rate_bits_per_s=RATE_BITS_PER_S / replicas)
        copies = "" if replicas == 1 else f", {replicas} replicas"
        seconds, _ = simulated_reduction(TWITTER, degrees, ranks, cluster)
        rows.append(FigureRow(f"{degrees}, {nodes} nodes{copies}", printed, seconds))
    plain, replicated = rows[1], rows[2]
    return Reproduction(
        "kylix-table-1",
        "Kylix, table I: a reduction of the Twitter graph, with and without replicas",
        Kind.SIMULATED,
        "s",
        (_LINKS, _MESSAGE, _GRAPHS, _POWER_LAW, _VALUES, Input("a port carries a copy for each replica", "section V")),
        rows,
        (
            Claim(
                "Replicas cost moderately: 0.75 s instead of 0.60 s with as many parts (25 %), and 60 % more than 64 "
                "nodes without replicas.",
                f"Does not hold in the model: {replicated.value / plain.value - 1:.0%} more than with as many parts. "
                "The paper uses the copy that arrives first and cancels the other; the model sends both.",
            ),
            Claim(
                "1 to 3 dead nodes change nothing.",
                "Holds by construction, because the plans stay the same. `benches/run.py replicas` measures it.",
            ),
        ),
        (
            "The printed times are 3 times as long, as in figure 8: the paper reports that its nodes reach 3 "
            "of 10 Gbit/s.",
        ),
    )


def _designed(graph: PaperDataset, nodes: int) -> str:
    """Return the paper's degrees for 64 nodes, and the degrees by its rule for other numbers of nodes."""
    if nodes == RANKS:
        return graph.degrees
    # Density as a function of the number of the nodes' sets: each is the union of 64 / nodes of the sets of 64 nodes.
    share = RANKS // nodes
    curve = _native.DensityCurve.power_law(graph.features, EXPONENT, graph.density)
    merged = _native.DensityCurve.power_law(graph.features, EXPONENT, curve.density(share))
    return _native.design_by_packet(
        nodes, merged, graph.features * merged.density(1), graph.value_bytes, EFFICIENT_BYTES
    )


def _levels(graph: PaperDataset, exponent: float) -> list[tuple[str, float]]:
    """Return the GB of all ranks above each layer, and below the last."""
    curve = _native.DensityCurve.power_law(graph.features, exponent, graph.density)
    rows = (curve, graph.features * curve.density(1))
    priced = _native.design_estimate(RANKS, graph.degrees, rows, rows, graph.value_bytes, _native.PacketCurve.network())
    named = [(f"layer of {each['degree']}", each) for each in priced["layers"]] + [("bottom", priced["bottom"])]
    return [(name, each["down"]["rows"] * graph.value_bytes * RANKS / 1e9) for name, each in named]


def _shrunk(graph: PaperDataset) -> float:
    """Return the bytes below the last layer as a share of the first layer's."""
    volumes = [gb for _, gb in _levels(graph, EXPONENT)]
    return volumes[-1] / volumes[0]
