"""Benchmark of PageRank on one machine: Ripieno by workers and threads, SciPy, GAP, and the limit of the memory.

All use the same graph, alternating. The distance between our ranks and SciPy's is measured when both have run until
only rounding errors remain. GAP computes in float32, ignores the mass of vertices without outgoing edges, and uses
ranks of the same iteration as soon as they are available.

Source: Beamer, Asanović and Patterson, "The GAP benchmark suite", arXiv:1508.03619, for the peer and its files.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from effort import Effort
from graphs import BenchGraph, rmat
from numpy.typing import NDArray
from ripieno import _native
from ripieno.algorithms import PageRank
from ripieno.bench.figures import Figure, FigureCount, Measurements, Samples
from ripieno.bench.toolchain import Skipped
from ripieno.host import usable_cores
from sklearn.exceptions import ConvergenceWarning

SCALE, QUICK_SCALE = 20, 12
#: Workers and threads of each run.
SHAPES = ((1, 1), (1, 2), (2, 1))
RUN_COUNT, ITERATION_COUNT, TRIAL_COUNT, GAP_TIMEOUT_S = 5, 20, 3, 300.0
DAMPING = 0.85
#: Total change of all ranks below which only rounding errors remain, maximum iterations, and maximum distance.
CHANGE, MAX_ITERATIONS = 1e-15, 400
DISTANCE = 1e-8
#: Upper limit relative to GAP with two threads.
TARGET = 1.3
EDGE_BYTES = 4
#: Adding a vector to another reads two and writes one.
PASS_VECTORS, PASS_BUDGET_S, QUICK_PASS_BUDGET_S = 3, 0.3, 0.01

Vector = NDArray[np.float64]


def measured(report: Measurements, effort: Effort, *, graph: BenchGraph | None = None, gap: Path | None = None) -> None:
    """Add the figures of a graph, by default RMAT; `gap` is GAP's program `pr`."""
    graph = graph or rmat(QUICK_SCALE if effort.quick else SCALE)
    walk = ScipyWalk(graph)
    ours: dict[tuple[int, int], list[list[tuple[float, float]]]] = {shape: [] for shape in SHAPES}
    peers: dict[str, list[float]] = {}
    bandwidth = 0.0
    with tempfile.TemporaryDirectory() as folder:
        if gap is None:
            report.remark("GAP is skipped: pass --gap FILE, its program pr (github.com/sbeamer/gapbs)")
        else:
            _write_gap(walk, Path(folder) / "graph.sg")
        for _ in range(effort.runs(RUN_COUNT)):
            bandwidth = max(bandwidth, _bytes_per_s(graph, QUICK_PASS_BUDGET_S if effort.quick else PASS_BUDGET_S))
            for shape, runs in ours.items():
                runs.append(_laps(_fit(graph, shape, max_iter=ITERATION_COUNT)))
            peers.setdefault("SciPy", []).append(walk.iteration_s())
            for threads in {threads * workers for workers, threads in SHAPES} if gap is not None else ():
                peers.setdefault(_gap_name(threads), []).append(_gap_s(gap, Path(folder) / "graph.sg", threads))
    _add_figures(report, graph, ours, peers, bandwidth)
    _compare(report, graph, walk.ranks())


class ScipyWalk:
    """Power iteration with a SciPy matrix, as in `networkx.pagerank`."""

    def __init__(self, graph: BenchGraph) -> None:
        self.edges = graph.matrix()
        out = np.diff(self.edges.indptr)
        self._lone = out == 0
        inverse = np.divide(1.0, out, out=np.zeros(len(out)), where=out > 0)
        self.products = self.edges.T.tocsr()
        self.products.data *= inverse[self.products.indices]
        self._start = np.full(graph.vertex_count, 1 / graph.vertex_count)

    def iteration_s(self) -> float:
        """Return the median seconds of an iteration."""
        ranks, seconds = self._start, []
        for _ in range(ITERATION_COUNT):
            begin = time.perf_counter()
            ranks, _ = self._step(ranks)
            seconds.append(time.perf_counter() - begin)
        return statistics.median(seconds)

    def ranks(self) -> Vector:
        """Return the ranks after enough iterations that only rounding errors remain."""
        ranks = self._start
        for _ in range(MAX_ITERATIONS):
            ranks, change = self._step(ranks)
            if change < CHANGE:
                break
        return ranks

    def _step(self, ranks: Vector) -> tuple[Vector, float]:
        spread = DAMPING * ranks[self._lone].sum() + 1 - DAMPING
        following = DAMPING * (self.products @ ranks) + spread / len(ranks)
        return following, float(np.abs(following - ranks).sum())


def _compare(report: Measurements, graph: BenchGraph, right: Vector) -> None:
    """Add our distance from SciPy's ranks and our time; and igraph, which reports no iterations."""
    peers: dict[str, Samples] = {}
    try:
        seconds, found = _igraph(graph)
        peers["igraph"] = Samples((seconds,))
        _count_distance(report, graph, "igraph", found, right)
    except ImportError:
        report.remark("igraph is skipped: pip install igraph")
    for shape in SHAPES:
        begin = time.perf_counter()
        model = _fit(graph, shape, tol=CHANGE / graph.vertex_count, max_iter=MAX_ITERATIONS)
        ours = Samples((time.perf_counter() - begin,))
        _count_distance(report, graph, _shape_text(shape), model.ranks_, right)
        case = f"{graph.name}; workers × threads, from arrays of edges to convergence, one run"
        report.figures.append(Figure(case, _shape_text(shape), ours, peers, None, "none", 0.0, ""))


def _igraph(graph: BenchGraph) -> tuple[float, Vector]:
    import igraph

    begin = time.perf_counter()
    edges = np.column_stack([graph.sources, graph.targets])
    ranks = igraph.Graph(graph.vertex_count, edges, directed=True).pagerank(damping=DAMPING)
    return time.perf_counter() - begin, np.array(ranks)


def _count_distance(report: Measurements, graph: BenchGraph, row: str, ranks: Vector, right: Vector) -> None:
    distance = float(np.abs(ranks - right).sum())
    report.counts.append(FigureCount(graph.name, row, distance, "from SciPy's ranks, L1", DISTANCE))


def _fit(graph: BenchGraph, shape: tuple[int, int], *, max_iter: int, tol: float = 0.0) -> PageRank:
    workers, threads = shape
    model = PageRank(DAMPING, tol=tol, max_iter=max_iter, workers=workers, threads=threads)
    with warnings.catch_warnings():
        # The number of iterations is given instead of a tolerance.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit((graph.sources, graph.targets))


def _laps(model: PageRank) -> list[tuple[float, float]]:
    """Return for each iteration its seconds, and the compute seconds of the slowest rank."""
    return [(each.seconds, max(each.compute_s)) for each in model.report_.iterations]


def _add_figures(
    report: Measurements,
    graph: BenchGraph,
    ours: dict[tuple[int, int], list[list[tuple[float, float]]]],
    peers: dict[str, list[float]],
    bandwidth: float,
) -> None:
    parts: dict[str, Callable[[tuple[float, float]], float]] = {
        "": lambda lap: lap[0],
        ", computing": lambda lap: lap[1],
        ", communicating": lambda lap: lap[0] - lap[1],
    }
    case = f"{graph.name}, {graph.vertex_count:,} vertices, {graph.edge_count:,} edges; workers × threads, an iteration"
    for shape, runs in ours.items():
        peer_samples = {
            name: times for name, times in peers.items() if name in ("SciPy", _gap_name(shape[0] * shape[1]))
        }
        for part, of in parts.items():
            report.figures.append(
                Figure(
                    case=case,
                    row=_shape_text(shape) + part,
                    ours=Samples(tuple(statistics.median(map(of, run)) for run in runs)),
                    peers={} if part else {name: Samples(tuple(times)) for name, times in peer_samples.items()},
                    limit_s=None if part else EDGE_BYTES * graph.edge_count / bandwidth,
                    limit=f"{EDGE_BYTES} bytes an edge at {bandwidth / 1e9:.3g} GB/s, the memory "
                    "bandwidth of all cores",
                    work=0.0 if part else graph.edge_count / 1e6,
                    rate_unit="edges/µs",
                    targets={"peer": TARGET} if not part and _gap_name(2) in peer_samples else {},
                )
            )


def _bytes_per_s(graph: BenchGraph, budget_s: float) -> float:
    """Return the memory rate of all cores together, on vectors as large as the edge stream."""
    cores, size_bytes = usable_cores(), EDGE_BYTES * graph.edge_count
    add_s, _ = _native.memory_pass(cores, size_bytes // cores, budget_s)
    return PASS_VECTORS * size_bytes / add_s


def _shape_text(shape: tuple[int, int]) -> str:
    workers, threads = shape
    return f"{workers} × {threads}"


def _gap_name(threads: int) -> str:
    return f"GAP, {threads} {'thread' if threads == 1 else 'threads'}"


def _write_gap(walk: ScipyWalk, target: Path) -> None:
    """Write the graph in GAP's format: directed flag, counts, outgoing edges, then incoming edges by vertex."""
    counts = np.array([walk.edges.nnz, walk.edges.shape[0]], np.int64)
    with target.open("wb") as file:
        file.write(b"\1" + counts.tobytes())
        for matrix in (walk.edges, walk.products):
            file.write(matrix.indptr.astype(np.int64).tobytes() + matrix.indices.astype(np.int32).tobytes())


def _gap_s(gap: Path, graph: Path, threads: int) -> float:
    """Return the seconds of an iteration of GAP, the median of its trials."""
    words = [str(gap), "-f", str(graph), "-i", str(ITERATION_COUNT), "-t", "0", "-n", str(TRIAL_COUNT)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=GAP_TIMEOUT_S, check=False)
    trials = [float(seconds) for seconds in re.findall(r"^Trial Time:\s+([\d.]+)", done.stdout, re.MULTILINE)]
    if done.returncode != 0 or len(trials) != TRIAL_COUNT:
        raise Skipped(f"GAP failed with code {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return statistics.median(trials) / ITERATION_COUNT
