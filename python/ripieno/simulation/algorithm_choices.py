"""Provide the fastest algorithms from trials, stored by the placement of the ranks.

`Communicator.try_algorithms` runs the trials.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from ripieno import log
from ripieno.errors import InputError
from ripieno.files import disk
from ripieno.files.cache import stored_path
from ripieno.files.results import write_text
from ripieno.files.sources import parsed_json
from ripieno.units import duration_text, size_text


@dataclass(frozen=True)
class Trial:
    """The trial of one collective at one size.

    Attributes
    ----------
    collective, size_bytes
        The collective, and the total bytes of all chunks.
    default, best
        The default algorithm, and the algorithm chosen by the trial.
    seconds
        Seconds of each tried algorithm. Trials skip clearly slow ones.
    is_priced
        Whether the seconds are predictions of the model, because the time for trials was used up.
    """

    collective: str
    size_bytes: int
    default: str
    best: str
    seconds: Mapping[str, float]
    is_priced: bool

    @property
    def usual(self) -> str:
        """Deprecated name of `default`."""
        log.warn("Trial.usual is deprecated, use default", DeprecationWarning)
        return self.default

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Trial:
        """Return the trial from its JSON values. Older files have the key "usual"."""
        return cls(**{"default" if key == "usual" else key: value for key, value in fields.items()})


@dataclass(frozen=True, kw_only=True)
class AlgorithmChoices:
    """The results of all trials.

    Attributes
    ----------
    hosts, nodes, racks
        Host, node and rack of every rank.
    tried_at
        Time of the trials, in seconds since 1970.
    trials
        Trials of each collective, in ascending order of size.
    """

    hosts: Sequence[str]
    nodes: Sequence[int]
    racks: Sequence[str | None]
    tried_at: float
    trials: Sequence[Trial]

    def rows(self, collective: str) -> list[tuple[int, str]]:
        """Return the algorithms of a collective with their upper size limits; the last applies to all larger sizes."""
        own = [trial for trial in self.trials if trial.collective == collective]
        # The limit is the geometric mean of neighboring sizes.
        ends = [int((one.size_bytes * other.size_bytes) ** 0.5) for one, other in pairwise(own)]
        rows: list[tuple[int, str]] = []
        for trial, end in zip(own, [*ends, 2**62], strict=False):
            if rows and rows[-1][1] == trial.best:
                rows.pop()
            rows.append((end, trial.best))
        return rows

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> AlgorithmChoices:
        """Return the choices from the values of `as_json`."""
        return cls(**{**fields, "trials": [Trial.from_json(each) for each in fields["trials"]]})

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.tried_at).isoformat(" ", "minutes")
        lines = [f"algorithms of {len(self.hosts)} ranks on {len(set(self.hosts))} hosts, tried {when}"]
        lines += [f"{'collective':16}{'bytes in all':>12}  {'default':22}{'':>8}  {'best':22}{'':>8}"]
        for trial in self.trials:
            default_s, best_s = (self._seconds(trial, name) for name in (trial.default, trial.best))
            better = "the default" if trial.default == trial.best else trial.best
            priced = "  by the model" if trial.is_priced else ""
            lines.append(
                f"{trial.collective:16}{size_text(trial.size_bytes):>12}  {trial.default:22}{default_s:>8}  "
                f"{better:22}{best_s:>8}{priced}"
            )
        return "\n".join(line.rstrip() for line in lines)

    @staticmethod
    def _seconds(trial: Trial, name: str) -> str:
        return duration_text(trial.seconds[name]) if name in trial.seconds else "-"


def _path(hosts: Sequence[str], nodes: Sequence[int], racks: Sequence[str | None]) -> Path:
    return stored_path("algorithms", [list(hosts), list(nodes), list(racks)])


def store(choices: AlgorithmChoices) -> Path | None:
    """Store choices on this host. Return None if the cache cannot be written."""
    path = _path(choices.hosts, choices.nodes, choices.racks)
    try:
        disk.make_folders(path.parent)
        write(choices, path)
    except (OSError, InputError):
        return None
    return path


def load_stored(hosts: Sequence[str], nodes: Sequence[int], racks: Sequence[str | None]) -> AlgorithmChoices | None:
    """Return the choices stored on this host for ranks with this placement; None if unreadable."""
    try:
        return AlgorithmChoices.from_json(parsed_json(_path(hosts, nodes, racks).read_text("utf-8")))
    except (OSError, KeyError, TypeError, ValueError):
        return None


def write(choices: AlgorithmChoices, path: Path) -> None:
    """Write choices to a file."""
    write_text(path, json.dumps(choices.as_json(), indent=2) + "\n")
