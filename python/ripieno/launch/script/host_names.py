"""Provide a wait until a host name resolves, because name services learn of new hosts with a delay.

Only rank 0 needs this, as it listens at its own name. The other ranks retry their connections anyway.
"""

from __future__ import annotations

import socket

from ripieno.errors import RendezvousError
from ripieno.launch.deadline import pauses


def await_name(host: str, timeout_s: float) -> None:
    """Return as soon as `host`, a name or an address, resolves to an address.

    Raises
    ------
    RendezvousError
        If it does not resolve within `timeout_s` seconds.
    """
    # Name services do not notify of new names.
    for _ in pauses(timeout_s):
        try:
            socket.getaddrinfo(host, None)
            return
        except socket.gaierror as error:
            reason = error.strerror
    raise RendezvousError(
        f"rank 0 must listen at {host!r} (MASTER_ADDR), which could not be resolved for {timeout_s:g} s: {reason}; "
        "check its spelling and the name service"
    )
