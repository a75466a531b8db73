"""Keyed data: rows with keys and partitions with ids, in columns, and how those of all ranks come together.

A key is a whole number or a string, and its row a number or a few; a partition is an array. What has equal keys (ids)
is combined: on one rank by `KeyValues.combined` (`Table.add`), over all ranks by `Communicator.regroup`, after which
every key (id) lives on one rank, its home. Nothing here is done row by row in Python.
"""

from __future__ import annotations

from ripieno.keyed.columns import KeyedForm
from ripieno.keyed.emitter import Emitter
from ripieno.keyed.groups import Groups
from ripieno.keyed.key_values import KeyValues
from ripieno.keyed.regroup import regroup
from ripieno.keyed.table import Table

__all__ = ["Emitter", "Groups", "KeyValues", "KeyedForm", "Table", "regroup"]
