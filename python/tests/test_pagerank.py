"""PageRank equals networkx's, with bitwise equal results for any number of workers; bad input is reported."""

from __future__ import annotations

import doctest
import json
import math
import subprocess
import sys

import networkx as nx
import numpy as np
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from ripieno import _native
from ripieno.algorithms import PageRank
from ripieno.cli import main
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from varied import exhaustively

pytestmark = pytest.mark.usefixtures("without_charts")

WORKERS = [3, *exhaustively(1, 2)]
TOL = 1e-13


def rmat(scale, edge_count, seed):
    """Return edges of a random graph with hubs (Graph500's parameters) and shuffled ids."""
    random = np.random.default_rng(seed)
    draws = random.random((edge_count, scale))
    sources = ((draws >= 0.76) @ (1 << np.arange(scale))).astype(np.int64)
    targets = ((((draws >= 0.57) & (draws < 0.76)) | (draws >= 0.95)) @ (1 << np.arange(scale))).astype(np.int64)
    ids = random.permutation(1 << scale)
    return np.column_stack([ids[sources], ids[targets]])


def irregular_graph():
    """Return a graph with dangling and isolated vertices, loops, and strings as nodes."""
    graph = nx.gn_graph(150, seed=1)
    graph.add_edges_from([(3, 3), (7, 90), (0, 0), ("a", "b"), ("b", "a"), ("a", 4)])
    graph.add_nodes_from(["isolated", 1000])
    return graph


def weighted_graph():
    graph = irregular_graph()
    random = np.random.default_rng(2)
    nx.set_edge_attributes(graph, {edge: float(random.integers(0, 5)) for edge in graph.edges}, "weight")
    return graph


PERSONALIZATION = {3: 1, "isolated": 2.5, 90: 0.5}
DANGLING = {7: 3, "a": 1}
CASES = {
    "undirected": (nx.karate_club_graph(), {}),
    "dangling": (irregular_graph(), {}),
    "weights": (weighted_graph(), {}),
    "personal": (irregular_graph(), {"personalization": PERSONALIZATION}),
    "both": (weighted_graph(), {"personalization": PERSONALIZATION, "dangling": DANGLING}),
    "duplicates": (nx.scale_free_graph(100, seed=3), {}),
    "no edges": (nx.empty_graph(4, nx.DiGraph), {}),
}


def distance(model, expected):
    assert len(model.vertices_) == len(expected)
    return sum(
        abs(rank - expected[vertex]) for vertex, rank in zip(model.vertices_.tolist(), model.ranks_, strict=True)
    )


def fit_all(comm, graphs, **parameters):
    """Return the PageRanks of several graphs, computed by existing ranks."""
    models = [PageRank(**{**parameters, **more}).fit(graph, comm=comm) for graph, more in graphs]
    return [(model.vertices_, model.ranks_, model.n_iter_) for model in models]


@pytest.mark.parametrize("workers", WORKERS)
def test_ranks_match_networkx_to_the_same_bits_each_time(world, workers):
    # Lower damping needs fewer iterations.
    first, again = (world(workers).run(fit_all, list(CASES.values()), tol=TOL, damping=0.5) for _ in range(2))
    for name, ours, repeated in zip(CASES, zip(*first, strict=True), zip(*again, strict=True), strict=True):
        graph, parameters = CASES[name]
        expected = nx.pagerank(graph, alpha=0.5, tol=TOL, max_iter=1000, **parameters)
        vertices, ranks, iterations = ours[0]
        assert (
            sum(abs(rank - expected[vertex]) for vertex, rank in zip(vertices.tolist(), ranks, strict=True)) < 1e-10
        ), name
        assert len(vertices) == len(expected) and abs(ranks.sum() - 1) < 1e-12 and iterations >= 1
        for _, others, _ in (*ours, *repeated):
            assert np.array_equal(ranks, others), name


@pytest.mark.parametrize("workers", WORKERS)
def test_a_seeded_rmat_is_ranked_as_networkx_does(world, workers):
    pairs = rmat(10, 16 << 10, 1)
    graph = nx.DiGraph(pairs.tolist())
    graph.add_nodes_from(range(1 << 10))
    expected = nx.pagerank(graph, tol=TOL, max_iter=1000)
    [(vertices, ranks, _)] = world(workers).run(fit_all, [(rp.Graph(pairs, vertex_count=1 << 10), {})], tol=TOL)[0]
    assert np.array_equal(vertices, np.arange(1 << 10))
    assert np.abs(ranks - [expected[vertex] for vertex in range(1 << 10)]).sum() < 1e-8


def test_edges_of_equal_ends_count_once_or_add_up():
    pairs = np.array([[0, 1], [0, 1], [0, 2], [1, 0], [2, 0]])
    once, each = nx.DiGraph(pairs.tolist()), nx.MultiDiGraph(pairs.tolist())
    assert distance(PageRank(tol=TOL).fit(pairs), nx.pagerank(once, tol=TOL, max_iter=1000)) < 1e-12
    model = PageRank(tol=TOL).fit(rp.Graph(pairs, duplicates="sum"))
    assert distance(model, nx.pagerank(each, tol=TOL, max_iter=1000)) < 1e-12


@pytest.mark.parametrize("workers", [1, 2])
def test_weighted_edges_in_both_directions_count_once(world, workers):
    graph = nx.karate_club_graph()
    graph.add_edge(0, 0, weight=7)
    expected = nx.pagerank(graph, tol=TOL, max_iter=1000)
    matrix = nx.to_scipy_sparse_array(graph).tocoo()
    upper = matrix.row <= matrix.col
    halved = np.concatenate([matrix.row, matrix.row[~upper]]), np.concatenate([matrix.col, matrix.col[~upper]])
    weights = np.concatenate([np.where(upper, matrix.data, matrix.data / 2), matrix.data[~upper] / 2])
    graphs = [
        rp.Graph(matrix, directed=False),
        rp.Graph((*halved, weights), directed=False),
        rp.Graph((matrix.row[upper], matrix.col[upper], matrix.data[upper]), directed=False),
    ]
    for _, ranks, _ in world(workers).run(fit_all, [(each, {}) for each in graphs], tol=1e-7)[0]:
        assert np.abs(ranks - [expected[vertex] for vertex in range(len(graph))]).sum() < 1e-4
    unequal = rp.Graph((np.array([1, 4, 2]), np.array([2, 4, 1]), np.array([1.5, 1, 1])), directed=False)
    with pytest.raises(rp.InputError, match=r"from vertex 1 to 2 have weight 1\.5, the reverse edges 1: "):
        world(workers).run(fit_all, [(unequal, {})])


def test_iterations_and_their_end_match_networkx():
    graph = irregular_graph()
    for iterations in (1, 2, 7):
        with pytest.warns(ConvergenceWarning, match=f"max_iter={iterations}"):
            model = PageRank(tol=0, max_iter=iterations).fit(graph)
        # networkx raises without convergence, so its tolerance stops it after equally many iterations.
        error = model.report_.iterations[-1].error
        expected = nx.pagerank(graph, tol=1.0001 * error / len(graph), max_iter=iterations)
        assert model.n_iter_ == iterations and not model.converged_ and distance(model, expected) < 1e-14
    model = PageRank(tol=1e-6).fit(graph)
    assert model.converged_ and len(model.report_.iterations) == model.n_iter_
    errors = [each.error for each in model.report_.iterations]
    assert errors[-1] < 1e-6 * len(graph) <= errors[-2]


def test_the_iteration_ends_when_ranks_no_longer_change():
    model = PageRank(tol=0, max_iter=2000).fit(np.array([[0, 1], [1, 2], [2, 0]]))
    assert model.report_.iterations[-1].error == 0 and model.n_iter_ < 2000


def test_the_example_in_the_documentation_runs():
    assert doctest.testmod(sys.modules[PageRank.__module__]).failed == 0


def test_progress_and_times_are_reported_for_every_iteration():
    events = []
    model = PageRank(workers=2, threads=1, on_iteration=events.append).fit(nx.karate_club_graph())
    assert [event["iteration"] for event in events] == list(range(1, model.n_iter_ + 1))
    report = model.report_
    assert [event["error"] for event in events] == [each.error for each in report.iterations]
    assert len(report.hosts) == len(report.edge_counts) == len(report.iterations[0].compute_s) == 2
    assert sum(report.edge_counts) == report.edge_count == 2 * 78
    assert report.degrees == "2" and report.edges_per_s > 0


def test_top_names_the_highest_ranks():
    model = PageRank().fit(np.array([[0, 9], [1, 9], [5, 9], [9, 5], [7, 5]]))
    assert [vertex for vertex, _ in model.top(2)] == [9, 5]
    assert model.top(99) == sorted(model.top(99), key=lambda pair: (-pair[1], pair[0]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"damping": 1.5}, "damping=1.5"),
        ({"tol": -1}, "tol=-1"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"workers": 0}, "workers=0"),
        ({"personalization": {77: 1}}, "personalization: 1 of its 1 vertices are not in the graph"),
        ({"personalization": {0: -1}}, "numbers >= 0"),
        ({"personalization": {0: 0}}, "not all of them 0"),
        ({"dangling": ([0, 0], [1, 2])}, "dangling: expected one number for each"),
        ({"dangling": {"x": 1}}, "dangling: vertices of type <U1, expected whole numbers"),
        ({"dangling": {0.5: 1}}, "dangling: vertices of type float64, expected whole numbers"),
        ({"dangling": {0: "x"}}, "dangling: expected a dict, or vertices and a number for each"),
        ({"dangling": [1, 2, 3]}, "dangling: expected a dict, or vertices"),
        ({"dangling": 5}, "dangling: expected a dict, or vertices"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(rp.InputError, match=message):
        PageRank(**parameters).fit(np.array([[0, 1]]))


def test_bad_graphs_are_named():
    with pytest.raises(rp.InputError, match=r"from vertex 3 has the weight -1\.0"):
        PageRank().fit((np.array([3]), np.array([4]), np.array([-1.0])))
    with pytest.raises(rp.InputError, match="no edges and no vertices"):
        PageRank().fit(np.empty((0, 2), np.int64))
    with pytest.raises(rp.InputError, match="no vertex 'absent'"):
        PageRank(personalization={"absent": 1}).fit(irregular_graph())


def test_the_estimator_can_be_cloned():
    model = clone(PageRank(0.5, personalization={1: 1}, workers=3))
    assert (model.damping, model.personalization, model.workers) == (0.5, {1: 1}, 3)


@pytest.fixture
def graph_file(tmp_path):
    pairs = rmat(8, 2000, 5)
    (tmp_path / "graph.txt").write_text("# made up\n" + "".join(f"{a}\t{b}\n" for a, b in pairs.tolist()))
    return tmp_path / "graph.txt", nx.pagerank(nx.DiGraph(pairs.tolist()), tol=1e-12, max_iter=1000)


def test_the_command_writes_the_requested_columns(graph_file, capsys):
    path, expected = graph_file
    outs = [path.parent / name for name in ("ranks.parquet", "ranks.csv", "ranks.npz")]
    for out, workers in zip(outs, (1, 2, 2), strict=True):
        more = ["--report", str(path.parent / "report.json"), "--overwrite", "-q"]
        assert main(["pagerank", str(path), "--out", str(out), "--workers", str(workers), *more]) == 0
        captured = capsys.readouterr()
        assert captured.out.strip() == str(out)
        top = max(expected, key=expected.get)
        assert f"{len(expected)} vertices" in captured.err and f"{top}" in captured.err
        assert len(json.loads((path.parent / "report.json").read_text())["hosts"]) == workers
    table = pq.read_table(outs[0]).to_pydict()
    csv = np.loadtxt(outs[1], delimiter=",", skiprows=1)
    npz = np.load(outs[2])
    for vertices, ranks in (
        (table["vertex"], table["rank"]),
        (csv[:, 0].astype(int).tolist(), csv[:, 1]),
        (npz["vertex"].tolist(), npz["rank"]),
    ):
        assert vertices == sorted(expected)
        assert math.fsum(abs(rank - expected[vertex]) for vertex, rank in zip(vertices, ranks, strict=True)) < 1e-8


def test_the_command_shows_each_iteration(graph_file, capsys):
    path, _ = graph_file
    assert main(["pagerank", str(path), "--out", str(path.parent / "r.npz"), "--undirected", "--top", "0"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("iteration 1, error ") and "iterations of" in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.txt"], "nowhere.txt does not exist"),
        (["{path}", "--out", "ranks.doc"], "ranks.doc: unknown kind of file"),
        (["{path}", "--out", "/nowhere/ranks.csv"], "/nowhere is not a folder"),
        (["{path}", "--report", "r.json", "--trace", "./r.json"], "name the same file twice"),
        (["{path}", "--weighted"], "line 2: expected a finite number as weight"),
        (["{path}", "--vertex-count", "3"], "but --vertex-count 3"),
    ],
)
def test_the_command_reports_the_error_and_leaves_no_file(arguments, message, graph_file, capsys, monkeypatch):
    path, _ = graph_file
    monkeypatch.chdir(path.parent)
    assert main(["pagerank", *(each.format(path=path) for each in arguments)]) == 2
    assert message in capsys.readouterr().err
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_errors_of_the_command_name_its_options(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tol").mkdir()
    third = tmp_path / "tol" / "third.csv"
    third.write_text("0,1,2\n1,2,2\n1,0,3\n")
    assert main(["pagerank", str(third)]) == 2
    assert f"{third} has" in (output := capsys.readouterr().err) and "pass --weighted if" in output
    assert main(["pagerank", str(third), "--weighted", "--undirected"]) == 2
    assert "with --undirected expected equal weights" in capsys.readouterr().err
    assert main(["pagerank", str(third), "--weighted", "--max-iter", "1"]) == 0
    assert "after max_iter=1 iterations" in (output := capsys.readouterr().err)
    assert "a higher tol" in output


@pytest.mark.exhaustive
def test_ranks_of_a_launcher_run_the_command_together(graph_file, tmp_path):
    path, expected = graph_file
    command = ["ripieno", "pagerank", str(path), "--out", str(tmp_path / "r.csv"), "-q"]
    run = [sys.executable, "-m", "ripieno", "run", "-n", "2", "-m", *command]
    done = subprocess.run(run, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("r.csv") == 1
    ranks = np.loadtxt(tmp_path / "r.csv", delimiter=",", skiprows=1)
    assert math.fsum(abs(rank - expected[vertex]) for vertex, rank in ranks.tolist()) < 1e-8
    refused = subprocess.run([*run, "--overwrite", "--workers", "2"], capture_output=True, text=True, timeout=250)
    assert refused.returncode == 2 and refused.stderr.count("--workers, --engine and --trace are") == 1


def kernel_step(**changed):
    """Run a kernel step for three vertices, with default arguments except for `changed`."""
    three = np.ones(3)
    arrays = {"sums": np.ones(2), "places": np.array([0, 1, 2**32 - 1], np.uint32), "inverse_out": three}
    arrays |= {"counted": None, "teleport": None, "share": None, **changed}
    return _native.pagerank_step(*arrays.values(), 1 / 3, 0.85, 0.0, np.ones(3), np.ones(3), 1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"places": np.array([0, 2, 1], np.uint32)}, "places has 2: expected less than 2, the number of sums"),
        ({"places": None}, "sums has 2 entries: expected 3, one per rank"),
        ({"inverse_out": np.ones(4)}, "inverse_out has 4 entries"),
        ({"counted": np.ones(2, bool)}, "counted has 2 entries"),
    ],
)
def test_the_kernel_names_arrays_that_do_not_fit(changed, message):
    assert kernel_step()[0] > 0
    with pytest.raises(rp.InputError, match=message):
        kernel_step(**changed)


def test_sums_of_integers_accept_no_weights():
    ends = np.array([0, 1])
    weighted = _native.local_graph(ends, ends[::-1].copy(), np.array([0.5, 2.0]), False, 1)[2]
    out = np.empty(2, np.int64)
    with pytest.raises(rp.InputError, match="x has dtype int64 and the edges have weights"):
        weighted.product(np.array([3, 4]), out, "sum", 1)
    weighted.product(np.array([3, 4]), out, "max", 1)
    assert sorted(out) == [3, 4]
