"""Benchmarks of Ripieno inside Spark and of Spark itself, alternating, in the same session on the same executors.

benches/spark.py [kmeans|kmeans-1M-1000|kmeans-1M-10000|broadcast|sum|start]… [--master MASTER]
                 [--conf NAME=VALUE]… [--repetitions N] [--quick] [--json FILE] [--page FILE]

The comparisons are K-means with MLlib, broadcasts with `sc.broadcast`, the sum of long vectors with `treeAggregate`,
and ranks in Spark with local workers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from blas import free_blas

# Call this before NumPy is imported.
free_blas()

import click  # noqa: E402
import command  # noqa: E402
import spark_collectives  # noqa: E402
import spark_kmeans  # noqa: E402
import spark_page  # noqa: E402
import spark_programs  # noqa: E402
import spark_start  # noqa: E402
from effort import Effort  # noqa: E402
from ripieno.bench.figures import Measurements  # noqa: E402
from ripieno.bench.toolchain import Skipped  # noqa: E402
from spark_session import MASTER, session, slot_count  # noqa: E402

NAMES = (*spark_kmeans.PROBLEMS, "broadcast", "sum", "start")


def measured(
    report: Measurements,
    effort: Effort,
    *,
    names: Sequence[str] = NAMES,
    master: str = MASTER,
    configuration: Mapping[str, str] | None = None,
) -> None:
    """Measure all or the named cases in one session."""
    configuration = dict(configuration or {})
    try:
        configuration.setdefault("spark.jars", str(spark_collectives.java_archive()))
    except Skipped as skipped:
        report.remark(f"treeAggregate without Python is skipped: {skipped}")
    with session(master, configuration) as spark, tempfile.TemporaryDirectory() as folder:
        spark.sparkContext.addPyFile(spark_programs.__file__)
        slots = slot_count(spark)
        clustered = partial(
            spark_kmeans.measured, spark=spark, slots=slots, folder=Path(folder), report=report, effort=effort
        )
        measures = {
            **{name: partial(clustered, name) for name in spark_kmeans.PROBLEMS},
            "broadcast": lambda: spark_collectives.broadcasts(spark, slots, report, effort),
            "sum": lambda: spark_collectives.sums(spark, slots, report, effort),
            "start": lambda: spark_start.measured(report, effort),
        }
        for name in names:
            measures[name]()
        report.remark(f"Spark {spark.version}, {master}, {slots} slots")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--master", default=MASTER, show_default=True, help="Where Spark runs.")
@click.option("--conf", "settings", multiple=True, metavar="NAME=VALUE", help="Additional Spark configuration.")
@command.repetitions_option
@command.quick_option
@command.json_option
@click.option(
    "--page",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A page of Markdown to write the figures into. A chart and the figures as JSON are written to "
    "its folder. Existing figures stay unless they are measured again.",
)
def main(
    names: Sequence[str], master: str, settings: Sequence[str], repetitions: int | None, quick: bool,
    target: Path | None, page: Path | None,
) -> None:  # fmt: skip
    """Measure inside Spark."""
    report = Measurements("spark")
    configuration = dict(each.split("=", 1) for each in settings)
    try:
        measured(report, Effort(quick, repetitions), names=names or NAMES, master=master, configuration=configuration)
    except Skipped as skipped:
        raise click.ClickException(str(skipped)) from skipped
    command.show(report, target, quick=quick)
    if page is not None:
        spark_page.fill(page, report)


if __name__ == "__main__":
    main()
