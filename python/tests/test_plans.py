"""Plans of programs: proved, simulated, drawn, and run like plans of the catalogue."""

from __future__ import annotations

import pickle
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from ripieno.plan import CheckedPlans, Plan, Span, catalogue, check, draw, simulate, table, vector
from ripieno.simulation import Cluster
from ripieno.simulation import simulate as simulate_collective

X = vector(10, np.float64)
PAGE = Path(__file__).resolve().parents[2] / "docs/plans.md"


def chain_sum(p: int, x: Span = X) -> list[Plan]:
    """Return a reduce along a chain to rank 0, and a broadcast back."""
    plans = [Plan() for _ in range(p)]
    for rank in reversed(range(p - 1)):
        plans[rank + 1].send(rank, x)
        plans[rank].reduce(rank + 1, x)
    for rank in range(p - 1):
        plans[rank].send(rank + 1, x)
        plans[rank + 1].receive(rank, x)
    return plans


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> dict:
    """Return the functions and the sets of the example on the page."""
    folder = tmp_path_factory.mktemp("page")
    script = folder / "page.py"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        script.write_text(re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[1])
        return runpy.run_path(str(script)) | {"folder": folder}


def test_the_page_proves_prices_and_draws_a_torus(page):
    proof = str(page["torus"])

    assert proof in PAGE.read_text()
    assert (page["folder"] / "torus.svg").read_text().count("<path") == 192
    torus, ring = (simulate(plans, page["cluster"]).seconds for plans in (page["torus"], page["ring"]))
    assert torus == pytest.approx(ring, rel=0.1)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 3), (2, 2), (3, 2), (3, 5)])
def test_a_torus_is_proved_for_every_grid(page, rows, columns):
    x = vector(7, np.float32)

    plans = check([page["torus_allreduce"](rank, rows, columns, x) for rank in range(rows * columns)], "allreduce", x)

    assert plans.round_count == 2 * (rows + columns - 2)


def test_a_torus_runs_and_its_handle_has_the_result(page, world):
    x = vector(1001)
    plans = check([page["torus_allreduce"](rank, 2, 2, x) for rank in range(4)], "allreduce", x)

    def program(comm, plans):
        value = np.arange(1001.0) + comm.rank
        total = comm.run(plans, value)
        again = comm.run_async(plans, value.reshape(7, 143))
        out = np.empty(1001)
        same = comm.run(plans, value, out=out) is out
        return total, again.wait().reshape(-1), out, same, value[0] == comm.rank

    for total, again, out, is_same, is_unchanged in world(4).run(program, plans):
        np.testing.assert_array_equal(total, 4 * np.arange(1001.0) + 6)
        np.testing.assert_array_equal(again, total)
        np.testing.assert_array_equal(out, total)
        assert is_same and is_unchanged


@pytest.mark.parametrize("algorithm", ["ring", "recursive-multiplying", "one-round"])
def test_plans_of_the_catalogue_run_with_the_same_bits(world, algorithm):
    x = vector(1000, np.float32)
    plans = check(catalogue("allreduce", algorithm, x, 3), "allreduce", x)

    def program(comm, plans, algorithm):
        value = np.random.default_rng(comm.rank).random(1000).astype(np.float32)
        return comm.run(plans, value).tobytes() == comm.allreduce(value, algorithm=algorithm).tobytes()

    assert world(3).run(program, plans, algorithm) == [True] * 3


def test_the_output_may_be_the_input(world):
    x = vector(4)
    plans = check(catalogue("alltoall", "direct", x, 2), "alltoall", x)

    def program(comm, plans):
        value = np.arange(4.0) + 10 * comm.rank
        return comm.run(plans, value, out=value).tolist()

    assert world(2).run(program, plans) == [[0, 1, 10, 11], [2, 3, 12, 13]]


def test_a_plan_can_be_repeated():
    plan = Plan().send(1, X)

    assert plan.then(plan).steps == ["send(1, main[0:10])"] * 2


def test_every_algorithm_of_the_catalogue_passes_the_check():
    x = vector(24)
    for collective in rp._native.COLLECTIVES:
        for algorithm in rp._native.algorithms(collective):
            plans = check(catalogue(collective, algorithm, x, 4, root=2), collective, x, root=2)
            assert pickle.loads(pickle.dumps(plans))._native.fingerprint == plans._native.fingerprint


def test_a_set_costs_the_same_as_the_plans_of_the_catalogue():
    x = vector(1 << 20, np.uint8)
    cluster = Cluster(nodes=8)

    own = simulate(check(catalogue("allreduce", "ring", x, 8), "allreduce", x), cluster, transfers=True)
    known = simulate_collective("allreduce", cluster, nbytes=1 << 20, algorithm="ring", transfers=True)

    assert (own.seconds, own.transfers, own.nbytes) == (known.seconds, known.transfers, known.nbytes)
    assert "allreduce of 1 MiB by plans of the program" in str(own)


def test_plans_are_drawn_in_rounds():
    plans = chain_sum(3)

    assert table(plans).splitlines() == [
        "round 1: 2 +> 1 [0..10]",
        "round 2: 1 +> 0 [0..10]",
        "round 3: 0 -> 1 [0..10]",
        "round 4: 1 -> 2 [0..10]",
    ]
    assert draw(plans).count("<path") == 4 and draw(plans)._repr_svg_().startswith("<svg")
    assert str(plans[1]).splitlines()[:2] == ['   0  reduce(2, main[0:10], "sum")', "   1  send(0, main[0:10])"]


def test_a_result_in_another_buffer_starts_with_zeros(world):
    """Each rank adds the end of the next rank's value, by way of scratch memory, to the end of its output."""
    x, y = vector(6), vector(5, buffer="output")
    halves = [Plan() for _ in range(3)]
    for rank, plan in enumerate(halves):
        kept = x[3:].placed("scratch", 0)
        plan.send((rank - 1) % 3, x[3:]).receive((rank + 1) % 3, kept).combine(kept, y[2:])

    def program(comm, plans):
        value = np.full(6, comm.rank + 1.0)
        return comm.run(plans, value).tolist(), value.tolist()

    for rank, (result, value) in enumerate(world(3).run(program, check(halves))):
        assert result == [0, 0, *[(rank + 1) % 3 + 1.0] * 3]
        assert value == [rank + 1.0] * 6


def test_ranks_without_a_promised_result_get_none(world):
    plans = check(catalogue("reduce", "binomial", X, 3, op="max", root=1), "reduce", X, op="max", root=1)

    results = world(3).run(lambda comm, plans: comm.run(plans, np.full(10, comm.rank)), plans)

    assert [result is None for result in results] == [True, False, True]
    assert (results[1] == 2).all()


def edited(rank: int, write) -> list[Plan]:
    plans = chain_sum(3)
    write(plans[rank])
    return plans


def crossed(write) -> list[Plan]:
    plans = [Plan(), Plan()]
    for rank, plan in enumerate(plans):
        write(plan, 1 - rank)
    return plans


FAULTS = {
    "a receive without a send": (
        edited(0, lambda plan: plan.receive(2, X[:3])),
        (0, 2, "receive(2, main[0:3])", "rank 2 never sends these bytes", "the plan of rank 2"),
    ),
    "a send without a receive": (
        edited(2, lambda plan: plan.send(0, X[4:])),
        (2, 2, "send(0, main[4:10])", "rank 0 never receives these bytes", "the plan of rank 0"),
    ),
    "another length": (
        [Plan().send(1, X[:4]), Plan().receive(0, X[:3])],
        (1, 0, "receive(0, main[0:3])", "operation 0 of rank 0 sends 32 bytes", "as many elements"),
    ),
    "a deadlock": (
        crossed(lambda plan, other: plan.receive(other, X).send(other, X)),
        (0, 0, "receive(1, main[0:10])", "deadlock", "do not depend on"),
    ),
    "undefined memory": (
        [Plan().send(1, X.placed("scratch")), Plan().receive(0, X)],
        (0, 0, "send(1, scratch[0:10])", "no earlier step has written", "in an earlier step"),
    ),
    "a missing contribution": (
        [Plan().reduce(1, X), Plan().send(0, X)],
        (1, None, "", "the contribution of rank 0 is missing", "send the bytes of rank 0 here"),
    ),
    "a repeated contribution": (
        [each.then(more) for each, more in zip(chain_sum(2), [Plan().reduce(1, X), Plan().send(0, X)], strict=True)],
        (0, 2, 'reduce(1, main[0:10], "sum")', "occurs", "remove all but one of the operations"),
    ),
    "another operation": (
        crossed(lambda plan, other: plan.send(other, X).reduce(other, X, "max")),
        (0, 1, 'reduce(1, main[0:10], "max")', "combined by max", "operation of the collective"),
    ),
    "two operations": (
        [Plan().reduce(1, X), Plan().send(0, X).fill(X, "max")],
        (1, 1, 'fill(main[0:10], "max")', "already combine by sum", "use sum in all steps"),
    ),
    "no such rank": (
        [Plan().send(2, X), Plan()],
        (0, 0, "send(2, main[0:10])", "there is no peer 2", "another rank"),
    ),
    "a copy of another length": (
        [Plan().copy(X[:2], X[4:5]), Plan()],
        (0, 0, "copy(main[0:2], main[4:5])", "", "as many elements"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_names_rank_step_and_remedy(fault):
    plans, (rank, step, call, problem, advice) = FAULTS[fault]

    with pytest.raises(rp.PlanError) as raised:
        check(plans, "allreduce", X)

    error = raised.value
    assert (error.rank, error.step, error.call) == (rank, step, call)
    assert problem in error.problem and advice in error.advice
    assert str(error).startswith(f"rank {rank}") and error.advice in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_deadlock_lists_the_steps_that_wait():
    with pytest.raises(rp.PlanError, match=r"rank 0, step 0 receive\(1, .*; rank 1, step 0 receive\(0, "):
        check(crossed(lambda plan, other: plan.receive(other, X).send(other, X)))


def test_orders_that_differ_between_ranks_are_found():
    plans = [Plan() for _ in range(3)]
    for rank, plan in enumerate(plans):
        for other in ((rank + 1) % 3, (rank + 2) % 3):
            plan.send(other, X)
        for other in ((rank + 1) % 3, (rank + 2) % 3):
            plan.reduce(other, X)

    with pytest.raises(rp.PlanError, match="combined in another order; combine in the same order as rank 0"):
        check(plans, "allreduce", X)


def test_only_a_checked_set_runs(world):
    def program(comm, plans, others):
        errors = []
        for wrong in (plans[0], plans, [plans[0]] * 2, None, others):
            with pytest.raises(rp.InputError) as raised:
                comm.run(wrong, np.zeros(10))
            errors.append(str(raised.value))
        checked = check(plans, "allreduce", X)
        for value in (np.zeros(9), np.zeros(10, np.float32), "no array", np.zeros(10, "c16")):
            with pytest.raises(rp.InputError):
                comm.run(checked, value)
        for out in (np.zeros(9), np.zeros((10, 2))[:, 0]):
            with pytest.raises(rp.InputError):
                comm.run(checked, np.zeros(10), out=out)
        return errors, comm.run(checked, np.ones(10)).tolist()

    for errors, result in world(2).run(program, chain_sum(2), check(chain_sum(3))):
        assert all("plans that were not checked never run" in error for error in errors[:4])
        assert errors[4] == "run: plans of 3 ranks: expected 2, one per rank"
        assert result == [2.0] * 10


def test_a_restored_set_is_checked_again():
    function, (plans, requested) = check(chain_sum(2), "allreduce", X).__reduce__()
    plans[0].send(1, X)

    with pytest.raises(rp.PlanError, match="rank 1 never receives"):
        function(plans, requested)


def test_later_changes_of_a_plan_do_not_change_the_set():
    plans = chain_sum(2)
    checked = check(plans, "allreduce", X)
    plans[0].send(1, X)
    checked[0].send(1, X)

    assert [len(each) for each in plans] == [3, 2] and [len(each) for each in checked] == [2, 2]
    assert checked[1] == plans[1] != checked[0]


def different_sets(comm, first: CheckedPlans, second: CheckedPlans) -> None:
    comm.run(second if comm.rank == 1 else first, np.zeros(10))


@pytest.mark.parametrize("peers", [(1, 2), (1, 0)], ids=["on other links", "on one link"])
def test_ranks_with_different_sets_get_an_error(peers):
    sender, receiver = peers
    first = check([Plan().receive(1, X), Plan().send(0, X), Plan()])
    steps = [Plan() for _ in range(3)]
    steps[receiver].send(sender, X)
    steps[sender].receive(receiver, X)

    with rp.launch(workers=3) as job, pytest.raises(rp.RipienoError) as raised:
        job.run(different_sets, first, check(steps))

    assert isinstance(raised.value, rp.CollectiveMismatch | rp.RankFailed)
    assert "plan(" in str(raised.value)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: vector(-1),
        lambda: X[3],
        lambda: X[::2],
        lambda: X.chunk(3, 3),
        lambda: X.placed("other"),
        lambda: Plan().send(-1, X),
        lambda: Plan().send(1, "x"),
        lambda: Plan().reduce(1, X, "mean"),
        lambda: check([]),
        lambda: check([1]),
        lambda: check(chain_sum(2), "allsum", X),
        lambda: check(chain_sum(2), "allreduce"),
        lambda: check(chain_sum(2), "allreduce", X[2:]),
        lambda: check(chain_sum(2), None, X),
        lambda: check(chain_sum(2), "reduce", X, root=2),
        lambda: check(chain_sum(3), "alltoall", X),
        lambda: catalogue("allreduce", "rings", X, 2),
        lambda: catalogue("allgather", "neighbour-exchange", X, 3),
        lambda: simulate(chain_sum(3), Cluster(nodes=2)),
        lambda: simulate([Plan().send(1, X), Plan()], Cluster(nodes=2)),
        lambda: draw([Plan()] * 65),
    ],
)
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(rp.InputError, match="expected"):
        wrong()


def test_spans_divide_a_vector():
    assert [str(chunk) for chunk in X.chunks(4)] == ["main[0:3]", "main[3:6]", "main[6:8]", "main[8:10]"]
    assert (str(X[2:][1:4]), len(X[4:]), str(X[2:5].placed("scratch", 0))) == ("main[3:6]", 6, "scratch[0:3]")
