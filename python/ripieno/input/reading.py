"""Read a rank's share of splits with the types that all ranks share, also on a rank without splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.input.assigning.assignment import share
from ripieno.input.split import Split

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


def read(splits: Sequence[Split], comm: Communicator) -> Any:
    """Return the records of this rank's splits, as one table, array or bytes. Every rank passes all splits.

    Parameters
    ----------
    splits : sequence of Split
        The splits of all ranks, of one kind: tables, arrays of rows of one shape, or text.
    comm : Communicator
        The ranks that read.

    Returns
    -------
    Table, ndarray or bytes
        The records of the splits that `share` gives to this rank, in order. Tables have the same columns and types on
        all ranks: int64 and float64 become float64. A rank without splits gets no records of these types.

    Raises
    ------
    InputError
        On every rank: a file is damaged, there are no splits, or splits have different columns or types.

    Examples
    --------
    >>> import pathlib, tempfile, ripieno as rp
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "sales.csv"
    >>> _ = path.write_text("region,amount\\nnorth,3\\n")
    >>> def program(comm):
    ...     return rp.input.read(rp.input.splits(path), comm).to_pydict()
    >>> with rp.launch(workers=2) as job:
    ...     job.run(program)
    [{'region': ['north'], 'amount': [3]}, {'region': [], 'amount': []}]
    """
    own = share(splits, comm)
    empty = common_empty(own, comm)
    with agreement(comm):
        parts = [split.read() for split in own]
        if isinstance(empty, pa.Table):
            return pa.concat_tables([empty, *(as_schema(part, empty.schema) for part in parts)])
        return np.concatenate([empty, *parts]) if isinstance(empty, np.ndarray) else b"".join(parts)


def common_empty(own: Sequence[Split], comm: Communicator) -> Any:
    """Return no records, of the types that fit the splits of all ranks. Every rank passes its own splits.

    Raises
    ------
    InputError
        On every rank: no rank has splits, or they have different columns, types or shapes.
    """
    found: list[Any] = []
    with agreement(comm):
        # Files of one kind are sent once.
        found = list({_described(each): each for each in (split.empty() for split in own)}.values())
    everything = [each for part in comm._allgather_values("read", found) for each in part]
    if not everything:
        raise InputError("no splits: expected files with at least one record")
    first = everything[0]
    kinds = {type(each) for each in everything}
    if len(kinds) > 1:
        raise InputError("splits of several kinds: expected only tables, only arrays or only text")
    if isinstance(first, pa.Table):
        names = first.column_names
        other = next((each.column_names for each in everything if sorted(each.column_names) != sorted(names)), None)
        if other is not None:
            raise InputError(f"tables of different columns: {', '.join(names)}; and {', '.join(other)}")
        try:
            # The metadata of pandas describes one file.
            schemas = [each.schema.remove_metadata() for each in everything]
            if any(each != schemas[0] for each in schemas[1:]):
                # A column may have strings in one file and categories in another.
                schemas = list(map(_without_dictionaries, schemas))
            return pa.unify_schemas(schemas, promote_options="permissive").empty_table()
        except pa.ArrowException as error:
            raise InputError(f"tables of different types of columns: {error}") from error
    if isinstance(first, np.ndarray):
        shapes = {each.shape[1:] for each in everything}
        if len(shapes) > 1:
            raise InputError(f"rows of different shapes: {' and '.join(map(str, sorted(shapes)))}")
        return np.empty(first.shape, np.result_type(*everything))
    return first


def as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of a schema, in its order and types.

    Raises
    ------
    InputError
        A value does not fit the type, such as an integer above 2^53 in a column that other files have as float64.
    """
    try:
        return table.select(schema.names).cast(schema)
    except pa.ArrowException as error:
        raise InputError(f"tables of different types of columns: {error}") from error


def _without_dictionaries(schema: pa.Schema) -> pa.Schema:
    kinds = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in schema]
    return pa.schema([field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)])


def _described(empty: Any) -> str:
    if isinstance(empty, pa.Table):
        return str(empty.schema.remove_metadata())
    return f"{empty.dtype} {empty.shape}" if isinstance(empty, np.ndarray) else type(empty).__name__
