"""Dask data among the arguments of a program: each rank gets the chunks that lie on its worker.

A future or a delayed value is the same on every rank. Of an array, a frame, a bag or a list of futures each rank has
the chunks that lie on its worker, in their order; how they are joined is in docs/engines/dask.md.
Chunks that lie on no rank's worker go to the ranks with the fewest; a rank whose worker has none takes some of those
with the most. Only these travel, from worker to worker; the others are read where they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
from dask import is_dask_collection
from dask.delayed import Delayed
from distributed import Client, Future, futures_of, get_worker
from distributed.utils import sync
from distributed.utils_comm import gather_from_workers
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.launch.engine.contract import LOOK_S, Engine, EngineJob
from ripieno.launch.engines.dask.run import DaskRun
from ripieno.launch.job.stand_ins import local


class DaskJob(EngineJob):
    """Ranks in a Dask cluster; among the arguments of `run` may be Dask arrays, frames, bags, and lists of futures."""

    def __init__(self, engine: Engine, workers: int, client: Client, **options: Any) -> None:
        self._client = client
        super().__init__(engine, workers, **options)

    def _ask(
        self, program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, goes_on: bool = True
    ) -> list[Any]:
        args = tuple(self._shared(value) for value in args)
        kwargs = {name: self._shared(value) for name, value in kwargs.items()}
        return super()._ask(program, args, kwargs, goes_on=goes_on)

    def _shared(self, value: Any) -> Any:
        """`value`, or what becomes a rank's share of it there."""
        is_list = isinstance(value, list | tuple) and value and all(isinstance(each, Future) for each in value)
        if not (is_list or isinstance(value, Future) or is_dask_collection(value)):
            return value
        if any(future.client is not self._client for future in futures_of(value)):
            raise InputError(f"a {type(value).__name__} of another Dask client: launch with client= and that client")
        if is_list:
            return self._placed(list, list(value))
        if isinstance(value, Future | Delayed):
            future = self._client.compute(value) if isinstance(value, Delayed) else value
            self._await([future])
            return _Share(itemgetter(0), [[future.key]] * self.workers, [future])
        join = _joining(value)
        # Asked again, Dask would give chunks that it has new names, and might move them.
        if not all(isinstance(chunk, Future) for chunk in dict(value.__dask_graph__()).values()):
            value = self._client.persist(value)
        # Keys are a name and the place of the chunk.
        return self._placed(join, sorted(futures_of(value), key=lambda future: future.key[1:]))

    def _placed(self, join: Callable[[list[Any]], Any], futures: list[Future]) -> _Share:
        self._await(futures)
        run = self._started
        assert isinstance(run, DaskRun), "ranks in Dask are tasks of Dask"
        places = {worker: rank for rank, worker in enumerate(run.places)}
        has = self._client.who_has(futures)
        holders = [[places[each] for each in has[future.key] if each in places] for future in futures]
        chunks = [[futures[chunk].key for chunk in share] for share in shares(holders, self.workers)]
        return _Share(join, chunks, futures)

    def _await(self, futures: list[Future]) -> None:
        """Wait until Dask has computed them, as long as the ranks live; raises what a task has raised."""
        for future in futures:
            while not future.done():
                with suppress(TimeoutError):
                    future.exception(timeout=LOOK_S)
                self._check_ranks()
            # The result of one that is finished would come here.
            if future.exception() is not None:
                future.result()


def shares(holders: Sequence[Sequence[int]], rank_count: int) -> list[list[int]]:
    """Which chunks each rank gets, in ascending order, if ``holders[i]`` are the ranks that have chunk i."""
    given: list[list[int]] = [[] for _ in range(rank_count)]
    for chunk, ranks in enumerate(holders):
        if ranks:
            min((given[rank] for rank in ranks), key=len).append(chunk)
    for chunk, ranks in enumerate(holders):
        if not ranks:
            min(given, key=len).append(chunk)
    poor = [share for share in given if not share]
    while poor:
        least, most = min(poor, key=len), max(given, key=len)
        if len(most) - len(least) <= 1:
            break
        least.append(most.pop())
    return [sorted(share) for share in given]


class _Share:
    """Among a program's arguments it becomes what a rank's chunks join to."""

    def __init__(self, join: Callable[[list[Any]], Any], chunks: list[list[Any]], futures: list[Future]) -> None:
        self._join = join
        self._chunks = chunks
        # As long as there are futures Dask keeps the chunks.
        self._futures = futures

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self._join, self._chunks)


def _opened(join: Callable[[list[Any]], Any], chunks: list[list[Any]]) -> Any:
    worker = get_worker()
    return join(sync(worker.loop, _read, worker, chunks[local()["rank"]]))


async def _read(worker: Any, keys: list[Any]) -> list[Any]:
    """The values under `keys`: those of this worker itself, others as copies from those that have them."""
    values = {key: worker.data[key] for key in keys if key in worker.data}
    absent = [key for key in keys if key not in values]
    if absent:
        has = await worker.scheduler.who_has(keys=absent)
        copies, missing, failed, _ = await gather_from_workers(has, rpc=worker.rpc, who=worker.address)
        if missing or failed:
            raise LookupError(f"no Dask worker can give {(missing + failed)[0]!r} any more: compute it again")
        values |= copies
    return [values[key] for key in keys]


def _joining(value: Any) -> Callable[[list[Any]], Any]:
    """What makes one value of a rank's chunks of `value`."""
    if _is(value, "dask.array", "Array"):
        if not isinstance(value._meta, np.ndarray) or value.ndim == 0:
            raise InputError(f"a Dask array of {type(value._meta).__name__}, ndim={value.ndim}: expected NumPy's rows")
        if any(len(sizes) > 1 for sizes in value.chunks[1:]):
            raise InputError("a Dask array cut along other axes than the first: x.rechunk({1: -1}) puts rows together")
        return _Arrays(value.shape[1:], value.dtype)
    if _is(value, "dask.dataframe", "DataFrame", "Series"):
        return _Frames(value._meta)
    if _is(value, "dask.bag", "Bag"):
        return _items
    raise InputError(f"a Dask {type(value).__name__} among the arguments: expected an array, a frame, a bag or a value")


def _is(value: Any, module: str, *names: str) -> bool:
    """Whether `value` is one of these, whose module is there if so."""
    found = sys.modules.get(module)
    return found is not None and isinstance(value, tuple(getattr(found, name) for name in names))


class _Arrays:
    """Arrays to one, read-only, as it may be the worker's own."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._shape = shape
        self._dtype = dtype

    def __call__(self, chunks: list[NDArray[Any]]) -> NDArray[Any]:
        none = [np.empty((0, *self._shape), self._dtype)]
        rows = chunks[0].view() if len(chunks) == 1 else np.concatenate(chunks or none)
        rows.flags.writeable = False
        return rows


class _Frames:
    """Pandas frames or series to one."""

    def __init__(self, empty: Any) -> None:
        self._empty = empty

    def __call__(self, chunks: list[Any]) -> Any:
        import pandas

        return chunks[0] if len(chunks) == 1 else pandas.concat(chunks or [self._empty])


def _items(chunks: list[Any]) -> list[Any]:
    return list(chain.from_iterable(chunks))
