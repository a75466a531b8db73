"""Random programs: if one rank makes a different call, every rank gets an error.

A seed determines a program. To repeat seed 17, run ``RIPIENO_PROGRAMS=17..18 pytest`` with this file. ``make soak``
runs thousands of programs.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from random_programs import KINDS, SeededProgram, fault_of

#: Number of concurrent programs. Most programs only wait, a second or two, for deadlock detection.
CONCURRENT_COUNT = 8


def seeds(default: str) -> range:
    first, _, last = os.environ.get("RIPIENO_PROGRAMS", default).rpartition("..")
    return range(int(first or 0), int(last))


def assert_without_fault(programs: list[SeededProgram], is_odd: bool) -> None:
    with ThreadPoolExecutor(CONCURRENT_COUNT) as pool:
        faults = [fault for fault in pool.map(lambda program: fault_of(program, is_odd), programs) if fault]
    if faults:
        pytest.fail("\n".join([f"{len(faults)} of {len(programs)} programs:", *faults[:10]]))


def test_programs_in_which_all_ranks_call_the_same_end_well():
    programs = [SeededProgram.drawn(seed) for seed in seeds("0..40")]
    assert_without_fault(programs, is_odd=False)


def test_every_rank_gets_the_different_call_of_one_rank():
    programs = [SeededProgram.drawn(seed) for seed in seeds("0..80")]
    assert_without_fault(programs, is_odd=True)


def test_every_kind_of_call_is_drawn():
    assert {call.kind for seed in range(400) for call in SeededProgram.drawn(seed).calls} == KINDS.keys()
