"""The actors of a job in Ray: as the process that launched them sees them, and on their nodes."""

from __future__ import annotations

import pickle
import time
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
from ripieno.launch.engine.contract import Run
from ripieno.launch.engine.member_server import Invitation
from ripieno.launch.engines.ray.session import one_line

# Actors that were told to leave have this long to do so; then they are killed, and Ray has as long again to say so.
LEAVE_S = 2.0


class RayRun(Run):
    """An actor in every bundle of a placement group, each of which serves in one long call.

    Parameters
    ----------
    group : PlacementGroup
        Ready, with a bundle for each rank; it is removed at the end.
    options : dict
        Of every actor.
    invitation : Invitation
    leave : callable
        Called at the end, when Ray is needed no more.

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
        said = pickle.dumps(invitation)
        calls = [actor.serve.remote(rank, said, __version__) for rank, actor in enumerate(self.actors)]
        # Who waits by Ray's own means waits for ever once this process has left Ray.
        self._serving = [call.future() for call in calls]
        for rank, serving in enumerate(self._serving):
            serving.add_done_callback(partial(self._served, rank))

    def end(self) -> None:
        if self._ended:
            return
        self._ended = True
        try:
            # Without it, Ray would start anew with whatever is asked of it.
            if ray.is_initialized():
                with suppress(RayError):
                    self._dismiss()
        finally:
            self._leave()

    def _dismiss(self) -> None:
        """Let actors leave that have served, kill the others, and wait until their bundles are free."""
        try:
            served = wait(self._serving, LEAVE_S).done
            # An actor's process that is not killed ends as Python does, and runs what is registered for that.
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
        # Ray tells nobody when a node has taken a bundle back, and a job that asks before waits a second for it.
        deadline = time.monotonic() + LEAVE_S
        while any(self._group.id.hex() in name for name in ray.cluster_resources()) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _served(self, rank: int, serving: Future[None]) -> None:
        error = serving.exception()
        if error is not None:
            self.failed(rank, _account(error))


def _account(error: BaseException) -> str:
    """What has become of an actor, in one line."""
    if isinstance(error, RayTaskError):
        return f"{type(error.cause).__name__}: {one_line(error.cause)}"
    _, found, ending = str(error).partition("The actor is dead because ")
    # Of what may be the reason Ray lists all that it knows of.
    return "its actor died: " + one_line(ending.partition(" Some common causes")[0] if found else error)


def _member_class() -> Any:
    """What the actors are. Made in here, so that Ray sends it by value: without ripieno there, it can say so."""

    @ray.remote(concurrency_groups={"objects": 1})
    class RipienoMember:
        def __init__(self) -> None:
            # What stand-ins among the arguments of programs stand for.
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

        @ray.method(concurrency_group="objects")  # type: ignore[untyped-decorator]  # Ray is not looked into
        def take(self, name: str, blocks: bool, *values: Any) -> None:
            if blocks:
                import pyarrow as pa

                from ripieno.launch.engine.batches import Batches

                table = pa.concat_tables(values)
                self.local[name] = Batches(table.to_batches(), table.schema)
            else:
                (self.local[name],) = values

        @ray.method(concurrency_group="objects")  # type: ignore[untyped-decorator]  # Ray is not looked into
        def drop(self, name: str) -> None:
            self.local.pop(name, None)

    return RipienoMember
