"""Write the files of partitions: records arrive in pieces, in order."""

from __future__ import annotations

from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

#: Parquet rows are buffered until they form a row group of this many bytes.
GROUP_BYTES = 64 << 20


class UnframedSink:
    """A writer of a format without a trailer to an open file, which stays open."""

    def close(self) -> None:
        """Do nothing."""


class LineSink(UnframedSink):
    """Writes lines, or CSV records after a header.

    A line feed is added after an incomplete last line if another line follows.
    """

    def __init__(self, file: IO[bytes], head: bytes = b"") -> None:
        self._file = file
        self._file.write(head)
        self._ends_with_newline = True

    def write(self, records: bytes) -> None:
        """Append records."""
        if not self._ends_with_newline:
            self._file.write(b"\n")
        self._file.write(records)
        self._ends_with_newline = records.endswith(b"\n")


class BinarySink(UnframedSink):
    """Writes records unchanged."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, records: NDArray[Any]) -> None:
        """Append records."""
        self._file.write(records.tobytes())


class NpySink:
    """Writes rows of an array of unknown length. Closing rewrites the header, which has space for any length."""

    def __init__(self, file: IO[bytes], dtype: str, row_shape: tuple[int, ...]) -> None:
        self._file = file
        self._header = np.lib.format.header_data_from_array_1_0(np.empty((0, *row_shape), dtype))
        self._row_count = 0
        self._body = self._write_header()

    def write(self, records: NDArray[Any]) -> None:
        """Append records."""
        self._file.write(records.tobytes())
        self._row_count += len(records)

    def close(self) -> None:
        """Write the number of rows."""
        self._file.seek(0)
        body = self._write_header()
        assert body == self._body, "a NumPy header has space for any number of rows"

    def _write_header(self) -> int:
        shape = (self._row_count, *self._header["shape"][1:])
        np.lib.format.write_array_header_1_0(self._file, self._header | {"shape": shape})
        return self._file.tell()


class ParquetSink:
    """Writes rows of tables with one schema."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(file, schema)
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    def write(self, records: pa.Table) -> None:
        """Append records."""
        self._waiting.append(records)
        self._waiting_bytes += records.nbytes
        if self._waiting_bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write the last row group and the footer."""
        with self._writer:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
        self._waiting, self._waiting_bytes = [], 0


Sink = LineSink | BinarySink | NpySink | ParquetSink
