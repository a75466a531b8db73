"""The state of a board as JSON for the page: first the whole state, then changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ripieno.dashboard.board import Board, BoardRank
from ripieno.flight.waiting import DISTINCT, caused

#: Maximum length of lists on the page.
SHOWN_COUNT = 24
#: Waits are attributed among at most this many ranks, because the cost grows with the cube of their number.
CAUSES_MAX_RANKS = 128
#: Number of past bins that are sent again, for late reports of slow ranks.
LATE_BINS = 2


class BoardUpdates:
    """Tracks the data that one page with an event stream has received.

    Parameters
    ----------
    board
        The board to serve.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._width_s = 0.0
        self._known_bins = 0
        self._known_lines = 0

    def as_json(self) -> dict[str, Any]:
        """Return the changes since the last call; on the first call, the whole state."""
        board = self._board
        with board.lock:
            now_s = board.now_s()
            history = board.history
            history.reach(now_s)
            until = int(now_s / history.width_s) + 1
            first = 0 if history.width_s != self._width_s else max(self._known_bins - LATE_BINS, 0)
            new_lines = min(board.line_count - self._known_lines, len(board.lines))
            report = {
                "now_s": round(now_s, 2),
                "begun": board.begun,
                "job": dict(board.job),
                "ranks": [_rank(each) for _, each in sorted(board.ranks.items())],
                "history": history.coded(first, until),
                "iterations": board.iterations.as_json(now_s),
                "waiting": _waiting(board),
                "usage": sorted(([*key, *sums] for key, sums in board.usage.items()), key=_sent, reverse=True),
                "links": _links(board),
                "lines": [each.as_json() for each in list(board.lines)[len(board.lines) - new_lines :]],
            }
            self._width_s, self._known_bins, self._known_lines = history.width_s, until, board.line_count
            return report


def _sent(usage: list[Any]) -> float:
    return float(usage[3])


def _rank(known: BoardRank) -> list[Any]:
    sums = known.sums
    return [
        known.rank,
        known.host,
        known.lost or known.state,
        known.lost is not None,
        known.collective,
        known.waits_for,
        round(known.cores, 2),
        known.memory_bytes,
        *(round(sums[name], 3) for name in ("busy_s", "called_s", "waited_s", "bytes_sent", "bytes_received")),
        known.broadcasts,
    ]


def _waiting(board: Board) -> dict[str, Any]:
    """Return pairs of ranks with the longest waits first, and the ranks that have caused the waits."""
    pairs = sorted(board.pairs_s.items(), key=lambda each: -each[1])
    count = max((max(pair) + 1 for pair in board.pairs_s), default=0)
    by_rank = dict(board.waited_for_s)
    if 0 < count <= CAUSES_MAX_RANKS:
        seconds = np.zeros((count, count))
        for pair, waited_s in pairs:
            seconds[pair] = waited_s
        by_rank = dict(enumerate(caused(seconds).tolist()))
    order = sorted(by_rank.items(), key=lambda each: -each[1])
    return {
        "pairs": [[*pair, round(waited_s, 3)] for pair, waited_s in pairs],
        "caused": [[rank, round(waited_s, 3)] for rank, waited_s in order[:SHOWN_COUNT]],
        "distinct": len(order) > 1 and order[0][1] > 0 and order[0][1] >= DISTINCT * order[1][1],
    }


def _links(board: Board) -> dict[str, Any]:
    """Return bytes by pair of ranks, and totals within and between hosts."""
    pairs = sorted(board.links_bytes.items(), key=lambda each: -each[1])
    host = {rank: known.host for rank, known in board.ranks.items()}
    within = sum(size for (sender, receiver), size in pairs if host.get(sender) == host.get(receiver))
    return {
        "pairs": [[*pair, size] for pair, size in pairs],
        "within": within,
        "between": sum(size for _, size in pairs) - within,
    }
