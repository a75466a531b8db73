"""Benchmark of word counts of a file on two cores, compared with duckdb, polars and Python's Counter.

benches/wordcount.py [--size 512MB] [--text FILE]… [--repetitions N] [--quick] [--json FILE]

The file repeats texts, by default the sources of the installed packages. White space is normalized to blanks and line
feeds, so that peers can split lines at one byte; words are the text between. The file has been read before, so it is in
the page cache. A run ends with all distinct words and their counts in one process.
"""

from __future__ import annotations

import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import command
import pyarrow as pa
import ripieno as rp
from effort import Effort
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.cli.options import Size
from ripieno.comm.communicator import Communicator
from ripieno.host import usable_cores
from ripieno.units import bytes_text

SIZE_BYTES, QUICK_SIZE_BYTES, RUN_COUNT = 512_000_000, 200_000, 5
#: Bytes of different text taken from the installed packages.
TEXT_BYTES = 64 << 20
#: Block size of the Counter's splits.
BLOCK_BYTES = 16 << 20
PACKAGES = ("numpy", "scipy", "sklearn", "pyarrow", "networkx")
#: Upper limit relative to the best peer.
TARGETS = {"peer": 1 / 3}
BLANKS = bytes.maketrans(b"\t\r\v\f", b"    ")

Words = dict[bytes, int]


def measured(
    report: Measurements, effort: Effort, *, size_bytes: int | None = None, texts: Sequence[Path] | None = None
) -> None:
    """Measure all implementations, alternating, after comparing their counts."""
    size_bytes = size_bytes or (QUICK_SIZE_BYTES if effort.quick else SIZE_BYTES)
    with tempfile.TemporaryDirectory() as folder:
        path, blank = Path(folder) / "text.txt", Path(folder) / "blank.txt"
        _write(path, texts or _sources(), size_bytes)
        blank.write_bytes((b" " * 79 + b"\n") * (path.stat().st_size // 80 + 1))
        peers = _peers(report, path)
        start = time.perf_counter()
        right = _counter(path)
        counter_s = time.perf_counter() - start
        for name in [name for name, peer in peers.items() if _as_words(peer()) != right]:
            report.remark(f"{name} is left out: its counts differ from the counts of Python's Counter")
            del peers[name]
        for workers, threads in ((usable_cores(), 1), (1, usable_cores())):
            with rp.launch(workers=workers, threads=threads) as job:
                if _as_words(_counted(job, path).to_arrow()) != right:
                    raise RuntimeError(f"Ripieno, {workers} workers: counts differ from the counts of Python's Counter")
                seconds: dict[str, list[float]] = {name: [] for name in ("ours", "blank", *peers)}
                for _ in range(effort.runs(RUN_COUNT)):
                    for name, run in {
                        "ours": lambda: _counted(job, path), "blank": lambda: _counted(job, blank), **peers,
                    }.items():  # fmt: skip
                        start = time.perf_counter()
                        run()
                        seconds[name].append(time.perf_counter() - start)
            _add_figure(report, path, f"{workers} × {threads}", seconds)
        report.remark(
            f"{sum(right.values()):,} words, {len(right):,} of them distinct; all programs return equal counts; "
            f"Python's Counter takes {counter_s:.3g} s"
        )


def _add_figure(report: Measurements, path: Path, row: str, seconds: dict[str, list[float]]) -> None:
    samples = {name: Samples(tuple(each)) for name, each in seconds.items()}
    ours, blank = samples.pop("ours"), samples.pop("blank")
    size_bytes = path.stat().st_size
    report.figures.append(
        Figure(
            case=f"words of {bytes_text(size_bytes)} counted, workers × threads",
            row=row,
            ours=ours,
            peers=samples,
            limit_s=blank.best_s,
            limit="a file of spaces of that size",
            work=size_bytes / 1e6,
            rate_unit="MB/s",
            targets=TARGETS if samples else {},
        )
    )


def _sources() -> list[Path]:
    """Return Python sources of packages that every installation has."""
    found, size_bytes = [], 0
    for package in PACKAGES:
        for path in sorted((Path(sysconfig.get_path("purelib")) / package).rglob("*.py")):
            if size_bytes < TEXT_BYTES:
                found.append(path)
                size_bytes += path.stat().st_size
    return found


def _write(path: Path, texts: Sequence[Path], size_bytes: int) -> None:
    """Fill a file with repeated texts; the last one is cut after a line."""
    left = size_bytes
    with open(path, "wb") as file:
        before = left + 1
        while left < before:
            before = left
            for text in texts:
                lines = (text.read_bytes().translate(BLANKS).rstrip(b"\n") + b"\n")[:left]
                lines = lines[: lines.rfind(b"\n") + 1]
                left -= file.write(lines)


def _counted(job: Any, path: Path) -> rp.KeyValues:
    return rp.KeyValues.joined(job.run(_of_rank, str(path)))


def _of_rank(comm: Communicator, path: str) -> rp.KeyValues:
    return rp.count_words(path, comm=comm)


def _counter(path: Path) -> Words:
    """Count with Python's own Counter, in the fastest way for an interpreter."""
    counts: Counter[bytes] = Counter()
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            counts.update((block + file.readline()).split())
    return counts


def _as_words(table: Any) -> Words:
    """Return a table of two columns, words and counts, as a dict."""
    words, counts = pa.table(table).columns
    return dict(zip(words.cast("large_binary").to_pylist(), counts.to_pylist(), strict=True))


def _peers(report: Measurements, path: Path) -> dict[str, Callable[[], Any]]:
    """Return the installed peers; each returns a table of words and counts."""
    found: dict[str, Callable[[], Any]] = {}
    try:
        import polars

        # A separator that no text contains, so that a row is a line.
        lines = polars.scan_csv(
            path, has_header=False, new_columns=["line"], separator="\x01", quote_char=None,
            schema={"line": polars.String}, encoding="utf8",
        )  # fmt: skip
        words = lines.select(polars.col("line").str.split(" ").alias("word")).explode("word")
        counts = words.filter(polars.col("word") != "").group_by("word").len()
        found["polars"] = lambda: counts.collect(engine="streaming")
    except ImportError:
        report.remark("polars is not installed: make bench installs it")
    try:
        import duckdb

        base = duckdb.connect(config={"threads": usable_cores()})
        query = f"""
            select word, count(*) from (
                select unnest(string_split(line, ' ')) as word from read_csv('{path}', columns={{'line': 'varchar'}},
                header=false, delim='\x01', quote='', escape='', auto_detect=false, max_line_size=1000000000)
            ) where word <> '' group by word
        """
        found["duckdb"] = lambda: base.sql(query).to_arrow_table()
    except ImportError:
        report.remark("duckdb is not installed: make bench installs it")
    return found


@click.command()
@click.option("--size", "size_bytes", type=Size(), help="Size of the file. Default: 512MB, or 200kB with --quick.")
@click.option(
    "--text", "texts", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A text to fill the file with.",
)  # fmt: skip
@command.repetitions_option
@command.quick_option
@command.json_option
def main(
    size_bytes: int | None, texts: tuple[Path, ...], repetitions: int | None, quick: bool, target: Path | None
) -> None:
    """Count the words of a file, compared with peers."""
    report = Measurements("wordcount")
    measured(report, Effort(quick, repetitions), size_bytes=size_bytes, texts=texts)
    command.show(report, target, quick=quick)


if __name__ == "__main__":
    main()
