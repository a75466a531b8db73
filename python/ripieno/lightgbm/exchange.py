"""LightGBM's network over a communicator, for the duration of a ``with`` block."""

from __future__ import annotations

import ctypes
import threading
from types import TracebackType
from typing import Any, Literal, Self

import ripieno._native as _native
from ripieno.comm.communicator import Communicator
from ripieno.errors import InputError

#: LightGBM's distributed learners that work with its network functions.
LEARNERS = ("data", "voting")


class _Stopped(BaseException):
    """Ends the training in a thread. Programs never see it: the cause of the failure replaces it."""


class Network:
    """LightGBM's network, created by `network`.

    Attributes
    ----------
    params : dict
        Parameters for training in addition to the user's: "tree_learner", "num_machines", "pre_partition" and
        "num_threads".
    calls : int
        Number of exchanges of LightGBM, set at the end of the block.
    bytes : int
        Number of bytes that this rank has sent, set at the end of the block.
    """

    def __init__(self, comm: Communicator, tree_learner: str) -> None:
        self._comm = comm
        self.params: dict[str, Any] = {
            "tree_learner": tree_learner if comm.world_size > 1 else "serial",
            "num_machines": comm.world_size,
            "pre_partition": True,
            "num_threads": comm.threads,
        }
        self.calls = 0
        self.bytes = 0

    def __enter__(self) -> Self:
        if self._comm.world_size == 1:
            return self
        native = self._comm._native
        reduce_scatter, allgather = _native.lightgbm_enter(native, threading.get_ident(), _Stopped)
        library = _library()
        callbacks = ctypes.c_void_p(reduce_scatter), ctypes.c_void_p(allgather)
        if library.LGBM_NetworkInitWithFunctions(self._comm.world_size, self._comm.rank, *callbacks) != 0:
            _native.lightgbm_leave()
            library.LGBM_GetLastError.restype = ctypes.c_char_p
            raise InputError(f"LightGBM rejected the network: {library.LGBM_GetLastError().decode()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._comm.world_size == 1:
            return
        try:
            _library().LGBM_NetworkFree()
        finally:
            exchanged = _native.lightgbm_leave()
        self.calls, self.bytes = exchanged["calls"], exchanged["bytes"]
        failure = exchanged["error"]
        if failure is not None:
            raise failure from (None if error is None or isinstance(error, _Stopped) else error)
        if error is None and not exchanged["reductions"]:
            raise InputError(
                "network: LightGBM has combined no histograms, so ranks have trained separately: pass it the params of "
                f"the network too, lgb.train(params | net.params, data); here they are {self.params}"
            )


def network(comm: Communicator, tree_learner: Literal["data", "voting"] = "data") -> Network:
    """Let LightGBM on the calling thread exchange histograms and splits over `comm`. Every rank must call it.

    Parameters
    ----------
    comm : Communicator
        Communicator of the ranks that train together. Each has its own rows and equal parameters. Inside the block it
        must make no other calls on the communicator while LightGBM trains.
    tree_learner : {"data", "voting"}
        How LightGBM divides the work; see its documentation. Feature-parallel learning requires LightGBM's own sockets.

    Returns
    -------
    Network
        A context manager. Pass its ``params`` to LightGBM together with your own.

    Raises
    ------
    RankFailed, CollectiveMismatch
        At the end of the block, instead of the error of the training: if a rank has failed, or ranks have trained
        differently. Training stops on all ranks.
    InputError
        At the end of the block: if ranks have trained separately because ``params`` were not passed.

    Notes
    -----
    With equal rows on each rank the model equals the model of LightGBM's own sockets. As in LightGBM, metrics refer to
    the rank's own evaluation data: for early stopping pass the same data on each rank.

    Examples
    --------
    >>> import lightgbm as lgb, numpy as np, ripieno as rp
    >>> def program(comm):
    ...     rows = np.arange(comm.rank, 300, comm.world_size)
    ...     x = np.stack([rows % 7, rows % 5], axis=1).astype(float)
    ...     with rp.lightgbm.network(comm) as net:
    ...         booster = lgb.train({"objective": "regression", "verbose": -1} | net.params, lgb.Dataset(x, x[:, 0]), 5)
    ...     return booster.num_trees()
    >>> with rp.launch(workers=2) as job:
    ...     job.run(program)
    [5, 5]
    """
    if tree_learner not in LEARNERS:
        raise InputError(f"tree_learner={tree_learner!r}: expected one of {', '.join(LEARNERS)}")
    return Network(comm, tree_learner)


def _library() -> Any:
    import lightgbm.basic

    return lightgbm.basic._LIB
