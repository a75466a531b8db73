"""Benchmarks of multidimensional scaling and layouts: an iteration compared with alternating peers.

The peers of MDS are scikit-learn, and the same step in NumPy with float32 and matrix products. The normalized stress
after the last iteration is compared. The peer of layouts is igraph: without its grid for all pairs, and with it for
many vertices. With several ranks, computing and bytes of an iteration are counted separately, because ranks of one
machine share its cores. The case "annealing" compares annealed fits with the best of random starts; it takes minutes.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import gemm
import numpy as np
from effort import Effort, Measured
from numpy.typing import NDArray
from ripieno.bench.figures import Figure, FigureCount, Measurements, Samples

POINT_COUNT, DIMENSIONS = 4640, 3
VERTEX_COUNT, EDGES_PER_VERTEX = 17_903, 11
MANY_VERTICES = 200_000
ITERATION_COUNT, LAYOUT_ITERATION_COUNT = 10, 4
RUN_COUNT = 5
TARGETS, LAYOUT_TARGETS = {"peer": 1 / 10}, {"peer": 1 / 30}
#: Numbers of ranks with counted computing and bytes, and iterations of a fit.
RANKS, QUICK_RANKS, RANKS_ITERATIONS = (1, 2, 4, 8), (1, 3), 30
#: Limits relative to the computing of one rank divided by the number of ranks, and to the bytes of other ranks' rows.
COMPUTING_TARGETS, BYTES_TARGET = {"limit": 1.25}, 1.05
KNOWN = 0.9
#: Random starts, annealed fits, and the maximum iterations of each.
STARTS, ANNEALED, MAX_ITERATIONS = 10, 5, 1000
ALL_CASES = ("scaling", "ranks", "layout")


def cases(data: Path | None) -> dict[str, Measured]:
    """Return the measurements by name."""
    return {
        "scaling": partial(_scaling, data=data),
        "ranks": partial(_ranks, data=data),
        "annealing": partial(_annealing, data=data),
        "layout": _layout,
    }


def _scaling(report: Measurements, effort: Effort, data: Path | None) -> None:
    import ripieno as rp

    dissimilarities = _dissimilarities(data, 200 if effort.quick else POINT_COUNT)
    count = len(dissimilarities)
    wide = dissimilarities.astype(np.float64)
    narrow = dissimilarities.astype(np.float32)
    ours: list[float] = []
    peers: dict[str, list[float]] = {"NumPy, float32": [], "scikit-learn": []}
    stresses: dict[str, list[float]] = {}
    for run in range(effort.runs(RUN_COUNT)):
        start = np.random.RandomState(run).uniform(size=(count, DIMENSIONS))
        model = rp.MDS(DIMENSIONS, init=start, max_iter=ITERATION_COUNT, tol=0).fit(dissimilarities)
        ours.append(statistics.median(step.seconds for step in model.report_.iterations))
        stresses.setdefault("Ripieno", []).append(model.normalized_stress_)
        for name, (seconds, stress) in {
            "NumPy, float32": _by_numpy(narrow, start),
            "scikit-learn": _by_scikit_learn(wide, start),
        }.items():
            peers[name].append(seconds)
            stresses.setdefault(name, []).append(stress)
    case = f"SMACOF, {count:,} points of {DIMENSIONS} dimensions, int16"
    report.figures.append(
        Figure(
            case=case,
            row="an iteration, all cores",
            ours=Samples(tuple(ours)),
            peers={name: Samples(tuple(seconds)) for name, seconds in peers.items()},
            limit_s=_reading_s(dissimilarities),
            limit="reading all dissimilarities, by one core",
            work=count**2 / 1e9,
            rate_unit="G pairs/s",
            targets=TARGETS,
        )
    )
    for name, found in stresses.items():
        if name != "Ripieno":
            pairs = zip(stresses["Ripieno"], found, strict=True)
            difference = max(abs(mine - theirs) for mine, theirs in pairs)
            report.counts.append(
                FigureCount(case, f"difference of the normalized stress to {name}", difference, "", 1e-4)
            )


def _ranks(report: Measurements, effort: Effort, data: Path | None) -> None:
    """Measure computing of the slowest rank, and bytes, of an iteration, without and with weights."""
    dissimilarities = _dissimilarities(data, 200 if effort.quick else POINT_COUNT)
    count = len(dissimilarities)
    known = np.triu(np.random.default_rng(0).random((count, count)) < KNOWN, 1)
    weighings = {"SMACOF": None, "weighted SMACOF": (known | known.T).astype(np.float32)}
    for solver, weights in weighings.items():
        case = f"{solver}, {count:,} points of {DIMENSIONS} dimensions, an iteration by ranks of one thread"
        alone_s = 0.0
        for ranks in QUICK_RANKS if effort.quick else RANKS:
            seconds, received, calls = _iterations(dissimilarities, weights, ranks, effort)
            alone_s = alone_s or statistics.median(seconds)
            report.figures.append(
                Figure(
                    case=case,
                    row=f"{ranks} ranks, computing of the slowest",
                    ours=Samples(tuple(seconds)),
                    peers={},
                    limit_s=alone_s / ranks,
                    limit="the computing of one rank, divided evenly",
                    work=count**2 / 1e9,
                    rate_unit="G pairs/s",
                    targets=COMPUTING_TARGETS,
                )
            )
            # A pass gathers k + 2 numbers of each point, and a product with the weights k.
            numbers = count * (DIMENSIONS + 2 + (calls - 1) * DIMENSIONS)
            others = 8 * numbers * (1 - 1 / ranks)
            row = f"{ranks} ranks, bytes that a rank gets, by {calls:.3g} collectives"
            report.counts.append(FigureCount(case, row, received / 1e3, "kB", BYTES_TARGET * others / 1e3))


def _iterations(
    dissimilarities: NDArray[np.int16], weights: NDArray[np.float32] | None, ranks: int, effort: Effort
) -> tuple[list[float], float, float]:
    """Return seconds of the slowest rank's computing, one per run, and bytes and collectives of a rank per iteration.

    The shortest iteration of each rank counts: ranks share cores, and no other rank delayed that iteration.
    """
    import ripieno as rp

    start = np.random.RandomState(0).uniform(size=(len(dissimilarities), DIMENSIONS))
    seconds: list[float] = []
    counted: list[tuple[float, float]] = []
    with rp.launch(ranks, threads=1) as job:
        for iterations in [1, 1, *[RANKS_ITERATIONS] * effort.runs(RUN_COUNT)]:
            model = rp.MDS(DIMENSIONS, weights=weights, init=start, max_iter=iterations, tol=0, engine=job)
            report = model.fit(dissimilarities).report_
            counted.append(
                tuple(max(rank[count] for rank in report.traffic) for count in ("bytes_received", "call_count"))
            )
            if iterations > 1:
                computing = np.array([step.compute_s for step in report.iterations])
                seconds.append(float(computing.min(axis=0).max()))
    # The part outside iterations is equal in all fits and cancels out.
    received, calls = np.subtract(counted[2], counted[1]) / (RANKS_ITERATIONS - 1)
    return seconds, float(received), float(calls)


def _annealing(report: Measurements, effort: Effort, data: Path | None) -> None:
    """Compare the normalized stress of annealed fits with the best of random starts, and the iterations of both."""
    import ripieno as rp

    dissimilarities = _dissimilarities(data, 60 if effort.quick else POINT_COUNT)
    starts = [
        rp.MDS(DIMENSIONS, random_state=seed, max_iter=MAX_ITERATIONS).fit(dissimilarities)
        for seed in range(3 if effort.quick else STARTS)
    ]
    stresses = sorted(model.normalized_stress_ for model in starts)
    iterations = sum(model.n_iter_ for model in starts)
    case = f"annealing, {len(dissimilarities):,} points, {len(starts)} starts of SMACOF"
    report.remark(
        f"{case}: normalized stress {stresses[0]:.5f} – {stresses[-1]:.5f}, median {statistics.median(stresses):.5f}, "
        f"{iterations} iterations in all"
    )
    for seed in range(2 if effort.quick else ANNEALED):
        model = rp.MDS(DIMENSIONS, method="da-smacof", random_state=seed).fit(dissimilarities)
        row = f"da-smacof, seed {seed}, {model.n_iter_} iterations, normalized stress, compared with the best start"
        report.counts.append(FigureCount(case, row, model.normalized_stress_, "", stresses[0]))


def _layout(report: Measurements, effort: Effort) -> None:
    """Measure layouts with all pairs and with Barnes-Hut, also in processor time, since igraph has one thread."""
    quick = effort.quick
    count = 300 if quick else VERTEX_COUNT
    # Per pair of n²/2, in both dimensions: a multiply-add for the distance and for each push. The division counts as
    # two.
    limit_s = 14.0 * count**2 / 2 * gemm.square_s(np.float32, quick=quick)
    exact = _Layouts(count, 3 if quick else LAYOUT_ITERATION_COUNT, {"igraph": {"grid": "nogrid"}}, {})
    exact.measure(report, effort.runs(RUN_COUNT))
    for row, ours, peers in exact.rows:
        report.figures.append(
            Figure(
                case=f"layout, {count:,} vertices, {len(exact.edges):,} edges, all pairs",
                row=row,
                ours=ours,
                peers=peers,
                limit_s=limit_s,
                limit="14 operations a pair at sgemm's rate on all cores",
                work=count**2 / 1e9,
                rate_unit="G pairs/s",
                targets=LAYOUT_TARGETS,
            )
        )
    many = 3000 if quick else MANY_VERTICES
    peers = {"igraph, grid": {"grid": "grid"}, "all pairs": {"approximation": "exact"}}
    clusters = _Layouts(many, 3, peers, {"approximation": "barnes-hut"})
    clusters.measure(report, effort.runs(RUN_COUNT))
    for row, ours, found in clusters.rows:
        report.figures.append(
            Figure(
                case=f"layout, {many:,} vertices, {len(clusters.edges):,} edges, Barnes-Hut",
                row=row,
                ours=ours,
                peers=found,
                limit_s=None,
                limit="none",
                work=many / 1e6,
                rate_unit="M vertices/s",
            )
        )


class _Layouts:
    """Alternating layout iterations of one graph: ours, and peers by igraph or by ours with other parameters."""

    def __init__(
        self, count: int, iterations: int, peers: dict[str, dict[str, str]], parameters: dict[str, str]
    ) -> None:
        self.edges = _edges(count)
        self._count = count
        self._iterations = iterations
        self._peers = peers
        self._parameters = parameters
        self._ours: list[tuple[float, float]] = []
        self._theirs: dict[str, list[tuple[float, float]]] = {}

    def measure(self, report: Measurements, runs: int) -> None:
        """Measure this number of turns."""
        try:
            import igraph
        except ImportError:
            igraph = None
            report.remark("igraph is not installed: pip install python-igraph")
        for run in range(runs):
            self._ours.append(self._by_us(run, self._parameters))
            for name, parameters in self._peers.items():
                if "grid" not in parameters:
                    self._theirs.setdefault(name, []).append(self._by_us(run, parameters))
                elif igraph is not None:
                    graph = igraph.Graph(self._count, self.edges.tolist())
                    begin = time.perf_counter(), time.process_time()
                    graph.layout_fruchterman_reingold(niter=self._iterations, **parameters)
                    wall_s, processor_s = time.perf_counter() - begin[0], time.process_time() - begin[1]
                    took = (wall_s / self._iterations, processor_s / self._iterations)
                    self._theirs.setdefault(name, []).append(took)

    @property
    def rows(self) -> list[tuple[str, Samples, dict[str, Samples]]]:
        """Return elapsed and processor seconds."""
        return [
            (
                row,
                Samples(tuple(took[at] for took in self._ours)),
                {name: Samples(tuple(took[at] for took in found)) for name, found in self._theirs.items()},
            )
            for at, row in enumerate(("an iteration, all cores", "an iteration, processor time"))
        ]

    def _by_us(self, seed: int, parameters: dict[str, str]) -> tuple[float, float]:
        """Return the median seconds of the iterations after the first one."""
        import ripieno as rp

        moments: list[tuple[float, float]] = []

        def note(event: dict[str, Any]) -> None:
            moments.append((time.perf_counter(), time.process_time()))

        model = rp.FruchtermanReingold(
            max_iter=self._iterations, tol=0, random_state=seed, on_iteration=note, **parameters
        )
        model.fit(rp.Graph(self.edges, directed=False, vertex_count=self._count))
        iteration_times = np.diff(np.array(moments), axis=0)
        return float(np.median(iteration_times[:, 0])), float(np.median(iteration_times[:, 1]))


def _dissimilarities(data: Path | None, count: int) -> NDArray[np.int16]:
    """Return dissimilarities from a .npy file or FASTA, or distances of points with dimensions of decreasing weight."""
    if data is not None and data.suffix != ".npy":
        import ripieno as rp
        from ripieno.algorithms.mds.sequences import LEVENSHTEIN, Sequences, edit_distances

        with rp.launch() as job:
            shares = job.run(edit_distances, Sequences.open(data), LEVENSHTEIN)
        return np.concatenate([rows for rows, _, _ in shares])
    if data is not None:
        return np.load(data)
    points = np.random.default_rng(0).normal(size=(count, 12)) / np.arange(1, 13)
    squares = np.square(points).sum(axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0))
    np.fill_diagonal(distances, 0)
    found = np.rint(distances * (15_000 / distances.max())).astype(np.int16)
    return np.maximum(found, found.T)


def _edges(count: int) -> NDArray[np.int64]:
    """Return the edges of a graph in which each vertex connects to earlier ones, most of them near."""
    random = np.random.default_rng(0)
    ends = np.repeat(np.arange(1, count), EDGES_PER_VERTEX)
    return np.stack([ends, (ends * random.random(len(ends)) ** 0.1).astype(np.int64)], axis=1)


def _by_numpy(dissimilarities: NDArray[np.float32], start: NDArray[np.float64]) -> tuple[float, float]:
    """Return the median seconds of a step with distances from matrix products, and the last stress."""
    count, at = len(dissimilarities), start.astype(np.float32)
    seconds: list[float] = []
    stress = 0.0
    for iteration in range(ITERATION_COUNT + 1):
        begin = time.perf_counter()
        squares = np.square(at).sum(axis=1)
        distances = squares[:, None] + squares - 2 * (at @ at.T)
        np.maximum(distances, 0, out=distances)
        np.sqrt(distances, out=distances)
        errors = np.square(distances - dissimilarities).sum(dtype=np.float64)
        stress = float(np.sqrt(errors / np.square(distances).sum(dtype=np.float64)))
        distances[distances == 0] = 1e-5
        ratio = dissimilarities / distances
        if iteration < ITERATION_COUNT:
            at = (ratio.sum(axis=1)[:, None] * at - ratio @ at) / count
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds), stress


def _by_scikit_learn(dissimilarities: NDArray[np.float64], start: NDArray[np.float64]) -> tuple[float, float]:
    """Return the seconds of an iteration, without the fixed costs of a fit, and the last stress."""
    from sklearn.manifold import smacof

    seconds: list[float] = []
    stress = 0.0
    for iterations in (1, ITERATION_COUNT):
        begin = time.perf_counter()
        _, stress = smacof(
            dissimilarities,
            n_components=DIMENSIONS,
            init=start,
            n_init=1,
            max_iter=iterations,
            eps=0,
            normalized_stress=True,
        )
        seconds.append(time.perf_counter() - begin)
    return (seconds[1] - seconds[0]) / (ITERATION_COUNT - 1), float(stress)


def _reading_s(array: NDArray[np.int16]) -> float:
    """Return the minimum seconds to add up all values as words."""
    words = array.ravel()[: array.size // 4 * 4].view(np.int64)
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        words.sum()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)
