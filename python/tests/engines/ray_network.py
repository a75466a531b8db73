"""A real Ray of two nodes for tests, in a separate network.

Ray listens on the machine's address, regardless of its options. A namespace with only a loopback interface has no other
address and is not reachable from outside.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from ripieno.lab import kernel, missing_requirement

NODE = {"num_cpus": 2, "object_store_memory": 100 << 20}
OWN_NETWORK = "/proc/thread-self/ns/net"
#: Fill level of the disk up to which Ray spills objects; the default leaves a twentieth free.
SYSTEM = {"local_fs_capacity_threshold": 0.999}


def missing() -> str | None:
    """Return the missing requirement of a test Ray, or None."""
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed: pip install 'ripieno[ray]'"
    reason = missing_requirement()
    return None if reason is None else f"Ray needs a network of its own for tests: {reason}"


@dataclass
class Nodes:
    """A Ray that runs.

    Attributes
    ----------
    network : int
        Descriptor of its network namespace.
    cluster : ray.cluster_utils.Cluster
        The nodes.
    """

    network: int
    cluster: Any

    @property
    def address(self) -> str:
        """Return the address for drivers inside the network."""
        return self.cluster.address

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Move this thread and its new processes into Ray's network, and make this process a driver."""
        import ray

        with _inside(self.network):
            if not ray.is_initialized():
                ray.init(self.address, log_to_driver=False)
            yield

    @contextmanager
    def another(self) -> Iterator[Callable[[], None]]:
        """Run one more node until the returned function kills it."""
        node = self.cluster.add_node(**NODE)

        def lose() -> None:
            if node in self.cluster.worker_nodes:
                self.cluster.remove_node(node, allow_graceful=False)

        try:
            yield lose
        finally:
            lose()


@contextmanager
def started() -> Iterator[Nodes]:
    """Two nodes of two CPUs each."""
    network = _new_network()
    # Socket paths are limited to about a hundred characters: pytest's folder is too long.
    with tempfile.TemporaryDirectory(prefix="ray-") as folder, pytest.MonkeyPatch.context() as patch:
        # Turn off usage reports and files in the home directory.
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_TMPDIR", folder)
        patch.delenv("RAY_ADDRESS", raising=False)
        # A Dask cluster started in this process has set it, and Ray would keep that value.
        patch.delenv("OMP_NUM_THREADS", raising=False)
        import ray
        from ray.cluster_utils import Cluster

        with _inside(network):
            head = {**NODE, "include_dashboard": False, "_system_config": SYSTEM}
            cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            with _inside(network):
                cluster.add_node(**NODE)
            yield Nodes(network, cluster)
        finally:
            with _inside(network):
                ray.shutdown()
                cluster.shutdown()
            os.close(network)


@contextmanager
def _inside(network: int) -> Iterator[None]:
    home = os.open(OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
    kernel.setns(network, kernel.CLONE_NEWNET)
    try:
        yield
    finally:
        kernel.setns(home, kernel.CLONE_NEWNET)
        os.close(home)


def _new_network() -> int:
    """Return a new network namespace with only a loopback; it exists as long as a descriptor is open."""
    home = os.open(OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
    kernel.unshare(kernel.CLONE_NEWNET)
    try:
        kernel.batch("ip", ["link set lo up"])
        return os.open(OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
    finally:
        kernel.setns(home, kernel.CLONE_NEWNET)
        os.close(home)
