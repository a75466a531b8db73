"""The flight recorder: what the last collectives of a rank were, on errors and in files.

The native module keeps the records and calls `attach` with every error of a blocking collective, handles call
`attach_latest` with theirs. With RIPIENO_FLIGHT=<folder> in the environment every call is timed, more records are kept,
and each rank leaves a file there when it closes or fails; `ripieno.flight.trace` makes one picture of them.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripieno.errors import CommunicatorClosed, InputError
from ripieno.files.results import explain, new_file

if TYPE_CHECKING:
    from ripieno._native import Communicator as NativeCommunicator

# Names the folder for the files of all ranks.
VARIABLE = "RIPIENO_FLIGHT"
SUFFIX = ".flight.json"
# Records that an error carries, and those that are shown with it.
CARRIED_COUNT = 64
SHOWN_COUNT = 3


def prepared(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a communicator, with the folder that the environment names; `InputError` if it cannot be made."""
    folder = options.get("flight_folder") or os.environ.get(VARIABLE)
    if not folder:
        return dict(options)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{VARIABLE}={folder}: {explain(error)}") from error
    return {**options, "flight_folder": str(folder)}


def attach(error: BaseException, flight: Mapping[str, Any]) -> None:
    """Give an error of a collective what its rank did before: ``error.flight``, and the latest as text below it."""
    error.flight = flight["records"][-CARRIED_COUNT:]  # type: ignore[attr-defined]
    for line in lines(flight["rank"], flight["records"]):
        error.add_note(line)
    if flight["folder"] is not None:
        _write(flight)


def attach_latest(error: BaseException, native: NativeCommunicator | None) -> None:
    """As `attach`, for an error that a handle raises; nothing if it has its own, or the communicator is closed."""
    if native is not None and not hasattr(error, "flight"):
        with suppress(CommunicatorClosed):
            is_written = native.flight(0)["folder"] is not None
            attach(error, native.flight(None if is_written else CARRIED_COUNT))


def lines(rank: int, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The latest records of a rank for people, the very latest last."""
    return [f"rank {rank}: {record['text']}" for record in records[-SHOWN_COUNT:]]


def leave_file(native: NativeCommunicator) -> None:
    """Write all records to the folder, if there is one."""
    if native.flight(0)["folder"] is not None:
        _write(native.flight())


def _write(flight: Mapping[str, Any]) -> None:
    path = Path(flight["folder"]) / f"{flight['job']}-rank-{flight['rank']:05}{SUFFIX}"
    try:
        with new_file(path) as part:
            part.write_text(json.dumps({**flight, "clock": _clock()}))
    except (OSError, InputError) as error:
        # Records end no job.
        text = explain(error) if isinstance(error, OSError) else str(error)
        warnings.warn(f"the records of rank {flight['rank']} are lost: {text}", stacklevel=2)


def _clock() -> str:
    """Equal for processes whose monotonic clocks are one."""
    parts = [Path("/proc/sys/kernel/random/boot_id").read_text().strip()]
    with suppress(OSError):  # time namespaces came with Linux 5.6
        parts.append(os.readlink("/proc/self/ns/time"))
    return " ".join(parts)
