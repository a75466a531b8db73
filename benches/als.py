"""Benchmark of alternating least squares: an iteration compared with `implicit` and MLlib, at equal or better error.

The libraries fit in turn, each run from another random start. The time of a run is the median of its iterations.
`implicit` gets Ripieno's weights, so that both minimize the same objective. MLlib reports no iteration times: the time
of a fit minus the time of a fit with two iterations is divided by the number of the other iterations. As a program,
this file draws the chart of the documentation: `als.py --data FILE --out FOLDER`.
"""

from __future__ import annotations

import copy
import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from blas import free_blas

if __name__ == "__main__":
    # OpenBLAS reads its settings when it is loaded.
    free_blas()

import click
import gemm
from als_data import AlsData, data_of
from effort import Effort
from ripieno.bench.figures import Figure, FigureCount, Measurements, Samples
from ripieno.bench.pages.als import als_chart
from ripieno.bench.toolchain import Skipped
from spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RANK, REG, ALPHA = 32, 0.05, 1.0
ITERATION_COUNT, SPARK_ITERATION_COUNT, DRAWN_COUNT = 10, 6, 10
RUN_COUNT = 5
WORKER_COUNT = 2
#: Number of users in the comparison of recommendation lists.
USER_SAMPLE = 2_000
#: At most a fifth of the time of `implicit`.
TARGETS = {"peer": 1 / 5}
DOCS = Path(__file__).resolve().parents[1] / "docs" / "als"


def measured(report: Measurements, effort: Effort, *, data: Path | None = None) -> None:
    """Compare implicit ratings with `implicit`, and explicit ratings with MLlib."""
    import ripieno as rp

    found = data_of(data, quick=effort.quick)
    rank = 4 if effort.quick else RANK
    limit_s = 2.0 * found.train.nnz * rank**2 * gemm.square_s(np.float32, quick=effort.quick)
    report.remark("oneDAL is left out: scikit-learn-intelex has no estimator for alternating least squares")
    with rp.launch(workers=WORKER_COUNT, threads=1) as job:
        for row, peer, compare in (
            ("implicit", _implicit_peer, _percentile_ranks),
            ("explicit", _spark_peer, _errors),
        ):
            ours, theirs, models = _alternating(found, row, rank, job, peer, report, effort)
            report.figures.append(
                Figure(
                    case=found.text,
                    row=f"{row}, rank {rank}, {WORKER_COUNT} workers",
                    ours=Samples(tuple(ours)),
                    peers={name: Samples(tuple(seconds)) for name, seconds in theirs.items()},
                    limit_s=limit_s,
                    limit="sgemm on all cores, at the 2·r² operations a rating of half of each scatter matrix",
                    work=2.0 * found.train.nnz * rank**2 / 1e9,
                    rate_unit="GFLOP/s",
                    targets=TARGETS if row == "implicit" else {},
                )
            )
            report.counts += compare(found, models)
            _remark(report, row, models["Ripieno"][-1])


def _alternating(
    data: AlsData, row: str, rank: int, job: Any, peer: Any, report: Measurements, effort: Effort
) -> tuple[list[float], dict[str, list[float]], dict[str, list[Any]]]:
    """Return the seconds of an iteration in each run, of Ripieno and of other libraries, and all models."""
    import ripieno as rp

    ours: list[float] = []
    theirs: dict[str, list[float]] = {}
    models: dict[str, list[Any]] = {}
    try:
        with peer(data, rank, quick=effort.quick) as fitted:
            for run in range(effort.runs(RUN_COUNT)):
                options = {"implicit": row == "implicit", "reg": REG, "alpha": ALPHA}
                count = ITERATION_COUNT if row == "implicit" else SPARK_ITERATION_COUNT
                model = rp.ALS(rank, max_iter=count, random_state=run, engine=job, **options).fit(data.train)
                ours.append(statistics.median(step.seconds for step in model.report_.iterations))
                models.setdefault("Ripieno", []).append(model)
                for name, seconds, found in fitted(run):
                    theirs.setdefault(name, []).append(seconds)
                    models.setdefault(name, []).append(found)
    except Skipped as skipped:
        report.remark(str(skipped))
        model = rp.ALS(rank, implicit=row == "implicit", reg=REG, alpha=ALPHA, random_state=0, engine=job)
        ours = [step.seconds for step in model.fit(data.train).report_.iterations]
        models["Ripieno"] = [model]
    return ours, theirs, models


@contextmanager
def _implicit_peer(data: AlsData, rank: int, *, quick: bool) -> Iterator[Any]:
    try:
        from implicit.cpu.als import AlternatingLeastSquares
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise Skipped("implicit is not installed: make bench installs it") from error
    weights = data.train.copy()
    weights.data = 1 + np.float32(ALPHA) * weights.data

    def fitted(run: int) -> Iterator[tuple[str, float, Any]]:
        seconds: list[float] = []
        # `implicit` requires one BLAS thread, because it has threads of its own.
        with threadpool_limits(1, "blas"):
            model = AlternatingLeastSquares(
                rank, REG, iterations=ITERATION_COUNT, num_threads=WORKER_COUNT, random_state=run
            )
            model.fit(weights, show_progress=False, callback=lambda at, elapsed_s, loss: seconds.append(elapsed_s))
        yield "implicit (CG)", statistics.median(seconds), model

    yield fitted


@contextmanager
def _spark_peer(data: AlsData, rank: int, *, quick: bool) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet

    if quick:
        raise Skipped("MLlib is skipped in quick runs: Spark alone takes longer to start")
    with session(f"local[{WORKER_COUNT}]", {"spark.driver.memory": "6g"}) as spark, tempfile.TemporaryDirectory() as at:
        frames = {}
        entries = data.train.tocoo()
        for name, columns in {"train": (entries.row, entries.col, entries.data), "test": data.test}.items():
            table = pa.table(dict(zip(("user", "item", "rating"), columns, strict=True)))
            for position in (0, 1):
                table = table.set_column(
                    position, table.column_names[position], table.column(position).cast(pa.int32())
                )
            pa.parquet.write_table(table, f"{at}/{name}.parquet")
            frames[name] = spark.read.parquet(f"{at}/{name}.parquet").repartition(2 * WORKER_COUNT).cache()
            frames[name].count()

        def fitted(run: int) -> Iterator[tuple[str, float, Any]]:
            from pyspark.ml.recommendation import ALS

            options = {"rank": rank, "regParam": REG, "seed": run, "coldStartStrategy": "drop"}
            columns = {"userCol": "user", "itemCol": "item", "ratingCol": "rating"}
            seconds = []
            # The first fit only warms up the JVM.
            for count in (1,) * (run == 0) + (2, SPARK_ITERATION_COUNT):
                begin = time.perf_counter()
                model = ALS(maxIter=count, **options, **columns).fit(frames["train"])
                seconds.append(time.perf_counter() - begin)
            yield (
                "MLlib",
                (seconds[-1] - seconds[-2]) / (SPARK_ITERATION_COUNT - 2),
                _spark_error(model, frames["test"]),
            )

        yield fitted


def _spark_error(model: Any, test: DataFrame) -> float:
    """Return the root mean square error of a model of MLlib on held-out ratings."""
    return math.sqrt(model.transform(test).selectExpr("avg(pow(prediction - rating, 2)) as e").collect()[0].e)


def _percentile_ranks(data: AlsData, models: dict[str, list[Any]]) -> list[FigureCount]:
    """Return the mean percentile ranks of held-out items in the recommendation lists of some users."""
    users, items, values = data.test
    chosen = np.isin(users, np.random.default_rng(0).permutation(np.unique(users))[:USER_SAMPLE])
    test = users[chosen], items[chosen], values[chosen]
    ours = models["Ripieno"]
    errors = {"Ripieno": [model.percentile_rank(test) for model in ours]}
    for name, found in models.items():
        if name != "Ripieno":
            others = [copy.copy(ours[0]) for _ in found]
            for other, model in zip(others, found, strict=True):
                other.user_factors_, other.item_factors_ = model.user_factors, model.item_factors
            errors[name] = [other.percentile_rank(test) for other in others]
    return _compared(f"{data.name}, implicit", "held-out percentile rank", errors)


def _errors(data: AlsData, models: dict[str, list[Any]]) -> list[FigureCount]:
    """Return the root mean square errors of held-out ratings."""
    ours = [model.rmse(data.test) for model in models["Ripieno"]]
    return _compared(f"{data.name}, explicit", "held-out RMSE", {**models, "Ripieno": ours})


def _compared(case: str, measure: str, errors: dict[str, list[float]]) -> list[FigureCount]:
    """Compare our mean error with each library's. The limit is its mean plus two standard errors of the difference."""
    ours = errors["Ripieno"]
    counts = []
    for name, theirs in errors.items():
        if name != "Ripieno":
            standard_error = math.sqrt(sum(float(np.var(each)) / len(each) for each in (ours, theirs)))
            mean, row = statistics.mean(theirs), f"{measure}, mean of {len(ours)} starts; {name}"
            counts.append(FigureCount(case, f"{row} {mean:.4f}", statistics.mean(ours), "", mean + 2 * standard_error))
    return counts


def _remark(report: Measurements, row: str, model: Any) -> None:
    """Add a remark on our times by stage and on the exchange of factors."""
    steps = model.report_.iterations
    computing = statistics.median(max(step.compute_s) for step in steps)
    communicating = statistics.median(max(step.communication_s) for step in steps)
    exchanges = "; ".join(map(str, model.report_.exchanges))
    report.remark(f"{row}: computing {computing:.3f} s, communicating {communicating:.3f} s at most; {exchanges}")


@click.command()
@click.option("--data", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Data as in run.py als.")
@click.option("--quick", is_flag=True, help="Run small and short, as a test without measurements.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=DOCS)
def main(data: Path | None, quick: bool, out: Path) -> None:
    """Draw errors by iteration, and the time of the ranks of a fit, into OUT/fit.svg."""
    import ripieno as rp

    found = data_of(data, quick=quick)
    rank, count = (4, 3) if quick else (RANK, DRAWN_COUNT)
    held_out = []
    with rp.launch(workers=WORKER_COUNT, threads=1) as job, tempfile.TemporaryDirectory() as folder:
        # Each fit resumes from the state of the previous fit before its last iteration.
        for iterations in range(1, count + 1):
            options = {"reg": REG, "random_state": 0, "engine": job, "max_iter": iterations}
            model = rp.ALS(rank, checkpoint=folder if iterations > 1 else None, **options).fit(found.train)
            held_out.append(model.rmse(found.test))
        model = rp.ALS(rank, reg=REG, random_state=0, engine=job, max_iter=count).fit(found.train)
    out.mkdir(parents=True, exist_ok=True)
    title = f"{found.text}, rank {rank}, {WORKER_COUNT} workers"
    (out / "fit.svg").write_text(als_chart(title, model.report_.iterations, held_out))
    click.echo(out / "fit.svg")


if __name__ == "__main__":
    main()
