"""A layout of a graph as a dictionary, with the parameters of networkx's `spring_layout`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ripieno.algorithms.springs.estimator import FruchtermanReingold
from ripieno.errors import InputError
from ripieno.graph import Graph, open_graph

if TYPE_CHECKING:
    from ripieno.launch import Job
    from ripieno.launch.engine.contract import Engine

WEIGHT = "weight"


def layout(
    graph: Any,
    k: float | None = None,
    pos: Mapping[Any, ArrayLike] | None = None,
    fixed: Sequence[Any] | None = None,
    iterations: int = 50,
    threshold: float = 1e-4,
    weight: str | None = WEIGHT,
    scale: float | None = 1,
    center: ArrayLike | None = None,
    dim: int = 2,
    seed: int | np.random.RandomState | None = None,
    *,
    workers: int = 1,
    threads: int | None = None,
    engine: str | Engine | Job = "local",
) -> dict[Any, NDArray[np.float64]]:
    """Positions of the vertices of a graph by forces, as networkx's `spring_layout(method="force")` finds them.

    Parameters
    ----------
    graph : networkx graph, Graph, or whatever a `Graph` can be made of
    k : float, default=None
        The distance at which an edge of weight 1 pulls as hard as its ends push each other; None: 1/√n, or, with
        `fixed`, that times the largest coordinate of `pos`.
    pos : dict, default=None
        Positions to begin with, by vertex; those that are left out are drawn.
    fixed : sequence of vertices, default=None
        Vertices that stay where `pos` has them. With some the result is not scaled.
    iterations : int, default=50
        Iterations, at most.
    threshold : float, default=1e-4
        It ends when the root of the sum of all squared moves, divided by the number of vertices, is smaller.
    weight : "weight" or None, default="weight"
        Whether edges that have weights pull by them; None: all alike.
    scale : float or None, default=1
        The largest coordinate of the result, from its middle; None: as the forces leave it.
    center : array of shape (dim,), default=None
        The middle of the result; None: the origin.
    dim : int, default=2
        Dimensions of the positions.
    seed : int, RandomState instance or None, default=None
        Source of the random positions, those that networkx draws for the same whole number.
    workers, threads, engine
        As for `FruchtermanReingold`.

    Returns
    -------
    dict
        A position, (dim,) float64, for each vertex.

    Raises
    ------
    InputError
        Bad input or a bad parameter. It is a ValueError whose message says what is wrong.
    RankFailed
        A worker died.

    Examples
    --------
    >>> import networkx
    >>> import ripieno as rp
    >>> positions = rp.layout(networkx.path_graph(["a", "b", "c"]), seed=0)
    >>> sorted(positions)
    ['a', 'b', 'c']
    """
    if weight not in (WEIGHT, None):
        raise InputError(f"weight={weight!r}: expected 'weight' or None")
    graph = open_graph(graph) if weight is not None or isinstance(graph, Graph) else Graph(graph, weighted=False)
    middle = np.zeros(dim) if center is None else np.asarray(center, np.float64)
    if middle.shape != (dim,):
        raise InputError(f"center has the shape {middle.shape}: expected {(dim,)}")
    if fixed is not None and any(vertex not in (pos or {}) for vertex in fixed):
        raise InputError("fixed: expected vertices that have a position in pos")
    model = FruchtermanReingold(
        dim,
        k=k,
        iterations=iterations,
        threshold=threshold,
        init="random" if pos is None else pos,
        fixed=() if fixed is None else fixed,
        random_state=seed,
        workers=workers,
        threads=threads,
        engine=engine,
    )
    model.fit(graph)
    positions = model.positions_
    if fixed is None and scale is not None:
        positions = positions - positions.mean(axis=0)
        positions = positions * (scale / (np.abs(positions).max() or 1.0)) + middle
    return dict(zip(model.vertices_.tolist(), positions, strict=True))
