"""Ratings from sparse matrices, columns in memory, or files, and the numbering of user and item ids from 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ripieno.comm.agreement import agreement
from ripieno.errors import InputError, MissingColumn
from ripieno.files.frames import NO_NUMBERS, arrow_array, as_numbers, frame_as_table, plain_ids, without_index
from ripieno.files.sources import absolute_paths, describe_paths
from ripieno.input import Split, share, splits
from ripieno.input.columns import TableOptions, paths_and_options
from ripieno.input.columns.csv import Csv
from ripieno.input.cutting import TABLES
from ripieno.input.matrix import is_path_like
from ripieno.input.shares import even_range
from ripieno.wire.arrays import check_complete

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Recognized column names in lower case, without "_" and "id"; userId, movie_id and Rating match, too.
NAMES = {
    "user": ("user", "u", "customer", "row"),
    "item": ("item", "i", "movie", "product", "artist", "track", "book", "col"),
    "rating": ("rating", "r", "value", "count", "plays", "score", "weight"),
}
EXPECTED_INPUT = "expected a sparse matrix of SciPy, a table, a tuple (users, items, ratings), or paths of tables"
TYPES_DIFFER = "{}: whole numbers in some files, strings in others: expected the same type in all files"
DROP_HINT = "; pass missing='drop' to leave these rows out"


@dataclass(frozen=True)
class Triples:
    """Ratings as columns of equal length.

    Parameters
    ----------
    users, items : (e,) int64 or large_string
        Ids as the caller passed them.
    values : (e,) float32
    """

    users: pa.Array
    items: pa.Array
    values: NDArray[np.float32]

    def describe(self, at: int) -> str:
        """Describe a rating for messages."""
        return f"user {self.users[at].as_py()!r}, item {self.items[at].as_py()!r}: the rating is {self.values[at]:g}"

    def checked(self, *, implicit: bool, where: str) -> Triples:
        """Check the ratings, and drop zeros if they are implicit, because a zero count is not a rating.

        Raises
        ------
        InputError
            A rating is not finite, or is implicit and negative.
        """
        wrong = np.flatnonzero(~np.isfinite(self.values))
        if len(wrong):
            raise InputError(f"{where}{self.describe(wrong[0])}: expected a finite number of float32")
        if not implicit:
            return self
        wrong = np.flatnonzero(self.values < 0)
        if len(wrong):
            raise InputError(f"{where}{self.describe(wrong[0])}: expected a number >= 0 with implicit=True")
        is_nonzero = self.values != 0
        if is_nonzero.all():
            return self
        mask = pa.array(is_nonzero)
        return Triples(self.users.filter(mask), self.items.filter(mask), self.values[is_nonzero])


@dataclass(frozen=True)
class NumberedRatings:
    """Ratings of users 0 … user_count - 1 in shared memory; each local worker takes its range of users."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    values: NDArray[np.float32]
    user_count: int
    item_count: int

    def read_share(self, comm: Communicator, *, implicit: bool) -> NumberedRatings:
        """Return one rank's ratings."""
        mine = slice(*even_range(len(self.values), comm.rank, comm.world_size))
        counts = self.user_count, self.item_count
        return NumberedRatings(self.users[mine], self.items[mine], self.values[mine], *counts)


@dataclass(frozen=True)
class OwnRatings:
    """Ratings that belong to one rank: as columns, or with the numbers of all ranks' users and items."""

    ratings: Triples | NumberedRatings

    def read_share(
        self, comm: Communicator, *, implicit: bool
    ) -> tuple[NumberedRatings, NDArray[Any] | None, NDArray[Any] | None]:
        """Return this rank's ratings and, unless they are numbered, the ids of all users and items."""
        if isinstance(self.ratings, NumberedRatings):
            return self.ratings, None, None
        return numbered_across_ranks(comm, self.ratings)


@dataclass(frozen=True)
class RatingFiles:
    """Tables in files; each rank reads its splits."""

    paths: tuple[str, ...]
    columns: Sequence[str] | None
    options: TableOptions = field(default_factory=TableOptions)

    @property
    def name(self) -> str:
        """Return the first file, and the number of further files."""
        return describe_paths(self.paths)

    def read(self) -> Triples:
        """Read all ratings."""
        return _concatenated([self._read(split) for split in self._splits(1)])

    def read_share(self, comm: Communicator, *, implicit: bool) -> tuple[NumberedRatings, NDArray[Any], NDArray[Any]]:
        """Return one rank's ratings, and the ids of all users and items."""
        with agreement(comm):
            cut = self._splits(comm.world_size) if comm.rank == 0 else []
        mine = share(comm.broadcast(cut), comm)
        with agreement(comm):
            own = _concatenated(
                [self._read(split).checked(implicit=implicit, where=f"{split.path}: ") for split in mine]
            )
        return numbered_across_ranks(comm, own)

    def cut(self, count: int) -> list[Split]:
        """Return splits of tables."""
        arguments = asdict(self.options) | {"columns": self.columns}
        del arguments["missing"], arguments["id"]
        cut = splits(self.paths, count=count, **arguments)
        not_table = next((split for split in cut if split.format.name not in TABLES), None)
        if not_table is not None:
            raise InputError(
                f"{not_table.path} is read as {not_table.format.name}: expected a table: {', '.join(TABLES)}"
            )
        return cut

    def _splits(self, count: int) -> list[Split]:
        return [self._with_float_ratings(split) for split in self.cut(count)]

    def _with_float_ratings(self, split: Split) -> Split:
        """Return a split that reads ratings as float64.

        The type detected from the first rows may be integer although later rows have fractions.
        """
        if not isinstance(split.format, Csv):
            return split
        types = dict(split.format.types)
        rating = _rating_columns(list(split.format.schema.names), self.columns, split.path)[2]
        if types[rating] != "string":
            types[rating] = "double"
        return replace(split, format=replace(split.format, types=tuple(types.items())))

    def _read(self, split: Split) -> Triples:
        return _from_table(split.read(), self.columns, split.path, drops=self.options.missing == "drop", hint=DROP_HINT)


def opened(ratings: Any, columns: Sequence[str] | None) -> Triples | RatingFiles:
    """Return ratings of any input type as columns; files are not read yet.

    Raises
    ------
    InputError
        The input type is unknown.
    """
    paths, options = paths_and_options(ratings)
    if is_path_like(paths):
        if options.missing == "mean":
            raise InputError("missing='mean': ids have no mean; expected missing='drop'")
        chosen = columns or options.columns
        if chosen is not None and len(chosen) != 3:
            raise InputError(f"columns={','.join(chosen)!r}: expected three names, of users, items and ratings")
        return RatingFiles(tuple(absolute_paths(paths)), chosen, options)
    if hasattr(ratings, "tocoo"):
        entries = ratings.tocoo()
        if len(entries.shape) != 2:
            raise InputError(f"ratings of shape {entries.shape}: expected a row for each user, a column for each item")
        return Triples(pa.array(entries.row.astype(np.int64)), pa.array(entries.col.astype(np.int64)),
                       _values(entries.data, "the matrix"))  # fmt: skip
    if isinstance(ratings, tuple) and len(ratings) == 3:
        for name, column in zip(NAMES, ratings, strict=True):
            check_complete(column, f"ratings: {name}s")
        users, items, values = ratings
        found = Triples(as_ids(users, "users"), as_ids(items, "items"), _values(values, "ratings"))
        if not len(found.users) == len(found.items) == len(found.values):
            lengths = f"{len(found.users)} users, {len(found.items)} items and {len(found.values)} ratings"
            raise InputError(f"ratings: {lengths}: expected equal counts")
        return found
    if _is_frame(ratings):
        return _from_table(*_in_memory(ratings, columns))
    raise InputError(f"ratings of type {type(ratings).__name__}: {EXPECTED_INPUT}")


def pairs_of(pairs: Any, columns: Sequence[str] | None) -> tuple[pa.Array, pa.Array]:
    """Return the users and items of a table, of tables in files, or of an array of shape (n, 2).

    Raises
    ------
    InputError
        It has no such columns, or is not a table.
    """
    paths, options = paths_and_options(pairs)
    if is_path_like(paths):
        chosen = columns or options.columns
        files = RatingFiles(tuple(absolute_paths(paths)), None if chosen is None else chosen[:2], options)
        found = [_pairs(split.read(), files.columns, split.path) for split in files.cut(1)]
        users, items = (_joined([each[at] for each in found], name) for at, name in enumerate(("users", "items")))
        return users, items
    if _is_frame(pairs):
        return _pairs(*_in_memory(pairs, columns))
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1] != 2:
        raise InputError(f"pairs of shape {array.shape}: expected users and items, a table of both, or shape (n, 2)")
    return as_ids(array[:, 0], "users"), as_ids(array[:, 1], "items")


def _pairs(table: pa.Table, columns: Sequence[str] | None, where: str) -> tuple[pa.Array, pa.Array]:
    user, item = _rating_columns(table.column_names, columns, where, ("user", "item"))
    return as_ids(table[user], f"{where}: column {user!r}"), as_ids(table[item], f"{where}: column {item!r}")


def _is_frame(ratings: Any) -> bool:
    return hasattr(ratings, "__arrow_c_stream__") or hasattr(ratings, "iloc")


def _in_memory(frame: Any, columns: Sequence[str] | None) -> tuple[pa.Table, Sequence[str] | None, str]:
    """Return the table of a frame, the names of columns to use, and its name for messages."""
    table, where = frame_as_table(frame, "ratings")
    return table if columns else without_index(table), columns, where


def as_ids(ids: Any, name: str) -> pa.Array:
    """Return ids as an int64 or large_string array. Dates and other types become strings.

    Raises
    ------
    InputError
        The ids are fractions or lists, or one is missing.
    """
    try:
        found: Any = ids
        if not isinstance(ids, pa.Array | pa.ChunkedArray):
            # NumPy strips trailing NUL characters from strings.
            found = pa.array(ids) if isinstance(ids, list | tuple) else arrow_array(np.atleast_1d(ids))
        chunks = found.chunks if isinstance(found, pa.ChunkedArray) else [found]
        if not chunks:
            return pa.array([], pa.int64())
        found = pa.concat_arrays(plain_ids(pa.chunked_array(chunks)).chunks)
        kind = found.type
        if found.null_count:
            raise InputError(f"{name}: {found.null_count} are missing: expected an id for each rating")
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return found.cast(pa.int64())
        found = found.cast(pa.float64()) if pa.types.is_floating(kind) else found
        if pa.types.is_floating(kind) and pc.all(pc.equal(pc.floor(found), found)).as_py():
            # pandas converts integers to floats if some are missing.
            if pc.any(pc.greater_equal(pc.abs(found), 2.0**53)).as_py():
                raise InputError(f"{name}: fractions from 2^53 on are not exact: expected whole numbers or strings")
            return found.cast(pa.int64())
        if pa.types.is_null(kind) or not len(found):
            return pa.array([], pa.int64())
        if not pa.types.is_floating(kind) and not pa.types.is_nested(kind):
            return _checked_texts(found.cast(pa.large_string()), name)
    except (pa.ArrowException, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name}: {error}") from error
    raise InputError(f"{name} of type {kind}: expected whole numbers or strings")


def _checked_texts(ids: pa.Array, name: str) -> pa.Array:
    """Return the strings, or raise InputError for a trailing NUL, which NumPy would strip as padding."""
    padded = pc.ends_with(ids, "\0")
    if pc.any(padded).as_py():
        raise InputError(f"{name}: {ids.filter(padded)[0].as_py()!r} ends in a NUL character: expected ids without it")
    return ids


def numbered(ids: pa.Array) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return the index of each id among the distinct ids, and the distinct ids in ascending order."""
    encoded = ids.dictionary_encode()
    own = _labels(encoded.dictionary)
    order = np.argsort(own)
    places = np.empty(len(own), np.int32)
    places[order] = np.arange(len(own), dtype=np.int32)
    return places[encoded.indices.to_numpy()], own[order]


def label_positions(ids: Any, labels: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Return the positions of ids among labels; -1 if missing."""
    requested, known = as_ids(ids, name), arrow_array(labels)
    if len(labels) and len(requested) and pa.types.is_integer(requested.type) != (labels.dtype.kind == "i"):
        expected = "whole numbers" if labels.dtype.kind == "i" else "strings"
        raise InputError(f"{name}: ids are {expected} here, as in the ratings, not {requested.type}")
    found = pc.index_in(requested, known.cast(requested.type))
    places: NDArray[np.int64] = found.fill_null(-1).to_numpy().astype(np.int64)
    return places


def empty_triples() -> Triples:
    """Return an empty set of ratings."""
    return Triples(pa.array([], pa.int64()), pa.array([], pa.int64()), np.empty(0, np.float32))


def numbered_across_ranks(comm: Communicator, own: Triples) -> tuple[NumberedRatings, NDArray[Any], NDArray[Any]]:
    """Return a rank's ratings with the numbers of all ranks' users and items, and the ids of both."""
    (users, user_ids), (items, item_ids) = _numbers(comm, own.users, "users"), _numbers(comm, own.items, "items")
    return NumberedRatings(users, items, own.values, len(user_ids), len(item_ids)), user_ids, item_ids


def _numbers(comm: Communicator, ids: pa.Array, name: str) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return the number of each id among all ranks' distinct ids, and the distinct ids, ascending."""
    places, own = numbered(ids)
    parts = [part for part in comm.allgather(own) if len(part)]
    if len({part.dtype.kind for part in parts}) > 1:
        raise InputError(TYPES_DIFFER.format(name))
    labels = np.unique(np.concatenate(parts)) if parts else own
    return np.searchsorted(labels, own).astype(np.int32)[places], labels


def _labels(ids: pa.Array) -> NDArray[Any]:
    if pa.types.is_integer(ids.type):
        return np.asarray(ids.to_numpy())
    return np.array(ids.to_pylist(), dtype=np.str_)


def _concatenated(parts: Sequence[Triples]) -> Triples:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return empty_triples()
    users, items = (_joined([getattr(part, name) for part in parts], name) for name in ("users", "items"))
    return Triples(users, items, np.concatenate([part.values for part in parts]))


def _joined(parts: Sequence[pa.Array], name: str) -> pa.Array:
    """Return the ids of all files in one array."""
    if len({part.type for part in parts}) > 1:
        raise InputError(TYPES_DIFFER.format(name))
    return pa.concat_arrays(parts)


def _from_table(
    table: pa.Table, columns: Sequence[str] | None, where: str, *, drops: bool = False, hint: str = ""
) -> Triples:
    user, item, rating = _rating_columns(table.column_names, columns, where)
    if drops:
        table = table.select([user, item, rating]).drop_null()
    for name in (user, item, rating):
        if table[name].null_count:
            raise InputError(f"{where}: column {name!r} has missing values{hint}")
    values = _values(as_numbers(table[rating]).to_numpy(), f"{where}: column {rating!r}")
    users, items = (as_ids(table[name], f"{where}: column {name!r}") for name in (user, item))
    return Triples(users, items, values)


def _rating_columns(
    names: Sequence[str], columns: Sequence[str] | None, where: str, kinds: Sequence[str] = tuple(NAMES)
) -> Sequence[str]:
    """Return the columns of users, items and ratings, or of the given `kinds`."""
    listed = ", ".join(map(repr, names))
    if columns is not None:
        missing = next((name for name in columns[: len(kinds)] if name not in names), None)
        if missing is not None:
            raise MissingColumn("columns", missing, where, names)
        return columns[: len(kinds)]
    stems = [name.strip().lower().replace("_", "").removesuffix("id") for name in names]
    found = [next((names[stems.index(name)] for name in NAMES[kind] if name in stems), None) for kind in kinds]
    chosen = [name for name in found if name is not None]
    if len(chosen) == len(kinds):
        return chosen
    if not chosen and len(names) == len(kinds):
        return names
    raise InputError(
        f"{where} has {listed}: the columns of {', '.join(f'{kind}s' for kind in kinds)} are unknown: expected these "
        "names, or columns=(user, item, rating)"
    )


def _values(values: Any, where: str) -> NDArray[np.float32]:
    try:
        array = np.asarray(values)
        if array.dtype.kind in NO_NUMBERS:
            raise InputError(f"{where}: the type of the values is {array.dtype}, expected numbers")
        if array.dtype.kind not in "iufb" and len(array):
            array = array.astype(np.float64)
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(array, np.float32)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: expected numbers: {error}") from error
