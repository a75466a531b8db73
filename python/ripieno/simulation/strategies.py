"""Provide a comparison of broadcast variables' strategies: for simultaneous requests, and with a slow receiver."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass, replace
from typing import Any

from ripieno import log
from ripieno.disciplines import AUTO_ON_DEMAND, AUTO_STREAMED, DISCIPLINES
from ripieno.errors import InputError
from ripieno.simulation.cluster import Cluster
from ripieno.simulation.distribution import distribute
from ripieno.units import bytes_text, duration_text, size_text

#: Fraction of the rate that the slow receiver has.
SLOW_SHARE = 0.2


@dataclass(frozen=True)
class StrategyTimes:
    """Times of one strategy.

    Attributes
    ----------
    strategy
        Its name.
    at_once_s
        Seconds until all ranks have the value if all request it at once.
    slow_receiver_s
        Seconds until all other receivers have the value if the middle receiver has a fifth of the rate.
    max_sent_bytes
        Maximum bytes that a rank sends if all request the value at once.
    """

    strategy: str
    at_once_s: float
    slow_receiver_s: float
    max_sent_bytes: int

    @property
    def most_sent_bytes(self) -> int:
        """Deprecated name of `max_sent_bytes`."""
        log.warn("StrategyTimes.most_sent_bytes is deprecated, use max_sent_bytes", DeprecationWarning)
        return self.max_sent_bytes


@dataclass(frozen=True)
class StrategyExplanation:
    """All strategies, ordered by the time if all receivers request the value at once.

    Attributes
    ----------
    nbytes, cluster
        Length of the value, and the modeled cluster.
    strategies
        Times of all strategies.
    """

    nbytes: int
    cluster: Cluster
    strategies: list[StrategyTimes]

    @property
    def reason(self) -> str:
        """Return the default strategy for each kind of receiver, and the time of the alternative, as text."""
        by_name = {each.strategy: each for each in self.strategies}
        at_once, others = by_name[AUTO_STREAMED], by_name[AUTO_ON_DEMAND]
        once = (
            f"{duration_text(at_once.at_once_s)}, with {others.strategy} {_times(others.at_once_s, at_once.at_once_s)}"
        )
        slow = (
            f"{duration_text(others.slow_receiver_s)}, with {at_once.strategy} "
            f"{_times(at_once.slow_receiver_s, others.slow_receiver_s)}"
        )
        return (
            f"auto uses {at_once.strategy} for files, which all ranks request at once: {once}. It uses "
            f"{others.strategy} for variables, which ranks request at different times: "
            f"if one receiver is slow, the others wait {slow}."
        )

    @property
    def why(self) -> str:
        """Deprecated name of `reason`."""
        log.warn("StrategyExplanation.why is deprecated, use reason", DeprecationWarning)
        return self.reason

    def as_json(self) -> dict[str, Any]:
        """Return all fields but the cluster as JSON values."""
        return {
            "collective": "broadcast",
            "nbytes": self.nbytes,
            "ranks": self.cluster.ranks,
            "reason": self.reason,
            "strategies": [asdict(each) for each in self.strategies],
        }

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        target = Console(file=io.StringIO(), width=160, highlight=False)
        target.print(
            f"broadcast variable of {size_text(self.nbytes)} among {self.cluster.ranks:,} ranks: {self.cluster}"
        )
        table = Table(box=None, pad_edge=False, header_style="")
        for heading in ("strategy", "all at once", "with a slow receiver", "a rank sends"):
            table.add_column(heading, justify="left" if heading == "strategy" else "right")
        for each in self.strategies:
            times = duration_text(each.at_once_s), duration_text(each.slow_receiver_s)
            table.add_row(each.strategy, *times, bytes_text(each.max_sent_bytes))
        target.print(table)
        target.print(self.reason, soft_wrap=True)
        file = target.file
        assert isinstance(file, io.StringIO)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def explain_strategies(cluster: Cluster, *, nbytes: int, root: int = 0) -> StrategyExplanation:
    """Simulate every strategy of a broadcast variable on a modeled cluster, with equal receivers and with a slow one.

    Parameters
    ----------
    cluster
        The modeled cluster, with one rank per node.
    nbytes
        Bytes of the value, at least 1.
    root
        Rank that has the value.

    Raises
    ------
    InputError
        If the cluster has fewer than three ranks or several ranks per node, or `nbytes` is 0.
    """
    if cluster.ranks < 3 or cluster.ranks != cluster.nodes or nbytes < 1:
        raise InputError("strategies: expected a byte or more, and three ranks or more, each on a node of its own")
    slow = (root + cluster.ranks // 2) % cluster.ranks
    slow_cluster = replace(cluster, slow_nodes=[*cluster.slow_nodes, (slow, 1 / SLOW_SHARE)])
    found = []
    for strategy in DISCIPLINES:
        once = distribute(cluster, nbytes=nbytes, algorithm=strategy, root=root)
        ends = distribute(slow_cluster, nbytes=nbytes, algorithm=strategy, root=root).ends
        others_s = [end.at_s for rank, end in enumerate(ends) if rank != slow and end.at_s is not None]
        found.append(StrategyTimes(strategy, once.seconds, max(others_s), max(once.sent_bytes)))
    return StrategyExplanation(nbytes, cluster, sorted(found, key=lambda each: each.at_once_s))


def _times(seconds: float, other_s: float) -> str:
    return f"{seconds / other_s:.2f} times as long"
