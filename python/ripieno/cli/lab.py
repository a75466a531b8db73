"""The command `ripieno lab`: an emulated cluster on this machine."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import click

from ripieno.cli.number_types import Count, Seconds
from ripieno.lab import Lab, kernel, registry
from ripieno.lab.cluster_spec import HOSTS_PER_RACK_MAX, RACKS_MAX

# All arguments after the first one of the command belong to the command, options included.
_ENDS_WITH_COMMAND = {"allow_interspersed_args": False}
_DEFAULT_NAME = "lab"


def _name_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--name", default=_DEFAULT_NAME, show_default=True, metavar="NAME", help="Name of the lab.")(
        function
    )


@click.group("lab")
def lab_command() -> None:
    """Emulate a cluster on this machine: racks of hosts, with network links and uplinks of a given rate.

    \b
    A host is a network namespace, so this needs Linux and root; the network of the machine is unchanged.
      ripieno lab up --racks 2 --hosts 4 --rate 100mbit --uplink 200mbit
      ripieno lab run -- python program.py          in it, ripieno.init() returns the communicator
      ripieno lab counters                          the bytes on every network link
      ripieno lab fail h3                           disconnect a host; heal reconnects it
      ripieno lab down
    """


@lab_command.command("up", short_help="Create a lab.")
@click.option(
    "--racks", type=click.IntRange(1, RACKS_MAX), metavar="COUNT", default=1, show_default=True, help="Number of racks."
)
@click.option(
    "--hosts",
    type=click.IntRange(1, HOSTS_PER_RACK_MAX),
    metavar="COUNT",
    default=8,
    show_default=True,
    help="Hosts of each rack.",
)
@click.option(
    "--rate",
    default="100mbit",
    show_default=True,
    metavar="RATE",
    help="Link rate of a host in each direction: a number and kbit, mbit or gbit.",
)
@click.option(
    "--uplink",
    metavar="RATE",
    help="Uplink rate of a rack in each direction. Default: the sum of its hosts' rates.",
)
@_name_option
def up_command(racks: int, hosts: int, rate: str, uplink: str | None, name: str) -> None:
    """Create a lab, which stays until "ripieno lab down"."""
    begin = time.monotonic()
    lab = Lab(racks, hosts, rate, uplink, name=name)
    lab.up()
    took_s = time.monotonic() - begin
    first, last = lab.hosts[0].name, lab.hosts[-1].name
    uplinks = "" if racks == 1 else f", uplinks {lab.spec.uplink_bits_per_s / 1e6:g} Mbit/s"
    click.echo(
        f"{name}: {racks} x {hosts} hosts, {first} to {last}, links "
        f"{lab.spec.rate_bits_per_s / 1e6:g} Mbit/s{uplinks}; up in {took_s:.1f} s"
    )


@lab_command.command("run", short_help="Run a command on the hosts, as ranks.", context_settings=_ENDS_WITH_COMMAND)
@_name_option
@click.option(
    "--ranks-per-host",
    type=Count(),
    metavar="COUNT",
    default=1,
    show_default=True,
    help="Ranks per host.",
)
@click.option("--first", type=Count(), metavar="COUNT", help="Use only the first COUNT hosts.")
@click.option("--on", metavar="HOSTS", help="Use only these hosts, in this order: h0,h3.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(above=True),
    help="End all ranks after SECONDS, with exit code 124.",
)
@click.option(
    "--prefix/--no-prefix",
    default=None,
    help="Prefix each line of output with its host. Default: with several ranks.",
)
@click.option(
    "--tls/--no-tls",
    default=None,
    help="Encrypt all TCP connections of ranks, or none. Default: RIPIENO_TLS, else only connections between hosts.",
)
@click.option("--keep-going", is_flag=True, help="Keep the other ranks running when one fails.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run_command(
    name: str,
    ranks_per_host: int,
    first: int | None,
    on: str | None,
    timeout_s: float | None,
    prefix: bool | None,
    tls: bool | None,
    keep_going: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND as a rank, or several, on every host, and wait.

    Each rank has the variables that ripieno.init() reads, LOCAL_RANK, and RACK. The first rank that fails ends the
    others, and its exit code is returned. No process started by the ranks outlives this command.
    """
    lab = Lab.named(name)
    hosts = None if on is None else on.split(",")
    from ripieno.launch.encryption import TLS_VARIABLE

    variables = {} if tls is None else {TLS_VARIABLE: str(int(tls))}
    sys.exit(
        lab.run(
            command,
            ranks_per_host,
            first,
            timeout_s,
            variables,
            on=hosts,
            prefix=prefix,
            keep_going=keep_going,
        )
    )


@lab_command.command("exec", short_help="Run a command inside a host.", context_settings=_ENDS_WITH_COMMAND)
@_name_option
@click.argument("host")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_command(name: str, host: str, command: tuple[str, ...]) -> None:
    """Replace this process by COMMAND in HOST, a name or an address: a shell, ping, tcpdump."""
    lab = Lab.named(name)
    # After HOST, click passes the separator through like any other argument.
    words = lab.command(lab.host(host), command[1:] if command[0] == "--" else command)
    os.execv(words[0], words)


@lab_command.command("hosts", short_help="List the hosts.")
@_name_option
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
def hosts_command(name: str, as_json: bool) -> None:
    """List the hosts: name, address, rack, and the disconnected network links on the path to each."""
    lab = Lab.named(name)
    cut, racks = lab.disconnected(), lab.spec.rack_names
    disconnected = {host.name: [link for link in (host.name, racks[host.rack]) if link in cut] for host in lab.hosts}
    if as_json:
        described = [{**asdict(host), "disconnected": disconnected[host.name]} for host in lab.hosts]
        click.echo(json.dumps(described, indent=2))
        return
    rows = [
        (host.name, host.address, racks[host.rack], f"disconnected: {', '.join(links)}" if links else "")
        for host, links in ((host, disconnected[host.name]) for host in lab.hosts)
    ]
    _print_table(("host", "address", "rack", ""), rows)


@lab_command.command("counters", short_help="Print the bytes on every network link.")
@_name_option
@click.option("--reset", is_flag=True, help="Set all counters to zero, and print none.")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
def counters_command(name: str, reset: bool, as_json: bool) -> None:
    """Print the bytes of Ethernet frames that every network link and uplink carried, and the drops."""
    lab = Lab.named(name)
    if reset:
        lab.reset_counters()
        return
    counters = {link: asdict(each) for link, each in lab.counters().items()}
    if as_json:
        click.echo(json.dumps(counters, indent=2))
        return
    rows = [(link, *(f"{number:,}" for number in each.values())) for link, each in counters.items()]
    _print_table(("link", "sent bytes", "received bytes", "dropped packets"), rows)


@lab_command.command("fail", short_help="Disconnect a network link.")
@_name_option
@click.option("--kill", is_flag=True, help="Also kill all processes on that host, or on all hosts of that rack.")
@click.argument("names", nargs=-1, required=True, metavar="HOST|RACK…")
def fail_command(name: str, kill: bool, names: tuple[str, ...]) -> None:
    """Disconnect the network link of a host, or the uplink of a rack. Traffic stops, and no connection is reset."""
    lab = Lab.named(name)
    for each in names:
        killed = lab.fail(each, kill=kill)
        click.echo(f"{each}: disconnected" + (f", {_processes(killed)} killed" if kill else ""))


@lab_command.command("heal", short_help="Reconnect a network link.")
@_name_option
@click.argument("names", nargs=-1, required=True, metavar="HOST|RACK…")
def heal_command(name: str, names: tuple[str, ...]) -> None:
    """Reconnect the network link of a host, or the uplink of a rack."""
    lab = Lab.named(name)
    for each in names:
        lab.heal(each)
        click.echo(f"{each}: connected")


@lab_command.command("down", short_help="Remove a lab and its processes.")
@_name_option
@click.option("--all", "every", is_flag=True, help="Remove every lab, also incomplete ones of killed programs.")
def down_command(name: str, every: bool) -> None:
    """End every process inside a lab, and remove the lab."""
    kernel.require_rights()
    if not every:
        registry.existing(registry.check_name(name))
        _take_down(name)
        return
    names = registry.names()
    if not names:
        click.echo("there is no lab")
    for each in names:
        owner = registry.live_owner(each)
        if owner is None:
            _take_down(each)
        else:
            click.echo(f"{each}: not removed, because process {owner} is using it; --name {each} takes it down")


def _take_down(name: str) -> None:
    killed = Lab(name=name).down()
    click.echo(f"{name}: down" + (f", {_processes(killed)} killed" if killed else ""))


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        click.echo("  ".join(cells).rstrip())
