"""Reading input: files and arrays as one list of rows, of which each worker takes its own share.

`open_source` turns what the user passed (an array, a path, a glob, a list of paths) into something with
`read_share(rank, world_size)`. Opening reads headers only; rows are read by the worker that computes on them.
"""

from ripieno.input.matrix.dataset import (
    BinaryFiles,
    Dataset,
    InMemorySparse,
    LocalRows,
    RowShare,
    RowsInMemory,
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
    "is_path_like",
    "open_source",
]
