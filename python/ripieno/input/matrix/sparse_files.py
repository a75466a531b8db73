"""Read whole files of sparse rows in one process: libsvm text, MatrixMarket, and results of scipy.sparse.save_npz."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.sparse import csr_matrix, vstack

from ripieno.errors import InputError
from ripieno.files.sources import File, expand, suffix
from ripieno.input.columns import SparseColumns
from ripieno.input.matrix.libsvm import LibsvmFiles

LIBSVM = (".libsvm", ".svmlight", ".svm")


@dataclass(frozen=True)
class SparseFiles:
    """Files of sparse rows, all in one format: matrices, or paths or URLs of libsvm text."""

    names: tuple[str, ...]
    matrices: tuple[SparseColumns, ...]

    @classmethod
    def find(cls, inputs: Sequence[str]) -> SparseFiles | None:
        """Return the files that the inputs name, or None if none of them is sparse.

        Raises
        ------
        InputError
            Some files are sparse and others are not, or the formats differ.
        """
        paths = [path for item in inputs for path in expand(item, None)]
        found = [_opened(path) for path in paths]
        if not any(found):
            return None
        kinds = [type(each) for each in found]
        if len(set(kinds)) > 1:
            path = paths[next(at for at, kind in enumerate(kinds) if kind is not kinds[0])]
            raise InputError(
                f"{path} and {paths[0]} are of different kinds: expected all dense, or all sparse of one kind"
            )
        return cls(tuple(paths), tuple(each for each in found if isinstance(each, SparseColumns)))

    @property
    def is_text(self) -> bool:
        """Whether the files are libsvm text."""
        return not self.matrices

    def read(self, columns: range | None = None) -> tuple[csr_matrix, int | None]:
        """Read the rows. For libsvm text, also return the index of the first column: 0, or 1 if no index is 0.

        `columns` is the range of valid indices in text, if it is known.

        Raises
        ------
        InputError
            The files differ in columns, have columns other than these, or cannot be read.
        """
        return _libsvm(self.names, columns) if self.is_text else (_joined(self.matrices), None)


def _opened(path: str) -> SparseColumns | str | None:
    """Return a sparse matrix, "libsvm", or None for a file of another kind."""
    if path.endswith(LIBSVM):
        return "libsvm"
    is_sparse = File(path, 0).inner_suffix in SparseColumns.suffixes or suffix(path) == ".npz"
    return SparseColumns.find(path) if is_sparse else None


def _joined(files: Sequence[SparseColumns]) -> csr_matrix:
    parts = []
    for file in files:
        parts.append(csr_matrix(file.matrix()))
        if parts[-1].shape[1] != parts[0].shape[1]:
            raise InputError(f"{file.path} has {parts[-1].shape[1]} columns, {files[0].path} has {parts[0].shape[1]}")
    return csr_matrix(vstack(parts, format="csr"))


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
