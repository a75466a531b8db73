"""``python -m ripieno.lab.watch NAME OWNER``: takes a lab down when its owner hangs up stdin, or has ended."""

import os
import select
import sys
from contextlib import suppress

from ripieno.lab import registry


def wait(owner: int) -> None:
    """Until the owner hangs up, or has ended: then a child that it forked may hold its end of the pipe still."""
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
    # By then another process may have a lab of this name.
    registry.remove(lab, of=owner)
