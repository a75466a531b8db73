"""The board as OpenMetrics text, for Prometheus and other readers: by rank, never by pairs of ranks.

Source: "OpenMetrics, a cloud-native, highly scalable metrics protocol", version 1.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ripieno._version import __version__
from ripieno.dashboard.board import Board, BoardRank

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Sample = tuple[Mapping[str, Any], float]

#: Gauges of live ranks: name, unit, help, and the value.
_GAUGES: tuple[tuple[str, str, str, Callable[[BoardRank], float]], ...] = (
    ("ripieno_memory_bytes", "bytes", "Memory of the rank's process.", lambda rank: rank.memory_bytes),
    ("ripieno_cores", "", "Cores used by the rank's process recently.", lambda rank: rank.cores),
)
#: Counters of all ranks: name, unit, help, and the sum.
_COUNTERS = (
    ("ripieno_calls", "", "Completed collectives and messages.", "call_count"),
    ("ripieno_sent_bytes", "bytes", "Payload sent by the rank.", "bytes_sent"),
    ("ripieno_received_bytes", "bytes", "Payload received by the rank.", "bytes_received"),
    ("ripieno_program_seconds", "seconds", "Time inside programs.", "busy_s"),
    ("ripieno_communicating_seconds", "seconds", "Time inside calls, including waiting.", "called_s"),
    ("ripieno_waiting_seconds", "seconds", "Time inside calls without progress.", "waited_s"),
    ("ripieno_cpu_seconds", "seconds", "Processor time since the dashboard first saw the rank.", "cpu_s"),
)


def text_of(board: Board) -> str:
    """Return all metrics as text."""
    with board.lock:
        lines = [line for family in _families(board) for line in family]
    return "\n".join([*lines, "# EOF", ""])


def _families(board: Board) -> Iterator[list[str]]:
    job, ranks = board.job, [board.ranks[rank] for rank in sorted(board.ranks)]
    about = {"version": __version__, "place": job["place"]}
    yield _family("ripieno", "info", "", "Version of Ripieno, and place of the job.", [(about, 1)], suffix="_info")
    states = [
        ({"ripieno_state": state}, int(job["state"] == state)) for state in ("starting", "ready", "running", "over")
    ]
    yield _family("ripieno_state", "stateset", "", "State of the job.", states)
    lost = [({"rank": each.rank}, int(each.lost is not None)) for each in ranks]
    yield _family("ripieno_rank_lost", "gauge", "", "1 if the rank died or became silent.", lost)
    for name, unit, help_text, value in _GAUGES:
        yield _family(
            name, "gauge", unit, help_text, [(_rank_labels(each), value(each)) for each in ranks if not each.lost]
        )
    for name, unit, help_text, key in _COUNTERS:
        samples = [(_rank_labels(each), each.sums[key]) for each in ranks]
        yield _family(name, "counter", unit, help_text, samples, suffix="_total")
    waits = sorted(board.waited_for_s.items())
    yield _family(
        "ripieno_waited_for_seconds",
        "counter",
        "seconds",
        "Time that other ranks have waited for the rank.",
        [({"rank": rank}, waited_s) for rank, waited_s in waits],
        suffix="_total",
    )
    by_algorithm = sorted(board.usage.items())
    for name, unit, help_text, place in (
        ("ripieno_algorithm_calls", "", "Calls by algorithm, all ranks.", 0),
        ("ripieno_algorithm_sent_bytes", "bytes", "Payload sent by each algorithm, all ranks.", 1),
    ):
        samples = [
            ({"collective": collective, "algorithm": algorithm}, sums[place])
            for (collective, algorithm), sums in by_algorithm
        ]
        yield _family(name, "counter", unit, help_text, samples, suffix="_total")
    measures = board.iterations.latest
    if measures:
        yield _family(
            "ripieno_iteration", "gauge", "", "The latest iteration of the fit.", [({}, board.iterations.number)]
        )
        of_fit = [({"name": name}, value) for name, value in measures.items()]
        yield _family("ripieno_measure", "gauge", "", "Measurements of the latest iteration.", of_fit)


def _family(name: str, kind: str, unit: str, help_text: str, samples: Iterable[Sample], suffix: str = "") -> list[str]:
    head = [f"# TYPE {name} {kind}", *([f"# UNIT {name} {unit}"] if unit else []), f"# HELP {name} {help_text}"]
    return [*head, *(f"{name}{suffix}{_labels(labels)} {_number(value)}" for labels, value in samples)]


def _rank_labels(rank: BoardRank) -> dict[str, Any]:
    return {"rank": rank.rank, "host": rank.host}


def _labels(labels: Mapping[str, Any]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    """Format a number for OpenMetrics, including NaN, +Inf and -Inf."""
    text = repr(float(value))
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(text, text)
