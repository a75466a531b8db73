"""Provide `Serving`: the server of a group's broadcast variables, with the files that hold some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ripieno._native import Broadcasts as NativeBroadcasts
    from ripieno._native import Variable as NativeVariable
    from ripieno.comm.shared_files import SharedFile

#: Messages of a rank to the root: it has read the value; it has released the value.
HAS_IT, LET_GO = b"has it", b"let go"


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
        # At the root: the files, and the ranks that may still read each.
        self._files: list[tuple[NativeVariable, SharedFile]] = []
        self._held: list[NativeVariable] = []

    def keep(self, variable: NativeVariable, file: SharedFile) -> None:
        """Keep a file of this rank until all ranks have released the variable, or until `close`."""
        self._held.append(variable)
        self._files.append((variable, file))

    def let_go(self, variable: NativeVariable) -> None:
        """Note that this rank, the root, has released the variable."""
        self._held = [each for each in self._held if each is not variable]

    def sweep(self) -> None:
        """Remove the files that no rank reads any more."""
        for variable, file in list(self._files):
            described = variable.latest_messages()
            has_left = {rank for rank, words in described.items() if words == LET_GO} | set(variable.lost())
            if has_left >= self._others and not any(each is variable for each in self._held):
                file.remove()
                self._files.remove((variable, file))

    def close(self) -> None:
        """Serve the ranks that still fetch, for a limited time; then end."""
        self.native.close()
        while self._files:
            self._files.pop()[1].remove()
