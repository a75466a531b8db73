"""Provide the cost calls of a communicator: measure, store and explain costs of links, memory and algorithms.

Few programs use them, so each call imports the model and the probes that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

import ripieno._native as _native
from ripieno._checks import check_count, number, whole_number
from ripieno.comm import block_sizes
from ripieno.comm.broadcast_variables import BroadcastVariables, check_strategy
from ripieno.comm.exchanges import Exchanges
from ripieno.comm.groups import SplitCalls
from ripieno.comm.rank import CallBase
from ripieno.comm.reductions import Reductions
from ripieno.disciplines import AUTO_ON_DEMAND, DISCIPLINES
from ripieno.errors import InputError
from ripieno.keyed import agreement
from ripieno.wire import objects
from ripieno.wire.calls import StagedCall

if TYPE_CHECKING:
    from ripieno._native import Communicator as NativeCommunicator
    from ripieno._native import PacketCurve
    from ripieno.simulation import Cluster, Explanation, MeasuredCosts
    from ripieno.simulation.algorithm_choices import AlgorithmChoices
    from ripieno.topology import Topology
    from ripieno.topology.rack_names import RackNames


def _measured_costs(comm: CallBase) -> MeasuredCosts | None:
    """Return the costs that `Communicator.tune` measured on this communicator or stored for its hosts."""
    from ripieno.simulation import MeasuredCosts, link_costs

    return comm.cache.get(MeasuredCosts) or link_costs.load_stored(comm.hosts)


class Costs(SplitCalls, Exchanges, BroadcastVariables, Reductions):
    """Calls of a `Communicator` that measure and explain costs."""

    def measure_packets(self, sizes_bytes: Sequence[int] | None = None, *, budget_s: float = 1.0) -> PacketCurve:
        """Measure the cost of packets by their size, while every rank sends to several ranks at once. Collective.

        Later sparse reductions on this communicator choose their degrees by the measured costs. Without it they use
        default costs of memory within a node, or of links between nodes.

        Parameters
        ----------
        sizes_bytes : sequence of int, optional
            Sizes to measure, ascending, the same on every rank; by default 64 bytes to 16 MiB in steps of a factor of
            4.
        budget_s : float
            Approximate duration in seconds. Sizes that need more are skipped, except for the first two.

        Returns
        -------
        PacketCurve
            The same on every rank: "points" of (bytes, seconds), "latency_s" until the last packet has arrived, and
            "contention_s", which each peer beyond 8 adds to every packet. Fitted to the points: "alpha_s",
            "beta_s_per_byte", "best_throughput" in bytes per second and "efficient_bytes", the smallest packet that
            reaches 80 % of it.
        """
        sizes = _native.PACKET_SIZES_BYTES
        if sizes_bytes is not None:
            if not isinstance(sizes_bytes, Sequence | np.ndarray) or isinstance(sizes_bytes, str | bytes):
                raise InputError(f"sizes_bytes={sizes_bytes!r}: expected None or ascending whole numbers")
            sizes = [whole_number("sizes_bytes", size, 1, 2**40) for size in sizes_bytes]
        found = _native.measure_packets(self._native, sizes, number("budget_s", budget_s, "expected seconds"))
        self.cache[_native.PacketCurve] = found
        return found

    def explain(self, collective: str, *, nbytes: int, order: str | None = None, root: int = 0) -> Explanation:
        """Estimate the time of every algorithm of a collective for these ranks and hosts. Not collective.

        Links have the costs that :meth:`tune` has measured, here or in an earlier program on the same hosts. Without
        them, :meth:`measure_packets` or defaults provide the costs, and rack uplinks are unlimited. Links of shared
        memory measure their own costs during calls: the time of a cache line, and the time of long messages. They
        replace the defaults of memory, so ranks can get different results.

        Parameters
        ----------
        collective : str
            "allreduce", "broadcast" and so on.
        nbytes : int
            Bytes of the vector. For allgather, gather and scatter: of a rank's block. For alltoall: all that a rank
            sends.
        order : str, optional
            The order of ranks in chains and rings: "racks" by default, "given" or "random:SEED".
        root : int
            The root, for a collective that has one.

        Returns
        -------
        Explanation
            "candidates", fastest first, with "seconds" on this group and the terms of their formulas; "fastest";
            "chosen", the algorithm that runs by default; "reason"; and "costs", the source of the link costs. It prints
            as a table.
        """
        from ripieno.comm.algorithm_trials import BLOCKS
        from ripieno.simulation import Cluster, explain, link_costs

        native = self._native
        measured = _measured_costs(self) or _measured_costs(self._world)
        if measured is not None:
            cluster, costs = measured.cluster(native.nodes, native.racks), measured.source
        else:
            packets = _native.packet_curve(native)
            cluster = Cluster.of_ranks(native.nodes, native.racks, packets.alpha_s, packets.beta_s_per_byte)
            costs = "of packets: measured, or defaults; comm.tune() or ripieno tune measures them by kind of link"
            if _native.PacketCurve not in self.cache:
                cluster, text = link_costs.with_pairs(cluster, (pair for _, pair in native.pair_costs()))
                costs += f"; in shared memory as its links have measured: {text}" if text else ""
        found = explain(collective, cluster, nbytes=nbytes, order=order, root=root, costs=costs)
        total_bytes = nbytes * self.world_size if found.collective in BLOCKS else nbytes
        return replace(found, chosen=_native.choice(native, collective, total_bytes))

    def tune(self, *, budget_s: float = 1.0) -> MeasuredCosts:
        """Measure the costs of links, memory and cores here, and store them for this cluster. Collective.

        For each kind of link (ranks of a node, nodes of a rack, racks), up to three pairs exchange short and long
        messages, one pair at a time. If racks are configured, all hosts of two racks exchange at once, which shows the
        capacity of an uplink. `explain` then uses these costs, here and in later programs on the same hosts. Each host
        stores them in a file under ``XDG_CACHE_HOME``, or ``~/.cache``. Keep the network and the hosts idle during the
        call.

        It does not change which algorithm runs by default; `try_algorithms`, which uses these costs, does.

        Parameters
        ----------
        budget_s : float
            Approximate duration in seconds.

        Returns
        -------
        MeasuredCosts
            The same on every rank: "memory", "network_link" and "uplink" with "latency_s" and "bytes_per_s", the
            capacity of an uplink, and the seconds to add and to copy a byte. It prints as a table; `cluster` is the
            model for them.

        Raises
        ------
        InputError
            The time is not positive, or ranks have replicas.
        """
        from ripieno.comm import cost_probes
        from ripieno.simulation import MeasuredCosts, link_costs

        if not number("budget_s", budget_s, "expected seconds") > 0:
            raise InputError(f"budget_s={budget_s!r}: expected more than 0 seconds")
        measured = self.cache[MeasuredCosts] = cost_probes.measure(self, budget_s)
        if self.hosts.index(self.hosts[self.rank]) == self.rank:
            link_costs.store(measured)
        self.barrier()
        return measured

    def tune_broadcast(
        self, strategy: str = AUTO_ON_DEMAND, *, size_bytes: int | None = None, budget_s: float = 5.0
    ) -> block_sizes.BlockSizes:
        """Find the fastest block size of broadcast variables here, and store it for this cluster. Collective.

        Rank 0 broadcasts a value with blocks of 4 MiB and their halves down to 16 KiB, in alternating rounds, and the
        median decides. The default size stays unless another is faster by 3 %. Later broadcasts and distributions of
        files with this strategy use the result for values of up to four times more or fewer bytes, unless the call has
        `block_bytes`. Each host stores it in a file under ``XDG_CACHE_HOME``, or ``~/.cache``. Communicators in other
        processes on these hosts use it from their next broadcast on. Keep the network and the hosts idle during the
        call.

        Parameters
        ----------
        strategy : {"csb", "csb-llcf", "bittorrent", "chain", "splitstream", "tree", "flat"}
            The strategy of the broadcasts.
        size_bytes : int, optional
            Size of the value. By default 1 to 64 MiB, as large as the time allows.
        budget_s : float
            Approximate duration in seconds; each block size is measured at least once.

        Returns
        -------
        BlockSizes
            The same on every rank: "block_bytes", the size that broadcasts use from now on, and "seconds" by block
            size. It prints as a table.

        Raises
        ------
        InputError
            The strategy is unknown, a number is not positive, or ranks have replicas.

        Notes
        -----
        Source: Chowdhury et al., "Performance and scalability of broadcast in Spark", figure 6.
        """
        check_strategy(strategy, DISCIPLINES)
        if size_bytes is not None:
            check_count("size_bytes", size_bytes)
        if not number("budget_s", budget_s, "expected seconds") > 0:
            raise InputError(f"budget_s={budget_s!r}: expected more than 0 seconds")
        found = block_sizes.measure(self, strategy, size_bytes, budget_s)
        if self.hosts.index(self.hosts[self.rank]) == self.rank:
            block_sizes.store(found)
        self.barrier()
        return found

    def try_algorithms(self, *, budget_s: float = 10.0, use_stored: bool = True) -> AlgorithmChoices:
        """Find the fastest algorithm by collective and size with timed trials, and make it the default. Collective.

        Each collective runs with 8 bytes to 64 MiB, all algorithms in alternating rounds, and the median decides. The
        default algorithm stays unless another is clearly faster. Between nodes the model selects the candidates, with
        the costs that `tune` has measured. It also decides for sizes that do not fit into the time. Rank 0's host
        stores the choices for ranks in the same arrangement. Later programs load them from there: rank 0 sends them to
        the others, so all ranks choose alike. They apply to this communicator, not to communicators split from it. An
        algorithm named in a call, and RIPIENO_ALGORITHM, take precedence. Keep the network and the hosts idle during
        the call.

        Different algorithms add in different orders: floating-point sums have the same bits in every run with the same
        choices, but not with other choices.

        Parameters
        ----------
        budget_s : float
            Approximate duration of the trials in seconds, if any trials run.
        use_stored : bool
            Use the stored choices of an earlier program, if there are any.

        Returns
        -------
        AlgorithmChoices
            The same on every rank: "trials", with the seconds of each algorithm. It prints as a table.

        Raises
        ------
        InputError
            The time is not positive, or ranks have replicas.
        """
        from ripieno.comm import algorithm_trials
        from ripieno.simulation import algorithm_choices

        if not number("budget_s", budget_s, "expected seconds") > 0:
            raise InputError(f"budget_s={budget_s!r}: expected more than 0 seconds")
        if self.replicas > 1:
            raise InputError(f"replicas={self.replicas}: expected 1; try on the communicator of the world")
        hosts, nodes, racks = list(self.hosts), list(self.nodes), list(self.racks)
        mine = algorithm_choices.load_stored(hosts, nodes, racks) if use_stored and self.rank == 0 else None
        found = self.broadcast(mine)
        if found is None:
            found = algorithm_trials.measure(self, self._agreed_cluster(), budget_s)
            if self.rank == 0:
                algorithm_choices.store(found)
        algorithm_trials.prefer(self, found)
        return found

    def _agreed_cluster(self) -> Cluster | None:
        """Return the model of these ranks with the costs of rank 0, or None for a single node. Collective."""
        nodes = list(self.nodes)
        if len(set(nodes)) == 1:
            # The model does not cover the interference of ranks that share cores.
            return None
        costs = self.broadcast(_measured_costs(self) if self.rank == 0 else None) or self.tune()
        return costs.cluster(nodes, list(self.racks))

    def topology(self, *, measure: bool = False, round_s: float = 0.25) -> Topology:
        """Return the hosts of these ranks, their racks, cores and NUMA nodes. Collective.

        Racks that a file, an option or a launcher has configured are used as given. Otherwise they are detected: in
        several rounds, pairs of hosts exchange bytes, and pairs across racks are slower while their uplinks are full.
        If uplinks are never full, all hosts form one rack. Keep the network idle during the call. The first call of a
        communicator whose ranks share a host also runs 500 short calls, which time the transfers between cores.

        Parameters
        ----------
        measure : bool
            Measure even if racks are configured.
        round_s : float
            Approximate duration of a round in seconds. 32 hosts need about 40 rounds.

        Returns
        -------
        Topology
            The same on every rank: "hosts", "racks" by host, "source", and "certainty", of the least certain host. It
            prints as a tree, and `toml` is a racks file.
        """
        from ripieno.comm import rack_probes

        if not number("round_s", round_s, "expected seconds") > 0:
            raise InputError(f"round_s={round_s!r}: expected more than 0 seconds")
        return rack_probes.topology(self, measures=measure, round_s=round_s)

    def adopt_racks(self, racks: Topology | RackNames) -> None:
        """Use these racks in all later calls: chains, rings and trees run rack by rack. Collective.

        It replaces the racks from the start of the job. Calls in flight, and existing groups, keep their racks.
        Choices of `try_algorithms` are dropped, because they were measured in another order.

        Parameters
        ----------
        racks : Topology, mapping or path
            The result of `topology`; host names and patterns by rack, such as ``{"north": ["node1", "gpu-*"]}``; or a
            file that ``ripieno topology --out`` has written. The same on every rank.

        Raises
        ------
        InputError
            A host is in no rack or in several racks, or the topology has other hosts.
        CollectiveMismatch
            On every rank: ranks pass different racks.

        Examples
        --------
        >>> import ripieno as rp
        >>> def program(comm):
        ...     comm.adopt_racks({"here": ["*"]})
        ...     return comm.racks
        >>> with rp.launch(workers=2) as job:
        ...     job.run(program)[0]
        ['here', 'here']
        """
        from ripieno.topology import Topology
        from ripieno.topology.rack_names import racks_of

        names = racks.racks_of(self.nodes, self.hosts) if isinstance(racks, Topology) else racks_of(self.hosts, racks)

        def adopt(native: NativeCommunicator) -> None:
            agreement.check(objects.allgather(native, f"adopt_racks of {names}", None))
            native.adopt_racks(names)
            self.racks = list(names)

        self._do(StagedCall(adopt))
