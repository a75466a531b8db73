"""`Dashboard`: a board and its server, for one job or for all jobs of a command."""

from __future__ import annotations

import logging
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from ripieno.dashboard.board import Board
from ripieno.dashboard.link import address, link
from ripieno.errors import InputError
from ripieno.log import is_notebook

TOKEN_BYTES = 16

logger = logging.getLogger("ripieno.dashboard")

_lock = threading.Lock()
# One entry per active `shared_dashboard` block: None until its first job begins, then the dashboard.
_shared: list[Dashboard | None] = []
# The dashboard of the last job that has ended. Its page stays available until the next dashboard starts.
_over: list[Dashboard] = []


class Dashboard:
    """A web page about a job. `link` is its URL during the job and afterwards, until this process ends.

    Attributes
    ----------
    link : str
        URL with a token, which grants access. Append ``metrics`` for OpenMetrics text, ``trace.json`` for a trace.

    Raises
    ------
    InputError
        If RIPIENO_DASHBOARD_ADDRESS is invalid or in use, or RIPIENO_DASHBOARD_LINK names unknown variables.
    """

    def __init__(self) -> None:
        # Imported late: most jobs have no dashboard.
        from ripieno.dashboard.server import DashboardServer

        self.board = Board()
        host, port = address()
        token = secrets.token_urlsafe(TOKEN_BYTES)
        # An invalid template is reported before the server listens.
        link(host, port, token)
        try:
            self._server = DashboardServer((host, port), self.board, token)
        except OSError as error:
            raise InputError(
                f"the dashboard cannot listen at {host}:{port}: {error.strerror or error}; set "
                "another address in RIPIENO_DASHBOARD_ADDRESS"
            ) from None
        self.link = link(host, self._server.server_port, token)
        self._server.start()
        with _lock:
            earlier, _over[:] = list(_over), []
        for each in earlier:
            each.close()
        # In a notebook stderr looks like an error.
        print(f"dashboard: {self.link}", file=sys.stdout if is_notebook() else sys.stderr, flush=True)

    def __repr__(self) -> str:
        return f"<Dashboard {self.link}>"

    def _repr_html_(self) -> str:
        shown = escape(self.link, quote=True)
        return f'<a href="{shown}" target="_blank" rel="noreferrer">Dashboard of the job</a>'

    def end(self) -> None:
        """Mark the job as over. The page stays until another dashboard starts or this process ends."""
        self.board.mark_idle()
        self.board.update_job(state="over")
        with _lock:
            if self not in _over:
                _over.append(self)

    def close(self) -> None:
        """Stop the server. Repeated calls have no effect."""
        with _lock:
            if self in _over:
                _over.remove(self)
        self._server.close()

    def note(self, kind: str, text: str, *, rank: int | None = None, source: str = "ripieno.launch") -> None:
        """Record an event as text."""
        self.board.line(kind, source, text, rank=rank)


@contextmanager
def shared_dashboard(is_wanted: bool = True) -> Iterator[None]:
    """Show all jobs of this process on one dashboard within the ``with`` statement; it starts with the first job."""
    if not is_wanted:
        yield
        return
    _shared.append(None)
    try:
        yield
    finally:
        dashboard = _shared.pop()
        if dashboard is not None:
            dashboard.end()
            dashboard.close()


def current(is_requested: bool) -> tuple[Dashboard | None, bool]:
    """Return the dashboard for a new job, if it has one, and whether the dashboard ends with the job."""
    if is_requested:
        return Dashboard(), True
    if not _shared:
        return None, False
    dashboard: Any = _shared[-1]
    if dashboard is None:
        dashboard = _shared[-1] = Dashboard()
    return dashboard, False
