"""Check the options of a regroup."""

from __future__ import annotations

import os
import tempfile
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ripieno._checks import whole_number
from ripieno.errors import InputError
from ripieno.keyed import partitioners
from ripieno.keyed.columns import KeyedSchema
from ripieno.keyed.combiners import CONCAT, Combine, Combiner, combiner_of
from ripieno.keyed.partitioners import Partitioner
from ripieno.wire.arrays import check_defined


class SpillLimit(NamedTuple):
    """The memory limit in bytes and the directory for temporary files beyond it, or neither."""

    memory_bytes: int | None
    directory: str | None


class Combination(NamedTuple):
    """Operations of the native module for rows of one schema.

    Attributes
    ----------
    local_op, merge_op : str
        For rows of this rank, and for rows of different ranks.
    is_folded : bool
        Whether a function folds the rows of each key to one after the operations. Rows without values are not folded.
    """

    local_op: str
    merge_op: str
    is_folded: bool


class RegroupOptions(NamedTuple):
    """The combination and the owners of rows.

    Attributes
    ----------
    is_balanced : bool
        Whether the sizes of parts determine the owners.
    call : str
        The text of the call, which ranks compare.
    """

    combiner: Combiner
    partitioner: Partitioner
    local_reduction: bool
    limit: SpillLimit
    widen: bool
    is_balanced: bool
    call: str

    def combination(self, schema: KeyedSchema) -> Combination:
        """Return the combination for rows of this schema."""
        is_folded = self.combiner.function is not None and bool(schema.dtype)
        merge_op = self.combiner.name if self.combiner.function is None else CONCAT if is_folded else "sum"
        return Combination(merge_op if self.local_reduction or not schema.dtype else CONCAT, merge_op, is_folded)

    def check(self, values: NDArray[Any] | None) -> None:
        """Raise `InputError` unless the combination supports these values."""
        if values is not None and self.combiner.function is None:
            check_defined(values.dtype, self.combiner.name, "regroup")


def options_of(
    combine: Combine = "sum",
    partitioner: Partitioner = None,
    local_reduction: bool = True,
    memory_limit: int | None = None,
    spill_directory: str | os.PathLike[str] | None = None,
    widen: bool = True,
) -> RegroupOptions:
    """Return the options for the caller's arguments; see `Communicator.regroup`."""
    limit, combiner = _limit_of(memory_limit, spill_directory), combiner_of(combine)
    partitioner = partitioners.checked(partitioner)
    is_balanced = partitioner == "balanced" or (partitioner is None and combiner.name == CONCAT)
    by = partitioners.description_of(partitioner, "balanced" if is_balanced else "hash")
    call = f"regroup of key-values by {by}, combine={combiner.text}"
    call += "" if local_reduction else ", local_reduction=False"
    return RegroupOptions(combiner, partitioner, bool(local_reduction), limit, widen, is_balanced, call)


def refuse_options(value: Any, **options: Any) -> None:
    """Raise `InputError` if any option is given for `value`, which accepts none."""
    for name, option in options.items():
        if option is not None:
            raise InputError(f"{name}={option!r}: has no effect on {type(value).__name__}: omit it")


def _limit_of(memory_limit: Any, spill_directory: str | os.PathLike[str] | None) -> SpillLimit:
    if memory_limit is None:
        if spill_directory is not None:
            raise InputError(f"spill_directory={str(spill_directory)!r}: expected memory_limit, too")
        return SpillLimit(None, None)
    memory_limit = whole_number("memory_limit", memory_limit, 1, 2**63 - 1, "expected a number of bytes, 1 or more")
    directory = os.fspath(spill_directory) if spill_directory is not None else tempfile.gettempdir()
    if not os.path.isdir(directory):
        raise InputError(f"spill_directory={directory!r}: expected a directory")
    return SpillLimit(memory_limit, directory)
