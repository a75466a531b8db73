"""Provide `Serving`: the server of a group's broadcast variables, and the owner of their shared files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ripieno.disciplines import DISCIPLINES

if TYPE_CHECKING:
    from ripieno._native import Broadcasts as NativeBroadcasts
    from ripieno._native import Variable as NativeVariable
    from ripieno.comm.shared_files import SharedFile

#: Messages of a rank to the root: the rank has read the value, or has released it.
HAS_READ, RELEASED = b"read", b"released"


class Serving:
    """One rank's part in the broadcast variables of a group.

    Attributes
    ----------
    native
        The native object that transfers messages and blocks.
    """

    def __init__(self, native: NativeBroadcasts, others: set[int]) -> None:
        self.native = native
        self._others = others
        # Files that this rank has broadcast, and its variables that the program has not released.
        self._files: list[tuple[NativeVariable, SharedFile]] = []
        self._open_variables: list[NativeVariable] = []

    def offer_messages(self) -> NativeVariable:
        """Return a variable without a value: the root and the other ranks exchange messages through it."""
        return self.native.offer(0, [], (DISCIPLINES[0], None), None, [], False)

    def keep(self, variable: NativeVariable, file: SharedFile) -> None:
        """Keep a file of this rank until all ranks have released the variable, or until `close`."""
        self._open_variables.append(variable)
        self._files.append((variable, file))

    def release(self, variable: NativeVariable) -> None:
        """Record that this rank, the root, has released the variable."""
        self._open_variables = [each for each in self._open_variables if each is not variable]

    def sweep(self) -> None:
        """Remove the files that no rank reads any more."""
        for variable, file in list(self._files):
            messages = variable.latest_messages()
            released = {rank for rank, message in messages.items() if message == RELEASED} | set(variable.lost())
            if released >= self._others and not any(each is variable for each in self._open_variables):
                file.remove()
                self._files.remove((variable, file))

    def close(self) -> None:
        """Serve ranks that are still fetching until no bytes move any more; then close and remove all files."""
        self.native.close()
        while self._files:
            self._files.pop()[1].remove()
