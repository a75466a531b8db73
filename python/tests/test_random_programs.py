"""Random programs: if one rank makes a different call, every rank gets an error.

A seed determines a program. To repeat seed 17, run ``RIPIENO_PROGRAMS=17..18 pytest`` with this file. ``make soak``
runs thousands of programs.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from random_programs import KINDS, SeededProgram, wrong_outcome

#: Number of concurrent programs. Most programs only wait, a second or two, for deadlock detection.
CONCURRENT_COUNT = 8


def seeds(default: str) -> range:
    first, _, last = os.environ.get("RIPIENO_PROGRAMS", default).rpartition("..")
    return range(int(first or 0), int(last))


def assert_right_outcomes(programs: list[SeededProgram], deviates: bool) -> None:
    with ThreadPoolExecutor(CONCURRENT_COUNT) as pool:
        faults = [fault for fault in pool.map(lambda program: wrong_outcome(program, deviates), programs) if fault]
    if faults:
        pytest.fail("\n".join([f"{len(faults)} of {len(programs)} programs:", *faults[:10]]))


def test_programs_without_a_deviation_end_without_an_error():
    programs = [SeededProgram.from_seed(seed) for seed in seeds("0..40")]
    assert_right_outcomes(programs, deviates=False)


def test_every_rank_gets_an_error_about_a_deviating_rank():
    programs = [SeededProgram.from_seed(seed) for seed in seeds("0..80")]
    assert_right_outcomes(programs, deviates=True)


def test_every_kind_of_call_is_drawn():
    assert {call.kind for seed in range(400) for call in SeededProgram.from_seed(seed).calls} == KINDS.keys()
