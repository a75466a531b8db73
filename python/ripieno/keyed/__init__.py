"""Provide keyed data in columns: rows with keys, and partitions with ids, combined over all ranks.

A key is an integer or a string, and its row holds one or more numbers; a partition is an array. `KeyValues.combined`
and `Table.add` combine equal keys (ids) on one rank. `Communicator.regroup` combines them over all ranks, and leaves
each key (id) on one rank, its owner. No code here iterates over rows in Python.
"""

from __future__ import annotations

from ripieno.keyed.columns import KeyedSchema
from ripieno.keyed.emitter import Emitter
from ripieno.keyed.groups import Groups
from ripieno.keyed.key_values import KeyValues
from ripieno.keyed.regroup import regroup
from ripieno.keyed.table import Table

__all__ = ["Emitter", "Groups", "KeyValues", "KeyedSchema", "Table", "regroup"]
