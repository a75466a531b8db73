"""Provide the flight recorder: the last collectives of a rank, attached to errors and written to files.

The native module keeps the records and calls `attach` with every error of a blocking collective; handles call
`attach_latest` with their errors. With RIPIENO_FLIGHT=<folder> in the environment, every call is timed, and more
records are kept. Each rank then writes a file when it closes or fails. `ripieno.flight.trace` combines the files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripieno import log
from ripieno.errors import CommunicatorClosed, InputError
from ripieno.files import disk
from ripieno.files.results import explain, write_text

if TYPE_CHECKING:
    from ripieno._native import Communicator as NativeCommunicator

# Environment variable with the folder for the files of all ranks.
VARIABLE = "RIPIENO_FLIGHT"
SUFFIX = ".flight.json"
# Number of records that an error carries, and number of records shown with it.
ATTACHED_COUNT = 64
SHOWN_COUNT = 3
_RECEIVED = re.compile(r"message (#\d+) to rank (\d+)")


def with_flight_folder(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return communicator options with the folder from the environment; raise `InputError` if it is unusable."""
    folder = options.get("flight_folder") or os.environ.get(VARIABLE)
    if not folder:
        return dict(options)
    try:
        disk.make_folders(Path(folder))
    except OSError as error:
        raise InputError(f"{VARIABLE}={folder}: {explain(error)}") from error
    return {**options, "flight_folder": str(folder)}


def attach(error: BaseException, flight: Mapping[str, Any]) -> None:
    """Attach a rank's records to an error of a collective: all as ``error.flight``, the latest as notes."""
    error.flight = flight["records"][-ATTACHED_COUNT:]  # type: ignore[attr-defined]
    for line in lines(flight["rank"], flight["records"]):
        error.add_note(line)
    if flight["folder"] is not None:
        _write(flight)


def attach_latest(error: BaseException, native: NativeCommunicator | None) -> None:
    """Attach records like `attach` to an error of a handle, unless it has some or the communicator is closed."""
    if native is not None and not hasattr(error, "flight"):
        with suppress(CommunicatorClosed):
            is_written = native.flight(0)["folder"] is not None
            attach(error, native.flight(None if is_written else ATTACHED_COUNT))


def lines(rank: int, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the latest records of a rank as text, in order."""
    return [f"rank {rank}: {text_at(rank, record['text'])}" for record in records[-SHOWN_COUNT:]]


def text_at(rank: int, text: str) -> str:
    """Return the text of a record. A message to this rank is called a receive."""
    return _RECEIVED.sub(lambda found: f"recv of message {found[1]}" if found[2] == str(rank) else found[0], text)


def write_file(native: NativeCommunicator) -> None:
    """Write all records to the folder, if one is set."""
    if native.flight(0)["folder"] is not None:
        _write(native.flight())


def _write(flight: Mapping[str, Any]) -> None:
    path = Path(flight["folder"]) / f"{flight['job']}-rank-{flight['rank']:05}{SUFFIX}"
    try:
        write_text(path, json.dumps({**flight, "clock": _clock()}))
    except (OSError, InputError) as error:
        # A failure to write records must not end the job.
        text = explain(error) if isinstance(error, OSError) else str(error)
        log.warn(f"the records of rank {flight['rank']} are lost: {text}")


def _clock() -> str:
    """Return an identity of the clock, equal for processes with the same monotonic clock."""
    parts = [Path("/proc/sys/kernel/random/boot_id").read_text().strip()]
    with suppress(OSError):  # time namespaces came with Linux 5.6
        parts.append(os.readlink("/proc/self/ns/time"))
    return " ".join(parts)
