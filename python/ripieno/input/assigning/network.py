"""Provide a flow network of splits and hosts, which SciPy's maximum flow solves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix
from scipy.sparse.csgraph import maximum_flow

#: SciPy counts flows in 32 bits. The total supply of all splits stays below this.
FLOW_LIMIT = 1 << 30


class FlowNetwork:
    """The network source -> splits -> hosts -> sink and its flow. Flow against an arc is negative."""

    def __init__(self, near: Sequence[Sequence[str]], hosts: Sequence[str]) -> None:
        self._near = near
        self._hosts = hosts
        self._sink = 1 + len(near) + len(hosts)
        self._flow: Any = csr_array((self._sink + 1, self._sink + 1), dtype=np.int32)

    def augment(self, supply: Sequence[int], capacity_of: Mapping[str, int]) -> None:
        """Maximize the flow without reducing the flow into the sink. `supply` has an entry per split."""
        split_count = len(self._near)
        number = {host: 1 + split_count + at for at, host in enumerate(self._hosts)}
        arcs = [(0, 1 + at, amount) for at, amount in enumerate(supply)]
        arcs += [(1 + at, number[host], supply[at]) for at, hosts in enumerate(self._near) for host in hosts]
        arcs += [(number[host], self._sink, capacity_of[host]) for host in self._hosts]
        rows, columns, capacities = np.array(arcs, np.int32).T
        capacity = csr_array((capacities, (rows, columns)), self._flow.shape)
        left: Any = csr_matrix(capacity - self._flow)
        self._flow = self._flow + csr_array(maximum_flow(left, 0, self._sink).flow)

    def flows(self) -> Iterator[tuple[int, str, int]]:
        """Yield split, host and amount of each flow between them, in the order of splits."""
        flow = self._flow.tocoo()
        first_host = 1 + len(self._near)
        between = (flow.data > 0) & (flow.row > 0) & (flow.row < first_host) & (flow.col >= first_host)
        for at, host, amount in sorted(
            zip(*(x[between].tolist() for x in (flow.row, flow.col, flow.data)), strict=True)
        ):
            yield at - 1, self._hosts[host - first_host], amount
