"""Errors keep their contents when pickled."""

import pickle
import sys
import time

import numpy as np
import pytest
import ripieno as rp
from ripieno import errors, log
from ripieno.comm.rank import CAUSE_CHARACTERS_MAX, describe
from ripieno.launch.process import report


def test_rank_failed_names_rank_host_cause_and_traceback():
    text = str(errors.RankFailed(3, "node7", "ValueError: x", "Traceback ...\nValueError: x"))

    assert "rank 3 on node7 failed: ValueError: x" in text
    assert "Traceback of rank 3:\nTraceback ..." in text


def test_rank_failed_without_details_is_still_a_sentence():
    assert str(errors.RankFailed(3)) == "rank 3 failed: cause unknown"


def test_an_exception_above_the_bound_stays_on_its_rank(monkeypatch):
    monkeypatch.setattr(report, "EXCEPTION_BYTES_MAX", 1000)
    small, large = (report.FailureReport.of(ValueError("x" * count), 3, "node7") for count in (10, 2000))

    with pytest.raises(ValueError, match=r"^x{10}$"):
        small.throw()
    with pytest.raises(errors.RankFailed, match=r"node7 failed: ValueError of 2\.\d+ KB, expected at most 1 KB"):
        large.throw()


def test_a_message_of_many_lines_is_described_in_a_fraction_of_the_time_that_python_takes():
    lines = "x y\n" * (12 << 20)

    def raised():
        try:
            raise ValueError(lines)
        except ValueError as error:
            raise KeyError("outer") from error

    with pytest.raises(KeyError) as caught:
        raised()
    begin_s = time.process_time()
    cause, text = describe(caught.value)
    inner_cause, inner_text = describe(caught.value.__cause__)
    assert time.process_time() - begin_s < 1.0

    assert cause == "KeyError: 'outer'" and "in raised\n" in text and text.endswith("KeyError: 'outer'\n")
    assert len(inner_cause) < CAUSE_CHARACTERS_MAX + 100 and "characters left out" in inner_cause
    assert "in raised\n" in inner_text and "\nValueError: x y\nx y\n" in inner_text


def test_a_warning_names_the_line_of_the_program(tmp_path):
    rows, line = np.zeros((20, 2)), sys._getframe().f_lineno
    with pytest.warns() as caught:
        rp.KMeans(n_clusters=2, random_state=0).fit_predict(rows)
        with log.warn_on_failure("ripieno.report", "the page"):
            raise OSError("no")
    assert [(each.filename, each.lineno - line) for each in caught] == [(__file__, 2), (__file__, 3)]


def test_too_few_slots_are_reported_with_numbers_and_a_remedy():
    text = str(errors.TooFewSlots("spark", 8, 1, 4, "add executors"))

    assert text == "spark has too few free slots for 8 ranks: 1 free, 4 in all; add executors"


@pytest.mark.parametrize(
    "error",
    [
        errors.RankFailed(1, "host", "cause", "trace"),
        errors.CallTimeout("rank 0: in barrier #0, waiting 5.0 s for rank 1", "rank 1 is here:"),
        errors.BroadcastError("the root is lost"),
        errors.CollectiveMismatch("rank 0 called a; rank 1 called b"),
        errors.RendezvousError("rank 1 is missing"),
        errors.CommunicatorClosed("over"),
        errors.InputError("n=0: expected >= 1"),
        errors.MissingColumn("y", "cost", "prices.csv", ["a", "b"]),
        errors.SerializationError("no"),
        errors.UnsupportedError("no files"),
        errors.TooFewSlots("spark", 8, 1, 4, "add executors"),
        errors.PlanError(0, 2, "send(1, main[0:4])", "main[0:4]", "rank 1 never receives it", "add a receive", []),
    ],
)
def test_every_error_survives_pickling_and_is_a_ripieno_error(error):
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert isinstance(copy, errors.RipienoError)


def test_input_errors_are_value_errors():
    assert issubclass(errors.InputError, ValueError)
