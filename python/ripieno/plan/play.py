"""Provide plans on modeled clusters, as pictures, and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ripieno._native as _native
from ripieno.plan.checked import CheckedPlans, list_of
from ripieno.plan.plan import Plan
from ripieno.simulation import Cluster, Simulation, pictures
from ripieno.simulation.simulate import TransferTime


class Drawing(str):
    """An SVG picture, which a notebook shows."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: str | Path) -> None:
        """Write the picture to a file .svg or .html."""
        path = Path(path)
        pictures.check_picture(path)
        pictures.write(self, path)


def simulate(plans: CheckedPlans | Sequence[Plan], cluster: Cluster, *, transfers: bool = False) -> Simulation:
    """Simulate plans on a modeled cluster, as `ripieno.simulation.simulate` does for plans of the catalogue.

    Parameters
    ----------
    plans
        A checked set, or a plan per rank. Such plans may be wrong: `Simulation.unfinished` lists the ranks that wait
        forever.
    cluster
        The modeled cluster, with one rank per plan.
    transfers
        Whether to record every message.

    Raises
    ------
    InputError
        If the cluster has another number of ranks, or a send has no receive.
    """
    listed = list_of(plans)
    found = _native.simulate_plans(cluster.native(), [plan._native for plan in listed], transfers=transfers)
    checked = plans if isinstance(plans, CheckedPlans) else None
    nbytes = 0 if checked is None else checked.count * checked.itemsize
    collective = (checked.collective if checked is not None else None) or "collective"
    return Simulation.of(found, collective, nbytes, cluster)


def draw(plans: CheckedPlans | Sequence[Plan], cluster: Cluster | None = None) -> Drawing:
    """Draw the messages of plans in rounds: an arrow from sender to receiver. A rank sends and receives one at a time.

    Parameters
    ----------
    plans
        A checked set, or a plan per rank.
    cluster
        The placement of ranks, for the colors of links. By default each rank has a node of its own.

    Raises
    ------
    InputError
        If there are too many ranks to draw, or a send has no receive.
    """
    listed = list_of(plans)
    placed = Cluster(nodes=len(listed)) if cluster is None else cluster
    pictures.check_rank_count(placed.ranks)
    found = _native.simulate_plans(placed.rounds(), [plan._native for plan in listed], transfers=True)
    title = plans.signature if isinstance(plans, CheckedPlans) else f"plans of {len(listed)} ranks"
    return Drawing(pictures.rounds(title, placed.ranks, [TransferTime(*each) for each in found["transfers"]]))


def table(plans: CheckedPlans | Sequence[Plan]) -> str:
    """Return the messages of each round as text: ``sender -> receiver [elements]``, with ``+>`` for a reduce.

    Raises
    ------
    PlanError
        If a send has no receive, or ranks wait forever.
    """
    return _native.plan_table([plan._native for plan in list_of(plans)])
