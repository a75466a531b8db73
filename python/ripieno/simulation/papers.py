"""All reproduced figures of papers by name, simulated at the papers' scale compared with the printed values."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from ripieno.errors import InputError
from ripieno.simulation import harp, kylix, spark_broadcasts, spark_report, twister
from ripieno.simulation.reproduction import Reproduction

REPRODUCTIONS: dict[str, Callable[[], Reproduction]] = {
    "harp-figure-4": harp.harp_figure_4,
    "harp-table-1": harp.harp_table_1,
    "kylix-figure-2": kylix.kylix_figure_2,
    "kylix-figure-5": kylix.kylix_figure_5,
    "kylix-figure-6": kylix.kylix_figure_6,
    "kylix-figure-7": kylix.kylix_figure_7,
    "kylix-figure-8": kylix.kylix_figure_8,
    "kylix-table-1": kylix.kylix_table_1,
    "spark-figure-4": spark_report.spark_figure_4,
    "spark-figure-5": spark_report.spark_figure_5,
    "spark-figure-6": spark_broadcasts.spark_figure_6,
    "spark-figure-7": spark_broadcasts.spark_figure_7,
    "spark-figure-8": spark_broadcasts.spark_figure_8,
    "spark-figure-9": spark_broadcasts.spark_figure_9,
    "spark-table-1": spark_broadcasts.spark_table_1,
    "spark-table-2": spark_report.spark_table_2,
    "twister-figure-4": twister.twister_figure_4,
    "twister-figure-6": twister.twister_figure_6,
    "twister-table-5": twister.twister_table_5,
    "twister-table-8": twister.twister_table_8,
}
#: Figures that are measured on this machine instead of simulated: title, and command.
MEASURED: dict[str, tuple[str, Sequence[str]]] = {
    "spidal-figures-3-8": (
        "K-means by threads and processes, in two models of threads and six patterns of affinity, measured here.",
        ("bench", "threads"),
    ),
    "twister-figure-6-lab": (
        "The chain in the order of racks against a random order, measured on 16 emulated hosts; as root.",
        (
            *("bench", "strategies", "--strategies", "chain", "--hosts", "16", "--racks", "4", "--rate", "20mbit"),
            *("--uplink", "20mbit", "--bytes", "6.4MiB", "--random-order"),
        ),
    ),
}


_PAGE = """\
# Figures of papers

With this page you can compare the tables and figures of papers with simulations at the scale of each paper. The
simulations run the same plans as real ranks. If a figure prints no numbers, the notes have the expectation of its text.

`ripieno reproduce all --out docs/papers.md` generates this page. `ripieno reproduce list` prints all names,
`ripieno reproduce twister-table-8` makes one figure.

These figures are measured on your machine instead:

"""


def page() -> str:
    """Return all figures as a Markdown page."""
    measured = [
        f"- `ripieno reproduce {name}`, which is `ripieno {' '.join(words)}`. {text}"
        for name, (text, words) in MEASURED.items()
    ]
    items = [textwrap.fill(each, 120, subsequent_indent="  ", break_on_hyphens=False) for each in measured]
    sections = [make().as_markdown() for make in REPRODUCTIONS.values()]
    return _PAGE + "\n".join([*items, "", *sections]).rstrip("\n") + "\n"


def reproduce(name: str) -> Reproduction:
    """Simulate a figure of a paper.

    Raises
    ------
    InputError
        If no figure has this name.
    """
    if name not in REPRODUCTIONS:
        raise InputError(f"name={name!r}: expected one of {', '.join((*REPRODUCTIONS, *MEASURED))}")
    return REPRODUCTIONS[name]()
