"""Provide `LinePump`, which forwards the output of workers and prefixes each line with the rank."""

from __future__ import annotations

import os
import selectors
import sys
import threading
from collections.abc import Callable
from typing import IO, Protocol, TextIO


class Piped(Protocol):
    """A process with pipes for its output."""

    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def stderr(self) -> IO[bytes] | None: ...


class LinePump:
    """A thread that reads the workers' output and writes complete lines, ``[rank 1] text``, or with another name.

    It ends when every worker has closed its output; `close` waits for that.

    Parameters
    ----------
    on_line
        Also receives each line, with the name of its worker.
    """

    def __init__(self, on_line: Callable[[str, str], None] | None = None) -> None:
        self._on_line = on_line
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def add(self, name: str, process: Piped) -> None:
        """Read the stdout and stderr of this process, which must be pipes."""
        for pipe, sink in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            assert pipe is not None, "a pumped process is started with pipes"
            self._selector.register(pipe, selectors.EVENT_READ, _Lines(name, pipe, sink, self._on_line))

    def start(self) -> None:
        """Start the thread, after the last `add`."""
        self._thread.start()

    def close(self, timeout_s: float = 1.0) -> None:
        """Write the remaining output. Do not wait for grandchildren that keep a pipe open."""
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
            # The reader has closed the output of this process, so workers get the same error when they print.
            for key in list(self._selector.get_map().values()):
                key.data.pipe.close()
        self._selector.close()


class _Lines:
    def __init__(self, name: str, pipe: IO[bytes], sink: TextIO, on_line: Callable[[str, str], None] | None) -> None:
        self._name = name
        self._on_line = on_line
        self._sink = sink
        self._begun = b""
        self.pipe = pipe

    def forward(self) -> bool:
        """Write complete lines and return True; at the end of the output, write the rest and return False."""
        data = os.read(self.pipe.fileno(), 1 << 16)
        *lines, self._begun = (self._begun + data).split(b"\n")
        if not data and self._begun:
            lines, self._begun = [self._begun], b""
        shown = [line.decode(errors="replace") for line in lines]
        if self._on_line is not None:
            for line in shown:
                self._on_line(self._name, line)
        text = "".join(f"[{self._name}] {line}\n" for line in shown)
        if text:
            self._sink.write(text)
            self._sink.flush()
        return bool(data)
