"""Provide `AddedAmounts`: amounts that a program has added to accumulators, which checkpoints in memory include."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class AddedAmounts:
    """Amounts that the ranks of a program have added to accumulators, as one rank reports them.

    Attributes
    ----------
    own
        The amounts of this rank, by the number of the accumulator.
    inherited
        The amounts of lost ranks, from the states that this rank has restored.
    """

    own: dict[int, Any] = field(default_factory=dict)
    inherited: list[dict[int, Any]] = field(default_factory=list)

    @property
    def all(self) -> list[dict[int, Any]]:
        """Return the amounts of this rank and of the lost ranks, one dict for each."""
        return [each for each in (self.own, *self.inherited) if each]

    def restore(self, own: AddedAmounts | None, others: list[AddedAmounts]) -> None:
        """Set the amounts from the checkpoints of this rank and of lost ranks."""
        self.own.clear()
        self.own.update(own.own if own is not None else {})
        self.inherited = [] if own is None else own.inherited
        self.inherited += [amounts for each in others for amounts in each.all]
