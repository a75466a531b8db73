"""Text: words counted and lines searched by many workers that read a share of files each; words hashed to columns."""

from __future__ import annotations

from ripieno.text.hashing import hash_features
from ripieno.text.search import Query, grep
from ripieno.text.words import count_words

__all__ = ["Query", "count_words", "grep", "hash_features"]
