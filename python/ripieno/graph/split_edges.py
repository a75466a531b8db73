"""Provide the edges in splits: a graph with splits assigned to ranks, which read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from ripieno.errors import InputError
from ripieno.files.sources import EmptyFile
from ripieno.graph.edge_files import open_edges
from ripieno.graph.edges import Edges
from ripieno.graph.memory import in_memory
from ripieno.input import Split


@dataclass(frozen=True)
class SplitEdges:
    """Splits with edges. Only a read determines whether the edges have weights.

    Parameters
    ----------
    splits
        The splits, in order.
    options
        The arguments of `Graph` other than the source. They apply to the edges that a rank has read.
    """

    splits: tuple[Split, ...]
    options: Mapping[str, Any]

    directed = None
    labels = None
    multiple = False
    vertex_count = None

    @property
    def text(self) -> str:
        """A readable description."""
        return f"{len(self.splits)} splits"

    @property
    def weighted(self) -> bool:
        """Whether edges are required to have weights."""
        return bool(self.options["weighted"])

    def read_share(self, rank: int, world_size: int) -> NoReturn:
        """Raise InputError, because the reader of each split depends on the hosts of the ranks."""
        raise InputError("a graph of splits is read by the ranks: expected a fit, or Graph.partition(comm)")


def read_edges(splits: Iterable[Split], weighted: bool | None) -> Edges | None:
    """Return the edges of some splits, or None if there are none.

    Raises
    ------
    InputError
        A split cannot be read, does not consist of edges, or lacks the weights that others have.
    """
    parts = [(split, _read(split, weighted)) for split in splits]
    filled = [(split, edges) for split, edges in parts if len(edges) + len(edges.lone)]
    with_weights = [edges.weights is not None for _, edges in filled]
    if any(with_weights) and not all(with_weights):
        lacking = filled[with_weights.index(False)][0]
        raise InputError(f"{lacking} has no weights, but other splits have some: pass weighted=False, or correct one")
    return Edges.joined([edges for _, edges in filled], weighted=any(with_weights)) if filled else None


def _read(split: Split, weighted: bool | None) -> Edges:
    if split.format.name == "text":
        return _read_text(split, weighted)
    rows = split.read()
    if isinstance(rows, pa.Table) and not len(rows):
        return _no_edges()
    found = in_memory(rows, weighted)
    if found.labels is not None:
        raise InputError(f"{split} has strings as ids: the ranks that read splits expect whole numbers from 0")
    return found.edges


def _read_text(split: Split, weighted: bool | None) -> Edges:
    try:
        file = open_edges(split.place(), "text", weighted)
    except EmptyFile:
        # A part may consist of comments.
        return _no_edges()
    return file.read(split.start, split.stop if split.compression is None else file.source.size)


def _no_edges() -> Edges:
    return Edges(np.empty(0, np.int64), np.empty(0, np.int64))
