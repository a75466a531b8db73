"""The server of a dashboard: its page, what the page asks for, metrics and the trace, to those who know the token.

The page listens to server-sent events and, where a proxy holds these back, asks again and again. All its links are
relative, and it fetches nothing from elsewhere.
"""

from __future__ import annotations

import hmac
import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, ClassVar

from ripieno.dashboard import metrics
from ripieno.dashboard.board import Board
from ripieno.dashboard.picture import picture
from ripieno.dashboard.state import Teller

#: Between two things that a page is told.
PERIOD_S = 1.0
#: So many pages may listen at once; others ask.
LISTENERS_MAX = 32
#: For how long who asks may be silent, or take nothing.
PATIENCE_S = 30.0

FILES = {
    "": ("page.html", "text/html; charset=utf-8"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "draw.js": ("draw.js", "text/javascript; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
}
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:",
    "Referrer-Policy": "no-referrer",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


class Server(ThreadingHTTPServer):
    """Listens from the beginning, and answers once `start` was called.

    Parameters
    ----------
    address
        Host and port; port 0 is a free one.
    board
        What to tell of.
    token
        The first part of every path.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], board: Board, token: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.board = board
        self.token = token
        self.over = threading.Event()
        self.listeners = threading.BoundedSemaphore(LISTENERS_MAX)
        super().__init__(address, _Request)
        self._thread = threading.Thread(target=self.serve_forever, name="ripieno-dashboard", daemon=True)

    def server_bind(self) -> None:
        # Without the look-up of this host's name, which may take seconds.
        socket.socket.bind(self.socket, self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asks has gone; that is nothing to the user of the job."""

    def start(self) -> None:
        """Answer."""
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self.over.set()
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()


class _Request(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "ripieno"
    sys_version = ""
    timeout = PATIENCE_S

    def do_GET(self) -> None:
        token, _, path = self.path.partition("?")[0].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._answer("Open the whole link that was printed: it has a token in it.\n", status=HTTPStatus.FORBIDDEN)
        elif not path and not self.path.partition("?")[0].endswith("/"):
            # Links of the page are relative to the folder that it is in.
            self._answer("", status=HTTPStatus.MOVED_PERMANENTLY, more={"Location": f"{token}/"})
        elif path in FILES:
            name, kind = FILES[path]
            self._answer(resources.files("ripieno.dashboard").joinpath("page", name).read_text(), kind)
        elif path in self._ANSWERS:
            self._ANSWERS[path](self)
        else:
            self._answer(f"There is no {path} here.\n", status=HTTPStatus.NOT_FOUND)

    do_HEAD = do_GET

    def _state(self) -> None:
        self._answer(_json(Teller(self.server.board).told()), "application/json")

    def _metrics(self) -> None:
        self._answer(metrics.text_of(self.server.board), metrics.CONTENT_TYPE)

    def _trace(self) -> None:
        name = {"Content-Disposition": 'attachment; filename="ripieno-trace.json"'}
        self._answer(_json(picture(self.server.board)), "application/json", more=name)

    def _events(self) -> None:
        if not self.server.listeners.acquire(blocking=False):
            self._answer("Too many pages listen already.\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
            return
        try:
            self._head(HTTPStatus.OK, {"Content-Type": "text/event-stream", "Connection": "close"})
            self.close_connection = True
            teller = Teller(self.server.board)
            while True:
                is_over = self.server.over.is_set()
                self.wfile.write(f"data: {_json(teller.told())}\n\n".encode())
                self.wfile.flush()
                if is_over:
                    return
                self.server.over.wait(PERIOD_S)
        finally:
            self.server.listeners.release()

    _ANSWERS: ClassVar[dict[str, Callable[[_Request], None]]] = {
        "state": _state,
        "events": _events,
        "metrics": _metrics,
        "trace.json": _trace,
    }

    def _answer(
        self,
        text: str,
        kind: str = "text/plain; charset=utf-8",
        *,
        status: HTTPStatus = HTTPStatus.OK,
        more: dict[str, str] | None = None,
    ) -> None:
        body = text.encode()
        self._head(status, {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Who looks is nothing to the user of the job."""

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()


_json = partial(json.dumps, separators=(",", ":"))
