"""Waits for a host name to resolve, because name services learn of new hosts with a delay.

Only rank 0 needs this, as it listens at its own name. The other ranks retry their connections anyway.
"""

from __future__ import annotations

import socket
import time

from ripieno.errors import RendezvousError

# Name services do not notify of new names: shortest and longest pause between two queries.
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5


def await_name(host: str, timeout_s: float) -> None:
    """Return as soon as `host`, a name or an address, resolves to an address.

    Raises
    ------
    RendezvousError
        If it does not resolve within `timeout_s` seconds.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            socket.getaddrinfo(host, None)
            return
        except socket.gaierror as error:
            if time.monotonic() + pause_s >= deadline:
                raise RendezvousError(
                    f"rank 0 must listen at {host!r} (MASTER_ADDR), which could not be resolved for "
                    f"{timeout_s:g} s: {error.strerror}; check its spelling and the name service"
                ) from None
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
