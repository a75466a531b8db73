"""Unauthenticated connections to every listener of this network namespace, and a command that isolates a program.

``unauthenticated_peers.py COUNT`` keeps COUNT connections, silent or with invalid data, to each listening port and each
Unix socket of Ripieno, until its standard input ends. Run it in a separate network namespace (`isolated`).
"""

from __future__ import annotations

import resource
import select
import shutil
import socket
import sys
from contextlib import suppress
from pathlib import Path

#: Pause between two searches for listeners, so that the tested processes get processor time.
PAUSE_S = 0.02
#: Maximum number of new connections to one listener between two searches.
NEW_CONNECTIONS_MAX = 20
FIRST_BYTES = (b"", b"", b"RIPIENO\x02", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\xc8\x01\x00")

Listener = tuple[int, str | tuple[str, int]]


def isolated(*command: str) -> list[str] | None:
    """Return the command in a network namespace with only a loopback interface; None where that is impossible."""
    unshare, ip = shutil.which("unshare"), shutil.which("ip")
    if unshare is None or ip is None:
        return None
    return [unshare, "--net", "--kill-child", "--fork", "sh", "-c", f'{ip} link set lo up && exec "$0" "$@"', *command]


def listeners() -> set[Listener]:
    """Return all listening sockets of this namespace."""
    found: set[Listener] = set()
    for name, family, host in (("tcp", socket.AF_INET, "127.0.0.1"), ("tcp6", socket.AF_INET6, "::1")):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == "0A":
                found.add((family, (host, int(local.rpartition(":")[2], 16))))
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        path = line.split()[7:]
        if path and path[0].startswith("@ripieno-") and line.split()[3] == "00010000":
            found.add((socket.AF_UNIX, "\0" + path[0][1:]))
    return found


def connect(listener: Listener, first_bytes: bytes) -> socket.socket | None:
    """Return a connection that has sent some bytes, or None if the listener refuses it or is slow."""
    family, address = listener
    connection = socket.socket(family)
    connection.settimeout(0.05)
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        return None
    # Some listeners close the connection immediately.
    with suppress(OSError):
        connection.sendall(first_bytes)
    return connection


def main() -> None:
    """Keep the connections open until standard input ends, and print how many were opened."""
    count = int(sys.argv[1])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connections_of: dict[Listener, list[socket.socket]] = {}
    opened_count = 0
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        current = listeners()
        for closed in connections_of.keys() - current:
            for connection in connections_of.pop(closed):
                connection.close()
        for listener in current:
            connections = connections_of.setdefault(listener, [])
            with suppress(OSError, ValueError):
                for ended in select.select(connections[:900], [], [], 0)[0]:
                    connections.remove(ended)
                    ended.close()
            for _ in range(min(NEW_CONNECTIONS_MAX, count - len(connections))):
                connection = connect(listener, FIRST_BYTES[opened_count % len(FIRST_BYTES)])
                if connection is not None:
                    opened_count += 1
                    connections.append(connection)
    print(opened_count)


if __name__ == "__main__":
    main()
