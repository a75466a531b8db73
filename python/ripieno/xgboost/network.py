"""`network`: XGBoost's own collectives among the ranks of a communicator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ripieno.comm.communicator import Communicator
from ripieno.errors import RipienoError

#: How long ranks and their tracker wait for each other, in seconds.
TIMEOUT_S = 300


@contextmanager
def network(comm: Communicator, *, host: str | None = None, timeout_s: int = TIMEOUT_S) -> Iterator[None]:
    """Within it XGBoost trains on the rows of all ranks; a collective.

    Rank 0 runs XGBoost's tracker on a free port, and tells the others where. Ranks have the same numbers there as here.

    Parameters
    ----------
    comm
        The ranks.
    host
        Under which name or address the others reach rank 0; by default loopback where all are of one host, and that
        host's name otherwise.
    timeout_s
        How long they wait for each other.

    Raises
    ------
    RipienoError
        The tracker cannot start, or the ranks do not meet at it.
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
        # XGBoost numbers ranks by their names, as a sorted list has them.
        collective.init(**where, dmlc_task_id=f"{comm.rank:010d}", dmlc_timeout=timeout_s)
    except XGBoostError as error:
        raise RipienoError(f"rank {comm.rank} on {comm.hosts[comm.rank]} does not meet the others: {error}") from error
    try:
        yield
    finally:
        collective.finalize()
    if tracker is not None:
        tracker.wait_for(timeout_s)


def _tracker(comm: Communicator, host: str | None, timeout_s: int) -> tuple[Any, dict[str, Any] | str]:
    """A tracker that listens, and what leads to it; or why there is none."""
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
