"""Read whole files of sparse rows in one process: libsvm text, MatrixMarket, and results of scipy.sparse.save_npz."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scipy.sparse import csr_matrix, vstack

from ripieno.errors import InputError
from ripieno.files import matrix_market
from ripieno.files.npy import BROKEN_ARCHIVE, read_sparse
from ripieno.files.sources import File, blamed_on, expand, opened, suffix
from ripieno.input.matrix.libsvm import LibsvmFiles

LIBSVM = (".libsvm", ".svmlight", ".svm")


@dataclass(frozen=True)
class SparseFiles:
    """Files of sparse rows, all in one format.

    Parameters
    ----------
    names
        Their paths or URLs.
    is_text
        Whether they are libsvm text.
    """

    names: tuple[str, ...]
    is_text: bool

    @classmethod
    def find(cls, inputs: Sequence[str]) -> SparseFiles | None:
        """Return the files that the inputs name, or None if none of them is sparse.

        Raises
        ------
        InputError
            Some files are sparse and others are not, or the formats differ.
        """
        paths = [path for item in inputs for path in expand(item, None)]
        kinds = {path: _kind(path) for path in paths}
        if not any(kinds.values()):
            return None
        for path in paths:
            if kinds[path] != kinds[paths[0]]:
                raise InputError(
                    f"{path} and {paths[0]} are of different kinds: expected all dense, or all sparse of one kind"
                )
        return cls(tuple(paths), kinds[paths[0]] == "libsvm")

    def read(self, columns: range | None = None) -> tuple[csr_matrix, int | None]:
        """Read the rows. For libsvm text, also return the number of the first column: 0, or 1 if no index is 0.

        `columns` is the range of valid indices in text, if it is known already.

        Raises
        ------
        InputError
            The files differ in columns, have columns other than these, or cannot be read.
        """
        return _libsvm(self.names, columns) if self.is_text else (_matrices(self.names), None)


def _kind(path: str) -> str | None:
    if path.endswith(LIBSVM):
        return "libsvm"
    if File(path, 0).inner_suffix == matrix_market.SUFFIX:
        return "matrix" if matrix_market.read_info(path).layout == "coordinate" else None
    if suffix(path) != ".npz":
        return None
    with opened(path) as file, blamed_on(path):
        try:
            archive = zipfile.ZipFile(file)
        except BROKEN_ARCHIVE:
            # The reader of other archives explains what is wrong.
            return None
        with archive:
            return "matrix" if {"format.npy", "shape.npy"} <= set(archive.namelist()) else None


def _matrices(paths: Sequence[str]) -> csr_matrix:
    parts = []
    for path in paths:
        parts.append(csr_matrix(_entries(path)))
        if parts[-1].shape[1] != parts[0].shape[1]:
            raise InputError(f"{path} has {parts[-1].shape[1]} columns, {paths[0]} has {parts[0].shape[1]}")
    return csr_matrix(vstack(parts, format="csr"))


def _entries(path: str) -> Any:
    if suffix(path) != ".npz":
        return matrix_market.read_matrix(path)
    with opened(path) as file, blamed_on(path):
        try:
            with zipfile.ZipFile(file) as archive:
                return read_sparse(archive)
        except (*BROKEN_ARCHIVE, OverflowError, MemoryError) as error:
            raise InputError(f"{path} is no sparse matrix of SciPy: {error}") from error


def _libsvm(paths: Sequence[str], columns: range | None) -> tuple[csr_matrix, int]:
    matrix = LibsvmFiles.open(paths).read_share(0, 1).matrix
    indices = matrix.indices
    if columns is None:
        if not matrix.nnz:
            raise InputError(f"{paths[0]} has no entry: expected lines of 'label index:value …'")
        columns = range(int(indices.min() > 0), int(indices.max()) + 1)
    elif matrix.nnz and not (indices.min() in columns and indices.max() in columns):
        wrong = int(indices.max()) if indices.max() not in columns else int(indices.min())
        raise InputError(
            f"{paths[0]}{' and others have' if len(paths) > 1 else ' has'} index {wrong}: expected {columns.start} to "
            f"{columns.stop - 1}, the columns that the estimator was fitted on"
        )
    parts = (matrix.data, indices - columns.start, matrix.indptr)
    return csr_matrix(parts, shape=(matrix.shape[0], len(columns))), columns.start
