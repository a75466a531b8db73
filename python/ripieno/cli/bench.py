"""The command `ripieno bench`: collectives compared with the lower bound and with other implementations."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from ripieno import log
from ripieno.cli.number_types import REPETITIONS, Count, Seconds
from ripieno.cli.options import PAGES, CommandWithParts, LocalPath, Size, aliased_option, overwrite_option
from ripieno.errors import InputError

# Time limit for the calls of one case in one run, in seconds.
BUDGET_S = 0.05


MODEL, STRATEGIES, THREADS = "model", "strategies", "threads"


@click.command("bench", cls=CommandWithParts)
@click.argument("collectives", metavar="COLLECTIVE[,…]|all", default="all")
@click.option("--ranks", metavar="LIST", help="Numbers of ranks to start, such as 2,4,8. Default: 2.")
@click.option(
    "--sizes",
    default="8B:64MiB",
    show_default=True,
    metavar="RANGE",
    help="FROM:TO in steps of a factor of 8, or a list.",
)
@click.option(
    "--algorithm",
    metavar="NAME|all",
    help="Measure this algorithm instead of the default choice; all: measure every algorithm.",
)
@click.option("--links", type=click.Choice(["auto", "tcp", "shared-memory"]), default="auto", show_default=True)
@click.option("--against", metavar="LIST", help="Other libraries to measure: openmpi, mpich, intelmpi, gloo.")
@click.option(
    "--repetitions",
    type=REPETITIONS,
    default=5,
    show_default=True,
    help="Alternating runs of each library.",
)
@click.option("--python", "from_python", is_flag=True, help="Measure from Python, against mpi4py.")
@click.option("--gloo-python", metavar="PATH", help="Python interpreter with torch, for Gloo.")
@click.option(
    "--rate", metavar="RATE", help="Under a launcher: link rate of a host, such as 100mbit, for the lower bound."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(1),
    default=900.0,
    show_default=True,
    help="Time limit of a run in seconds.",
)
@click.option(
    "--choice",
    is_flag=True,
    help="Time every algorithm, and print the cases with a default over 10 % slower than the fastest.",
)
@click.option(
    "--trials",
    "trials_s",
    type=Seconds(),
    default=0.0,
    metavar="SECONDS",
    help="With --choice: first run comm.try_algorithms for this time.",
)
@click.option("--plot", type=LocalPath(*PAGES, dir_okay=False), help="File for a page with plots.")
@click.option("--json", "target", type=LocalPath(".json", dir_okay=False), help="File for the figures.")
@overwrite_option
def bench_command(choice: bool, plot: Path | None, target: Path | None, overwrite: bool, **words: Any) -> None:
    """Time collectives of processes on this machine at several sizes, and check their results.

    Sizes are the bytes of the vector. For allgather, gather and scatter they count a rank's block, for alltoall all
    bytes that a rank sends. A time is the maximum over all ranks, after a barrier; the result is the median of all
    runs. Under a launcher, such as `ripieno run` or `ripieno lab run`, the command measures the ranks of the launcher.

    `ripieno bench strategies` broadcasts a value to emulated hosts, `ripieno bench model` compares emulated hosts with
    the simulator, and `ripieno bench threads` compares ways to use the cores of a host; see their --help.

    \b
    Examples:
      ripieno bench allreduce --ranks 2,4 --against openmpi,mpich --plot speed.html
      ripieno bench --choice --ranks 2,4,8 --json choice.json
      ripieno lab run -- ripieno bench allreduce --sizes 1KiB,1MB --rate 100mbit
    """
    from ripieno.bench import session
    from ripieno.files.results import check_results
    from ripieno.launch.script.run import under_launcher

    if choice and (plot or words["against"] or words["from_python"] or words["algorithm"]):
        raise click.UsageError(
            "--choice times all algorithms of Ripieno: no --plot, --against, --python or --algorithm"
        )
    check_results({"--plot": plot, "--json": target}, overwrite=overwrite)
    request = session.BenchRequest.parse(**words, budget_s=BUDGET_S)
    joined = under_launcher(asks_for_workers=bool(request.world_sizes))
    found = session.joined(request, only_choice=choice) if joined else session.started(request, only_choice=choice)
    if found is not None:
        _write_results(found, plot, target)
        sys.exit(int(bool(found.failed)))


def _write_results(results: Any, plot: Path | None, target: Path | None) -> None:
    """Print, draw and write the results."""
    from ripieno.bench import table
    from ripieno.files.results import new_file, write_text

    if target is not None:
        write_text(target, json.dumps(results.as_json(), indent=2) + "\n")
        click.echo(target)
    results.show(table.console())
    if plot is not None:
        with log.warn_on_failure("ripieno.bench", str(plot)):
            with new_file(plot) as part:
                results.write_plot(part)
            click.echo(plot)


@click.command(MODEL)
@click.option(
    "--shapes",
    metavar="LIST",
    default="8,32,4x4:2,4x8:4",
    show_default=True,
    help="Clusters: number of hosts in one rack, or RACKSxHOSTS:OVERSUBSCRIPTION of the uplinks.",
)
@click.option(
    "--algorithms",
    metavar="LIST",
    help="Algorithms, such as broadcast=chain,allreduce=ring. Default: eleven algorithms.",
)
@click.option(
    "--bytes",
    "size_bytes",
    type=Size(),
    default="4MB",
    show_default=True,
    help="Size of the result vector on each rank, or of the vector that a rank sends.",
)
@click.option("--rate", metavar="RATE", default="25mbit", show_default=True, help="Link rate of a host.")
@click.option("--repetitions", type=REPETITIONS, default=1, show_default=True, help="Runs of each shape.")
@click.option(
    "--markdown",
    type=LocalPath(".md", dir_okay=False),
    metavar="FILE.md",
    help="File for the table, as Markdown.",
)
@click.option("--json", "target", type=LocalPath(".json", dir_okay=False), help="File for the figures.")
@overwrite_option
def model_command(
    shapes: str, algorithms: str | None, markdown: Path | None, target: Path | None, overwrite: bool, **words: Any
) -> None:
    """Compare the times of collectives on emulated hosts with the times that the simulator predicts.

    The simulator uses the rates, packets and headers of the emulated network links, and no measurements. The exit code
    is 1 if a case deviates by more than 10 %, or half of them by more than 4 %. The command has the requirements of
    `ripieno lab`, including root. All cases take about five minutes.

    \b
    Examples:
      ripieno bench model --shapes 8 --rate 50mbit
      ripieno bench model --shapes 4x8:4 --algorithms broadcast=chain,allreduce=ring --bytes 1MB --repetitions 3
    """
    from ripieno.bench import model as bench
    from ripieno.files.results import check_results, write_text

    check_results({"--markdown": markdown, "--json": target}, overwrite=overwrite)
    words |= {} if algorithms is None else {"algorithms": algorithms.split(",")}
    found = bench.measure(bench.ModelQuery(shapes=shapes.split(","), **words))
    found.show()
    for path, text in ((markdown, found.markdown), (target, lambda: json.dumps(found.as_json(), indent=2) + "\n")):
        if path is not None:
            write_text(path, text())
            click.echo(path)
    sys.exit(int(not found.is_reached))


@click.command(STRATEGIES)
@click.option("--hosts", type=Count(2), default=8, show_default=True, help="Number of hosts, including the root.")
@click.option("--bytes", "size_bytes", type=Size(), default="64MiB", show_default=True, help="Size of the value.")
@click.option("--rate", metavar="RATE", default="100mbit", show_default=True, help="Link rate of a host.")
@click.option("--racks", type=Count(), default=1, show_default=True, help="Number of racks.")
@click.option("--uplink", metavar="RATE", help="Uplink rate of a rack. Default: the sum of its hosts' rates.")
@click.option(
    "--random-order", is_flag=True, help="Also measure hosts in random order, without information about racks."
)
@click.option(
    "--strategies", metavar="LIST", default="chain,splitstream,csb,csb-llcf,bittorrent,shared-file", show_default=True
)
@click.option(
    "--degree",
    type=Count(),
    metavar="COUNT",
    help="Hosts to which a source of csb, csb-llcf or bittorrent sends at the same time. Default: 3, 3 and 8.",
)
@click.option("--unverified", is_flag=True, help="Also measure without the digests of blocks, in alternating runs.")
@click.option(
    "--kill",
    metavar="COUNT@SHARE%",
    help="End the ranks of COUNT hosts, by exit status 3, after this share of the undisturbed time.",
)
@click.option(
    "--power-failure", is_flag=True, help="Also disconnect the killed hosts, so that none of their connections closes."
)
@click.option("--slow", metavar="HOST@SHARE", help="Limit this host, counted from 0, to this share of the rate.")
@aliased_option(
    "--block-bytes",
    aliases=["--block"],
    type=Size(),
    metavar="SIZE",
    help="Size of a block. Default: a 256th of the value.",
)
@click.option("--repetitions", type=REPETITIONS, default=3, show_default=True, help="Number of runs.")
@click.option(
    "-o",
    "--out",
    type=LocalPath(*PAGES, dir_okay=False),
    metavar="PAGE.html",
    help="Page that shows sender and receiver of each block, and the rate of every host.",
)
@click.option("--json", "target", type=LocalPath(".json", dir_okay=False), help="File for the figures.")
@overwrite_option
def strategies_command(
    strategies: str,
    kill: str | None,
    slow: str | None,
    out: Path | None,
    target: Path | None,
    overwrite: bool,
    **words: Any,
) -> None:
    """Broadcast a value to emulated hosts with each strategy: undisturbed, with killed hosts, and with slow hosts.

    Times count until the last host has the value, as multiples of the transfer time of the bytes at the link rate;
    TCP's headers alone make it 1.046. In "shared-file" all hosts read one disk of this machine, over no emulated link:
    do not compare it with the other rows. The page also shows the simulated times. The requirements are the same as for
    `ripieno lab`, including root.

    \b
    Examples:
      ripieno bench strategies --kill 2@50% --out swarm.html
      ripieno bench strategies --kill 1@50% --power-failure --strategies chain
      ripieno bench strategies --hosts 32 --rate 10mbit --bytes 6.4MiB --slow 5@0.2
      ripieno bench strategies --hosts 32 --racks 4 --rate 20mbit --uplink 20mbit --bytes 6.4MiB --random-order
    """
    from ripieno.bench import strategies as bench
    from ripieno.files.results import check_results, write_text

    check_results({"--out": out, "--json": target}, overwrite=overwrite)
    names = strategies.split(",")
    for name in names:
        if name not in bench.STRATEGIES:
            raise InputError(f"--strategies={name!r}: expected some of {', '.join(bench.STRATEGIES)}")
    request = bench.StrategiesQuery(
        strategies=names, kill=_killed(kill), slow=_slowed(slow), record=out is not None, **words
    )
    found = bench.measure(request)
    found.show()
    if target is not None:
        write_text(target, json.dumps(found.as_json(), indent=2) + "\n")
        click.echo(target)
    if out is not None:
        with log.warn_on_failure("ripieno.bench", str(out)):
            write_text(out, found.page())
            click.echo(out)


@click.command(THREADS)
@click.option("--full", is_flag=True, help="Use the sizes of the paper, up to 1,000,000 points. This takes hours.")
@click.option(
    "--algorithm",
    type=click.Choice(["kmeans", "mds"]),
    default="kmeans",
    show_default=True,
    help="K-means, or MDS by deterministic annealing.",
)
@click.option(
    "--points",
    type=click.IntRange(1, 100_000_000),
    metavar="COUNT",
    help="Number of points. Default: 100,000 for K-means, 1,000 for MDS.",
)
@click.option("--centroids", metavar="LIST", help="Numbers of centroids of K-means. Default: 100,1000.")
@click.option(
    "--patterns", metavar="LETTERS", default="QRUTVS", show_default=True, help="Affinity patterns to measure."
)
@click.option("--iterations", type=REPETITIONS, default=8, show_default=True, help="Iterations of each fit.")
@click.option(
    "--repetitions",
    type=REPETITIONS,
    default=3,
    show_default=True,
    help="Alternating runs of each measurement.",
)
@click.option(
    "-o",
    "--out",
    type=LocalPath(*PAGES, dir_okay=False),
    metavar="PAGE.html",
    help="Page with charts of the measurements.",
)
@click.option(
    "--draw",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Folder for the charts as separate files, such as barrier-2.svg.",
)
@click.option("--json", "target", type=LocalPath(".json", dir_okay=False), help="File for the figures.")
@overwrite_option
def threads_command(
    full: bool,
    points: int | None,
    centroids: str | None,
    out: Path | None,
    draw: Path | None,
    target: Path | None,
    overwrite: bool,
    **words: Any,
) -> None:
    """Compare ways to use the cores of this machine, as Ekanayake et al. did for K-means and MDS.

    First it compares fork-joins, barriers and phases of a millisecond with OpenMP and with threads created per phase,
    also with more threads than cores. Then it runs an algorithm in both thread models and six patterns of affinity,
    from one process with all threads to all processes with one thread each, with context switches, migrations, and
    misses of the dTLB if the machine counts them. It takes about a minute.

    \b
    Examples:
      ripieno bench threads --out threads.html
      ripieno bench threads --algorithm mds --patterns UT
      ripieno bench threads --points 1000000 --centroids 1000 --patterns TS
    """
    from ripieno.bench import threads as bench
    from ripieno.bench.pages import threads as pages
    from ripieno.files import disk
    from ripieno.files.results import check_new_folder, check_results, new_folder, write_text

    check_results({"--out": out, "--json": target}, overwrite=overwrite)
    drawn_before = [path.name for path in draw.glob("*.svg")] if draw is not None and overwrite else []
    if draw is not None:
        check_new_folder(draw, drawn_before)
    words |= bench.FULL[words["algorithm"]] if full else {}
    words |= {} if points is None else {"points": points}
    words |= {} if centroids is None else {"centroids": _numbers("--centroids", centroids)}
    found = bench.measure(bench.ThreadsQuery(**words))
    found.show()
    if target is not None:
        write_text(target, json.dumps(found.as_json(), indent=2) + "\n")
        click.echo(target)
    if out is not None:
        with log.warn_on_failure("ripieno.bench", str(out)):
            write_text(out, pages.page(found))
            click.echo(out)
    if draw is not None:
        with log.warn_on_failure("ripieno.bench", str(draw)):
            with new_folder(draw, drawn_before) as folder:
                for name, svg in pages.drawings(found).items():
                    disk.write_text(folder / name, svg)
            click.echo(draw)


def _numbers(option: str, text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isdecimal() for word in words):
        raise InputError(f"{option}={text!r}: expected whole numbers, such as 100,1000")
    return [int(word) for word in words]


def _killed(text: str | None) -> tuple[int, float] | None:
    if text is None:
        return None
    count, _, share = text.partition("@")
    if not count.isdecimal() or not share.endswith("%") or not share[:-1].isdecimal():
        raise InputError(f"--kill={text!r}: expected COUNT@SHARE%, such as 3@50%")
    return int(count), int(share[:-1]) / 100


def _slowed(text: str | None) -> tuple[int, float] | None:
    if text is None:
        return None
    host, _, share = text.partition("@")
    try:
        return int(host), float(share)
    except ValueError:
        raise InputError(f"--slow={text!r}: expected HOST@SHARE, such as 5@0.2") from None


bench_command.parts = {MODEL: model_command, STRATEGIES: strategies_command, THREADS: threads_command}
