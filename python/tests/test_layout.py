"""Layouts: networkx's positions, bitwise equal for any number of workers."""

from __future__ import annotations

import doctest

import networkx
import numpy as np
import pytest
import ripieno as rp
from ripieno.algorithms.fruchterman_reingold import estimator, program
from ripieno.algorithms.fruchterman_reingold import layout as layout_module
from ripieno.checkpoints import iterations
from varied import exhaustively

everywhere = pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
CLUB = networkx.karate_club_graph()
TORUS = networkx.grid_2d_graph(6, 5, periodic=True)


def expected_of(graph, **parameters):
    return networkx.spring_layout(graph, method="force", **parameters)


def assert_close(found, expected, atol):
    assert list(found) == list(expected)
    np.testing.assert_allclose(np.array(list(found.values())), np.array(list(expected.values())), atol=atol)


@everywhere
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"dim": 3},
        {"weight": None},
        {"k": 0.4, "scale": 3, "center": (1, 2)},
        {"scale": None},
        {"pos": {0: (0.5, 0.25), 7: (0.0, 2.0)}},
        {"pos": {0: (0.5, 0.25), 7: (0.0, 2.0)}, "fixed": [7]},
    ],
)
def test_positions_match_networkx_from_the_same_start(world, workers, parameters):
    found = rp.layout(CLUB, seed=3, iterations=10, engine=world(workers), **parameters)

    expected = expected_of(CLUB, seed=3, iterations=10, **parameters)
    if "pos" in parameters and "center" not in parameters:
        assert {vertex: position.shape for vertex, position in found.items()} == dict.fromkeys(CLUB, (2,))
    assert_close(found, expected, 2e-4)


@everywhere
@pytest.mark.parametrize("approximation", ["exact", "barnes-hut"])
def test_a_fit_resumes_from_its_checkpoint_to_the_same_bits(world, tmp_path, monkeypatch, workers, approximation):
    monkeypatch.setattr(iterations, "PERIOD_S", 0.0)
    parameters = {"max_iter": 12, "approximation": approximation, "random_state": 0}
    expected = rp.FruchtermanReingold(**parameters).fit(TORUS)
    model = rp.FruchtermanReingold(**parameters, checkpoint=tmp_path / "kept")

    class StoppedLayout(Exception):
        pass

    def stop(event):
        if event["iteration"] == 5:
            raise StoppedLayout

    with pytest.raises(StoppedLayout):
        model.set_params(on_iteration=stop).fit(TORUS)
    received = []
    found = model.set_params(on_iteration=received.append, engine=world(workers)).fit(TORUS)

    assert (found.resumed_from_, found.n_iter_, expected.resumed_from_) == (4, 12, None)
    assert [event["iteration"] for event in received] == list(range(5, 13))
    assert found.positions_.tobytes() == expected.positions_.tobytes()
    # A checkpoint leaves at least one iteration, which the report needs.
    assert 0 < model.fit(TORUS).resumed_from_ < 12


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    def fit(graph=TORUS, **parameters):
        return rp.FruchtermanReingold(**{"random_state": 0, "max_iter": 9} | parameters, checkpoint=tmp_path).fit(graph)

    fit()
    positions = np.zeros((30, 2))
    positions[:, 0] = np.arange(30)
    for graph, parameters, message in (
        (CLUB, {}, "the number of vertices was"),
        (TORUS, {"max_iter": 10}, "max_iter was 9 in the checkpoint and is 10 now"),
        (TORUS, {"random_state": 1}, "random_state was 0 in the checkpoint and is 1 now"),
        (TORUS, {"approximation": "barnes-hut"}, "approximation was 'auto' in the checkpoint"),
        (TORUS, {"init": positions}, "init was"),
        (TORUS, {"fixed": [(0, 0)]}, "fixed was"),
    ):
        with pytest.raises(rp.CheckpointError, match=message):
            fit(graph, **parameters)
    assert fit().resumed_from_ is not None


@pytest.mark.parametrize("kind", [networkx.Graph, networkx.DiGraph, networkx.MultiGraph])
def test_any_attribute_of_a_networkx_graph_weights_edges(kind):
    graph = kind()
    graph.add_nodes_from("abcde")
    graph.add_edges_from([("a", "b", {"load": 3}), ("b", "c", {"load": 0.5, "weight": 7}), ("c", "a"), ("d", "a")])

    found = rp.layout(graph, weight="load", seed=3, iterations=10)
    assert_close(found, expected_of(graph, weight="load", seed=3, iterations=10), 2e-4)
    assert not np.allclose(found["a"], rp.layout(graph, seed=3, iterations=10)["a"])


@pytest.mark.parametrize("kind", [networkx.Graph, networkx.DiGraph])
def test_the_report_counts_each_edge_and_loop_once(kind):
    graph = kind([("a", "b"), ("b", "c"), ("c", "c")])

    assert rp.FruchtermanReingold(random_state=0).fit(graph).report_.column_count == 3


def test_missing_vertices_are_handled_as_in_networkx():
    pos = {0: (0.5, 0.25), "elsewhere": (0.25, 0.5), 7: (0.0, 1.0)}
    parameters = {"pos": pos, "fixed": ["elsewhere", 7], "seed": 1, "iterations": 5}
    assert_close(rp.layout(CLUB, **parameters), expected_of(CLUB, **parameters), 2e-4)
    assert rp.layout(networkx.Graph()) == expected_of(networkx.Graph()) == {}


def test_weights_beyond_float32_are_refused():
    graph = networkx.Graph()
    graph.add_weighted_edges_from([(0, 1, 1e200), (1, 2, 1.0)])
    with pytest.raises(
        rp.InputError, match=r"edge from vertex 0 to 1 has the weight 1e\+200: expected at most 3.4e\+38"
    ):
        rp.layout(graph, seed=1)


def test_positions_are_stored_where_networkx_stores_them():
    graph = networkx.path_graph("abc")
    found = rp.layout(graph, None, None, None, 5, 1e-4, None, 1, None, 2, 0, "place", method="force")
    stored = networkx.get_node_attributes(graph, "place")
    assert list(stored) == list("abc") and all((stored[node] == found[node]).all() for node in graph)


def test_whole_layouts_are_as_good_as_those_of_networkx():
    found = np.array(list(rp.layout(TORUS, seed=1).values()))
    expected = np.array(list(expected_of(TORUS, seed=1).values()))

    ends = np.array([[list(TORUS).index(vertex) for vertex in edge] for edge in TORUS.edges])
    lengths = [np.linalg.norm(at[ends[:, 0]] - at[ends[:, 1]], axis=1).mean() for at in (found, expected)]
    assert lengths[0] == pytest.approx(lengths[1], rel=0.05)


@everywhere
@pytest.mark.parametrize("directed", [False, True])
def test_edges_in_arrays_and_files_give_the_layout_of_networkx(world, tmp_path, workers, directed):
    edges = np.array([[0, 1], [1, 2], [2, 0], [3, 3], [1, 5], [5, 7]])
    kind = networkx.DiGraph if directed else networkx.Graph
    graph = kind()
    graph.add_nodes_from(sorted(set(edges.ravel().tolist())))
    graph.add_edges_from(edges.tolist())
    np.savetxt(tmp_path / "edges.txt", edges, "%d")
    expected = expected_of(graph, seed=0, iterations=8, scale=None)

    for source in (edges, tmp_path / "edges.txt"):
        model = rp.FruchtermanReingold(max_iter=8, random_state=0, engine=world(workers))
        model.fit(rp.Graph(source, directed=directed))
        assert model.vertices_.tolist() == [0, 1, 2, 3, 5, 7]
        assert_close(dict(zip(model.vertices_.tolist(), model.positions_, strict=True)), expected, 1e-4)


#: Enough vertices for several blocks of pairs, and for several groups of vertices.
LATTICE = networkx.grid_graph((11, 10, 9))


@pytest.mark.parametrize("approximation", ["exact", "barnes-hut"])
@pytest.mark.parametrize("dim", [2, 3])
def test_positions_are_the_same_bits_with_any_number_of_workers_and_threads(world, approximation, dim):
    parameters = {"n_components": dim, "approximation": approximation, "random_state": 1, "max_iter": 6}
    models = [rp.FruchtermanReingold(engine=world(workers), **parameters).fit(LATTICE) for workers in (1, 2, 3)]
    models.append(rp.FruchtermanReingold(threads=2, **parameters).fit(LATTICE))

    for model in models[1:]:
        assert model.positions_.tobytes() == models[0].positions_.tobytes() and model.n_iter_ == models[0].n_iter_


@everywhere
def test_an_approximation_is_near_the_exact_layout_and_labeled_as_one(world, workers):
    events: list[dict] = []
    parameters = {"max_iter": 3, "random_state": 0, "engine": world(workers), "on_iteration": events.append}
    exact = rp.FruchtermanReingold(**parameters).fit(LATTICE)
    for theta, most in ((0, 1e-4), (0.5, 2e-2)):
        model = rp.FruchtermanReingold(approximation="barnes-hut", theta=theta, **parameters).fit(LATTICE)
        distances = np.linalg.norm(model.positions_ - exact.positions_, axis=1)
        assert np.sqrt(np.square(distances).mean()) < most * np.ptp(exact.positions_)
        assert model.approximation_ == "barnes-hut"
        assert [step.measures["approximation"] for step in model.report_.iterations] == ["barnes-hut"] * 3
    assert exact.approximation_ == "exact"
    assert [event["approximation"] for event in events] == ["exact"] * 3 + ["barnes-hut"] * 6


@pytest.mark.parametrize(("dim", "chosen"), [(2, "barnes-hut"), (4, "exact")])
def test_many_vertices_are_approximated_in_two_and_three_dimensions_by_default(monkeypatch, dim, chosen):
    monkeypatch.setattr(program, "MAX_EXACT_VERTEX_COUNT", 33)
    model = rp.FruchtermanReingold(dim, max_iter=1).fit(CLUB)
    assert model.approximation_ == chosen
    assert rp.FruchtermanReingold(dim, max_iter=1, approximation="exact").fit(CLUB).approximation_ == "exact"
    monkeypatch.setattr(program, "MAX_EXACT_VERTEX_COUNT", 34)
    assert rp.FruchtermanReingold(dim, max_iter=1).fit(CLUB).approximation_ == "exact"


@everywhere
@pytest.mark.parametrize("approximation", ["exact", "barnes-hut"])
def test_vertices_at_one_position_do_not_repel_each_other(world, workers, approximation):
    edges = np.stack([np.zeros(39, np.int64), np.arange(1, 40)], axis=1)
    model = rp.FruchtermanReingold(
        init=np.ones((40, 2)), max_iter=2, approximation=approximation, engine=world(workers)
    ).fit(edges)
    np.testing.assert_array_equal(model.positions_, np.ones((40, 2)))


@everywhere
def test_fewer_vertices_than_ranks_are_enough(world, workers):
    pair = rp.layout(networkx.path_graph(2), seed=0, engine=world(workers))
    assert_close(pair, expected_of(networkx.path_graph(2), seed=0), 1e-4)
    for scale in (1, None):
        alone = rp.layout(networkx.path_graph(1), center=(3, 4), scale=scale, engine=world(workers))
        np.testing.assert_array_equal(alone[0], (3, 4))
    isolated = rp.FruchtermanReingold(random_state=0, engine=world(workers)).fit(
        rp.Graph(np.array([[0, 1]]), vertex_count=4)
    )
    assert isolated.positions_.shape == (4, 2)


@everywhere
def test_fixed_vertices_do_not_move(world, workers):
    model = rp.FruchtermanReingold(init={3: (1, 2), 0: (0, 1)}, fixed=[3], random_state=0, engine=world(workers)).fit(
        CLUB
    )

    np.testing.assert_array_equal(model.positions_[3], (1, 2))
    assert (model.positions_[0] != (0, 1)).all()


def test_a_fit_ends_when_vertices_hardly_move():
    model = rp.FruchtermanReingold(tol=0.01, random_state=0).fit(CLUB)

    changes = [step.measures["change"] for step in model.report_.iterations]
    assert model.n_iter_ == len(changes) < 50
    assert changes[-1] < 0.01 and all(change >= 0.01 for change in changes[:-1])


@everywhere
def test_existing_ranks_fit(world, workers):
    def program(comm):
        return rp.FruchtermanReingold(max_iter=5, random_state=0).fit(CLUB, comm=comm).positions_

    expected = rp.FruchtermanReingold(max_iter=5, random_state=0).fit(CLUB).positions_
    for found in world(workers).run(program):
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components=0"),
        ({"n_components": 65}, "n_components=65: expected a whole number, 1 … 64"),
        ({"k": 0}, r"k=0: expected a number from 1e-09 to 1e\+09"),
        ({"k": 1e300}, r"k=1e\+300: expected a number from 1e-09 to 1e\+09"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"tol": -1}, "tol=-1: expected a number >= 0"),
        ({"init": "circle"}, "init='circle': expected 'random' or array"),
        ({"init": np.zeros((3, 2))}, r"init has the shape \(3, 2\): expected \(34, 2\)"),
        ({"init": {99: (0, 1)}}, "init: the graph has no vertex 99"),
        ({"init": {0: (0, 1, 2)}}, "init: positions of shape"),
        ({"init": {0: (0, np.nan)}}, "init: positions of shape"),
        ({"init": np.full((34, 2), np.nan)}, "init: a coordinate is NaN or infinite, expected finite numbers"),
        ({"init": np.full((34, 2), 2e9)}, r"init: a coordinate of 2e\+09: expected at most 1e\+09"),
        ({"approximation": "grid"}, "approximation='grid': expected one of auto, exact, barnes-hut"),
        (
            {"approximation": "barnes-hut", "n_components": 4},
            "'barnes-hut' with n_components=4: expected 2 or 3 dimensions",
        ),
        ({"theta": -0.5}, "theta=-0.5: expected a number >= 0"),
        ({"theta": np.nan}, "theta=nan: expected a number >= 0"),
        ({"fixed": [99]}, "fixed=99: the graph has no such vertex"),
        ({"workers": 0}, "workers=0"),
    ],
)
def test_bad_parameters_are_named_with_their_value(parameters, message):
    with pytest.raises(rp.InputError, match=message):
        rp.FruchtermanReingold(**parameters).fit(CLUB)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "energy"}, "method='energy': expected 'auto' or 'force'"),
        ({"center": (1, 2, 3)}, r"center has the shape \(3,\): expected \(2,\)"),
        ({"fixed": [1]}, "fixed: expected vertices that have a position in pos"),
    ],
)
def test_bad_parameters_of_a_dictionary_are_named(parameters, message):
    with pytest.raises(rp.InputError, match=message):
        rp.layout(CLUB, **parameters)


@pytest.mark.parametrize("parameters", [{"weight": "capacity"}, {"store_pos_as": "place"}])
def test_other_graphs_need_no_attributes_of_networkx(parameters):
    name, value = next(iter(parameters.items()))
    with pytest.raises(rp.InputError, match=f"{name}='{value}': expected "):
        rp.layout(np.array([[0, 1]]), **parameters)


def test_edges_that_weigh_differently_in_each_direction_are_refused(world):
    graph = rp.Graph((np.array([0, 1]), np.array([1, 0]), np.array([1.0, 2.0])), directed=False)
    with pytest.raises(rp.InputError, match="edges from vertex 0 to 1 have weight"):
        rp.FruchtermanReingold(engine=world(2)).fit(graph)


def test_iterations_are_reported(world):
    events: list[dict] = []
    model = rp.FruchtermanReingold(random_state=0, engine=world(2), on_iteration=events.append).fit(CLUB)

    assert [event["iteration"] for event in events] == list(range(1, model.n_iter_ + 1))
    steps = [event["step"] for event in events]
    assert steps == sorted(steps, reverse=True) and steps[-1] > 0
    assert all(len(each.compute_s) == 2 for each in model.report_.iterations)


@pytest.mark.parametrize("module", [estimator, layout_module])
def test_the_example_in_the_documentation_runs(module):
    assert doctest.testmod(module).failed == 0
