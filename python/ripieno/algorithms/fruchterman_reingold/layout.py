"""Graph layout as a function with the parameters of networkx's `spring_layout`; the result is a dictionary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ripieno.algorithms.fruchterman_reingold.estimator import FruchtermanReingold
from ripieno.errors import InputError
from ripieno.graph import Graph

if TYPE_CHECKING:
    from ripieno.launch import Job
    from ripieno.launch.engine.contract import Engine

WEIGHT = "weight"
METHODS = ("auto", "force")


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
    store_pos_as: str | None = None,
    *,
    method: str = "auto",
    approximation: str = "auto",
    theta: float = 0.7,
    workers: int = 1,
    threads: int | None = None,
    engine: str | Engine | Job = "local",
) -> dict[Any, NDArray[np.float64]]:
    """Compute force-directed positions of a graph's vertices, as networkx's `spring_layout(method="force")` does.

    Parameters
    ----------
    graph : networkx graph, Graph, or any input of `Graph`
    k : float, default=None
        Distance at which the attraction of an edge of weight 1 equals the repulsion of its ends. None: 1/√n, or with
        `fixed`, 1/√n times the largest coordinate of `pos`.
    pos : dict, default=None
        Initial positions by vertex; missing positions are drawn at random. Vertices that are not in a networkx graph
        are ignored.
    fixed : sequence of vertices, default=None
        Vertices that stay at their `pos`. If any are passed, the result is not scaled. Vertices that are not in a
        networkx graph are ignored.
    iterations : int, default=50
        Maximum number of iterations.
    threshold : float, default=1e-4
        The fit ends when the square root of the sum of all squared moves, divided by the number of vertices, is below
        this.
    weight : str or None, default="weight"
        Edge attribute of a networkx graph that holds the weights; edges without it have weight 1. None: all weights are
        1. For other graphs, weights have no names: "weight" or None.
    scale : float or None, default=1
        Largest coordinate of the result, relative to its center. None: do not scale.
    center : array of shape (dim,), default=None
        Center of the result. None: the origin.
    dim : int, default=2
        Number of dimensions of the positions.
    seed : int, RandomState instance or None, default=None
        Source of the random positions; an integer gives the same initial positions as in networkx.
    store_pos_as : str or None, default=None
        Node attribute of a networkx graph in which to store the positions.
    method : {"auto", "force"}, default="auto"
        Both values select the force method. networkx's "energy" method, its default from 500 vertices on, is not
        available.
    approximation, theta, workers, threads, engine
        As in `FruchtermanReingold`.

    Returns
    -------
    dict
        Position of each vertex, (dim,) float64.

    Raises
    ------
    InputError
        Invalid input or parameter. InputError is a ValueError; its message names the problem.
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
    if method not in METHODS:
        raise InputError(f"method={method!r}: expected 'auto' or 'force'; networkx's 'energy' is not supported")
    nodes = list(graph.nodes) if hasattr(graph, "nodes") else None
    if store_pos_as is not None and nodes is None:
        raise InputError(f"store_pos_as={store_pos_as!r}: expected a networkx graph, not {type(graph).__name__}")
    origin = np.zeros(dim) if center is None else np.asarray(center, np.float64)
    if origin.shape != (dim,):
        raise InputError(f"center has the shape {origin.shape}: expected {(dim,)}")
    if fixed is not None and any(vertex not in (pos or {}) for vertex in fixed):
        raise InputError("fixed: expected vertices that have a position in pos")
    if nodes == []:
        return {}
    if nodes is not None:
        known = set(nodes)
        pos = {vertex: position for vertex, position in (pos or {}).items() if vertex in known}
        fixed = None if fixed is None else [vertex for vertex in fixed if vertex in known]
    model = FruchtermanReingold(
        dim,
        k=k,
        max_iter=iterations,
        tol=threshold,
        init=pos or "random",
        fixed=fixed or (),
        approximation=approximation,
        theta=theta,
        random_state=seed,
        workers=workers,
        threads=threads,
        engine=engine,
    )
    model.fit(_weighted_by(weight, graph))
    positions = model.positions_
    if len(positions) == 1:
        positions = origin[None]
    elif fixed is None and scale is not None:
        positions = positions - positions.mean(axis=0)
        positions = positions * (scale / (np.abs(positions).max() or 1.0)) + origin
    found = dict(zip(model.vertices_.tolist(), positions, strict=True))
    if store_pos_as is not None:
        for vertex, position in found.items():
            graph.nodes[vertex][store_pos_as] = position
    return found


def _weighted_by(weight: str | None, graph: Any) -> Graph:
    """Return the graph with the selected weights."""
    if weight not in (WEIGHT, None) and not hasattr(graph, "nodes"):
        raise InputError(f"weight={weight!r}: expected 'weight' or None unless the graph is a networkx graph")
    if isinstance(graph, Graph):
        return graph
    if weight in (WEIGHT, None):
        return Graph(graph, weighted=False if weight is None else None)
    named = type(graph)()
    named.add_nodes_from(graph.nodes)
    named.add_edges_from((a, b, {WEIGHT: value}) for a, b, value in graph.edges(data=weight, default=1))
    return Graph(named)
