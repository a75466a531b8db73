"""Provide Dask data as arguments of a program: each rank gets the chunks that its worker holds.

A future or a delayed value is the same on every rank. From an array, a frame, a bag or a list of futures, each rank
gets the chunks on its worker, in order; docs/engines/dask.md describes how they are joined.
Chunks on workers without a rank go to the ranks with the fewest chunks. A rank without chunks on its worker takes some
from the ranks with the most. Only these chunks are transferred between workers; the others are read in place.
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
from ripieno.launch.engine.contract import Engine, EngineJob
from ripieno.launch.engines.dask.run import DaskRun
from ripieno.launch.job.programs import ProgramCall
from ripieno.launch.job.stand_ins import local
from ripieno.launch.limits import POLL_S


class DaskJob(EngineJob):
    """A job in a Dask cluster; `run` accepts Dask arrays, frames, bags, and lists of futures as arguments."""

    def __init__(self, engine: Engine, workers: int, client: Client, **options: Any) -> None:
        self._client = client
        super().__init__(engine, workers, **options)

    def _run_once(self, call: ProgramCall, *, keeps_checkpoints: bool = True) -> list[Any]:
        return super()._run_once(call.mapped(self._shared), keeps_checkpoints=keeps_checkpoints)

    def _shared(self, value: Any) -> Any:
        """Return `value`, or for Dask data an object that becomes a rank's share on the rank."""
        is_list = isinstance(value, list | tuple) and value and all(isinstance(each, Future) for each in value)
        if not (is_list or isinstance(value, Future) or is_dask_collection(value)):
            return value
        if any(future.client is not self._client for future in futures_of(value)):
            raise InputError(f"a {type(value).__name__} of another Dask client: launch with client= and that client")
        if is_list:
            return self._share_of(list, list(value))
        if isinstance(value, Future | Delayed):
            future = self._client.compute(value) if isinstance(value, Delayed) else value
            self._await([future])
            return _Share(itemgetter(0), [[future.key]] * self.workers, [future])
        join = _join_function(value)
        # If persisted again, Dask would rename the chunks, and might move them.
        if not all(isinstance(chunk, Future) for chunk in dict(value.__dask_graph__()).values()):
            value = self._client.persist(value)
        # A key consists of a name and the position of the chunk.
        return self._share_of(join, sorted(futures_of(value), key=lambda future: future.key[1:]))

    def _share_of(self, join: Callable[[list[Any]], Any], futures: list[Future]) -> _Share:
        self._await(futures)
        run = self._started
        assert isinstance(run, DaskRun), "ranks in Dask are tasks of Dask"
        places = {worker: rank for rank, worker in enumerate(run.places)}
        has = self._client.who_has(futures)
        holders = [[places[each] for each in has[future.key] if each in places] for future in futures]
        chunks = [[futures[chunk].key for chunk in share] for share in shares(holders, self.workers)]
        return _Share(join, chunks, futures)

    def _await(self, futures: list[Future]) -> None:
        """Wait until Dask has computed the futures, while the ranks live; raise the exception of a failed task."""
        for future in futures:
            while not future.done():
                with suppress(TimeoutError):
                    future.exception(timeout=POLL_S)
                self._check_ranks()
            # `result` of a finished future would transfer the value.
            if future.exception() is not None:
                future.result()


def shares(holders: Sequence[Sequence[int]], rank_count: int) -> list[list[int]]:
    """Return the chunks of each rank, in ascending order; ``holders[i]`` lists the ranks that hold chunk i."""
    assigned: list[list[int]] = [[] for _ in range(rank_count)]
    for chunk, ranks in enumerate(holders):
        if ranks:
            min((assigned[rank] for rank in ranks), key=len).append(chunk)
    for chunk, ranks in enumerate(holders):
        if not ranks:
            min(assigned, key=len).append(chunk)
    without_own = [share for share in assigned if not share]
    while without_own:
        fewest, longest = min(without_own, key=len), max(assigned, key=len)
        if len(longest) - len(fewest) <= 1:
            break
        fewest.append(longest.pop())
    return [sorted(share) for share in assigned]


class _Share:
    """An argument that becomes the joined chunks of a rank on the rank."""

    def __init__(self, join: Callable[[list[Any]], Any], chunks: list[list[Any]], futures: list[Future]) -> None:
        self._join = join
        self._chunks = chunks
        # Dask keeps the chunks as long as futures refer to them.
        self._futures = futures

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self._join, self._chunks)


def _opened(join: Callable[[list[Any]], Any], chunks: list[list[Any]]) -> Any:
    worker = get_worker()
    return join(sync(worker.loop, _read, worker, chunks[local()["rank"]]))


async def _read(worker: Any, keys: list[Any]) -> list[Any]:
    """Return the values under `keys`: local values of this worker, and copies of values on other workers."""
    values = {key: worker.data[key] for key in keys if key in worker.data}
    missing_keys = [key for key in keys if key not in values]
    if missing_keys:
        has = await worker.scheduler.who_has(keys=missing_keys)
        copies, missing, failed, _ = await gather_from_workers(has, rpc=worker.rpc, who=worker.address)
        if missing or failed:
            raise LookupError(f"no Dask worker can give {(missing + failed)[0]!r} any more: compute it again")
        values |= copies
    return [values[key] for key in keys]


def _join_function(value: Any) -> Callable[[list[Any]], Any]:
    """Return the function that joins a rank's chunks of `value`."""
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
    """Return whether `value` is an instance of one of these types. Its module is loaded if so."""
    found = sys.modules.get(module)
    return found is not None and isinstance(value, tuple(getattr(found, name) for name in names))


class _Arrays:
    """Joins arrays into one, which is read-only because it may belong to the worker."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._shape = shape
        self._dtype = dtype

    def __call__(self, chunks: list[NDArray[Any]]) -> NDArray[Any]:
        none = [np.empty((0, *self._shape), self._dtype)]
        rows = chunks[0].view() if len(chunks) == 1 else np.concatenate(chunks or none)
        rows.flags.writeable = False
        return rows


class _Frames:
    """Joins pandas frames or series into one."""

    def __init__(self, empty: Any) -> None:
        self._empty = empty

    def __call__(self, chunks: list[Any]) -> Any:
        import pandas

        return chunks[0] if len(chunks) == 1 else pandas.concat(chunks or [self._empty])


def _items(chunks: list[Any]) -> list[Any]:
    return list(chain.from_iterable(chunks))
