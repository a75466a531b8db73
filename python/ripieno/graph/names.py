"""Number vertices that have names: columns of strings in tables and frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files.frames import is_text
from ripieno.graph.edge_files import EXPECTED, table_edges
from ripieno.graph.edges import Edges


def named_edges(tables: Sequence[tuple[pa.Table, Callable[[int], str]]]) -> tuple[Edges, NDArray[Any]]:
    """Return the edges of tables of sources, targets and optionally weights, and the names of vertices 0, 1, ….

    Names ascend by their characters. Whole numbers among them become strings. `tables` has a function for each table,
    from a row number to its location as text.

    Raises
    ------
    InputError
        An end is missing, or is neither a string nor a whole number, or a weight is not finite.
    """
    texts = [(_with_text_ends(table, describe), describe) for table, describe in tables]
    chunks = [chunk for table, _ in texts for end in (0, 1) for chunk in table.column(end).chunks]
    names = pc.unique(pa.chunked_array(chunks, pa.large_string())).drop_null()
    names = names.take(pc.sort_indices(names))
    parts = []
    for table, describe in texts:
        for end in (0, 1):
            numbers = pc.index_in(table.column(end), value_set=names).cast(pa.int64())
            table = table.set_column(end, table.column_names[end], numbers)
        parts.append(table_edges(table, describe))
    labels: NDArray[Any] = np.array(names.to_pylist(), object)
    return Edges.joined(parts, weighted=parts[0].weights is not None), labels


def _with_text_ends(table: pa.Table, describe: Callable[[int], str]) -> pa.Table:
    """Return the table with strings in the columns of the ends."""
    for end in (0, 1):
        kind, name = table.schema.field(end).type, table.column_names[end]
        if not (is_text(kind) or pa.types.is_integer(kind)):
            raise InputError(f"{describe(0)}, column {name!r}: the type {kind}{EXPECTED}")
        column = table.column(end).cast(pa.string() if pa.types.is_integer(kind) else kind).cast(pa.large_string())
        table = table.set_column(end, name, column)
    return table
