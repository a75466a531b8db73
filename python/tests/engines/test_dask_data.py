"""Dask collections as arguments of programs: each rank reads the data of its worker."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import ripieno as rp
from dask_cases import RESTART_S, launch, workers

distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'ripieno[dask]'")

import dask  # noqa: E402
import dask.array as da  # noqa: E402
import dask.bag as db  # noqa: E402
import dask.dataframe as dd  # noqa: E402
import pandas as pd  # noqa: E402
from ripieno.launch.engines.dask.job import shares  # noqa: E402

RANKS = 3


@pytest.fixture(scope="module")
def job(dask_started):
    dask_started.wait_for_workers(4, timeout=RESTART_S)
    with launch(dask_started, RANKS) as job:
        yield job


@pytest.fixture
def places(job):
    """The worker of each rank."""
    return job.run(lambda comm: distributed.get_worker().address)


def spread(client, values, workers):
    """Return futures of `values`, each on the worker at its position in `workers`."""
    return [client.scatter(value, workers=[worker]) for value, worker in zip(values, workers, strict=True)]


def address(array) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize(
    ("holders", "expected"),
    [
        ([[0], [1], [0], [1]], [[0, 2], [1, 3]]),
        # If several workers hold a chunk, the worker with the least data reads it.
        ([[0], [0, 1], [0, 1]], [[0, 2], [1]]),
        # A chunk that no worker of the job holds goes to the worker with the least data.
        ([[0], [], [0], []], [[0, 2], [1, 3]]),
        # A rank without data gets an even share of the others' data; a rank with data keeps it.
        ([[0]] * 6, [[0, 1], [3, 5], [2, 4]]),
        ([[0], [0], [0], [1]], [[0, 1], [3], [2]]),
        ([[0]], [[0], [], []]),
        ([], [[], []]),
    ],
)
def test_chunks_stay_where_they_are_unless_a_rank_has_none(holders, expected):
    found = shares(holders, len(expected))

    assert sorted(map(tuple, found)) == sorted(map(tuple, expected))
    assert sorted(chain(*found)) == list(range(len(holders)))


def test_chunks_are_read_in_place(dask_client, job, places):
    blocks = [np.full(10, number) for number in range(RANKS)]
    futures = spread(dask_client, blocks, places)
    keys = [future.key for future in futures]

    def program(comm, chunks, keys):
        mine = distributed.get_worker().data[keys[comm.rank]]
        return len(chunks), address(chunks[0]) == address(mine), int(comm.allreduce(chunks[0].sum()))

    assert job.run(program, futures, keys) == [(1, True, 30)] * RANKS


def test_remote_data_are_fetched_from_their_worker(dask_client, job, places):
    (elsewhere,) = set(workers(dask_client)) - set(places)
    futures = spread(dask_client, list(range(7)), [elsewhere] * 6 + [places[2]])

    chunks = job.run(lambda comm, chunks: chunks, futures)

    assert chunks == [[0, 2, 5], [1, 3], [4, 6]]


def test_a_rank_gets_the_rows_of_its_blocks_of_an_array(job):
    x = da.random.default_rng(1).random((1000, 3), chunks=(70, 3))

    def program(comm, rows, *, factor):
        return rows, rows.flags.writeable, comm.allreduce(rows.sum(axis=0)) * factor

    results = job.run(program, x, factor=2)

    whole = x.compute()
    rows = np.concatenate([rows for rows, _, _ in results])
    assert sorted(map(tuple, rows)) == sorted(map(tuple, whole))
    for mine, writeable, total in results:
        assert len(mine) and not writeable
        # The blocks are in ascending order, as in the whole array.
        first = [int(np.flatnonzero((whole == row).all(axis=1))[0]) for row in mine[[0, -1]]]
        assert first == sorted(first)
        np.testing.assert_allclose(total, whole.sum(axis=0) * 2)


def test_a_rank_without_blocks_has_no_rows(job):
    results = job.run(lambda comm, rows: (rows.shape, rows.dtype), da.ones((4, 2), chunks=(4, 2), dtype=np.float32))

    assert sorted(results) == [((0, 2), np.float32), ((0, 2), np.float32), ((4, 2), np.float32)]


def test_a_rank_gets_its_partitions_of_frames_and_bags(job):
    table = pd.DataFrame({"a": np.arange(100), "b": 1.5})
    frame = dd.from_pandas(table, npartitions=7)

    parts = job.run(lambda comm, part: part, frame[frame.a % 2 == 0])
    assert pd.concat(parts).sort_index().equals(table[table.a % 2 == 0])
    assert all(part.index.is_monotonic_increasing for part in parts)
    persisted = frame.a.persist()
    assert pd.concat(job.run(lambda comm, part: part, persisted)).sort_index().equals(table.a)
    items = job.run(lambda comm, part: part, db.from_sequence(range(20), npartitions=5).map(lambda item: item * item))
    assert sorted(chain(*items)) == [item * item for item in range(20)]
    nothing = job.run(lambda comm, part: (len(part), list(part)), dd.from_pandas(table.head(2), npartitions=1))
    assert sorted(nothing) == [(0, ["a", "b"]), (0, ["a", "b"]), (2, ["a", "b"])]


def test_a_future_or_a_delayed_value_is_the_same_on_every_rank(dask_client, job):
    future = dask_client.submit(lambda: np.arange(5), pure=False)
    delayed = dask.delayed(lambda: {"rate": 0.5})()

    for row, options in job.run(lambda comm, row, options: (row, options), future, delayed):
        assert row.tolist() == [0, 1, 2, 3, 4] and options == {"rate": 0.5}


def test_an_error_in_dask_is_raised_and_the_job_continues(dask_client, job):
    x = da.ones(10, chunks=5).map_blocks(lambda block: 1 // 0, dtype=float)
    with pytest.raises(ZeroDivisionError):
        job.run(lambda comm, rows: None, x)
    with pytest.raises(rp.InputError, match=r"cut along other axes than the first: x\.rechunk"):
        job.run(lambda comm, rows: None, da.ones((4, 4), chunks=2))
    with pytest.raises(rp.InputError, match="a Dask array of ndarray, ndim=0: expected NumPy's rows"):
        job.run(lambda comm, rows: None, da.ones(10).sum())
    with (
        distributed.Client(dask_client.scheduler.address, set_as_default=False) as other,
        pytest.raises(rp.InputError, match="a list of another Dask client: launch with client= and that client"),
    ):
        job.run(lambda comm, rows: None, [other.submit(lambda: 1)])

    assert job.run(lambda comm: comm.allreduce(1)) == [RANKS] * RANKS


def test_an_estimator_keeps_the_column_names_of_a_dask_dataframe(dask_client):
    rows = pd.DataFrame(np.random.default_rng(0).random((60, 2)), columns=["width", "height"])

    model = rp.KMeans(3, random_state=0).fit(dd.from_pandas(rows, npartitions=3))

    assert list(model.feature_names_in_) == ["width", "height"]
    assert np.array_equal(model.cluster_centers_, rp.KMeans(3, random_state=0).fit(rows).cluster_centers_)
