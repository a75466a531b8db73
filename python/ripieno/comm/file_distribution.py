"""Provide the distribution of files from one rank to the hosts of all ranks, atomic and resumable, block by block."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ripieno._checks import check_count
from ripieno._native import BLOCKS_MAX, BlockFile, ValueBuffer
from ripieno._native import Variable as NativeVariable
from ripieno.comm.block_sizes import tuned_block_bytes
from ripieno.comm.broadcast_variables import SHARED_FILE, BroadcastVariables, check_strategy
from ripieno.comm.shared_files import (
    Place,
    checked_places,
    reading_slot,
    reason_of,
    remove,
    write_copies,
)
from ripieno.disciplines import discipline_of
from ripieno.errors import BroadcastError, InputError, RipienoError
from ripieno.files import disk
from ripieno.files.disk import PART_SUFFIX
from ripieno.files.sources import opened

#: Interval between reports of a rank's progress to the root.
REPORT_S = 0.5
#: Polling interval of all ranks.
POLL_S = 0.02
#: A rank without progress reports for this long counts as lost, if the heartbeat timeout is shorter.
REPORT_TIMEOUT_MIN_S = 4 * REPORT_S
#: The root waits this many heartbeat timeouts for a report, because TCP delivers nothing for up to twice the length of
#: an outage. Broadcasts over links find dead and isolated ranks earlier.
REPORT_HEARTBEATS = 3
#: Piece size for copies of a file to shared places.
COPY_BYTES = 1 << 22

FETCHING, WRITING = "fetching", "writing"
FETCHED, COPIED, FOUND, FAILED, LOST = "fetched", "copied", "found", "failed", "lost"
#: Final states.
FINAL_STATES = (FETCHED, COPIED, FOUND, FAILED, LOST)
_STARTED, _ALL_FINAL = b"begun", b"all over"


class HostFile(NamedTuple):
    """A file at one of its destination ranks.

    Attributes
    ----------
    rank : int
        The rank that writes the file.
    host : str
        The host of that rank.
    path : str
        The path of the file there.
    state : {"fetching", "writing", "fetched", "copied", "found", "failed", "lost"}
        "copied" at the root, which copies its own file; "found" if the file existed before, "lost" if the rank died or
        stopped responding.
    size_bytes : int
        The size of the file in bytes.
    found_bytes : int
        Bytes in whole blocks that existed there before.
    fetched_bytes : int
        Bytes that were received over links or read from places, corrupt blocks included. The root reads its own file.
    seconds : float
        Seconds from the start until the file was complete, or until now.
    error : str
        The reason why the file failed or was lost.
    """

    rank: int
    host: str
    path: str
    state: str
    size_bytes: int
    found_bytes: int
    fetched_bytes: int
    seconds: float
    error: str

    @property
    def is_whole(self) -> bool:
        """Whether the file is complete at its destination."""
        return self.state in (FETCHED, COPIED, FOUND)


class _FileEntry(NamedTuple):
    """A file as described by the root."""

    name: str
    size_bytes: int
    block_bytes: int
    digests: bytes
    mode: int

    @property
    def is_verified(self) -> bool:
        """Whether the blocks have digests."""
        return bool(self.digests) or not self.size_bytes


class _Options(NamedTuple):
    """The options of the root."""

    entries: list[_FileEntry]
    out: str
    strategy: str
    overwrite: bool
    keep_partial: bool


class FileDistribution(BroadcastVariables):
    """Calls of a communicator that distribute files to hosts."""

    def distribute(
        self,
        files: Sequence[str | os.PathLike[str]] = (),
        out: str | os.PathLike[str] = "",
        root: int = 0,
        *,
        strategy: str = "auto",
        block_bytes: int | None = None,
        places: Place | Sequence[Place] = (),
        verify: bool = True,
        overwrite: bool = False,
        keep_partial: bool = False,
        on_progress: Callable[[list[HostFile]], None] | None = None,
    ) -> list[HostFile]:
        """Distribute files of the root to the hosts of all ranks. The transfer continues when other ranks die.

        Every rank calls it; the arguments of the root apply. The root's host gets the files, too, unless `out` names
        the source files themselves. A rank writes a file under a temporary name in the same folder and renames it once
        it is complete and synced to disk. Blocks are verified against the root's digests. Existing data is not fetched
        again: a whole file, or the blocks that an interrupted run has left. Ranks that have a block serve it to others.
        The files must not change during the call.

        Parameters
        ----------
        files : sequence of paths
            Paths of files that the root reads.
        out : path
            The path of the file on each host. For several files, or with "/" at the end, it is their folder, which is
            created. "{rank}" and "{host}" in it are replaced by the rank and host that write the file. With "{rank}"
            every rank gets the files, otherwise one rank of each host.
        root : int
            The rank that has the files.
        strategy : {"auto", "chain", "splitstream", "tree", "flat", "csb", "csb-llcf", "bittorrent", "shared-file"}
            The routes of the blocks. "auto" is "chain", as all ranks fetch at once, or "csb" if a rank has blocks
            already. With "shared-file" the root copies each file to `places`, and all others read the missing blocks
            there.
        block_bytes : int, optional
            Block size in bytes. By default the size that `tune_broadcast` has measured on these hosts. Without a
            measurement a file has 256 blocks of 16 KiB to 4 MiB, or more blocks of 4 MiB.
        places : path or URL, or sequence of these
            With "shared-file" only: folders that all ranks see under the same names, or fsspec URLs. The root copies
            each file to the first three, and removes the copies at the end.
        verify : bool
            Whether the root reads each file once before the first byte is sent, to compute the digests of its blocks.
            Without digests only the checksums of TCP or TLS detect corrupt bytes, and existing files or blocks are not
            recognized.
        overwrite : bool
            Replace existing files with different contents. Without it they stay, and the transfer counts as failed.
        keep_partial : bool
            After a failure keep the received blocks, so that another run can resume.
        on_progress : callable, optional
            Called at the root every half second with the list that `distribute` would return at that time.

        Returns
        -------
        list of HostFile
            At the root: one entry per file and destination rank, ordered by file. Elsewhere: the entries of this rank.

        Raises
        ------
        InputError
            On every rank: the root cannot read a file, or arguments are wrong.
        RankFailed
            A rank died before the first byte was sent.
        BroadcastError
            On every rank: a file cannot be written to one of the places, which the error names. All copies are removed.

        Notes
        -----
        The death of a rank makes no other rank fetch a byte twice. If the root dies, the others finish if they hold all
        blocks together. Otherwise they report it in ``error``.
        """
        root = self._rank("root", root)
        if self.replicas > 1:
            raise InputError("distribute: expected the world, or a communicator that was split from it")
        sources: list[BlockFile] = []
        place_names: list[str] = []
        options: _Options | InputError | None = None
        if self.rank == root:
            try:
                _check(files, out, strategy, block_bytes)
                place_names = _place_names(strategy, places)
                sources = [_read(path, block_bytes or self._tuned_bytes(strategy, path), verify) for path in files]
                entries = [_entry(path, source) for path, source in zip(files, sources, strict=True)]
                options = _Options(entries, os.fspath(out), strategy, overwrite, keep_partial)
            except InputError as error:
                options = error
        options = self._broadcast_value(root, "distribute", options)
        if isinstance(options, InputError):
            raise options
        assert options is not None, "the root has given them"
        members = self._members(root, "{rank}" not in options.out)
        outputs = [_OutputFile(entry, options, self.rank, self.hosts[self.rank]) for entry in options.entries]
        outputs = outputs if self.rank in members else []
        try:
            for output, given in zip(outputs, files if self.rank == root else [None] * len(outputs), strict=True):
                output.open(None if given is None else os.fspath(given))
            claims = self._allgather_values("distribute", [output.row for output in outputs])
            if options.strategy == SHARED_FILE:
                return self._through_places(root, claims, outputs, files, place_names, on_progress)
            report_timeout_s = self._report_timeout_s()
            variables = self._begin(root, options, members, claims, sources, outputs)
            if self.rank == root:
                return _RootSide(variables, claims, outputs, report_timeout_s).run(on_progress)
            return _fetched(
                [_Fetch(variables[at], output, root, report_timeout_s) for at, output in enumerate(outputs)]
            )
        finally:
            for output in outputs:
                output.close(keep=options.keep_partial)

    def _tuned_bytes(self, strategy: str, path: str | os.PathLike[str]) -> int | None:
        """Return the measured block size for a file of the root, if there is one."""
        size_bytes = os.path.getsize(path) if os.path.isfile(path) else 0
        return tuned_block_bytes(self._block_sizes.current(), discipline_of(strategy, streamed=True), size_bytes)

    def _through_places(
        self,
        root: int,
        claims: list[list[HostFile]],
        outputs: list[_OutputFile],
        files: Sequence[str | os.PathLike[str]],
        places: Sequence[str],
        on_progress: Callable[[list[HostFile]], None] | None,
    ) -> list[HostFile]:
        """Copy the files of the root to places, let the other ranks read them there, and remove the copies."""
        names: list[list[str]] | BroadcastError | None = None
        copies: list[str] = []
        try:
            if self.rank == root:
                names = []
                try:
                    for at, file in enumerate(files):
                        others = [rows[at] for rank, rows in enumerate(claims) if rows and rank != root]
                        # Skip the copy if no rank lacks the file.
                        is_missing = any(row.state == FETCHING for row in others)
                        names.append(_copied(file, places) if is_missing else [])
                        copies += names[-1]
                except BroadcastError as error:
                    names = error
            names = self._broadcast_value(root, "distribute", names)
            if isinstance(names, BroadcastError):
                raise names
            assert names is not None, "the root has announced the places"
            serving = self._server()
            if self.rank == root:
                channels = [serving.offer_messages() for _ in names]
                return _RootSide(channels, claims, outputs, self._report_timeout_s()).run(on_progress)
            channels = [serving.native.expect(root, None) for _ in names]
            report_timeout_s = self._report_timeout_s()
            with ThreadPoolExecutor(1, "ripieno-read") as pool:
                # Let each host begin with a different copy, to spread the load.
                first = self.nodes[self.rank]
                readings = [
                    _CopyReader(channels[at], output, root, report_timeout_s, names[at], first, pool)
                    for at, output in enumerate(outputs)
                ]
                try:
                    return _fetched(readings)
                finally:
                    for reading in readings:
                        reading.stop()
        finally:
            remove(copies)

    def _report_timeout_s(self) -> float:
        """Return the time after which a rank without reports counts as lost."""
        return max(self._heartbeat_timeout_s, REPORT_TIMEOUT_MIN_S)

    def _begin(
        self,
        root: int,
        options: _Options,
        members: list[int],
        claims: list[list[HostFile]],
        sources: list[BlockFile],
        outputs: list[_OutputFile],
    ) -> list[NativeVariable]:
        """Create one broadcast variable per file, in the same order on all ranks."""
        has_local_data = any(row.found_bytes for rank in members if rank != root for row in claims[rank])
        strategy = discipline_of(options.strategy, streamed=not has_local_data)
        broadcasts = self._server().native
        variables = []
        for at in range(len(options.entries)):
            order = [rank for rank in members if rank != root and claims[rank][at].state != FAILED]
            if self.rank == root:
                variables.append(broadcasts.offer_file(sources[at], strategy, order))
            elif self.rank in order:
                variables.append(broadcasts.fetch(root, outputs[at].opened()))
            else:
                variables.append(broadcasts.expect(root, None))
        return variables


def _check(files: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str], strategy: str, block: object) -> None:
    if not files or isinstance(files, str | os.PathLike):
        raise InputError(f"files={files!r}: expected a list of paths")
    if not os.fspath(out):
        raise InputError("out='': expected the name that the file gets on each host")
    check_strategy(strategy)
    if block is not None:
        check_count("block_bytes", block, "expected a whole number of bytes >= 1")
    names = [os.path.basename(path) for path in files]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise InputError(
            f"{duplicate} is the name of several files, which are written to one folder: expected different names"
        )


def _place_names(strategy: str, places: Place | Sequence[Place]) -> list[str]:
    """Return the places of a shared file. Raise if another strategy has places."""
    if strategy == SHARED_FILE:
        return checked_places(places)
    if places:
        raise InputError(f"strategy={strategy!r} with places={places!r}: only 'shared-file' uses places")
    return []


def _read(path: str | os.PathLike[str], block_bytes: int | None, verify: bool) -> BlockFile:
    """Open a file of the root. With `verify`, read it once, for its digests."""
    if not os.path.isfile(path):
        raise InputError(f"{os.fspath(path)} is not a file")
    count = os.path.getsize(path) // (block_bytes or 1 << 22)
    if count > BLOCKS_MAX:
        raise InputError(
            f"{os.fspath(path)}: {count:,} blocks: expected at most {BLOCKS_MAX:,}, by a larger block_bytes"
        )
    try:
        return BlockFile.read(os.fspath(path), block_bytes, verify)
    except OSError as error:
        raise InputError(f"{os.fspath(path)} cannot be read: {error.strerror or error}") from None


def _copied(path: str | os.PathLike[str], places: Sequence[str]) -> list[str]:
    """Copy a file of the root to `places` and return the names of the copies."""
    with open(path, "rb") as source:

        def write_to(file: BinaryIO) -> None:
            source.seek(0)
            shutil.copyfileobj(source, file, COPY_BYTES)

        return write_copies(write_to, os.path.getsize(path), places)


def _entry(path: str | os.PathLike[str], source: BlockFile) -> _FileEntry:
    return _FileEntry(os.path.basename(path), *source.blocks(), os.stat(path).st_mode & 0o777)


class _OutputFile:
    """A file to be written on this host."""

    def __init__(self, entry: _FileEntry, options: _Options, rank: int, host: str) -> None:
        place = options.out.replace("{rank}", str(rank)).replace("{host}", host)
        is_folder = len(options.entries) > 1 or place.endswith("/")
        self.path = os.path.abspath(os.path.join(place, entry.name) if is_folder else place)
        folder, name = os.path.split(self.path)
        self._part = os.path.join(folder, f".{name}{PART_SUFFIX}")
        self._entry = entry
        self._overwrite = options.overwrite
        self._file: BlockFile | None = None
        # The file that the root copies; other ranks fetch.
        self._source: str | None = None
        self._began = time.monotonic()
        self._writing: Future[None] | None = None
        # Whether this run has written the file under the temporary name.
        self._is_open = False
        self.row = HostFile(rank, host, self.path, FETCHING, entry.size_bytes, 0, 0, 0.0, "")

    def open(self, source: str | None) -> None:
        """Look for existing data and allocate the rest. At the root, `source` is the path of the original."""
        blocks = self._entry.size_bytes, self._entry.block_bytes, self._entry.digests
        try:
            if source is not None and os.path.exists(self.path) and os.path.samefile(source, self.path):
                return self._mark_found(None)
            if os.path.lexists(self.path) and not os.path.isfile(self.path):
                raise InputError("it exists and is not a file: choose another name, or a folder's with / at the end")
            found = BlockFile.find(self.path, *blocks)
            if found is not None:
                return self._mark_found(found)
            if os.path.lexists(self.path) and not self._overwrite:
                reason = "has other contents" if self._entry.is_verified else "is not compared without verification"
                raise InputError(f"it exists and {reason}: choose another name, or overwrite it")
            disk.make_folders(Path(self.path).parent)
            self._is_open = not os.path.lexists(self._part)
            self._file = BlockFile.fill(self._part, *blocks)
            self._is_open = True
            self._source = source
            self.row = self.row._replace(found_bytes=0 if source is not None else self._file.found_bytes)
        except (OSError, InputError) as error:
            self.fail(error)

    def opened(self) -> BlockFile:
        """Return the file that the broadcast fills or serves."""
        assert self._file is not None, "a failed rank takes no part"
        return self._file

    def write(self, pool: ThreadPoolExecutor, shown: ValueBuffer | None) -> None:
        """Start to write the received or copied data to disk, and to rename the file."""
        self._note(WRITING)
        self._writing = pool.submit(self._write, shown)

    def advance(self, fetched_bytes: int) -> None:
        """Update the row of this file with the current progress."""
        if self.is_over:
            return
        self.row = self.row._replace(fetched_bytes=fetched_bytes)
        error = None
        if self._writing is not None and self._writing.done():
            error = self._writing.exception()
            self._note(FETCHED if self._source is None else COPIED)
        if isinstance(error, OSError):
            self.fail(error)
        elif error is not None:
            raise error
        self._note(self.row.state)

    @property
    def is_over(self) -> bool:
        """Whether the row has a final state."""
        return self.row.state in FINAL_STATES

    def fail(self, error: Exception) -> None:
        """Mark the file as failed, with the error as the reason."""
        self._note(FAILED)
        self.row = self.row._replace(error=self._explained(error))

    def _note(self, state: str) -> None:
        self.row = self.row._replace(state=state, seconds=time.monotonic() - self._began)

    def _write(self, shown: ValueBuffer | None) -> None:
        if shown is not None:
            shown.sync(self._part)
        elif self._source is not None:
            disk.copy(self._source, self._part)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(self._part, self._entry.mode & ~mask)
        disk.publish(self._part, self.path)
        self._is_open = False
        disk.sync(os.path.dirname(self.path))

    def close(self, *, keep: bool) -> None:
        """Remove an unfinished file, unless `keep` retains it for resumption."""
        self._file = None
        if self._is_open and not keep:
            with suppress(OSError):
                disk.remove(self._part)
        self._is_open = False

    def _mark_found(self, found: BlockFile | None) -> None:
        self._file = found
        self._note(FOUND)
        self.row = self.row._replace(found_bytes=self._entry.size_bytes)

    def _explained(self, error: Exception) -> str:
        if not isinstance(error, OSError):
            return str(error)
        number = error.errno
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            wanted = f"{self._entry.size_bytes:,} bytes are needed"
            if number == errno.EFBIG:
                return f"{wanted}, more than the limit of this process for files (ulimit -f)"
            return f"the disk is full: {wanted}, {_free_bytes(self.path):,} are free"
        if number == errno.EBUSY:
            return "another process is writing it; where hosts share a folder, name {host} in it"
        return str(error.strerror or error)


def _free_bytes(path: str) -> int:
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    system = os.statvfs(folder)
    return system.f_bavail * system.f_frsize


class _Fetch:
    """A file that this rank receives over links, and its messages to the root."""

    def __init__(self, variable: NativeVariable, output: _OutputFile, root: int, report_timeout_s: float) -> None:
        self._variable = variable
        self.output = output
        self._root = root
        self._report_timeout_s = report_timeout_s
        self._reported = ("", 0.0)
        self._report_count = 0
        self._last_sent = (0, time.monotonic())
        # Whether this rank can serve blocks. After a failed transfer no rank requests blocks from it.
        self._can_serve = True

    def advance(self, pool: ThreadPoolExecutor) -> None:
        """Advance the file and report changes to the root."""
        output, now = self.output, time.monotonic()
        received_bytes, sent_bytes = self._progress_bytes()
        output.advance(received_bytes)
        if output.row.state == FETCHING and self._has_ended():
            try:
                output.write(pool, self._shown())
            except RipienoError as error:
                output.fail(error)
                self._can_serve = False
        if sent_bytes > self._last_sent[0] or not output.is_over:
            self._last_sent = (sent_bytes, now)
        if output.row.state != self._reported[0] or now >= self._reported[1] + REPORT_S:
            self._reported = (output.row.state, now)
            # The count changes with each report, so the root sees that this rank is alive even without progress.
            self._report_count += 1
            self._variable.send_message(self._root, json.dumps([self._report_count, *output.row]).encode())

    def _progress_bytes(self) -> tuple[int, int]:
        """Return the bytes that this rank has received, and the bytes that it has sent."""
        return self._variable.progress()[:2]

    def _has_ended(self) -> bool:
        """Return whether no further data will arrive."""
        return self._variable.has_ended()

    def _shown(self) -> ValueBuffer | None:
        """Return the received data, or None if it is in its file. Raise an error if it will not arrive."""
        return self._variable.wait()

    def is_over(self) -> bool:
        """Return whether, as far as this rank knows, no other rank still needs its blocks."""
        if not self.output.is_over:
            return False
        if not self._can_serve or self._variable.latest_messages().get(self._root) == _ALL_FINAL:
            return True
        is_free = self._is_free() or self.output.row.state == FAILED
        is_root_lost = self._root in self._variable.lost()
        return (is_root_lost and is_free) or time.monotonic() > self._last_sent[1] + self._report_timeout_s

    def _is_free(self) -> bool:
        """Return whether all live ranks have all blocks."""
        return self._variable.progress()[3]


class _CopyReader(_Fetch):
    """A file that this rank reads from its copies in places. The native variable carries only messages about it."""

    def __init__(
        self,
        channels: NativeVariable,
        output: _OutputFile,
        root: int,
        report_timeout_s: float,
        names: list[str],
        first: int,
        pool: ThreadPoolExecutor,
    ) -> None:
        super().__init__(channels, output, root, report_timeout_s)
        self._names = [names[(first + at) % len(names)] for at in range(len(names))]
        self._read_bytes = 0
        self._is_stopped = False
        self._reading = pool.submit(self._read) if output.row.state == FETCHING else None

    def stop(self) -> None:
        """Stop reading."""
        self._is_stopped = True

    def _progress_bytes(self) -> tuple[int, int]:
        return self._read_bytes, 0

    def _has_ended(self) -> bool:
        return self._reading is not None and self._reading.done()

    def _shown(self) -> ValueBuffer | None:
        assert self._reading is not None, "a rank that lacks no block reads nothing"
        return self._reading.result()

    def _is_free(self) -> bool:
        return True

    def _read(self) -> None:
        """Read the missing blocks from one copy after the other, until the file is complete."""
        file, reasons = self.output.opened(), []
        size_bytes, block_bytes, _ = file.blocks()
        for name in self._names:
            try:
                with reading_slot(name), opened(name) as source:
                    for start in file.missing():
                        if self._is_stopped:
                            raise BroadcastError(f"{name}: the call ended before all bytes were read")
                        source.seek(start)
                        block = source.read(min(block_bytes, size_bytes - start))
                        self._read_bytes += len(block)
                        if not file.put(start, block):
                            reasons.append(f"{name}: the bytes from {start:,} on differ from the root's")
                            break
            except (OSError, InputError) as error:
                reasons.append(reason_of(error))
            if not file.missing():
                return
        raise BroadcastError(f"no copy of the file can be read: {'; '.join(reasons)}")


def _fetched(fetches: Sequence[_Fetch]) -> list[HostFile]:
    """Wait until all files have ended and no rank needs them; return the rows of this fetching rank."""
    # Skip files that could not be opened: the root has already received their errors.
    open_ = [fetch for fetch in fetches if fetch.output.row.state != FAILED]
    with ThreadPoolExecutor(1, "ripieno-write") as pool:
        while open_:
            for fetch in open_:
                fetch.advance(pool)
            open_ = [fetch for fetch in open_ if not fetch.is_over()]
            time.sleep(POLL_S)
    return [fetch.output.row for fetch in fetches]


class _RootSide:
    """The root's side: it serves the files and waits until all ranks have ended."""

    def __init__(
        self,
        variables: list[NativeVariable],
        claims: list[list[HostFile]],
        outputs: list[_OutputFile],
        report_timeout_s: float,
    ) -> None:
        self._report_timeout_s = report_timeout_s
        self._variables = variables
        self._outputs = outputs
        self._rows = {(row.rank, at): row for rows in claims for at, row in enumerate(rows)}
        self._own = outputs[0].row.rank
        self._began = time.monotonic()
        self._received: dict[tuple[int, int], tuple[bytes, float]] = {}
        for rank, at in self._rows:
            if rank != self._own:
                # A link to the rank shows whether it died before its first message.
                variables[at].send_message(rank, _STARTED)

    def run(self, on_progress: Callable[[list[HostFile]], None] | None) -> list[HostFile]:
        """Wait for all ranks and return one row per file and rank."""
        next_s = 0.0
        with ThreadPoolExecutor(1, "ripieno-write") as pool:
            for output in self._outputs:
                if output.row.state == FETCHING:
                    output.write(pool, None)
            while True:
                for at in range(len(self._variables)):
                    self._receive(at)
                is_over = all(row.state in FINAL_STATES for row in self._rows.values())
                if on_progress is not None and (is_over or time.monotonic() >= next_s):
                    next_s = time.monotonic() + REPORT_S
                    on_progress(self._all())
                if is_over:
                    self._notify_final()
                    return self._all()
                time.sleep(POLL_S)

    def _notify_final(self) -> None:
        """Notify the waiting ranks that all states are final."""
        for (rank, at), row in self._rows.items():
            if rank != self._own and row.state != LOST:
                self._variables[at].send_message(rank, _ALL_FINAL)

    def _all(self) -> list[HostFile]:
        return [self._rows[key] for key in sorted(self._rows, key=lambda key: (key[1], key[0]))]

    def _receive(self, at: int) -> None:
        """Process the messages of ranks about a file, and mark the lost ranks."""
        variable, now = self._variables[at], time.monotonic()
        self._outputs[at].advance(0)
        self._rows[self._own, at] = self._outputs[at].row
        messages, lost = variable.latest_messages(), set(variable.lost())
        report = variable.delivery()
        lost.update(() if report is None else report["lost"])
        for (rank, index), row in self._rows.items():
            if index != at or rank == self._own:
                continue
            message, received = self._received.get((rank, at), (b"", self._began))
            if messages.get(rank, message) != message:
                message, received = messages[rank], now
                self._received[rank, at] = (message, received)
                row = self._rows[rank, at] = HostFile(*json.loads(message)[1:])
            if row.state in FINAL_STATES:
                continue
            if rank in lost:
                self._rows[rank, at] = row._replace(state=LOST, error="its process has ended, or cannot be reached")
            elif now > received + REPORT_HEARTBEATS * self._report_timeout_s:
                self._rows[rank, at] = row._replace(
                    state=LOST, error=f"it has sent nothing for {REPORT_HEARTBEATS * self._report_timeout_s:g} s"
                )
