"""Provide the actors of a job in Ray: their control in the launching process, and their code on the nodes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ripieno._version import __version__
from ripieno.launch.deadline import pauses
from ripieno.launch.engine.contract import Run
from ripieno.launch.engine.member_server import Invitation
from ripieno.launch.engines.ray.session import one_line
from ripieno.launch.limits import LEAVE_S


class RayRun(Run):
    """The actors of a job, one in each bundle of a placement group. Each actor serves in one long call.

    Parameters
    ----------
    group : PlacementGroup
        A ready group, with a bundle for each rank; it is removed at the end.
    options : dict
        Options of every actor.
    invitation : Invitation
    leave : callable
        Called at the end, when Ray is no longer needed.

    Attributes
    ----------
    actors : list of ray.actor.ActorHandle
        In order of rank.
    """

    def __init__(
        self, group: PlacementGroup, options: dict[str, Any], invitation: Invitation, leave: Callable[[], None]
    ) -> None:
        self._group = group
        self._leave = leave
        self._ended = False
        member = _member_class()
        self.actors: list[Any] = [
            member.options(
                **options,
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank),
            ).remote()
            for rank in range(len(group.bundle_specs))
        ]
        super().__init__()
        pickled = pickle.dumps(invitation)
        calls = [actor.serve.remote(rank, pickled, __version__) for rank, actor in enumerate(self.actors)]
        # Ray's own wait functions block forever once this process has disconnected from Ray.
        self._serving = [call.future() for call in calls]
        for rank, serving in enumerate(self._serving):
            serving.add_done_callback(partial(self._served, rank))

    def end(self) -> None:
        if self._ended:
            return
        self._ended = True
        try:
            # Without this check, a call after shutdown would start Ray again.
            if ray.is_initialized():
                with suppress(RayError):
                    self._dismiss()
        finally:
            self._leave()

    def _dismiss(self) -> None:
        """Let idle actors exit, kill the others, and wait until their bundles are free."""
        try:
            served = wait(self._serving, LEAVE_S).done
            # The process of an actor that is not killed exits normally and runs its exit handlers.
            leaving = [
                actor.__ray_terminate__.remote().future()
                for actor, serving in zip(self.actors, self._serving, strict=True)
                if serving in served
            ]
            wait(leaving, LEAVE_S)
        finally:
            for actor in self.actors:
                ray.kill(actor)
            remove_placement_group(self._group)
        wait(self._serving, LEAVE_S)
        # Ray does not report when a node has released a bundle. A job that requests it earlier waits for a second.
        for _ in pauses(LEAVE_S):
            if not any(self._group.id.hex() in name for name in ray.cluster_resources()):
                break

    def _served(self, rank: int, serving: Future[None]) -> None:
        error = serving.exception()
        if error is not None:
            self.failed(rank, _cause_of(error))


def _cause_of(error: BaseException) -> str:
    """Return the cause of an actor's end in one line."""
    if isinstance(error, RayTaskError):
        return f"{type(error.cause).__name__}: {one_line(error.cause)}"
    _, found, ending = str(error).partition("The actor is dead because ")
    # Ray appends a list of all common causes, which is removed.
    return "its actor died: " + one_line(ending.partition(" Some common causes")[0] if found else error)


def _member_class() -> Any:
    """Return the class of the actors. It is local so that Ray sends it by value and it works without ripieno there."""

    @ray.remote(concurrency_groups={"objects": 1})
    class RipienoMember:
        def __init__(self) -> None:
            # Values of the stand-ins among the arguments of programs.
            self.local: dict[str, Any] = {}

        def serve(self, rank: int, invitation: bytes, version: str) -> None:
            import platform
            import sys

            where = f"{sys.executable} on {platform.node()}"
            remedy = f"install ripieno {version} there, or send it: runtime_env={{'py_modules': [ripieno]}}"
            try:
                import ripieno
            except ImportError as error:
                raise RuntimeError(f"{where} cannot import ripieno ({error}): {remedy}") from None
            if ripieno.__version__ != version:
                raise RuntimeError(f"{where} has ripieno {ripieno.__version__}, the caller has {version}: {remedy}")
            import pickle

            import ray

            from ripieno.launch.member import serve

            serve(pickle.loads(invitation), rank, bind_host=ray.util.get_node_ip_address(), local=self.local)

        @ray.method(concurrency_group="objects")  # type: ignore[untyped-decorator]  # mypy skips Ray
        def take(self, name: str, blocks: bool, *values: Any) -> None:
            if blocks:
                import pyarrow as pa

                from ripieno.launch.engine.batches import Batches

                table = pa.concat_tables(values)
                self.local[name] = Batches(table.to_batches(), table.schema)
            else:
                (self.local[name],) = values

        @ray.method(concurrency_group="objects")  # type: ignore[untyped-decorator]  # mypy skips Ray
        def drop(self, name: str) -> None:
            self.local.pop(name, None)

    return RipienoMember
