"""Changed bytes between a launching process and the ranks of an engine: right results, or an error that names the rank.

A proxy is between the member server and each rank. A seed determines the connection, its direction, the place and the
kind of the change. ``make soak`` plays 200. To replay a failed one, run ``RIPIENO_SCHEDULES=17..18 pytest`` with this
file.
"""

from __future__ import annotations

import os
import random
import re
import socket
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import ripieno as rp
from ripieno.launch import member
from ripieno.launch.engine.contract import Engine, Run
from ripieno.launch.engine.member_server import Invitation
from stand_in_engine import StandIn
from test_soak import resident_bytes

SCHEDULES = range(*map(int, os.environ.get("RIPIENO_SCHEDULES", "0..10").split("..")))
HOST, RANKS = "127.0.0.1", 2
#: After a change, a proxy closes a connection without data for this long: one end may wait for missing bytes.
IDLE_S = 1.0
#: A rank waits this long for one that has failed before both have connected.
JOIN_S = 8.0
#: More memory than this is an allocation by a length that a peer has sent.
EXTRA_BYTES = 256 << 20
CHANGES = ("flipped bit", "wrong number", "missing bytes", "inserted bytes", "cut")
LENGTHS = (0, 1, 63, 2**20 + 1, 2**40, 2**62, 2**63, 2**64 - 1)


class Change:
    """A change of one direction of one connection."""

    def __init__(self, seed: int = 0, *, at: int | None = None) -> None:
        self.random = random.Random(seed)
        self.rank = self.random.randrange(RANKS)
        self.to_server = self.random.random() < 0.5
        self.kind = self.random.choice(CHANGES)
        #: Half of all changes are near the start, where frames are short. The rest reaches into programs and results.
        drawn = self.random.randrange(*self.random.choice(((0, 400), (0, 400), (400, 12_000))))
        self.at = drawn if at is None else at
        self.was_made = False

    def apply(self, data: bytes, offset: int) -> tuple[bytes, bool]:
        """Return the bytes to forward instead of `data` at this offset, and whether the connection ends."""
        if self.was_made or not offset <= self.at < offset + len(data):
            return data, False
        self.was_made = True
        head, tail = data[: self.at - offset], data[self.at - offset :]
        match self.kind:
            case "flipped bit":
                return head + bytes([tail[0] ^ 1 << self.random.randrange(8)]) + tail[1:], False
            case "wrong number":
                return head + self.random.choice(LENGTHS).to_bytes(8, "little")[: len(tail)] + tail[8:], False
            case "missing bytes":
                return head + tail[self.random.randrange(1, 40) :], False
            case "inserted bytes":
                return head + self.random.randbytes(self.random.randrange(1, 40)) + tail, False
        return head, True


class Proxy:
    """Forwards connections of a rank to a port. The first connection has the change, if there is one."""

    def __init__(self, port: int, change: Change | None) -> None:
        self._port, self._change = port, change
        self._listener = socket.create_server((HOST, 0))
        self._ends: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        for number in range(10**6):
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection((HOST, self._port))
            except OSError:
                return
            self._ends += near, far
            for source, target, to_server in ((near, far, True), (far, near, False)):
                change = self._change
                if number or (change is not None and to_server != change.to_server):
                    change = None
                self._threads.append(threading.Thread(target=_forward, args=(source, target, change)))
                self._threads[-1].start()

    def close(self) -> None:
        _shut_down(self._listener)
        self._threads[0].join()
        for end in self._ends:
            _shut_down(end)
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()


def _forward(source: socket.socket, target: socket.socket, change: Change | None) -> None:
    offset, is_cut = 0, False
    with suppress(OSError):
        while not is_cut and (data := source.recv(1 << 16)):
            forwarded, is_cut = (data, False) if change is None else change.apply(data, offset)
            if change is not None and change.was_made:
                source.settimeout(IDLE_S)
            target.sendall(forwarded)
            offset += len(data)
    _shut_down(target)
    if change is not None and change.was_made:
        _shut_down(source)


def _shut_down(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


class Members(Run):
    """Ranks in threads of this process, behind a proxy."""

    def __init__(self, invitation: Invitation, change: Change) -> None:
        super().__init__()
        self.errors: list[BaseException] = []
        self.proxies = [Proxy(invitation.port, change if rank == change.rank else None) for rank in range(RANKS)]
        self.threads = [
            threading.Thread(target=self._serve, args=(replace(invitation, port=proxy.port), rank))
            for rank, proxy in enumerate(self.proxies)
        ]
        for thread in self.threads:
            thread.start()

    def _serve(self, invitation: Invitation, rank: int) -> None:
        try:
            member.serve(invitation, rank)
        except Exception as error:
            self.errors.append(error)
            self.failed(rank, str(error))

    def end(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        for thread in self.threads:
            thread.join()


class Proxied(StandIn):
    """An engine whose ranks reach the member server by a proxy."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change = change

    def start(self, workers: int, invitation: Invitation) -> Run:
        self.members = Members(invitation, self.change)
        return self.members


def program(comm: rp.Communicator, values: np.ndarray, text: str) -> tuple[int, str, np.ndarray]:
    """Return the value that a rank received, and a sum over ranks."""
    return comm.rank, text[::-1], values + comm.allreduce(1)


def play(engine: Engine, *, tls: bool) -> bool:
    """Run two programs; return whether all results are right."""
    values = np.arange(500)
    with engine.launch(RANKS, tls=tls, heartbeat_timeout_s=60.0, rendezvous_timeout_s=JOIN_S) as job:
        found: list[Any] = []
        for text in ("first", "second"):
            found += job.run(program, values, text)
    expected = [(rank, text[::-1]) for text in ("first", "second") for rank in range(RANKS)]
    return [each[:2] for each in found] == expected and all((each[2] == values + RANKS).all() for each in found)


@pytest.mark.parametrize("tls", [False, True])
def test_changed_bytes_end_in_right_results_or_an_error_that_names_a_rank(tls, monkeypatch, capsys):
    uncaught: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", uncaught.append)
    outcomes: Counter[tuple[str, str]] = Counter()
    assert play(Proxied(Change(at=1 << 60)), tls=tls)
    before = resident_bytes("self")
    for seed in SCHEDULES:
        change = Change(seed)
        engine = Proxied(change)
        try:
            is_right = play(engine, tls=tls)
            outcome = "right results" if is_right else "changed payload"
            assert is_right or not tls, seed
        except rp.RipienoError as error:
            outcome = "error"
            named = rf"\brank {change.rank}\b|missing are {change.rank}\b"
            # On a busy machine, unchanged ranks may join late.
            is_late = "have joined within" in str(error)
            assert re.search(named, str(error)) or (is_late and not change.was_made), (seed, vars(change), error)
            assert change.was_made or is_late, (seed, error)
        except Exception as error:
            error.add_note(f"schedule {seed}: {vars(change)}")
            raise
        for error in engine.members.errors:
            assert isinstance(error, rp.RipienoError), (seed, vars(change), repr(error))
        assert not uncaught, (seed, vars(change), uncaught)
        outcomes[change.kind if change.was_made else "none: the connection was too short", outcome] += 1
    assert resident_bytes("self") - before < EXTRA_BYTES
    assert any(outcome == "error" for _, outcome in outcomes)
    if "RIPIENO_SCHEDULES" in os.environ:
        with capsys.disabled():
            print(f"\n{'TLS' if tls else 'plain'}: {outcomes.total()} worlds")
            for (kind, outcome), count in sorted(outcomes.items()):
                print(f"  {kind}: {outcome} in {count}")
