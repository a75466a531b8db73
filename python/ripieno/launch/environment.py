"""`init`: a communicator for a script, from the environment that a launcher has set.

| variable | meaning |
|---|---|
| RANK, WORLD_SIZE | this process's number, and how many there are |
| MASTER_ADDR, MASTER_PORT | where rank 0 listens while the ranks meet |
| RIPIENO_DIRECTORY | instead of these: a new, empty directory that all ranks share |
| RIPIENO_TOKEN | the job's secret, the same on every rank |
| RIPIENO_RENDEZVOUS_TIMEOUT_S | for how many seconds ranks wait for each other (optional, 60) |
| RIPIENO_REPLICAS | how many copies there are of each logical rank, see `Communicator.replicate` (optional) |
| RIPIENO_FLIGHT | a folder in which every rank leaves the records of its collectives (optional) |
| LOCAL_WORLD_SIZE | how many ranks share this host and its cores (optional) |
| RACK | the name of the rack that this host stands in (optional) |
| RIPIENO_RACKS | instead of that: a file of racks and their hosts, see `ripieno.launch.racks` (optional) |
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping
from typing import Any

from ripieno import flight
from ripieno.comm import Communicator, describe
from ripieno.errors import RendezvousError
from ripieno.launch.inline import alone
from ripieno.launch.machine import usable_cores
from ripieno.launch.names import await_name
from ripieno.launch.racks import rack_of_this_host

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RIPIENO_DIRECTORY", "RIPIENO_TOKEN")

# The one communicator of this process that `init` made.
_current: Communicator | None = None


def init(*, threads: int | None = None, **options: Any) -> Communicator:
    """The communicator of a script under a launcher, such as ``ripieno run -n 4 script.py``.

    Without any of the variables RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, RIPIENO_DIRECTORY and RIPIENO_TOKEN the
    script is on its own, a world of one rank. Called again, it returns the same communicator. It is closed when the
    script ends; an exception that nobody catches is told to the other ranks first.

    Parameters
    ----------
    threads : int, optional
        Threads that this rank should compute with; by default its even share of the host's cores.
    **options
        ``replicas``, ``bind_host``, ``ports``, ``links``, ``racks``, ``rendezvous_timeout_s``,
        ``heartbeat_timeout_s``.

    Raises
    ------
    RendezvousError
        If variables are missing or wrong, or the ranks cannot meet.
    """
    global _current
    if _current is not None and not _current.closed:
        return _current
    _current = from_environment(os.environ, threads=threads, **options)
    atexit.register(_current.close)
    _tell_peers_of_uncaught_exceptions()
    return _current


def current() -> Communicator | None:
    """The communicator that `init` made, if it is open."""
    return _current if _current is not None and not _current.closed else None


def from_environment(variables: Mapping[str, str], *, threads: int | None, **options: Any) -> Communicator:
    """A new communicator as `variables` say."""
    present = {name: variables[name] for name in VARIABLES if variables.get(name)}
    options = flight.prepared(options)
    if threads is None:
        threads = max(1, usable_cores() // _number(variables, "LOCAL_WORLD_SIZE", 1))
    if not present:
        return alone(threads=threads, **options)
    meeting = ("RIPIENO_DIRECTORY",) if "RIPIENO_DIRECTORY" in present else ("MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in ("RANK", "WORLD_SIZE", *meeting, "RIPIENO_TOKEN") if name not in present]
    if missing:
        raise RendezvousError(f"{', '.join(present)} set, but not {', '.join(missing)}: a launcher sets all or none")
    from ripieno import _native

    options.setdefault("rendezvous_timeout_s", _number(variables, "RIPIENO_RENDEZVOUS_TIMEOUT_S", 60))
    if "RIPIENO_DIRECTORY" in present:
        options["directory"] = present["RIPIENO_DIRECTORY"]
    else:
        options["tcp_store"] = (present["MASTER_ADDR"], _number(present, "MASTER_PORT"))
    options["rack"] = rack_of_this_host(options.pop("racks", None), variables)
    options.setdefault("replicas", _number(variables, "RIPIENO_REPLICAS", 1))
    rank, world_size = _number(present, "RANK"), _number(present, "WORLD_SIZE")
    if not 0 <= rank < world_size:
        raise RendezvousError(f"RANK={rank}: expected 0 … {world_size - 1}, for WORLD_SIZE={world_size}")
    if rank == 0 and world_size > 1 and "tcp_store" in options:
        await_name(present["MASTER_ADDR"], options["rendezvous_timeout_s"])
    native = _native.Communicator.connect(rank, world_size, None, token=present["RIPIENO_TOKEN"].encode(), **options)
    return Communicator(native, threads=threads)


def _number(variables: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = variables.get(name) or default
    try:
        return int(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise RendezvousError(f"{name}={text!r}: expected a number") from None


def _tell_peers_of_uncaught_exceptions() -> None:
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        comm = current()
        if comm is not None:
            comm.abort(*describe(error))
        before(kind, error, trace)

    sys.excepthook = hook
