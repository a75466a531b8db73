"""Provide sparse matrices in files that are read as a whole: MatrixMarket, and results of scipy.sparse.save_npz."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from ripieno.errors import InputError
from ripieno.files.matrix_market import read_info, read_matrix
from ripieno.files.npy import BROKEN_ARCHIVE, check_sparse_format, member_names, read_member, read_sparse
from ripieno.files.sources import input_errors, opened, suffix


@dataclass(frozen=True)
class SparseFile:
    """A sparse matrix. `has_values` is false if the header states that all entries are 1."""

    path: str
    shape: tuple[int, ...]
    has_values: bool = True

    @classmethod
    def market(cls, path: str) -> Self | None:
        """Read the header of a MatrixMarket file, or return None for a dense matrix."""
        info = read_info(path)
        return cls(path, info.shape, info.field != "pattern") if info.layout == "coordinate" else None

    @classmethod
    def npz(cls, path: str) -> Self | None:
        """Read the shape from an archive, or return None if it contains other arrays."""
        with opened_archive(path) as archive:
            if not {"format", "shape"} <= set(member_names(archive)):
                return None
            check_sparse_format(archive)
            return cls(path, tuple(read_member(archive, "shape").tolist()))

    def read(self) -> Any:
        """Return the matrix, in a format of SciPy.

        Raises
        ------
        InputError
            The file is damaged.
        """
        if suffix(self.path) != ".npz":
            return read_matrix(self.path)
        with opened_archive(self.path, "is no sparse matrix of SciPy") as archive:
            return read_sparse(archive)


@contextmanager
def opened_archive(path: str, fault: str = "is not a readable .npz file") -> Iterator[zipfile.ZipFile]:
    """Open an .npz archive. Errors in its contents name the file."""
    with opened(path) as file, input_errors(path):
        try:
            with zipfile.ZipFile(file) as archive:
                yield archive
        except InputError:
            raise
        except (*BROKEN_ARCHIVE, OverflowError, MemoryError, TypeError) as error:
            raise InputError(f"{path} {fault}: {error}") from error
