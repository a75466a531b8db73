"""Benchmarks of sparse reductions on an emulated cluster and with threads, and charts of docs/sparse.md.

Commands::

    benches/sparse.py cluster [--hosts 64] [--rate 100mbit] [--quick] [--json FILE]
    benches/sparse.py threads [--features 60000000] [--density 0.21] [--quick] [--json FILE]
    benches/sparse.py charts [--cluster FILE] [--packets NAME=FILE]… [--quick] [--out FOLDER]
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, astuple, replace
from pathlib import Path
from statistics import median
from typing import Any

from blas import free_blas

# Call this before NumPy is imported.
free_blas()

import click  # noqa: E402
import command  # noqa: E402
import numpy as np  # noqa: E402
import ripieno as rp  # noqa: E402
from rich.table import Table  # noqa: E402
from ripieno import _native  # noqa: E402
from ripieno._native import PacketCurve  # noqa: E402
from ripieno.bench import table  # noqa: E402
from ripieno.bench.pages import sparse as report  # noqa: E402
from ripieno.comm.communicator import Communicator  # noqa: E402
from ripieno.host import usable_cores  # noqa: E402
from ripieno.lab import Lab  # noqa: E402
from ripieno.sparse import design, packets  # noqa: E402
from ripieno.units import bytes_text, duration_text  # noqa: E402
from sparse_by_threads import SparseThreadTimes, timed  # noqa: E402
from sparse_rank import DENSE, GATHER, ROW_BYTES, SparseMethods  # noqa: E402

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs" / "sparse"
ALPHA = 1.1
#: The paper's two data sets, 60 and 1,400 million features on 64 hosts, and the factors that scale them down.
DENSITIES = {"twitter": (60_000_000, 0.21), "yahoo": (1_400_000_000, 0.035)}
SCALE, QUICK_SCALE = 1000, 10_000
METHODS = ("designed", "tried", "direct", "binary", "8x4x2", "16x4", GATHER, DENSE)
QUICK_METHODS = ("designed", "tried", "direct", GATHER, DENSE)
QUICK_HOSTS, QUICK_BUDGET_S = 3, 0.02
QUICK_FEATURES = 20_000
VOLUME_RANKS, VOLUME_DEGREES, VOLUME_SCALE = 64, {"twitter": "8x4x2", "yahoo": "16x4"}, 500
MEET_TIMEOUT_S = 60.0
FIGURE_4_FEATURES, FIGURE_4_ALPHAS = 1_000_000, (0.5, 1.0, 1.5, 2.0)


@click.group()
def main() -> None:
    """Measure sparse reductions, and draw the charts of docs/sparse.md."""


@main.command()
@click.option("--hosts", type=click.IntRange(min=2, max=250), default=64, show_default=True)
@click.option("--rate", default="100mbit", show_default=True, help="Link rate of each host.")
@click.option("--data", "names", type=click.Choice(list(DENSITIES)), multiple=True, help="By default both.")
@click.option("--scale", type=click.FloatRange(min=1), default=SCALE, show_default=True, help="Times fewer features.")
@click.option(
    "--methods", default=",".join(METHODS), show_default=True, help="Degrees for other numbers of ranks are skipped."
)
@click.option(
    "--edges",
    "edge_files",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="A graph to use instead of power laws: an .npy array of shape (m, 2), with vertices numbered from 0.",
)
@click.option(
    "--budget", "budget_s", type=float, default=5.0, show_default=True, help="Seconds for the rounds of each method."
)
@click.option("--timeout", "timeout_s", type=float, default=900.0, show_default=True, help="Seconds of each data set.")
@command.quick_option
@command.json_option
def cluster(
    hosts: int, rate: str, names: Sequence[str], scale: float, methods: str, edge_files: Sequence[Path],
    budget_s: float,
    timeout_s: float, quick: bool, target: Path | None,
) -> None:  # fmt: skip
    """Reduce the same data with the designed network, with others, by gathering, and with a dense allreduce."""
    command.need_lab()
    if quick:
        hosts, scale, budget_s, methods = QUICK_HOSTS, QUICK_SCALE, QUICK_BUDGET_S, ",".join(QUICK_METHODS)
    found, fitting = [], _fitting(methods.split(","), hosts)
    cases = {path.stem: _graph(path, hosts, fitting, budget_s) for path in edge_files}
    for name in names or ([] if edge_files else DENSITIES):
        features, density = DENSITIES[name]
        cases[name] = SparseMethods(int(features / scale), density, ALPHA, fitting, budget_s)
    with Lab(hosts=hosts, rate=rate) as lab:
        for name, case in cases.items():
            found.append({"data": name, "rate": rate, **command.found_by_ranks(lab, "sparse_rank.py", case, timeout_s)})
            _show(found[-1])
    command.write(target, {"cases": found}, quick=quick)


def _graph(path: Path, hosts: int, methods: tuple[str, ...], budget_s: float) -> SparseMethods:
    """Measure the vertices of a graph with its edges divided among the hosts."""
    features = int(np.load(path, mmap_mode="r").max()) + 1
    case = SparseMethods(features, 0.0, 0.0, methods, budget_s, edges=str(path.resolve()))
    return replace(case, density=len(case.indices(0, hosts)) / features)


def _fitting(methods: Sequence[str], hosts: int) -> tuple[str, ...]:
    """Return the methods that support this number of ranks."""
    return tuple(
        method for method in methods if not method[0].isdigit() or np.prod([int(d) for d in method.split("x")]) == hosts
    )


def _show(found: dict[str, Any]) -> None:
    curve = packets.from_json(found["packets"])
    console = table.console()
    console.print(
        f"[italic]{found['data']}: {found['ranks']} hosts x {found['rate']}, {found['features']:,} features, density "
        f"{found['density']:.3g}, {found['rows']:,.0f} rows a rank; packets efficient from "
        f"{bytes_text(curve.efficient_bytes)}[/]"
    )
    rows = Table()
    for heading in ("method", "degrees", "configure", "reduce", "predicted", "of designed", "sent", "busiest"):
        rows.add_column(heading, justify="left" if heading in ("method", "degrees") else "right")
    first_s = found["results"][0]["reduce_s"]
    for each in found["results"]:
        rows.add_row(
            each["method"],
            each["degrees"] or "",
            duration_text(each["configure_s"]) if each["configure_s"] else "",
            duration_text(each["reduce_s"]),
            duration_text(each["predicted_s"]) if each["predicted_s"] else "",
            f"{each['reduce_s'] / first_s:.2f}",
            bytes_text(each["sent_bytes"]),
            bytes_text(each["busiest_sent_bytes"]),
        )
    console.print(rows)


@main.command()
@click.option("--features", type=click.IntRange(min=1), default=DENSITIES["twitter"][0], show_default=True)
@click.option("--density", type=click.FloatRange(0, 1), default=DENSITIES["twitter"][1], show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="By turns.")
@command.quick_option
@command.json_option
def threads(features: int, density: float, rounds: int, quick: bool, target: Path | None) -> None:
    """Configure and reduce with one single-threaded rank, with one rank on all cores, and with a rank per core."""
    if quick:
        features, rounds = QUICK_FEATURES, 1
    cores = usable_cores()
    cases = list(dict.fromkeys([(1, 1), (1, cores), (cores, 1)]))
    found: dict[tuple[int, int], list[SparseThreadTimes]] = {case: [] for case in cases}
    with ExitStack() as jobs:
        worlds = [jobs.enter_context(rp.launch(workers=ranks, threads=count)) for ranks, count in cases]
        for _ in range(rounds):
            for case, world in zip(cases, worlds, strict=True):
                found[case].append(_slowest(world.run(timed, features, density)))
    alone, together = found[1, 1][0].digest, found[1, cores][0].digest
    if alone != together:
        raise click.ClickException("threads change the bits of a result")
    rows = Table(title=f"{features:,} features at a density of {density:g}, {rounds} alternating rounds: seconds")
    for heading in ("ranks", "threads", "configure", "reduce", "in one pass"):
        rows.add_column(heading, justify="right")
    for (ranks, count), all_times in found.items():
        kinds = [[each.configure_s for each in all_times], [each.reduce_s for each in all_times],
                 [each.in_one_pass_s for each in all_times]]  # fmt: skip
        rows.add_row(str(ranks), str(count), *(_spread(seconds) for seconds in kinds))
    table.console().print(rows)
    cases_found = [
        {"ranks": ranks, "threads": count, "rounds": [asdict(each) for each in all_times]}
        for (ranks, count), all_times in found.items()
    ]
    command.write(target, {"features": features, "density": density, "cases": cases_found}, quick=quick)


def _spread(seconds: list[float]) -> str:
    return f"{median(seconds):.3g} ({min(seconds):.3g} – {max(seconds):.3g})"


def _slowest(times: list[SparseThreadTimes]) -> SparseThreadTimes:
    """Return the slowest times of the ranks of a round, and the digest of the first."""
    return SparseThreadTimes(
        *(max(values) for values in zip(*(astuple(each)[:3] for each in times), strict=True)), times[0].digest
    )


@main.command()
@click.option(
    "--cluster",
    "cluster_file",
    type=click.Path(path_type=Path),
    default=DOCS / "cluster.json",
    help="Output of `cluster`; without it the times are skipped.",
)
@click.option("--packets", "packet_files", metavar="NAME=FILE", multiple=True, help="Output of ripieno packets.")
@click.option("--quick", is_flag=True, help="Use few ranks and little data for the volumes.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=DOCS)
def charts(cluster_file: Path, packet_files: Sequence[str], quick: bool, out: Path) -> None:
    """Draw figures 2, 4, 5 and 6 of the paper from our measurements, as far as their files are given."""
    out.mkdir(parents=True, exist_ok=True)
    drawn = {"density": report.density_chart(FIGURE_4_FEATURES, FIGURE_4_ALPHAS), "volumes": _volumes(quick=quick)}
    curves = {name: packets.read(Path(file)) for name, _, file in (each.partition("=") for each in packet_files)}
    found = json.loads(cluster_file.read_text())["cases"] if cluster_file.exists() else []
    for case in found:
        name = f"{case['ranks']} hosts x {case['rate']}"
        curves.setdefault(name, packets.from_json(case["packets"]))
        drawn[f"times-{case['data']}"] = report.time_chart(
            f"{name}, {case['features']:,} features at {case['density']}",
            [(_name(each), each["configure_s"], each["reduce_s"], each["predicted_s"]) for each in case["results"]],
        )
    if curves:
        drawn["packets"] = report.throughput_chart(curves)
    for name, svg in drawn.items():
        (out / f"{name}.svg").write_text(svg, encoding="utf-8")
        click.echo(out / f"{name}.svg")


def _name(result: dict[str, Any]) -> str:
    own = result["method"] == result["degrees"] or result["degrees"] is None
    return result["method"] if own else f"{result['method']}, {result['degrees']}"


def _volumes(*, quick: bool) -> str:
    """Draw figure 5: rows held by ranks that are threads of this process, compared with Eq. 5."""
    ranks, scale = (8, QUICK_SCALE) if quick else (VOLUME_RANKS, VOLUME_SCALE)
    panels = {}
    for name, (features, density) in DENSITIES.items():
        case = SparseMethods(int(features / scale), density, ALPHA, (), 0.0)
        degrees = "4x2" if quick else VOLUME_DEGREES[name]

        def held(comm: Communicator, case: SparseMethods = case, degrees: str = degrees) -> list[int]:
            own = case.indices(comm.rank, comm.world_size)
            # Stay sparse: one row for each key that some rank has.
            configured = comm.sparse(own, own, size=case.features, degrees=degrees, dense_above=2.0)
            return [each["out_rows"] for each in configured.volumes]

        measured = ROW_BYTES * np.sum(_threads(ranks, held), axis=0)
        data = design.DataDistribution(ranks, case.features, case.curve, ROW_BYTES)
        predicted = design.volumes(design.price(data, PacketCurve.network(), degrees), data)
        panels[f"{degrees}, {case.features:,} features at {density}"] = (predicted, measured.tolist())
    return report.volume_chart(panels)


def _threads(ranks: int, program: Callable[[Communicator], Any]) -> list[Any]:
    """Return the results of a program on ranks that are threads of this process."""
    barrier, texts = threading.Barrier(ranks, timeout=MEET_TIMEOUT_S), [""] * ranks

    def run(rank: int) -> Any:
        def exchange(text: str) -> list[str]:
            texts[rank] = text
            barrier.wait()
            all_texts = list(texts)
            barrier.wait()
            return all_texts

        with Communicator(_native.Communicator.connect(rank, ranks, exchange, token=b"threads")) as comm:
            result = program(comm)
            # Keep all ranks until every rank has finished.
            comm.barrier()
            return result

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(run, range(ranks)))


if __name__ == "__main__":
    main()
