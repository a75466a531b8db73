"""Extract the HOG vectors of many pictures by several workers, into one file with an index.

Each worker describes an equal share of the patches, in order. It writes its vectors at their offset in the file, so
processes exchange no vectors.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.csv

from ripieno.errors import InputError
from ripieno.features.hog import HogOptions, hog_vectors
from ripieno.features.index import INDEX_SUFFIX
from ripieno.features.pictures import Picture
from ripieno.files import disk
from ripieno.files.results import new_file
from ripieno.files.tables import ARRAY_FORMATS
from ripieno.input.shares import even_range

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

BLOCK_PATCH_COUNT = 128
TEXT_SUFFIXES = (".txt", ".t12")
TEXT_BLOCK_ROWS = 4096
SAFE_CHARACTERS = "/:\\,+@~()[]'"


@dataclass(frozen=True)
class Extraction:
    """Result of an extraction.

    Parameters
    ----------
    vectors
        The file of vectors.
    index
        The file with picture, pixel row and pixel column of each vector; None for text files, which include the index.
    row_count, column_count
        Shape of the vectors.
    too_small
        Names of the pictures that are too small for a patch.
    """

    vectors: Path
    index: Path | None
    row_count: int
    column_count: int
    too_small: tuple[str, ...]


def extract(
    pictures: Sequence[Picture],
    out: str | os.PathLike[str],
    *,
    options: HogOptions | None = None,
    format: str | None = None,
    workers: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> Extraction:
    """Write the HOG vector of every patch of some pictures.

    Parameters
    ----------
    pictures
        Results of `find_pictures` or `demo_images`.
    out
        File to write. The file appears only after all vectors are written.
    options
        Options for cutting and describing patches.
    format : {"npy", "t12"}, optional
        An array with an index next to it (`<out>.patches.csv`: picture, row, col), or lines of "picture row col f1 …
        f512". By default "t12" if `out` ends in .txt or .t12.
    workers
        Number of processes.
    on_progress
        Called with the number of newly completed patches, and the total number.

    Raises
    ------
    InputError
        No picture has a whole patch, or a picture is damaged.
    """
    out, options = Path(out), options or HogOptions()
    index_path = index_of(out, format)
    counts = [options.patch_count(picture.height, picture.width) for picture in pictures]
    total = sum(counts)
    if not total:
        raise InputError(f"no picture is as large as a patch, {options.patch} x {options.patch} pixels")
    with ExitStack() as stack:
        part = stack.enter_context(new_file(out))
        if index_path is None:
            raw = disk.part_path(out)
            stack.callback(disk.remove, raw)
            disk.create(raw, exclusive=True).close()
            _run(workers, total, on_progress, pictures, options, str(raw), 0)
            vectors = np.memmap(raw, options.dtype, "r", shape=(total, options.column_count))
            _write_text(part, vectors, pictures, options)
        else:
            offset = _write_header(part, (total, options.column_count), options.dtype)
            _run(workers, total, on_progress, pictures, options, str(part), offset)
            with disk.create(stack.enter_context(new_file(index_path))) as file:
                pa.csv.write_csv(_index(pictures, options), file)
    too_small = tuple(picture.name for picture, count in zip(pictures, counts, strict=True) if not count)
    return Extraction(out, index_path, total, options.column_count, too_small)


def index_of(out: Path, format: str | None = None) -> Path | None:
    """Return the index file for the vectors in `out`, or None if `out` is text, which contains the index."""
    return None if _is_text(out, format) else out.with_suffix(INDEX_SUFFIX)


def write_share(comm: Communicator, pictures: Sequence[Picture], options: HogOptions, path: str, offset: int) -> None:
    """Describe this worker's share of the patches and write the vectors to the file."""
    row_bytes = options.column_count * np.dtype(options.dtype).itemsize
    with disk.update(path) as file:
        first, blocks = _share(pictures, options, comm.rank, comm.world_size)
        file.seek(offset + first * row_bytes)
        for picture, corners in blocks:
            gray = picture.gray()
            for begin in range(0, len(corners), BLOCK_PATCH_COUNT):
                block = hog_vectors(gray, corners[begin : begin + BLOCK_PATCH_COUNT], options)
                file.write(block.data)
                comm.emit({"event": "patches", "count": len(block)})


def _share(
    pictures: Sequence[Picture], options: HogOptions, rank: int, world_size: int
) -> tuple[int, Iterator[tuple[Picture, list[tuple[int, int]]]]]:
    """Return the number of a worker's first patch, and its pictures with the corners of its patches."""
    ends = list(accumulate(options.patch_count(picture.height, picture.width) for picture in pictures))
    first, last = even_range(ends[-1], rank, world_size)

    def blocks() -> Iterator[tuple[Picture, list[tuple[int, int]]]]:
        for index in range(bisect_right(ends, first), len(pictures)):
            corners = options.corners(pictures[index].height, pictures[index].width)
            begin = ends[index] - len(corners)
            if begin >= last:
                return
            own = corners[max(first - begin, 0) : last - begin]
            if own:
                yield pictures[index], own

    return first, blocks()


def _run(workers: int, total: int, on_progress: Callable[[int, int], None] | None, *arguments: Any) -> None:
    from ripieno.launch import launch

    def on_event(event: dict[str, Any]) -> None:
        if on_progress is not None:
            on_progress(event["count"], total)

    with launch(workers=workers, threads=1, on_event=on_event) as job:
        job.run(write_share, *arguments)


def _is_text(out: Path, format: str | None) -> bool:
    if format not in (None, "npy", "t12"):
        raise InputError(f"format={format!r}: expected npy or t12")
    if format is None and out.suffix.lower() not in (".npy", *TEXT_SUFFIXES):
        raise InputError(f"{out}: expected a name that ends in .npy, .txt or .t12")
    suffixes = {"npy": (".npy",), "t12": TEXT_SUFFIXES}.get(format or "")
    if suffixes is not None and out.suffix.lower() in {*ARRAY_FORMATS, *TEXT_SUFFIXES}.difference(suffixes):
        raise InputError(f"{out}: format={format!r} has names that end in {' or '.join(suffixes)}")
    return format == "t12" or (format is None and out.suffix.lower() in TEXT_SUFFIXES)


def _write_header(path: Path, shape: tuple[int, int], dtype: str) -> int:
    """Begin an .npy file and return the offset of its rows."""
    with disk.create(path) as file:
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        return file.tell()


def _index(pictures: Sequence[Picture], options: HogOptions) -> pa.Table:
    """Return picture, pixel row and pixel column of each vector."""
    names, corners = [], []
    for picture in pictures:
        picture_corners = options.corners(picture.height, picture.width)
        names += [picture.name] * len(picture_corners)
        corners += picture_corners
    rows, columns = zip(*corners, strict=True)
    return pa.table({"picture": pa.array(names), "row": pa.array(rows), "col": pa.array(columns)})


def _write_text(path: Path, vectors: np.memmap, pictures: Sequence[Picture], options: HogOptions) -> None:
    """Write lines of "picture row col f1 … f512". Spaces in the name of a picture become %20."""
    names = [f"f{number + 1}" for number in range(options.column_count)]
    quoted = [Picture(quote(picture.name, safe=SAFE_CHARACTERS), picture.width, picture.height) for picture in pictures]
    index = _index(quoted, options)
    options_csv = pa.csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    schema = pa.schema([*index.schema, *((name, pa.from_numpy_dtype(vectors.dtype)) for name in names)])
    with disk.create(path) as file, pa.csv.CSVWriter(file, schema, write_options=options_csv) as writer:
        for begin in range(0, len(vectors), TEXT_BLOCK_ROWS):
            block = np.asfortranarray(vectors[begin : begin + TEXT_BLOCK_ROWS])
            index_block = index.slice(begin, len(block))
            writer.write_table(
                pa.table([*index_block.columns, *(pa.array(column) for column in block.T)], schema=schema)
            )
