"""Provide the common parts of all edge file readers: reading a share, and finding the columns of the ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ripieno.errors import InputError
from ripieno.graph.edges import Edges
from ripieno.input.shares import FileShare

# Names are compared in lower case, without "_", blanks, "id" and "node", and without a Neo4j type: FromNodeId and
# from_id match `from`, weight:double matches `weight`.
SOURCE_NAMES = ("source", "src", "from", "u", "row")
TARGET_NAMES = ("target", "tgt", "dst", "dest", "destination", "to", "v", "col")
WEIGHT_NAMES = ("weight", "weights", "w")
#: The ends of an edge as Neo4j and its tools name them: ":START_ID", "_start", "startNodeId". "end" alone is ambiguous.
NEO4J_ENDS = re.compile(r"[:_]?(start|end)[_ ]?(?:node)?[_ ]?(?:id)?")


class EdgeFile(Protocol):
    """An open file of edges with known columns."""

    @property
    def path(self) -> str:
        """The path of the file."""

    @property
    def size_bytes(self) -> int:
        """The size of the file in bytes."""

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""

    def read(self, share: FileShare) -> Edges:
        """Return the edges of a share."""


class EdgeColumns(NamedTuple):
    """The columns of the ends of an edge, and of its weight."""

    source: int
    target: int
    weight: int | None


def choose_columns(path: str, names: Sequence[str], weighted: bool | None) -> EdgeColumns:
    """Choose the columns by name, or the first ones if there are no names or only two columns.

    Raises
    ------
    InputError
        There are fewer than two columns; no name of several marks the ends; a requested weight is missing; or an
        unnamed column may be a weight or not.
    """
    if len(names) < 2:
        raise InputError(f"{path}: one column, expected a source and a target")
    short = [_short(name) for name in names]
    source, target, weight = (
        next((short.index(name) for name in known if name in short), None)
        for known in (SOURCE_NAMES, TARGET_NAMES, WEIGHT_NAMES)
    )
    has_names = any(name.strip() for name in names)
    if source is None or target is None:
        if has_names and (len(names) > 2 or weight is not None):
            raise InputError(
                f"{path} has the columns {', '.join(map(repr, names))}: the columns of sources and "
                f"targets are unknown, expected names such as {SOURCE_NAMES[0]!r} and {TARGET_NAMES[0]!r}"
            )
        # With two columns, the one without a known name is the other end.
        source, target = (1, 0) if source == 1 or target == 0 else (0, 1)
    if weighted is False:
        return EdgeColumns(source, target, None)
    if weight is None and not has_names and len(names) > 2:
        if weighted is None:
            raise InputError(
                f"{path} has {len(names)} columns without names: pass weighted=True if the third one "
                "is a weight, else weighted=False"
            )
        weight = 2
    if weighted and weight is None:
        raise InputError(f"{path} has no column of weights: expected one named {WEIGHT_NAMES[0]!r}, or a third one")
    return EdgeColumns(source, target, weight)


def _short(name: str) -> str:
    # Neo4j appends the id space to a name, ":START_ID(City)", and the type, "weight:double".
    plain = re.sub(r"\(.*\)$", "", name.strip().lower())
    if not plain.startswith(":"):
        plain = plain.partition(":")[0]
    ends = NEO4J_ENDS.fullmatch(plain)
    if ends and plain not in ("start", "end"):
        return "source" if ends[1] == "start" else "target"
    return re.sub(r"[_ ]", "", plain).removesuffix("id").removesuffix("node")
