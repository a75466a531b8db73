"""Read edges from files of any format, by the columns of their ends and weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files.frames import as_numbers, is_text, plain_ids
from ripieno.files.matrix_market import is_matrix_market
from ripieno.files.sources import size_bytes
from ripieno.graph.edges import Edges
from ripieno.input.columns import COLUMNS, ArchiveColumns, ColumnSource, CsvColumns, Key, SparseColumns, TableOptions
from ripieno.input.columns.delimited import is_number
from ripieno.input.columns.edges import EdgeText

LARGEST_ID = (1 << 62) - 1
EXPECTED = f": expected vertex ids, whole numbers from 0 to {LARGEST_ID} or strings, and finite weights"

# Names are compared in lower case, without "_", blanks, "id" and "node", and without a Neo4j type: FromNodeId and
# from_id match `from`, weight:double matches `weight`.
SOURCE_NAMES = ("source", "src", "from", "u", "row")
TARGET_NAMES = ("target", "tgt", "dst", "dest", "destination", "to", "v", "col")
WEIGHT_NAMES = ("weight", "weights", "w")
#: The meaning of a third field of text, by the value of `weighted`.
THIRD = {True: "weight", False: "ignored", None: "refused"}
DEFAULT_OPTIONS = TableOptions()
#: The rows in these bytes of a text decide whether vertices have names.
FIRST_ROWS_BYTES = 1 << 16
#: Names of the ends of an edge in Neo4j and its tools: ":START_ID", "_start", "startNodeId". "end" alone is ambiguous.
NEO4J_ENDS = re.compile(r"[:_]?(start|end)[_ ]?(?:node)?[_ ]?(?:id)?")


class EdgeColumnNumbers(NamedTuple):
    """The columns of the ends of an edge, and of its weight."""

    source: int
    target: int
    weight: int | None


@dataclass(frozen=True)
class EdgeFile:
    """A file with a column of sources and a column of targets.

    Parameters
    ----------
    source
        The columns.
    columns
        The columns of the ends and of the weight.
    drops
        Whether to leave out rows with missing values.
    may_lack_header
        Whether the names of the columns may be an edge between named vertices.
    """

    source: ColumnSource
    columns: EdgeColumnNumbers
    drops: bool = False
    may_lack_header: bool = False

    @classmethod
    def of(cls, source: ColumnSource, options: TableOptions, weighted: bool | None) -> Self:
        """Choose the columns of the ends and of the weight.

        Raises
        ------
        InputError
            As for `choose_columns`; edges cannot have missing values replaced by a mean; or a matrix is not square.
        """
        if isinstance(source, SparseColumns) and (len(source.shape) != 2 or len(set(source.shape)) > 1):
            raise InputError(
                f"{source.path} has shape {source.shape}: expected a square matrix, a row and a column per vertex"
            )
        if options.missing == "mean":
            raise InputError("missing='mean': the ends of an edge have no mean; expected missing='drop'")
        names = source.schema.names
        if options.columns is not None:
            chosen = [names.index(name) for name in options.chosen(source.path, names)]
            if len(chosen) not in (2, 3) or (weighted and len(chosen) == 2):
                raise InputError(
                    f"columns={list(options.columns)}: expected a source, a target and optionally a weight"
                )
            weight = chosen[2] if len(chosen) == 3 and weighted is not False else None
            return cls(source, EdgeColumnNumbers(chosen[0], chosen[1], weight), options.missing == "drop")
        left_out = {*source.index, *(key.name for key in source.keys)}
        own = options.chosen(source.path, names, [name for name in names if name not in left_out])
        found = choose_columns(source.path, own if source.has_names else [""] * len(own), weighted)
        places = [None if at is None else names.index(own[at]) for at in found]
        known = {*SOURCE_NAMES, *TARGET_NAMES}
        may_lack_header = (
            source.has_names
            and not source.counted
            and options.header is None
            and not any(_short(own[at]) in known for at in found[:2])
        )
        return cls(source, EdgeColumnNumbers(*places), options.missing == "drop", may_lack_header)  # type: ignore[arg-type]

    @property
    def path(self) -> str:
        """The path of the file."""
        return self.source.path

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return self.columns.weight is not None

    @property
    def size_bytes(self) -> int:
        """The size of the file in bytes."""
        return size_bytes(self.path)

    def read(self, start: int, stop: int) -> Edges:
        """Return the edges in a range of the file."""
        table, lone = self._table(start, stop, pa.int64()), None
        if isinstance(self.source, EdgeText) and table.column(1).null_count:
            has_target = table.column(1).is_valid()
            table, lone = table.filter(has_target), table.column(0).filter(pc.invert(has_target)).to_numpy()
        edges = table_edges(table, lambda row: self._describe(start, row))
        return edges if lone is None else replace(edges, lone=lone)

    def has_named_vertices(self) -> bool:
        """Return whether an end of an edge is a string: by the types of the columns, or in text by its first row.

        Raises
        ------
        InputError
            It is, and the first row of the file may be a header or an edge.
        """
        kinds = [self.source.schema.field(at).type for at in self.columns[:2]]
        if not any(pa.types.is_null(kind) for kind in kinds):
            return any(is_text(kind) for kind in kinds)
        top = self._table(0, min(self.source.size, FIRST_ROWS_BYTES), pa.string())
        ends = [top.column(end)[0].as_py() for end in (0, 1) if len(top)]
        if not all(ends) or all(map(is_number, ends)):
            return False
        if self.may_lack_header:
            first = ", ".join(self.source.schema.names)
            raise InputError(
                f"{self.path}: the first line, {first!r}, may be a header or an edge: pass header=True or header=False "
                "of TableFiles, --header or --no-header"
            )
        return True

    def read_named(self) -> tuple[pa.Table, Callable[[int], str]]:
        """Return all rows with the ends as strings, and a function from a row number to its location as text."""
        return self._table(0, self.source.size, pa.string()), lambda row: self._describe(0, row)

    def _table(self, start: int, stop: int, end: pa.DataType) -> pa.Table:
        """Return the ends and weights of rows, with ends of the type `end` in text."""
        fields = [self.source.schema.field(at) for at in self.columns if at is not None]
        kinds = (end, end, pa.float64())
        # Text does not state the types of its columns.
        schema = pa.schema([
            field.with_type(kind) if pa.types.is_null(field.type) else field
            for field, kind in zip(fields, kinds, strict=False)
        ])  # fmt: skip
        table = self.source.read(start, stop, schema, EXPECTED)
        return table.drop_null() if self.drops else table

    def _describe(self, start: int, row: int) -> str:
        """Return the position of the `row`-th row of a range, as text."""
        source = self.source
        if isinstance(source, ArchiveColumns):
            # Only the arrays of edges have equal lengths.
            source = replace(source, own=pa.schema([source.schema.field(self.columns.source)]))
        return source.describe(start, row)


def open_edges(
    path: str,
    kind: str,
    weighted: bool | None,
    options: TableOptions = DEFAULT_OPTIONS,
    keys: tuple[Key, ...] = (),
) -> EdgeFile:
    """Open a file of a format, "text", "npy", "npz", or a table's. Text is a matrix if it has a MatrixMarket banner.

    Raises
    ------
    InputError
        The file is not in this format, or its columns are unknown.
    """
    if kind == "text" and is_matrix_market(path):
        source: ColumnSource = SparseColumns.open(path, options)
    elif kind == "text":
        if options != DEFAULT_OPTIONS or keys:
            raise InputError(f"{path} is read as text: expected a table, for options and names of folders")
        source = EdgeText.open(path, options, third=THIRD[weighted])
    elif kind == "npz":
        source = ArchiveColumns.described(path)
    elif kind == "csv":
        source = CsvColumns.open(path, options, has_comments=True)
        if len(source.own) < 2 and options == DEFAULT_OPTIONS and not keys:
            return open_edges(path, "text", weighted)
    else:
        source = COLUMNS[f".{kind}"].open(path, options)
    return EdgeFile.of(source.keyed(keys), options, weighted)


def table_edges(table: pa.Table, describe: Callable[[int], str]) -> Edges:
    """Return the edges of a table of sources, targets and optionally weights. `describe` names the place of a row.

    Raises
    ------
    InputError
        An end is missing or is not a vertex id, or a weight is not finite.
    """
    columns: list[NDArray[Any]] = []
    for at, name in enumerate(table.column_names):
        column = plain_ids(table.column(at)) if at < 2 else as_numbers(table.column(at))
        kind = column.type
        is_numeric = pa.types.is_integer(kind) or (
            at == 2 and (pa.types.is_floating(kind) or pa.types.is_boolean(kind))
        )
        if len(table) and not is_numeric:
            raise InputError(f"{describe(0)}, column {name!r}: the type {kind}{EXPECTED}")
        if column.null_count:
            row = np.flatnonzero(column.is_null().to_numpy())[0]
            raise InputError(f"{describe(int(row))}, column {name!r}: a missing value{EXPECTED}")
        values = column.to_numpy()
        wrong = np.flatnonzero((values < 0) | (values > LARGEST_ID) if at < 2 else ~np.isfinite(values))
        if len(wrong):
            raise InputError(f"{describe(int(wrong[0]))}, column {name!r}: {values[wrong[0]]}{EXPECTED}")
        columns.append(np.ascontiguousarray(values, np.int64 if at < 2 else np.float64))
    return Edges(*columns)


def choose_columns(path: str, names: Sequence[str], weighted: bool | None) -> EdgeColumnNumbers:
    """Choose the columns by name, or the first ones if there are no names or only two columns.

    Raises
    ------
    InputError
        There are fewer than two columns; no name of several marks the ends; a requested weight is missing; or an
        unnamed column may be a weight or not.
    """
    if len(names) < 2:
        raise InputError(f"{path}: one column, expected a source and a target")
    short = [_short(name) for name in names]
    source, target, weight = (
        next((short.index(name) for name in known if name in short), None)
        for known in (SOURCE_NAMES, TARGET_NAMES, WEIGHT_NAMES)
    )
    has_names = any(name.strip() for name in names)
    if source is None or target is None:
        if has_names and (len(names) > 2 or weight is not None):
            raise InputError(
                f"{path} has the columns {', '.join(map(repr, names))}: the columns of sources and "
                f"targets are unknown, expected names such as {SOURCE_NAMES[0]!r} and {TARGET_NAMES[0]!r}"
            )
        # With two columns, the one without a known name is the other end.
        source, target = (1, 0) if source == 1 or target == 0 else (0, 1)
    if weighted is False:
        return EdgeColumnNumbers(source, target, None)
    if weight is None and not has_names and len(names) > 2:
        if weighted is None:
            raise InputError(
                f"{path} has {len(names)} columns without names: pass weighted=True if the third one "
                "is a weight, else weighted=False"
            )
        weight = 2
    if weighted and weight is None:
        raise InputError(f"{path} has no weights: expected a column named {WEIGHT_NAMES[0]!r}, or a third one")
    return EdgeColumnNumbers(source, target, weight)


def _short(name: str) -> str:
    # Neo4j appends the id space to a name, ":START_ID(City)", and the type, "weight:double".
    plain = re.sub(r"\(.*\)$", "", name.strip().lower())
    if not plain.startswith(":"):
        plain = plain.partition(":")[0]
    ends = NEO4J_ENDS.fullmatch(plain)
    if ends and plain not in ("start", "end"):
        return "source" if ends[1] == "start" else "target"
    return re.sub(r"[_ ]", "", plain).removesuffix("id").removesuffix("node")
