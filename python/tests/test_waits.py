"""Queries from a launcher about the waits of its ranks."""

from __future__ import annotations

import selectors
import socket
import threading

import pytest
import ripieno as rp
from ripieno import _checks
from ripieno.launch import limits
from ripieno.launch.process.waits import RankPlace, WaitingRanks
from ripieno.launch.script import environment
from stand_in_engine import StandIn
from varied import exhaustively

QUESTIONS = 2000


@pytest.fixture
def rank():
    """Return a socket on which a rank gets queries."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as queries:
        queries.bind("")
        yield queries


def test_answers_to_an_inquiry_of_an_earlier_program_are_ignored(rank, monkeypatch):
    monkeypatch.setattr(limits, "OTHER_REPORTS_S", 0.0)
    ranks = WaitingRanks()
    assert ranks.take(0, "query-address", rank.getsockname()) and ranks.take(0, "waits-long", None)
    assert ranks.wait_s(None) is not None

    ranks.forget()
    ranks.take(0, "place", RankPlace(0, "in recv, waiting 30.0 s for rank 1", 30.0, ""))

    assert ranks.wait_s(None) is None and ranks.answers() == []
    ranks.query()
    ranks.take(0, "place", RankPlace(0, "in recv, waiting 31.0 s for rank 1", 31.0, ""))
    assert ranks.answers()[0] == "rank 0: in recv, waiting 31.0 s for rank 1"


def test_a_rank_that_does_not_read_questions_is_still_known(rank, monkeypatch):
    monkeypatch.setattr(limits, "OTHER_REPORTS_S", 0.0)
    ranks = WaitingRanks()
    ranks.take(0, "query-address", rank.getsockname())

    for _ in range(QUESTIONS):
        assert explained(ranks) == ["rank 0 does not answer: it runs code that holds the interpreter"]


def test_an_interrupt_is_explained_although_a_call_has_timed_out(rank):
    ranks = WaitingRanks()
    place = RankPlace(0, "in recv, waiting 3.0 s for rank 1", 3.0, "")
    ranks.take(0, "query-address", rank.getsockname())
    ranks.take(0, "timed-out", place)
    ranks.take(0, "place", place)
    assert explained(ranks)[0] == "rank 0: in recv, waiting 3.0 s for rank 1"


def explained(ranks):
    """Return the answers of ranks that send nothing more."""
    with selectors.DefaultSelector() as selector:
        return list(ranks.explain(selector, selector.unregister, always=True))


def stuck():
    threading.Event().wait()


def rank_of(comm):
    return comm.rank


@pytest.mark.parametrize(
    ("launch", "of_job"),
    [(rp.launch, False), (StandIn().launch, True), *exhaustively((rp.launch, True), (StandIn().launch, False))],
    ids=["local-call", "engine-job", "local-job", "engine-call"],
)
def test_a_call_beyond_its_time_limit_names_the_missing_rank_and_its_place(launch, of_job):
    def program(comm):
        with comm.timeout(60 if of_job else 0.2):
            comm.barrier()
        with comm.timeout(0.2):
            return stuck() if comm.rank == 1 else comm.allreduce(1.0)

    def of_all_calls(comm):
        return stuck() if comm.rank == 1 else comm.recv(1)

    with launch(workers=2, threads=1, **({"call_timeout_s": 0.5} if of_job else {})) as job:
        # The ranks of an engine import this module, which takes longer than the limits.
        assert job.run(rank_of) == [0, 1]
        with pytest.raises(rp.CallTimeout, match="longer than call_timeout_s") as caught:
            job.run(of_all_calls if of_job else program)
        where = "in recv" if of_job else "in allreduce #"
        assert caught.value.wait.startswith(f"rank 0: {where}") and caught.value.wait.endswith("for rank 1")
        assert "in stuck" in caught.value.details
        assert job.run(rank_of) == [0, 1]


def test_a_time_limit_is_a_number_of_seconds(world):
    def program(comm):
        for wrong in (0, -1, True, "5"):
            with pytest.raises(rp.InputError, match="expected a number > 0"), comm.timeout(wrong):
                pass
        with comm.timeout(1.5):
            inside = comm._call_timeout_s
            with comm.timeout(None):
                unlimited = comm._call_timeout_s
        return inside, unlimited, comm._call_timeout_s

    assert world(1).run(program) == [(1.5, float("inf"), float("inf"))]
    with pytest.raises(rp.InputError, match="call_timeout_s=0: expected a positive number"):
        rp.launch(2, call_timeout_s=0)
    for wrong in (0, -1, "5", float("nan")):
        with pytest.raises(rp.InputError, match=r"call_timeout_s=.*: expected a number > 0"):
            environment.from_environment({}, threads=1, call_timeout_s=wrong)
    for limit_s in (0.5, None, float("inf")):
        with rp.launch(1, call_timeout_s=limit_s) as job:
            assert job.run(lambda comm: comm.allreduce(1)) == [1]
    assert environment.from_environment({}, threads=1, call_timeout_s=None)._call_timeout_s == float("inf")


@pytest.mark.parametrize(
    ("text", "seconds"), [("1800.0", 1800.0), ("1e3", 1000.0), ("", 60.0), ("x", None), ("0", None), ("nan", None)]
)
def test_seconds_in_variables_are_any_number(text, seconds):
    if seconds is not None:
        assert _checks.seconds_of({"RIPIENO_LIMIT_S": text}, "RIPIENO_LIMIT_S", 60) == seconds
        return
    with pytest.raises(rp.InputError, match=f"RIPIENO_LIMIT_S={text}: expected a number of seconds > 0$"):
        _checks.seconds_of({"RIPIENO_LIMIT_S": text}, "RIPIENO_LIMIT_S", 60)
