"""Provide figures of papers that are measured on this machine, or on emulated hosts, at a smaller scale.

Papers print few numbers for these figures, and other machines have other times. So a figure has no printed values. Its
claims state whether the shape of the paper's result appears in the measurement.
"""

from __future__ import annotations

import csv
import io
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ripieno.bench import figures, packets, spidal_figures, strategies
from ripieno.bench.measured_figures import REPETITIONS, machine_input, verdict
from ripieno.bench.shuffle_rank import ShuffleCase
from ripieno.bench.sparse_rank import SparseCase
from ripieno.bench.strategies import StrategiesQuery
from ripieno.errors import LabError
from ripieno.files import disk
from ripieno.lab import Lab, missing_requirement
from ripieno.simulation.reproduction import Claim, FigureRow, Kind, Reproduction
from ripieno.units import bytes_text
from ripieno.wire import packing

TIMEOUT_S = 300.0
MIB = 1 << 20


@dataclass(frozen=True)
class MeasuredFigure:
    """A figure, the function that measures it, and whether it needs emulated hosts and therefore root."""

    measure: Callable[[], Reproduction]
    needs_hosts: bool


def check_possible(name: str) -> None:
    """Raise LabError if this machine cannot measure a figure."""
    reason = missing_requirement() if MEASURED[name].needs_hosts else None
    if reason is not None:
        raise LabError(f"{name} is measured on emulated hosts: {reason}")


def measure(name: str) -> Reproduction:
    """Measure a figure; LabError if this machine cannot."""
    check_possible(name)
    return MEASURED[name].measure()


def twister_figure_7() -> Reproduction:
    """Seconds of serialization and deserialization, by the type of the values."""
    count = 8 * MIB
    whole = np.random.default_rng(0).integers(0, 256, count, np.uint8)
    values: Mapping[str, tuple[Any, int]] = {
        "array of bytes": (whole, whole.nbytes),
        "array of doubles": (whole.view(np.float64), whole.nbytes),
        "Python floats": (np.arange(count / 8).tolist(), count),
        "Python objects of 8 bytes": (whole.view("S8").tolist(), count),
    }
    rows = []
    for name, (value, size_bytes) in values.items():
        packed_s, unpacked_s = [], []
        for _ in range(REPETITIONS):
            begin_s = time.perf_counter()
            packed = packing.pack(value)
            packed_s.append(time.perf_counter() - begin_s)
            begin_s = time.perf_counter()
            packing.unpack(packed.pickled, packed.buffers)
            unpacked_s.append(time.perf_counter() - begin_s)
        for label, seconds in (("serialization", packed_s), ("deserialization", unpacked_s)):
            rows.append(FigureRow(f"{name}, {label}", None, statistics.median(seconds) / size_bytes * 1e9))
    return Reproduction(
        "twister-figure-7",
        "Twister, figure 7: serialization and deserialization of a value before and after its broadcast",
        Kind.MEASURED,
        "s per GB",
        (machine_input(f"{bytes_text(count)} of each kind, median of {REPETITIONS}"),),
        rows,
        (
            Claim(
                "Bytes take longer to serialize than doubles, and longer still to deserialize.",
                "Does not hold for arrays, which are sent from and received into place.",
            ),
            Claim(
                "Serialization takes 90 % of the time of a broadcast, the transfer 10 %.",
                f"Does not hold: 1 GB takes 8 s on the 1 Gbit/s of the paper. An array adds "
                f"{rows[0].value + rows[1].value:.2g} s, Python floats {rows[4].value + rows[5].value:.2g} s.",
            ),
        ),
    )


def twister_figure_8() -> Reproduction:
    """Bytes and seconds of a shuffle with local reduction, relative to a shuffle without it."""
    hosts, tasks = 8, 8
    rows, stages = [], {}
    for dtype, rate in (("float64", "100mbit"), ("float64", "25mbit"), ("float32", "100mbit")):
        found = _found_by_ranks(hosts, rate, "shuffle_rank", ShuffleCase(dtype, tasks, 1000, 512, REPETITIONS))
        reduced, unreduced = (
            {name: statistics.median(each[name] for each in found[kind]) for name in found[kind][0]}
            for kind in ("with", "without")
        )
        for name, label in (("sent_bytes", "bytes"), ("exchange", "time of the exchange"), ("total", "time in all")):
            rows.append(FigureRow(f"{dtype}, {rate}, {label}", None, reduced[name] / unreduced[name]))
        stages[dtype, rate] = reduced
    slow = stages["float64", "25mbit"]
    return Reproduction(
        "twister-figure-8",
        "Twister, figure 8: a shuffle of K-means sums with local reduction, relative to one without it",
        Kind.MEASURED,
        "x",
        (
            machine_input(
                f"{hosts} emulated hosts, {tasks} map tasks on each, sums of 1,000 centroids of 512 values, median of "
                f"{REPETITIONS}"
            ),
        ),
        rows,
        (
            Claim(
                "8 tasks per node: 1 TB becomes 125 GB, 12.5 %.",
                f"{verdict(rows[0].value < 0.13)} for doubles, {rows[0].value:.1%}. Partial sums of float32 travel as "
                f"float64, to be rounded once, so they are {rows[6].value:.0%}.",
            ),
            Claim(
                "The shuffle takes 10 % of the time, 40 s instead of 8 minutes.",
                f"{verdict(rows[5].value <= 0.1)}: {rows[5].value:.1%} at 25 Mbit/s, {rows[2].value:.1%} at 100 "
                "Mbit/s.",
            ),
        ),
        (
            "A shuffle cannot take a smaller share of the time than of the bytes if the links limit both. The paper's "
            "40 s of 8 minutes are below its 12.5 %, so without local reduction something besides the links slows it, "
            "for example the memory: a node holds 8 of its 16 GB as intermediate data.",
            "The time is the share of the bytes, and fixed costs: the local reduction "
            f"({1e3 * slow['emit']:.0f} ms of {1e3 * slow['total']:.0f} ms at 25 Mbit/s, 8 processes on "
            f"{figures.machine()['cores']} cores), and the start of an exchange. They weigh more with fewer bytes, and "
            "if other programs use the cores: with half the centroids on a busy machine it was 18 %.",
        ),
    )


def _found_by_ranks(hosts: int, rate: str, module: str, case: ShuffleCase | SparseCase) -> dict[str, Any]:
    """Run ``python -m ripieno.bench.MODULE CASE_JSON FILE`` on emulated hosts, and return the contents of the file."""
    with Lab(hosts=hosts, rate=rate) as lab, tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "found.json"
        words = [sys.executable, "-m", f"ripieno.bench.{module}", json.dumps(asdict(case)), str(target)]
        code = lab.run(words, timeout_s=TIMEOUT_S, prefix=False)
        if code != 0:
            raise LabError(f"{module}: the ranks ended with code {code}")
        found: dict[str, Any] = json.loads(target.read_text())
        return found


def twister_figure_6_lab() -> Reproduction:
    """The chain in the order of racks, and in random order, on 16 emulated hosts."""
    query = StrategiesQuery(
        hosts=16,
        size_bytes=int(6.4 * MIB),
        rate="20mbit",
        strategies=("chain",),
        racks=4,
        uplink="20mbit",
        random_order=True,
    )
    (row,) = strategies.measure(query).as_json()["rows"]
    rows = [
        FigureRow("in the order of racks, over bytes / rate", None, statistics.median(row["multiples"])),
        FigureRow("random order, over the order of racks", None, statistics.median(row["random_of_undisturbed"])),
        FigureRow("the same, simulated", None, row["random_simulated"]),
    ]
    return Reproduction(
        "twister-figure-6-lab",
        "Twister, figure 6: a chain in the order of racks against a random order",
        Kind.MEASURED,
        "x",
        (machine_input(f"{query}, the same number of hosts in each rack, median of {query.repetitions}"),),
        rows,
        (
            Claim(
                "The random order takes 5 times as long.",
                f"{rows[1].value:.1f} times, with uplinks of one host's rate. The factor depends on the uplinks; "
                "twister-figure-6 uses the uplinks of the paper.",
            ),
        ),
    )


def kylix_figure_2() -> Reproduction:
    """Throughput of packets of several sizes between processes of this machine."""
    found = packets.started(2, (512, 4096, 32_768, 262_144, 2 * MIB), "tcp", 2.0, TIMEOUT_S)
    best = max(point["bytes"] / point["seconds"] for point in found["points"])
    rows = [
        FigureRow(f"packets of {bytes_text(point['bytes'])}", None, point["bytes"] / point["seconds"] / best)
        for point in found["points"]
    ]
    return Reproduction(
        "kylix-figure-2",
        "Kylix, figure 2: throughput against the size of packets, as a share of the best",
        Kind.MEASURED,
        "of the best",
        (machine_input(f"2 processes, TCP of one host, best {bytes_text(best)}/s"),),
        rows,
        (
            Claim(
                "Small packets waste throughput: 0.4 MB reach 30 % of it at 10 Gbit/s; 5 MB suffice.",
                f"Small packets do: {rows[0].label} reach {rows[0].value:.0%}, because a message costs "
                f"{1e6 * found['alpha_s']:.0f} µs. {bytes_text(found['efficient_bytes'])} suffice for 80 %.",
            ),
        ),
        ("`ripieno packets --plot` draws this figure for any links, and designs of sparse reductions use it.",),
    )


def kylix_figure_6_lab() -> Reproduction:
    """Sparse reductions by direct, designed and binary networks on 16 emulated hosts."""
    hosts, rate_bits_per_s = 16, 100e6
    rows, bounds = [], []
    for features in (20_000, 2_000_000):
        found = _found_by_ranks(hosts, "100mbit", "sparse_rank", SparseCase(features, 0.21, 1.1, 9))
        networks = found["networks"]
        designed = networks["designed"]
        rows.append(FigureRow(f"{features:,} features, designed {designed['degrees']}, ms", None,
                              1e3 * designed["seconds"]))  # fmt: skip
        for name in ("direct", "binary"):
            each = networks[name]
            rows.append(FigureRow(f"{features:,} features, {name} {each['degrees']}, times as long", None,
                                  each["seconds"] / designed["seconds"]))  # fmt: skip
        shares = ", ".join(
            f"{8 * each['sent_bytes'] / rate_bits_per_s / each['seconds']:.0%} ({name})"
            for name, each in networks.items()
        )
        bounds.append(
            f"{features:,} features: the links alone need this share of the time: {shares}. A message costs "
            f"{1e6 * found['alpha_s']:.0f} µs."
        )
    factors = [row.value for row in rows if "times" in row.label]
    return Reproduction(
        "kylix-figure-6-lab",
        "Kylix, figure 6: a reduction by direct, designed and binary networks",
        Kind.MEASURED,
        "ms or x",
        (machine_input(f"{hosts} emulated hosts × 100mbit, densities and exponent of kylix-figure-6, median of 9"),),
        rows,
        (
            Claim(
                "The designed network is 3 to 5 times as fast as the others.",
                f"{verdict(min(factors) >= 3)}: {min(factors):.2f} to {max(factors):.2f} times.",
            ),
        ),
        (
            *bounds,
            "Where the links bound the time, the factor is near the ratio of the bytes, and direct sends the fewest. "
            "Where the cost of messages bounds it, the factor depends on the number of messages. A direct network of "
            "16 hosts sends only 15 in each direction.",
        ),
    )


def spark_figure_2() -> Reproduction:
    """Seconds of the first and of later iterations of logistic regression on lines of text."""
    from sklearn.exceptions import ConvergenceWarning

    from ripieno.algorithms import LogisticRegression

    rows_count, columns = 200_000, 20
    random = np.random.default_rng(0)
    X = random.normal(size=(rows_count, columns))
    y = (X @ random.normal(size=columns) > 0).astype(int)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.csv"
        with io.TextIOWrapper(disk.create(path), "utf-8", newline="") as target:
            lines = csv.writer(target)
            lines.writerow([*(f"x{column}" for column in range(columns)), "label"])
            lines.writerows([*point, label] for point, label in zip(X.round(6).tolist(), y.tolist(), strict=True))
        size_bytes = path.stat().st_size
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = LogisticRegression(solver="gd", max_iter=10, tol=1e-30, workers=1, threads=1).fit(path, "label")
    first_s, *later_s = (each.seconds for each in model.report_.iterations)
    later = statistics.median(later_s)
    rows = [
        FigureRow("first iteration, with reading and parsing", None, model.report_.load_s + first_s),
        FigureRow("a later iteration", None, later),
        FigureRow("an iteration if each one read the file", None, model.report_.load_s + later),
    ]
    return Reproduction(
        "spark-figure-2",
        "Spark, figure 2: logistic regression on text, first and later iterations",
        Kind.MEASURED,
        "s",
        (
            machine_input(
                f"one worker with one thread, {bytes_text(size_bytes)} of CSV, {rows_count:,} × {columns} values"
            ),
        ),
        rows,
        (
            Claim(
                "On 29 GB the first iteration takes 174 s and later ones 6 s, 29 times less, because rows stay in "
                "memory.",
                f"{verdict(rows[0].value > 10 * later)}: {rows[0].value / later:.0f} times less.",
            ),
            Claim(
                "Hadoop, which reads the data in each iteration, takes 127 s for each; the job is up to 10 times as "
                "slow.",
                f"If each of 10 iterations read the file, they would take "
                f"{10 * rows[2].value / (rows[0].value + 9 * later):.1f} times as long. Hadoop itself is not measured.",
            ),
        ),
    )


def spark_figure_6_lab() -> Reproduction:
    """CSB to eight emulated hosts by block size."""
    size_bytes, rate, blocks_kib = 32 * MIB, "200mbit", (32, 128, 512, 2048, 4096)
    multiples: dict[int, float] = {}
    for kib in blocks_kib:
        query = StrategiesQuery(
            hosts=9, size_bytes=size_bytes, rate=rate, strategies=("csb-llcf",), block_bytes=kib << 10
        )
        multiples[kib] = statistics.median(strategies.measure(query).as_json()["rows"][0]["multiples"])
    best = min(multiples, key=lambda kib: multiples[kib])
    largest = blocks_kib[-1]
    return Reproduction(
        "spark-figure-6-lab",
        "Spark, figure 6: the search for a size of blocks of CSB, as multiples of bytes / rate",
        Kind.MEASURED,
        "x",
        (machine_input(f"{bytes_text(size_bytes)} to 8 emulated hosts × {rate}, median of 3"),),
        [FigureRow(f"blocks of {bytes_text(kib << 10)}", None, multiples[kib]) for kib in blocks_kib],
        (
            Claim(
                "The size of blocks decides the time, and one of the sizes is the best: 4 MB for 1 GB on that cluster.",
                f"{verdict(max(multiples.values()) > 1.1 * multiples[best])}: the best here is "
                f"{bytes_text(best << 10)}; blocks of {bytes_text(largest << 10)} take "
                f"{multiples[largest] / multiples[best]:.2f} times as long.",
            ),
            Claim(
                "The best size depends on the cluster, and is found by a search.",
                "`ripieno tune broadcast` searches on the cluster at hand, and broadcasts use the result.",
            ),
        ),
        (f"Blocks of {bytes_text(largest << 10)} are an eighth of this value, but a 250th of 1 GB.",),
    )


def spark_figures_7_9_lab() -> Reproduction:
    """CSB and BTB to 1, 5, 10 and 20 emulated hosts."""
    nodes = (1, 5, 10, 20)
    size_bytes, rate = 4 * MIB, "25mbit"
    seconds: dict[tuple[str, int], float] = {}
    for count in nodes:
        query = StrategiesQuery(
            hosts=count + 1, size_bytes=size_bytes, rate=rate, strategies=("csb-llcf", "bittorrent")
        )
        for row in strategies.measure(query).as_json()["rows"]:
            seconds[row["strategy"], count] = statistics.median(row["multiples"])
    names = {"csb-llcf": "CSB", "bittorrent": "BTB"}
    rows = [
        FigureRow(f"{text}, {count} nodes", None, seconds[each, count])
        for each, text in names.items()
        for count in nodes
    ]
    grown = {name: seconds[name, nodes[-1]] / seconds[name, nodes[1]] for name in names}
    return Reproduction(
        "spark-figures-7-9-lab",
        "Spark, figures 7 and 9: CSB and BTB by the number of receivers, as multiples of bytes / rate",
        Kind.MEASURED,
        "x",
        (machine_input(f"{bytes_text(size_bytes)} to emulated hosts × {rate}, default blocks, median of 3"),),
        rows,
        (
            Claim(
                "CSB rises less than linearly with the nodes.",
                f"{verdict(grown['csb-llcf'] < 4)}: {grown['csb-llcf']:.2f} times from 5 to 20 nodes.",
            ),
            Claim(
                "BTB takes longer than CSB.",
                f"{verdict(seconds['bittorrent', 20] > seconds['csb-llcf', 20])} for 20 nodes.",
            ),
            Claim(
                "BTB rises less than CSB for larger variables.",
                f"{verdict(grown['bittorrent'] < grown['csb-llcf'])}: {grown['bittorrent']:.2f} times.",
            ),
        ),
    )


MEASURED: dict[str, MeasuredFigure] = {
    "kylix-figure-2": MeasuredFigure(kylix_figure_2, needs_hosts=False),
    "kylix-figure-6-lab": MeasuredFigure(kylix_figure_6_lab, needs_hosts=True),
    "spark-figure-2": MeasuredFigure(spark_figure_2, needs_hosts=False),
    "spark-figure-6-lab": MeasuredFigure(spark_figure_6_lab, needs_hosts=True),
    "spark-figures-7-9-lab": MeasuredFigure(spark_figures_7_9_lab, needs_hosts=True),
    "spidal-figures-3-8": MeasuredFigure(spidal_figures.figures_3_8, needs_hosts=False),
    "spidal-figures-9-14": MeasuredFigure(spidal_figures.figures_9_14, needs_hosts=False),
    "spidal-table-2": MeasuredFigure(spidal_figures.table_2, needs_hosts=False),
    "spidal-table-3": MeasuredFigure(spidal_figures.table_3, needs_hosts=False),
    "twister-figure-6-lab": MeasuredFigure(twister_figure_6_lab, needs_hosts=True),
    "twister-figure-7": MeasuredFigure(twister_figure_7, needs_hosts=False),
    "twister-figure-8": MeasuredFigure(twister_figure_8, needs_hosts=True),
}
