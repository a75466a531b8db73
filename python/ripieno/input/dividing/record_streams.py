"""Provide the records of files of one format as one stream, to be written to new files of the same format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ripieno.errors import InputError
from ripieno.files.sources import File, input_errors, opened, unpacked_bytes
from ripieno.input import lines
from ripieno.input.columns.arrays import ArraySplits, Binary, Npy
from ripieno.input.columns.csv import Csv
from ripieno.input.columns.parquet import Parquet
from ripieno.input.columns.source import FormatOptions
from ripieno.input.dividing.sinks import BinarySink, LineSink, NpySink, ParquetSink, Sink
from ripieno.input.formats.text import Text
from ripieno.input.records import RecordType
from ripieno.input.split import Format, Split

Piece = tuple[int, Any]


class TextLines:
    """Lines of text."""

    def __init__(self, files: Sequence[File], formats: Sequence[Text]) -> None:
        self._files = files
        endings = {file.inner_suffix for file in files}
        # Later readers detect the same format from the suffix.
        self.ending = endings.pop() if len(endings) == 1 and endings <= {*Text.suffixes} - {""} else ".txt"
        self.length = sum(map(unpacked_bytes, files))

    def pieces(self, size: int) -> Iterator[Piece]:
        """Yield all records in order, in pieces."""
        for file in self._files:
            with opened(file.path, file.compression) as stream, input_errors(file.path):
                while text := lines.whole_lines(file.path, stream, size):
                    yield len(text), text

    def sink(self, file: IO[bytes]) -> LineSink:
        """Return a writer of records to a new file."""
        return LineSink(file)

    def format(self, file: File) -> Text:
        """Return the format of such a file."""
        return Text()


class Records:
    """CSV records. Every new file gets the header of the first file."""

    ending = ".csv"

    def __init__(self, files: Sequence[File], formats: Sequence[Csv]) -> None:
        self._files, self._formats = files, formats
        first = formats[0]
        names = [name for name, _ in first.types]
        for file, other in zip(files, formats, strict=True):
            if other.delimiter != first.delimiter or [name for name, _ in other.types] != names:
                raise InputError(f"{file.path} has other columns than {files[0].path}, or another delimiter")
        with opened(files[0].path, files[0].compression) as stream, input_errors(files[0].path):
            self._head = stream.read(first.body)
        self._stops = [unpacked_bytes(file) for file in files]
        self.length = sum(self._stops) - sum(format.body for format in formats)

    def pieces(self, size: int) -> Iterator[Piece]:
        """Yield all records in order, in pieces."""
        for file, format, stop in zip(self._files, self._formats, self._stops, strict=True):
            with opened(file.path, file.compression) as stream, input_errors(file.path):
                for _, text in lines.records(file.path, stream, format.body, stop, size, format.delimiter):
                    yield len(text), text

    def sink(self, file: IO[bytes]) -> LineSink:
        """Return a writer of records to a new file."""
        return LineSink(file, self._head)

    def format(self, file: File) -> Csv:
        """Return the format of such a file."""
        return replace(self._formats[0], body=len(self._head))


class Arrays:
    """Rows of arrays that differ only in their number of rows."""

    ending = ".npy"

    def __init__(self, files: Sequence[File], formats: Sequence[ArraySplits]) -> None:
        self._first = formats[0]
        for file, other in zip(files, formats, strict=True):
            if (other.dtype, other.shape[1:]) != (self._first.dtype, self._first.shape[1:]):
                raise InputError(
                    f"{file.path} has rows of shape {other.shape[1:]} and type {other.dtype}, but {files[0].path} of "
                    f"{self._first.shape[1:]} and {self._first.dtype}"
                )
        self._wholes = [_whole(file, format, format.shape[0]) for file, format in zip(files, formats, strict=True)]
        self.length = sum(format.shape[0] for format in formats)

    def pieces(self, size: int) -> Iterator[Piece]:
        """Yield all records in order, in pieces."""
        for whole in self._wholes:
            for rows in whole.blocks(max(1, size * self._first.row_bytes)):
                yield len(rows), rows

    def sink(self, file: IO[bytes]) -> Sink:
        """Return a writer of records to a new file."""
        return NpySink(file, self._first.dtype, self._first.shape[1:])

    def format(self, file: File) -> ArraySplits:
        """Return the format of such a file."""
        return Npy.open(file, FormatOptions())


class RawArrays(Arrays):
    """Rows of arrays, written as raw records."""

    ending = ".bin"

    def sink(self, file: IO[bytes]) -> BinarySink:
        """Return a writer of records to a new file."""
        return BinarySink(file)

    def format(self, file: File) -> Binary:
        """Return the format of such a file."""
        record = RecordType(self._first.dtype, self._first.shape[1:])
        return Binary.open(file, FormatOptions(record=record))


class Tables:
    """Rows of tables with one schema."""

    ending = ".parquet"

    def __init__(self, files: Sequence[File], formats: Sequence[Parquet]) -> None:
        self._paths = [file.path for file in files]
        self._format = formats[0]
        self.length = 0
        for at, path in enumerate(self._paths):
            with opened(path) as stream, input_errors(path), pq.ParquetFile(stream) as table:
                schema = table.schema_arrow
                if at == 0:
                    self._schema: pa.Schema = schema
                self.length += table.metadata.num_rows
            if schema != self._schema:
                raise InputError(f"{path} has other columns than {self._paths[0]}, or other types of columns")

    def pieces(self, size: int) -> Iterator[Piece]:
        """Yield all records in order, in pieces."""
        for path in self._paths:
            with opened(path) as stream, input_errors(path), pq.ParquetFile(stream) as table:
                for batch in table.iter_batches(size):
                    yield batch.num_rows, pa.Table.from_batches([batch])

    def sink(self, file: IO[bytes]) -> ParquetSink:
        """Return a writer of records to a new file."""
        return ParquetSink(file, self._schema)

    def format(self, file: File) -> Parquet:
        """Return the format of such a file."""
        return self._format


#: Records of several files with one format. Their `length` is in the unit of pieces, bytes or rows.
RecordStream = TextLines | Records | Arrays | Tables
RECORD_STREAMS: dict[str, Any] = {
    "text": TextLines,
    "csv": Records,
    "npy": Arrays,
    "parquet": Tables,
    "binary": RawArrays,
}


def _whole(file: File, format: Format, stop: int) -> Split:
    return Split(file.path, format, 0, stop, file.size_bytes, (), file.compression)
