"""Graphs distributed over ranks: vertices, edges and messages equal networkx and NumPy."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import ripieno as rp
from graph_programs import built, gathered, random_edges
from numpy.testing import assert_array_equal
from operations import OPS

LAYOUTS = [
    (partitioner, by) for partitioner in ("hash", "blocks", lambda ids: ids // 3 % 2 * 0) for by in ("source", "target")
]


def fields(comm):
    (sources, targets), weights = random_edges()
    for partitioner, by in LAYOUTS:
        graph = built(comm, partitioner=partitioner, by=by, vertices=[500] if comm.rank == 0 else ())
        names = np.unique([*sources, *targets, 500])
        all_ids, _ = gathered(comm, graph.vertices, graph.vertices)
        assert_array_equal(all_ids, names)
        assert (graph.vertex_count, graph.edge_count, graph.largest) == (len(names), len(weights), 500)
        assert_array_equal(graph.owner_of(graph.vertices), np.full(len(graph.vertices), comm.rank))
        assert_array_equal(graph.out_degrees, np.count_nonzero(sources[:, None] == graph.vertices, axis=0))
        assert_array_equal(graph.in_degrees, np.count_nonzero(targets[:, None] == graph.vertices, axis=0))
        near = graph.edges.sources if by == "source" else graph.edges.targets
        assert_array_equal(near, np.repeat(graph.vertices, np.diff(graph.offsets)))
        edges = [np.concatenate(comm.allgather(each)) for each in vars(graph.edges).values()][:3]
        assert sorted(zip(*edges, strict=True)) == sorted(zip(sources, targets, weights, strict=True))
        regrouped = graph.send_edges(by="target")
        assert_array_equal(graph.owner_of(regrouped.targets), np.full(len(regrouped), comm.rank))
        assert comm.allreduce(len(regrouped)) == len(weights) and (np.diff(regrouped.targets) >= 0).all()


def test_every_vertex_and_edge_is_stored_once_at_its_owner(everywhere):
    everywhere(fields)


def reference(pairs, names, ufunc, dtype, width):
    """Return for each of `names` the combined rows of (target, row) pairs, and whether there are any."""
    rows, received = np.zeros((len(names), *width), dtype), np.zeros(len(names), bool)
    for target, row in pairs:
        at = np.searchsorted(names, target)
        rows[at] = ufunc(rows[at], row) if received[at] else row
        received[at] = True
    return rows, received


def value_of(ids, dtype, width):
    """Return a small integer for each vertex."""
    rows = (ids * 7 % 5 + 1).astype(dtype)
    return rows if not width else np.stack([rows + at for at in range(*width)], axis=1).astype(dtype)


ALONG = {
    "as it is": (None, lambda row, weight: row),
    "times the weight": (np.multiply, np.multiply),
    "plus the weight": (np.add, np.add),
}


def along_edges(comm, op, dtype, width, partitioner, by, weighted, along):
    graph = built(comm, partitioner=partitioner, by=by, weighted=weighted, duplicates="sum")
    (sources, targets), weights = random_edges()
    weights = weights if weighted else np.ones_like(weights)
    names, values = gathered(comm, graph.vertices, value_of(graph.vertices, dtype, width))
    for where in (None, graph.vertices % 2 == 0):
        arrived = graph.send_along_edges(value_of(graph.vertices, dtype, width), op, along=ALONG[along][0], where=where)
        pairs = [
            (target, ALONG[along][1](values[np.searchsorted(names, source)], weight))
            for source, target, weight in zip(sources, targets, weights, strict=True)
            if where is None or source % 2 == 0
        ]
        rows, received = reference(pairs, names, OPS[op], arrived.values.dtype, width)
        mine = np.searchsorted(names, graph.vertices)
        assert_array_equal(arrived.received, received[mine])
        assert_array_equal(arrived.values[arrived.received], rows[mine][arrived.received])
        without_messages = arrived.values[~arrived.received]
        assert_array_equal(
            OPS[op](without_messages, without_messages.dtype.type(3)),
            without_messages.dtype.type(3) + np.zeros_like(without_messages),
        )


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


def test_messages_along_edges_match_numpy(everywhere):
    everywhere(all_cases)


def sums_along_edges(comm):
    graph = rp.Graph.from_edges(np.arange(1, 12), np.zeros(11, np.int64), comm=comm)
    for dtype, large in (("f2", 2.0**11), ("f4", 2.0**24)):
        values = np.where(graph.vertices == 1, large, 1).astype(dtype)
        for rows in (values, np.stack([values] * 2, axis=1)):
            received = graph.send_along_edges(rows)
            assert (received.values[graph.vertices == 0] == large + 10).all()
        received = graph.send_messages(np.zeros(11, np.int64), np.array([large] + [1] * 10, dtype))
        assert (received.values[graph.vertices == 0] == large + 10).all()


def test_sums_of_short_floats_along_edges_accumulate_in_float64(world):
    world(1).run(sums_along_edges)


def smallest_sum(left, right):
    """Combine two rows to the one with the smaller sum, which no named combiner does."""
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
        one_row = (lambda a, b: smallest_sum(a[None], b[None])[0]) if callable(combine) else OPS[combine]
        rows, received = reference(pairs, names, one_row, np.int64, (2,))
        arrived = graph.send_messages(targets, values, combine)
        assert_array_equal(arrived.received, received[mine])
        assert_array_equal(arrived.values[arrived.received].sum(axis=1), rows[mine][arrived.received].sum(axis=1))
        if not callable(combine):
            assert_array_equal(arrived.values[arrived.received], rows[mine][arrived.received])
    arrived = graph.send_messages(targets, values, "concat")
    for place, vertex in enumerate(graph.vertices):
        expected = sorted(tuple(row) for target, row in pairs if target == vertex)
        assert sorted(map(tuple, arrived.values[slice(*arrived.offsets[place : place + 2])])) == expected
        assert arrived.received[place] == bool(expected)
    again = graph.send_messages(targets, values, "concat")
    assert_array_equal(again.values, arrived.values)


def test_messages_to_any_vertices_match_numpy(everywhere):
    everywhere(messages_to_any)


def messages_as_lists(comm):
    (sources, targets), weights = random_edges()
    order = np.lexsort((sources, targets))
    for partitioner, by in LAYOUTS[:4]:
        graph = built(comm, partitioner=partitioner, by=by)
        even = graph.vertices % 2 == 0
        for where in (None, even):
            received = graph.send_along_edges(graph.vertices, "concat", where=where)
            for place, vertex in enumerate(graph.vertices):
                chosen = order[targets[order] == vertex]
                expected = [source for source in sources[chosen] if where is None or source % 2 == 0]
                assert_array_equal(received.values[slice(*received.offsets[place : place + 2])], expected)
        pairs = graph.vertices[:, None] * [1, 2]
        least = graph.send_along_edges(pairs, smallest_sum, where=even, along=np.add)
        for place, vertex in enumerate(graph.vertices):
            chosen = (targets == vertex) & (sources % 2 == 0)
            expected = min((3 * sources[chosen] + 2 * weights[chosen]), default=0)
            assert least.values[place].sum() == expected and least.received[place] == chosen.any()


def test_messages_are_kept_separate_or_combined_by_a_callable(everywhere):
    everywhere(messages_as_lists)


def of_any_type(comm):
    graph = rp.Graph.from_edges([comm.rank], [5], comm=comm)
    at_five = graph.vertices == 5
    for dtype in ("?", "u1", "f2", "i4"):
        messages = graph.send_messages([5, 5], np.array([1, 0], dtype), "min")
        assert messages.values.dtype == dtype and not messages.values[at_five].any() and messages.values[~at_five].all()
        assert graph.send_messages([5], np.ones(1, dtype), "concat").values.dtype == dtype
        messages = graph.send_along_edges(np.ones(len(graph.vertices), dtype), "max")
        assert messages.values.dtype == dtype
        assert_array_equal(messages.received, at_five)
    boxes = graph.send_along_edges(np.ones((len(graph.vertices), 2, 2)), along=np.add).values
    assert_array_equal(boxes, np.where(at_five[:, None, None], 2.0 * comm.world_size, 0) + np.zeros((1, 2, 2)))
    isolated = rp.Graph.from_edges([], [], comm=comm, vertices=[1, 2, 9] if comm.rank == 0 else [])
    for combine in ("sum", "concat", smallest_sum):
        for rows in (np.empty((0, 3)), np.empty((0, 2), np.int8)):
            messages = isolated.send_messages([], rows, combine)
            assert (
                not messages.received.any()
                and messages.values.shape[1:] == rows.shape[1:]
                and messages.values.dtype == rows.dtype
            )
        for by in ("source", "target"):
            other = isolated.regroup(by=by)
            messages = other.send_along_edges(np.ones((len(other.vertices), 2)), combine, where=other.vertices == 1)
            assert not messages.received.any()


def test_messages_are_of_any_type_and_may_be_none(everywhere):
    everywhere(of_any_type)


def regrouped_content(comm):
    graph = built(comm)
    graph.values["id"] = graph.vertices
    graph.values["pair"] = graph.vertices[:, None] * [1.0, 2.0]
    all_ids, _ = graph.allgather("id")
    for options in ({"partitioner": "blocks"}, {"by": "target"}, {"partitioner": lambda ids: ids * 0, "by": "target"}):
        other = graph.regroup(**options)
        assert_array_equal(other.values["id"], other.vertices)
        assert_array_equal(other.values["pair"][:, 1], 2.0 * other.vertices)
        assert other.by == options.get("by", "source") and other.edge_count == graph.edge_count
        for each in other.allgather("id"):
            assert_array_equal(each, all_ids)
        assert_array_equal(other.owner_of(other.vertices), np.full(len(other.vertices), comm.rank))
        of_graph, of_other = (g.allgather("incoming")[1] for g in map(with_sums, (graph, other)))
        assert_array_equal(of_graph, of_other)


def with_sums(graph):
    graph.values["incoming"] = graph.send_along_edges(graph.values["pair"], "sum", along=np.multiply).values
    return graph


def test_a_regrouped_graph_is_the_same_graph(everywhere):
    everywhere(regrouped_content)


def without_direction(comm):
    graph = nx.gnm_random_graph(40, 90, seed=1)
    first, second = np.array(graph.edges).T
    weights = 1.0 + (first + second) % 4
    # Some edges occur in both directions, which adds no edge.
    sources, targets = np.concatenate([first, second[:20]]), np.concatenate([second, first[:20]])
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
        assert_array_equal(graph.out_degrees, [np.count_nonzero([first == v, second == v]) for v in graph.vertices])
    named = rp.Graph(nx.relabel_nodes(nx.path_graph(4), dict(enumerate("dbca")))).partition(comm)
    assert_array_equal(named.labels, np.array([*"dbca"], object)[named.vertices])


def test_undirected_edges_count_in_both_directions(world):
    world(3).run(without_direction)


def wrong_arguments(comm):
    graph = built(comm)
    n = len(graph.vertices)
    for call, text in [
        (lambda: built(comm, partitioner="near"), "partitioner='near': expected 'hash', 'blocks'"),
        (lambda: built(comm, by="end"), "by='end': expected 'source' or 'target'"),
        (
            lambda: built(comm, partitioner=lambda ids: ids * 0 + 9),
            r"partitioner returned rank 9 for vertex \d+: expected 0 … 1",
        ),
        (lambda: built(comm, partitioner=lambda ids: ids * 0.5), "partitioner returned ranks of type float64"),
        (lambda: rp.Graph.from_edges([1], [2, 3], comm=comm), "edges of rank 0: 1 sources and 2 targets"),
        (lambda: rp.Graph.from_edges([-1], [2], comm=comm), "edges of rank 0, edge 0: vertex id -1"),
        (lambda: rp.Graph.from_edges([], [], comm=comm), "no edges and no vertices"),
        (
            lambda: rp.Graph.from_edges([1], [2], [1.0] if comm.rank else None, comm=comm),
            "edges of rank 0 have no weights, but edges of other ranks have weights",
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
        (lambda: graph.send_along_edges(np.ones(n), along=lambda x, w: x[:1]), "along returned an array of shape"),
        (lambda: graph.send_edges(by="both"), "by='both'"),
        (lambda: graph.values.__setitem__("a", np.ones(n + 1)), f"column 'a': {n + 1} rows, expected {n}"),
        (lambda: graph.values.__setitem__("a", ["x"] * n), "column 'a': dtype <U1, expected numbers"),
    ]:
        with pytest.raises(rp.InputError, match=text):
            call()
    graph.values["a"] = np.zeros(n, np.int32)
    with pytest.raises(KeyError, match="'b': the graph has the columns 'a'"):
        graph.values["b"]
    comm.barrier()


def test_wrong_arguments_are_reported_by_name_and_value(world):
    world(2).run(wrong_arguments)


def sent(comm):
    graph = built(comm)
    for call in (comm.broadcast, comm.allgather):
        with pytest.raises(
            rp.SerializationError, match=r"lie on all ranks already: send its values, .* or the rp.Graph"
        ):
            call(graph)
    whole = comm.broadcast(rp.Graph(random_edges()[0].T) if comm.rank == 0 else None)
    return whole.partition(comm).edge_count


def test_a_partitioned_graph_cannot_be_sent(everywhere):
    distinct = set(zip(*random_edges()[0].tolist(), strict=True))
    assert set(everywhere(sent)) == {len(distinct)}
