"""Racks: finds the rack of this host, from a small TOML file or the environment.

```toml
[racks]
north = ["node1", "node2"]
south = ["node3", "gpu-*"]
```

Host names may contain ``*``, ``?`` and ``[…]``. Sources, in order of precedence: the argument ``racks=``; the variable
RACK (the rack's name); the file named by the variable RIPIENO_RACKS; the variable SLURM_TOPOLOGY_ADDR, in which Slurm's
tree topology lists the switches above a node; and the engine. Without any of them racks are unknown.
"""

from __future__ import annotations

import os
import socket
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from ripieno.errors import InputError

Racks = Mapping[str, Sequence[str]] | str | os.PathLike[str]


def rack_of_this_host(
    racks: Racks | None = None, variables: Mapping[str, str] = os.environ, *, by_engine: str | None = None
) -> str | None:
    """Return the name of this host's rack; None if no source, including the engine, provides racks.

    Raises
    ------
    InputError
        If the file or mapping is invalid, or lists this host in no rack or in several racks.
    """
    if racks is None and variables.get("RACK"):
        return variables["RACK"]
    racks = racks or variables.get("RIPIENO_RACKS")
    if not racks:
        return _switch_of_slurm(variables) or by_engine
    host = socket.gethostname()
    return rack_of(host, racks, "racks") if isinstance(racks, Mapping) else rack_of(host, read(racks), str(racks))


def _switch_of_slurm(variables: Mapping[str, str]) -> str | None:
    """Return the leaf switch of this node, such as s1 of s0.s1.node7, if the pattern contains switches."""
    address = variables.get("SLURM_TOPOLOGY_ADDR", "").split(".")
    pattern = variables.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    if len(pattern) < 2 or pattern[-2:] != ["switch", "node"] or len(address) < len(pattern):
        return None
    # Node names may contain dots; switch names contain none.
    return address[len(pattern) - 2] or None


def read(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Return the racks of a file: host names and patterns by rack name."""
    try:
        with open(path, "rb") as file:
            racks = tomllib.load(file).get("racks")
    except (OSError, ValueError) as error:
        raise InputError(f"racks={os.fspath(path)!r} cannot be read: {error}") from None
    if not isinstance(racks, dict) or not racks:
        raise InputError(f'racks={os.fspath(path)!r}: expected a table [racks] with entries like north = ["host1"]')
    return racks


def rack_of(host: str, racks: Mapping[str, Sequence[str]], where: str) -> str:
    for rack, patterns in racks.items():
        if isinstance(patterns, str) or not all(isinstance(pattern, str) for pattern in patterns):
            raise InputError(f"{where}: rack {rack}={patterns!r}: expected a list of host names")
    found = [rack for rack, patterns in racks.items() if any(fnmatchcase(host, pattern) for pattern in patterns)]
    if len(found) != 1:
        standing = f"in {' and '.join(found)}" if found else f"in none of {', '.join(racks)}"
        raise InputError(f"{where}: host {host} stands {standing}; expected exactly one rack")
    return found[0]
