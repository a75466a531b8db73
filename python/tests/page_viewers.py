"""Processes that watch the page of a dashboard without a browser, or connect to it without its token."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Processes without the token that hold as many connections as they get, until their parent ends.
FLOOD = """
import os, socket, sys
held, parent = [], os.getppid()
while os.getppid() == parent:
    try:
        held.append(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 0.2))
    except OSError:
        pass
    held = held[-400:]
"""
# Pages receive events, or poll if there are too many pages, until the job is over or the parent ends. The output is the
# number of updates and of refused connections of each.
VIEWERS = """
import json, os, sys, time, urllib.error, urllib.request
from concurrent.futures import ThreadPoolExecutor

link, count, parent = sys.argv[1], int(sys.argv[2]), os.getppid()

def view(number):
    updates, refused, is_over, path = 0, 0, False, "events"
    while not is_over and os.getppid() == parent:
        try:
            with urllib.request.urlopen(link + path, timeout=10) as response:
                for line in response:
                    if line.strip():
                        is_over = json.loads(line.removeprefix(b"data: ")).get("job", {}).get("state") == "over"
                        updates += 1
                    if is_over:
                        break
            time.sleep(2 if path == "state" and not is_over else 0)
        except urllib.error.HTTPError:
            path = "state"
        except OSError:
            refused += 1
    return updates, refused

with ThreadPoolExecutor(count) as pool:
    print(json.dumps(list(pool.map(view, range(count)))))
"""


class Viewers:
    """Viewers of a page, in one process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def counts(self) -> list[tuple[int, int]]:
        """Wait for the end of the job; return the number of updates and of refused connections of each viewer."""
        return [(updates, refused) for updates, refused in json.loads(self._process.communicate()[0])]


@contextmanager
def watching_page(link: str, viewer_count: int, flood_count: int) -> Iterator[Viewers]:
    """Start viewers of a page, and processes without its token, which are killed at the end."""
    port = link.split(":")[2].split("/")[0]
    commands = [("-c", VIEWERS, link, str(viewer_count)), *[("-c", FLOOD, port)] * flood_count]
    processes = [
        subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) for command in commands
    ]
    try:
        yield Viewers(processes[0])
    finally:
        for process in processes:
            with process:
                process.kill()
