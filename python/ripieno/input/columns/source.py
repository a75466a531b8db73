"""Provide `ColumnSource`: a file as named, typed columns that are read in ranges, and the options of such files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self, get_args

import pyarrow as pa
import pyarrow.compute as pc

from ripieno._types import Missing
from ripieno.errors import InputError, MissingColumn
from ripieno.files.sources import File, Keys, PathLike, held, size_bytes
from ripieno.input.cuts import even
from ripieno.input.records import RecordType
from ripieno.input.split import Key, Range, Split, arrow_type

#: Columns with the origin of a row, which are not part of the vector.
INDEX_NAMES = ("picture", "row", "col")
#: The ends of messages about columns without numbers, and about missing values.
IGNORE_HINT = "; pass ignore=[{name!r}] to leave the column out"
MISSING_HINT = "; pass missing='drop' to leave its row out, or missing='mean'"


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options for reading tables.

    Parameters
    ----------
    columns : sequence of str, optional
        The columns to read, in this order; by default all except for a pandas index.
    ignore : sequence of str
        Columns that are not read.
    types : mapping of str to str
        Arrow types of text columns, such as ``{"zip": "string", "flag": "bool"}``.
    missing : {"drop", "mean"}, optional
        "drop" leaves out rows with a missing value. "mean" replaces it by the mean of its column over all files, which
        are read once more for this. By default a missing value is an error.
    header : bool, optional
        Whether text begins with the names of its columns. By default the types of the columns below decide.
    delimiter : str, optional
        The ASCII character between the fields of text. By default commas, semicolons and tabs are recognized.
    decimal, thousands : str, optional
        The characters of numbers in text, as in ``1.234,5``; by default a decimal point and no thousands separator.
    id : str, optional
        The column with the names of the rows, which is not a value. ``ripieno predict`` writes it next to its results.
    """

    columns: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    missing: Missing | None = None
    header: bool | None = None
    delimiter: str | None = None
    decimal: str = "."
    thousands: str | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        """Check the options.

        Raises
        ------
        InputError
            An option is invalid or contradicts another one.
        """
        if self.missing not in (None, *get_args(Missing)):
            raise InputError(f"missing={self.missing!r}: expected one of {', '.join(get_args(Missing))}")
        for name in ("columns", "ignore"):
            if isinstance(getattr(self, name), str):
                raise InputError(f"{name}={getattr(self, name)!r}: expected a list of names")
        for name in ("delimiter", "decimal", "thousands"):
            character = getattr(self, name)
            if character is not None and (len(character) != 1 or not character.isascii() or character in '"\r\n\0'):
                raise InputError(f"{name}={character!r}: expected one ASCII character, no quote and no line end")
        if self.thousands == self.decimal:
            raise InputError(f"thousands={self.thousands!r}: expected another character than decimal")
        for name, kind in self.types.items():
            try:
                arrow_type(kind)
            except ValueError:
                raise InputError(f"types={{{name!r}: {kind!r}}}: expected the name of an Arrow type") from None

    def chosen(self, path: str, names: Sequence[str], default: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the columns to read of a file with these names.

        Raises
        ------
        InputError
            The file lacks a column that an option names.
        """
        ids = () if self.id is None else (self.id,)
        for option, columns in (("columns", self.columns), ("ignore", self.ignore), ("types", self.types), ("id", ids)):
            missing = next((name for name in columns or () if name not in names), None)
            if missing is not None:
                raise MissingColumn(option, missing, path, names)
        found = self.columns or (names if default is None else default)
        return tuple(name for name in found if name not in (*self.ignore, *ids))


@dataclass(frozen=True, kw_only=True)
class FormatOptions(TableOptions):
    """Options for tables, and for records of raw files."""

    record: RecordType | None = None
    #: Bytes of a CSV file that are read to infer the types of its columns.
    sample_bytes: int = 1 << 20

    def chosen_of(self, file: File, names: Sequence[str], index: Sequence[str] = ()) -> tuple[str, ...] | None:
        """Return the columns to read, or None for all. Columns from names of folders may be chosen, too."""
        default, keys = [name for name in names if name not in index], [key for key, _ in file.keys]
        check_key_names(file.path, keys, names)
        chosen = self.chosen(file.path, [*names, *keys], default)
        found = tuple(name for name in chosen if name in names)
        return None if found == tuple(names) else found


@dataclass(frozen=True)
class TableFiles(TableOptions):
    """Files of tables with options for reading them, as input of estimators, graphs and ratings.

    They have the options of `TableOptions`.

    Parameters
    ----------
    source : path, glob, folder, URL, or list of them
        A folder with folders such as ``year=2024`` has the column year, too.
    """

    source: PathLike | Sequence[PathLike]


def paths_and_options(source: Any) -> tuple[Any, TableOptions]:
    """Return the paths and the options of `TableFiles`, or any other source unchanged with default options."""
    if not isinstance(source, TableFiles):
        return source, TableOptions()
    return source.source, TableOptions(**{each.name: getattr(source, each.name) for each in fields(TableOptions)})


@dataclass(frozen=True)
class ColumnSource(ABC):
    """A file as named, typed columns. It is small and is sent to the workers instead of the data.

    Parameters
    ----------
    path
        A local path or a URL.
    own : Schema
        The columns of the file. Types that text does not state are null.
    size
        The number of rows if the file states it (`counted`), otherwise the number of bytes of the unpacked text.
    has_names
        Whether the file has names for its columns.
    index
        Columns that identify rows, which are read only by name.
    keys
        Columns from names of folders.
    """

    path: str
    own: pa.Schema
    size: int
    has_names: bool = True
    index: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()

    #: The suffixes of such files, without suffixes of compression.
    suffixes: ClassVar[tuple[str, ...]]
    counted: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def open(cls, path: str, options: TableOptions) -> Self:
        """Read the names and types of the columns.

        Raises
        ------
        InputError
            The file is not in this format.
        EmptyFile
            The file has no rows.
        """

    @classmethod
    def described(cls, path: str) -> ColumnSource:
        """Open a file that may have no rows, without options."""
        return cls.open(path, TableOptions())

    @abstractmethod
    def _batches(self, start: int, stop: int, schema: pa.Schema, hint: str) -> Iterator[pa.Table]:
        """Yield rows `start .. stop`, or the records that begin in bytes `start .. stop`."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the file, then the columns from names of folders."""
        return pa.schema([*self.own, *(pa.field(key.name, arrow_type(key.type)) for key in self.keys)])

    def batches(self, start: int, stop: int, schema: pa.Schema, hint: str = "") -> Iterator[pa.Table]:
        """Yield some columns of rows `start .. stop`, or of the records that begin in bytes `start .. stop`.

        Text is read with the types of the schema. Other files keep their own types.

        Raises
        ------
        InputError
            The file is damaged, or a field does not fit its type. The message ends with the hint.
        """
        keys = {key.name: key for key in self.keys}
        if not keys.keys() & set(schema.names):
            yield from self._batches(start, stop, schema, hint)
            return
        # At least one column of the file is read, because its length is the number of rows. A null type is text.
        first = self.own.field(0)
        first = first.with_type(pa.string()) if pa.types.is_null(first.type) else first
        own = pa.schema([each for each in schema if each.name not in keys] or [first])
        for table in self._batches(start, stop, own, hint):
            columns = [keys[n].column(len(table)) if n in keys else table[n] for n in schema.names]
            yield pa.table(columns, names=schema.names)

    def blocks(self, start: int, stop: int, names: Sequence[str], block_bytes: int | None) -> Iterator[pa.Table]:
        """Yield some columns of a range in blocks of about `block_bytes`, if the format permits it."""
        return self._batches(start, stop, pa.schema([self.own.field(name) for name in names]), "")

    def keyed(self, keys: tuple[Key, ...]) -> Self:
        """Return the same file with columns from names of folders.

        Raises
        ------
        InputError
            The file has a column of that name.
        """
        check_key_names(self.path, [key.name for key in keys], self.own.names)
        return replace(self, keys=keys)

    def read(self, start: int, stop: int, schema: pa.Schema, hint: str = "") -> pa.Table:
        """Return some columns of a range as one table. For the parameters see `batches`."""
        tables = list(held(self.path, self.batches(start, stop, schema, hint), nbytes))
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def describe(self, start: int, row: int) -> str:
        """Return the position of the `row`-th row of a range that begins with `start`, as text."""
        return f"{self.path}, row {start + row}"


@dataclass(frozen=True)
class WholeColumns(ColumnSource):
    """A file that is read to its end. A range of its stored bytes selects the same fraction of its rows."""

    counted = False

    @abstractmethod
    def _count(self, names: Sequence[str]) -> int:
        """Return the number of rows of some columns."""

    @abstractmethod
    def _table(self, names: Sequence[str], start: int, stop: int) -> pa.Table:
        """Return rows `start .. stop` of some columns."""

    def _batches(self, start: int, stop: int, schema: pa.Schema, hint: str) -> Iterator[pa.Table]:
        count = self._count(schema.names)
        yield self._table(schema.names, *(count * at // self.size for at in (start, stop)))

    def describe(self, start: int, row: int) -> str:
        """Return the position of the `row`-th row of a range, as text."""
        return f"{self.path}, row {self._count(self.own.names[:1]) * start // self.size + row}"


@dataclass(frozen=True)
class TableSplits:
    """Splits of a table in a file, read as Arrow tables of some columns; by default all except for an index."""

    columns: tuple[str, ...] | None = None

    name: ClassVar[str]
    source: ClassVar[type[ColumnSource]]
    unit: ClassVar[str] = "rows"
    block_bytes = 8 << 20

    @classmethod
    def open(cls, file: File, options: FormatOptions) -> Self:
        """Read the metadata."""
        source = cls.source.described(file.path)
        return cls(options.chosen_of(file, source.own.names, source.index))

    def cut(self, file: File, count: int) -> list[Range]:
        """Return even ranges of rows, or the whole file if rows cannot be read by number."""
        source = self.source.described(file.path)
        ranges = even(source.size, count if source.counted else 1)
        return [(start, stop, file.size_bytes * (stop - start) // source.size) for start, stop in ranges]

    def read(self, split: Split) -> pa.Table:
        """Return all rows."""
        source, start, stop, names = self._resolve(split)
        schema = pa.schema([source.own.field(name) for name in names])
        return source.read(start, stop, schema).replace_schema_metadata(source.own.metadata)

    def blocks(self, split: Split, block_bytes: int) -> Iterator[pa.Table]:
        """Yield rows in blocks of about `block_bytes` when decoded, at least one row each."""
        source, start, stop, names = self._resolve(split)
        return source.blocks(start, stop, names, block_bytes)

    def empty(self, split: Split) -> pa.Table:
        """Return a table of no rows."""
        source, _, _, names = self._resolve(split)
        return pa.schema([source.own.field(name) for name in names], source.own.metadata).empty_table()

    def extents(self, split: Split) -> tuple[tuple[int, int], ...]:
        """Return the whole file."""
        return ((0, size_bytes(split.path)),)

    def _rows_of(self, source: Any, split: Split) -> tuple[int, int, int]:
        """Return the rows of a split, and the length of its file in the unit of the split."""
        return split.start, split.stop, source.size

    def _resolve(self, split: Split) -> tuple[ColumnSource, int, int, Sequence[str]]:
        place = split.place()
        source = self.source.described(place)
        start, stop, length = self._rows_of(source, split)
        if length < split.stop:
            raise InputError(f"{place} has {length:,} {self.unit}, but had {split.stop:,} when it was split")
        return source, start, stop, source.own.names if self.columns is None else self.columns


def check_key_names(path: str, keys: Sequence[str], names: Sequence[str]) -> None:
    """Raise `InputError` if a file has a column with the name of a column from names of its folders."""
    twice = next((key for key in keys if key in names), None)
    if twice is not None:
        raise InputError(f"{path} has a column {twice!r}, and so has the name of its folder: expected one")


def nbytes(table: pa.Table) -> int:
    """Return the bytes of the values of a table."""
    return int(table.nbytes)


def typed_keys(files: Sequence[tuple[str, Keys]]) -> list[tuple[str, tuple[Key, ...]]]:
    """Return files with typed keys from names of folders. A key has the same type in all files.

    Raises
    ------
    InputError
        A file lacks a key that others have.
    """
    names = [name for name, _ in files[0][1]] if files else []
    for path, keys in files:
        if [name for name, _ in keys] != names:
            expected = f"in folders {'/'.join(f'{name}=…' for name in names)}" if names else "in no folder key=value"
            raise InputError(f"{path}: expected {expected}, as {files[0][0]}")
    types = [_type_of([keys[at][1] for _, keys in files]) for at in range(len(names))]
    return [
        (path, tuple(Key(name, kind, text) for (name, text), kind in zip(keys, types, strict=True)))
        for path, keys in files
    ]


def _type_of(texts: Sequence[str | None]) -> str:
    """Return the narrowest of int64, double and string that all values have.

    Values are doubles only if they are finite, and if different texts are different numbers.
    """
    values = pa.array(texts, pa.string()).drop_null().unique()
    with suppress(pa.ArrowInvalid):
        values.cast(pa.int64())
        return "int64"
    with suppress(pa.ArrowInvalid):
        numbers = values.cast(pa.float64()).unique()
        if len(numbers) == len(values) and pc.all(pc.is_finite(numbers)).as_py():
            return "double"
    return "string"
