"""Which algorithms trials found the fastest, for ranks that stand as these did; kept by where they stand.

`Communicator.try_algorithms` tries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from ripieno.errors import InputError
from ripieno.files.results import new_file
from ripieno.simulation.link_costs import cache
from ripieno.units import duration_text, size_text


@dataclass(frozen=True)
class Trial:
    """One collective at one size.

    Attributes
    ----------
    collective, size_bytes
        What was tried; the bytes of all chunks together.
    usual, best
        What runs if nothing is tried, and what runs from now on.
    seconds
        Of each algorithm that was not hopeless.
    is_priced
        Whether the seconds are the model's, for want of time.
    """

    collective: str
    size_bytes: int
    usual: str
    best: str
    seconds: Mapping[str, float]
    is_priced: bool


@dataclass(frozen=True, kw_only=True)
class AlgorithmChoices:
    """What trials found.

    Attributes
    ----------
    hosts, nodes, racks
        Of every rank.
    tried_at
        When, in seconds since 1970.
    trials
        Of every collective the sizes that were tried, ascending.
    """

    hosts: Sequence[str]
    nodes: Sequence[int]
    racks: Sequence[str | None]
    tried_at: float
    trials: Sequence[Trial]

    def rows(self, collective: str) -> list[tuple[int, str]]:
        """The algorithms of a collective, each up to so many bytes; beyond the last the last."""
        own = [trial for trial in self.trials if trial.collective == collective]
        # Half way, in powers, to the next size.
        ends = [int((one.size_bytes * other.size_bytes) ** 0.5) for one, other in pairwise(own)]
        rows: list[tuple[int, str]] = []
        for trial, end in zip(own, [*ends, 2**62], strict=False):
            if rows and rows[-1][1] == trial.best:
                rows.pop()
            rows.append((end, trial.best))
        return rows

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> AlgorithmChoices:
        """The choices that `as_json` told."""
        return cls(**{**found, "trials": [Trial(**each) for each in found["trials"]]})

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.tried_at).isoformat(" ", "minutes")
        lines = [f"algorithms of {len(self.hosts)} ranks on {len(set(self.hosts))} hosts, tried {when}"]
        lines += [f"{'collective':16}{'bytes in all':>12}  {'usual':22}{'':>8}  {'best':22}{'':>8}"]
        for trial in self.trials:
            usual_s, best_s = (self._seconds(trial, name) for name in (trial.usual, trial.best))
            better = "as usual" if trial.usual == trial.best else trial.best
            priced = "  by the model" if trial.is_priced else ""
            lines.append(
                f"{trial.collective:16}{size_text(trial.size_bytes):>12}  {trial.usual:22}{usual_s:>8}  "
                f"{better:22}{best_s:>8}{priced}"
            )
        return "\n".join(line.rstrip() for line in lines)

    @staticmethod
    def _seconds(trial: Trial, name: str) -> str:
        return duration_text(trial.seconds[name]) if name in trial.seconds else "-"


def place(hosts: Sequence[str], nodes: Sequence[int], racks: Sequence[str | None]) -> Path:
    """Where the choices of ranks that stand like this are kept."""
    digest = hashlib.sha256(json.dumps([list(hosts), list(nodes), list(racks)]).encode()).hexdigest()
    return cache() / "algorithms" / f"{digest[:16]}.json"


def keep(choices: AlgorithmChoices) -> Path | None:
    """Keep choices on this host; None if there is no place for them."""
    path = place(choices.hosts, choices.nodes, choices.racks)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(choices, path)
    except (OSError, InputError):
        return None
    return path


def kept(hosts: Sequence[str], nodes: Sequence[int], racks: Sequence[str | None]) -> AlgorithmChoices | None:
    """What is kept on this host of ranks that stand like this; what cannot be read is not."""
    try:
        return AlgorithmChoices.from_json(json.loads(place(hosts, nodes, racks).read_text("utf-8")))
    except (OSError, KeyError, TypeError, ValueError):
        return None


def write(choices: AlgorithmChoices, path: Path) -> None:
    """Write a file of choices."""
    with new_file(path) as part:
        part.write_text(json.dumps(choices.as_json(), indent=2) + "\n", "utf-8")
