"""The facts about data and parameters of a fit, which a checkpoint compares."""

from __future__ import annotations

import numpy as np
import pytest
from ripieno.algorithms.data_facts import data_facts
from ripieno.algorithms.same_call import plain_fact


class OneRank:
    """A communicator of one rank."""

    def allreduce(self, values):
        return values


def digest(rows):
    return data_facts(OneRank(), "rows", rows)["the digest of rows"]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_equal_values_in_different_columns_have_different_digests(dtype):
    ones = np.eye(2000, dtype=dtype)
    assert len({digest(row[np.newaxis]) for row in ones}) == len(ones)


def test_the_order_of_a_dict_does_not_change_its_fact():
    assert plain_fact({"a": 1.0, "b": 2.0}) == plain_fact({"b": 2.0, "a": 1.0}) != plain_fact({"a": 1.0, "b": 3.0})


def test_each_entry_of_a_large_parameter_counts():
    init = np.zeros((3 << 20, 1))
    facts = set()
    for row in (None, 0, 1000, 777_777, -1):
        changed = init.copy()
        if row is not None:
            changed[row] = 1
        facts.add(plain_fact(changed))
    assert len(facts) == 5 and plain_fact(init) in facts
