"""Provide a guard process that removes a lab even if the lab's owner is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType

# How long `Guard` waits for its process to end, which may have to remove the lab first.
END_S = 30.0


class Guard:
    """A process that removes the lab when this process ends, even if this process is killed."""

    def __init__(self, name: str) -> None:
        # A separate session keeps signals of the terminal from the guard.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ripieno.lab.watch", name, str(os.getpid())],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Guard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the guard. After an error only close its stdin, and the guard removes the rest of the lab."""
        assert self._process.stdin is not None, "a guard is started with a pipe"
        if error is None:
            self._process.kill()
        self._process.stdin.close()
        self._process.wait(END_S)
