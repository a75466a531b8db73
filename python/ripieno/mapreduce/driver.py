"""Provide `MapReduce`, the driver of iterative map-reduce.

A step is broadcast → map → shuffle → reduce → combine. Workers, their map tasks and the partitions of the input persist
between steps. Only the broadcast value, the combined rows of each rank's tasks, and the result are transferred.
Source: Zhang et al., "Social image clustering with iterative MapReduce (Twister)", sections 3 and 5.1, tables 1 and 3.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ripieno._checks import check_count, check_threads
from ripieno.checkpoints.iterations import CheckpointOptions
from ripieno.errors import CommunicatorClosed, InputError
from ripieno.files.sources import absolute, is_url
from ripieno.input import Split
from ripieno.keyed.combiners import Combine, combiner_of
from ripieno.launch import Job
from ripieno.launch.job.accumulators import Amounts, fold
from ripieno.mapreduce import statistics, worker
from ripieno.mapreduce.blocks import joined
from ripieno.mapreduce.emitted import Shuffle
from ripieno.mapreduce.progress import StepProgress
from ripieno.mapreduce.serialized_value import SerializedValue
from ripieno.mapreduce.statistics import Stage, StepStatistics
from ripieno.mapreduce.tasks import Task, as_partitions, assign_tasks
from ripieno.mapreduce.team import JobRanks, ProgramRanks, RankTeam
from ripieno.wire.fingerprint import fingerprint

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

R = TypeVar("R")

#: Tasks move in the next step if the map times of ranks differ by more than both limits: seconds, and the fraction of
#: the longest time.
UNEVEN_S, UNEVEN_FRACTION = 0.02, 0.1


class MapReduce(StepProgress):
    """An iterative map-reduce job. Use it in a ``with`` statement, which ends its workers.

    Parameters
    ----------
    map : callable
        ``map(partition, value)`` of each map task receives its partition and the last broadcast value (None before the
        first). Their arrays are read-only. It returns `KeyValues` or ``(keys, values)``; or a `Table` or a dict of ids
        to arrays; or None. Keys are integers or strings, and values are numbers or rows of numbers. Lists of any other
        keys or values, such as tuples, become `ObjectPairs`.
    combine : str or callable, default="sum"
        How to combine rows of equal keys, or arrays of equal ids, as for `Communicator.regroup`: "sum", "prod", "min",
        "max", "and", "or", "xor", a function of two blocks of rows, or "concat", which keeps all rows. Objects are
        combined one by one: a function gets two values.
    reduce : callable, optional
        ``reduce(keys, values)`` receives blocks of keys as soon as they are complete. Each key is in one block of one
        rank. It returns the same types as `map`, or any other object. A pair always means keys and values, and a dict a
        table: put other pairs and dicts into a list. With "concat" the call is ``reduce(keys, values, offsets)``, and
        the rows of key i are ``values[offsets[i]:offsets[i + 1]]``. For tables it is ``reduce(id, array)``, which
        returns an array. For objects it is ``reduce(keys, values)`` with two lists, also with "concat", which makes
        every value a list.
    collect : callable, optional
        ``collect(result)`` runs in the driver and computes the result of `step` from the results of all ranks.
    workers : int, optional
        Number of worker processes to start for the job, as `launch` does, which also receives the `options`. With
        ``on_failure="shrink"`` or "respawn", here or of `job`, the driver keeps the input and the broadcast value. If
        workers are lost, the survivors or replacements load the input again, and the step is repeated.
    threads : int, default=1
        Number of map tasks that a worker runs at the same time. With more than one, `map` must be thread-safe.
    name : str
        Name of the job. A restarted job with the same name resumes from its checkpoint if its functions are the same:
        their code, default arguments, closures, and arguments of a `functools.partial`. The input, broadcast values,
        global variables and functions called by a global name are not compared. If these change, choose another name.
    checkpoint : path, optional
        Folder for checkpoints; see `iterations`. Arrays, numbers, strings, keyed data, and lists, tuples and dicts of
        these are stored without pickle. Other objects are pickled, and loading a pickle can run any code. Therefore a
        folder that another user owns, or that other users can write to, is rejected.
    trusted : bool, default=False
        Whether to resume from such a folder anyway.
    every : int, default=1
        Number of iterations between checkpoints.
    keep : int, default=2
        Number of checkpoints to keep. If the last one is incomplete, the job resumes from the previous
        one, with a warning.
    stealing : bool, default=True
        Whether ranks without further tasks run tasks of slower ranks, if they have the partition: an object of the
        list, or a split with a file on their host. The result has the same bits. Choose False if `map` keeps a state of
        its own between steps.
    partitioner : callable or str, optional
        The rank of each key, as for `Communicator.regroup`.
    local_reduction : bool, default=True
        Whether the rows of all tasks of a rank are combined before they are sent. Tables always are.
    memory_limit, spill_directory : int and path, optional
        Maximum bytes of rows that a rank holds in memory, and the folder for further rows, as for
        `Communicator.regroup`. Tables have no limit: they are combined on arrival and stay in memory.
    job : Job, optional
        Existing workers. They continue to run when this job is closed.
    comm : Communicator, optional
        Inside a program: all ranks make the same calls and get the same results. The job uses rank 0's broadcast
        values, and rank 0 writes the checkpoints.

    Attributes
    ----------
    tasks : list of Task
        The map tasks, with their ranks.
    iteration : int
        The number of completed iterations.
    result : object
        The result of the last step; None before the first.
    state : dict
        The user's own state. Checkpoints store and restore it.
    resumed_from : int or None
        The number of completed iterations in the resumed checkpoint.
    statistics : list of StepStatistics
        Seconds and bytes of every stage of every step.

    Raises
    ------
    CheckpointError
        The checkpoint is damaged, in use, or of another job or program, or other users may have written it.
    InputError
        A parameter is wrong.

    Examples
    --------
    >>> import ripieno as rp
    >>> def count(words, _):
    ...     return words, [1] * len(words)
    >>> with rp.MapReduce(count, workers=1) as job:
    ...     tasks = job.cache([["fig", "pear"], ["fig"]])
    ...     job.step().sorted(by="key").to_arrow().to_pydict()
    {'key': ['fig', 'pear'], 'value': [2, 1]}
    """

    def __init__(
        self,
        map: Callable[[Any, Any], Any],
        *,
        combine: Combine = "sum",
        reduce: Callable[..., Any] | None = None,
        collect: Callable[[Any], Any] | None = None,
        workers: int | None = None,
        threads: int = 1,
        name: str = "mapreduce",
        checkpoint: str | os.PathLike[str] | None = None,
        trusted: bool = False,
        every: int = 1,
        keep: int = 2,
        stealing: bool = True,
        partitioner: Any = None,
        local_reduction: bool = True,
        memory_limit: int | None = None,
        spill_directory: str | os.PathLike[str] | None = None,
        job: Job | None = None,
        comm: Communicator | None = None,
        **options: Any,
    ) -> None:
        if sum((job is not None, comm is not None, workers is not None or bool(options))) > 1:
            raise InputError("job=, comm= and workers= (with options of launch): expected one of them")
        check_threads(threads)
        for parameter, count in (("every", every), ("keep", keep)):
            check_count(parameter, count)
        functions = {"map": map, "reduce": reduce, "collect": collect}
        for parameter, function in functions.items():
            if not callable(function) and (function is not None or parameter == "map"):
                raise InputError(f"{parameter}: a {type(function).__name__}: expected a function")
        super().__init__(name)
        self.tasks: list[Task] = []
        self.statistics: list[StepStatistics] = []
        self._map, self._reduce, self._collect = map, reduce, collect
        self._shuffle = Shuffle(combine, partitioner, local_reduction, memory_limit, spill_directory)
        self._threads = int(threads)
        self._stealing = bool(stealing)
        # Whether the ranks took different times for the tasks of the last step, or may have.
        self._is_uneven = True
        self._options = {"workers": workers, **options}
        self._job, self._comm = job, comm
        self._team_or_none: RankTeam | None = None
        self._closed = False
        self._can_move = False
        self._known_accumulators = -1
        self._load, self._broadcast = Stage(), Stage()
        # Sends the tasks to the ranks again, if the job continues after a loss.
        self._load_again: Callable[[RankTeam], None] | None = None
        self._value: SerializedValue | None = None
        if checkpoint is not None:
            program = fingerprint({**functions, "combine": combine})
            self._open(CheckpointOptions(absolute(checkpoint), int(every), int(keep), trusted), program, comm)

    @property
    def workers(self) -> int:
        """The number of ranks that do the work. Reading it starts them."""
        return len(self._team.hosts)

    def cache(
        self, partitions: Any, *, tasks: int | None = None, loader: Callable[[Any], Any] | None = None
    ) -> list[Task]:
        """Set the input of the job: one map task per partition, loaded once by the rank that runs it in every step.

        Each rank gets a contiguous part of the list. The largest part is as small as possible, by size if all sizes are
        known. If the hosts of splits are known, ranks get splits that lie on their hosts; see `ripieno.input.assign`.

        Parameters
        ----------
        partitions : list, or array of shape (n, ...)
            Arrays, splits of files (`ripieno.input`), which their ranks read, or any other objects. An array is cut
            into blocks of rows. For a `numpy.memmap` only the name of the file is sent: each rank reads its blocks into
            memory, so the file may change after this call. Other arrays must not change later.
        tasks : int, optional
            Number of blocks for an array; by default one per rank.
        loader : callable, optional
            ``loader(partition)`` returns the argument of `map`, on the rank that keeps the partition. By default splits
            are read, and other partitions are passed unchanged. Mapped files in the result, also in lists, tuples and
            dicts, are read into memory. A partition that is larger than memory must be read in `map`: return its path.

        Returns
        -------
        list of Task
        """
        team = self._team
        if tasks is not None and not isinstance(partitions, np.ndarray):
            raise InputError(f"tasks={tasks}: an array can be cut into tasks, a list has one for each partition")
        items, names = as_partitions(partitions, len(team.hosts) if tasks is None else tasks)
        load = partial(
            self._load_tasks,
            items,
            names,
            SerializedValue(worker.default_loader if loader is None else loader, "loader"),
            loader is None,
        )
        self._on_ranks(load)
        if team.restarts:
            self._load_again = load
        return self.tasks

    def broadcast(self, value: Any) -> None:
        """Send a value to the map tasks of all later steps. Tasks get its arrays read-only, without conversion.

        Arrays must not change before these steps have ended, because a single worker reads them in place.
        """
        team, begin = self._team, time.perf_counter()
        serialized = SerializedValue(
            value if self._comm is None else self._comm.broadcast(value), "the broadcast value"
        )
        self._on_ranks(lambda team: team.run(worker.receive, serialized))
        if team.restarts:
            self._value = serialized
        self._broadcast = Stage((time.perf_counter() - begin,), (serialized.size_bytes,))

    def step(self) -> Any:
        """Map, shuffle, reduce and combine, once.

        Returns
        -------
        KeyValues, Groups, Table, ObjectPairs, list or None
            The results of `reduce`, or the combined rows without `reduce`, of rank 0, 1 …: keyed data as one object,
            other objects in a list, None if there are no results. With `collect`, its result.

        Raises
        ------
        Exception
            The error of a function, with a note that names the task and its partition. The workers' parts of the job
            are lost. A job with the same name resumes from the last checkpoint.
        InputError
            A function has returned an object of a wrong type. The message names the task.
        RankFailed
            A worker has died. A job with the same name resumes from the last checkpoint. With ``on_failure="shrink"``
            or "respawn" the step is repeated instead.
        """
        if not self.tasks:
            raise InputError("step: there are no map tasks: give the job its input with cache()")
        results = self._on_ranks(self._run_step)
        begin = time.perf_counter()
        output = joined([block for result in results for block in result.blocks])
        if self._collect is not None:
            with worker.with_note(f"in collect, iteration {self.iteration + 1}"):
                output = self._collect(output)
        amounts: Amounts = {}
        for result in results:
            fold(amounts, result.amounts, self._additions)
        for accumulator, value in zip(self._accumulators, self._values_with(amounts), strict=True):
            accumulator.value = value
        self.result = output
        self._record(results, time.perf_counter() - begin)
        if not self._in_iterations:
            self._finish_iteration()
        return self.result

    def report(self) -> str:
        """Return `statistics` as a table: the slowest worker's seconds and the total megabytes of each stage."""
        return statistics.table(self.statistics)

    def close(self) -> None:
        """End the job, and its workers if it started them. Repeated calls have no effect."""
        self._close(None)

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<MapReduce {self.name!r}: {len(self.tasks)} map tasks, {self.iteration} iterations done{state}>"

    def __enter__(self) -> MapReduce:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error)

    @property
    def _team(self) -> RankTeam:
        if self._closed:
            raise CommunicatorClosed(f"the job {self.name!r} is closed: make another one")
        if self._team_or_none is None:
            self._team_or_none = JobRanks(self._job, self._options) if self._comm is None else ProgramRanks(self._comm)
        return self._team_or_none

    def _on_ranks(self, call: Callable[[RankTeam], R]) -> R:
        """Return ``call(team)``. If ranks were lost and the job continues, restore their parts and repeat the call."""
        team = self._team
        for left in range(team.restarts, -1, -1):
            try:
                if team.restarts and team.has_lost_parts:
                    team.open_parts()
                    self._restore_parts(team)
                return call(team)
            except worker.PartsLost:
                if not left:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _restore_parts(self, team: RankTeam) -> None:
        """Send the ranks their tasks and the last broadcast value. The next step sends the functions."""
        self._known_accumulators = -1
        if self._load_again is not None:
            self._load_again(team)
        if self._value is not None:
            team.run(worker.receive, self._value)

    def _load_tasks(
        self, items: list[Any], names: list[str], loader: SerializedValue, is_default: bool, team: RankTeam
    ) -> None:
        """Assign the partitions to the ranks, which load them."""
        tasks = assign_tasks(items, names, team.hosts)
        serialized = [_partition(task, item, is_default) for task, item in zip(tasks, items, strict=True)]
        can_move = any(each.hosts is not None for each in serialized)
        self._can_move = self._stealing and can_move and 1 < len(team.hosts) < len(serialized) and not team.has_replicas
        self._is_uneven = True
        options = f", tasks of ranks {[task.rank for task in tasks]}"
        load_times = team.run(worker.load, serialized, loader, self._threads, options=options)
        self.tasks = tasks
        self._load = Stage(*zip(*load_times, strict=True))

    def _run_step(self, team: RankTeam) -> list[worker.Result]:
        """Map, shuffle and reduce on all ranks. Ranks without the functions receive them first."""
        if self._known_accumulators != len(self._accumulators):
            program = worker.TaskFunctions(self._map, self._reduce, self._shuffle, self._threads, self._additions)
            names = [str(each) for each in self._additions.values()]
            options = f", combine={combiner_of(self._shuffle.combine).name}, accumulators={names}"
            team.run(
                worker.configure, SerializedValue(program, "a function of the job", self._accumulators), options=options
            )
            self._known_accumulators = len(self._accumulators)
        results = team.run(worker.step, self._can_move and self._is_uneven)
        seconds = [result.seconds["map"] for result in results]
        has_moved = any(result.moved_count for result in results)
        self._is_uneven = has_moved or max(seconds) - min(seconds) > max(UNEVEN_S, UNEVEN_FRACTION * max(seconds))
        return results

    def _close(self, error: BaseException | None) -> None:
        self._closed = True
        team, self._team_or_none = self._team_or_none, None
        try:
            if team is not None:
                team.close(error)
        finally:
            if self._checkpoint is not None:
                self._checkpoint.close()

    def _record(self, results: list[worker.Result], combine_s: float) -> None:
        stages = {
            stage: Stage(tuple(each.seconds[stage] for each in results), tuple(each.bytes[stage] for each in results))
            for stage in ("map", "shuffle", "reduce")
        }
        combine = Stage((combine_s,), (sum(each.bytes["combine"] for each in results),))
        moved_count = sum(each.moved_count for each in results)
        record = StepStatistics(self.iteration + 1, self._load, self._broadcast, combine, moved_count, **stages)
        self.statistics.append(record)
        self._load, self._broadcast = Stage(), Stage()


def _partition(task: Task, item: Any, is_default: bool) -> worker.SerializedPartition:
    """Return a partition to send, with the hosts that can load it. `is_default` means the job has no loader."""
    serialized = SerializedValue(item, f"the partition of {task}")
    if isinstance(item, Split):
        paths = (item.path, *item.copies)
        if not any(map(is_url, paths)):
            return worker.SerializedPartition(task, serialized, serialized.size_bytes, item.hosts, paths)
    elif is_default and not hasattr(item, "read") and not worker.has_mapped_file(item):
        return worker.SerializedPartition(task, serialized, serialized.size_bytes, ())
    return worker.SerializedPartition(task, serialized, serialized.size_bytes)
