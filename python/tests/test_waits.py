"""Questions of a launcher about the waits of its ranks."""

from __future__ import annotations

import socket

import pytest
from ripieno.launch.process import waits
from ripieno.launch.process.waits import RankPlace, WaitingRanks

QUESTIONS = 2000


@pytest.fixture
def rank():
    """Return a socket on which a rank gets questions."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as questions:
        questions.bind("")
        yield questions


def test_a_question_of_an_earlier_program_has_no_answers(rank, monkeypatch):
    monkeypatch.setattr(waits, "ANSWER_S", 0.0)
    ranks = WaitingRanks()
    assert ranks.take(0, "asked-at", rank.getsockname()) and ranks.take(0, "waits-long", None)
    assert ranks.is_asking

    ranks.forget()
    ranks.take(0, "place", RankPlace(0, "in recv, waiting 30.0 s for rank 1", 30.0, ""))

    assert not ranks.is_asking and ranks.answers(always=True) == []
    ranks.ask()
    ranks.take(0, "place", RankPlace(0, "in recv, waiting 31.0 s for rank 1", 31.0, ""))
    assert ranks.answers()[0] == "rank 0: in recv, waiting 31.0 s for rank 1"


def test_a_rank_that_does_not_read_questions_is_still_known(rank, monkeypatch):
    monkeypatch.setattr(waits, "ANSWER_S", 0.0)
    ranks = WaitingRanks()
    ranks.take(0, "asked-at", rank.getsockname())

    for _ in range(QUESTIONS):
        ranks.ask()
        assert ranks.answers(always=True) == ["rank 0 does not answer: it runs code that holds the interpreter"]
