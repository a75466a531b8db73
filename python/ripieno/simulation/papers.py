"""Provide all simulated or computed figures of papers, by name, and the page of figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ripieno.simulation import harp, kylix, spark_broadcasts, spark_report, twister
from ripieno.simulation.reproduction import Reproduction

REPRODUCTIONS: dict[str, Callable[[], Reproduction]] = {
    "harp-figure-4": harp.harp_figure_4,
    "harp-table-1": harp.harp_table_1,
    "kylix-figure-5": kylix.kylix_figure_5,
    "kylix-figure-6": kylix.kylix_figure_6,
    "kylix-figure-8": kylix.kylix_figure_8,
    "kylix-figure-9": kylix.kylix_figure_9,
    "kylix-table-1": kylix.kylix_table_1,
    "spark-figure-4": spark_report.spark_figure_4,
    "spark-figure-5": spark_report.spark_figure_5,
    "spark-figure-6": spark_broadcasts.spark_figure_6,
    "spark-figure-7": spark_broadcasts.spark_figure_7,
    "spark-figure-8": spark_broadcasts.spark_figure_8,
    "spark-figure-9": spark_broadcasts.spark_figure_9,
    "spark-figure-11": spark_broadcasts.spark_figure_11,
    "spark-table-1": spark_broadcasts.spark_table_1,
    "spark-table-2": spark_report.spark_table_2,
    "twister-figure-4": twister.twister_figure_4,
    "twister-figure-5": twister.twister_figure_5,
    "twister-figure-6": twister.twister_figure_6,
    "twister-figure-9": twister.twister_figure_9,
    "twister-table-5": twister.twister_table_5,
    "twister-table-8": twister.twister_table_8,
    "twister-table-8-simple": twister.twister_table_8_simple,
}


_PAGE = """\
# Figures of papers

With this page you can compare tables and figures of five papers with values that this package measures, simulates or
computes. Each section states the kind of its values:

- *Measured here*: a run on one machine, or on hosts that it emulates, at the stated scale.
- *Simulated from independent inputs*: the plans and state machines that real ranks run, on a modeled cluster at the
  scale of the paper. The section lists the inputs with their sources. No input comes from the figure that it explains.
- *Arithmetic of the paper's formula*: a formula or proportion that the paper states, evaluated.

The column "paper" has only numbers that the paper prints. If the paper makes a statement without numbers, a table has
this claim in other words, and whether the values here agree.

`ripieno reproduce list` prints all names, `ripieno reproduce twister-table-8` makes one figure, and `ripieno reproduce
all` all figures that are not measured. As root, `ripieno reproduce all --measured --out docs/papers.md --overwrite`
generates this page.

Figures 15 and 16 of SPIDAL, K-means next to Spark and Flink, need these engines: `benches/run.py jvm --case kmeans`
measures both. [Java and Spark ML](benchmarks.md#java-and-spark-ml) has times of single iterations. Not reproduced are
Spark's figures 3, 10 and 12. Figures 3 and 10 are times of whole jobs: they depend on how computation scales with
nodes, and hosts that one machine emulates share its cores. Spark-figure-4, spark-figure-11 and spark-table-2 have the
broadcasts of these jobs. Figure 12 compares two types of rented machines, whose rates the paper does not state.

"""


def page(figures: Iterable[Reproduction]) -> str:
    """Return figures as a Markdown page."""
    return _PAGE + "\n".join(each.as_markdown() for each in figures).rstrip("\n") + "\n"
