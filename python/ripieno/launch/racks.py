"""Provide the rack of this host, from a file of `ripieno.topology.rack_names` or the environment.

Sources, in order of precedence: the argument ``racks=``; the variable RACK (the rack's name); the file named by the
variable RIPIENO_RACKS; the variable SLURM_TOPOLOGY_ADDR, in which Slurm's tree topology lists the switches above a
node; and the engine. Without any of them racks are unknown. With ``racks="find"`` the ranks of a job then search for
them by probes, and store them for the next job on the same hosts.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ripieno import log
from ripieno.errors import InputError
from ripieno.files import disk
from ripieno.files.results import write_text
from ripieno.files.sources import parsed_json
from ripieno.topology.rack_names import RackNames, racks_of

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: The value of ``racks=`` that lets the ranks search for racks.
FIND = "find"
#: Detected racks are used only if the least certain one has at least this probability.
CERTAINTY_MIN = 0.99


def rack_of_this_host(
    racks: RackNames | None = None, variables: Mapping[str, str] = os.environ, *, by_engine: str | None = None
) -> str | None:
    """Return the name of this host's rack; None if no source, including the engine, provides racks.

    Raises
    ------
    InputError
        If the file or mapping is invalid, or lists this host in no rack or in several racks.
    """
    racks = None if racks == FIND else racks
    if racks is None and variables.get("RACK"):
        return variables["RACK"]
    racks = racks or variables.get("RIPIENO_RACKS")
    if not racks:
        return _switch_of_slurm(variables) or by_engine
    return racks_of([socket.gethostname()], racks)[0]


def _switch_of_slurm(variables: Mapping[str, str]) -> str | None:
    """Return the leaf switch of this node, such as s1 of s0.s1.node7, if the pattern contains switches."""
    address = variables.get("SLURM_TOPOLOGY_ADDR", "").split(".")
    pattern = variables.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    if len(pattern) < 2 or pattern[-2:] != ["switch", "node"] or len(address) < len(pattern):
        return None
    # Node names may contain dots; switch names contain none.
    return address[len(pattern) - 2] or None


def found_racks(comm: Communicator) -> dict[str, list[str]] | None:
    """Return the hosts of each rack, detected by an earlier job on the same hosts or by probes now. Collective.

    Returns
    -------
    dict or None
        None if all hosts are in one rack, several hosts share a name, or the detection is not certain enough.
    """
    # Imported here, so that programs without rack detection do not import the simulator.
    from ripieno.files.cache import cache_folder

    path = cache_folder() / "racks" / f"{_digest(comm.hosts)}.json"
    stored = comm.broadcast(_stored(path) if comm.rank == 0 else None)
    if stored is None:
        found = comm.topology()
        stored = {host.name: rack for host, rack in zip(found.hosts, found.racks, strict=True)}
        if len(stored) < len(found.hosts) or (found.certainty is not None and found.certainty < CERTAINTY_MIN):
            log.note("ripieno.launch", f"the racks that were found are not used: {str(found).splitlines()[0]}")
            return None
        if comm.rank == 0 and found.source == "measured":
            _store(stored, path)
    racks: dict[str, list[str]] = {}
    for host, rack in stored.items():
        racks.setdefault(rack, []).append(host)
    return racks if len(racks) > 1 else None


def _digest(hosts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(set(hosts))).encode()).hexdigest()[:16]


def _stored(path: Path) -> dict[str, str] | None:
    try:
        racks: dict[str, str] = parsed_json(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}: delete it, so that racks are found again") from error
    return racks


def _store(racks: dict[str, str], path: Path) -> None:
    try:
        disk.make_folders(path.parent)
        write_text(path, json.dumps(racks, indent=1) + "\n")
    except OSError as error:
        log.note("ripieno.launch", f"the racks that were found are not stored in {path}: {error}")
