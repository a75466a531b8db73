"""Text in files: its words counted, its lines searched, by many workers that read a share each."""

from __future__ import annotations

from ripieno.text.search import Query, grep
from ripieno.text.words import count_words

__all__ = ["Query", "count_words", "grep"]
