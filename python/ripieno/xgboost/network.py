"""`network`: runs XGBoost's own collectives among the ranks of a communicator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ripieno.comm.communicator import Communicator
from ripieno.errors import RipienoError

#: Time limit in seconds for the ranks and the tracker to join.
TIMEOUT_S = 300


@contextmanager
def network(comm: Communicator, *, host: str | None = None, timeout_s: int = TIMEOUT_S) -> Iterator[None]:
    """Let XGBoost train on the rows of all ranks within the ``with`` statement; a collective.

    Rank 0 runs XGBoost's tracker on a free port, and broadcasts the address. Ranks keep their numbers in XGBoost.

    Parameters
    ----------
    comm
        Communicator of the ranks.
    host
        Name or address of rank 0 for the others; by default loopback if all ranks run on one host, else the
        name of rank 0's host.
    timeout_s
        Time limit in seconds for the ranks to join.

    Raises
    ------
    RipienoError
        If the tracker cannot start, or the ranks do not join it.
    """
    from xgboost import collective
    from xgboost.core import XGBoostError

    if comm.world_size == 1:
        yield
        return
    tracker, where = _tracker(comm, host, timeout_s) if comm.rank == 0 else (None, None)
    where = comm.broadcast(where)
    if isinstance(where, str):
        raise RipienoError(f"XGBoost's tracker on {comm.hosts[0]}: {where}")
    try:
        # XGBoost numbers ranks in the order of their sorted task ids.
        collective.init(**where, dmlc_task_id=f"{comm.rank:010d}", dmlc_timeout=timeout_s)
    except XGBoostError as error:
        raise RipienoError(f"rank {comm.rank} on {comm.hosts[comm.rank]} cannot join XGBoost: {error}") from error
    try:
        yield
    finally:
        collective.finalize()
    if tracker is not None:
        tracker.wait_for(timeout_s)


def _tracker(comm: Communicator, host: str | None, timeout_s: int) -> tuple[Any, dict[str, Any] | str]:
    """Return a listening tracker and its connection parameters, or the reason why it cannot start."""
    from xgboost.core import XGBoostError
    from xgboost.tracker import RabitTracker

    if host is None:
        host = "127.0.0.1" if len(set(comm.hosts)) == 1 else comm.hosts[0]
    try:
        tracker = RabitTracker(comm.world_size, host_ip=host, sortby="task", timeout=timeout_s)
        tracker.start()
        return tracker, dict(tracker.worker_args())
    except (XGBoostError, OSError, ValueError) as error:
        return None, f"{host}: {error}"
