"""Broadcast variables on emulated hosts: each strategy beside its simulation and what the bytes take on a cable.

benches/strategies.py [--hosts 8] [--bytes 64MiB] [--rate 100mbit] [--strategy NAME]… [--kill COUNT@SHARE]
                      [--block BYTES] [--repetitions N] [--quick] [--json FILE]

A time is that from the beginning on all hosts until the last of them has the value, divided by the bytes over the rate
of a host's cable. TCP's headers alone make it 1.046. With `--kill 3@50%` three hosts are killed after half of the
undisturbed time, and the time of the others stands beside it.

Source: Chowdhury et al., "Performance and scalability of broadcast in Spark", section 6.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import command
from rich.table import Table
from ripieno.bench import table
from ripieno.bench.cases import size_of
from ripieno.lab import Lab
from ripieno.lab.blueprint import bits_per_s, wire_share
from ripieno.simulation import Cluster, distribute
from ripieno.units import bytes_text
from strategies_rank import Case

HERE = Path(__file__).resolve().parent
STRATEGIES = ("chain", "splitstream", "csb", "bittorrent")
#: Multiples of bytes over rate, at most, by hosts.
TARGETS = {
    8: {"chain": 1.06, "splitstream": 1.15, "csb": 1.3, "bittorrent": 1.5},
    32: {"chain": 1.08, "splitstream": 1.2, "csb": 1.5, "bittorrent": 1.6},
}
#: Of the undisturbed time, when hosts are killed.
KILLED_TARGET = 1.25
REPETITIONS, TIMEOUT_S, ALPHA_S = 3, 300.0, 50e-6
QUICK = {"hosts": 4, "size": "1MiB", "rate": "100mbit", "repetitions": 1}


@click.command()
@click.option("--hosts", type=click.IntRange(min=2), default=8, show_default=True, help="The root among them.")
@click.option("--bytes", "size", default="64MiB", show_default=True, help="Of the value.")
@click.option("--rate", default="100mbit", show_default=True, help="Of a host's cable.")
@click.option("--strategy", "strategies", type=click.Choice(STRATEGIES), multiple=True, help="By default all.")
@click.option("--kill", metavar="COUNT@SHARE", help="Kill so many hosts after this share of the undisturbed time.")
@click.option("--block", "block_bytes", type=click.IntRange(min=1), help="Bytes of a block.")
@click.option("--repetitions", type=click.IntRange(min=1), default=REPETITIONS, show_default=True)
@command.quick_option
@command.json_option
def main(quick: bool, target: Path | None, **options: Any) -> None:
    """Broadcast a value by each strategy, really and simulated."""
    command.need_lab()
    options |= QUICK if quick else {}
    size_bytes = size_of(options["size"])
    kill = _kill(options["kill"])
    hosts, rate = options["hosts"], options["rate"]
    # As on a cable, where headers take their share.
    payload_bits_per_s = bits_per_s("rate", rate) * wire_share()
    ideal_s = 8 * size_bytes / bits_per_s("rate", rate)
    rows = []
    with Lab(hosts=hosts, rate=rate) as lab:
        for strategy in options["strategies"] or STRATEGIES:
            case = Case(strategy, size_bytes, options["repetitions"], options["block_bytes"])
            cluster = Cluster(nodes=hosts, rate_bits_per_s=payload_bits_per_s, alpha_s=ALPHA_S)
            modelled = distribute(cluster, nbytes=size_bytes, algorithm=strategy, block_bytes=case.block_bytes)
            seconds = _measured(lab, case, range(hosts))
            row = {
                "strategy": strategy,
                "multiples": [each / ideal_s for each in seconds],
                "simulated": modelled.seconds / ideal_s,
                "target": TARGETS.get(hosts, {}).get(strategy),
            }
            if kill is not None:
                row |= _disturbed(lab, case, kill, statistics.median(seconds))
            rows.append(row)
    _show(rows, f"{bytes_text(size_bytes)} to {hosts} hosts × {rate}")
    command.write(target, {"hosts": hosts, "bytes": size_bytes, "rate": rate, "rows": rows}, quick=quick)


def _disturbed(lab: Lab, case: Case, kill: tuple[int, float], undisturbed_s: float) -> dict[str, Any]:
    """What the others take when hosts are killed on the way, of the undisturbed time."""
    count, share = kill
    hosts = len(lab.hosts)
    # Spread over the chain.
    killed = sorted({1 + (2 * index + 1) * (hosts - 1) // (2 * count) for index in range(count)})
    living = [rank for rank in range(hosts) if rank not in killed]
    some = []
    for _ in range(case.repetitions):
        once = replace(case, repetitions=1, killed=killed, kill_after_s=share * undisturbed_s)
        some += _measured(lab, once, living)
    return {"killed": killed, "of_undisturbed": [each / undisturbed_s for each in some]}


def _measured(lab: Lab, case: Case, living: Any) -> list[float]:
    """Seconds from the beginning on all hosts until the last of the living has the value, by repetition."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, str(HERE / "strategies_rank.py"), json.dumps(asdict(case)), folder]
        code = lab.run(words, timeout_s=TIMEOUT_S, prefix=False, keep_going=bool(case.killed))
        if code != 0 and not case.killed:
            raise click.ClickException(f"strategies_rank.py: the ranks ended with code {code}")
        found = []
        for rank in living:
            file = Path(folder) / f"{rank}.json"
            if not file.exists():
                raise click.ClickException(f"{case.strategy}: rank {rank} did not get the value")
            found.append(json.loads(file.read_text()))
    spans = [list(zip(*each, strict=True)) for each in zip(*found, strict=True)]
    return [max(ends) - min(begins) for begins, ends in spans]


def _show(rows: list[dict[str, Any]], title: str) -> None:
    shown = Table(title=f"{title}: multiples of bytes / rate, median (least – greatest)", title_justify="left")
    headings = ["", "real", "simulated", "target", ""]
    has_killed = "killed" in rows[0]
    for heading in [*headings, *(["hosts killed, of undisturbed", "target", ""] if has_killed else [])]:
        shown.add_column(heading, justify="right")
    for row in rows:
        median = statistics.median(row["multiples"])
        verdict = table.VERDICTS[None if row["target"] is None else median <= row["target"]]
        aim = "" if row["target"] is None else f"≤ {row['target']}"
        cells = [row["strategy"], _samples(row["multiples"]), f"{row['simulated']:.3f}", aim, verdict]
        if has_killed:
            of_undisturbed = row["of_undisturbed"]
            reached = table.VERDICTS[statistics.median(of_undisturbed) <= KILLED_TARGET]
            cells += [_samples(of_undisturbed), f"≤ {KILLED_TARGET}", reached]
        shown.add_row(*cells)
    table.console().print(shown)


def _samples(found: list[float]) -> str:
    return f"{statistics.median(found):.3f} ({min(found):.3f} – {max(found):.3f})"


def _kill(text: str | None) -> tuple[int, float] | None:
    if text is None:
        return None
    try:
        count, share = text.split("@")
        return int(count), float(share.removesuffix("%")) / 100
    except ValueError:
        raise click.BadParameter(f"{text!r}: expected such as 3@50%", param_hint="--kill") from None


if __name__ == "__main__":
    main()
