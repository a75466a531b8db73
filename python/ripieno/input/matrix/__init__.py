"""Read input as one list of rows from files and arrays. Each worker reads its own share.

`open_source` converts the user's argument (an array, a path, a glob, a list of paths) to an object with
`read_share(rank, world_size)`. Opening reads headers only. The worker that computes on rows reads them.
"""

from ripieno.input.matrix.dataset import (
    BinaryFiles,
    Dataset,
    InMemorySparse,
    LocalRows,
    RowShare,
    RowsInMemory,
    has_column_names,
    is_path_like,
    open_source,
)

__all__ = [
    "BinaryFiles",
    "Dataset",
    "InMemorySparse",
    "LocalRows",
    "RowShare",
    "RowsInMemory",
    "has_column_names",
    "is_path_like",
    "open_source",
]
