"""Signals end long native calls: the handler runs after little further processor time, and its exception ends the call.

Processor time does not depend on other programs. On an idle machine it is the time between signal and exception.
"""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from ripieno import kernels
from ripieno.algorithms import KMeans
from ripieno.simulation import Cluster, explain, simulate
from ripieno.simulation.distribution import distribute

#: Seconds of processor time before the signal.
BEGUN_S = 0.2
#: Limit of the processor time from the signal to the exception, in seconds.
ANSWER_S = 0.3


class HandlerError(Exception):
    """The exception of a signal handler."""


@pytest.fixture
def handled():
    """Raise an exception in the handler of SIGUSR1."""

    def end(*_):
        raise HandlerError

    before = signal.signal(signal.SIGUSR1, end)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).random((800_000, 32), np.float32)


def assign(points):
    """Compare all points with all centroids, in one call of some seconds."""
    kernels.assign(points, points[:5000], np.empty(len(points), np.int32))


def cluster(points):
    KMeans(5000, init="random", threads=1).fit(points[:200_000])


def multiply(points):
    """Add the products of 1,600 columns, in one call of some seconds."""
    rows = points.reshape(-1, 1600)
    kernels.add_products(rows, None, None, np.zeros(1600), np.zeros((1600, 1600)), dtype=np.dtype(np.float64))


LONG_CALLS = {
    "assign": assign,
    "kmeans": cluster,
    "products": multiply,
    "distribute": lambda _: distribute(Cluster(nodes=128), nbytes=64 << 20, algorithm="bittorrent"),
    "simulate": lambda _: simulate("allreduce", Cluster(nodes=1000, racks=10), nbytes=1 << 30, algorithm="ring"),
    "explain": lambda _: [explain("allreduce", Cluster(nodes=1000), nbytes=1 << 20) for _ in range(100)],
}


@pytest.mark.parametrize("call", LONG_CALLS.values(), ids=LONG_CALLS)
def test_an_exception_of_a_signal_handler_ends_a_long_call(handled, points, call):
    sent_s = []

    def interrupt():
        begin_s = time.process_time()
        while time.process_time() - begin_s < BEGUN_S:
            time.sleep(0.01)
        sent_s.append(time.process_time())
        os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(HandlerError):
        call(points)
    assert time.process_time() - sent_s[0] < ANSWER_S
    thread.join()


def test_kernels_compute_after_an_interruption(handled, points):
    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGUSR1]).start()
    with pytest.raises(HandlerError):
        while True:
            assign(points)
    labels = np.empty(3, np.int32)
    kernels.assign(np.array([[0.0], [4.0], [9.0]]), np.array([[0.0], [8.0]]), labels, threads=2)
    assert labels.tolist() == [0, 0, 1]
