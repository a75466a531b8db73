"""The plans of the algorithms of the catalogue."""

from __future__ import annotations

import ripieno._native as _native
from ripieno._checks import whole_number
from ripieno._types import OpName
from ripieno.plan.checked import requested
from ripieno.plan.plan import Plan
from ripieno.plan.span import Span

RANKS_MAX = 1 << 16


def catalogue(
    collective: str, algorithm: str, vector: Span, ranks: int, *, op: OpName = "sum", root: int = 0
) -> list[Plan]:
    """Return the plans of an algorithm of the catalogue, one per rank: to read, to compare, or to modify.

    Parameters
    ----------
    collective, vector, op, root
        As for `check`.
    algorithm
        Name as in calls, such as "ring".
    ranks
        Number of ranks.

    Raises
    ------
    InputError
        If the collective or the algorithm does not exist, the algorithm does not support the request, or the plans
        have too many steps.
    """
    whole_number("ranks", ranks, 1, RANKS_MAX)
    name, vector, op, root = requested(collective, vector, op, root, ranks)
    plans = _native.catalogued_plans((name, vector.fields, op, root), algorithm, ranks)
    return [Plan._of(plan) for plan in plans]
