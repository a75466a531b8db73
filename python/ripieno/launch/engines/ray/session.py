"""Provide this process's connection to Ray, which all jobs of the process share."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import ray
import ray.util.client
from ray._private import worker

from ripieno.errors import EngineError
from ripieno.launch.limits import CONNECT_S


class Session:
    """A connection to Ray. An existing connection is reused; a new one ends with the last job that needs it.

    Attributes
    ----------
    is_own : bool
        Whether this connection has started Ray, which then ends with it.
    """

    def __init__(self) -> None:
        # A finalizer may call `leave` while this thread is in `join`.
        self._lock = threading.RLock()
        self._users = 0
        self._is_connected_here = False
        self.is_own = False

    def join(self, address: str | None, runtime_env: dict[str, Any]) -> dict[str, Any]:
        """Connect until `leave` is called; return the part of `runtime_env` that actors must still request themselves.

        Raises
        ------
        EngineError
            If Ray does not run at `address`, or this process is in another cluster or outside of any.
        """
        with self._lock:
            if (address or "").startswith("ray://") or ray.util.client.ray.is_connected():
                raise EngineError(
                    "ranks cannot reach a process outside of the cluster, which uses Ray by ray://: run this program "
                    "on a node of it, for example by ray job submit"
                )
            if ray.is_initialized():
                joined = ray.get_runtime_context().gcs_address
                if address not in (None, "auto", joined):
                    raise EngineError(f"address={address!r}, but this process is in the Ray at {joined} already")
            else:
                _init(address, runtime_env)
                self._is_connected_here, runtime_env = True, {}
                self.is_own = worker._global_node.is_head()
            self._users += 1
            return runtime_env

    def leave(self) -> None:
        """End one use of the connection. Must be called once for each `join`."""
        with self._lock:
            self._users -= 1
            if self._is_connected_here and not self._users:
                self._is_connected_here = self.is_own = False
                ray.shutdown()


def one_line(text: object) -> str:
    """Return the text without line breaks, tabs and indents."""
    return " ".join(str(text).split())


def _init(address: str | None, runtime_env: dict[str, Any]) -> None:
    where = address or os.environ.get("RAY_ADDRESS", "")
    try:
        if ":" in where:
            # Ray itself retries for minutes, and then ends the process.
            host, port = where.rsplit(":", 1)
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
        ray.init(address, runtime_env=runtime_env or None)
    except (OSError, RuntimeError, ValueError) as error:
        raise EngineError(f"cannot join Ray at {where or 'this machine'}: {one_line(error)}") from error
