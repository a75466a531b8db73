"""Trials of algorithms: stored by the placement of ranks, used from then on, and compared with other policies."""

from __future__ import annotations

import json

import numpy as np
import pytest
import ripieno as rp
from ripieno import _native
from ripieno.bench.choice import Cell
from ripieno.bench.policies import POLICIES
from ripieno.bench.results import ChoiceResults
from ripieno.cli import main
from ripieno.comm import algorithm_trials
from ripieno.simulation import algorithm_choices
from ripieno.simulation.algorithm_choices import AlgorithmChoices, Trial


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Keep the caches of all processes there; workers inherit it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def choices(*trials):
    made = [Trial(name, size, "default", best, {}, is_priced=False) for name, size, best in trials]
    return AlgorithmChoices(hosts=["h"] * 2, nodes=[0, 0], racks=[None] * 2, tried_at=1.0, trials=made)


def test_an_algorithm_is_used_half_way_to_the_next_size_and_the_last_beyond():
    found = choices(
        ("allreduce", 8, "tree"), ("allreduce", 64, "tree"), ("allreduce", 4096, "ring"), ("reduce", 8, "flat")
    )

    assert found.rows("allreduce") == [(512, "tree"), (2**62, "ring")]
    assert found.rows("reduce") == [(2**62, "flat")]
    assert found.rows("barrier") == []


def test_stored_choices_are_loaded_only_for_the_same_placement():
    found = choices(("allreduce", 8, "tree"))
    path = algorithm_choices.store(found)

    assert algorithm_choices.load_stored(["h", "h"], [0, 0], [None, None]) == found
    assert algorithm_choices.load_stored(["h"] * 3, [0, 0, 0], [None] * 3) is None
    path.write_text("{}")
    assert algorithm_choices.load_stored(["h", "h"], [0, 0], [None, None]) is None


def try_and_check(comm):
    """Return the trials, the algorithms after them, and whether sums are correct."""
    found = comm.try_algorithms(budget_s=0.3)
    chosen = {
        trial.size_bytes: comm.explain("allreduce", nbytes=trial.size_bytes).chosen
        for trial in found.trials
        if trial.collective == "allreduce"
    }
    sums = [comm.allreduce(np.arange(count) + comm.rank).sum() for count in (1, 1000)]
    part = comm.split(0).explain("allreduce", nbytes=8).chosen
    return found, chosen, sums, part


def test_ranks_run_the_tried_algorithm_and_later_programs_the_stored_one(cache):
    with rp.launch(workers=3, threads=1) as job:
        (found, chosen, sums, part), *others = job.run(try_and_check)
    with rp.launch(workers=3, threads=1) as job:
        again, *_ = job.run(try_and_check)

    assert all(other == (found, chosen, sums, part) for other in others)
    best = {trial.size_bytes: trial.best for trial in found.trials if trial.collective == "allreduce"}
    assert chosen == best and 8 in best
    assert sums == [3, 3 * 999 * 500 + 3 * 1000]
    # Split communicators use the defaults.
    assert part == next(trial.default for trial in found.trials if trial.collective == "allreduce")
    assert again == (found, chosen, sums, part)
    assert {trial.collective for trial in found.trials} == set(algorithm_trials.COLLECTIVES)
    assert len(list(cache.rglob("*.json"))) == 1
    assert "the default" in str(found)


def test_a_preferred_algorithm_runs_until_a_call_or_the_environment_names_another(threads):
    def program(comm):
        native = comm._native
        _native.prefer(native, "allreduce", [(64, "one-round"), (2**62, "ring")])
        described = [_native.choice(native, "allreduce", size) for size in (8, 64, 65)]
        comm.allreduce(np.ones(4))
        comm.allreduce(np.ones(100))
        comm.allreduce(np.ones(4), algorithm="tree")
        ran = [record["algorithm"] for record in comm.flight(3)]
        with pytest.raises(rp.InputError, match="algorithm=bruck: expected one of direct, pairwise"):
            _native.prefer(native, "alltoall", [(8, "bruck")])
        _native.prefer(native, "allreduce", [])
        return described, ran, _native.choice(native, "allreduce", 8)

    found = threads(2, program)

    assert found[0][0] == ["one-round", "one-round", "ring"]
    assert found[0][1] == ["one-round", "ring", "tree"]
    assert found[0][2] not in ("one-round", "ring") and found[0] == found[1]


def test_equal_plans_form_one_class(threads):
    (of_two, *_) = threads(2, lambda comm: _native.distinct_algorithms(comm._native, "broadcast", 1 << 20))

    assert sorted(name for each in of_two for name in each) == sorted(_native.algorithms("broadcast"))
    assert {"flat", "binomial"} <= set(of_two[0])


def test_time_to_try_is_positive(threads):
    def refused(comm):
        with pytest.raises(rp.InputError, match="budget_s=0: expected more than 0 seconds"):
            comm.try_algorithms(budget_s=0)

    threads(1, refused)


def test_the_command_tries_and_stores(cache, capsys):
    assert main(["tune", "--workers", "2", "--budget", "0.05", "--trials", "0.2", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)["algorithms"]
    assert found["nodes"] == [0, 0] and found["trials"]
    assert len(list((cache / "ripieno" / "algorithms").iterdir())) == 1


def test_choices_are_compared_with_the_fastest():
    def cell(size, chosen, **seconds):
        stands_for = {name: name for name in seconds} | {"regroup-allgather": "ring"}
        seconds = {name.replace("_", "-"): each for name, each in seconds.items()}
        return Cell("allreduce", 4, size, "tree", chosen, seconds, stands_for | {name: name for name in seconds})

    cells = [
        cell(8, "tree", tree=1.0, ring=3.0, bidirectional_exchange=1.05),
        cell(1 << 20, "regroup-allgather", tree=4.0, ring=2.0, halving_doubling=2.5),
    ]
    ratios = ChoiceResults(cells).ratios()

    assert [own for own, _ in ratios["default"]] == [1.0, 1.0]
    assert [own for own, _ in ratios["default without trials"]] == [1.0, 2.0]
    assert [own for own, _ in ratios["always ring"]] == [3.0, 1.0]
    assert ratios["Open MPI's table"] == [(3.0, 1.0), (1.25, 1.0)]
    assert ratios["always chain"] == []


def test_the_table_of_open_mpi_maps_to_algorithms():
    for collective in ("allreduce", "broadcast", "reduce", "allgather", "reduce-scatter"):
        for ranks in (2, 3, 4, 8, 16, 32, 63):
            for power in range(3, 27):
                name = POLICIES["Open MPI's table"](collective, ranks, 1 << power)
                assert name in _native.algorithms(collective)
    assert POLICIES["Open MPI's table"]("allreduce", 64, 8) is None
