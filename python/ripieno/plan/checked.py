"""Provide the proof of a set of plans, one per rank: no rank waits forever, and all end with the promised result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import ripieno._native as _native
from ripieno._checks import whole_number
from ripieno._types import OpName
from ripieno.errors import InputError
from ripieno.plan.plan import Plan
from ripieno.plan.span import Span


class RankTraffic(NamedTuple):
    """The bytes and messages of one rank."""

    sent_bytes: int
    received_bytes: int
    reduced_bytes: int
    sent_count: int
    received_count: int


class CheckedPlans:
    """The checked plans of all ranks. `Communicator.run` accepts only such plans.

    The plans are copies: later changes of the original plans have no effect. A pickled set is checked again when it is
    restored.

    Attributes
    ----------
    collective : str or None
        The collective that the plans perform, if one was checked.
    world_size : int
        The number of ranks.
    count : int
        Elements of the value that each rank passes to `Communicator.run`.
    output_count : int
        Elements of the result, if it has a buffer of its own; otherwise 0.
    itemsize : int
        Bytes of an element.
    op : str or None
        The operation that combines elements in the plans.
    round_count : int
        Length of the longest chain of messages, each of which waits for its predecessor.
    traffic : list of RankTraffic
        The traffic of each rank.
    """

    def __init__(self, plans: Sequence[Plan], requested: tuple[str, Span, OpName, int] | None) -> None:
        self._plans = [Plan._of(plan._native.copied()) for plan in plans]
        self._requested = requested
        native = None if requested is None else (requested[0], requested[1].fields, *requested[2:])
        self._native = checked = _native.check_plans([plan._native for plan in self._plans], native)
        self.collective = None if requested is None else requested[0]
        self.world_size = len(self._plans)
        self.itemsize = checked.element_bytes or (1 if requested is None else requested[1].itemsize)
        self.count, self.output_count = (length // self.itemsize for length in checked.lengths_bytes)
        self.op: OpName | None = checked.op
        self.round_count = checked.round_count
        self.traffic = [RankTraffic(*each) for each in checked.traffic]

    def __getitem__(self, rank: int) -> Plan:
        return Plan._of(self._plans[rank]._native.copied())

    def __len__(self) -> int:
        return self.world_size

    def __reduce__(self) -> tuple[Any, ...]:
        return CheckedPlans, (self._plans, self._requested)

    def __repr__(self) -> str:
        return f"<CheckedPlans: {self.signature}>"

    def __str__(self) -> str:
        max_bytes = max(each.sent_bytes for each in self.traffic)
        messages = sum(each.sent_count for each in self.traffic)
        proved = "every receive has its send, and no rank waits forever"
        if self.collective is not None:
            proved += f"; each rank ends with the result of {self.collective}"
        return (
            f"{self.signature}\nproved      {proved}\nrounds      {self.round_count}\n"
            f"messages    {messages:,}\na rank sends at most {max_bytes:,} bytes"
        )

    @property
    def signature(self) -> str:
        """A description of the set. Ranks compare it before they run the plans."""
        collective = self.collective or "any result"
        op = "" if self.op is None else f" by {self.op}"
        return f"{collective}{op} of {self.count} elements among {self.world_size} ranks"


def check(
    plans: Sequence[Plan],
    collective: str | None = None,
    vector: Span | None = None,
    *,
    op: OpName = "sum",
    root: int = 0,
) -> CheckedPlans:
    """Prove the plans of all ranks, by the checker of the catalogue.

    The checker runs the plans with counted contributions in place of numbers. It finds sends without receives,
    deadlocks and reads of undefined memory. It also finds wrong results: a contribution is missing or occurs twice, or
    ranks combine in different orders, so the last bits of their results differ.

    Parameters
    ----------
    plans
        One plan per rank, in the order of ranks.
    collective
        The collective that the plans perform, "allreduce" and so on. Without it, the result is not checked, and the
        buffers end with the last element that a plan uses.
    vector
        The elements of the collective: the vector of each rank, or the chunks of all ranks one after the other, divided
        as by `Span.chunks`. It is a whole buffer "main". "alltoall" and "rotate" have their result in "output".
    op
        The operation of a reduction.
    root
        The root of a rooted collective, or the sender of "point-to-point".

    Returns
    -------
    CheckedPlans
        The proved set, for `Communicator.run`, `simulate` and `draw`.

    Raises
    ------
    PlanError
        If a plan is wrong; it names the rank, the step and a remedy.
    InputError
        If an argument is invalid.
    """
    listed = list_of(plans)
    if collective is None:
        if vector is not None:
            raise InputError(f"vector={vector}: expected a collective, too")
        return CheckedPlans(listed, None)
    return CheckedPlans(listed, requested(collective, vector, op, root, len(listed)))


def list_of(plans: CheckedPlans | Sequence[Plan]) -> list[Plan]:
    """Return the plans of a set as a list, one per rank."""
    if isinstance(plans, CheckedPlans):
        return plans._plans
    listed = list(plans) if isinstance(plans, Sequence) else []
    if not listed or not all(isinstance(plan, Plan) for plan in listed):
        raise InputError(f"plans={plans!r}: expected a list with the plan of each rank")
    return listed


def requested(collective: str, vector: Span | None, op: OpName, root: int, ranks: int) -> tuple[str, Span, OpName, int]:
    """Return the request for a collective on a vector, with checked arguments."""
    name = collective.replace("_", "-")
    if name not in _native.COLLECTIVES:
        raise InputError(f"collective={collective!r}: expected one of {', '.join(_native.COLLECTIVES)}")
    if not isinstance(vector, Span) or vector.buffer != "main" or vector.first:
        raise InputError(f"vector={vector}: expected the whole vector, such as ripieno.plan.vector(1000)")
    if name == "alltoall" and vector.count % ranks:
        raise InputError(f"vector={vector}: expected a multiple of {ranks} elements for alltoall among {ranks} ranks")
    if name == "point-to-point" and ranks < 2:
        raise InputError(f"ranks={ranks}: expected at least 2 for point-to-point")
    return name, vector, op, whole_number("root", root, 0, ranks - 1)
