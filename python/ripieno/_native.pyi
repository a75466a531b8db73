"""Types of the native module; see `ripieno.comm` for the semantics of the collectives."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ripieno._types import OpName
from ripieno.errors import RipienoError

__version__: str

@final
class Communicator:
    rank: int
    world_size: int
    replicas: int
    replica: int
    world_ranks: list[int]
    hosts: list[str]
    nodes: list[int]
    racks: list[str | None]

    @staticmethod
    def connect(
        rank: int,
        world_size: int,
        exchange: Callable[[str], list[str]] | None = None,
        *,
        token: bytes,
        replicas: int = 1,
        tcp_store: tuple[str, int] | None = None,
        directory: str | None = None,
        bind_host: str | None = None,
        rack: str | None = None,
        ports: tuple[int, int] | None = None,
        rendezvous_timeout_s: float = 60.0,
        heartbeat_timeout_s: float = 10.0,
        links: str = "auto",
        tls: bool | None = None,
        flight_folder: str | None = None,
    ) -> Communicator: ...
    # Blocking in-place collectives. With `later`, a call only starts the collective and returns a handle. `signature`
    # describes properties of the call that must be equal on all ranks; default: the shape of the first array.
    # Perform a task: the name of a collective and its arguments, as `Communicator::with_task` in Rust lists them.
    def collective(
        self,
        task: tuple[Any, ...],
        array: NDArray[Any],
        algorithm: str | None = None,
        signature: str | None = None,
        output: NDArray[Any] | None = None,
        *,
        later: bool = False,
    ) -> Handle | None: ...
    def barrier(self, algorithm: str | None = None, *, later: bool = False) -> Handle | None: ...
    def run_plan(
        self,
        array: NDArray[Any],
        plans: CheckedPlans,
        output: NDArray[Any] | None = None,
        signature: str | None = None,
        *,
        later: bool = False,
    ) -> Handle | None: ...
    def regroup(
        self,
        aggregation: Aggregation,
        call: str = "",
        merge: str | None = None,
        balanced: bool = False,
        wave_bytes: int | None = None,
        eager_bytes: int | None = None,
        pulls: int | None = None,
        threads: int | None = None,
        memory_limit_bytes: int | None = None,
        on_block: Callable[[KeyedArrays], object] | None = None,
    ) -> tuple[KeyedArrays | None, dict[str, Any]]: ...
    # Reduce rows by a function. `combine` is a Python function, the address of a native function, or "argmin" or
    # "argmax" with the type of the values. A Python function receives the address of the rows of lower ranks, which it
    # updates, the address of the other rows, and their size in bytes.
    def reduce_by(
        self,
        task: tuple[Any, ...],
        array: NDArray[Any],
        combine: Callable[[int, int, int], None] | int | tuple[str, str],
        row_bytes: int,
        signature: str,
        algorithm: str | None = None,
        *,
        later: bool = False,
    ) -> Handle | None: ...
    def await_message(
        self, sources: Sequence[int], signature: str | None = None, timeout_s: float | None = None
    ) -> int | None: ...
    def group(self, ranks: Sequence[int]) -> Communicator: ...
    def split(self, color: int | None, key: int) -> Communicator | None: ...
    def replicate(self, replicas: int) -> Communicator: ...
    def adopt_racks(self, names: Sequence[str]) -> None: ...
    def shrink(self) -> tuple[Communicator, list[int], RipienoError]: ...
    def lost(self) -> list[int]: ...
    def abort(self, cause: str, traceback: str) -> None: ...
    def withdraw(self) -> None: ...
    def close(self) -> None: ...
    def pending_mesh(self) -> PendingMesh: ...
    def statistics(self) -> dict[str, float]: ...
    def flight(self, count: int | None = None) -> dict[str, Any]: ...
    def traffic(self, now_s: float) -> dict[str, Any]: ...
    def stalled(self, now_s: float) -> tuple[str, float, int | None] | None: ...
    def pair_costs(self) -> list[tuple[int, dict[str, Any]]]: ...
    def fallback_links(self) -> list[tuple[int, str]]: ...

@final
class ValueMemory:
    def __new__(cls, limit_bytes: int | None, max_bytes: int, directory: str) -> ValueMemory: ...
    def set_limit(self, limit_bytes: int | None, max_bytes: int, directory: str) -> None: ...
    def stats(self) -> tuple[int, int, int, int, str, str | None]: ...

@final
class PendingMesh:
    address: str
    def connect(self, addresses: list[str], memory: ValueMemory) -> Broadcasts: ...

@final
class Broadcasts:
    def offer(
        self,
        length_bytes: int,
        pieces: list[tuple[int, NDArray[Any]]],
        strategy: tuple[str, int | None],
        block_bytes: int | None,
        order: list[int],
        verify: bool,
    ) -> Variable: ...
    def expect(self, root: int, leader: int | None, *, is_recorded: bool = False) -> Variable: ...
    def offer_file(self, file: BlockFile, strategy: str, order: list[int]) -> Variable: ...
    def fetch(self, root: int, file: BlockFile) -> Variable: ...
    def begin_close(self) -> None: ...
    def close(self) -> None: ...

# Largest number of blocks of a file.
BLOCKS_MAX: Final[int]

@final
class BlockFile:
    found_bytes: int

    @staticmethod
    def read(path: str, block_bytes: int | None, verify: bool) -> BlockFile: ...
    @staticmethod
    def find(path: str, length_bytes: int, block_bytes: int, digests: bytes) -> BlockFile | None: ...
    @staticmethod
    def fill(path: str, length_bytes: int, block_bytes: int, digests: bytes) -> BlockFile: ...
    def missing(self) -> list[int]: ...
    def put(self, start: int, bytes: bytes) -> bool: ...
    def blocks(self) -> tuple[int, int, bytes]: ...

@final
class Variable:
    def start_fetch(self) -> None: ...
    def wait(self) -> ValueBuffer: ...
    def note_use(self) -> None: ...
    def has_ended(self) -> bool: ...
    def progress(self) -> tuple[int, int, int, bool]: ...
    def record(self) -> tuple[list[tuple[int, int, int, float, float]], int]: ...
    def send_message(self, to: int, bytes: bytes) -> None: ...
    def latest_messages(self) -> dict[int, bytes]: ...
    def lost(self) -> list[int]: ...
    def delivery(self) -> dict[str, Any] | None: ...

@final
class ValueBuffer:
    def sync(self, path: str) -> None: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class PlainCalls:
    """Calls of a communicator on plain arrays and numbers.

    Each method returns whether it made the call, or the result of the call, or NotImplemented.
    """

    def __new__(cls, communicator: Communicator) -> Self: ...
    def allreduce(self, array: object, op: object = None, value: object = None, /) -> bool: ...
    def allreduced(self, value: object, op: object = None, /) -> Any: ...
    def reduced(self, value: object, root: object, op: object = None, /) -> Any: ...
    def broadcast(self, array: object, root: object, /) -> bool: ...
    def allgather(self, array: object, counts: object = None, value: object = None, /) -> bool: ...
    def gather(self, value: object, root: object, out: object, counts: object, /) -> bool: ...
    def scatter(self, values: object, root: object, out: object, counts: object, /) -> bool: ...
    def reduce_scatter(self, value: object, op: object, out: object, counts: object, /) -> bool: ...
    def alltoall(self, values: object, out: object, counts: object, out_counts: object, /) -> bool: ...
    def barrier(self) -> None: ...

# First messages of object transfers. A message has a kind, and either the content in bytes or its length.
FRAME_ROOM_BYTES: int

def frame(kind: int, content: bytes | int, /) -> NDArray[np.uint8]: ...
def send_frame(comm: Communicator, kind: int, content: bytes | int, to: int, signature: str, /) -> None: ...
def broadcast_frame(
    comm: Communicator, kind: int, content: bytes | int, root: int, algorithm: str | None, signature: str, /
) -> None: ...

# Transfer of short objects. Each call reports whether it is complete, and returns the result or the data that remains.
MAX_INLINE_BYTES: int
PICKLE: int
HEAD: int
BLOB: int
#: The signature of Python integers in a sum.
NUMBER_SIGNATURE: str

def leaf_signature(array: NDArray[Any]) -> str: ...
def array_signature(array: NDArray[Any]) -> str | None: ...
def rows_signature(array: NDArray[Any]) -> str | None: ...
def tree_signature(value: Any, leaves: Sequence[str]) -> str: ...
def send_object(comm: Communicator, value: object, to: int, signature: str, /) -> Any: ...
def receive_object(comm: Communicator, source: int, signature: str, /) -> tuple[bool, Any]: ...
def broadcast_object(
    comm: Communicator, value: object, root: int, algorithm: str | None, signature: str, /
) -> tuple[bool, Any]: ...
def scatter_object(comm: Communicator, values: list[Any], root: int, signature: str, /) -> tuple[bool, Any]: ...
def gather_objects(
    comm: Communicator, value: object, root: int | None, algorithm: str | None, signature: str, /
) -> tuple[bool, Any]: ...
def seconds_serializing() -> float: ...

@final
class Handle:
    done: bool

    def wait(self) -> None: ...

def lightgbm_enter(comm: Communicator, thread: int, raises: type[BaseException]) -> tuple[int, int]: ...
def lightgbm_leave() -> dict[str, Any]: ...
def wait_any(handles: Sequence[Handle]) -> int | None: ...

@final
class Memory:
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...

def pooled(length_bytes: int) -> Memory: ...
def algorithms(collective: str) -> list[str]: ...
def doctor(
    world_size: int = 2, *, bind_host: str | None = None, ports: tuple[int, int] | None = None
) -> dict[str, Any]: ...
def simd_level() -> str: ...

# Sparse reductions, see `Communicator.sparse`. Arrays are flat, with `width` elements per row.

DENSE_ABOVE: float

@final
class SparseReduce:
    size: int
    degrees: str
    out_count: int
    in_count: int
    volumes: list[dict[str, int]]

    def reduce(
        self, communicator: Communicator, values: NDArray[Any], into: NDArray[Any], width: int, op: str, row: str
    ) -> None: ...

def sparse(
    communicator: Communicator,
    out_indices: NDArray[np.int64],
    in_indices: NDArray[np.int64],
    size: int | None,
    degrees: str | None,
    missing_is_zero: bool,
    dense_above: float,
    threads: int,
) -> SparseReduce: ...
def sparse_reduce(
    communicator: Communicator,
    out_indices: NDArray[np.int64],
    values: NDArray[Any],
    in_indices: NDArray[np.int64],
    into: NDArray[Any],
    width: int,
    op: str,
    row: str,
    size: int | None,
    degrees: str | None,
    missing_is_zero: bool,
    dense_above: float,
    threads: int,
) -> None: ...

# Keyed data. Keys are an int64 array, or the offsets (one more than keys) and the bytes of strings.

_KeyArrays: TypeAlias = NDArray[np.int64] | tuple[NDArray[np.int64], NDArray[np.uint8]]

@final
class Aggregation:
    row_count: int
    spilled_bytes: int

    def __new__(
        cls,
        key_kind: str,
        dtype: str,
        width: int,
        label: int,
        combine: str,
        rank_count: int,
        memory_limit_bytes: int | None = None,
        spill_directory: str | None = None,
    ) -> Self: ...
    def add(
        self, keys: _KeyArrays, values: NDArray[Any], ranks: NDArray[np.uint32] | None = None, threads: int = ...
    ) -> None: ...
    def absorb(self, other: Aggregation) -> None: ...
    def block(self, threads: int = ...) -> KeyedArrays: ...

@final
class KeyedArrays:
    label: int
    keys: _KeyArrays
    counts: NDArray[np.uint64] | None
    values: NDArray[Any]

# Measurements; see `ripieno.bench`. Times are in seconds.

def measure(
    communicator: Communicator,
    collective: str,
    array: NDArray[Any],
    into: NDArray[Any] | None = None,
    *,
    budget_s: float,
    separate: bool = False,
    algorithm: str | None = None,
) -> list[float]: ...
def choice(communicator: Communicator, collective: str, size_bytes: int) -> str: ...
def distinct_algorithms(communicator: Communicator, collective: str, bytes: int) -> list[list[str]]: ...
def prefer(communicator: Communicator, collective: str, rows: Sequence[tuple[int, str]]) -> None: ...

@final
class Tunnel:
    def wait(self, timeout_s: float) -> bool: ...

@final
class MemberAcceptor:
    def __new__(cls, listener: int, token: bytes, tls: bool | None) -> MemberAcceptor: ...
    def fileno(self) -> int: ...
    def due_s(self) -> float | None: ...
    def shortage(self) -> str | None: ...
    def next_member(self) -> tuple[int, tuple[Tunnel, int] | None] | None: ...

def introduce_member(socket: int, token: bytes, tls: bool | None, timeout_s: float) -> tuple[Tunnel, int] | None: ...
def tls_cipher() -> str: ...

# The check of tokens that users choose, and the shell command that generates one.
def check_token(token: str, name: str) -> None: ...

MAKE_TOKEN: Final[str]

def line_s() -> float: ...
def link_costs() -> dict[str, Any]: ...
def memory_pass(thread_count: int, size_bytes: int, budget_s: float) -> tuple[float, float]: ...

# Kernel threads. `hold_threads` keeps a team of the calling thread busy until `release_threads`. `thread_times` returns
# for each member of each team the number of the team, its index, its system thread id, its number of tasks, and its
# seconds of computing and of waiting. `thread_turn` returns the seconds of `phases` phases with `rounds` rounds of work
# each.

def pin_threads(cores: Sequence[int]) -> None: ...
def pinned_cores() -> list[int]: ...
def hold_threads(count: int) -> None: ...
def release_threads() -> None: ...
def thread_times() -> list[tuple[int, int, int, int, float, float]]: ...
def thread_turn(dispatch: str, threads: int, phases: int, rounds: int) -> float: ...
def rounds_per_us() -> float: ...

# The kernels; see `ripieno.kernels` for shapes and meaning.

@final
class PassBounds:
    def __new__(cls, limit_bytes: int) -> PassBounds: ...
    @property
    def bytes(self) -> int: ...
    @property
    def compared(self) -> float: ...

def assign_accumulate(
    points: NDArray[Any],
    centroids: NDArray[Any],
    weights: NDArray[np.float64] | None,
    labels: NDArray[np.int32],
    threads: int,
    squared_distances: NDArray[np.float64] | None,
    bounds: PassBounds | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]: ...

@final
class NearIndex:
    def __new__(cls) -> NearIndex: ...
    @staticmethod
    def group_count(centroid_count: int) -> int: ...

def assign_accumulate_near(
    points: NDArray[Any],
    centroids: NDArray[Any],
    weights: NDArray[np.float64] | None,
    labels: NDArray[np.int32],
    squared_distances: NDArray[np.float64],
    index: NearIndex,
    probes: int,
    threads: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]: ...

@final
class Probing:
    def __new__(cls, points: NDArray[Any], means: NDArray[Any], probes: int, threads: int) -> Probing: ...
    @property
    def bytes(self) -> int: ...

def compare_groups(
    points: NDArray[Any],
    probing: Probing,
    groups: Any,
    previous: Any,
    labels: NDArray[np.int32],
    squared_distances: NDArray[np.float64],
    threads: int,
) -> None: ...
def accumulate_run(
    points: NDArray[Any],
    labels: NDArray[np.int32],
    weights: NDArray[np.float64] | None,
    first: int,
    sums: NDArray[np.float64],
    weight_sums: NDArray[np.float64],
    threads: int,
) -> None: ...
def assign_sparse(
    rows: Any,
    centroids: NDArray[np.float64],
    first_index: int,
    labels: NDArray[np.int32],
    squared_distances: NDArray[np.float64],
    threads: int,
) -> None: ...
def accumulate_sparse(
    rows: Any,
    labels: NDArray[np.int32],
    first: int,
    sums: NDArray[np.float64],
    weight_sums: NDArray[np.float64],
    threads: int,
) -> None: ...
def inertia_of(squared_distances: NDArray[np.float64], weights: NDArray[np.float64] | None, columns: int) -> float: ...
def assign(
    points: NDArray[Any],
    centroids: NDArray[Any],
    labels: NDArray[np.int32],
    squared_distances: NDArray[np.float64] | None,
    threads: int,
) -> None: ...
def update_min_distances(
    points: NDArray[Any],
    new_centroids: NDArray[Any],
    first_index: int,
    min_squared_distances: NDArray[np.float64],
    closest: NDArray[np.int32] | None,
    threads: int,
) -> None: ...
def grow_cells(
    points: NDArray[Any], cells: Any, trial_count: int, center_count: int, until: float, threads: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]: ...
def distances(points: NDArray[Any], centroids: NDArray[Any], out: NDArray[Any], threads: int) -> None: ...
def recenter(centroids: NDArray[Any], sums: NDArray[np.float64], weight_sums: NDArray[np.float64]) -> float: ...
def logistic_loss(
    rows: Any,
    classes: NDArray[np.int32],
    coef: NDArray[np.float64],
    probabilities: NDArray[np.float64],
    gradient: NDArray[np.float64],
    threads: int,
) -> float: ...
def sgd_occurrences(
    rows: Any, owners: NDArray[np.int32], owner_count: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...
def sgd_places(
    rows: Any, occurring: Any, chunk_lens: NDArray[np.int64], penalties: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]: ...
def sgd_needed_features(
    requested: Any, feature_count: int, step_count: int
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]: ...
def sgd_epoch(
    communicator: Communicator,
    batches: Any,
    order: NDArray[np.int64],
    descent: Any,
    weights: NDArray[np.float64],
    squares: NDArray[np.float64],
) -> float: ...
def logistic_curvature(
    rows: Any,
    probabilities: NDArray[np.float64],
    direction: NDArray[np.float64],
    product: NDArray[np.float64],
    threads: int,
) -> None: ...
def solve_factors(
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: NDArray[np.float32],
    factors: NDArray[np.float32],
    reg: float,
    alpha: float | None,
    gram: NDArray[np.float32] | None,
    steps: int | None,
    out: NDArray[np.float32],
    threads: int,
) -> tuple[float, float]: ...
def scatter(factors: NDArray[np.float32], anchor: float, out: NDArray[np.float64], threads: int) -> None: ...
def column_sums(
    points: NDArray[Any], weights: NDArray[np.float64] | None, sums: NDArray[np.float64], threads: int
) -> float: ...
def add_products(
    points: NDArray[Any],
    rows: tuple[NDArray[np.float64] | None, NDArray[np.float64] | None],
    center: NDArray[np.float64],
    sums: NDArray[np.float64],
    is_single: bool,
    threads: int,
) -> None: ...
def add_gradients(
    points: NDArray[Any],
    rows: tuple[NDArray[np.float64], NDArray[np.float64] | None],
    center: NDArray[np.float64],
    coef: NDArray[np.float64],
    sums: NDArray[np.float64],
    threads: int,
) -> None: ...

# Sums over all pairs of points.

MAX_DIMENSIONS: int

def guttman(
    dissimilarities: NDArray[Any],
    weights: NDArray[np.float32] | None,
    shift: float,
    own: NDArray[np.float32],
    all: NDArray[np.float32],
    out: NDArray[np.float64],
    threads: int,
) -> None: ...
def weighted_differences(
    weights: NDArray[np.float32],
    own: NDArray[np.float32],
    all: NDArray[np.float32],
    out: NDArray[np.float64],
    threads: int,
) -> None: ...

# Forces of a layout.

def fixed_point_scale(point_count: int) -> float: ...
def repulsion(all: NDArray[np.float32], share: tuple[int, int], out: NDArray[np.int64], threads: int) -> None: ...
def barnes_hut(
    theta: float, own: tuple[int, int], all: NDArray[np.float32], out: NDArray[np.float64], threads: int
) -> int: ...
def attraction(
    first: int,
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    weights: NDArray[np.float32],
    length: float,
    all: NDArray[np.float32],
    out: NDArray[np.float64],
    threads: int,
) -> None: ...

# By default, one thread computes.
def first_non_finite(points: NDArray[Any], threads: int = ...) -> tuple[int, int] | None: ...

# The design of sparse reductions; see `ripieno.sparse.design`.

PACKET_SIZES_BYTES: list[int]
EFFICIENT_SHARE: float

@final
class PacketCurve:
    """Seconds per packet, by packet size, if every rank sends packets without a pause; and the latency of a packet."""

    points: list[tuple[float, float]]
    latency_s: float
    contention_s: float
    alpha_s: float
    beta_s_per_byte: float
    best_throughput: float
    efficient_bytes: float

    def __new__(cls, points: Sequence[tuple[float, float]], latency_s: float, contention_s: float = 0.0) -> Self: ...
    @staticmethod
    def memory() -> PacketCurve: ...
    @staticmethod
    def network() -> PacketCurve: ...
    def seconds(self, packet_bytes: float) -> float: ...

@final
class DensityCurve:
    """The density of the union of several ranks' feature sets, by number of ranks."""

    alpha: float | None
    lambda_0: float | None

    @staticmethod
    def power_law(features: int, alpha: float, density: float) -> DensityCurve: ...
    @staticmethod
    def through(points: Sequence[tuple[float, float]]) -> DensityCurve: ...
    @staticmethod
    def fit(features: int, points: Sequence[tuple[float, float]]) -> tuple[DensityCurve, float]: ...
    def density(self, set_count: float) -> float: ...

def measure_packets(communicator: Communicator, sizes_bytes: Sequence[int], budget_s: float) -> PacketCurve: ...
def packet_curve(communicator: Communicator) -> PacketCurve: ...
def design_by_packet(p: int, curve: DensityCurve, rows: float, row_bytes: int, min_bytes: float) -> str: ...
def design_candidates(
    p: int,
    out_sets: tuple[DensityCurve, float],
    in_sets: tuple[DensityCurve, float],
    row_bytes: int,
    packets: PacketCurve,
) -> list[dict[str, Any]]: ...
def design_estimate(
    p: int,
    degrees: str,
    out_sets: tuple[DensityCurve, float],
    in_sets: tuple[DensityCurve, float],
    row_bytes: int,
    packets: PacketCurve,
) -> dict[str, Any]: ...

# Simulated clusters. A link is (seconds per message, seconds per byte). A transfer is (sender, receiver, bytes, start,
# end, kind of link).
COLLECTIVES: list[str]

@final
class Cluster:
    def __new__(
        cls,
        nodes: list[int],
        racks: list[int],
        *,
        memory: tuple[float, float],
        network_link: tuple[float, float],
        uplink: tuple[float, float],
        core_s_per_byte: float = 0.0,
        gamma_s_per_byte: float = 0.0,
        segment_bytes: int | None = None,
        relay_bytes: int | None = None,
        queue_bytes: int | None = None,
        packet_bytes: int = 0,
        slow_some: tuple[int, float, int] | None = None,
        slow: list[tuple[int, float]] = ...,
        dead: list[tuple[int, float]] = ...,
    ) -> Self: ...

DISCIPLINES: list[str]
STREAMED: list[str]

def simulate(
    cluster: Cluster,
    collective: str,
    algorithm: str | None,
    bytes: int,
    root: int = 0,
    *,
    transfers: bool = False,
) -> dict[str, Any]: ...
def simulate_sparse(
    cluster: Cluster, degrees: str, features: int, sets: list[list[int]], row_bytes: int
) -> tuple[float | None, list[int]]: ...
def distribute(
    cluster: Cluster,
    algorithm: str,
    bytes: int,
    root: int = 0,
    *,
    block_bytes: int | None = None,
    late: list[tuple[int, float]] = ...,
    stopped: list[tuple[int, float]] = ...,
    corrupted: list[tuple[int, float]] = ...,
    seed: int = 0,
    fetches: bool = False,
    order: list[int] | None = None,
    degree: int | None = None,
) -> dict[str, Any]: ...
def search_block_bytes(cluster: Cluster, algorithm: str, bytes: int, root: int = 0) -> list[tuple[int, float]]: ...
def explain(
    cluster: Cluster, collective: str, bytes: int, order: str | None = None, root: int = 0
) -> dict[str, Any]: ...

# Plans of programs, see `ripieno.plan`. A span is (number of the buffer, first byte, length in bytes, element size). A
# step is (kind, peer, span, source of a local step, operation). A request is (collective, vector, operation, root).
_Span: TypeAlias = tuple[int, int, int, int]
_Step: TypeAlias = tuple[str, int | None, _Span, _Span | None, str | None]
_Requested: TypeAlias = tuple[str, _Span, str, int]

@final
class Plan:
    def __new__(cls) -> Self: ...
    def __len__(self) -> int: ...
    def send(self, to: int, span: _Span) -> None: ...
    def receive(self, source: int, span: _Span) -> None: ...
    def reduce(self, source: int, span: _Span, op: str) -> None: ...
    def copy(self, source: _Span, to: _Span) -> None: ...
    def combine(self, source: _Span, to: _Span, op: str) -> None: ...
    def fill(self, span: _Span, op: str | None = None) -> None: ...
    def extend(self, other: Plan) -> None: ...
    def copied(self) -> Plan: ...
    def steps(self) -> list[_Step]: ...
    def step_text(self, index: int) -> str: ...

@final
class CheckedPlans:
    fingerprint: int
    round_count: int
    op: OpName | None
    element_bytes: int | None
    lengths_bytes: list[int]
    # Bytes sent, received and combined, messages sent and received, by rank.
    traffic: list[tuple[int, int, int, int, int]]

    def has_result(self, rank: int) -> bool: ...
    def only_reads(self, rank: int) -> bool: ...

def check_plans(plans: list[Plan], requested: _Requested | None = None) -> CheckedPlans: ...
def catalogued_plans(requested: _Requested, algorithm: str, ranks: int) -> list[Plan]: ...
def simulate_plans(cluster: Cluster, plans: list[Plan], *, transfers: bool = False) -> dict[str, Any]: ...
def plan_table(plans: list[Plan]) -> str: ...

# Graph kernels, see `ripieno.graph`. A malformed line raises ValueError with (offset, reason).
_Parsed: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]

def parse_pairs(text: bytes, third: str) -> _Parsed: ...

@final
class EdgeMatrix:
    shape: tuple[int, int]
    entry_count: int

    def column_sums(self) -> NDArray[np.float64]: ...
    def entries(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.float64] | None]: ...
    def min_sources(
        self, ids: NDArray[np.int64], frontier: NDArray[np.bool_], is_open: NDArray[np.bool_], threads: int
    ) -> NDArray[np.int64]: ...
    def product(self, x: NDArray[Any], out: NDArray[Any], op: str, threads: int) -> None: ...

def local_graph(
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
    weights: NDArray[np.float64] | None,
    once: bool,
    threads: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], EdgeMatrix]: ...
def pagerank_step(
    sums: NDArray[np.float64],
    places: NDArray[np.uint32] | None,
    inverse_out: NDArray[np.float64],
    counted: NDArray[np.bool_] | None,
    teleport: NDArray[np.float64] | None,
    share: NDArray[np.float64] | None,
    uniform: float,
    damping: float,
    dangling: float,
    ranks: NDArray[np.float64],
    contributions: NDArray[np.float64],
    threads: int,
) -> tuple[float, float]: ...

#: Lists of vertices: offsets, (n + 1,), targets and numbers of directions, (m,), all int64.
_Lists: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

# Return the triangles of each vertex and the directions of the edges between its neighbors in them: (n, 2).
def count_triangles(own: _Lists, others: _Lists, threads: int) -> NDArray[np.int64]: ...

#: Columns of strings: the start of each string and the end of the last one, (n + 1,) int64, and the bytes, uint8.
_Strings: TypeAlias = tuple[NDArray[np.int64], NDArray[np.uint8]]

# Return the indices that sort strings by their bytes; the sort is stable.
def order_of_strings(offsets: NDArray[np.int64], data: NDArray[np.uint8], descending: bool) -> NDArray[np.int64]: ...

# Concatenate the pieces of `data` that begin at `starts`.
def joined_pieces(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint8]: ...

# Return the columns of named features among `column_count`, and their signs.
def feature_places(
    offsets: NDArray[np.int64], data: NDArray[np.uint8], column_count: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]: ...

@final
class WordCounts:
    """Counts of the distinct words of texts. A word is a maximal run of bytes without ASCII white space.

    With `lower`, ASCII letters are converted to lower case.
    """

    size_bytes: int

    def __new__(cls, lower: bool) -> Self: ...
    def __len__(self) -> int: ...
    def add(self, text: bytes) -> None: ...
    # Return and remove the words, in order of first appearance, and their counts.
    def take(self) -> tuple[_Strings, NDArray[np.int64]]: ...

@final
class LineSearch:
    """Search for the lines of texts that match a pattern: a regular expression of Rust's crate regex, unless `fixed`.

    Raises InputError if the pattern is not a valid regular expression.
    """

    def __new__(cls, pattern: str, *, fixed: bool = False, ignore_case: bool = False, invert: bool = False) -> Self: ...
    def find(self, text: bytes, at_most: int | None) -> FoundLines: ...
    def count(self, text: bytes, at_most: int | None) -> int: ...

@final
class FoundLines:
    """Matching lines of a text; `line_count` is the number of line ends in the text."""

    line_count: int

    def __len__(self) -> int: ...
    # Return line numbers from 0, byte offsets, and the lines without their ends.
    def columns(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64], _Strings]: ...
    # Return the first lines as text, each with `label` and, if `first_number` is given, its line number and a colon.
    def printed(self, label: bytes, first_number: int | None, at_most: int) -> bytes: ...
