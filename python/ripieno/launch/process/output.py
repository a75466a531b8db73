"""Passing on what workers print, each line marked with its rank."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import threading
from typing import IO, TextIO


class LinePump:
    """A thread that reads the workers' output and writes whole lines, ``[rank 1] text``, or whatever they are named.

    It ends when every worker has closed its output; `close` waits for that.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def add(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Read this process's stdout and stderr, both pipes."""
        for pipe, sink in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            assert pipe is not None, "a pumped process is started with pipes"
            self._selector.register(pipe, selectors.EVENT_READ, _Lines(f"[{name}] ", pipe, sink))

    def start(self) -> None:
        """Begin, after the last `add`."""
        self._thread.start()

    def close(self, timeout_s: float = 1.0) -> None:
        """Write what is left. A grandchild that keeps a pipe open is not waited for."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while self._selector.get_map():
                for key, _ in self._selector.select():
                    if not key.data.forward():
                        self._selector.unregister(key.fileobj)
                        key.data.pipe.close()
        except BrokenPipeError:
            # Whoever read this process's output has gone: workers that print are told so, as if they wrote to it.
            for key in list(self._selector.get_map().values()):
                key.data.pipe.close()
        self._selector.close()


class _Lines:
    def __init__(self, prefix: str, pipe: IO[bytes], sink: TextIO) -> None:
        self._prefix = prefix
        self._sink = sink
        self._begun = b""
        self.pipe = pipe

    def forward(self) -> bool:
        """Pass on complete lines; at the end the rest, and False."""
        data = os.read(self.pipe.fileno(), 1 << 16)
        *lines, self._begun = (self._begun + data).split(b"\n")
        if not data and self._begun:
            lines, self._begun = [self._begun], b""
        text = "".join(f"{self._prefix}{line.decode(errors='replace')}\n" for line in lines)
        if text:
            self._sink.write(text)
            self._sink.flush()
        return bool(data)
