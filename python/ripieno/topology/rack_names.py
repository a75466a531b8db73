"""Read the racks of hosts from a mapping or a TOML file of hosts and patterns by rack.

```toml
[racks]
north = ["node1", "node2"]
south = ["node3", "gpu-*"]
```

Host names may contain ``*``, ``?`` and ``[…]``.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from ripieno.errors import InputError
from ripieno.files.sources import read_whole

RackNames = Mapping[str, Sequence[str]] | str | os.PathLike[str]


def read(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Return the racks of a file: host names and patterns by rack name."""
    try:
        racks = tomllib.loads(read_whole(path).decode()).get("racks")
    except (ValueError, RecursionError) as error:
        raise InputError(f"racks={os.fspath(path)!r} cannot be read: {error}") from None
    if not isinstance(racks, dict) or not racks:
        raise InputError(f'racks={os.fspath(path)!r}: expected a table [racks] with entries like north = ["host1"]')
    return racks


def racks_of(hosts: Sequence[str], racks: RackNames) -> list[str]:
    """Return the rack of each host.

    Raises
    ------
    InputError
        The file or mapping is invalid, or lists a host in no rack or in several racks.
    """
    named, where = (racks, "racks") if isinstance(racks, Mapping) else (read(racks), os.fspath(racks))
    return [rack_of(host, named, where) for host in hosts]


def rack_of(host: str, racks: Mapping[str, Sequence[str]], where: str) -> str:
    """Return the rack of a host. `where` names the source of the racks in messages."""
    for rack, patterns in racks.items():
        if isinstance(patterns, str) or not all(isinstance(pattern, str) for pattern in patterns):
            raise InputError(f"{where}: rack {rack}={patterns!r}: expected a list of host names")
    found = [rack for rack, patterns in racks.items() if any(fnmatchcase(host, pattern) for pattern in patterns)]
    if len(found) != 1:
        listed = f"in {' and '.join(found)}" if found else f"in none of {', '.join(racks)}"
        raise InputError(f"{where}: host {host} is {listed}; expected exactly one rack")
    return found[0]
