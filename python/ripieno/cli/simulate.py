"""The command `ripieno simulate`: the predicted time of a collective on a modeled cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ripieno import log
from ripieno.cli.cluster_options import bytes_option, cluster_of, cluster_options, root_option
from ripieno.cli.number_types import Count, LargeCount
from ripieno.cli.options import LocalPath, aliased_option, overwrite_option
from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno.simulation import Cluster, Distribution, Simulation


class _Simulate(click.Command):
    """The command for collectives, with `kmeans` and traces as separate commands."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] == [KMEANS]:
            return kmeans_command.make_context(f"{info_name} {KMEANS}", args[1:], parent, **extra)
        if any(each.partition("=")[0] == TRACE for each in args):
            return trace_command.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


KMEANS, TRACE = "kmeans", "--trace"


@click.command("simulate", cls=_Simulate)
@click.argument("collective", metavar="COLLECTIVE")
@click.option("--nodes", type=Count(), metavar="COUNT", help="Number of nodes.")
@click.option("--ranks", type=Count(), metavar="COUNT", help="Number of ranks. By default one per node.")
@cluster_options
@bytes_option
@click.option(
    "--algorithm",
    metavar="NAME[@ORDER]",
    help="Algorithm, such as chain or chain@random:7. Default: the default choice of ranks.",
)
@root_option
@click.option("--queue", metavar="SIZE", help="Capacity of the network per message. Default: unlimited.")
@click.option(
    "--slow",
    multiple=True,
    metavar="COUNT:FACTOR|NODE@SHARE",
    help="COUNT nodes, drawn by --seed, are slower by FACTOR; or NODE has this share of the rate, such as 5@0.2.",
)
@click.option("--seed", type=Count(0), default=0, show_default=True, help="Seed of random choices.")
@click.option(
    "--dead",
    "--kill",
    "dead",
    multiple=True,
    metavar="NODE@TIME|NODE@SHARE%",
    help="A node and the time of its death, such as 7@0.5s, or 7@50% of the undisturbed time.",
)
@click.option(
    "--heal",
    is_flag=True,
    help="Broadcast chain, splitstream or flat with state machines that tolerate failed ranks. tree, "
    "csb, csb-llcf and bittorrent always do.",
)
@aliased_option(
    "--block-bytes",
    "block",
    aliases=["--block"],
    metavar="SIZE|search",
    help="Block of these state machines. Default: a 256th of the value, 16 KiB to 4 MiB. search "
    "simulates 4 MiB and its halves on the modeled cluster, and uses the fastest.",
)
@click.option("--late", multiple=True, metavar="RANK@TIME", help="A rank that joins these state machines late.")
@click.option("--stop", multiple=True, metavar="RANK@TIME", help="A rank that hangs from this time on.")
@click.option(
    "--corrupt", multiple=True, metavar="RANK@TIME", help="A rank whose next block after this time arrives corrupted."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--timeline", type=LocalPath(dir_okay=False), metavar="FILE", help="Draw the messages by time: .svg or .html."
)
@click.option(
    "--loads",
    type=LocalPath(dir_okay=False),
    metavar="FILE",
    help="Draw the load of each port and uplink: .svg or .html.",
)
@overwrite_option
def simulate_command(
    collective: str,
    nbytes: int,
    algorithm: str | None,
    root: int,
    queue: str | None,
    slow: tuple[str, ...],
    seed: int,
    dead: tuple[str, ...],
    heal: bool,
    block: str | None,
    late: tuple[str, ...],
    stop: tuple[str, ...],
    corrupt: tuple[str, ...],
    as_json: bool,
    timeline: Path | None,
    loads: Path | None,
    overwrite: bool,
    **words: Any,
) -> None:
    """Simulate a collective on a modeled cluster: its time, the bytes by kind of link, and the busiest port or uplink.

    Ranks run the same plans. Messages that meet on a network link, an uplink or the core switch share it
    fairly. `ripieno simulate kmeans` simulates an iteration of K-means, `ripieno simulate --trace` a recorded job; see
    their --help.

    \b
    Examples:
      ripieno simulate broadcast --nodes 100000 --racks 2400 --uplink 40gbit --bytes 1GiB --algorithm chain
      ripieno simulate allreduce --nodes 32 --racks 4 --rate 1gbit --uplink 2gbit --timeline ring.html
      ripieno simulate broadcast --nodes 32 --bytes 64MiB --rate 100mbit --algorithm csb --kill 3@50% --slow 5@0.2
      ripieno simulate --trace trace.json --hosts 64 --rate 1gbit
    """
    from ripieno.cli.options import Size
    from ripieno.files.results import check_results
    from ripieno.simulation import pictures

    play = _machines if heal or algorithm in _MACHINES else _plans
    if play is _plans and (block is not None or late or stop or corrupt):
        raise InputError(
            "--block-bytes, --late, --stop and --corrupt: expected --heal, or --algorithm csb or bittorrent"
        )
    if play is _machines and collective != "broadcast":
        raise InputError(f"{collective}: expected broadcast, which alone has --heal, csb and bittorrent")
    if play is _machines and loads is not None:
        raise InputError("--loads: expected an algorithm of plans, without --heal")
    cluster = cluster_of(
        **words,
        queue_bytes=None if queue is None else Size().convert(queue, None, None),
        slow=next((_slow(each, seed) for each in slow if "@" not in each), None),
        slow_nodes=[_slow_node(each) for each in slow if "@" in each],
    )
    for path in (timeline, loads):
        if path is not None:
            pictures.check_picture(path)
    check_results({"--timeline": timeline, "--loads": loads}, overwrite=overwrite)
    request = _SimulationRequest(collective, nbytes, algorithm, root, block, late, stop, corrupt, seed)
    if any(each.endswith("%") for each in dead):
        fault_free = play(replace(cluster, slow=None, slow_nodes=()), request, draws=False).seconds
        if fault_free is None:
            raise InputError(f"--dead={dead[0]}: expected a time: the undisturbed simulation never ends")
        cluster = replace(cluster, dead=[_dead(each, fault_free) for each in dead])
    else:
        cluster = replace(cluster, dead=[_dead(each, 0.0) for each in dead])
    found = play(cluster, request, draws=timeline is not None or loads is not None)
    click.echo(json.dumps(found.as_json(), indent=2) if as_json else str(found))
    for path, drawn in ((timeline, _drawn), (loads, _loads)):
        if path is not None:
            with log.warn_on_failure("ripieno.simulation", str(path)):
                pictures.write(drawn(found), path)
                if not as_json:
                    click.echo(path)


@click.command(KMEANS)
@click.option("--points", type=LargeCount(), required=True, metavar="COUNT", help="Number of points, such as 7.42e6.")
@click.option("--dim", type=LargeCount(), required=True, metavar="COUNT", help="Dimensions of a point, float32.")
@click.option("--clusters", type=LargeCount(), required=True, metavar="COUNT", help="Number of clusters.")
@click.option("--nodes", type=Count(), metavar="COUNT", help="Number of nodes, with one rank each.")
@click.option("--cores", type=Count(), default=1, show_default=True, metavar="COUNT", help="Cores of a node.")
@click.option(
    "--gflops",
    type=click.FloatRange(min=0, min_open=True),
    metavar="NUMBER",
    help="10^9 operations per second of a core that assigns points. Default: the measured value of this machine.",
)
@click.option(
    "--compared",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Share of the pairs of points and clusters that is compared.",
)
@click.option("--divided", is_flag=True, help="Divide the centroids among the ranks.")
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def kmeans_command(
    points: int,
    dim: int,
    clusters: int,
    cores: int,
    gflops: float | None,
    compared: float,
    divided: bool,
    as_json: bool,
    **words: Any,
) -> None:
    """Simulate an iteration of K-means on a modeled cluster, stage by stage.

    A pair of a point and a cluster counts 2 x dim operations. One allreduce of sums and weights ends an iteration; the
    first centroids are broadcast once. Divided centroids are gathered in each iteration, and their sums are scattered.

    \b
    Examples:
      ripieno simulate kmeans --points 7.42e6 --dim 512 --clusters 1e6 --nodes 125 --cores 8 --rate 1gbit --gflops 10
    """
    from ripieno.simulation.kmeans import kmeans_iteration

    cluster = cluster_of(ranks=None, **words)
    rate = None if gflops is None else gflops * 1e9
    found = kmeans_iteration(
        cluster,
        points=points,
        dim=dim,
        clusters=clusters,
        cores=cores,
        operations_per_s=rate,
        compared=compared,
        divided=divided,
    )
    click.echo(json.dumps(found.as_json(), indent=2) if as_json else str(found))


@click.command("simulate")
@click.option(
    TRACE, type=LocalPath(dir_okay=False), required=True, metavar="FILE", help="Trace of `--trace` or `ripieno trace`."
)
@click.option("--hosts", "--nodes", "nodes", type=Count(), metavar="COUNT", help="Number of nodes.")
@click.option("--ranks", type=Count(), metavar="COUNT", help="Number of ranks. By default one per node.")
@click.option(
    "--compute",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Factor on recorded compute times: 1 if each rank has the same amount of work.",
)
@click.option("--as-recorded", is_flag=True, help="Keep the algorithms of the trace. Default: the default choice.")
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def trace_command(trace: Path, compute: float, as_recorded: bool, as_json: bool, **words: Any) -> None:
    """Simulate the collectives of a recorded job on a modeled cluster.

    Vectors keep their bytes, as do a rank's block of an allgather, gather or scatter, and the bytes that a rank sends
    in an alltoall. Calls of some ranks only, messages and sparse reductions keep their recorded times.

    \b
    Examples:
      ripieno run -n 4 --trace trace.json script.py
      ripieno simulate --trace trace.json --hosts 64 --rate 1gbit
    """
    from ripieno.simulation import replay

    calls, ranks = replay.read(trace)
    found = replay.replay(calls, ranks, cluster_of(**words), compute=compute, as_recorded=as_recorded)
    click.echo(json.dumps(found.as_json(), indent=2) if as_json else str(found))


#: Algorithms that exist only as state machines; chain, splitstream and flat are plans as well.
_MACHINES = ("tree", "csb", "csb-llcf", "bittorrent")


class _SimulationRequest(NamedTuple):
    collective: str
    nbytes: int
    algorithm: str | None
    root: int
    block: str | None
    late: tuple[str, ...]
    stop: tuple[str, ...]
    corrupt: tuple[str, ...]
    seed: int


def _plans(cluster: Cluster, request: _SimulationRequest, *, draws: bool) -> Simulation:
    from ripieno.simulation import simulate

    return simulate(
        request.collective,
        cluster,
        nbytes=request.nbytes,
        algorithm=request.algorithm,
        root=request.root,
        transfers=draws,
    )


def _machines(cluster: Cluster, request: _SimulationRequest, *, draws: bool) -> Distribution:
    from ripieno.simulation import distribute, search_block_bytes

    algorithm, block_bytes = request.algorithm or "chain", None
    if request.block == "search":
        tried = search_block_bytes(cluster, nbytes=request.nbytes, algorithm=algorithm, root=request.root)
        block_bytes = min(tried, key=lambda each: each[1])[0]
    elif request.block is not None:
        from ripieno.cli.options import Size

        block_bytes = Size().convert(request.block, None, None)
    return distribute(
        cluster,
        nbytes=request.nbytes,
        algorithm=algorithm,
        block_bytes=block_bytes,
        root=request.root,
        late=[_at("--late", each) for each in request.late],
        stopped=[_at("--stop", each) for each in request.stop],
        corrupted=[_at("--corrupt", each) for each in request.corrupt],
        seed=request.seed,
        fetches=draws,
    )


def _drawn(outcome: Simulation | Distribution) -> str:
    from ripieno.simulation import Simulation, pictures, swarm_picture

    return pictures.timeline(outcome) if isinstance(outcome, Simulation) else swarm_picture.swarm(outcome)


def _loads(outcome: Simulation | Distribution) -> str:
    from ripieno.simulation import Simulation, pictures

    assert isinstance(outcome, Simulation), "loads are drawn of plans"
    return pictures.loads(outcome)


def _slow(text: str, seed: int) -> tuple[int, float, int]:
    count, _, factor = text.partition(":")
    try:
        return int(count), float(factor), seed
    except ValueError:
        raise InputError(f"--slow={text!r}: expected COUNT:FACTOR, such as 3:2.5") from None


def _slow_node(text: str) -> tuple[int, float]:
    node, _, share = text.partition("@")
    try:
        return int(node), 1 / float(share)
    except (ValueError, ZeroDivisionError):
        raise InputError(f"--slow={text!r}: expected NODE@SHARE, such as 5@0.2") from None


def _dead(text: str, fault_free_s: float) -> tuple[int, float]:
    node, _, share = text.partition("@")
    if node.isdecimal() and share.endswith("%") and share[:-1].isdecimal():
        return int(node), fault_free_s * int(share[:-1]) / 100
    return _at("--dead", text)


def _at(name: str, text: str) -> tuple[int, float]:
    from ripieno.units import seconds_of

    number, _, at = text.partition("@")
    if not number.isdecimal():
        raise InputError(f"{name}={text!r}: expected NUMBER@TIME, such as 7@0.5s")
    return int(number), seconds_of(name, at)
