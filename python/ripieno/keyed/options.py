"""What the caller of a regroup wants, checked."""

from __future__ import annotations

import os
import tempfile
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ripieno._checks import whole
from ripieno.errors import InputError
from ripieno.keyed import partitioners
from ripieno.keyed.columns import Form
from ripieno.keyed.combiners import CONCAT, Combine, Combiner, combiner_of
from ripieno.keyed.partitioners import Partitioner
from ripieno.wire.arrays import reducible


class Limit(NamedTuple):
    """Bytes of memory, and the directory of the temporary files that take what is more; or neither."""

    memory_bytes: int | None
    directory: str | None


class RegroupOptions(NamedTuple):
    """How rows are combined, and where their homes are."""

    combiner: Combiner
    partitioner: Partitioner
    local_reduction: bool
    limit: Limit
    widen: bool

    @property
    def call(self) -> str:
        """The call, as ranks compare it."""
        by = partitioners.name_of(self.partitioner, "balanced" if self.is_balanced else "hash")
        return f"regroup of key-values by {by}, combine={self.combiner.name}"

    @property
    def is_balanced(self) -> bool:
        return self.partitioner == "balanced" or (self.partitioner is None and self.combiner.name == CONCAT)

    def is_folded(self, form: Form) -> bool:
        """Whether a function makes one row of those of a key; rows without values have nothing to fold."""
        return self.combiner.function is not None and bool(form.dtype)

    def arriving(self, form: Form) -> str:
        """How the native module combines rows of different ranks."""
        if self.combiner.function is None:
            return self.combiner.name
        return CONCAT if form.dtype else "sum"

    def leaving(self, form: Form) -> str:
        """How the native module combines this rank's rows."""
        return self.arriving(form) if self.local_reduction or not form.dtype else CONCAT

    def check(self, values: NDArray[Any] | None) -> None:
        """`InputError` if the combination is not defined on these values."""
        if values is not None and self.combiner.function is None and self.combiner.name != CONCAT:
            reducible(values, self.combiner.name, "regroup")


def options_of(
    combine: Combine = "sum",
    partitioner: Partitioner = None,
    local_reduction: bool = True,
    memory_limit: int | None = None,
    spill_directory: str | os.PathLike[str] | None = None,
    widen: bool = True,
) -> RegroupOptions:
    """The options as the caller names them, see `Communicator.regroup`."""
    limit = _limit_of(memory_limit, spill_directory)
    return RegroupOptions(combiner_of(combine), partitioners.checked(partitioner), bool(local_reduction), limit, widen)


def refuse_options(value: Any, **options: Any) -> None:
    """`InputError` if any option is given beside `value`, which takes none."""
    for name, option in options.items():
        if option is not None:
            raise InputError(f"{name}={option!r} beside {type(value).__name__}: expected to be left out")


def _limit_of(memory_limit: Any, spill_directory: str | os.PathLike[str] | None) -> Limit:
    if memory_limit is None:
        if spill_directory is not None:
            raise InputError(f"spill_directory={str(spill_directory)!r}: expected a memory_limit with it")
        return Limit(None, None)
    memory_limit = whole("memory_limit", memory_limit, 1, 2**63 - 1, "expected a number of bytes, 1 or more")
    directory = os.fspath(spill_directory) if spill_directory is not None else tempfile.gettempdir()
    if not os.path.isdir(directory):
        raise InputError(f"spill_directory={directory!r}: expected a directory")
    return Limit(memory_limit, directory)
