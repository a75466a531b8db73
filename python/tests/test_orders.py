"""Orders and overrides: results are correct in every order; differing ranks and unknown names are reported."""

import numpy as np
import pytest
import ripieno as rp
from ripieno.errors import CollectiveMismatch, InputError
from varied import exhaustively

ORDERS = [None, "racks", "given", "random", "random:7"]


def _all_collectives_are_right(comm, order):
    mine = np.arange(40.0) + comm.rank
    total = comm.world_size * np.arange(40.0) + sum(range(comm.world_size))
    reduced = comm.reduce(mine, root=1, algorithm="chain", order=order)
    rows = slice(comm.rank * 10, comm.rank * 10 + 10)
    return (
        np.array_equal(comm.allreduce(mine, algorithm="ring", order=order), total)
        and np.array_equal(comm.allreduce(mine, order=order), total)
        and np.array_equal(comm.broadcast(mine, root=2, algorithm="chain", order=order), np.arange(40.0) + 2)
        and (reduced is None if comm.rank != 1 else np.array_equal(reduced, total))
        and [part[0] for part in comm.allgather(mine, algorithm="ring", order=order)] == [0.0, 1.0, 2.0, 3.0]
        and np.array_equal(comm.reduce_scatter(mine, algorithm="ring", order=order), total[rows])
    )


def test_every_collective_is_right_in_every_order(world):
    assert (
        world(4).run(lambda comm: [_all_collectives_are_right(comm, order) for order in ORDERS])
        == [[True] * len(ORDERS)] * 4
    )


def test_another_order_is_a_mismatch(world):
    def disagree(comm):
        comm.allreduce(np.ones(1000), algorithm="ring", order="random:1" if comm.rank else "given")

    with pytest.raises(
        CollectiveMismatch, match=r"rank 0 called .*order given.*ranks? (1|2|1-2) called .*order random:1"
    ):
        world(3).run(disagree)


def test_an_unknown_order_is_reported(world):
    def request(comm):
        with pytest.raises(InputError, match="order=sideways: expected racks, given, random or random:SEED"):
            comm.allreduce(np.ones(3), order="sideways")

    world(2).run(request)


def test_the_environment_overrides_the_choice_and_an_argument_the_environment(monkeypatch):
    from ripieno import _native

    def chosen(comm):
        comm.barrier(algorithm="dissemination")
        return [_native.choice(comm._native, name, 8) for name in ("allreduce", "broadcast")]

    monkeypatch.setenv("RIPIENO_ALGORITHM", "ring,broadcast=chain@given")
    with rp.launch(workers=2, threads=1) as job:
        assert job.run(chosen) == [["ring", "chain"]] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rng", "RIPIENO_ALGORITHM: algorithm=rng: expected one of"),
        *exhaustively(("allreduse=ring", "collective=allreduse")),
    ],
)
def test_an_unknown_name_in_the_environment_is_reported_at_the_start(monkeypatch, text, message):
    monkeypatch.setenv("RIPIENO_ALGORITHM", text)

    with pytest.raises(InputError, match=message):
        rp.launch(workers=2)
