"""What links, memory and algorithms cost these ranks: measured, kept for the cluster, explained, and chosen by.

Few programs ask. So the model, and what measures for it, is imported by the call that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

import ripieno._native as _native
from ripieno._checks import number, whole
from ripieno.comm.exchanges import Exchanges
from ripieno.comm.gathers import Gathers
from ripieno.comm.groups import SplitCalls
from ripieno.comm.rank import CallBase
from ripieno.comm.reductions import Reductions
from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno._native import PacketCurve
    from ripieno.simulation import Cluster, Explanation, MeasuredCosts
    from ripieno.simulation.algorithm_choices import AlgorithmChoices
    from ripieno.topology import Topology


def _measured_costs(comm: CallBase) -> MeasuredCosts | None:
    """Those of `Communicator.tune`, of this communicator or kept for its hosts."""
    from ripieno.simulation import MeasuredCosts, link_costs

    return comm.kept.get(MeasuredCosts) or link_costs.kept(comm.hosts)


class Costs(SplitCalls, Exchanges, Gathers, Reductions):
    """The part of a `Communicator` that knows what its ranks cost."""

    def measure_packets(self, sizes_bytes: Sequence[int] | None = None, *, budget_s: float = 1.0) -> PacketCurve:
        """Measure the cost of packets by their size, while every rank sends to several ranks at once. Collective.

        From now on the degrees of sparse reductions on this communicator are designed for the measured costs, not for
        the usual ones of the memory of one node, or of links between nodes.

        Parameters
        ----------
        sizes_bytes : sequence of int, optional
            Sizes to try, ascending, the same on every rank; by default 64 bytes to 16 MiB in steps of a factor of 4.
        budget_s : float
            About how many seconds it takes. Sizes that need more are left out, except for the first two.

        Returns
        -------
        PacketCurve
            The same on every rank: "points" of (bytes, seconds), "latency_s" until the last packet is there, "crowd_s"
            that each peer beyond 8 adds to every packet, and, from the points, "alpha_s", "beta_s_per_byte",
            "best_throughput" in bytes per second and "efficient_bytes", the smallest packet that reaches 80 % of it.
        """
        sizes = _native.PACKET_SIZES_BYTES
        if sizes_bytes is not None:
            if not isinstance(sizes_bytes, Sequence | np.ndarray) or isinstance(sizes_bytes, str | bytes):
                raise InputError(f"sizes_bytes={sizes_bytes!r}: expected None or ascending whole numbers")
            sizes = [whole("sizes_bytes", size, 1, 2**40) for size in sizes_bytes]
        return _native.measure_packets(self._native, sizes, number("budget_s", budget_s, "expected seconds"))

    def explain(self, collective: str, *, nbytes: int, order: str | None = None, root: int = 0) -> Explanation:
        """Price every algorithm of a collective for these ranks, where they stand. Any rank may call it alone.

        Links cost what :meth:`tune` has measured, here or in an earlier program on the same hosts. Else they cost what
        :meth:`measure_packets` has measured, or what is usual, and uplinks of racks are never in the way.

        Parameters
        ----------
        collective : str
            "allreduce", "broadcast" and so on.
        nbytes : int
            Of the vector; of a rank's block for allgather, gather and scatter; all that a rank sends for alltoall.
        order : str, optional
            In which order chains and rings run: "racks" by default, "given" or "random:SEED".
        root : int
            Of a collective that has one.

        Returns
        -------
        Explanation
            "candidates", the fastest first, with "seconds" on this group and the terms of their formulae; "fastest",
            "chosen", which runs by default, "why", and "costs": where those of links come from. It prints as a table.
        """
        from ripieno.comm.algorithm_trials import BLOCKS
        from ripieno.simulation import Cluster, explain

        native = self._native
        measured = _measured_costs(self) or _measured_costs(self._world)
        if measured is not None:
            cluster, costs = measured.cluster(native.nodes, native.racks), measured.source
        else:
            packets = _native.packet_curve(native)
            cluster = Cluster.of_ranks(native.nodes, native.racks, packets.alpha_s, packets.beta_s_per_byte)
            costs = "of packets, measured or usual; comm.tune() or ripieno tune measures them by kind"
        found = explain(collective, cluster, nbytes=nbytes, order=order, root=root, costs=costs)
        in_all = nbytes * self.world_size if found.collective in BLOCKS else nbytes
        return replace(found, chosen=_native.choice(native, collective, in_all))

    def tune(self, *, budget_s: float = 1.0) -> MeasuredCosts:
        """Measure what links, memory and cores cost here, and keep it for this cluster. Collective.

        Up to three pairs of each kind of link, one after the other, exchange short and long messages: ranks of a node,
        nodes of a rack, racks. With racks told, all hosts of two racks exchange at once, which shows what an uplink
        carries. From now on `explain` counts with these costs, here and in later programs on the same hosts: each host
        has them in a file under ``XDG_CACHE_HOME``, or ``~/.cache``. Keep network and hosts quiet meanwhile.

        Which algorithm runs by default does not depend on it, but on `try_algorithms`, which uses it.

        Parameters
        ----------
        budget_s : float
            About how many seconds it takes.

        Returns
        -------
        MeasuredCosts
            The same on every rank: "memory", "cable" and "uplink" with "latency_s" and "bytes_per_s", what an uplink
            carries, and seconds to add and to copy a byte. It prints as a table, and `cluster` is a modelled one.

        Raises
        ------
        InputError
            The time is not positive, or ranks have replicas.
        """
        from ripieno.comm import cost_probes
        from ripieno.simulation import MeasuredCosts, link_costs

        if not number("budget_s", budget_s, "expected seconds") > 0:
            raise InputError(f"budget_s={budget_s!r}: expected more than 0 seconds")
        measured = self.kept[MeasuredCosts] = cost_probes.measure(self, budget_s)
        if self.hosts.index(self.hosts[self.rank]) == self.rank:
            link_costs.keep(measured)
        self.barrier()
        return measured

    def try_algorithms(self, *, budget_s: float = 10.0, kept: bool = True) -> AlgorithmChoices:
        """Try which algorithm is the fastest here, by collective and bytes, and run these from now on. Collective.

        Each collective is tried with 8 bytes to 64 MiB, every algorithm by turns, and the median counts. The usual one
        stays unless another is clearly faster. Between nodes the model, with the costs that `tune` has measured, says
        who is worth a try, and what is best with more bytes than there is time for. What was found is kept on the host
        of rank 0, for ranks that stand as these do, and taken from there by later programs: rank 0 tells the others,
        so that all choose alike. It is for this communicator, and not for those that are split from it; what a call
        names, and RIPIENO_ALGORITHM, are stronger. Keep network and hosts quiet meanwhile.

        Another algorithm adds in another order: floating-point sums have the same bits in every run with the same
        choices, but not with others.

        Parameters
        ----------
        budget_s : float
            About how many seconds the trials take, if there are any.
        kept : bool
            Take what an earlier program has kept, if there is something.

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
        mine = algorithm_choices.kept(hosts, nodes, racks) if kept and self.rank == 0 else None
        found = self.broadcast(mine)
        if found is None:
            found = algorithm_trials.measure(self, self._agreed_cluster(), budget_s)
            if self.rank == 0:
                algorithm_choices.keep(found)
        algorithm_trials.prefer(self, found)
        return found

    def _agreed_cluster(self) -> Cluster | None:
        """The modelled cluster of these ranks, with costs as rank 0 has them; of one node none. Collective."""
        nodes = list(self.nodes)
        if len(set(nodes)) == 1:
            # What ranks that share cores cost each other is not in the model.
            return None
        costs = self.broadcast(_measured_costs(self) if self.rank == 0 else None) or self.tune()
        return costs.cluster(nodes, list(self.racks))

    def topology(self, *, measure: bool = False, round_s: float = 0.25) -> Topology:
        """The hosts of these ranks, their racks, cores and NUMA nodes. Collective.

        Racks that a file, an option or a launcher has told are taken as they are. Otherwise they are found: round by
        round, pairs of hosts exchange bytes, and pairs of several racks are slower while their uplinks are full. With
        uplinks that are never full all hosts are one rack. Keep the network quiet meanwhile.

        Parameters
        ----------
        measure : bool
            Measure even if racks were told.
        round_s : float
            About how many seconds a round takes. Of 32 hosts there are some 40.

        Returns
        -------
        Topology
            The same on every rank: "hosts", "racks" by host, "source", and how "sure" the least certain host is. It
            prints as a tree, and `toml` is a file of racks.
        """
        from ripieno.comm import rack_probes

        if not number("round_s", round_s, "expected seconds") > 0:
            raise InputError(f"round_s={round_s!r}: expected more than 0 seconds")
        return rack_probes.topology(self, measures=measure, round_s=round_s)
