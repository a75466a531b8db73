"""Files of sparse rows, read whole by who starts the workers: what scipy.sparse.save_npz writes, and libsvm text."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_matrix, load_npz, vstack

from ripieno.errors import InputError
from ripieno.files.sources import blamed_on, expand, opened, suffix
from ripieno.input.matrix.libsvm import LibsvmFiles

LIBSVM = (".libsvm", ".svmlight", ".svm")


def read_sparse(inputs: Sequence[str]) -> tuple[csr_matrix, list[str]] | None:
    """The rows of sparse files and the files' names, or None if the first input is none of them.

    Raises
    ------
    InputError
        Some files are sparse and others are not, are of both kinds, differ in columns, or cannot be read.
    """
    paths = [path for item in inputs for path in expand(item, None)]
    kinds = {path: _kind(path) for path in paths}
    if not any(kinds.values()):
        return None
    first = kinds[paths[0]]
    for path in paths:
        if kinds[path] != first:
            raise InputError(
                f"{path} and {paths[0]} are of different kinds: expected all dense, or all sparse of one kind"
            )
    matrix = _libsvm(paths) if first == "libsvm" else _matrices(paths)
    return matrix, paths


def _kind(path: str) -> str | None:
    if path.endswith(LIBSVM):
        return "libsvm"
    if suffix(path) != ".npz":
        return None
    with opened(path) as file, blamed_on(path):
        if not zipfile.is_zipfile(file):
            return None
        with zipfile.ZipFile(file) as archive:
            return "matrix" if {"format.npy", "shape.npy"} <= set(archive.namelist()) else None


def _matrices(paths: Sequence[str]) -> csr_matrix:
    parts = []
    for path in paths:
        with opened(path) as file, blamed_on(path):
            try:
                parts.append(csr_matrix(load_npz(file)))
            except (ValueError, KeyError) as error:
                raise InputError(f"{path} is no sparse matrix of SciPy: {error}") from error
        if parts[-1].shape[1] != parts[0].shape[1]:
            raise InputError(f"{path} has {parts[-1].shape[1]} columns, {paths[0]} has {parts[0].shape[1]}")
    return csr_matrix(vstack(parts, format="csr"))


def _libsvm(paths: Sequence[str]) -> csr_matrix:
    matrix = LibsvmFiles.open(paths).read_share(0, 1).matrix
    if not matrix.nnz:
        raise InputError(f"{paths[0]} has no entry: expected lines of 'label index:value …'")
    base = int(matrix.indices.min() > 0)
    parts = (matrix.data, matrix.indices - base, matrix.indptr)
    return csr_matrix(parts, shape=(matrix.shape[0], int(np.max(matrix.indices)) + 1 - base))
