"""Shared parts of tests on Dask."""

from __future__ import annotations

from typing import Any

import ripieno as rp

#: Options of a cluster with workers in this process and without other listeners.
INSIDE = {"processes": False, "dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
# Maximum time from the end of a worker to the caller's error, and to the end of all ranks.
PROMPT_S = 5.0
# Maximum time for a nanny to restart a worker on a busy machine.
RESTART_S = 60.0


def launch(client: Any, workers: int | None = None, **options: Any) -> rp.Job:
    """Launch a job in the cluster of `client`."""
    return rp.launch(workers, engine="dask", client=client, **options)


def workers(client: Any) -> list[str]:
    """Return the addresses of all workers."""
    return sorted(client.sync(client.scheduler.identity, n_workers=-1)["workers"])


def place(comm: Any) -> str:
    """Return the address of the worker that runs this rank."""
    from distributed import get_worker

    assert comm.allreduce(1) == comm.world_size
    return get_worker().address


def ranks_left(client: Any) -> list[str]:
    """Return the ranks' tasks that workers run or are about to start, whether known to the scheduler or not."""
    from ripieno.launch.engines.dask import engine

    found = client.run(_unfinished, on_error="return")
    return [key for keys in found.values() if isinstance(keys, set) for key in engine._ranks(keys)]


def _unfinished(dask_worker: Any) -> set[str]:
    """Return the keys of a worker's tasks; a cancelled task may start before its worker is notified."""
    ended = ("memory", "error", "released", "forgotten")
    begun = {task for task in dask_worker.state.tasks.values() if task.state not in ended}
    return {str(task.key) for task in begun | dask_worker.state.all_running_tasks}
