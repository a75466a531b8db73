"""Taking a lab down even if its owner is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType

# It finds the lab gone, unless taking it down failed.
END_S = 30.0


class Guard:
    """A process that outlives this one, however that ends, for as long as it takes to take a lab down."""

    def __init__(self, name: str) -> None:
        # A session of its own: what the terminal sends to everyone must not reach it.
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
        """Dismiss it; after an error hang up, so that whatever the lab still is then is taken down."""
        assert self._process.stdin is not None, "a guard is started with a pipe"
        if error is None:
            self._process.kill()
        self._process.stdin.close()
        self._process.wait(END_S)
