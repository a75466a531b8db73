"""Representations of public objects never contain an address."""

from __future__ import annotations

import inspect
from importlib import import_module

import numpy as np
import pytest
import ripieno as rp
from ripieno.keyed import Emitter
from ripieno.launch.engine.contract import Engine, Run
from ripieno.launch.job.stand_ins import RankValue

MODULES = ["", ".graph", ".input", ".keyed", ".launch", ".mapreduce", ".plan"]
CLASSES = sorted(
    {
        kind
        for module in MODULES
        for name in import_module(f"ripieno{module}").__all__
        if inspect.isclass(kind := getattr(import_module(f"ripieno{module}"), name))
        and not getattr(kind, "_is_protocol", False)
    }
    | {Engine, Run, RankValue},
    key=lambda kind: kind.__qualname__,
)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_public_objects_have_a_descriptive_repr(kind):
    assert kind.__repr__ is not object.__repr__


def test_a_job_states_where_its_workers_are_and_in_what_state(world):
    with rp.launch(workers=1) as job:
        assert repr(job) == "<InlineJob of 1 worker in this process, ready>"
        assert job.run(lambda comm: repr(job)) == ["<InlineJob of 1 worker in this process, running a program>"]
    assert repr(job) == "<InlineJob of 1 worker in this process, over: it was closed>"
    assert repr(world(2)).startswith("<LocalJob of 2 workers in processes of ") and repr(world(2)).endswith(", ready>")


def test_a_graph_states_where_its_edges_are_and_what_they_mean(tmp_path):
    edges = np.array([[0, 1], [1, 2]])
    np.save(tmp_path / "edges.npy", edges)

    assert repr(rp.Graph(edges)) == "<Graph of 2 edges in memory, directed, unweighted>"
    assert repr(rp.Graph(edges, directed=False, vertex_count=5)).endswith("undirected, unweighted, 5 vertices>")
    assert repr(rp.Graph(tmp_path / "edges.npy")) == (f"<Graph of {tmp_path}/edges.npy, 160 B, directed, unweighted>")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda job: job.broadcast(np.zeros(3)), "<Broadcast of a ndarray on 1 rank>"),
        (lambda job: job.run(lambda comm: comm.allreduce_async(1))[0], "<Handle done>"),
        (lambda job: job.run(lambda comm, table: table, job.broadcast(7))[0], "<Broadcast of a int>"),
        (lambda job: rp.MapReduce(len, job=job), "<MapReduce 'mapreduce': 0 map tasks, 0 iterations done>"),
        (lambda job: Emitter(2), "<Emitter for 2 ranks: 0 rows added>"),
        (lambda job: RankValue("rows"), "RankValue('rows')"),
    ],
)
def test_objects_of_jobs_have_a_descriptive_repr(world, make, text):
    assert repr(make(world(1))) == text


def test_the_package_lists_its_public_names_only():
    names = {name for name in dir(rp) if not name.startswith("__")}
    assert names == {*rp.__all__, "input", "lightgbm", "mpi", "plan", "spark", "xgboost"} - {"__version__"}


def test_a_report_takes_one_line():
    report = rp.KMeans(2, random_state=0).fit(np.arange(20.0).reshape(10, 2)).report_
    text = repr(report)
    assert text.startswith("KMeansReport(iterations=<") and "row_count=10, column_count=2" in text
    assert len(text) < 500


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("size", "use 'world_size' instead"),
        ("bcast", "use 'broadcast' instead"),
        ("Allreduce", "use 'allreduce' instead"),
        ("Iallreduce", "use 'allreduce_async' instead"),
        ("Create_cart", "it exists only in MPI; see the page"),
        ("nonsense", "has no attribute 'nonsense'"),
    ],
)
def test_errors_of_names_of_mpi_suggest_our_names(world, name, advice):
    with pytest.raises(AttributeError, match=advice):
        world(1).run(getattr, name)
