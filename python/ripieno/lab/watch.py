"""``python -m ripieno.lab.watch NAME``: takes a lab down when its owner, at the other end of stdin, has ended."""

import sys

from ripieno.lab import registry

if __name__ == "__main__":
    sys.stdin.buffer.read()
    registry.remove(sys.argv[1])
