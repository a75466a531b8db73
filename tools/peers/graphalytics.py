"""The validation graphs of LDBC Graphalytics as tests: the six algorithms, compared with the published results.

They are in a checkout of github.com/ldbc/ldbc_graphalytics. As in its validation, results of numbers may differ by
`TOLERANCE`, relative to the result.
"""

from __future__ import annotations

import math
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import outcomes
import ripieno as rp
from outcomes import Outcome
from sklearn.exceptions import ConvergenceWarning

GRAPHS = Path("graphalytics-validation/src/main/resources/validation-graphs")
TOLERANCE = 1e-4
#: The text of the distance of an unreachable vertex, in edges.
UNREACHABLE = str(2**63 - 1)


@dataclass(frozen=True)
class GraphAlgorithm:
    """An estimator, made from the argument of a graph and an engine, and its attribute with the results."""

    model: Callable[..., Any]
    result: str
    is_weighted: bool = False


@dataclass(frozen=True)
class GraphCase:
    """A graph and its published results.

    Attributes
    ----------
    algorithm : str
    argument : int
        The source or the number of iterations.
    edges : str
        The file with a line per vertex, or for weighted graphs with a line per edge.
    expected : str
        The file with a line per vertex.
    """

    algorithm: str
    argument: int
    edges: str
    expected: str

    @property
    def directed(self) -> bool:
        return "undir" not in self.edges


ALGORITHMS = {
    "BFS": GraphAlgorithm(rp.BFS, "distances_"),
    "PR": GraphAlgorithm(lambda count, **options: rp.PageRank(max_iter=count, tol=0.0, **options), "ranks_"),
    "WCC": GraphAlgorithm(lambda _, **options: rp.ConnectedComponents(**options), "labels_"),
    "CDLP": GraphAlgorithm(lambda count, **options: rp.CommunityDetection(max_iter=count, **options), "labels_"),
    "LCC": GraphAlgorithm(lambda _, **options: rp.ClusteringCoefficients(**options), "coefficients_"),
    "SSSP": GraphAlgorithm(rp.ShortestPaths, "distances_", is_weighted=True),
}
#: The arguments of each algorithm on its directed and undirected graph, then on the two example graphs.
ARGUMENTS = {
    "BFS": (1, 1, 1, 2),
    "PR": (14, 26, 2, 2),
    "WCC": (0, 0, 0, 0),
    "CDLP": (5, 5, 2, 2),
    "LCC": (0, 0, 0, 0),
    "SSSP": (1, 1, 1, 2),
}


def cases(tree: Path) -> dict[str, GraphCase]:
    """Return the cases by name, after a check that `tree` has their files."""
    found = {}
    for name, arguments in ARGUMENTS.items():
        own, weighted = name.lower(), ALGORITHMS[name].is_weighted
        for kind, argument in zip(("dir", "undir"), arguments[:2], strict=True):
            edges = f"{own}/{kind}-input" + (".e" if weighted else "")
            found[f"{name}.{kind}"] = GraphCase(name, argument, edges, f"{own}/{kind}-output")
        for kind, argument in zip(("directed", "undirected"), arguments[2:], strict=True):
            edges = f"example/example-{kind}" + (".e" if weighted else "-input")
            found[f"{name}.example-{kind}"] = GraphCase(name, argument, edges, f"example/example-{kind}-{name}")
    missing = [each.edges for each in found.values() if not (tree / GRAPHS / each.edges).is_file()]
    if missing:
        raise SystemExit(
            f"{tree / GRAPHS / missing[0]} is missing: pass a checkout of github.com/ldbc/ldbc_graphalytics with --tree"
        )
    return found


def run(tree: Path, name: str, worker_count: int) -> Outcome:
    """Return the outcome of a case with a number of workers."""
    try:
        with rp.launch(worker_count) as job:
            _check(cases(tree)[name], tree / GRAPHS, job)
    except Exception:
        return outcomes.of_problem(traceback.format_exc())
    return "passed", ""


def _check(case: GraphCase, folder: Path, job: rp.Job) -> None:
    algorithm = ALGORITHMS[case.algorithm]
    with warnings.catch_warnings():
        # The number of iterations is given.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = algorithm.model(case.argument, engine=job).fit(_graph(case, folder))
    found = dict(zip(model.vertices_, getattr(model, algorithm.result), strict=True))
    lines = [line.split() for line in (folder / case.expected).read_text().splitlines() if line]
    expected = {int(vertex): _value(text) for vertex, text in lines}
    assert found.keys() == expected.keys(), f"vertices {sorted(found)}: expected {sorted(expected)}"
    for vertex, value in expected.items():
        assert math.isclose(found[vertex], value, rel_tol=TOLERANCE * isinstance(value, float)), (
            f"vertex {vertex} has {found[vertex]}: expected {value}"
        )


def _graph(case: GraphCase, folder: Path) -> Any:
    """Read a graph of networkx."""
    path, kind = folder / case.edges, nx.DiGraph if case.directed else nx.Graph
    if ALGORITHMS[case.algorithm].is_weighted:
        found, vertices = nx.read_weighted_edgelist(path, create_using=kind, nodetype=int), path.with_suffix(".v")
        found.add_nodes_from(map(int, vertices.read_text().split()))
    else:
        found = nx.read_adjlist(path, create_using=kind, nodetype=int)
    graph = kind()
    # Labels of communities are compared by the order of the nodes.
    graph.add_nodes_from(sorted(found))
    graph.add_edges_from(found.edges(data=True))
    return graph


def _value(text: str) -> int | float:
    """Return a result, where a distance in edges is -1 for unreachable vertices."""
    if text == UNREACHABLE:
        return -1
    return int(text) if text.isdigit() else float(text)
