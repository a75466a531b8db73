"""Aggregate the rows of files by key: every rank reads its share in blocks, and a regroup combines equal keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ripieno.comm.agreement import agreement
from ripieno.comm.frames import aggregated
from ripieno.errors import InputError
from ripieno.files.sources import PathLike
from ripieno.input.assigning.assignment import share
from ripieno.input.columns.parquet import Parquet
from ripieno.input.cutting import TABLES, partitions_in, splits
from ripieno.input.reading import as_schema, common_empty
from ripieno.input.split import Split
from ripieno.keyed.aggregation import Aggregation, columns_and_operations
from ripieno.keyed.frame import KeyedFrame

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Decoded bytes of a block of rows.
BLOCK_BYTES = 32 << 20
#: Splits per rank. Several splits per rank let a rank with a large file take fewer others.
SPLITS_PER_RANK = 4


def aggregate(
    source: PathLike | Sequence[PathLike],
    keys: str | Sequence[str],
    aggregations: Mapping[str, str | tuple[str, str]],
    comm: Communicator,
    **options: Any,
) -> KeyedFrame:
    """Return one row per key of tables in files, at the owner of the key. Every rank calls it.

    Parameters
    ----------
    source : path, glob, folder, URL, or list of them
        Tables or matrices, as for `splits`, or partitions. Folders such as ``year=2024`` are columns.
    keys : str or sequence of str
        Columns that together form the key. Null is a key.
    aggregations : dict of str to "count" or (str, str)
        As for `KeyedFrame.aggregated`; the same on all ranks.
    comm : Communicator
        The ranks that read.
    **options
        `header`, `types`, `delimiter`, `decimal` and `thousands`, as for `splits`.

    Returns
    -------
    KeyedFrame
        The keys that this rank owns. A rank holds one row for each key of the rows that it reads, not the rows.

    Raises
    ------
    InputError
        On every rank: a file is damaged, a column does not exist or is named twice in the key, or a sum of integers
        exceeds 64 bits.

    Examples
    --------
    >>> import pathlib, tempfile, ripieno as rp
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "sales.csv"
    >>> _ = path.write_text("region,amount\\nnorth,3\\nsouth,4\\nnorth,5\\n")
    >>> def program(comm):
    ...     return rp.input.aggregate(path, "region", {"total": ("amount", "sum")}, comm).to_arrow().to_pylist()
    >>> with rp.launch(workers=1) as job:
    ...     job.run(program)[0]
    [{'region': 'north', 'total': 8}, {'region': 'south', 'total': 4}]
    """
    by = [keys] if isinstance(keys, str) else list(keys)
    with agreement(comm):
        if not all(isinstance(each, str) for each in by):
            raise InputError(f"keys={by}: expected names of columns")
        if len(set(by)) < len(by):
            raise InputError(f"keys={by}: expected different columns")
        columns = [column for column, _ in columns_and_operations(aggregations).values() if column is not None]
        names = list(dict.fromkeys([*by, *columns]))
        cut = partitions_in(source)
        if cut is None:
            cut = splits(source, count=SPLITS_PER_RANK * comm.world_size, columns=names, **options)
        other = next((split for split in cut if split.format.name not in TABLES), None)
        if other is not None:
            raise InputError(f"{other.path} is read as {other.format.name}: expected a table")
    own = share(cut, comm)
    schema = common_empty(own, comm).schema
    with agreement(comm):
        aggregation = Aggregation(by, aggregations, schema, threads=comm.threads, world_size=comm.world_size)
        for split in own:
            for block in _with_dictionaries(split).blocks(BLOCK_BYTES):
                aggregation.add(as_schema(block, _schema_of_block(schema, block.schema)))
    with agreement(comm):
        return KeyedFrame.of_table(aggregated(comm, aggregation), by)


def _with_dictionaries(split: Split) -> Split:
    """Return the same split with blocks that keep dictionary columns of strings."""
    if not isinstance(split.format, Parquet):
        return split
    return replace(split, format=replace(split.format, has_dictionaries=True))


def _schema_of_block(schema: pa.Schema, block_schema: pa.Schema) -> pa.Schema:
    """Return the types of all blocks, with the dictionaries of one block."""
    kinds = [block_schema.field(field.name).type for field in schema]
    return pa.schema(
        [
            pa.field(field.name, kind) if pa.types.is_dictionary(kind) and kind.value_type == field.type else field
            for field, kind in zip(schema, kinds, strict=True)
        ]
    )
