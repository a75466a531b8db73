"""Lookup of ids in sorted ids."""

from __future__ import annotations

import numpy as np
import pytest
from ripieno.kernels.lookup import positions_of


@pytest.mark.parametrize("spread", [1, 1 << 55])
def test_each_id_is_found_at_its_place_and_others_nowhere(spread):
    ids = np.array([7, 3, 4, 9]) * spread
    wanted = np.array([9, 0, 3, 3, 5, 7, 10, 4]) * spread
    assert positions_of(wanted, ids).tolist() == [3, -1, 1, 1, -1, 0, -1, 2]


def test_among_no_ids_nothing_is_found():
    assert positions_of(np.array([0, 5]), np.empty(0, np.int64)).tolist() == [-1, -1]


def test_no_ids_are_looked_for():
    assert positions_of(np.empty(0, np.int64), np.array([5, 0])).tolist() == []
