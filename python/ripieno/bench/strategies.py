"""Provide broadcasts of variables on emulated hosts: each strategy next to its simulation and the minimum on a link.

All hosts of an emulated cluster share one disk, so the time of "shared-file" includes no network link. A time is that
from the start on all hosts until the last host has the value, as a multiple of the bytes divided by the rate of a
host's network link. TCP's headers alone make it 1.046. With killed or slow hosts, the time of the others is given as a
multiple of the undisturbed time. After a power failure it includes the time until the silent hosts are detected.

Source: Chowdhury et al., "Performance and scalability of broadcast in Spark", section 6.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

import ripieno._native as _native
from ripieno.bench import figures, table
from ripieno.bench.cases import check_sizes
from ripieno.bench.model import modeled
from ripieno.bench.strategies_rank import BroadcastCase
from ripieno.comm.broadcast_variables import SHARED_FILE, WITH_DEGREE
from ripieno.errors import InputError, LabError
from ripieno.lab import Lab
from ripieno.lab.cluster_spec import ClusterSpec, bits_per_s
from ripieno.simulation import Cluster, distribute, pictures, swarm_picture
from ripieno.simulation.distribution import RankEnd, SimulatedFetch
from ripieno.units import bytes_text

#: The strategies of the paper: chain, SSB, CSB with HOSF and with LLCF, BTB, and CHB through a shared file system.
STRATEGIES = ("chain", "splitstream", "csb", "csb-llcf", "bittorrent", SHARED_FILE)
#: Upper limits of the time as multiples of bytes over rate, by number of hosts.
TARGETS = {
    8: {"chain": 1.06, "splitstream": 1.15, "csb": 1.3, "bittorrent": 1.5},
    32: {"chain": 1.08, "splitstream": 1.2, "csb": 1.5, "bittorrent": 1.6},
}
#: Upper limits as multiples of the undisturbed time, with killed hosts and with one slow host. Chains and trees wait
#: for a slow host and have no limit.
KILLED_TARGET = 1.25
#: After a power failure no connection closes, so the limit is this multiple of the undisturbed time plus the detection.
POWER_FAILURE_TARGET = 2.0
#: Seconds until a receiver gets another source: two eighths of the heartbeat timeout, a quarter of this in streams.
DETECTION_S, STREAM_DETECTION_S = 2.5, 0.625
SLOW_TARGETS = {"csb": 1.3, "csb-llcf": 1.3, "bittorrent": 1.3}
#: Minimum speedup of a chain in rack order over one without it, with uplinks of a host's rate.
ORDER_TARGETS = {"chain": 6.0}
#: Explains the row of "shared-file" in tables and pages.
SHARED_FILE_NOTE = (
    "shared-file: all emulated hosts read one disk of this machine, over no link. Do not compare this time with "
    "the other rows: it does not estimate a network file system."
)
ORDER_SEED = 7
TIMEOUT_S, ALPHA_S = 300.0, 50e-6


@dataclass(frozen=True)
class StrategiesQuery:
    """The requested measurement.

    Parameters
    ----------
    hosts
        Number of hosts, including the root.
    size_bytes
        Bytes of the value.
    rate
        Rate of a host's network link, such as "100mbit".
    strategies
        A selection of `STRATEGIES`.
    repetitions
        Repetitions of each strategy.
    block_bytes
        Bytes of a block; None for the default.
    kill
        Number of hosts to kill, and the time as a fraction of the undisturbed time.
    power_failure
        Whether killed hosts are also disconnected from the network, so that none of their connections closes.
    slow
        A host other than the root, and its fraction of the rate.
    record
        Whether to record sender and time of each block.
    racks
        Number of racks of equal size.
    uplink
        Rate of a rack's uplink; by default the sum of its hosts' rates.
    random_order
        Whether to also run with randomly numbered hosts that do not know their racks.
    degree
        Number of concurrent receivers of a source of "csb", "csb-llcf" or "bittorrent".
    unverified
        Whether to alternate each run with a run without verification of blocks.
    """

    hosts: int
    size_bytes: int
    rate: str
    strategies: Sequence[str] = STRATEGIES
    repetitions: int = 3
    block_bytes: int | None = None
    kill: tuple[int, float] | None = None
    power_failure: bool = False
    slow: tuple[int, float] | None = None
    record: bool = False
    racks: int = 1
    uplink: str | None = None
    random_order: bool = False
    degree: int | None = None
    unverified: bool = False

    def __post_init__(self) -> None:
        check_sizes((), [self.size_bytes], self.hosts)
        if self.hosts % self.racks:
            raise InputError(f"hosts={self.hosts}, racks={self.racks}: expected the same number of hosts in each rack")
        if self.random_order and self.racks == 1:
            raise InputError("random_order=True: expected racks=, several")
        if self.kill is not None and not 1 <= self.kill[0] < self.hosts:
            raise InputError(
                f"kill={self.kill[0]}: expected 1 to {self.hosts - 1} hosts, because the root must survive"
            )
        if self.kill is not None and not 0 <= self.kill[1] < 1:
            raise InputError(f"kill={self.kill[0]}@{self.kill[1]:.0%}: expected a share of the time, 0% to 99%")
        if self.power_failure and self.kill is None:
            raise InputError("power_failure=True: expected kill=, the number of hosts and the time")
        if self.slow is not None and not 1 <= self.slow[0] < self.hosts:
            raise InputError(f"slow={self.slow[0]}: expected a host, 1 to {self.hosts - 1}, which is not the root")
        if self.slow is not None and not 0 < self.slow[1] < 1:
            raise InputError(f"slow={self.slow[0]}@{self.slow[1]}: expected a share of the rate, between 0 and 1")

    @property
    def ideal_s(self) -> float:
        """Return the seconds of the bytes at the rate of a host's network link."""
        return 8 * self.size_bytes / bits_per_s("rate", self.rate)

    @property
    def killed(self) -> list[int]:
        """Return the killed ranks, spread over the chain."""
        count = 0 if self.kill is None else self.kill[0]
        return sorted({1 + (2 * index + 1) * (self.hosts - 1) // (2 * count) for index in range(count)})

    def cluster(self) -> Cluster:
        """Return the model of the same hosts."""
        spec = ClusterSpec(self.racks, self.hosts // self.racks, self.rate, self.uplink)
        return replace(modeled(spec), alpha_s=ALPHA_S)

    @property
    def shuffled(self) -> list[int]:
        """Return the hosts in random order, the root first."""
        others = list(range(1, self.hosts))
        random.Random(ORDER_SEED).shuffle(others)
        return [0, *others]

    def __str__(self) -> str:
        racks = "" if self.racks == 1 else f" in {self.racks} racks"
        uplinks = "" if self.uplink is None else f", uplinks {self.uplink}"
        return f"{bytes_text(self.size_bytes)} to {self.hosts} hosts × {self.rate}{racks}{uplinks}"


@dataclass(frozen=True)
class StrategyRun:
    """One broadcast, as recorded by the surviving ranks.

    Attributes
    ----------
    ends_s
        Time at which each rank had the value, in seconds since the first began; None for killed ranks.
    cpu_s
        CPU seconds of each surviving rank.
    switches
        Context switches of each surviving rank.
    serialization_s
        Seconds that the root spent on packing and copying the value, and maximum seconds of the others for unpacking.
    fetches
        Sender and time of each block, if recorded.
    """

    ends_s: list[float | None]
    cpu_s: list[float]
    switches: list[int]
    serialization_s: float
    fetches: list[SimulatedFetch]

    def seconds(self, left_out: Sequence[int] = ()) -> float:
        """Return the time at which the last rank, except those left out, had the value."""
        return max(end for rank, end in enumerate(self.ends_s) if end is not None and rank not in left_out)


@dataclass(frozen=True)
class StrategyRow:
    """The results of a strategy: runs, and the simulated seconds of each kind. Files are not simulated."""

    strategy: str
    runs: list[StrategyRun]
    unverified: list[StrategyRun]
    modeled_s: float
    killed: list[StrategyRun]
    killed_modeled_s: float | None
    slow: list[StrategyRun]
    slow_modeled_s: float | None
    shuffled: list[StrategyRun]
    shuffled_modeled_s: float | None


@dataclass(frozen=True)
class StrategyResults:
    """All rows, and the load of the machine."""

    request: StrategiesQuery
    rows: list[StrategyRow]
    load: tuple[float, float]

    def as_json(self) -> dict[str, Any]:
        """Return the figures of all runs without the records of blocks."""
        ideal_s, request = self.request.ideal_s, self.request
        rows = []
        for row in self.rows:
            fault_free_s = statistics.median(run.seconds() for run in row.runs)
            fields: dict[str, Any] = {
                "strategy": row.strategy,
                "multiples": [run.seconds() / ideal_s for run in row.runs],
                "simulated": _ratio(row.modeled_s or None, ideal_s),
                "target": TARGETS.get(request.hosts, {}).get(row.strategy),
                "cpu_s_per_host": [statistics.mean(run.cpu_s) for run in row.runs],
                "serialization_shares": [run.serialization_s / run.seconds() for run in row.runs],
                "switches_per_host": [statistics.mean(run.switches) for run in row.runs],
            }
            if row.strategy == SHARED_FILE:
                fields["note"] = SHARED_FILE_NOTE
            if row.unverified:
                pairs = list(zip(row.unverified, row.runs, strict=True))
                fields["unverified_of_verified"] = [without.seconds() / run.seconds() for without, run in pairs]
                fields["unverified_cpu_of_verified"] = [sum(without.cpu_s) / sum(run.cpu_s) for without, run in pairs]
            if row.killed:
                fields["killed"] = request.killed
                fields["killed_of_undisturbed"] = [run.seconds() / fault_free_s for run in row.killed]
                fields["killed_simulated"] = _ratio(row.killed_modeled_s, row.modeled_s)
                fields["killed_target"] = KILLED_TARGET
                if request.power_failure:
                    detection_s = STREAM_DETECTION_S if row.strategy in _native.STREAMED else DETECTION_S
                    fields["killed_target"] = POWER_FAILURE_TARGET + detection_s / fault_free_s
            if row.slow and request.slow is not None:
                fields["slow"] = request.slow
                fields["slow_of_undisturbed"] = [run.seconds([request.slow[0]]) / fault_free_s for run in row.slow]
                fields["slow_simulated"] = _ratio(row.slow_modeled_s, row.modeled_s)
            if row.shuffled:
                fields["random_of_undisturbed"] = [run.seconds() / fault_free_s for run in row.shuffled]
                fields["random_simulated"] = _ratio(row.shuffled_modeled_s, row.modeled_s)
            rows.append(fields)
        return {
            "machine": figures.machine(),
            "load": self.load,
            "hosts": request.hosts,
            "bytes": request.size_bytes,
            "rate": request.rate,
            "racks": request.racks,
            "uplink": request.uplink,
            "rows": rows,
        }

    def show(self) -> None:
        """Print a table."""
        headings, lines = self._cells()
        shown = Table(title=self._title(), title_justify="left", caption=self._note, caption_justify="left")
        for heading in headings:
            shown.add_column(heading, justify="right")
        for line in lines:
            shown.add_row(*line)
        table.console().print(shown)

    def page(self) -> str:
        """Return a self-contained page: the table, and a picture of the first run of each kind and strategy."""
        headings, lines = self._cells()
        body = [f"<h1>{escape(self._title())}</h1>", "<table>", _table_row(headings, "th")]
        body += [_table_row(line, "td") for line in lines] + ["</table>"]
        if self._note:
            body.append(f"<p>{escape(self._note)}</p>")
        kills, slow = self.request.killed, self.request.slow
        for each in self.rows:
            kinds = [("undisturbed", each.runs), (f"ranks {kills} killed", each.killed)]
            kinds.append(("hosts numbered at random", each.shuffled))
            kinds.append(("" if slow is None else f"rank {slow[0]} at {slow[1]:g} of the rate", each.slow))
            body += [self._picture(f"{each.strategy}, {kind}", runs[0]) for kind, runs in kinds if runs]
        return pictures.page(f"Broadcast of {self.request}", "\n".join(body))

    def _picture(self, title: str, run: StrategyRun) -> str:
        lost_s = max((fetch.end_s for fetch in run.fetches), default=0.0)
        ends = [RankEnd("lost" if end is None else "done", end, "") for end in run.ends_s]
        return swarm_picture.draw(f"{self.request}, {title}", run.fetches, ends, max(run.seconds(), lost_s))

    def _title(self) -> str:
        load = f"load of the machine {self.load[0]:.1f} before, {self.load[1]:.1f} after"
        return f"{self.request}: multiples of bytes / rate, median (least – greatest); {load}"

    @property
    def _note(self) -> str | None:
        return SHARED_FILE_NOTE if any(row.strategy == SHARED_FILE for row in self.rows) else None

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        request = self.request
        kinds = {"killed": request.kill is not None, "slow": request.slow is not None, "random": request.random_order}
        headings = ["strategy", "real", "simulated", "target", "", "CPU s / host", "switches / host", "serialization"]
        rows = self.as_json()["rows"]
        if request.unverified:
            headings += ["unverified, of verified", "its CPU, of verified"]
        for kind, label in (("killed", "killed"), ("slow", "slow"), ("random", "random order")):
            if kinds[kind]:
                headings += [f"{label}, of undisturbed", "simulated", "target", ""]
        lines = []
        for row in rows:
            line = [row["strategy"], _samples(row["multiples"]), _simulated(row["simulated"])]
            line += _verdict(row["multiples"], row["target"])
            line += [f"{statistics.median(row['cpu_s_per_host']):.2f}"]
            line += [f"{statistics.median(row['switches_per_host']):,.0f}"]
            line += [f"{statistics.median(row['serialization_shares']):.2%}"]
            if request.unverified:
                line += [_samples(row["unverified_of_verified"]), _samples(row["unverified_cpu_of_verified"])]
            for kind, target in (("killed", row.get("killed_target")), ("slow", SLOW_TARGETS.get(row["strategy"]))):
                if kind in row:
                    samples = row[f"{kind}_of_undisturbed"]
                    line += [_samples(samples), _simulated(row[f"{kind}_simulated"]), *_verdict(samples, target)]
                elif kinds[kind]:
                    line += ["–", "–", "", ""]
            if kinds["random"] and row["strategy"] == SHARED_FILE:
                line += ["–", "–", "", ""]
            elif "random_simulated" in row:
                samples, target = row["random_of_undisturbed"], ORDER_TARGETS.get(row["strategy"])
                line += [
                    _samples(samples),
                    _simulated(row["random_simulated"]),
                    *_verdict(samples, target, at_least=True),
                ]
            lines.append(line)
        return headings, lines


def measure(request: StrategiesQuery) -> StrategyResults:
    """Broadcast a value with each strategy, on emulated hosts and in the simulator.

    Raises
    ------
    LabError
        If this machine cannot emulate hosts, or a rank did not get the value.
    """
    load = os.getloadavg()[0]
    with Lab(
        racks=request.racks, hosts=request.hosts // request.racks, rate=request.rate, uplink=request.uplink
    ) as lab:
        rows = [_row(lab, request, strategy) for strategy in request.strategies]
    return StrategyResults(request, rows, (load, os.getloadavg()[0]))


def _row(lab: Lab, request: StrategiesQuery, strategy: str) -> StrategyRow:
    degree = request.degree if strategy in WITH_DEGREE else None
    case = BroadcastCase(
        strategy, request.size_bytes, request.repetitions, request.block_bytes, record=request.record, degree=degree
    )

    def modeled_s(cluster: Cluster, left_out: Sequence[int] = (), order: Sequence[int] | None = None) -> float:
        found = distribute(
            cluster,
            nbytes=request.size_bytes,
            algorithm=strategy,
            block_bytes=request.block_bytes,
            order=order,
            degree=degree,
        )
        ends = [end.at_s for rank, end in enumerate(found.ends) if end.kind == "done" and rank not in left_out]
        return max(at_s for at_s in ends if at_s is not None)

    cluster = request.cluster()
    fault_free_s = 0.0 if strategy == SHARED_FILE else modeled_s(cluster)
    verify = [True, False] if request.unverified else [True]
    found = _runs(lab, replace(case, verify=verify))
    runs, unverified = found[:: len(verify)], found[1::2] if request.unverified else []
    row = StrategyRow(strategy, runs, unverified, fault_free_s, [], None, [], None, [], None)
    if strategy == SHARED_FILE:
        # Its transfer uses no network link, and the ranks wait for each other until the root has written.
        return row
    if request.kill is not None:
        median_s = statistics.median(run.seconds() for run in runs)
        once = replace(
            case,
            repetitions=1,
            killed=request.killed,
            kill_after_s=request.kill[1] * median_s,
            lab=lab.name if request.power_failure else None,
        )
        killed = []
        for _ in range(request.repetitions):
            killed += _runs(lab, once)
            if request.power_failure:
                for rank in request.killed:
                    lab.heal(lab.hosts[rank].name)
        dead = [(rank, request.kill[1] * fault_free_s) for rank in request.killed]
        # The simulator has other timeouts than real links, so the detection of silent hosts takes another time.
        killed_modeled_s = None if request.power_failure else modeled_s(replace(cluster, dead=dead))
        row = replace(row, killed=killed, killed_modeled_s=killed_modeled_s)
    if request.slow is not None:
        rank, share = request.slow
        lab.set_rate(lab.hosts[rank].name, f"{share * bits_per_s('rate', request.rate) / 1000:f}kbit")
        try:
            slow = _runs(lab, case)
        finally:
            lab.set_rate(lab.hosts[rank].name, request.rate)
        slowed = replace(cluster, slow_nodes=[(rank, 1 / share)])
        row = replace(row, slow=slow, slow_modeled_s=modeled_s(slowed, [rank]))
    if request.random_order:
        hosts = [lab.hosts[number] for number in request.shuffled]
        shuffled = _runs(lab, replace(case, uses_racks=False), [host.name for host in hosts])
        row = replace(row, shuffled=shuffled, shuffled_modeled_s=modeled_s(cluster, order=request.shuffled[1:]))
    return row


def _runs(lab: Lab, case: BroadcastCase, on: Sequence[str] | None = None) -> list[StrategyRun]:
    """Return the records of the surviving ranks, by repetition. `on` selects these hosts, in the order of the ranks."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "ripieno.bench.strategies_rank", json.dumps(asdict(case)), folder]
        code = lab.run(words, timeout_s=TIMEOUT_S, prefix=False, keep_going=bool(case.killed), on=on)
        if code != 0 and not case.killed:
            raise LabError(f"{case.strategy}: the ranks ended with code {code}")
        by_rank: dict[int, list[dict[str, Any]]] = {}
        for rank in range(len(lab.hosts)):
            file = Path(folder) / f"{rank}.json"
            if file.exists():
                by_rank[rank] = json.loads(file.read_text())
            elif rank not in case.killed:
                raise LabError(f"{case.strategy}: rank {rank} did not get the value")
    runs = []
    for number in range(case.repetitions * len(case.verify)):
        found = {rank: samples[number] for rank, samples in by_rank.items()}
        begin_s = min(each["begin_s"] for each in found.values())
        runs.append(
            StrategyRun(
                [found[rank]["end_s"] - begin_s if rank in found else None for rank in range(len(lab.hosts))],
                [each["cpu_s"] for each in found.values()],
                [each["switches"] for each in found.values()],
                found[0]["serialization_s"] + max(each["serialization_s"] for rank, each in found.items() if rank > 0),
                [
                    SimulatedFetch(
                        sender, rank, block, size_bytes, start_s + offset_s, end_s + offset_s, "network_link"
                    )
                    for rank, each in found.items()
                    for offset_s in [each["begin_s"] - begin_s]
                    for sender, block, size_bytes, start_s, end_s in each["fetches"]
                ],
            )
        )
    return runs


def _table_row(cells: Sequence[str], kind: str) -> str:
    plain = [Text.from_markup(cell).plain for cell in cells]
    return "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in plain) + "</tr>"


def _ratio(seconds: float | None, of_s: float) -> float | None:
    return None if seconds is None or not of_s else seconds / of_s


def _simulated(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.3f}"


def _samples(found: Sequence[float]) -> str:
    return f"{statistics.median(found):.3f} ({min(found):.3f} – {max(found):.3f})"


def _verdict(found: Sequence[float], target: float | None, *, at_least: bool = False) -> list[str]:
    if target is None:
        return ["", table.VERDICTS[None]]
    median = statistics.median(found)
    if at_least:
        return [f"≥ {target:.3g}", table.VERDICTS[median >= target]]
    return [f"≤ {target:.3g}", table.VERDICTS[median <= target]]
