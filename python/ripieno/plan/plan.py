"""The plan of one rank: its steps in order."""

from __future__ import annotations

from typing import Any

import ripieno._native as _native
from ripieno._checks import whole_number
from ripieno._types import OpName
from ripieno.errors import InputError
from ripieno.plan.span import Span

RANK_MAX = (1 << 32) - 1


class Plan:
    """The steps of one rank in a collective.

    Each method appends a step and returns the plan. Steps from or to one peer happen in the order of the plan. The
    ``i``-th send to a peer matches the ``i``-th receive or reduce there. Otherwise a step waits only for earlier steps
    on the same elements, so a chain is ``plan.receive(left, x).send(right, x)``: elements are sent on as they arrive.
    Steps without common elements have no order.

    Ranks are numbers in the communicator that runs the plan. `ripieno.plan.check` reports a wrong step.
    """

    def __init__(self) -> None:
        self._native = _native.Plan()

    @classmethod
    def _of(cls, native: _native.Plan) -> Plan:
        plan = cls()
        plan._native = native
        return plan

    def send(self, to: int, span: Span) -> Plan:
        """Send `span` to rank `to`."""
        self._native.send(_rank("to", to), _fields(span))
        return self

    def receive(self, source: int, span: Span) -> Plan:
        """Receive from rank `source`, and overwrite `span`."""
        self._native.receive(_rank("source", source), _fields(span))
        return self

    def reduce(self, source: int, span: Span, op: OpName = "sum") -> Plan:
        """Receive from rank `source`, and combine the elements into `span`."""
        self._native.reduce(_rank("source", source), _fields(span), op)
        return self

    def copy(self, source: Span, target: Span) -> Plan:
        """Copy `source` to `target` within the rank."""
        self._native.copy(_fields(source), _fields(target))
        return self

    def combine(self, source: Span, target: Span, op: OpName = "sum") -> Plan:
        """Combine `source` into `target` within the rank."""
        self._native.combine(_fields(source), _fields(target), op)
        return self

    def fill(self, span: Span, op: OpName | None = None) -> Plan:
        """Set each element of `span` to the identity of `op`, or to zero."""
        self._native.fill(_fields(span), op)
        return self

    def then(self, other: Plan) -> Plan:
        """Append all steps of `other`. They start on an element after the last step of this plan on it."""
        # A copy, because `other` may be this plan.
        self._native.extend(other._native.copied())
        return self

    @property
    def steps(self) -> list[str]:
        """The steps as the calls that append them."""
        return [self._native.step_text(index) for index in range(len(self))]

    def __len__(self) -> int:
        return len(self._native)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._native == other._native

    __hash__ = None  # type: ignore[assignment]  # a plan changes

    def __repr__(self) -> str:
        return f"<Plan of {len(self)} step{'s'[: len(self) != 1]}>"

    def __str__(self) -> str:
        return "\n".join(f"{index:4}  {text}" for index, text in enumerate(self.steps))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._native.steps(),)


def _restored(steps: list[tuple[Any, ...]]) -> Plan:
    """Return the plan of these steps, in the form of `_native.Plan.steps`."""
    native = _native.Plan()
    for kind, peer, span, source, op in steps:
        arguments = [each for each in (peer, source, span, op) if each is not None]
        getattr(native, kind)(*arguments)
    return Plan._of(native)


def _rank(name: str, rank: int) -> int:
    return whole_number(name, rank, 0, RANK_MAX, "expected the number of a rank")


def _fields(span: Span) -> tuple[int, int, int, int]:
    if not isinstance(span, Span):
        raise InputError(f"span={span!r}: expected a span, such as ripieno.plan.vector(1000)[:10]")
    return span.fields
