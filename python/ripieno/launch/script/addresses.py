"""Provide names, addresses and ports of the hosts of ranks: when a name resolves, and which port is free."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from ripieno.errors import RendezvousError
from ripieno.launch.deadline import pauses


def await_name(host: str, timeout_s: float) -> None:
    """Return as soon as `host`, a name or an address, resolves to an address.

    Only rank 0 needs this, as it listens at its own name. The other ranks retry their connections anyway.

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


def address_towards(host: str) -> str:
    """Return the local address on the route to `host`; raise OSError if its name does not resolve."""
    family, _, _, _, there = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as ours:
        # Nothing is sent: the kernel selects the source address.
        ours.connect(there)
        return str(ours.getsockname()[0])


@contextmanager
def reserved_port(address: str) -> Iterator[int]:
    """Yield a port of a local address that no other process gets meanwhile. Rank 0 can listen there."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as reservation:
        # The socket is bound but does not listen.
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind((address, 0))
        yield reservation.getsockname()[1]
