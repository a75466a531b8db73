"""`Serving`: what serves the broadcast variables of a group, and knows of the files that some of them lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ripieno._native import Broadcasts as NativeBroadcasts
    from ripieno._native import Variable as NativeVariable
    from ripieno.comm.shared_files import SharedFile

#: A rank tells the root that it has read a value, and that it reads it no more.
HAS_IT, LET_GO = b"has it", b"let go"


class Serving:
    """One rank's part in the broadcast variables of a group.

    Attributes
    ----------
    native
        Which carries words and blocks.
    """

    def __init__(self, native: NativeBroadcasts, others: set[int]) -> None:
        self.native = native
        self._others = others
        # At the root: files, and by whom they may still be read.
        self._files: list[tuple[NativeVariable, SharedFile]] = []
        self._held: list[NativeVariable] = []

    def keep(self, variable: NativeVariable, file: SharedFile) -> None:
        """Remove a file of this rank once all have let go of the variable, at the latest at the end."""
        self._held.append(variable)
        self._files.append((variable, file))

    def let_go(self, variable: NativeVariable) -> None:
        """This rank, the root, needs the variable no more."""
        self._held = [each for each in self._held if each is not variable]

    def sweep(self) -> None:
        """Remove the files that nobody reads any more."""
        for variable, file in list(self._files):
            told = variable.told()
            has_left = {rank for rank, words in told.items() if words == LET_GO} | set(variable.lost())
            if has_left >= self._others and not any(each is variable for each in self._held):
                file.remove()
                self._files.remove((variable, file))

    def close(self) -> None:
        """Give values to those who are fetching them, for a while; then end."""
        self.native.close()
        while self._files:
            self._files.pop()[1].remove()
