"""``python -m ripieno.lab.watch NAME OWNER``: remove a lab when its owner closes stdin or ends."""

import os
import select
import sys
from contextlib import suppress

from ripieno.lab import registry


def wait(owner: int) -> None:
    """Wait until the owner closes the pipe or ends. A forked child may hold the pipe open after the owner's end."""
    process = os.pidfd_open(owner)
    if os.getppid() == owner:
        end = select.poll()
        for descriptor in (sys.stdin.fileno(), process):
            end.register(descriptor, select.POLLIN | select.POLLHUP)
        end.poll()


if __name__ == "__main__":
    lab, owner = sys.argv[1], int(sys.argv[2])
    with suppress(ProcessLookupError):
        wait(owner)
    # Another process may have created a lab with this name.
    registry.remove(lab, owner_pid=owner)
