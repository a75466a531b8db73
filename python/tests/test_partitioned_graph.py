"""Graphs that live on ranks: vertices, edges and messages are those of networkx and NumPy, on any workers."""

from __future__ import annotations

import runpy
from collections import Counter
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import ripieno as rp
from numpy.testing import assert_array_equal
from ripieno.graph import most_frequent
from ripieno.graph.superstep import FEW

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
UFUNCS = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
WORKERS = [1, 2, 3, 5]


def with_islands(directed: bool) -> nx.Graph:
    """Some components of several sizes, vertices without edges, an edge from a vertex to itself."""
    graph = nx.gnm_random_graph(120, 110, seed=3, directed=directed)
    graph.add_edge(7, 7)
    return graph


GRAPHS = {
    "karate": nx.karate_club_graph(),
    "les miserables": nx.les_miserables_graph(),
    "islands": with_islands(directed=False),
    "directed islands": with_islands(directed=True),
    "path": nx.path_graph(30),
    "no edges": nx.empty_graph(5),
}


def example(comm, name, *arguments):
    return runpy.run_path(str(EXAMPLES / f"graph_{name}.py"))["program"](comm, *arguments)


@pytest.fixture(params=WORKERS, ids=lambda workers: f"{workers} workers")
def everywhere(request, world):
    """Runs a program on so many ranks."""
    return world(request.param).run


def of_all_graphs(comm, name):
    return [example(comm, name, rp.Graph(graph)) for graph in GRAPHS.values()]


def test_components_are_those_of_networkx(everywhere):
    for (ids, labels), graph in zip(everywhere(of_all_graphs, "components")[0], GRAPHS.values(), strict=True):
        # Labels spread along edges: of a directed graph they follow its ways.
        nodes = list(graph.nodes)
        assert_array_equal(ids, np.arange(len(nodes)))
        if not graph.is_directed():
            for part in nx.connected_components(graph):
                places = [nodes.index(node) for node in part]
                assert_array_equal(labels[places], min(places))
        else:
            before = [[node, *nx.ancestors(graph, node)] for node in nodes]
            assert_array_equal(labels, [min(each) for each in before])


def test_distances_and_parents_are_those_of_networkx(everywhere):
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
    """Labels after so many rounds, one vertex at a time."""
    nodes = list(graph.nodes)
    labels = {node: place for place, node in enumerate(nodes)}
    into = graph.predecessors if graph.is_directed() else graph.neighbors
    for _ in range(rounds):
        votes = {node: Counter(labels[other] for other in into(node)) for node in nodes}
        labels = {
            node: min(vote, key=lambda label, vote=vote: (-vote[label], label)) if vote else labels[node]
            for node, vote in votes.items()
        }
    return [labels[node] for node in nodes]


def test_labels_that_propagate_are_those_of_a_vertex_at_a_time(everywhere):
    for (_, labels), graph in zip(everywhere(of_all_graphs, "label_propagation")[0], GRAPHS.values(), strict=True):
        assert_array_equal(labels, propagated(graph, 10))


def random_edges(vertex_count=40, edge_count=150):
    random = np.random.default_rng(7)
    return random.integers(0, vertex_count, (2, edge_count)) * 3, random.integers(1, 5, edge_count).astype(float)


def built(comm, **options):
    """The random graph, of whose edges every rank gives some; the last rank none."""
    (sources, targets), weights = random_edges()
    givers = max(comm.world_size - 1, 1)
    mine = np.arange(len(weights)) % givers == comm.rank
    weights = weights[mine] if options.pop("weighted", True) else None
    return rp.Graph.from_edges(sources[mine], targets[mine], weights, comm=comm, **options)


LAYOUTS = [(home, by) for home in ("hash", "blocks", lambda ids: ids // 3 % 2 * 0) for by in ("source", "target")]


def fields(comm):
    (sources, targets), weights = random_edges()
    for home, by in LAYOUTS:
        graph = built(comm, home=home, by=by, vertices=[500] if comm.rank == 0 else ())
        names = np.unique([*sources, *targets, 500])
        all_ids, _ = gathered(comm, graph.vertices, graph.vertices)
        assert_array_equal(all_ids, names)
        assert (graph.vertex_count, graph.edge_count, graph.largest) == (len(names), len(weights), 500)
        assert_array_equal(graph.home_of(graph.vertices), np.full(len(graph.vertices), comm.rank))
        assert_array_equal(graph.out_degrees, np.count_nonzero(sources[:, None] == graph.vertices, axis=0))
        assert_array_equal(graph.in_degrees, np.count_nonzero(targets[:, None] == graph.vertices, axis=0))
        near = graph.edges.sources if by == "source" else graph.edges.targets
        assert_array_equal(near, np.repeat(graph.vertices, np.diff(graph.offsets)))
        edges = [np.concatenate(comm.allgather(each)) for each in vars(graph.edges).values()][:3]
        assert sorted(zip(*edges, strict=True)) == sorted(zip(sources, targets, weights, strict=True))
        moved = graph.send_edges(by="target")
        assert_array_equal(graph.home_of(moved.targets), np.full(len(moved), comm.rank))
        assert comm.allreduce(len(moved)) == len(weights) and (np.diff(moved.targets) >= 0).all()


def gathered(comm, ids, rows):
    ids, rows = (np.concatenate(comm.allgather(each)) for each in (ids, rows))
    order = np.argsort(ids)
    return ids[order], rows[order]


def test_vertices_and_edges_are_all_there_once_at_home(everywhere):
    everywhere(fields)


def reference(pairs, names, ufunc, dtype, width):
    """For each of `names` the rows of (target, row) pairs put together, and whether there are any."""
    rows, received = np.zeros((len(names), *width), dtype), np.zeros(len(names), bool)
    for target, row in pairs:
        at = np.searchsorted(names, target)
        rows[at] = ufunc(rows[at], row) if received[at] else row
        received[at] = True
    return rows, received


def value_of(ids, dtype, width):
    """A small whole number for each vertex."""
    rows = (ids * 7 % 5 + 1).astype(dtype)
    return rows if not width else np.stack([rows + at for at in range(*width)], axis=1).astype(dtype)


ALONG = {
    "as it is": (None, lambda row, weight: row),
    "times the weight": (np.multiply, np.multiply),
    "plus the weight": (np.add, np.add),
}


def along_edges(comm, op, dtype, width, home, by, weighted, along):
    graph = built(comm, home=home, by=by, weighted=weighted, duplicates="sum")
    (sources, targets), weights = random_edges()
    weights = weights if weighted else np.ones_like(weights)
    names, values = gathered(comm, graph.vertices, value_of(graph.vertices, dtype, width))
    for where in (None, graph.vertices % 2 == 0):
        came = graph.send_along_edges(value_of(graph.vertices, dtype, width), op, along=ALONG[along][0], where=where)
        pairs = [
            (target, ALONG[along][1](values[np.searchsorted(names, source)], weight))
            for source, target, weight in zip(sources, targets, weights, strict=True)
            if where is None or source % 2 == 0
        ]
        rows, received = reference(pairs, names, UFUNCS[op], came.values.dtype, width)
        mine = np.searchsorted(names, graph.vertices)
        assert_array_equal(came.received, received[mine])
        assert_array_equal(came.values[came.received], rows[mine][came.received])
        silent = came.values[~came.received]
        assert_array_equal(UFUNCS[op](silent, silent.dtype.type(3)), silent.dtype.type(3) + np.zeros_like(silent))


CASES = [
    ("sum", "f8", (), "hash", "source", True, "as it is"),
    ("sum", "f8", (3,), "hash", "target", True, "times the weight"),
    ("sum", "i4", (), "blocks", "source", False, "as it is"),
    ("min", "f4", (2,), "hash", "source", True, "plus the weight"),
    ("min", "i8", (), "blocks", "target", False, "plus the weight"),
    ("max", "u2", (), "hash", "target", False, "as it is"),
    ("or", "u8", (), "hash", "source", False, "as it is"),
    ("and", "i1", (2,), "hash", "source", False, "as it is"),
    ("xor", "i8", (), "blocks", "source", False, "as it is"),
    ("prod", "i8", (), "hash", "target", False, "as it is"),
]


def all_cases(comm):
    for case in CASES:
        along_edges(comm, *case)


def test_messages_along_edges_are_those_of_numpy(everywhere):
    everywhere(all_cases)


def smallest_sum(left, right):
    """A combiner that no name stands for: of two rows the one of the smaller sum."""
    return np.where((left.sum(axis=1) <= right.sum(axis=1))[:, None], left, right)


def messages_to_any(comm):
    graph = built(comm)
    names, _ = gathered(comm, graph.vertices, graph.vertices)
    random = np.random.default_rng(comm.rank)
    targets = random.choice(names, 0 if comm.rank == 1 else 60)
    values = random.integers(0, 9, (len(targets), 2))
    pairs = [pair for part in comm.allgather((targets, values)) for pair in zip(*part, strict=True)]
    mine = np.searchsorted(names, graph.vertices)
    for combine in ("sum", "min", "or", smallest_sum):
        one_row = (lambda a, b: smallest_sum(a[None], b[None])[0]) if callable(combine) else UFUNCS[combine]
        rows, received = reference(pairs, names, one_row, np.int64, (2,))
        came = graph.send_messages(targets, values, combine)
        assert_array_equal(came.received, received[mine])
        assert_array_equal(came.values[came.received].sum(axis=1), rows[mine][came.received].sum(axis=1))
        if not callable(combine):
            assert_array_equal(came.values[came.received], rows[mine][came.received])
    came = graph.send_messages(targets, values, "concat")
    for place, vertex in enumerate(graph.vertices):
        expected = sorted(tuple(row) for target, row in pairs if target == vertex)
        assert sorted(map(tuple, came.values[slice(*came.offsets[place : place + 2])])) == expected
        assert came.received[place] == bool(expected)
    again = graph.send_messages(targets, values, "concat")
    assert_array_equal(again.values, came.values)


def test_messages_to_any_vertices_are_those_of_numpy(everywhere):
    everywhere(messages_to_any)


def listed_along_edges(comm):
    (sources, targets), weights = random_edges()
    order = np.lexsort((sources, targets))
    for home, by in LAYOUTS[:4]:
        graph = built(comm, home=home, by=by)
        even = graph.vertices % 2 == 0
        for where in (None, even):
            came = graph.send_along_edges(graph.vertices, "concat", where=where)
            for place, vertex in enumerate(graph.vertices):
                chosen = order[targets[order] == vertex]
                expected = [source for source in sources[chosen] if where is None or source % 2 == 0]
                assert_array_equal(came.values[slice(*came.offsets[place : place + 2])], expected)
        pairs = graph.vertices[:, None] * [1, 2]
        least = graph.send_along_edges(pairs, smallest_sum, where=even, along=np.add)
        for place, vertex in enumerate(graph.vertices):
            chosen = (targets == vertex) & (sources % 2 == 0)
            expected = min((3 * sources[chosen] + 2 * weights[chosen]), default=0)
            assert least.values[place].sum() == expected and least.received[place] == chosen.any()


def test_messages_that_stay_apart_or_are_combined_by_a_callable(everywhere):
    everywhere(listed_along_edges)


def moved(comm):
    graph = built(comm)
    graph.values["id"] = graph.vertices
    graph.values["pair"] = graph.vertices[:, None] * [1.0, 2.0]
    everyone, _ = graph.allgather("id")
    for options in ({"home": "blocks"}, {"by": "target"}, {"home": lambda ids: ids * 0, "by": "target"}):
        other = graph.regroup(**options)
        assert_array_equal(other.values["id"], other.vertices)
        assert_array_equal(other.values["pair"][:, 1], 2.0 * other.vertices)
        assert other.by == options.get("by", "source") and other.edge_count == graph.edge_count
        for each in other.allgather("id"):
            assert_array_equal(each, everyone)
        assert_array_equal(other.home_of(other.vertices), np.full(len(other.vertices), comm.rank))
        here, there = (g.allgather("came")[1] for g in map(with_sums, (graph, other)))
        assert_array_equal(here, there)


def with_sums(graph):
    graph.values["came"] = graph.send_along_edges(graph.values["pair"], "sum", along=np.multiply).values
    return graph


def test_a_regrouped_graph_is_the_same_graph(everywhere):
    everywhere(moved)


def without_direction(comm):
    graph = nx.gnm_random_graph(40, 90, seed=1)
    one, other = np.array(graph.edges).T
    weights = 1.0 + (one + other) % 4
    # Some edges stand there in both directions, which is nothing new.
    sources, targets = np.concatenate([one, other[:20]]), np.concatenate([other, one[:20]])
    weights = np.concatenate([weights, weights[:20]])
    mine = np.arange(len(weights)) % comm.world_size == comm.rank
    for graph in (
        rp.Graph.from_edges(sources[mine], targets[mine], comm=comm, directed=False),
        rp.Graph((sources, targets), directed=False).partition(comm),
        rp.Graph.from_edges(sources[mine], targets[mine], weights[mine], comm=comm, directed=False),
        rp.Graph((sources, targets, weights), directed=False).partition(comm),
    ):
        assert graph.edge_count == 180
        assert_array_equal(graph.in_degrees, graph.out_degrees)
        assert_array_equal(graph.out_degrees, [np.count_nonzero([one == v, other == v]) for v in graph.vertices])
    named = rp.Graph(nx.relabel_nodes(nx.path_graph(4), dict(enumerate("dbca")))).partition(comm)
    assert_array_equal(named.labels, np.array([*"dbca"], object)[named.vertices])


def test_edges_without_direction_lead_both_ways(world):
    world(3).run(without_direction)


def counted_supersteps(comm):
    """A path of 6 vertices, along which a token goes: one vertex is active at a time."""
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


def test_supersteps_end_when_all_have_halted_and_nothing_is_under_way(everywhere):
    everywhere(counted_supersteps)


def both_ways_to_send(comm):
    """Along edges and to named vertices in one superstep; what is sent to nobody is dropped."""
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


def test_messages_go_along_edges_and_to_named_vertices_at_once(everywhere):
    everywhere(both_ways_to_send)


def ranked(comm, graph, max_supersteps=30):
    """PageRank as supersteps, with the weights of edges."""
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
def test_supersteps_of_weighted_messages_come_to_the_ranks_of_networkx(name, everywhere):
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


def test_few_messages_along_edges_are_as_good_as_many(everywhere):
    graph = nx.gnm_random_graph(60, 200, seed=2)
    graph.add_edges_from(nx.path_graph(range(60, 120)).edges)
    graph.add_edge(5, 60)
    for number, (_, _, data) in enumerate(graph.edges(data=True)):
        data["weight"] = 1 + number % 7
    distances, messages = everywhere(shortest, rp.Graph(graph))[0]
    expected = nx.single_source_dijkstra_path_length(graph, 0)
    assert_array_equal(distances, [expected.get(node, np.inf) for node in graph])
    edge_count = 2 * graph.number_of_edges()
    assert max(messages) * FEW > edge_count > min(messages[:-1]) * FEW


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


def wrong_arguments(comm):
    graph = built(comm)
    n = len(graph.vertices)
    for call, text in [
        (lambda: built(comm, home="near"), "home='near': expected 'hash', 'blocks'"),
        (lambda: built(comm, by="end"), "by='end': expected 'source' or 'target'"),
        (lambda: built(comm, home=lambda ids: ids * 0 + 9), r"home gives rank 9 for vertex \d+: expected 0 … 1"),
        (lambda: built(comm, home=lambda ids: ids * 0.5), "home gives ranks of type float64"),
        (lambda: rp.Graph.from_edges([1], [2, 3], comm=comm), "edges of rank 0: 1 sources and 2 targets"),
        (lambda: rp.Graph.from_edges([-1], [2], comm=comm), "edges of rank 0, edge 0: vertex id -1"),
        (lambda: rp.Graph.from_edges([], [], comm=comm), "neither an edge nor a vertex"),
        (
            lambda: rp.Graph.from_edges([1], [2], [1.0] if comm.rank else None, comm=comm),
            "edges of rank 0 have no weights, those of others have some",
        ),
        (lambda: rp.Graph.from_edges([1], [2], [1.0], comm=comm, duplicates="once"), "duplicates='once' with weights"),
        (lambda: rp.Graph.from_edges([1], [2], [1.0], comm=comm, duplicates="all"), "duplicates='all'"),
        (lambda: graph.send_messages([3], [1.0, 2.0]), r"send_messages: values of shape \(2,\), expected 1 rows"),
        (lambda: graph.send_messages([3.5], [1.0]), "send_messages: targets of type float64"),
        (lambda: graph.send_messages([3, -3], np.ones(2)), "send_messages: target -3 of message 1, expected 0"),
        (lambda: graph.send_messages([3], np.ones(1), "mean"), "combine='mean': expected one of sum"),
        (lambda: graph.send_messages([3], np.ones(1), missing="add"), "missing='add': expected 'error' or 'drop'"),
        (
            lambda: graph.send_messages(np.arange(7) * 10**6 + 1, np.ones(7)),
            "messages for 7 vertices that the graph does not have: 1, 1000001, 2000001, 3000001, 4000001, …; expected",
        ),
        (lambda: graph.send_along_edges(np.ones(n + 1)), f"expected {n} rows"),
        (lambda: graph.send_along_edges(np.ones(n), "or"), "op='or' of dtype float64"),
        (lambda: graph.send_along_edges(np.ones(n), where=np.ones(n)), "where of type float64"),
        (lambda: graph.send_along_edges(np.ones(n), along=lambda x, w: x[:1]), "along gives an array of shape"),
        (lambda: graph.send_edges(by="both"), "by='both'"),
        (lambda: graph.values.__setitem__("a", np.ones(n + 1)), f"column 'a': {n + 1} rows, expected {n}"),
        (lambda: graph.values.__setitem__("a", ["x"] * n), "column 'a': dtype <U1, expected numbers"),
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
    graph.values["a"] = np.zeros(n, np.int32)
    with pytest.raises(KeyError, match="'b': the graph has the columns 'a'"):
        graph.values["b"]
    for fn, text in [
        (lambda block: block.halt(np.ones(3)), "halt: where of type float64"),
        (lambda block: block.send_along_edges(np.ones(3)), r"send_along_edges: messages of shape \(3,\), expected"),
        (lambda block: block.send_messages([1], [1j]), "send_messages: messages of type complex128, expected message="),
        (lambda block: [block.send_along_edges(1) for _ in "ab"], "send_along_edges: twice in superstep 0"),
        (lambda block: block.aggregate("b", 1), "aggregator 'b': expected one of 'a'"),
        (lambda block: block.aggregate("a", np.ones((2, 2))), r"aggregator 'a': shape \(2, 2\), expected \(\)"),
        (lambda block: block.values.__setitem__("a", np.ones(2)), "column 'a': rows of shape"),
        (lambda block: block.values.__setitem__("a", 0.5), "column 'a': rows of type float64, expected int32"),
    ]:
        with pytest.raises(rp.InputError, match=text):
            graph.superstep(fn, aggregators={"a": "sum"})
    with pytest.raises(rp.InputError, match="along gives rows of type float64 and shape"):
        graph.superstep(lambda block: block.send_along_edges(1), message=np.int64, along=lambda x, w: x + 0.5)
    comm.barrier()


def test_wrong_arguments_are_told_by_name_and_value(world):
    world(2).run(wrong_arguments)


def raises_on_one_rank(comm):
    graph = rp.Graph.from_edges(np.arange(5), np.arange(5) + 1, comm=comm)

    def fn(block):
        if comm.rank == 1 and block.number == 2:
            raise ArithmeticError("three is too many")

    graph.superstep(fn)


def test_a_function_that_raises_ends_the_job_with_its_own_words():
    with rp.launch(workers=2) as job, pytest.raises(ArithmeticError, match="three is too many"):
        job.run(raises_on_one_rank)
