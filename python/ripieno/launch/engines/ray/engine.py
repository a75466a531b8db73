"""Provide the Ray engine: one actor per rank in a placement group, so Ray starts either all ranks or none.

Ray delivers the invitation, reports dead actors and releases all resources at the end. Ranks join through the member
server.
Requires ``pip install 'ripieno[ray]'``, and the same version of ripieno on Ray's workers.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import ray
from ray._private.state import available_resources_per_node
from ray.util.placement_group import placement_group, remove_placement_group

from ripieno._checks import check_count
from ripieno.errors import InputError, TooFewSlots
from ripieno.launch.engine.contract import Engine, EngineJob, Handover
from ripieno.launch.engine.member_server import Invitation
from ripieno.launch.engines.ray.objects import objects_on_actors
from ripieno.launch.engines.ray.run import RayRun
from ripieno.launch.engines.ray.session import Session, one_line
from ripieno.launch.job.programs import ProgramCall
from ripieno.launch.process.processes import in_this_process

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")

_session = Session()


class RayEngine(Engine):
    """Runs ranks as Ray actors.

    Parameters
    ----------
    address : str, optional
        Address of the cluster for `ray.init`: "auto", "10.0.0.1:6379". If this process is connected to Ray, that
        connection is used. Otherwise `ray.init` connects to Ray or starts it, until the last job of this process ends.
    strategy : {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"}
        Strategy of the placement group: few nodes, many nodes, one node, or one node per rank.
    cpus_per_worker : int
        CPUs that Ray reserves for each rank, and threads of each rank.
    resources : dict, optional
        Further resources of each rank: ``{"GPU": 1, "memory": 2 * 1024**3}``.
    runtime_env : dict, optional
        Ray's runtime environment for the ranks: ``{"env_vars": …}``, ``{"pip": …}``, ``{"working_dir": …}``.
    placement_timeout_s : float
        Maximum wait until Ray can place all ranks.

    Raises
    ------
    InputError
        If an option is invalid.
    EngineError
        If Ray does not run at `address`.
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
            raise InputError("resources has CPU: use cpus_per_worker")
        self.threads = cpus_per_worker
        self._address = address
        self._strategy = strategy
        self._bundle = {"CPU": float(cpus_per_worker), **(resources or {})}
        self._runtime_env = dict(runtime_env or {})
        self._placement_timeout_s = placement_timeout_s
        self._disconnect: weakref.finalize[[], RayEngine] | None = None
        self._connect()

    def slots(self) -> int:
        """Return the number of ranks that fit if nothing else runs."""
        self._connect()
        return self._rank_capacity(node["Resources"] for node in ray.nodes() if node["Alive"])

    def host(self) -> str:
        """Return the address of this node for Ray's nodes."""
        self._connect()
        address: str = ray.util.get_node_ip_address()
        return address

    @property
    def is_own(self) -> bool:  # type: ignore[override]  # read-only
        """Return whether `ray.init` has found no Ray and started one for this process."""
        return _session.is_own

    def handover(self) -> Handover:
        """Return the security of Ray's connections, which carry the invitation."""
        variables = {"RAY_AUTH_MODE": "token", "RAY_USE_TLS": "1"}
        is_authentic, is_encrypted = (os.environ.get(name) == value for name, value in variables.items())
        advice = "set RAY_AUTH_MODE=token, and RAY_USE_TLS=1 with certificates, for every process of Ray"
        return Handover("with the calls of Ray's actors", is_authentic or is_encrypted, is_encrypted, advice)

    def start(self, workers: int, invitation: Invitation) -> RayRun:
        """Start an actor per rank, each in its bundle of a placement group.

        Raises
        ------
        TooFewSlots
            If Ray cannot place all ranks within `placement_timeout_s`.
        InputError
            If Ray rejects the resources or the runtime environment.
        """
        self._connect()
        # From here on the job closes the connection.
        if self._disconnect is not None:
            self._disconnect.detach()
        self._disconnect = None
        try:
            group = placement_group([self._bundle] * workers, strategy=self._strategy)
            try:
                if not group.wait(self._placement_timeout_s):
                    raise self._too_few_slots(workers)
                return RayRun(group, self._needs(), invitation, _session.leave)
            except BaseException:
                remove_placement_group(group)
                raise
        except ValueError as error:
            _session.leave()
            raise InputError(f"Ray rejects this: {one_line(error)}") from error
        except BaseException:
            _session.leave()
            raise

    def job(self, workers: int, **options: Any) -> RayJob:
        """Return a job of `workers` ranks here; Ray objects among the arguments of its programs stay in Ray's store."""
        return RayJob(self, workers, **options)

    def _connect(self) -> None:
        """Connect to Ray until a job takes over the connection or this engine is deleted."""
        if self._disconnect is None:
            self._actors_env = _session.join(self._address, self._runtime_env)
            self._disconnect = weakref.finalize(self, in_this_process(_session.leave))

    def _needs(self) -> dict[str, Any]:
        native = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
        needs: dict[str, Any] = {native[name]: count for name, count in self._bundle.items() if name in native}
        needs["resources"] = {name: count for name, count in self._bundle.items() if name not in native}
        return needs | ({"runtime_env": self._actors_env} if self._actors_env else {})

    def _rank_capacity(self, nodes: Iterable[Mapping[str, float]]) -> int:
        """Return the number of ranks that fit on nodes with these resources."""
        capacities = [min(int(node.get(name, 0) // count) for name, count in self._bundle.items()) for node in nodes]
        if self._strategy == "STRICT_PACK":
            return max(capacities, default=0)
        return sum(map(bool, capacities)) if self._strategy == "STRICT_SPREAD" else sum(capacities)

    def _too_few_slots(self, workers: int) -> TooFewSlots:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        each = ", ".join(f"{count:g} {name}" for name, count in self._bundle.items())
        return TooFewSlots(
            self.NAME,
            workers,
            self._rank_capacity(available_resources_per_node().values()),
            self._rank_capacity(nodes),
            f"a rank takes {each}, and {len(nodes)} nodes are to be shared by {self._strategy}; wait until others have "
            "ended, launch fewer workers or give Ray more (ray start --num-cpus=…, ray.init(num_cpus=…)); "
            f"placement_timeout_s waits longer than {self._placement_timeout_s:g} s",
        )


class RayJob(EngineJob):
    """A job with ranks that are Ray actors."""

    def _run_once(self, call: ProgramCall, *, keeps_checkpoints: bool = True) -> list[Any]:
        run = self._started
        assert isinstance(run, RayRun), "ranks in Ray are actors"
        with objects_on_actors(run.actors, call, self._check_ranks) as with_stand_ins:
            return super()._run_once(with_stand_ins, keeps_checkpoints=keeps_checkpoints)
