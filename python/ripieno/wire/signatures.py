"""Signatures of a rank's data: the properties besides count and dtype that must agree between ranks.

The native module makes and compares these texts, and the shapes of arrays without text.
"""

from __future__ import annotations

from ripieno._native import NUMBER_SIGNATURE as NUMBER
from ripieno._native import array_signature as of_array
from ripieno._native import leaf_signature as of_leaf
from ripieno._native import rows_signature as of_rows
from ripieno._native import tree_signature as of_tree

__all__ = ["NUMBER", "OBJECT_PART", "of_array", "of_leaf", "of_object", "of_rows", "of_tree"]

#: The signature of messages that make up an object.
OBJECT_PART = "parts of an object"


def of_object(call: str) -> str:
    """Return the signature of an object that ranks exchange within a call of several steps, named with its options."""
    return f"{OBJECT_PART} in {call}"
