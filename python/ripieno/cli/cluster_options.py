"""Options of the commands that use a modeled cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ripieno.cli.number_types import Count
from ripieno.cli.options import LocalPath, Size
from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno.simulation import Cluster

_OPTIONS = (
    click.option(
        "--racks",
        default="1",
        show_default=True,
        metavar="COUNT|FILE",
        help="Number of racks of equal size, or a file of racks (racks.toml).",
    ),
    click.option("--rate", default="10gbit", show_default=True, metavar="RATE", help="Link rate of a node."),
    click.option("--uplink", metavar="RATE", help="Uplink rate of a rack. Default: unlimited."),
    click.option("--core", metavar="RATE", help="Rate of the core switch, for all racks together."),
    click.option(
        "--alpha",
        default="5us",
        show_default=True,
        metavar="TIME",
        help="Latency of a message or segment between nodes.",
    ),
    click.option("--gamma", default="0.125ns", show_default=True, metavar="TIME", help="Time to combine a byte."),
    click.option(
        "--segment",
        default="64KiB",
        show_default=True,
        metavar="SIZE|none",
        help="Segment size of messages; each segment costs one alpha. With none, messages are not divided.",
    ),
    click.option(
        "--relay",
        "relay_bytes",
        type=Size(),
        default="16KiB",
        show_default=True,
        metavar="SIZE",
        help="Ranks forward data in pieces of this size, or in segments if these are smaller.",
    ),
    click.option(
        "--costs",
        "costs_file",
        type=LocalPath(dir_okay=False),
        metavar="FILE",
        help="A file of `ripieno tune --out` with measured ranks and links; other options take precedence.",
    ),
    click.option(
        "--packet",
        "packet_bytes",
        type=Size(),
        metavar="SIZE",
        help="Payload of a packet. Switches store and forward whole packets. Default: switches "
        "forward bytes immediately.",
    ),
    click.option(
        "--headers",
        "header_bytes",
        type=Size(),
        metavar="SIZE",
        help="Header bytes of a packet. Default: 0.",
    ),
)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the links and racks of a cluster."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


bytes_option = click.option(
    "--bytes",
    "nbytes",
    type=Size(),
    default="1MiB",
    show_default=True,
    metavar="SIZE",
    help="Size of the vector. For allgather, gather and scatter the size of a rank's block, for "
    "alltoall all bytes that a rank sends.",
)
root_option = click.option(
    "--root",
    type=Count(0),
    default=0,
    show_default=True,
    metavar="RANK",
    help="Root of the collective, if it has one.",
)


def cluster_of(
    nodes: int | None,
    ranks: int | None,
    racks: str,
    rate: str,
    uplink: str | None,
    core: str | None,
    alpha: str,
    gamma: str,
    segment: str,
    packet_bytes: int | None,
    header_bytes: int | None,
    costs_file: Path | None,
    **more: Any,
) -> Cluster:
    """Return the cluster of the options. Its size follows from nodes, ranks, or a file of racks or costs.

    Raises
    ------
    InputError
        If the options do not describe a cluster.
    """
    from ripieno.simulation import Cluster, link_costs
    from ripieno.units import bits_per_s, seconds_of

    measured = None if costs_file is None else link_costs.read(costs_file).cluster()
    in_file = None if racks.isdecimal() else _racks_of(Path(racks))
    if nodes is None:
        nodes = len(in_file) if in_file is not None else ranks
    if nodes is None and measured is None:
        raise InputError("expected --nodes or --ranks, or a file of racks or of costs")
    described = {
        "rate_bits_per_s": bits_per_s("--rate", rate),
        "uplink_bits_per_s": None if uplink is None else bits_per_s("--uplink", uplink),
        "core_bits_per_s": None if core is None else bits_per_s("--core", core, maximum=10**15),
        "alpha_s": seconds_of("--alpha", alpha),
        "gamma_s_per_byte": seconds_of("--gamma", gamma),
        "segment_bytes": None if segment == "none" else Size().convert(segment, None, None),
        "packet_bytes": packet_bytes or 0,
        "header_bytes": header_bytes or 0,
        **more,
    }
    if measured is None:
        return Cluster(**_places(nodes, ranks, racks, in_file), **described)
    # Measured costs replace the defaults of options.
    given = {name: value for name, value in described.items() if name not in _MEASURED or _is_given(_MEASURED[name])}
    if "alpha_s" in given:
        given["uplink_alpha_s"] = None
    if nodes is None:
        if _is_given("racks"):
            raise InputError(f"racks={racks}: expected --nodes, too: {costs_file} has racks of its own")
        return replace(measured, **given)
    return replace(measured, node_of_rank=None, **_places(nodes, ranks, racks, in_file), **given)


#: Fields of a file of costs, and the option that overrides each.
_MEASURED = {
    "rate_bits_per_s": "rate",
    "uplink_bits_per_s": "uplink",
    "alpha_s": "alpha",
    "gamma_s_per_byte": "gamma",
}


def costs_of(costs_file: Path | None, **_: Any) -> str:
    """Return the source of the link costs as text."""
    from ripieno.simulation import link_costs

    return "as given" if costs_file is None else f"{link_costs.read(costs_file).source}, where no option sets them"


def _is_given(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is not ParameterSource.DEFAULT


def _places(nodes: int | None, ranks: int | None, racks: str, in_file: list[int] | None) -> dict[str, Any]:
    """Return the number of nodes by rack, and the ranks per node."""
    assert nodes is not None
    ranks = nodes if ranks is None else ranks
    if ranks % nodes:
        raise InputError(f"ranks={ranks}: expected the same number on each of {nodes} nodes")
    return {"nodes": nodes, "racks": int(racks) if in_file is None else in_file, "ranks_per_node": ranks // nodes}


def _racks_of(path: Path) -> list[int]:
    """Return the rack of every host in a file of racks."""
    from ripieno.topology.rack_names import read

    numbers = []
    for number, (name, hosts) in enumerate(read(path).items()):
        if isinstance(hosts, str) or any(character in host for host in hosts for character in "*?["):
            raise InputError(f"{path}: rack {name}={hosts!r}: expected a list of host names, without patterns")
        numbers += [number] * len(hosts)
    return numbers
