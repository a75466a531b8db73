"""Provide a comparison of all algorithms of a collective: the cost of each, term by term, and its time on a cluster."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from typing import Any

import ripieno._native as _native
from ripieno import log
from ripieno._checks import whole_number
from ripieno.simulation.cluster import Cluster
from ripieno.simulation.simulate import BYTES_MAX
from ripieno.units import bytes_text, duration_text, size_text

TERMS = ("alpha", "beta", "gamma")
_WIDTH = 160


@dataclass(frozen=True)
class AlgorithmCandidate:
    """One algorithm in the comparison.

    Attributes
    ----------
    algorithm
        Its name.
    formula
        Its cost formula on equal links, as documented in its source file.
    terms_s
        Seconds of the formula's message (alpha), byte (beta) and combining (gamma) terms; None without a
        formula.
    seconds
        Simulated time on the cluster, or the sum of `terms_s` if it is not simulated; None if neither is known.
    max_sent_bytes, uplink_bytes
        Maximum bytes sent by one rank, and bytes between racks.
    impossible
        Reason why the algorithm cannot run this call; None if it can.
    unsimulated_operations
        Approximate number of operations of its plans, if they are too large to simulate.
    """

    algorithm: str
    formula: str
    terms_s: tuple[float, float, float] | None
    seconds: float | None
    max_sent_bytes: int | None
    uplink_bytes: int | None
    impossible: str | None
    unsimulated_operations: int | None = None

    @property
    def most_sent_bytes(self) -> int | None:
        """Deprecated name of `max_sent_bytes`."""
        log.warn("AlgorithmCandidate.most_sent_bytes is deprecated, use max_sent_bytes", DeprecationWarning)
        return self.max_sent_bytes


@dataclass(frozen=True)
class Explanation:
    """All candidates for a call, the fastest first.

    Attributes
    ----------
    collective, nbytes, cluster
        The call, and the modeled cluster.
    chosen
        The algorithm that runs by default.
    segment_count
        Number of segments of a vector: k in the formulas.
    candidates
        All algorithms.
    costs
        Source of the link costs.
    """

    collective: str
    nbytes: int
    cluster: Cluster
    chosen: str
    segment_count: int
    candidates: list[AlgorithmCandidate]
    costs: str

    @property
    def fastest(self) -> AlgorithmCandidate:
        """Return the fastest candidate."""
        return self.candidates[0]

    @property
    def reason(self) -> str:
        """Return the advantage of the fastest algorithm over the second, and the default algorithm, as text."""
        best, *others = [each for each in self.candidates if each.seconds is not None]
        text = f"{best.algorithm} is the only one" if not others else _advantage(best, others[0])
        if self.chosen == best.algorithm:
            return f"{text}. {best.algorithm} runs by default."
        default = next((each for each in others if each.algorithm == self.chosen), None)
        if default is None or not default.seconds or not best.seconds:
            return f"{text}. By default {self.chosen} runs."
        return (
            f"{text}. By default {self.chosen} runs, which takes {_times(default.seconds, best.seconds)} as long here."
        )

    @property
    def why(self) -> str:
        """Deprecated name of `reason`."""
        log.warn("Explanation.why is deprecated, use reason", DeprecationWarning)
        return self.reason

    def as_json(self) -> dict[str, Any]:
        """Return all fields but the cluster as JSON values."""
        return {
            "collective": self.collective,
            "nbytes": self.nbytes,
            "ranks": self.cluster.ranks,
            "segment_count": self.segment_count,
            "chosen": self.chosen,
            "fastest": self.fastest.algorithm,
            "reason": self.reason,
            "costs": self.costs,
            "candidates": [asdict(each) for each in self.candidates],
        }

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        target = Console(file=io.StringIO(), width=_WIDTH, highlight=False)
        target.print(
            f"{self.collective} of {size_text(self.nbytes)} among {self.cluster.ranks:,} ranks: {self.cluster}, "
            f"k = {self.segment_count:,} segments"
        )
        table = Table(box=None, pad_edge=False, header_style="")
        headings = ("algorithm", "takes here", *TERMS, "a rank sends", "by uplinks", "formula on equal links")
        for heading in headings:
            is_text = heading in (headings[0], headings[-1])
            table.add_column(heading, justify="left" if is_text else "right", overflow="fold")
        for each in self.candidates:
            table.add_row(*_cells(each))
        target.print(table)
        target.print(self.reason, soft_wrap=True)
        if any(each.unsimulated_operations for each in self.candidates):
            target.print("~: too many operations to simulate, so the time comes from the formula.", soft_wrap=True)
        target.print(f"Costs of links: {self.costs}.", soft_wrap=True)
        file = target.file
        assert isinstance(file, io.StringIO)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def explain(
    collective: str,
    cluster: Cluster,
    *,
    nbytes: int,
    order: str | None = None,
    root: int = 0,
    costs: str = "as given",
) -> Explanation:
    """Evaluate the cost formula of every algorithm of a collective, and simulate its plans on a modeled cluster.

    Parameters
    ----------
    collective
        "allreduce", "broadcast" and so on.
    cluster
        The modeled cluster.
    nbytes
        Bytes of the vector; of a rank's block for allgather, gather and scatter; sent by a rank for alltoall.
    order
        Order of ranks in chains and rings: "racks" (default), "given" or "random:SEED".
    root
        Root of a rooted collective.
    costs
        Source of the link costs, as text.

    Raises
    ------
    InputError
        If the collective, order or root does not exist.
    """
    whole_number("nbytes", nbytes, 0, BYTES_MAX)
    whole_number("root", root, 0, cluster.ranks - 1)
    found = _native.explain(cluster.native(), collective, nbytes, None if order is None else f"@{order}", root)
    return Explanation(
        collective=collective.replace("_", "-"),
        nbytes=nbytes,
        cluster=cluster,
        chosen=found["chosen"],
        segment_count=found["segment_count"],
        candidates=[_candidate(each) for each in found["candidates"]],
        costs=costs,
    )


def _candidate(fields: dict[str, Any]) -> AlgorithmCandidate:
    terms_s = fields.pop("terms_s")
    return AlgorithmCandidate(terms_s=None if terms_s is None else tuple(terms_s), **fields)


def _cells(each: AlgorithmCandidate) -> list[str]:
    if each.impossible is not None:
        return [each.algorithm, "-", "", "", "", "", "", each.impossible]
    terms = ["", "", ""] if each.terms_s is None else [_duration(term) for term in each.terms_s]
    if each.unsimulated_operations is not None:
        price = "-" if each.seconds is None else f"~{_duration(each.seconds)}"
        return [each.algorithm, price, *terms, "", "", each.formula]
    return [
        each.algorithm,
        "never ends" if each.seconds is None else _duration(each.seconds),
        *terms,
        bytes_text(each.max_sent_bytes or 0),
        bytes_text(each.uplink_bytes or 0) if each.uplink_bytes else "",
        each.formula,
    ]


def _duration(seconds: float) -> str:
    return duration_text(seconds) if seconds else "0"


def _times(longer: float | None, shorter: float) -> str:
    return f"{(longer or 0.0) / shorter:.2f} times"


def _advantage(best: AlgorithmCandidate, second: AlgorithmCandidate) -> str:
    """Return the advantage of the best over the second, and the term that contributes most to it."""
    assert best.seconds is not None and second.seconds is not None
    if second.seconds <= best.seconds * (1 + 1e-9):
        return f"{best.algorithm} and {second.algorithm} are equally fast"
    text = (
        f"{best.algorithm} is the fastest; {second.algorithm}, the next, takes {_times(second.seconds, best.seconds)}"
    )
    text += " as long" if best.seconds else ""
    if best.terms_s is None or second.terms_s is None:
        return text
    differences = [theirs - ours for ours, theirs in zip(best.terms_s, second.terms_s, strict=True)]
    index = max(range(len(TERMS)), key=lambda index: differences[index])
    if differences[index] <= 0:
        return f"{text}. The formulas do not show this difference, because the times are simulated"
    return (
        f"{text}, most of it in {TERMS[index]} ({_duration(best.terms_s[index])} against "
        f"{_duration(second.terms_s[index])})"
    )
