"""The server of a dashboard: serves the page, its data, metrics and the trace to clients with the token.

The page uses server-sent events. If a proxy delays them, it polls. All its links are relative, and it loads nothing
from other sites.
"""

from __future__ import annotations

import asyncio
import hmac
import io
import itertools
import json
import resource
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib import resources
from typing import Any, ClassVar, cast

from ripieno.dashboard import metrics
from ripieno.dashboard.board import Board
from ripieno.dashboard.picture import picture
from ripieno.dashboard.state import BoardUpdates

#: Interval between two updates of a page.
PERIOD_S = 1.0
#: Maximum number of open connections. They use at most 1/8 of this process's limit of descriptors.
CONNECTIONS_MAX = 64
LIMIT_SHARE = 8
#: Backlog of the listening socket.
BACKLOG = 128
#: Time limit in seconds, and size limit, of a request.
HEADER_TIMEOUT_S = 5.0
HEADER_BYTES_MAX = 16_384
#: Time limit in seconds for a client to receive an answer.
SEND_TIMEOUT_S = 30.0
#: After this many connections `accept` pauses for `PAUSE_S` seconds, so a flood causes at most 100 wake-ups per second.
ACCEPTS_PER_PAUSE = 16
PAUSE_S = 0.01

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


class DashboardServer:
    """Listens on creation, and answers after `start`.

    One thread runs an event loop for all connections. A connection has `HEADER_TIMEOUT_S` to send a request with the
    token. At most `connections_max` are open, so that the job keeps its descriptors; beyond that the oldest connection
    without the token is closed.

    Parameters
    ----------
    address
        Host and port; port 0 selects a free one.
    board
        The board to serve.
    token
        The first part of every path.
    """

    def __init__(self, address: tuple[str, int], board: Board, token: str) -> None:
        self.board = board
        self.token = token
        self.connections_max = min(CONNECTIONS_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // LIMIT_SHARE)
        self._socket = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(address)
            self._socket.listen(BACKLOG)
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise
        self.server_port = int(self._socket.getsockname()[1])
        # Connections that have not sent the token yet, oldest first, and authenticated connections.
        self._waiting: dict[asyncio.Task[None], None] = {}
        self._known: set[asyncio.Task[None]] = set()
        self._listener_count = 0
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="ripieno-dashboard", daemon=True)

    @property
    def accepts_listener(self) -> bool:
        """Whether another page may receive events. Half of the connections are reserved for polling."""
        return self._listener_count < self.connections_max // 2

    def start(self) -> None:
        """Start to answer requests."""
        self._thread.start()

    def close(self) -> None:
        """Stop the server."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()
        self._socket.close()
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        accepting = asyncio.create_task(self._accept())
        await self._over.wait()
        for each in (accepting, *self._waiting):
            each.cancel()
        if self._known:
            # Pages with open event streams receive the last state.
            await asyncio.wait(self._known, timeout=PERIOD_S)
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for each in rest:
            each.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _accept(self) -> None:
        for number in itertools.count(1):
            try:
                connection, _ = await self._loop.sock_accept(self._socket)
            except OSError:
                # The process has no free descriptor.
                await asyncio.sleep(PAUSE_S)
                continue
            task = asyncio.create_task(self._answer(connection))
            self._waiting[task] = None
            task.add_done_callback(self._task_done)
            if len(self._waiting) + len(self._known) > self.connections_max and self._waiting:
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]
                oldest.cancel()
            await asyncio.sleep(0 if number % ACCEPTS_PER_PAUSE else PAUSE_S)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._waiting.pop(task, None)
        self._known.discard(task)

    async def _answer(self, connection: socket.socket) -> None:
        """Answer the single request of a connection."""
        writer = None
        try:
            reader, writer = await asyncio.open_connection(sock=connection, limit=HEADER_BYTES_MAX)
            async with asyncio.timeout(HEADER_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            request = _Request(head, self)
            task = asyncio.current_task()
            if request.is_known and task in self._waiting:
                del self._waiting[task]
                self._known.add(task)
            writer.write(request.answer)
            if request.listens:
                await self._push_updates(writer)
            async with asyncio.timeout(SEND_TIMEOUT_S):
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, asyncio.LimitOverrunError):
            # The client has closed the connection, timed out, or does not speak HTTP.
            pass
        finally:
            if writer is None:
                connection.close()
            else:
                writer.transport.abort()

    async def _push_updates(self, writer: asyncio.StreamWriter) -> None:
        """Send the state repeatedly until the server is closed."""
        self._listener_count += 1
        try:
            updates, is_over = BoardUpdates(self.board), False
            while not is_over:
                is_over = self._over.is_set()
                writer.write(f"data: {_json(updates.as_json())}\n\n".encode())
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), PERIOD_S)
        finally:
            self._listener_count -= 1


class _Request(BaseHTTPRequestHandler):
    """A request, and its answer in bytes.

    Parameters
    ----------
    head
        The request, up to the empty line.
    server
        The server with the requested board.

    Attributes
    ----------
    is_known : bool
        Whether the request contains the token.
    listens : bool
        Whether an event stream follows the answer.
    """

    server: DashboardServer  # type: ignore[assignment]  # the base class has a server that starts it
    protocol_version = "HTTP/1.1"
    server_version = "ripieno"
    sys_version = ""

    def __init__(self, head: bytes, server: DashboardServer) -> None:
        self.server = server
        self.rfile, self.wfile = io.BytesIO(head), io.BytesIO()
        self.is_known = self.listens = False
        self.handle_one_request()

    @property
    def answer(self) -> bytes:
        """The bytes to send."""
        return cast("io.BytesIO", self.wfile).getvalue()

    def do_GET(self) -> None:
        token, _, path = self.path.partition("?")[0].removeprefix("/").partition("/")
        self.is_known = hmac.compare_digest(token.encode(), self.server.token.encode())
        if not self.is_known:
            self._answer("Open the complete link that was printed: it contains a token.\n", status=HTTPStatus.FORBIDDEN)
        elif not path and not self.path.partition("?")[0].endswith("/"):
            # The links of the page are relative to its folder.
            self._answer("", status=HTTPStatus.MOVED_PERMANENTLY, more={"Location": f"{token}/"})
        elif path in FILES:
            name, kind = FILES[path]
            self._answer(resources.files("ripieno.dashboard").joinpath("page", name).read_text(), kind)
        elif path in self._ANSWERS:
            self._ANSWERS[path](self)
        else:
            self._answer(f"{path} does not exist.\n", status=HTTPStatus.NOT_FOUND)

    do_HEAD = do_GET

    def _state(self) -> None:
        self._answer(_json(BoardUpdates(self.server.board).as_json()), "application/json")

    def _metrics(self) -> None:
        self._answer(metrics.text_of(self.server.board), metrics.CONTENT_TYPE)

    def _trace(self) -> None:
        name = {"Content-Disposition": 'attachment; filename="ripieno-trace.json"'}
        self._answer(_json(picture(self.server.board)), "application/json", more=name)

    def _events(self) -> None:
        if not self.server.accepts_listener:
            self._answer("Too many pages are connected already.\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
            return
        self._head(HTTPStatus.OK, {"Content-Type": "text/event-stream"})
        self.listens = self.command != "HEAD"

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
        for name, value in {**HEADERS, "Connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests do not concern the user of the job."""


_json = partial(json.dumps, separators=(",", ":"))
