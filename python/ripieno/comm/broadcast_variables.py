"""Provide broadcast variables: one rank's value for all ranks, fetched on demand, once per host, even if ranks fail."""

from __future__ import annotations

import os
import time
import weakref
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ripieno import log
from ripieno._checks import check_count
from ripieno.comm.block_sizes import StoredBlockSizes, tuned_block_bytes
from ripieno.comm.gathers import Gathers
from ripieno.comm.rank import CallBase
from ripieno.comm.serving import HAS_READ, RELEASED, Serving
from ripieno.comm.shared_files import REPLICAS_MAX, Place, SharedFile, checked_places, write
from ripieno.comm.value_memory import BroadcastMemory, broadcast_memory, process_memory
from ripieno.disciplines import AUTO, DISCIPLINES, STREAMED, discipline_of
from ripieno.errors import BroadcastError, InputError, RankFailed, SerializationError
from ripieno.wire import packing
from ripieno.wire.objects import Unsendable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ripieno._native import Variable as NativeVariable

T = TypeVar("T")

#: Strategies that use links between ranks.
LINK_STRATEGIES = (AUTO, *DISCIPLINES)
#: Strategy that uses files in places that all ranks see.
SHARED_FILE = "shared-file"
STRATEGIES = (*LINK_STRATEGIES, SHARED_FILE)
#: Strategies with a configurable number of concurrent uploads of a source.
WITH_DEGREE = ("csb", "csb-llcf", "bittorrent")

#: Prefix of the native module's errors about a root that died or is cut off.
_ROOT_IS_LOST = "the root of the broadcast, "

# Open variables, for monitoring.
_open_variables: weakref.WeakSet[BroadcastVariable[Any]] = weakref.WeakSet()


def transfers_in_progress() -> list[tuple[int, str, int, int, int]]:
    """Return root, strategy, received, sent and total bytes of each variable that is in transfer in this process."""
    open_variables = [(each, each._native) for each in list(_open_variables)]
    return [
        (each.root, each.strategy, received_bytes, sent_bytes, value_bytes)
        for each, native in open_variables
        if native is not None
        for received_bytes, sent_bytes, value_bytes, is_released in [native.progress()]
        if not is_released and (received_bytes or sent_bytes)
    ]


def check_strategy(strategy: object, strategies: Sequence[str] = STRATEGIES) -> None:
    """Raise unless `strategy` is one of `strategies`."""
    if strategy not in strategies:
        raise InputError(f"strategy={strategy!r}: expected one of {', '.join(strategies)}")


class BroadcastOptions(NamedTuple):
    """How the root sends a value; see `Communicator.broadcast_variable`. The options of the root apply on all ranks."""

    strategy: str
    block_bytes: int | None = None
    degree: int | None = None
    verify: bool = True
    places: tuple[str, ...] = ()

    @classmethod
    def checked(
        cls,
        strategy: str,
        block_bytes: int | None,
        degree: int | None,
        verify: bool,
        places: Place | Sequence[Place] | None,
    ) -> BroadcastOptions:
        """Return the options, or raise `InputError`. Only the root has `places`; other ranks pass None."""
        check_strategy(strategy)
        if block_bytes is not None:
            check_count("block_bytes", block_bytes, "expected a whole number of bytes >= 1")
        if degree is not None:
            check_count("degree", degree)
            if discipline_of(strategy, streamed=False) not in WITH_DEGREE:
                raise InputError(f"degree={degree} with strategy={strategy!r}: only {', '.join(WITH_DEGREE)} use it")
        names: list[str] = []
        if places is not None and (strategy == SHARED_FILE or not _is_empty(places)):
            names = checked_places(places)
        return cls(strategy, block_bytes, degree, bool(verify), tuple(names))


def _is_empty(places: Place | Sequence[Place]) -> bool:
    return not isinstance(places, str | os.PathLike) and len(places) == 0


class Corruption(NamedTuple):
    """A block that arrived corrupt and was fetched again.

    Attributes
    ----------
    block : int
        Index of the block, counted from 0.
    source : int
        The rank that sent the corrupt block. Its own copy is correct.
    receiver : int
        The rank that detected the corruption.
    """

    block: int
    source: int
    receiver: int


class Fetched(NamedTuple):
    """A block, or part of a block, that another rank sent.

    Attributes
    ----------
    sender : int
        The sending rank.
    block : int
        Index of the block, counted from 0.
    size_bytes : int
        Received bytes of the block.
    start_s, end_s : float
        Arrival of the first and last bytes, in seconds since the variable was created on this rank.
    """

    sender: int
    block: int
    size_bytes: int
    start_s: float
    end_s: float


class Recorded(NamedTuple):
    """The recorded transfers to a rank.

    Attributes
    ----------
    fetches : list of Fetched
        Transfers in the order of blocks, 65,536 at most.
    left_out_bytes : int
        Bytes of blocks beyond this limit.
    """

    fetches: list[Fetched]
    left_out_bytes: int


class Delivery(NamedTuple):
    """Outcome of a broadcast variable, known at the root once no rank fetches it any more.

    Attributes
    ----------
    acknowledged : list of int
        The ranks that have fetched the whole value, one per host.
    lost : list of int
        The ranks that died or stopped responding before that.
    corruptions : list of Corruption
        The blocks that arrived corrupt.
    """

    acknowledged: list[int]
    lost: list[int]
    corruptions: list[Corruption]


class BroadcastVariable(Generic[T]):
    """A value of one rank on all ranks of a communicator. `Communicator.broadcast_variable` creates it.

    Attributes
    ----------
    value : object
        The root's value. The first access waits for the value; later accesses return the same object. Its arrays, also
        arrays in lists and dicts, are read-only and lie in memory that the ranks of a host share.
    serialization_s : float
        At the root: seconds that this rank has spent on serializing and copying the value. Elsewhere: seconds spent on
        deserializing it.
    """

    def __init__(
        self, native: NativeVariable, strategy: str, root: int, comm: CallBase, serialization_s: float = 0.0
    ) -> None:
        self._native: NativeVariable | None = native
        # The root's number and host in the launched world, as the launcher knows them.
        self._root_in_world = comm.first_ranks[root], comm.hosts[root]
        _open_variables.add(self)
        self._values: list[T] = []
        # Copies in files, which outlast the root.
        self._copies: _Copies | None = None
        self.strategy = strategy
        self.root = root
        self.serialization_s = serialization_s

    @property
    def value(self) -> T:
        native = self._require_open()
        if not self._values:
            blob = self._fetched(native)
            begin_s = time.perf_counter()
            self._values.append(packing.read_blob(blob))
            self.serialization_s += time.perf_counter() - begin_s
        else:
            native.note_use()
        return self._values[0]

    def _fetched(self, native: NativeVariable) -> NDArray[np.uint8]:
        """Wait for the bytes of the value and return them."""
        native.start_fetch()
        try:
            # NumPy's stubs do not accept it as a buffer before Python 3.12.
            buffer: Any = native.wait()
        except BroadcastError as error:
            if self._copies is not None:
                log.note("ripieno.comm", f"a broadcast value is read from its copies in files: {error}")
                return self._copies.read()
            # Other ranks may report that the root was lost before this rank notices the loss.
            if self.root in native.lost() or _ROOT_IS_LOST in str(error):
                # The error is a consequence of the lost root, not a failure of this rank's program.
                raise error from RankFailed(*self._root_in_world, "its connection for broadcast values was lost")
            raise
        process_memory().log_spills()
        return np.frombuffer(buffer, np.uint8)

    def delivery(self) -> Delivery | None:
        """At the root: return which ranks have the value. Elsewhere, and while a rank fetches it: return None."""
        report = self._require_open().delivery()
        if report is None:
            return None
        return Delivery(report["acknowledged"], report["lost"], [Corruption(*each) for each in report["corruptions"]])

    def recorded(self) -> Recorded:
        """Return the source and times of each received block; nothing without ``record=True``."""
        fetches, left_out_bytes = self._require_open().record()
        return Recorded([Fetched(*each) for each in fetches], left_out_bytes)

    def release(self) -> None:
        """Release the value on this rank, as deleting the variable does.

        Its arrays that are in use stay valid. The root keeps the value until all ranks have released it. Repeated calls
        have no effect.
        """
        self._native = None
        self._values = []
        copies, self._copies = self._copies, None
        if copies is not None:
            copies.release()

    def _require_open(self) -> NativeVariable:
        if self._native is None:
            raise InputError("this broadcast variable was released")
        return self._native

    def __repr__(self) -> str:
        state = ", released" if self._native is None else ""
        return f"<BroadcastVariable of rank {self.root} by {self.strategy}{state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class _Copies:
    """The copies of a value in files, as seen by one rank. Deleting the object releases them."""

    def __init__(self, native: NativeVariable, root: int, rank: Gathers, serving: Serving, file: SharedFile) -> None:
        self._native: NativeVariable | None = native
        self._root = root
        self._serving = serving
        self._file = file
        self._is_root = rank.rank == root
        # Let each host begin with a different copy, to spread the load.
        self._first = rank.nodes[rank.rank]
        if self._is_root:
            serving.keep(native, file)

    def read(self) -> NDArray[np.uint8]:
        """Return the bytes of the value."""
        return self._file.read(self._first)

    def release(self) -> None:
        """Report that this rank no longer needs the files. The root removes them once all ranks have released them."""
        native, self._native = self._native, None
        if native is not None and self._is_root:
            self._serving.release(native)
            self._serving.sweep()
        elif native is not None:
            native.send_message(self._root, RELEASED)

    def __del__(self) -> None:
        self.release()


class SharedFileVariable(BroadcastVariable[T]):
    """A value that is stored in files. The native variable carries only messages about it."""

    def __init__(self, native: NativeVariable, root: int, rank: Gathers, copies: _Copies) -> None:
        super().__init__(native, SHARED_FILE, root, rank)
        self._copies = copies
        self._is_root = rank.rank == root
        self._others = set(range(rank.world_size)) - {root}

    def _fetched(self, native: NativeVariable) -> NDArray[np.uint8]:
        assert self._copies is not None, "an open variable has copies"
        blob = self._copies.read()
        if not self._is_root:
            native.send_message(self.root, HAS_READ)
        return blob

    def delivery(self) -> Delivery | None:
        native, lost = self._require_open(), set(self._require_open().lost())
        acknowledged = set(native.latest_messages())
        if not self._is_root or not acknowledged | lost >= self._others:
            return None
        return Delivery(sorted(acknowledged), sorted(lost - acknowledged), [])


class BroadcastVariables(Gathers):
    """Calls of a communicator that create broadcast variables."""

    @overload
    def broadcast_variable(
        self,
        value: None = None,
        root: int = 0,
        *,
        strategy: str = "auto",
        block_bytes: int | None = None,
        degree: int | None = None,
        verify: bool = True,
        per_host: bool = True,
        places: Place | Sequence[Place] = (),
        record: bool = False,
    ) -> BroadcastVariable[Any]: ...

    # Ranks other than the root omit the value, which is None then.
    @overload
    def broadcast_variable(
        self,
        value: T | None,
        root: int = 0,
        *,
        strategy: str = "auto",
        block_bytes: int | None = None,
        degree: int | None = None,
        verify: bool = True,
        per_host: bool = True,
        places: Place | Sequence[Place] = (),
        record: bool = False,
    ) -> BroadcastVariable[T]: ...

    def broadcast_variable(
        self,
        value: Any = None,
        root: int = 0,
        *,
        strategy: str = "auto",
        block_bytes: int | None = None,
        degree: int | None = None,
        verify: bool = True,
        per_host: bool = True,
        places: Place | Sequence[Place] = (),
        record: bool = False,
    ) -> BroadcastVariable[Any]:
        """Make the root's `value` available to all ranks, which fetch it on first use, even if other ranks die.

        Every rank calls it. It returns at once; a separate thread receives and forwards bytes. A rank that loses its
        source resumes at the same byte from another source. Every block is verified against the root's digest. If the
        root dies, the other ranks finish on their own if they hold all blocks together, or if the value has copies in
        `places`.

        Parameters
        ----------
        value : object
            Used at the root only; other ranks may omit it.
        root : int
            The rank that provides the value.
        strategy : {"auto", "chain", "splitstream", "tree", "flat", "csb", "csb-llcf", "bittorrent", "shared-file"}
            The routes of the blocks. With the trees ("chain", "splitstream", "tree", "flat") all hosts fetch at once.
            With the other strategies each host fetches when it first uses ``value``. "auto" is "csb". "csb" prefers the
            source with the highest observed speed, and "csb-llcf" the source with the fewest receivers.
        block_bytes : int, optional
            Block size in bytes; the maximum is 2**20 blocks. By default the size that `tune_broadcast` has measured on
            these hosts; without a measurement there are 256 blocks of 16 KiB to 4 MiB.
        degree : int, optional
            Maximum number of concurrent receivers of a source: 3 by default for "csb" and "csb-llcf", 8
            for "bittorrent". A rank that lost its source may exceed it. Other strategies have fixed trees.
        verify : bool
            Whether receivers compare each block with the root's digest. Without it only the checksums of TCP or TLS
            detect corrupt bytes; use it on trusted networks and disks.
        per_host : bool
            Whether the ranks of a host share one fetched copy. Otherwise every rank fetches for itself.
        places : path or URL, or sequence of these
            Used at the root: folders that all ranks see under the same names, or fsspec URLs. With "shared-file" the
            root writes the value to the first three. With other strategies it writes three copies, from which ranks
            read the value as the last resort: if the root is lost together with blocks.
        record : bool
            Whether to record the source and times of each block for `BroadcastVariable.recorded`.

        Returns
        -------
        BroadcastVariable
            Its attribute ``value`` is the value. The access raises `BroadcastError` if the root is lost together with
            parts of the value, and `CommunicatorClosed` if the communicator was closed.

        Notes
        -----
        The call itself is collective and raises the errors of collectives. If a rank dies, later calls of the
        communicator fail, but the transfer continues. Closing the communicator waits until every rank has closed it or
        released the values of this root, at most a heartbeat timeout after the last byte.

        With "shared-file" the call returns when the root has written the value. It raises `BroadcastError` on all ranks
        if the value cannot be written. From a folder, each rank maps a file, eight ranks at a time, and verifies the
        bytes against the root's digest; the ranks of a host share its page cache. From a URL, each rank reads the bytes
        into its own memory. After all ranks have released the value, the next call or close of the root removes the
        files.

        Source: Chowdhury et al., "Performance and scalability of broadcast in Spark", section 5.

        Examples
        --------
        >>> import numpy as np
        >>> import ripieno as rp
        >>> def program(comm):
        ...     with comm.broadcast_variable(np.arange(100) ** 2 if comm.rank == 0 else None) as squares:
        ...         return int(squares.value[comm.rank + 3])
        >>> with rp.launch(workers=2) as job:
        ...     job.run(program)
        [9, 16]
        """
        root = self._rank("root", root)
        own_places = places if self.rank == root else None
        options = BroadcastOptions.checked(strategy, block_bytes, degree, verify, own_places)
        if self.replicas > 1:
            raise InputError("broadcast_variable: expected the world, or a communicator that was split from it")
        # Arrays inside the pickle would not be read-only. An empty array needs no memory.
        begin_s = time.perf_counter()
        try:
            packed = packing.pack(value, inline_bytes=0) if self.rank == root else None
        except SerializationError as error:
            self._broadcast_value(root, "broadcast_variable", Unsendable(root, error))
            raise
        packed_s = time.perf_counter() - begin_s
        options, per_host = self._broadcast_value(root, "broadcast_variable", (options, per_host))
        variable = self._begin_variable(self._server(), packed, root, options, per_host, record)
        variable.serialization_s += packed_s
        return variable

    def broadcast_memory(
        self, limit_bytes: int | None = None, spill_directory: str | os.PathLike[str] | None = None
    ) -> BroadcastMemory:
        """Return the memory use and limit of broadcast values in this process, and optionally set them. Not collective.

        Beyond the limit, the least recently used values move to unnamed files in `spill_directory`. Arrays that are in
        use stay valid at the same addresses. The first spill logs a warning. A value counts on the rank that fetched it
        for its host, and at its root; the other ranks of a host map it.

        Parameters
        ----------
        limit_bytes : int, optional
            The new limit in bytes. The environment variable RIPIENO_BROADCAST_MEMORY sets it for every rank, for
            example ``8GiB``. The default is half of the memory that would be free without the values, and at most half
            of the memory of the machine or its cgroup.
        spill_directory : path, optional
            With `limit_bytes` only. The default is TMPDIR, or /var/tmp.

        Returns
        -------
        BroadcastMemory

        Examples
        --------
        >>> import ripieno as rp
        >>> def program(comm):
        ...     return comm.broadcast_memory(limit_bytes=10**9).limit_bytes
        >>> with rp.launch(workers=2) as job:
        ...     job.run(program)
        [1000000000, 1000000000]
        """
        return broadcast_memory(limit_bytes, spill_directory)

    def _lasting_variable(
        self, packed: packing.PackedValue | None, options: BroadcastOptions, generation: int
    ) -> BroadcastVariable[Any]:
        """Create a variable of rank 0 that stays valid after this communicator closes, while the processes live.

        If ranks may differ in their earlier variables, they pass a new `generation` and reconnect.
        """
        if not self._lasting or self._lasting[-1][0] != generation:
            self._lasting.append((generation, self._connect_to_serve()))
        return self._begin_variable(self._lasting[-1][1], packed, 0, options, True, False)

    def _begin_variable(
        self,
        serving: Serving,
        packed: packing.PackedValue | None,
        root: int,
        options: BroadcastOptions,
        per_host: bool,
        record: bool,
    ) -> BroadcastVariable[Any]:
        """Offer the packed value at the root, or expect it elsewhere, and write its copies to files, if requested."""
        serving.sweep()
        if options.strategy == SHARED_FILE:
            file = self._written(packed, root, options)
            # The variable carries only messages.
            is_root = self.rank == root
            native = serving.offer_messages() if is_root else serving.native.expect(root, None)
            return SharedFileVariable(native, root, self, _Copies(native, root, self, serving, file))
        variable = self._begin_transfer(serving, packed, root, options, per_host, record)
        if options.places:
            # The transfer proceeds meanwhile.
            file = self._written(packed, root, options)
            variable._copies = _Copies(variable._require_open(), root, self, serving, file)
        return variable

    def _written(self, packed: packing.PackedValue | None, root: int, options: BroadcastOptions) -> SharedFile:
        """Write the packed value at the root, and send the names of the files to all ranks."""
        written: SharedFile | BroadcastError | None = None
        if self.rank == root:
            assert packed is not None, "the root has the value"
            copy_count = None if options.strategy == SHARED_FILE else REPLICAS_MAX
            try:
                written = write(packed, options.places, copy_count, verify=options.verify)
            except BroadcastError as error:
                written = error
        written = self._broadcast_value(root, "broadcast_variable", written)
        if isinstance(written, BroadcastError):
            raise written
        assert written is not None, "the root has announced the files"
        return written

    def _begin_transfer(
        self,
        serving: Serving,
        packed: packing.PackedValue | None,
        root: int,
        options: BroadcastOptions,
        per_host: bool,
        record: bool,
    ) -> BroadcastVariable[Any]:
        discipline = discipline_of(options.strategy, streamed=False)
        members = self._members(root, per_host)
        order = [rank for rank in members if rank != root] if discipline in STREAMED else []
        if self.rank == root:
            assert packed is not None, "the root has the value"
            pieces, size_bytes = list(packing.blob_pieces(packed)), packing.blob_bytes(packed)
            block_bytes = options.block_bytes or tuned_block_bytes(self._block_sizes.current(), discipline, size_bytes)
            begin_s = time.perf_counter()
            native = serving.native.offer(
                size_bytes, pieces, (discipline, options.degree), block_bytes, order, options.verify
            )
            copied_s = time.perf_counter() - begin_s
            process_memory().log_spills()
        else:
            copied_s = 0.0
            leader = next(rank for rank in members if self.nodes[rank] == self.nodes[self.rank]) if per_host else None
            native = serving.native.expect(root, None if leader == self.rank else leader, is_recorded=record)
            if self.rank in order:
                native.start_fetch()
        return BroadcastVariable(native, discipline, root, self, copied_s)

    @cached_property
    def _block_sizes(self) -> StoredBlockSizes:
        """The block sizes measured on this cluster, as this host has stored them."""
        return StoredBlockSizes(self.hosts)

    def _members(self, root: int, per_host: bool) -> list[int]:
        """Return the fetching ranks, root first: one per host or every rank, with the ranks of a rack in sequence."""
        ranks = [(root + after) % self.world_size for after in range(self.world_size)]
        if per_host:
            first: dict[int, int] = {}
            for rank in ranks:
                first.setdefault(self.nodes[rank], rank)
            ranks = list(first.values())
        racks: dict[str | None, list[int]] = {}
        for rank in ranks:
            racks.setdefault(self.racks[rank], []).append(rank)
        return [rank for rack in racks.values() for rank in rack]

    def _server(self) -> Serving:
        """Return the server of this communicator's variables, created with the first variable."""
        if self._broadcasts is None:
            self._broadcasts = self._connect_to_serve()
        return self._broadcasts

    def _connect_to_serve(self) -> Serving:
        pending = self._native.pending_mesh()
        native = pending.connect(self._allgather_values("broadcast_variable", pending.address), process_memory().native)
        return Serving(native, set(range(self.world_size)) - {self.rank})
