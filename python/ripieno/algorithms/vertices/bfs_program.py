"""The worker program of breadth-first search: one step along the edges per distance.

The frontier consists of the vertices that were reached in the previous step. An unreached vertex takes the smallest of
its sources in the frontier as its parent. Edges to reached vertices are skipped, so most edges are read in only a few
of the steps.

Sources: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section I.A.2; Beamer, Asanović
and Patterson, "Direction-optimizing breadth-first search", SC 2012, section 4, for the bottom-up step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.data_facts import graph_facts
from ripieno.algorithms.vertices.values import NO_SOURCE, VertexValues
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.errors import InputError
from ripieno.graph import Graph, load
from ripieno.kernels.lookup import columns_of_ids

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "bfs"
NOT_REACHED = -1


@dataclass(frozen=True)
class BfsPart:
    """One worker's part of the result.

    Parameters
    ----------
    ids, distances, parents : (h,) int64
        Vertices that this worker owns, their distances in edges, and their parents; -1 for unreached vertices.
    resumed_from
        Number of completed steps in the resumed state, or None.
    """

    ids: NDArray[np.int64]
    distances: NDArray[np.int64]
    parents: NDArray[np.int64]
    resumed_from: int | None


def fit(comm: Communicator, graph: Graph, source: int, checkpoint_options: CheckpointOptions) -> BfsPart:
    """Search from `source`, or resume from saved state.

    Raises
    ------
    InputError
        On every rank: invalid input (see `ripieno.graph.load`), or the graph does not have the vertex `source`.
    """
    local = load(comm, graph)
    values = VertexValues(comm, local)
    distances, parents = (np.full(len(values.vertices), NOT_REACHED) for _ in range(2))
    frontier = values.vertices == source
    if not comm.allreduce(bool(frontier.any()), op="or"):
        raise InputError(f"source={source}: the graph has no such vertex")
    with IterationCheckpoint(
        comm, NAME, checkpoint_options, shared=False, data=lambda: graph_facts(comm, local)
    ) as checkpoint:
        saved, steps = checkpoint.load(), checkpoint.done
        if saved:
            distances, parents, frontier = columns_of_ids(values.vertices, saved)
        resumed_from = steps or None
        while comm.allreduce(bool(frontier.any()), op="or"):
            distances[frontier] = steps
            sources = values.min_sources(frontier, distances == NOT_REACHED)
            frontier = sources != NO_SOURCE
            parents[frontier] = sources[frontier]
            steps += 1
            if checkpoint.is_due(steps):
                own = (each[values.is_owned] for each in (values.vertices, distances, parents, frontier))
                checkpoint.save(steps, tuple(own))
    is_owned = values.is_owned
    return BfsPart(values.vertices[is_owned], distances[is_owned], parents[is_owned], resumed_from)
