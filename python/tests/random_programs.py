"""Random programs in which one rank may deviate in one detail. A seed determines a program.

`KINDS` are the calls, each with the options that must agree on all ranks. Results are not checked here: other tests do
that. A program runs in a world of threads and ends, like a job, with a call of a kind used nowhere else.
"""

from __future__ import annotations

import queue
import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import ripieno as rp
from ripieno import _native

#: Maximum time of any wait; a deviation is reported in about 2 s.
TIMEOUT_S = 60.0
CALLS = range(1, 6)


class RandomCallKind(NamedTuple):
    """A kind of call.

    Attributes
    ----------
    call : callable
        Makes a call from the stage and the options.
    options : dict of str to sequence
        Values of each option, all of them different in meaning.
    communicators : str
        Communicators that support it: the "world", "part" of it, the "reversed" world, its "replicas".
    """

    call: Callable[..., Any]
    options: dict[str, tuple[Any, ...]]
    communicators: str = "world part reversed replicas"


@dataclass(frozen=True)
class ProgramCall:
    """A call of a kind, made on one of the communicators.

    Attributes
    ----------
    is_asynchronous : bool
        Whether the call starts here and ends after all other calls. Not an option: ranks may differ in it.
    """

    kind: str
    options: tuple[tuple[str, Any], ...]
    communicator: str
    is_asynchronous: bool = False

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in self.options)}) in the {self.communicator}"

    def with_option(self, name: str, value: Any) -> ProgramCall:
        """Return the same call with a changed option."""
        return replace(self, options=tuple((each, value if each == name else old) for each, old in self.options))


@dataclass
class CallSite:
    """The environment of a rank's calls.

    Attributes
    ----------
    comm : Communicator
        Communicator of the call.
    communicators : dict of str to Communicator
    handles : list
        Asynchronous calls.
    is_asynchronous : bool
        Whether calls start asynchronously.
    """

    comm: rp.Communicator
    communicators: dict[str, rp.Communicator]
    handles: list[Any] = field(default_factory=list)
    is_asynchronous: bool = False

    def do(self, name: str, *args: Any, **options: Any) -> None:
        """Make a call of the communicator now, or start it."""
        if self.is_asynchronous:
            self.handles.append(getattr(self.comm, f"{name}_async")(*args, **options))
        else:
            getattr(self.comm, name)(*args, **options)


def array(rank: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3 + rank).astype(dtype)


def rows(comm: rp.Communicator, keys: str, dtype: str, width: int) -> rp.KeyValues:
    """Return five rows, some under the keys of other ranks' rows."""
    numbers = np.arange(5) + comm.rank
    values: Any = numbers if keys == "int64" else [f"key {number}" for number in numbers]
    return rp.KeyValues(values, array(comm.rank, dtype, (5, width) if width > 1 else (5,)))


def table(comm: rp.Communicator, combine: str, dtype: str, length: int) -> rp.Table:
    return rp.Table({number: array(comm.rank, dtype, (length,)) for number in (comm.rank, 7)}, combine)


DTYPES = ("float64", "int64", "float32", "uint8")
SHAPES = ((6,), (7,), (2, 3), (3, 2), (1, 6), (700,), (20000,))
OPS = ("sum", "max", "min")
ROOTS = (0, 1)
KEYS = ("int64", "str")
COMBINES = ("sum", "max", "concat")

ARRAY = {"dtype": DTYPES, "shape": SHAPES}
REDUCED = {**ARRAY, "op": OPS}
TREES: tuple[Callable[[np.ndarray], Any], ...] = (
    lambda x: {"a": x, "b": x},
    lambda x: {"a": x, "c": x},
    lambda x: (x, x),
    lambda x: [x, x],
    lambda x: (x, (x,)),
    lambda x: (x, x[:3]),
    lambda x: (x, x.astype("i4")),
    lambda x: (1, 2.0),
    lambda x: [1, 2.0],
    lambda x: 1,
    lambda x: 1.0,
)


def reduction(name: str, algorithms: bool = True) -> RandomCallKind:
    def call(
        at: CallSite, dtype: str, shape: tuple[int, ...], op: str, algorithm: str | None = None, **more: Any
    ) -> None:
        at.do(name, array(at.comm.rank, dtype, shape), op, **more, algorithm=algorithm)

    options = dict(REDUCED)
    if algorithms:
        options["algorithm"] = (None, *_native.algorithms(name)[:3])
    return RandomCallKind(call, {**options, **({"root": ROOTS} if name == "reduce" else {})})


def reduce_tree(at: CallSite, tree: int, op: str) -> None:
    at.do("allreduce", TREES[tree](array(at.comm.rank, "f8", (6,))), op)


def broadcast(at: CallSite, dtype: str, shape: tuple[int, ...], root: int) -> None:
    at.do("broadcast", root=root, out=array(at.comm.rank, dtype, shape))


def broadcast_object(at: CallSite, root: int) -> None:
    at.do("broadcast", {"x": [1, 2]} if at.comm.rank == root else None, root)


def allgather(at: CallSite, dtype: str, shape: tuple[int, ...]) -> None:
    at.do("allgather", array(at.comm.rank, dtype, shape), counts=[shape[0]] * at.comm.world_size)


def reduce_scatter(at: CallSite, dtype: str, width: int, op: str) -> None:
    at.do("reduce_scatter", array(at.comm.rank, dtype, (at.comm.world_size * 2, width)), op)


def gather(at: CallSite, dtype: str, shape: tuple[int, ...], root: int) -> None:
    at.do("gather", array(at.comm.rank, dtype, shape), root, counts=[shape[0]] * at.comm.world_size)


def scatter(at: CallSite, dtype: str, shape: tuple[int, ...], root: int) -> None:
    p = at.comm.world_size
    every = array(0, dtype, (shape[0] * p, *shape[1:])) if at.comm.rank == root else None
    at.do("scatter", every, root, counts=[shape[0]] * p, out=array(0, dtype, shape))


def alltoall(at: CallSite, dtype: str, width: int) -> None:
    sent = array(at.comm.rank, dtype, (2 * at.comm.world_size, width))
    at.do("alltoall", sent, out=sent.copy())


def rotate(at: CallSite, dtype: str, shape: tuple[int, ...], distance: int) -> None:
    block = array(at.comm.rank, dtype, shape)
    at.do("rotate", block, distance, out=block.copy())


def objects(at: CallSite, how: str) -> None:
    p, value = at.comm.world_size, ("some", at.comm.rank)
    if how == "alltoall":
        at.do("alltoall", [value] * p)
    elif how == "neighbour_exchange":
        at.do("neighbour_exchange", dict.fromkeys(range(p), value))
    elif how == "rotate":
        at.do("rotate", value, 1)
    else:
        at.do("allgather", value)


def objects_of_root(at: CallSite, how: str, root: int) -> None:
    value = ("some", at.comm.rank)
    if how == "gather":
        at.do("gather", value, root)
    else:
        at.do("scatter", [value] * at.comm.world_size if at.comm.rank == root else None, root)


def message(at: CallSite, dtype: str, shape: tuple[int, ...], back: bool) -> None:
    """Send from rank 0 to rank 1, and optionally back."""
    if at.comm.rank < 2:
        for sender in (0, 1) if back else (0,):
            if at.comm.rank == sender:
                at.comm.send_into(array(sender, dtype, shape), 1 - sender)
            else:
                at.comm.recv(sender, out=array(sender, dtype, shape))


def regroup(at: CallSite, keys: str, dtype: str, width: int, combine: str, partitioner: str, local: bool) -> None:
    values = rows(at.comm, keys, dtype, width)
    at.comm.regroup(values, combine=combine, partitioner=partitioner, local_reduction=local)


def keyed_allreduce(at: CallSite, keys: str, dtype: str, width: int, combine: str) -> None:
    at.comm.allreduce(rows(at.comm, keys, dtype, width), combine)


def keyed_allgather(at: CallSite, keys: str, dtype: str, width: int) -> None:
    at.comm.allgather(rows(at.comm, keys, dtype, width))


def table_call(at: CallSite, how: str, combine: str, dtype: str, length: int) -> None:
    getattr(at.comm, how)(table(at.comm, combine, dtype, length))


def sparse(at: CallSite, once: bool, size: int, missing: str, dtype: str, width: int, op: str) -> None:
    rank = at.comm.rank
    indices, wanted = (np.arange(20) * 2 + rank) % 40, np.arange(8)
    values = array(rank, dtype, (20, width) if width > 1 else (20,))
    if once:
        at.comm.sparse_reduce(indices, values, wanted, op, size=size, missing=missing)
    else:
        at.comm.sparse(indices, wanted, size=size, missing=missing).reduce(values, op)


def sparse_degrees(at: CallSite, degrees: Any) -> None:
    at.comm.sparse(np.arange(20), np.arange(20), degrees=degrees).reduce(np.ones(20))


def persistent(at: CallSite, dtype: str, shape: tuple[int, ...], op: str, times: int) -> None:
    values = array(at.comm.rank, dtype, shape)
    call = at.comm.allreduce_init(values, op, out=values.copy())
    for _ in range(times):
        call()


def broadcast_variable(at: CallSite, root: int) -> None:
    with at.comm.broadcast_variable({"x": 1} if at.comm.rank == root else None, root) as variable:
        assert variable.value == {"x": 1}


def checkpoint(at: CallSite, name: str, restored: str) -> None:
    at.comm.checkpoint(name, at.comm.rank)
    at.comm.restore(restored)


def split(at: CallSite, times: int) -> None:
    for _ in range(times):
        at.comm.split(0)


def waiting(at: CallSite) -> None:
    at.comm.stats(all_ranks=True)


def graph_of(comm: rp.Communicator, partitioner: str = "hash", by: str = "source") -> Any:
    ids = np.arange(6) + comm.rank
    return rp.Graph.from_edges(ids, (ids * 5 + 1) % 9, comm=comm, partitioner=partitioner, by=by)


def graph(at: CallSite, partitioner: str, by: str, how: str, to: str) -> None:
    getattr(graph_of(at.comm, partitioner, by), how)(by=to)


def messages(at: CallSite, how: str, combine: str, dtype: str, width: int) -> None:
    parts, shape = graph_of(at.comm), (width,) if width > 1 else ()
    if how == "send_messages":
        parts.send_messages(parts.vertices[:1], array(0, dtype, (min(len(parts.vertices), 1), *shape)), combine)
    else:
        parts.send_along_edges(array(0, dtype, (len(parts.vertices), *shape)), combine)


def supersteps(at: CallSite, combine: str, message: str, op: str, name: str, most: int) -> None:
    parts = graph_of(at.comm)

    def fn(block: Any) -> None:
        block.aggregate(name, np.ones(len(block)))
        block.send_along_edges(np.ones(len(block), message))

    parts.superstep(fn, combine=combine, message=message, aggregators={name: op}, max_supersteps=most)


def map_reduce(at: CallSite, combine: str, dtype: str, iterations: int, tasks: int, op: str) -> None:
    counted = None

    def emit(part: Any, value: Any) -> Any:
        counted.add(1)
        return part, np.ones(len(part), dtype)

    with rp.MapReduce(emit, combine=combine, comm=at.comm) as job:
        counted = job.accumulator(0, op)
        job.cache(np.arange(40) % 7, tasks=tasks)
        for _ in range(iterations):
            job.broadcast(3)
            job.step()


KINDS = {
    "allreduce": reduction("allreduce"),
    "reduce": reduction("reduce"),
    "scan": reduction("scan"),
    "exscan": reduction("exscan"),
    "reduce_scatter": RandomCallKind(reduce_scatter, {"dtype": DTYPES, "width": (1, 2, 300), "op": OPS}),
    "trees": RandomCallKind(reduce_tree, {"tree": tuple(range(len(TREES))), "op": OPS}),
    "broadcast": RandomCallKind(broadcast, {**ARRAY, "root": ROOTS}),
    "object": RandomCallKind(broadcast_object, {"root": ROOTS}),
    "allgather": RandomCallKind(allgather, ARRAY),
    "gather": RandomCallKind(gather, {**ARRAY, "root": ROOTS}),
    "scatter": RandomCallKind(scatter, {**ARRAY, "root": ROOTS}),
    "alltoall": RandomCallKind(alltoall, {"dtype": DTYPES, "width": (1, 2, 300)}),
    "rotate": RandomCallKind(rotate, {**ARRAY, "distance": (1, -1)}),
    "barrier": RandomCallKind(lambda at: at.do("barrier"), {}),
    "objects": RandomCallKind(objects, {"how": ("allgather", "alltoall", "neighbour_exchange", "rotate")}),
    "objects of a root": RandomCallKind(objects_of_root, {"how": ("gather", "scatter"), "root": ROOTS}),
    "message": RandomCallKind(message, {**ARRAY, "back": (False, True)}, "world part replicas"),
    "regroup": RandomCallKind(
        regroup,
        {
            "keys": KEYS,
            "dtype": DTYPES[:3],
            "width": (1, 2),
            "combine": COMBINES,
            "partitioner": ("hash", "balanced"),
            "local": (True, False),
        },
    ),
    "allreduce of rows": RandomCallKind(
        keyed_allreduce, {"keys": KEYS, "dtype": DTYPES[:3], "width": (1, 2), "combine": ("sum", "max")}
    ),
    "allgather of rows": RandomCallKind(keyed_allgather, {"keys": KEYS, "dtype": DTYPES[:3], "width": (1, 2)}),
    "table": RandomCallKind(
        table_call,
        {
            "how": ("regroup", "allreduce", "allgather"),
            "combine": ("sum", "max"),
            "dtype": DTYPES[:3],
            "length": (3, 4),
        },
        # For a replica, table contents are data, in which replicas may not differ.
        "world part reversed",
    ),
    "sparse": RandomCallKind(
        sparse,
        {
            "once": (False, True),
            "size": (50, 60),
            "missing": ("error", "zero"),
            "dtype": DTYPES[:3],
            "width": (1, 2),
            "op": OPS,
        },
    ),
    "degrees": RandomCallKind(sparse_degrees, {"degrees": ("direct", "binary")}),
    "persistent": RandomCallKind(persistent, {**REDUCED, "times": (1, 2)}),
    "variable": RandomCallKind(broadcast_variable, {"root": ROOTS}, "world part reversed"),
    "checkpoint": RandomCallKind(checkpoint, {"name": ("here", "there"), "restored": ("here", "there")}, "world"),
    "split": RandomCallKind(split, {"times": (1, 2)}),
    "waiting": RandomCallKind(waiting, {}, "world part reversed"),
    "graph": RandomCallKind(
        graph,
        {
            "partitioner": ("hash", "blocks"),
            "by": ("source", "target"),
            "how": ("regroup", "send_edges"),
            "to": ("source", "target"),
        },
        "world part reversed",
    ),
    "messages": RandomCallKind(
        messages,
        {
            "how": ("send_messages", "send_along_edges"),
            "combine": COMBINES,
            "dtype": DTYPES[:3],
            "width": (1, 2),
        },
        "world part reversed",
    ),
    "supersteps": RandomCallKind(
        supersteps,
        {
            "combine": COMBINES[:2],
            "message": ("float64", "float32"),
            "op": OPS,
            "name": ("one", "two"),
            "most": (1, 2),
        },
        "world part reversed",
    ),
    "map-reduce": RandomCallKind(
        map_reduce,
        {
            "combine": COMBINES[:2],
            "dtype": ("float64", "int64"),
            "iterations": (1, 2),
            "tasks": (4, 5),
            "op": ("sum", "max"),
        },
        "world part reversed",
    ),
}


#: Options in which ranks may differ if the effect is equal, such as an algorithm that is also the default choice.
OPTIONS_OFTEN_WITHOUT_EFFECT = ("algorithm", "degrees", "distance")


@dataclass(frozen=True)
class Deviation:
    """A deviation of one rank.

    Attributes
    ----------
    description : str
        Description.
    calls : tuple of Call
        All calls of the deviating rank.
    may_have_no_effect : bool
        Whether the deviation may have no effect: a message that no rank receives is not a fault.
    """

    description: str
    calls: tuple[ProgramCall, ...]
    may_have_no_effect: bool = False


@dataclass(frozen=True)
class SeededProgram:
    """The program of a seed: the calls of all ranks, and the deviating calls of one rank."""

    seed: int
    workers: int
    replicas: int
    links: str
    deviating_rank: int
    calls: tuple[ProgramCall, ...]
    deviation: Deviation

    def __str__(self) -> str:
        calls = "; ".join(map(str, self.calls))
        deviation = f"rank {self.deviating_rank} differs: {self.deviation.description}"
        return f"seed {self.seed}: {calls}. Of {self.workers} ranks, {deviation}"

    @classmethod
    def from_seed(cls, seed: int) -> SeededProgram:
        """Return the program of a seed."""
        draw = random.Random(seed)
        replicas = draw.choice((1, 1, 1, 1, 2))
        workers = 4 if replicas == 2 else draw.choice((2, 3))
        # Rank 2 of 3 is not in the "part", and gets no messages.
        deviating_rank = draw.randrange(workers if replicas == 2 else 2)
        # With several calls in flight, cycles of ranks across communicators are not detected.
        communicator = "replicas" if replicas == 2 else draw.choice(("world", None, None))
        calls = tuple(_random_call(draw, communicator) for _ in range(draw.choice(CALLS)))
        deviation = None
        while deviation is None:
            deviation = _random_deviation(draw, calls, communicator)
        return cls(seed, workers, replicas, draw.choice(("shared-memory", "tcp")), deviating_rank, calls, deviation)


def _random_call(draw: random.Random, only_communicator: str | None, excluding: str = "") -> ProgramCall:
    communicator = only_communicator or draw.choice(("world", "world", "part", "reversed"))
    name = draw.choice(
        [name for name, kind in KINDS.items() if communicator in kind.communicators.split() and name != excluding]
    )
    options = tuple((option, draw.choice(choices)) for option, choices in KINDS[name].options.items())
    return ProgramCall(
        name, options, communicator, is_asynchronous=only_communicator is not None and draw.random() < 0.4
    )


def _random_deviation(
    draw: random.Random, calls: tuple[ProgramCall, ...], only_communicator: str | None
) -> Deviation | None:
    """Return one deviation from these calls, or None if the drawn one has no effect."""
    number = draw.randrange(len(calls))
    before, call, after = calls[:number], calls[number], calls[number + 1 :]
    how = draw.choice(("option", "option", "option", "option", "less", "more", "order", "other", "communicator"))
    if how == "option" and call.options:
        name, value = draw.choice(call.options)
        others = [other for other in KINDS[call.kind].options[name] if other != value]
        other = call.with_option(name, draw.choice(others))
        description = f"call {number} is {other}"
        may_have_no_effect = name in OPTIONS_OFTEN_WITHOUT_EFFECT or (call.kind, name) == ("message", "back")
        return Deviation(description, (*before, other, *after), may_have_no_effect)
    if how == "less":
        return Deviation(f"call {number} is left out", (*before, *after), call.kind == "message")
    if how == "more":
        other = _random_call(draw, only_communicator)
        return Deviation(f"{other} comes before call {number}", (*before, other, call, *after), other.kind == "message")
    if how == "order" and after and replace(after[0], is_asynchronous=call.is_asynchronous) != call:
        # Calls of two communicators, or a message and a call, need no order as long as neither waits for the other.
        may_have_no_effect = call.communicator != after[0].communicator or "message" in (call.kind, after[0].kind)
        swapped = (*before, after[0], call, *after[1:])
        return Deviation(f"calls {number} and {number + 1} are swapped", swapped, may_have_no_effect)
    if how == "other":
        other = _random_call(draw, only_communicator, excluding=call.kind)
        return Deviation(f"call {number} is {other}", (*before, other, *after))
    if how == "communicator" and only_communicator is None:
        communicators = [
            communicator
            for communicator in KINDS[call.kind].communicators.split()
            if communicator not in (call.communicator, "replicas")
        ]
        if communicators:
            other = replace(call, communicator=draw.choice(communicators))
            return Deviation(f"call {number} is {other}", (*before, other, *after))
    return None


def run_calls(comm: rp.Communicator, calls: tuple[ProgramCall, ...], replicas: int) -> None:
    """Make one rank's calls."""
    if replicas == 2:
        communicators = {"replicas": comm.replicate(2)}
    else:
        part = comm.split(0 if comm.rank < 2 else None)
        backwards = comm.split(0, key=-comm.rank)
        assert backwards is not None
        communicators = {"world": comm, "reversed": backwards, **({} if part is None else {"part": part})}
    handles: list[Any] = []
    for call in calls:
        if call.communicator in communicators:
            at = CallSite(communicators[call.communicator], communicators, handles, call.is_asynchronous)
            KINDS[call.kind].call(at, **dict(call.options))
    for handle in handles:
        handle.wait()
    # A missing call is detected in the next call of the same communicator. Some ranks may detect a deviation one call
    # later than others.
    for each in (*communicators.values(), comm, comm):
        each.allreduce(np.zeros(11, np.uint8), op="xor")


def run(program: SeededProgram, deviates: bool = True) -> dict[int, BaseException | None]:
    """Run a program in a world of threads, with or without its deviation.

    Returns
    -------
    dict of int to error or None
        The outcome of each rank; ranks that still wait are missing.
    """
    workers = program.workers
    addresses, barrier, finished = [""] * workers, threading.Barrier(workers), threading.Event()
    outcomes: queue.SimpleQueue[tuple[int, BaseException | None]] = queue.SimpleQueue()

    def exchange(rank: int, address: str) -> list[str]:
        addresses[rank] = address
        barrier.wait(TIMEOUT_S)
        return addresses

    def run_rank(rank: int) -> None:
        options: dict[str, Any] = {"token": b"test", "replicas": program.replicas, "links": program.links}
        native = _native.Communicator.connect(rank, workers, lambda address: exchange(rank, address), **options)
        # Start after all ranks have connected: otherwise a failure would look like one of the rendezvous.
        barrier.wait(TIMEOUT_S)
        with rp.Communicator(native) as comm:
            outcomes.put((rank, _error_of(comm, program, rank, deviates)))
            # Keep every rank until all have been notified.
            finished.wait(TIMEOUT_S)

    ranks = [threading.Thread(target=run_rank, args=(rank,), daemon=True) for rank in range(workers)]
    for each in ranks:
        each.start()
    ended: dict[int, BaseException | None] = {}
    try:
        while len(ended) < workers:
            rank, error = outcomes.get(timeout=TIMEOUT_S)
            ended[rank] = error
    except queue.Empty:
        return ended
    finished.set()
    for each in ranks:
        each.join(TIMEOUT_S)
    return ended


def _error_of(comm: rp.Communicator, program: SeededProgram, rank: int, deviates: bool) -> BaseException | None:
    try:
        run_calls(
            comm,
            program.deviation.calls if deviates and rank == program.deviating_rank else program.calls,
            program.replicas,
        )
    except Exception as error:
        comm.abort(f"{type(error).__name__}: {error}")
        return error
    return None


def wrong_outcome(program: SeededProgram, deviates: bool = True) -> str | None:
    """Run a program, and return a description of a wrong outcome, or None."""
    ended = run(program, deviates)
    missing = set(range(program.workers)) - ended.keys()
    if missing:
        return f"{program}\n  ranks {sorted(missing)} still wait after {TIMEOUT_S:g} s; the others: {ended}"
    wrong = {rank: error for rank, error in ended.items() if error is not None}
    if not deviates:
        return f"{program}\n  though no rank differed: {wrong}" if wrong else None
    if program.deviation.may_have_no_effect and not wrong:
        return None
    for rank, error in sorted(ended.items()):
        if not _names_two_calls(error):
            return f"{program}\n  rank {rank} got {error!r}"
    return None


def _names_two_calls(error: BaseException | None) -> bool:
    """Return whether an error names two ranks and their calls."""
    text = str(error)
    described = len(set(re.findall(r"called [^;]*|: [^;]*", text))) > 1 or "which sends" in text
    if isinstance(error, rp.CollectiveMismatch):
        return "rank" in text and described
    # Sparse reductions compare their options, tables their partitions; replicas detect each other's deviation by a
    # failure.
    words = ("expected the same on every rank", "expected equal shapes and dtypes")
    return isinstance(error, rp.InputError | rp.RankFailed) and any(each in text for each in words)
