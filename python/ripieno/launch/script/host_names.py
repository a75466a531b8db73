"""Waiting until the name of the host at which ranks meet is known: where hosts come and go, name services learn late.

Ranks that look for rank 0 try again anyway; this is for rank 0, which listens at its own name.
"""

from __future__ import annotations

import socket
import time

from ripieno.errors import RendezvousError

# Nobody tells when a name becomes known: the pauses between questions, from the first to the longest.
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5


def await_name(host: str, timeout_s: float) -> None:
    """Return as soon as `host`, a name or an address, stands for an address.

    Raises
    ------
    RendezvousError
        If it does not within `timeout_s` seconds.
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
                    f"rank 0 is to listen at {host!r} (MASTER_ADDR), which has stood for no address for "
                    f"{timeout_s:g} s: {error.strerror}; is it spelt right, and does the name service know it?"
                ) from None
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
