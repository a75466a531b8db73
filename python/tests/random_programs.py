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
BOUND_S = 60.0
CALLS = range(1, 6)


class CallKind(NamedTuple):
    """A kind of call.

    Attributes
    ----------
    call : callable
        Makes a call from the stage and the options.
    options : dict of str to sequence
        Values of each option, all of them different in meaning.
    places : str
        Communicators that support it: the "world", "part" of it, the "turned" world, its "copies".
    """

    call: Callable[..., Any]
    options: dict[str, tuple[Any, ...]]
    places: str = "world part turned copies"


@dataclass(frozen=True)
class ProgramCall:
    """A call of a kind, made on one of the communicators.

    Attributes
    ----------
    later : bool
        Whether it only starts here and is waited for after all other calls. Not an option: ranks may differ in it.
    """

    kind: str
    options: tuple[tuple[str, Any], ...]
    place: str
    later: bool = False

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in self.options)}) in the {self.place}"

    def with_option(self, name: str, value: Any) -> ProgramCall:
        """Return the same call with a changed option."""
        return replace(self, options=tuple((each, value if each == name else old) for each, old in self.options))


@dataclass
class PlayStage:
    """The environment of a rank's calls.

    Attributes
    ----------
    comm : Communicator
        Communicator of the call.
    places : dict of str to Communicator
    later : callable
        Makes a call that starts only if requested.
    """

    comm: rp.Communicator
    places: dict[str, rp.Communicator]
    begun: list[Any] = field(default_factory=list)
    is_later: bool = False

    def do(self, name: str, *args: Any, **options: Any) -> None:
        """Make a call of the communicator now, or start it."""
        if self.is_later:
            self.begun.append(getattr(self.comm, f"{name}_async")(*args, **options))
        else:
            getattr(self.comm, name)(*args, **options)


def array(rank: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3 + rank).astype(dtype)


def rows(comm: rp.Communicator, keys: str, dtype: str, width: int) -> rp.KeyValues:
    """Return five rows, some under the keys of other ranks' rows."""
    numbers = np.arange(5) + comm.rank
    given: Any = numbers if keys == "int64" else [f"key {number}" for number in numbers]
    return rp.KeyValues(given, array(comm.rank, dtype, (5, width) if width > 1 else (5,)))


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


def reduction(name: str, algorithms: bool = True) -> CallKind:
    def call(
        at: PlayStage, dtype: str, shape: tuple[int, ...], op: str, algorithm: str | None = None, **more: Any
    ) -> None:
        at.do(name, array(at.comm.rank, dtype, shape), op, **more, algorithm=algorithm)

    options = dict(REDUCED)
    if algorithms:
        options["algorithm"] = (None, *_native.algorithms(name)[:3])
    return CallKind(call, {**options, **({"root": ROOTS} if name == "reduce" else {})})


def reduce_tree(at: PlayStage, tree: int, op: str) -> None:
    at.do("allreduce", TREES[tree](array(at.comm.rank, "f8", (6,))), op)


def broadcast(at: PlayStage, dtype: str, shape: tuple[int, ...], root: int) -> None:
    at.do("broadcast", root=root, out=array(at.comm.rank, dtype, shape))


def broadcast_object(at: PlayStage, root: int) -> None:
    at.do("broadcast", {"x": [1, 2]} if at.comm.rank == root else None, root)


def allgather(at: PlayStage, dtype: str, shape: tuple[int, ...]) -> None:
    at.do("allgather", array(at.comm.rank, dtype, shape), counts=[shape[0]] * at.comm.world_size)


def reduce_scatter(at: PlayStage, dtype: str, width: int, op: str) -> None:
    at.do("reduce_scatter", array(at.comm.rank, dtype, (at.comm.world_size * 2, width)), op)


def gather(at: PlayStage, dtype: str, shape: tuple[int, ...], root: int) -> None:
    at.do("gather", array(at.comm.rank, dtype, shape), root, counts=[shape[0]] * at.comm.world_size)


def scatter(at: PlayStage, dtype: str, shape: tuple[int, ...], root: int) -> None:
    p = at.comm.world_size
    every = array(0, dtype, (shape[0] * p, *shape[1:])) if at.comm.rank == root else None
    at.do("scatter", every, root, counts=[shape[0]] * p, out=array(0, dtype, shape))


def alltoall(at: PlayStage, dtype: str, width: int) -> None:
    sent = array(at.comm.rank, dtype, (2 * at.comm.world_size, width))
    at.do("alltoall", sent, out=sent.copy())


def rotate(at: PlayStage, dtype: str, shape: tuple[int, ...], distance: int) -> None:
    block = array(at.comm.rank, dtype, shape)
    at.do("rotate", block, distance, out=block.copy())


def objects(at: PlayStage, how: str) -> None:
    p, value = at.comm.world_size, ("some", at.comm.rank)
    if how == "alltoall":
        at.do("alltoall", [value] * p)
    elif how == "neighbour_exchange":
        at.do("neighbour_exchange", dict.fromkeys(range(p), value))
    elif how == "rotate":
        at.do("rotate", value, 1)
    else:
        at.do("allgather", value)


def objects_of_root(at: PlayStage, how: str, root: int) -> None:
    value = ("some", at.comm.rank)
    if how == "gather":
        at.do("gather", value, root)
    else:
        at.do("scatter", [value] * at.comm.world_size if at.comm.rank == root else None, root)


def message(at: PlayStage, dtype: str, shape: tuple[int, ...], back: bool) -> None:
    """Send from rank 0 to rank 1, and optionally back."""
    if at.comm.rank < 2:
        for sender in (0, 1) if back else (0,):
            if at.comm.rank == sender:
                at.comm.send_into(array(sender, dtype, shape), 1 - sender)
            else:
                at.comm.recv(sender, out=array(sender, dtype, shape))


def regroup(at: PlayStage, keys: str, dtype: str, width: int, combine: str, partitioner: str, local: bool) -> None:
    given = rows(at.comm, keys, dtype, width)
    at.comm.regroup(given, combine=combine, partitioner=partitioner, local_reduction=local)


def keyed_allreduce(at: PlayStage, keys: str, dtype: str, width: int, combine: str) -> None:
    at.comm.allreduce(rows(at.comm, keys, dtype, width), combine)


def keyed_allgather(at: PlayStage, keys: str, dtype: str, width: int) -> None:
    at.comm.allgather(rows(at.comm, keys, dtype, width))


def table_call(at: PlayStage, how: str, combine: str, dtype: str, length: int) -> None:
    getattr(at.comm, how)(table(at.comm, combine, dtype, length))


def sparse(at: PlayStage, once: bool, size: int, missing: str, dtype: str, width: int, op: str) -> None:
    rank = at.comm.rank
    indices, wanted = (np.arange(20) * 2 + rank) % 40, np.arange(8)
    values = array(rank, dtype, (20, width) if width > 1 else (20,))
    if once:
        at.comm.sparse_reduce(indices, values, wanted, op, size=size, missing=missing)
    else:
        at.comm.sparse(indices, wanted, size=size, missing=missing).reduce(values, op)


def sparse_degrees(at: PlayStage, degrees: Any) -> None:
    at.comm.sparse(np.arange(20), np.arange(20), degrees=degrees).reduce(np.ones(20))


def persistent(at: PlayStage, dtype: str, shape: tuple[int, ...], op: str, times: int) -> None:
    given = array(at.comm.rank, dtype, shape)
    call = at.comm.allreduce_init(given, op, out=given.copy())
    for _ in range(times):
        call()


def broadcast_variable(at: PlayStage, root: int) -> None:
    with at.comm.broadcast_variable({"x": 1} if at.comm.rank == root else None, root) as variable:
        assert variable.value == {"x": 1}


def checkpoint(at: PlayStage, name: str, restored: str) -> None:
    at.comm.checkpoint(name, at.comm.rank)
    at.comm.restore(restored)


def split(at: PlayStage, times: int) -> None:
    for _ in range(times):
        at.comm.split(0)


def waiting(at: PlayStage) -> None:
    at.comm.stats(all_ranks=True)


def graph_of(comm: rp.Communicator, home: str = "hash", by: str = "source") -> Any:
    ids = np.arange(6) + comm.rank
    return rp.Graph.from_edges(ids, (ids * 5 + 1) % 9, comm=comm, home=home, by=by)


def graph(at: PlayStage, home: str, by: str, how: str, to: str) -> None:
    getattr(graph_of(at.comm, home, by), how)(by=to)


def messages(at: PlayStage, how: str, combine: str, dtype: str, width: int) -> None:
    made, shape = graph_of(at.comm), (width,) if width > 1 else ()
    if how == "send_messages":
        made.send_messages(made.vertices[:1], array(0, dtype, (min(len(made.vertices), 1), *shape)), combine)
    else:
        made.send_along_edges(array(0, dtype, (len(made.vertices), *shape)), combine)


def supersteps(at: PlayStage, combine: str, message: str, op: str, name: str, most: int) -> None:
    made = graph_of(at.comm)

    def fn(block: Any) -> None:
        block.aggregate(name, np.ones(len(block)))
        block.send_along_edges(np.ones(len(block), message))

    made.superstep(fn, combine=combine, message=message, aggregators={name: op}, max_supersteps=most)


def map_reduce(at: PlayStage, combine: str, dtype: str, iterations: int, tasks: int, op: str) -> None:
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
    "reduce_scatter": CallKind(reduce_scatter, {"dtype": DTYPES, "width": (1, 2, 300), "op": OPS}),
    "trees": CallKind(reduce_tree, {"tree": tuple(range(len(TREES))), "op": OPS}),
    "broadcast": CallKind(broadcast, {**ARRAY, "root": ROOTS}),
    "object": CallKind(broadcast_object, {"root": ROOTS}),
    "allgather": CallKind(allgather, ARRAY),
    "gather": CallKind(gather, {**ARRAY, "root": ROOTS}),
    "scatter": CallKind(scatter, {**ARRAY, "root": ROOTS}),
    "alltoall": CallKind(alltoall, {"dtype": DTYPES, "width": (1, 2, 300)}),
    "rotate": CallKind(rotate, {**ARRAY, "distance": (1, -1)}),
    "barrier": CallKind(lambda at: at.do("barrier"), {}),
    "objects": CallKind(objects, {"how": ("allgather", "alltoall", "neighbour_exchange", "rotate")}),
    "objects of a root": CallKind(objects_of_root, {"how": ("gather", "scatter"), "root": ROOTS}),
    "message": CallKind(message, {**ARRAY, "back": (False, True)}, "world part copies"),
    "regroup": CallKind(
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
    "allreduce of rows": CallKind(
        keyed_allreduce, {"keys": KEYS, "dtype": DTYPES[:3], "width": (1, 2), "combine": ("sum", "max")}
    ),
    "allgather of rows": CallKind(keyed_allgather, {"keys": KEYS, "dtype": DTYPES[:3], "width": (1, 2)}),
    "table": CallKind(
        table_call,
        {
            "how": ("regroup", "allreduce", "allgather"),
            "combine": ("sum", "max"),
            "dtype": DTYPES[:3],
            "length": (3, 4),
        },
        # For a replica, table contents are data, in which replicas may not differ.
        "world part turned",
    ),
    "sparse": CallKind(
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
    "degrees": CallKind(sparse_degrees, {"degrees": ("direct", "binary")}),
    "persistent": CallKind(persistent, {**REDUCED, "times": (1, 2)}),
    "variable": CallKind(broadcast_variable, {"root": ROOTS}, "world part turned"),
    "checkpoint": CallKind(checkpoint, {"name": ("here", "there"), "restored": ("here", "there")}, "world"),
    "split": CallKind(split, {"times": (1, 2)}),
    "waiting": CallKind(waiting, {}, "world part turned"),
    "graph": CallKind(
        graph,
        {
            "home": ("hash", "blocks"),
            "by": ("source", "target"),
            "how": ("regroup", "send_edges"),
            "to": ("source", "target"),
        },
        "world part turned",
    ),
    "messages": CallKind(
        messages,
        {
            "how": ("send_messages", "send_along_edges"),
            "combine": COMBINES,
            "dtype": DTYPES[:3],
            "width": (1, 2),
        },
        "world part turned",
    ),
    "supersteps": CallKind(
        supersteps,
        {
            "combine": COMBINES[:2],
            "message": ("float64", "float32"),
            "op": OPS,
            "name": ("one", "two"),
            "most": (1, 2),
        },
        "world part turned",
    ),
    "map-reduce": CallKind(
        map_reduce,
        {
            "combine": COMBINES[:2],
            "dtype": ("float64", "int64"),
            "iterations": (1, 2),
            "tasks": (4, 5),
            "op": ("sum", "max"),
        },
        "world part turned",
    ),
}


#: Options in which ranks may differ if the effect is equal, such as an algorithm that is also the default choice.
MAY_COME_TO_THE_SAME = ("algorithm", "degrees", "distance")


@dataclass(frozen=True)
class SeededDifference:
    """The deviation of the odd rank.

    Attributes
    ----------
    what : str
        Description.
    calls : tuple of Call
        All calls of the odd rank.
    may_be_none : bool
        Whether the deviation may have no effect: a message that no rank receives is no fault.
    """

    what: str
    calls: tuple[ProgramCall, ...]
    may_be_none: bool = False


@dataclass(frozen=True)
class SeededProgram:
    """The program of a seed: the calls of all ranks, and the deviating calls of one rank."""

    seed: int
    workers: int
    replicas: int
    links: str
    odd: int
    calls: tuple[ProgramCall, ...]
    difference: SeededDifference

    def __str__(self) -> str:
        calls = "; ".join(map(str, self.calls))
        return f"seed {self.seed}: {calls}. Of {self.workers} ranks {self.odd} differs: {self.difference.what}"

    @classmethod
    def drawn(cls, seed: int) -> SeededProgram:
        """The program of a seed."""
        draw = random.Random(seed)
        replicas = draw.choice((1, 1, 1, 1, 2))
        workers = 4 if replicas == 2 else draw.choice((2, 3))
        # Rank 2 of 3 is not in the "part", and gets no messages.
        odd = draw.randrange(workers if replicas == 2 else 2)
        # With several calls in flight, cycles of ranks across communicators are not detected.
        place = "copies" if replicas == 2 else draw.choice(("world", None, None))
        calls = tuple(_drawn(draw, place) for _ in range(draw.choice(CALLS)))
        difference = None
        while difference is None:
            difference = _differing(draw, calls, place)
        return cls(seed, workers, replicas, draw.choice(("shared-memory", "tcp")), odd, calls, difference)


def _drawn(draw: random.Random, only_place: str | None, but: str = "") -> ProgramCall:
    place = only_place or draw.choice(("world", "world", "part", "turned"))
    name = draw.choice([name for name, kind in KINDS.items() if place in kind.places.split() and name != but])
    options = tuple((option, draw.choice(choices)) for option, choices in KINDS[name].options.items())
    return ProgramCall(name, options, place, later=only_place is not None and draw.random() < 0.4)


def _differing(draw: random.Random, calls: tuple[ProgramCall, ...], only_place: str | None) -> SeededDifference | None:
    """Return one deviation from these calls, or None if the drawn one has no effect."""
    number = draw.randrange(len(calls))
    before, call, after = calls[:number], calls[number], calls[number + 1 :]
    how = draw.choice(("option", "option", "option", "option", "less", "more", "order", "other", "place"))
    if how == "option" and call.options:
        name, value = draw.choice(call.options)
        others = [other for other in KINDS[call.kind].options[name] if other != value]
        other = call.with_option(name, draw.choice(others))
        what = f"call {number} is {other}"
        need_none = name in MAY_COME_TO_THE_SAME or (call.kind, name) == ("message", "back")
        return SeededDifference(what, (*before, other, *after), need_none)
    if how == "less":
        return SeededDifference(f"call {number} is left out", (*before, *after), call.kind == "message")
    if how == "more":
        other = _drawn(draw, only_place)
        return SeededDifference(
            f"{other} comes before call {number}", (*before, other, call, *after), other.kind == "message"
        )
    if how == "order" and after and replace(after[0], later=call.later) != call:
        # Calls of two communicators, or a message and a call, need no order as long as neither waits for the other.
        need_none = call.place != after[0].place or "message" in (call.kind, after[0].kind)
        turned = (*before, after[0], call, *after[1:])
        return SeededDifference(f"calls {number} and {number + 1} are turned", turned, need_none)
    if how == "other":
        other = _drawn(draw, only_place, but=call.kind)
        return SeededDifference(f"call {number} is {other}", (*before, other, *after))
    if how == "place" and only_place is None:
        places = [place for place in KINDS[call.kind].places.split() if place not in (call.place, "copies")]
        if places:
            other = replace(call, place=draw.choice(places))
            return SeededDifference(f"call {number} is {other}", (*before, other, *after))
    return None


def perform(comm: rp.Communicator, calls: tuple[ProgramCall, ...], replicas: int) -> None:
    """One rank's part."""
    if replicas == 2:
        places = {"copies": comm.replicate(2)}
    else:
        part = comm.split(0 if comm.rank < 2 else None)
        turned = comm.split(0, key=-comm.rank)
        assert turned is not None
        places = {"world": comm, "turned": turned, **({} if part is None else {"part": part})}
    begun: list[Any] = []
    for call in calls:
        if call.place in places:
            at = PlayStage(places[call.place], places, begun, call.later)
            KINDS[call.kind].call(at, **dict(call.options))
    for handle in begun:
        handle.wait()
    # A missing call is detected in the next call of the same communicator. Some ranks may detect a deviation one call
    # later than others.
    for each in (*places.values(), comm, comm):
        each.allreduce(np.zeros(11, np.uint8), op="xor")


def play(program: SeededProgram, is_odd: bool = True) -> dict[int, BaseException | None]:
    """Run it in a world of threads, with the odd rank deviating as drawn, or like the others.

    Returns
    -------
    dict of int to error or None
        The outcome of each rank; ranks that still wait are missing.
    """
    workers = program.workers
    cards, met, over = [""] * workers, threading.Barrier(workers), threading.Event()
    ends: queue.SimpleQueue[tuple[int, BaseException | None]] = queue.SimpleQueue()

    def exchange(rank: int, card: str) -> list[str]:
        cards[rank] = card
        met.wait(BOUND_S)
        return cards

    def be(rank: int) -> None:
        options: dict[str, Any] = {"token": b"test", "replicas": program.replicas, "links": program.links}
        native = _native.Communicator.connect(rank, workers, lambda card: exchange(rank, card), **options)
        # Start only after all ranks have arrived: otherwise a failure would look like a bootstrap failure.
        met.wait(BOUND_S)
        with rp.Communicator(native) as comm:
            ends.put((rank, _error_of(comm, program, rank, is_odd)))
            # Keep every rank until all have been notified.
            over.wait(BOUND_S)

    ranks = [threading.Thread(target=be, args=(rank,), daemon=True) for rank in range(workers)]
    for each in ranks:
        each.start()
    ended: dict[int, BaseException | None] = {}
    try:
        while len(ended) < workers:
            rank, error = ends.get(timeout=BOUND_S)
            ended[rank] = error
    except queue.Empty:
        return ended
    over.set()
    for each in ranks:
        each.join(BOUND_S)
    return ended


def _error_of(comm: rp.Communicator, program: SeededProgram, rank: int, is_odd: bool) -> BaseException | None:
    try:
        perform(comm, program.difference.calls if is_odd and rank == program.odd else program.calls, program.replicas)
    except Exception as error:
        comm.abort(f"{type(error).__name__}: {error}")
        return error
    return None


def fault_of(program: SeededProgram, is_odd: bool = True) -> str | None:
    """Return a description of a wrong end of the program, or None."""
    ended = play(program, is_odd)
    missing = set(range(program.workers)) - ended.keys()
    if missing:
        return f"{program}\n  ranks {sorted(missing)} still wait after {BOUND_S:g} s; the others: {ended}"
    wrong = {rank: error for rank, error in ended.items() if error is not None}
    if not is_odd:
        return f"{program}\n  though no rank differed: {wrong}" if wrong else None
    if program.difference.may_be_none and not wrong:
        return None
    for rank, error in sorted(ended.items()):
        if not _tells(error):
            return f"{program}\n  rank {rank} was told {error!r}"
    return None


def _tells(error: BaseException | None) -> bool:
    """Return whether an error names two ranks and their calls."""
    text = str(error)
    described = len(set(re.findall(r"called [^;]*|: [^;]*", text))) > 1 or "which sends" in text
    if isinstance(error, rp.CollectiveMismatch):
        return "rank" in text and described
    # Sparse reductions compare their options, tables their partitions; replicas detect each other's deviation by a
    # failure.
    words = ("expected the same on every rank", "beside shape")
    return isinstance(error, rp.InputError | rp.RankFailed) and any(each in text for each in words)
