"""Ratings for the benchmark of alternating least squares: from a tar of lines, from a table, or synthetic."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

HELD_OUT = 0.07
SHAPE, QUICK_SHAPE = (70_000, 10_000, 130), (200, 60, 20)


@dataclass(frozen=True)
class AlsData:
    """Ratings to fit, and held-out ratings of the same users and items, as (users, items, ratings)."""

    name: str
    train: csr_matrix
    test: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]

    @property
    def text(self) -> str:
        """Return a description for tables."""
        return f"{self.name}, {self.train.shape[0]} × {self.train.shape[1]}, {self.train.nnz} ratings"


def data_of(path: Path | None, *, quick: bool) -> AlsData:
    """Return ratings from a tar with folders for train and test, from a table, or, without a path, synthetic ones."""
    if path is None:
        users, items, values = _synthetic(*(QUICK_SHAPE if quick else SHAPE))
        return _split("made up", users, items, values)
    if ".tar" not in path.name:
        table = pa.parquet.read_table(path) if path.suffix == ".parquet" else pa.csv.read_csv(path)
        return _split(path.stem, *(column.to_numpy() for column in table.columns[:3]))
    texts: dict[bool, list[bytes]] = {True: [], False: []}
    with tarfile.open(path) as archive:
        for member in archive:
            file: IO[bytes] | None = archive.extractfile(member)
            if file is not None:
                texts["test" in member.name].append(file.read().rstrip(b"\n"))
    parts = [_parsed(texts[is_test]) for is_test in (False, True)]
    users, items, values = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    is_test = np.arange(len(values)) >= len(parts[0][2])
    return _numbered(path.name.partition(".")[0], users, items, values, is_test)


def _parsed(texts: list[bytes]) -> list[NDArray[np.float32]]:
    """Return the columns of lines "user item rating"."""
    lines = b"\n".join(texts)
    table = pa.csv.read_csv(
        io.BytesIO(lines),
        read_options=pa.csv.ReadOptions(column_names=["user", "item", "rating"]),
        parse_options=pa.csv.ParseOptions(delimiter="\t" if b"\t" in lines[:80] else " "),
    )
    return [column.to_numpy() for column in table.columns]


def _synthetic(
    user_count: int, item_count: int, mean: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return ratings of 0.5 to 5 from eight latent factors, with skewed numbers of ratings per user and per item."""
    random = np.random.default_rng(0)
    users = np.repeat(np.arange(user_count), random.geometric(1 / mean, user_count))
    items = (item_count * random.random(len(users)) ** 2.5).astype(np.int64)
    pairs = np.unique(users * item_count + items)
    users, items = pairs // item_count, pairs % item_count
    taste, kind = random.normal(size=(user_count, 8)), random.normal(size=(item_count, 8))
    liked = np.einsum("ij,ij->i", taste[users], kind[items]) / 3 + random.normal(scale=0.7, size=len(users))
    return users, items, np.clip(np.round(2 * (3.5 + liked)) / 2, 0.5, 5).astype(np.float32)


def _split(name: str, users: NDArray[np.int64], items: NDArray[np.int64], values: NDArray[np.float32]) -> AlsData:
    is_test = np.random.default_rng(1).random(len(values)) < HELD_OUT
    return _numbered(name, users, items, values, is_test)


def _numbered(
    name: str,
    users: NDArray[np.int64],
    items: NDArray[np.int64],
    values: NDArray[np.float32],
    is_test: NDArray[np.bool_],
) -> AlsData:
    known_users, known_items = np.unique(users[~is_test]), np.unique(items[~is_test])
    is_known = np.isin(users, known_users) & np.isin(items, known_items)
    rows, columns = np.searchsorted(known_users, users), np.searchsorted(known_items, items)
    shape = (len(known_users), len(known_items))
    values = values.astype(np.float32)
    train = csr_matrix((values[~is_test], (rows[~is_test], columns[~is_test])), shape)
    is_test = is_test & is_known
    return AlsData(name, train, (rows[is_test], columns[is_test], values[is_test]))
