"""Provide `Agreements`: surviving ranks agree on a value, even if ranks die during the call.

Each agreement has two steps: the ranks exchange their proposals and all known results, and then a barrier. After it,
every rank knows that all others know the value. If a rank fails, the survivors connect in a world that only agreements
use, and exchange again. A value that any of them already knows is then the result.

Source: Bland et al., "Post-failure recovery of MPI communication capability: design and rationale", IJHPCA 2013,
section 4 (MPI_Comm_agree).
"""

from __future__ import annotations

from functools import reduce
from math import inf
from operator import and_
from typing import Any, NamedTuple

from ripieno.errors import CollectiveMismatch, RankFailed


class _Proposal(NamedTuple):
    """The number of a rank's agreement, its flag, and all values that it knows."""

    number: float
    flag: int
    known: dict[float, int]


class Agreements:
    """The agreements of the ranks of one communicator.

    Attributes
    ----------
    world
        The communicator of the agreement: the given one, or after a failure one of the survivors.
    """

    def __init__(self, comm: Any) -> None:
        # A communicator, of the same class after each failure.
        self.world = comm
        self._own = comm
        self._count = 0
        self._known: dict[float, int] = {}

    def agree(self, flag: int) -> int:
        """Return the bitwise AND of the flags of the ranks that took part."""
        number = self._count
        self._count += 1
        self._exchange_until_done(number, flag)
        return self._known[number]

    def resolve(self) -> Any:
        """Return the communicator of the survivors, once no rank waits in an agreement."""
        if self.world is self._own:
            self.world = self.world._shrunk()
        self._exchange_until_done(_SHRINK, 0)
        return self.world

    def _exchange_until_done(self, number: float, flag: int) -> None:
        while True:
            try:
                if self._exchange(number, flag):
                    return
            except RankFailed:
                self.world = self.world._shrunk()

    def _exchange(self, number: float, flag: int) -> bool:
        """Exchange proposals; return whether this rank's call has ended."""
        proposals: list[_Proposal] = self.world.allgather(_Proposal(number, flag, self._known))
        known = {name: value for each in proposals for name, value in each.known.items()}
        latest = max(each.number for each in proposals)
        if any(each.number < latest and each.number not in known for each in proposals):
            raise CollectiveMismatch(f"ranks called different agreements: {[each.number for each in proposals]}")
        if number < latest:
            # Another rank has returned from this agreement. It waits in a later one for this rank.
            self._known[number] = known[number]
            return True
        if any(each.number < latest for each in proposals):
            return False
        self._known[number] = known.get(number, reduce(and_, (each.flag for each in proposals)))
        self.world.barrier()
        return True


#: The number of `shrink`, which follows all agreements.
_SHRINK = inf
