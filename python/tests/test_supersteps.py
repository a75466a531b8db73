"""Supersteps: the examples agree with networkx, and loops end correctly, on any number of workers."""

from __future__ import annotations

import runpy
from collections import Counter
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import ripieno as rp
from graph_programs import GRAPHS, built, random_edges
from numpy.testing import assert_array_equal
from ripieno.graph import most_frequent
from ripieno.graph.superstep import SPARSE_RATIO

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(comm, name, *arguments):
    return runpy.run_path(str(EXAMPLES / f"graph_{name}.py"))["program"](comm, *arguments)


def of_all_graphs(comm, name):
    return [example(comm, name, rp.Graph(graph)) for graph in GRAPHS.values()]


def test_components_match_networkx(everywhere):
    for (ids, labels), graph in zip(everywhere(of_all_graphs, "components")[0], GRAPHS.values(), strict=True):
        # Labels spread along edges; in a directed graph they follow the directions.
        nodes = list(graph.nodes)
        assert_array_equal(ids, np.arange(len(nodes)))
        if not graph.is_directed():
            for part in nx.connected_components(graph):
                places = [nodes.index(node) for node in part]
                assert_array_equal(labels[places], min(places))
        else:
            before = [[node, *nx.ancestors(graph, node)] for node in nodes]
            assert_array_equal(labels, [min(each) for each in before])


def test_distances_and_parents_match_networkx(everywhere):
    for (_, distances, parents), graph in zip(everywhere(of_all_graphs, "bfs")[0], GRAPHS.values(), strict=True):
        nodes = list(graph.nodes)
        expected = nx.single_source_shortest_path_length(graph, nodes[0])
        assert_array_equal(distances, [expected.get(node, -1) for node in nodes])
        into = graph.predecessors if graph.is_directed() else graph.neighbors
        for place, node in enumerate(nodes):
            closer = [nodes.index(other) for other in into(node) if distances[nodes.index(other)] >= 0]
            closer = [other for other in closer if distances[other] == distances[place] - 1]
            assert parents[place] == (min(closer) if distances[place] > 0 else -1)


def propagated(graph: nx.Graph, rounds: int) -> list[int]:
    """Return the labels after some rounds, computed one vertex at a time."""
    nodes = list(graph.nodes)
    labels = {node: place for place, node in enumerate(nodes)}
    rows = [graph.pred, graph.succ] if graph.is_directed() else [graph.adj]
    for _ in range(rounds):
        votes = {node: Counter(labels[other] for row in rows for other in row[node]) for node in nodes}
        labels = {
            node: min(vote, key=lambda label, vote=vote: (-vote[label], label)) if vote else labels[node]
            for node, vote in votes.items()
        }
    return [labels[node] for node in nodes]


def test_propagated_labels_match_sequential_updates(everywhere):
    for (_, labels), graph in zip(everywhere(of_all_graphs, "label_propagation")[0], GRAPHS.values(), strict=True):
        assert_array_equal(labels, propagated(graph, 10))


def test_path_lengths_match_networkx(everywhere):
    for (_, distances), graph in zip(everywhere(of_all_graphs, "shortest_paths")[0], GRAPHS.values(), strict=True):
        expected = nx.single_source_dijkstra_path_length(graph, next(iter(graph)))
        assert_array_equal(distances, [expected.get(node, np.inf) for node in graph])


def test_clustering_coefficients_match_networkx(everywhere):
    for (_, coefficients), graph in zip(everywhere(of_all_graphs, "clustering")[0], GRAPHS.values(), strict=True):
        if not graph.is_directed():
            assert_array_equal(coefficients, list(nx.clustering(graph, weight=None).values()))


def counted_supersteps(comm):
    """Pass a token along a path of 6 vertices: one vertex is active at a time."""
    ends = np.arange(5) if comm.rank == 0 else np.arange(0)
    graph = rp.Graph.from_edges(ends, ends + 1, comm=comm)
    graph.values["time"] = -1
    seen = []

    def pass_on(block):
        has = block.received if block.number else block.vertices == 0
        block.values["time"] = np.where(has, block.number, block.values["time"])
        block.send_along_edges(7, where=has)
        block.aggregate("tokens", has)
        block.aggregate("first", block.vertices)
        block.aggregate("pairs", np.stack([block.vertices, has], axis=1).astype(float))
        block.aggregate("any", has)
        block.halt()
        assert (block.messages == np.where(block.received, 7, 0)).all()
        seen.append((len(block), block.aggregates))

    aggregators = {
        "tokens": ("sum", 0),
        "first": ("min", np.int32(0)),
        "pairs": ("max", np.zeros(2)),
        "any": "or",
    }
    loop = graph.superstep(pass_on, message=np.int64, aggregators=aggregators)
    assert loop.halted and len(loop) == 6
    assert [(step.active, step.messages) for step in loop.steps] == [(6, 1), *[(1, 1)] * 4, (1, 0)]
    assert_array_equal(graph.values["time"], graph.vertices)
    nothing = np.iinfo(np.int32).max
    assert (seen[0][1]["tokens"], seen[0][1]["first"], seen[0][1]["any"]) == (0, nothing, False)
    for number, (_, aggregates) in enumerate(seen[1:]):
        assert (aggregates["tokens"], aggregates["first"], aggregates["any"]) == (1, number, True)
        assert_array_equal(aggregates["pairs"], [5 if number == 0 else number, 1])
    assert loop.aggregates["first"] == 5
    active = comm.allreduce(np.array([count for count, _ in seen]))
    assert_array_equal(active, [6, 1, 1, 1, 1, 1])

    graph.values["time"] = -1
    cut = graph.superstep(pass_on, message=np.int64, aggregators=aggregators, max_supersteps=3)
    assert not cut.halted and len(cut) == 3 and comm.allreduce(int(graph.values["time"].max(initial=-1)), op="max") == 2
    assert len(graph.superstep(pass_on, aggregators=aggregators, max_supersteps=0)) == 0


def test_supersteps_end_when_all_have_halted_and_no_message_is_left(everywhere):
    everywhere(counted_supersteps)


def both_ways_to_send(comm):
    """Send along edges and to named vertices in one superstep; messages to missing vertices are dropped."""
    graph = built(comm, duplicates="sum")
    (sources, targets), _ = random_edges()
    for combine, form in (("sum", "f8"), ("max", "2i8"), ("concat", "i8"), (np.hypot, "f8")):
        came = []

        def both(block, came=came):
            rows = np.ones((len(block), *block.messages.shape[1:]), block.messages.dtype)
            if block.number == 0:
                block.send_along_edges(2 * rows, where=block.vertices % 2 == 0)
                block.send_messages(block.vertices, 3 * rows)
                block.send_messages(block.vertices[:1] + 10**9, 1)
            came.append((block.vertices, block.received, block.messages, block.offsets))
            block.halt()

        loop = graph.superstep(both, combine=combine, message=form, missing="drop")
        sent = np.count_nonzero(sources % 2 == 0) + graph.vertex_count + comm.allreduce(int(len(graph.vertices) > 0))
        assert len(loop) == 2 and loop.steps[0].messages == sent
        vertices, received, messages, offsets = came[1]
        assert_array_equal(vertices, graph.vertices)
        assert received.all()
        along = np.count_nonzero((targets == vertices[:, None]) & (sources % 2 == 0), axis=1)
        if combine == "concat":
            assert_array_equal(np.diff(offsets), along + 1)
            assert_array_equal(np.add.reduceat(messages, offsets[:-1]) if len(vertices) else [], 2 * along + 3)
        elif combine == "sum":
            assert_array_equal(messages, 2 * along + 3)
        elif combine == "max":
            assert_array_equal(messages, np.full((len(vertices), 2), 3))
        else:
            np.testing.assert_allclose(messages, np.sqrt(4 * along + 9))


def test_one_superstep_sends_along_edges_and_to_named_vertices(everywhere):
    everywhere(both_ways_to_send)


def ranked(comm, graph, max_supersteps=30):
    """Return PageRank by supersteps, with the weights of edges."""
    parts = graph.partition(comm)
    parts.values["rank"] = 1 / parts.vertex_count
    outflow = parts.regroup(by="source").send_along_edges(np.ones(len(parts.vertices)), along=np.multiply).values
    assert outflow.shape == parts.vertices.shape
    edges = parts.edges
    weights = np.ones(len(edges)) if edges.weights is None else edges.weights
    parts.values["out"] = np.bincount(np.searchsorted(parts.vertices, edges.sources), weights, len(parts.vertices))

    def step(block):
        if block.number:
            rest = (1 - 0.85 + 0.85 * block.aggregates["dangling"]) / parts.vertex_count
            block.values["rank"] = rest + 0.85 * block.messages
        out = block.values["out"]
        block.aggregate("dangling", block.values["rank"][out == 0])
        block.send_along_edges(block.values["rank"] / np.where(out, out, 1))

    parts.superstep(step, along=np.multiply, aggregators={"dangling": "sum"}, max_supersteps=max_supersteps)
    return parts.allgather("rank")[1]


@pytest.mark.parametrize("name", ["karate", "directed islands"])
def test_supersteps_of_weighted_messages_match_the_ranks_of_networkx(name, everywhere):
    graph = GRAPHS[name]
    expected = nx.pagerank(graph, tol=1e-13, max_iter=500)
    found = everywhere(ranked, rp.Graph(graph), 120)[0]
    np.testing.assert_allclose(found, [expected[node] for node in graph.nodes], rtol=1e-7)


def shortest(comm, graph):
    parts = graph.partition(comm)
    parts.values["distance"] = np.inf

    def relax(block):
        known = block.values["distance"]
        found = np.where((block.number == 0) & (block.vertices == 0), 0, block.messages)
        block.values["distance"] = np.minimum(found, known)
        block.send_along_edges(found, where=found < known)
        block.halt()

    loop = parts.superstep(relax, combine="min", along=np.add)
    return parts.allgather("distance")[1], [step.messages for step in loop.steps]


def test_few_messages_along_edges_match_many(everywhere):
    graph = nx.gnm_random_graph(60, 200, seed=2)
    graph.add_edges_from(nx.path_graph(range(60, 120)).edges)
    graph.add_edge(5, 60)
    for number, (_, _, data) in enumerate(graph.edges(data=True)):
        data["weight"] = 1 + number % 7
    distances, messages = everywhere(shortest, rp.Graph(graph))[0]
    expected = nx.single_source_dijkstra_path_length(graph, 0)
    assert_array_equal(distances, [expected.get(node, np.inf) for node in graph])
    edge_count = 2 * graph.number_of_edges()
    assert max(messages) * SPARSE_RATIO > edge_count > min(messages[:-1]) * SPARSE_RATIO


def test_the_most_frequent_value_of_a_group_is_found():
    random = np.random.default_rng(0)
    values, lengths = random.integers(-3, 3, 500), random.integers(0, 6, 200)
    offsets = np.minimum(np.concatenate([[0], np.cumsum(lengths)]), len(values))
    groups, found = most_frequent(values, offsets)
    slices = [values[begin:end].tolist() for begin, end in pairwise(offsets)]
    expected = [min(each, key=lambda value, each=each: (-each.count(value), value)) for each in slices if each]
    assert_array_equal(groups, [at for at, each in enumerate(slices) if each])
    assert_array_equal(found, expected)
    assert [len(each) for each in most_frequent(values[:0], np.zeros(4, np.int64))] == [0, 0]


@pytest.mark.parametrize("dtype", ["i1", "i2", "u1", "u8"])
def test_the_most_frequent_value_is_found_in_the_full_range_of_a_type(dtype):
    least, largest = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = np.array([least, largest, largest, 5], dtype)
    groups, found = most_frequent(values, np.array([0, 3, 4]))
    assert (groups.tolist(), found.tolist()) == ([0, 1], [largest, 5])


def wrong_steps(comm):
    graph = built(comm)
    n = len(graph.vertices)
    graph.values["a"] = np.zeros(n, np.int32)
    for call, text in [
        (lambda: graph.superstep(lambda block: block), "superstep 0: the function returned Block, expected nothing"),
        (lambda: graph.superstep(print, max_supersteps=-1), "max_supersteps=-1: expected None or"),
        (lambda: graph.superstep(print, message="c16"), "message=complex128: expected a type"),
        (lambda: graph.superstep(print, message="(2,3)f8"), "message=.*: expected a type"),
        (lambda: graph.superstep(print, combine="mean"), "combine='mean'"),
        (lambda: graph.superstep(print, missing="add"), "missing='add'"),
        (lambda: graph.superstep(print, aggregators={"a": "mean"}), "aggregator 'a': op='mean'"),
    ]:
        with pytest.raises(rp.InputError, match=text):
            call()
    for fn, text in [
        (lambda block: block.halt(np.ones(3)), "halt: where of type float64"),
        (lambda block: block.send_along_edges(np.ones(3)), r"send_along_edges: messages of shape \(3,\), expected"),
        (lambda block: block.send_messages([1], [1j]), "send_messages: messages: type complex128, expected float64"),
        (lambda block: [block.send_along_edges(1) for _ in "ab"], "send_along_edges: twice in superstep 0"),
        (lambda block: block.aggregate("b", 1), "aggregator 'b': expected one of 'a'"),
        (lambda block: block.aggregate("a", np.ones((2, 2))), r"aggregator 'a': shape \(2, 2\), expected \(\)"),
        (lambda block: block.values.__setitem__("a", np.arange(2)), "column 'a': rows of shape"),
        (lambda block: block.values.__setitem__("a", 0.5), "column 'a': 0.5, expected int32"),
    ]:
        with pytest.raises(rp.InputError, match=text):
            graph.superstep(fn, aggregators={"a": "sum"})
    with pytest.raises(rp.InputError, match="messages: 300, expected uint8"):
        graph.superstep(lambda block: block.send_along_edges(300), message=np.uint8)
    with pytest.raises(rp.InputError, match="along returned rows of type float64 and shape"):
        graph.superstep(lambda block: block.send_along_edges(1), message=np.int64, along=lambda x, w: x + 0.5)
    comm.barrier()


def test_wrong_steps_are_reported_by_name_and_value(world):
    world(2).run(wrong_steps)


def raises_on_one_rank(comm):
    graph = rp.Graph.from_edges(np.arange(5), np.arange(5) + 1, comm=comm)

    def fn(block):
        if comm.rank == 1 and block.number == 2:
            raise ArithmeticError("three is too many")

    graph.superstep(fn)


def test_an_exception_of_a_function_is_raised_by_the_job():
    with rp.launch(workers=2) as job, pytest.raises(ArithmeticError, match="three is too many"):
        job.run(raises_on_one_rank)
