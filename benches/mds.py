"""Multidimensional scaling and layouts: an iteration beside peers that run by turns with it.

Of scaling the peers are scikit-learn, and the same step in NumPy with float32 and products of matrices; the normalized
stress after the last iteration is compared. Of layouts the peer is igraph, without its grid. Run as a program, it draws
the pictures of the pages: `mds.py --out FOLDER`.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np
from blas import free_blas

if __name__ == "__main__":
    # Before anything uses OpenBLAS.
    free_blas()

import click
import gemm
from effort import Effort
from numpy.typing import NDArray
from ripieno.bench.figures import Count, Figure, Measurements, Samples
from ripieno.report import scatter
from ripieno.report.charts import standalone

POINT_COUNT, DIMENSIONS = 4640, 3
VERTEX_COUNT, EDGES_PER_VERTEX = 17_903, 11
ITERATION_COUNT, LAYOUT_ITERATION_COUNT = 10, 4
RUN_COUNT = 5
TARGETS, LAYOUT_TARGETS = {"peer": 1 / 10}, {"peer": 1 / 30}
DOCS = Path(__file__).resolve().parents[1] / "docs"


def measured(report: Measurements, effort: Effort, *, data: Path | None = None) -> None:
    """Scaling of int16 dissimilarities, and a layout of a random graph."""
    _scaling(report, effort, data)
    _layout(report, effort)


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
        model = rp.MDS(DIMENSIONS, init=start, max_iter=ITERATION_COUNT, eps=0).fit(dissimilarities)
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
            apart = max(abs(mine - theirs) for mine, theirs in pairs)
            report.counts.append(Count(case, f"normalized stress apart from that of {name}", apart, "", 1e-4))


def _layout(report: Measurements, effort: Effort) -> None:
    import ripieno as rp

    count, iterations = (300, 2) if effort.quick else (VERTEX_COUNT, LAYOUT_ITERATION_COUNT)
    edges = _edges(count)
    ours: list[float] = []
    peers: dict[str, list[float]] = {}
    try:
        import igraph
    except ImportError:
        igraph = None
        report.remark("igraph is not installed: pip install python-igraph")
    for run in range(effort.runs(RUN_COUNT)):
        model = rp.FruchtermanReingold(iterations=iterations, threshold=0, random_state=run)
        model.fit(rp.Graph(edges, directed=False, vertex_count=count))
        ours.append(statistics.median(step.seconds for step in model.report_.iterations))
        if igraph is not None:
            graph = igraph.Graph(count, edges.tolist())
            begin = time.perf_counter()
            graph.layout_fruchterman_reingold(niter=iterations, grid="nogrid")
            peers.setdefault("igraph", []).append((time.perf_counter() - begin) / iterations)
    report.figures.append(
        Figure(
            case=f"layout, {count:,} vertices, {len(edges):,} edges, all pairs",
            row="an iteration, all cores",
            ours=Samples(tuple(ours)),
            peers={name: Samples(tuple(seconds)) for name, seconds in peers.items()},
            # Of a pair: a multiply-add each for the distance and the sum in both dimensions, and the division as two.
            limit_s=12.0 * count**2 * gemm.square_s(np.float32, quick=effort.quick),
            limit="12 operations a pair at sgemm's rate on all cores",
            work=count**2 / 1e9,
            rate_unit="G pairs/s",
            targets=LAYOUT_TARGETS,
        )
    )


def _dissimilarities(data: Path | None, count: int) -> NDArray[np.int16]:
    """Those of a .npy file, or distances of points of many dimensions, of which the first ones count most."""
    if data is not None:
        return np.load(data)
    points = np.random.default_rng(0).normal(size=(count, 12)) / np.arange(1, 13)
    squares = np.square(points).sum(axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0))
    np.fill_diagonal(distances, 0)
    found = np.rint(distances * (15_000 / distances.max())).astype(np.int16)
    return np.maximum(found, found.T)


def _edges(count: int) -> NDArray[np.int64]:
    """Each vertex knows some that were there before it, most of them near."""
    random = np.random.default_rng(0)
    ends = np.repeat(np.arange(1, count), EDGES_PER_VERTEX)
    return np.stack([ends, (ends * random.random(len(ends)) ** 0.1).astype(np.int64)], axis=1)


def _by_numpy(dissimilarities: NDArray[np.float32], start: NDArray[np.float64]) -> tuple[float, float]:
    """Median seconds of a step whose distances are products of matrices, and the stress of the last one."""
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
    """Seconds of an iteration, what a fit takes but for its iterations left out, and the stress after the last one."""
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
    """Least seconds of adding all up as words."""
    words = array.ravel()[: array.size // 4 * 4].view(np.int64)
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        words.sum()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


@click.command()
@click.option("--quick", is_flag=True, help="Small and short.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=DOCS)
def main(quick: bool, out: Path) -> None:
    """Draw digits, placed by the distances of their pictures, and a graph, into OUT/mds and OUT/layout."""
    import networkx
    import ripieno as rp
    from sklearn.datasets import load_digits

    digits = load_digits().data[: 100 if quick else None]
    model = rp.MDS(3, metric="euclidean", random_state=0).fit(digits)
    _write(out / "mds" / "digits.svg", scatter.turning_chart("digits", model.embedding_))
    graph = networkx.connected_watts_strogatz_graph(60 if quick else 240, 6, 0.02, seed=1)
    at = np.array(list(rp.layout(graph, iterations=200, seed=1).values()))
    _write(out / "layout" / "ring.svg", scatter.graph_chart("ring", at, np.array(graph.edges)))


def _write(path: Path, svg: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(standalone(svg))
    click.echo(path)


if __name__ == "__main__":
    main()
