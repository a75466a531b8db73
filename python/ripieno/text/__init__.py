"""Text tools for many workers: count words, search lines, and hash words to columns."""

from __future__ import annotations

from ripieno.text.hashing import hash_features
from ripieno.text.search import Query, grep
from ripieno.text.words import count_words

__all__ = ["Query", "count_words", "grep", "hash_features"]
