"""A crowd of unauthenticated connections to every listener of this network namespace: the program, and its launcher.

``crowd.py COUNT`` keeps COUNT connections, silent or with invalid data, to each listening port and each Unix socket of
Ripieno, until its standard input ends. Run it in a separate network namespace (`alone`).
"""

from __future__ import annotations

import resource
import select
import shutil
import socket
import sys
from contextlib import suppress
from pathlib import Path

#: Pause between two searches for listeners, so that the crowd leaves processor time to the tested processes.
PAUSE_S = 0.02
#: Number of simultaneous connections to one listener.
AT_ONCE = 20
SAYINGS = (b"", b"", b"RIPIENO\x02", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\xc8\x01\x00")

Door = tuple[int, str | tuple[str, int]]


def alone(*command: str) -> list[str] | None:
    """Return the command in a network namespace with only a loopback interface; None where that is impossible."""
    unshare, ip = shutil.which("unshare"), shutil.which("ip")
    if unshare is None or ip is None:
        return None
    return [unshare, "--net", "--kill-child", "--fork", "sh", "-c", f'{ip} link set lo up && exec "$0" "$@"', *command]


def doors() -> set[Door]:
    """Return all listening sockets here."""
    found: set[Door] = set()
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


def visit(door: Door, saying: bytes) -> socket.socket | None:
    """A connection, if it can be had at once."""
    family, address = door
    stranger = socket.socket(family)
    stranger.settimeout(0.05)
    try:
        stranger.connect(address)
    except OSError:
        stranger.close()
        return None
    # Some listeners close the connection immediately.
    with suppress(OSError):
        stranger.sendall(saying)
    return stranger


def main() -> None:
    """Be a crowd."""
    count = int(sys.argv[1])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    crowds: dict[Door, list[socket.socket]] = {}
    visit_count = 0
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        here = doors()
        for gone in crowds.keys() - here:
            for stranger in crowds.pop(gone):
                stranger.close()
        for door in here:
            crowd = crowds.setdefault(door, [])
            with suppress(OSError, ValueError):
                for ended in select.select(crowd[:900], [], [], 0)[0]:
                    crowd.remove(ended)
                    ended.close()
            for _ in range(min(AT_ONCE, count - len(crowd))):
                stranger = visit(door, SAYINGS[visit_count % len(SAYINGS)])
                if stranger is not None:
                    visit_count += 1
                    crowd.append(stranger)
    print(visit_count)


if __name__ == "__main__":
    main()
