"""Provide FASTA, plain or compressed: records of a line ">NAME" and lines of letters. A file is read as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ripieno.errors import InputError
from ripieno.files.sources import File, held, input_errors, opened
from ripieno.input import lines


def sequences(file: File) -> Iterator[str]:
    """Yield the sequence of each record, in capital letters.

    Raises
    ------
    InputError
        The file is damaged or not FASTA, or a sequence is empty.
    """
    parts: list[bytes] = []
    header, begin = None, 0
    with opened(file.path, file.compression) as stream, input_errors(file.path):
        every_line = iter(lambda: lines.line(file.path, stream), b"")
        for number, line in enumerate(held(file.path, every_line), 1):
            text = line.strip()
            if text.startswith(b">"):
                if header is not None:
                    yield _sequence(parts, file.path, begin)
                header, begin, parts = text, number, []
            elif text and header is None:
                raise InputError(f"{file.path}, line {number}: expected FASTA, whose records begin with a line >NAME")
            elif text:
                parts.append(text)
        if header is not None:
            yield _sequence(parts, file.path, begin)


def _sequence(parts: Sequence[bytes], path: str, line: int) -> str:
    letters = b"".join(parts).upper()
    if not letters:
        raise InputError(f"{path}, line {line}: an empty record")
    if not letters.isascii():
        raise InputError(f"{path}, line {line}: a record with other bytes than letters")
    return letters.decode("ascii")
