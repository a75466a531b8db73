"""Ray: one actor per rank, in a placement group, so that all ranks are there at once or none is.

Ray brings the invitation, says which actor has died and takes everything back at the end; ranks meet by way of the hub.
Needs ``pip install 'ripieno[ray]'``, and the same ripieno where Ray's workers run.
"""

from __future__ import annotations

import os
import pickle
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

import ray
import ray.util.client
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import ripieno
from ripieno._checks import check_count
from ripieno.errors import EngineError, InputError, TooFewSlots
from ripieno.launch.engine import Engine, EngineJob, Handover, Run
from ripieno.launch.engines.ray_objects import handed_out
from ripieno.launch.hub import Invitation

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
# Actors that were told to leave have this long to do so; then they are killed, and Ray has as long again to say so.
LEAVE_S = 2.0
# A Ray that runs answers at once.
JOIN_S = 5.0


class RayEngine(Engine):
    """Ranks as Ray actors.

    Parameters
    ----------
    address : str, optional
        Of the cluster, as `ray.init` takes it: "auto", "10.0.0.1:6379". A Ray that this process has joined already is
        used as it is; else, without an address, RAY_ADDRESS counts, or a local Ray is started. What is joined or
        started here is left or stopped when the job ends.
    strategy : {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"}
        Of the placement group: on few nodes, on many, on one, on one node each.
    cpus_per_worker : int
        CPUs that Ray sets aside for each rank, which computes with as many threads.
    resources : dict, optional
        What else each rank needs: ``{"GPU": 1, "memory": 2 * 1024**3}``.
    runtime_env : dict, optional
        Ray's runtime environment of the ranks: ``{"env_vars": …}``, ``{"pip": …}``, ``{"working_dir": …}``.
    placement_timeout_s : float
        How long to wait until Ray has room for all ranks.

    Raises
    ------
    InputError
        If an option is wrong.
    EngineError
        If there is no Ray at `address`.
    """

    NAME: ClassVar[str] = "ray"
    OPTIONS: ClassVar[frozenset[str]] = frozenset(
        {"address", "strategy", "cpus_per_worker", "resources", "runtime_env", "placement_timeout_s"}
    )

    def __init__(
        self,
        *,
        address: str | None = None,
        strategy: str = "PACK",
        cpus_per_worker: int = 1,
        resources: Mapping[str, float] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        placement_timeout_s: float = 5.0,
    ) -> None:
        check_count("cpus_per_worker", cpus_per_worker)
        if strategy not in STRATEGIES:
            raise InputError(f"strategy={strategy!r}: expected one of {', '.join(STRATEGIES)}")
        if "CPU" in (resources or {}):
            raise InputError("resources has CPU: say cpus_per_worker")
        self.threads = cpus_per_worker
        self._strategy = strategy
        self._bundle = {"CPU": float(cpus_per_worker), **(resources or {})}
        self._placement_timeout_s = placement_timeout_s
        _refuse_client(address)
        self._runtime_env = _ray.join(address, dict(runtime_env or {}))
        self.leave = weakref.finalize(self, _ray.leave)

    def slots(self) -> int:
        """How many ranks would fit if nothing else ran."""
        rooms = [
            min(int(node["Resources"].get(name, 0) // count) for name, count in self._bundle.items())
            for node in ray.nodes()
            if node["Alive"]
        ]
        if self._strategy == "STRICT_PACK":
            return max(rooms)
        return sum(map(bool, rooms)) if self._strategy == "STRICT_SPREAD" else sum(rooms)

    def host(self) -> str:
        """The address under which Ray's nodes know this one."""
        return ray.util.get_node_ip_address()

    def handover(self) -> Handover:
        """By Ray's own connections."""
        variables = {"RAY_AUTH_MODE": "token", "RAY_USE_TLS": "1"}
        is_authentic, is_encrypted = (os.environ.get(name) == value for name, value in variables.items())
        advice = "set RAY_AUTH_MODE=token, and RAY_USE_TLS=1 with certificates, for every process of Ray"
        return Handover("with the calls of Ray's actors", is_authentic or is_encrypted, is_encrypted, advice)

    def start(self, workers: int, invitation: Invitation) -> Run:
        """An actor per rank, each in its bundle of a placement group.

        Raises
        ------
        TooFewSlots
            If Ray has no room for all of them within `placement_timeout_s`.
        """
        group = placement_group([self._bundle] * workers, strategy=self._strategy)
        try:
            if not group.wait(self._placement_timeout_s):
                raise self._no_room(workers)
            return RayRun(self, group, self._actors(group, workers), invitation)
        except BaseException:
            remove_placement_group(group)
            self.leave()
            raise

    def job(self, workers: int, **options: Any) -> RayJob:
        """The job of so many ranks here; objects of Ray among the arguments of its programs stay in Ray's store."""
        return RayJob(self, workers, **options)

    def _actors(self, group: PlacementGroup, workers: int) -> list[Any]:
        native = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
        needs: dict[str, Any] = {native[name]: count for name, count in self._bundle.items() if name in native}
        needs["resources"] = {name: count for name, count in self._bundle.items() if name not in native}
        if self._runtime_env:
            needs["runtime_env"] = self._runtime_env
        member = _member_class()
        return [
            member.options(
                **needs,
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank),
            ).remote()
            for rank in range(workers)
        ]

    def _no_room(self, workers: int) -> TooFewSlots:
        total, free = ray.cluster_resources(), ray.available_resources()
        room = min(int(free.get(name, 0) // count) for name, count in self._bundle.items())
        asked = ", ".join(
            f"{count:g} {name} ({free.get(name, 0):g} of {total.get(name, 0):g} free)"
            for name, count in self._bundle.items()
        )
        nodes = sum(node["Alive"] for node in ray.nodes())
        advice = (
            f"each takes {asked} on the {nodes} nodes of Ray, strategy {self._strategy}: launch fewer workers, wait "
            "for others to end (placement_timeout_s=…), or give Ray more (ray start --num-cpus=…)"
        )
        return TooFewSlots(self.NAME, workers, room, self.slots(), advice)


class RayJob(EngineJob):
    """Ranks that are Ray actors."""

    def _run(self, program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        with handed_out(self._hold.run.actors, args, kwargs) as (args, kwargs):
            return super()._run(program, args, kwargs)


class RayRun(Run):
    """The actors of a job; each serves in one long call."""

    def __init__(self, engine: RayEngine, group: PlacementGroup, actors: list[Any], invitation: Invitation) -> None:
        super().__init__()
        self._engine = engine  # which would leave Ray if nobody held it
        self._group = group
        self.actors = actors
        said = pickle.dumps(invitation)
        self._serving = [actor.serve.remote(rank, said, ripieno.__version__) for rank, actor in enumerate(actors)]
        self._watch = threading.Thread(target=self._listen, name="ripieno-ray", daemon=True)
        self._watch.start()

    def end(self) -> None:
        """Let actors leave that have been told to, kill the others, give back the placement group."""
        if self._engine.leave.alive:
            with suppress(RayError):
                self._dismiss()
            self._watch.join(LEAVE_S)
            self._engine.leave()

    def _dismiss(self) -> None:
        try:
            served, _ = ray.wait(self._serving, num_returns=len(self._serving), timeout=LEAVE_S)
            # The actor's process ends as Python does, whatever it has registered for that.
            leaving = [
                actor.__ray_terminate__.remote()
                for actor, call in zip(self.actors, self._serving, strict=True)
                if call in served
            ]
            ray.wait(leaving, num_returns=len(leaving), timeout=LEAVE_S)
        finally:
            for actor in self.actors:
                ray.kill(actor)
            remove_placement_group(self._group)
        # Ray tells nobody when a node has taken a bundle back, and a job that asks before waits a second for it.
        deadline = time.monotonic() + LEAVE_S
        while any(self._group.id.hex() in name for name in ray.cluster_resources()) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _listen(self) -> None:
        """Tell of every actor that has failed, until none serves any more."""
        ranks = {call: rank for rank, call in enumerate(self._serving)}
        waiting = self._serving
        while waiting:
            try:
                ended, waiting = ray.wait(waiting)
            except Exception as error:
                self.failed(None, f"Ray is gone: {_one_line(error)}")
                return
            for call in ended:
                try:
                    ray.get(call)
                except Exception as error:
                    self.failed(ranks[call], _account(error))


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

        @ray.method(concurrency_group="objects")
        def take(self, name: str, blocks: bool, *values: Any) -> None:
            if blocks:
                import pyarrow as pa

                self.local[name] = pa.concat_tables(values)
            else:
                (self.local[name],) = values

        @ray.method(concurrency_group="objects")
        def drop(self, name: str) -> None:
            self.local.pop(name, None)

    return RipienoMember


class _Ray:
    """This process's connection to Ray; one made here ends when no engine of this process uses it any more."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._engines = 0
        self._made_here = False

    def join(self, address: str | None, runtime_env: dict[str, Any]) -> dict[str, Any]:
        """Be connected; returns what of the runtime environment the actors still have to ask for."""
        with self._lock:
            if ray.is_initialized():
                _check_same(address)
            else:
                self._init(address, runtime_env)
                self._made_here, runtime_env = True, {}
            self._engines += 1
            return runtime_env

    def _init(self, address: str | None, runtime_env: dict[str, Any]) -> None:
        try:
            where = address or os.environ.get("RAY_ADDRESS", "")
            if ":" in where:
                # Ray itself tries for minutes, and then ends the process.
                host, port = where.rsplit(":", 1)
                socket.create_connection((host.strip("[]"), int(port)), timeout=JOIN_S).close()
            ray.init(address, runtime_env=runtime_env or None)
        except (OSError, RuntimeError, ValueError) as error:
            raise EngineError(f"cannot join Ray at address={address!r}: {_one_line(error)}") from error

    def leave(self) -> None:
        """An engine needs it no more."""
        with self._lock:
            self._engines -= 1
            if self._made_here and not self._engines:
                self._made_here = False
                ray.shutdown()


_ray = _Ray()


def _refuse_client(address: str | None) -> None:
    if (address or "").startswith("ray://") or ray.util.client.ray.is_connected():
        raise EngineError(
            "ranks cannot reach a process outside of the cluster, which uses Ray by ray://: run this program on a node "
            "of it, for example by ray job submit"
        )


def _check_same(address: str | None) -> None:
    joined = ray.get_runtime_context().gcs_address
    if address not in (None, "auto", joined):
        raise EngineError(f"address={address!r}, but this process is in the Ray at {joined}: ray.shutdown() leaves it")


def _account(error: Exception) -> str:
    """What has become of an actor, in one line."""
    if isinstance(error, RayTaskError):
        return f"{type(error.cause).__name__}: {_one_line(error.cause)}"
    _, found, ending = str(error).partition("The actor is dead because ")
    # Of what may be the reason Ray lists all that it knows of.
    return "its actor died: " + _one_line(ending.partition(" Some common causes")[0] if found else error)


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
