"""Lookup of ids in sorted ids."""

from __future__ import annotations

import numpy as np
import pytest
from ripieno.kernels.lookup import positions_of


@pytest.mark.parametrize("spread", [1, 1 << 55])
def test_each_id_is_found_at_its_index_and_missing_ids_are_minus_one(spread):
    ids = np.array([7, 3, 4, 9]) * spread
    requested = np.array([9, 0, 3, 3, 5, 7, 10, 4]) * spread
    assert positions_of(requested, ids).tolist() == [3, -1, 1, 1, -1, 0, -1, 2]


def test_no_id_is_found_in_an_empty_array():
    assert positions_of(np.array([0, 5]), np.empty(0, np.int64)).tolist() == [-1, -1]


def test_an_empty_request_has_an_empty_result():
    assert positions_of(np.empty(0, np.int64), np.array([5, 0])).tolist() == []
