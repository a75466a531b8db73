"""Exactly one worker reads each edge of every kind of input, and bad input is reported in one sentence."""

from __future__ import annotations

import gzip
import shutil

import networkx as nx
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ripieno as rp
import scipy.sparse
from ripieno.algorithms.same_call import value_of
from ripieno.graph import Graph, load
from ripieno.graph.edges import Edges
from varied import exhaustively

RANDOM = np.random.default_rng(0)
#: Duplicates, loops, and distant ids.
PAIRS = np.concatenate([RANDOM.integers(0, 30, (200, 2)), [[1, 1], [7, 2], [7, 2], [1 << 40, 3]]])
WEIGHTS = RANDOM.integers(1, 100, len(PAIRS)) / 4


def lines(pairs, between="\t", weights=None):
    tails = [""] * len(pairs) if weights is None else [f"{between}{weight}" for weight in weights]
    return "".join(f"{a}{between}{b}{tail}\n" for (a, b), tail in zip(pairs.tolist(), tails, strict=True))


def adjacency(pairs):
    return "".join(
        f"{vertex}\t{','.join(map(str, pairs[pairs[:, 0] == vertex, 1]))}\n" for vertex in np.unique(pairs[:, 0])
    )


def text(content):
    return lambda path: path.write_text(content)


def packed(content):
    return lambda path: path.write_bytes(gzip.compress(content.encode()))


def parquet(**columns):
    return lambda path: pq.write_table(pa.table(columns), path, row_group_size=16)


SOURCES, TARGETS = PAIRS.T
SNAP = "# Nodes: 31 Edges: 204\n# FromNodeId\tToNodeId\n" + lines(PAIRS)
PLAIN = {
    "snap.txt": text(SNAP),
    "snap.txt.gz": packed(SNAP),
    "spaces.el": text(lines(PAIRS, "  ").replace("\n", " \r\n").rstrip()),
    "adjacency.txt": text(adjacency(PAIRS)),
    "adjacency": text(adjacency(PAIRS)),
    "bare.csv": text(lines(PAIRS, ",")),
    "halves.csv": text("follower,dst\n" + lines(PAIRS, ",")),
    "returns.txt": text(lines(PAIRS).replace("\n", "\r")),
    "named.csv": text("name;dst;src\n" + "".join(f"x y;{b};{a}\n" for a, b in PAIRS.tolist())),
    "named.CSV.GZ": packed("src,dst\n" + lines(PAIRS, ",")),
    "long comment.csv": text("# " + "5 6 " * 40000 + "\n" + lines(PAIRS, ",")),
    "pairs.npy": lambda path: np.save(path, PAIRS),
    "arrays.npz": lambda path: np.savez(path, dst=TARGETS, src=SOURCES),
    "columns.parquet": parquet(kind=["x"] * len(PAIRS), source=SOURCES, target=TARGETS),
    "narrow.parquet": parquet(a=SOURCES.astype(np.uint64), b=TARGETS.astype(np.int32)),
}
WEIGHTED = {
    "third.txt": text(lines(PAIRS, weights=WEIGHTS)),
    "returns.txt": text(lines(PAIRS, weights=WEIGHTS).replace("\n", "\r")),
    "third.csv": text(lines(PAIRS, ",", WEIGHTS)),
    "named.csv": text("weight,from,to\n" + "".join(f"{w},{a},{b}\n" for (a, b), w in zip(PAIRS, WEIGHTS, strict=True))),
    "named.parquet": parquet(u=SOURCES, v=TARGETS, weight=WEIGHTS),
    "named ids.parquet": parquet(edge_id=WEIGHTS, to_id=TARGETS, FromNodeId=SOURCES, weights=WEIGHTS),
    "arrays.npz": lambda path: np.savez_compressed(path, src=SOURCES, tgt=TARGETS, weights=WEIGHTS),
}


def rows(graph, world_size):
    """Return source, target and weight of all edges that this number of ranks reads, sorted."""
    shares = [graph.read_share(rank, world_size) for rank in range(world_size)]
    columns = [
        (share.sources, share.targets, np.ones(len(share)) if share.weights is None else share.weights)
        for share in shares
    ]
    return sorted((int(a), int(b), float(w)) for share in columns for a, b, w in zip(*share, strict=True))


def expected(weights=None):
    weights = np.ones(len(PAIRS)) if weights is None else weights
    return sorted((int(a), int(b), float(w)) for (a, b), w in zip(PAIRS, weights, strict=True))


@pytest.mark.parametrize("name", PLAIN)
def test_every_edge_is_read_once_for_any_number_of_workers(name, tmp_path, monkeypatch):
    monkeypatch.setattr("ripieno.input.columns.csv.WINDOW_BYTES", 100)
    monkeypatch.setattr("ripieno.input.columns.edges.WINDOW_BYTES", 64)
    PLAIN[name](tmp_path / name)
    graph = Graph(tmp_path / name)
    assert not graph.weighted
    for world_size in (1, 2, 3, 5, 40):
        assert rows(graph, world_size) == expected(), world_size


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_are_read_with_their_edges(name, tmp_path):
    WEIGHTED[name](tmp_path / name)
    for world_size in (1, 3):
        assert rows(Graph(tmp_path / name, weighted=True), world_size) == expected(WEIGHTS)
        assert rows(Graph(tmp_path / name, weighted=False), world_size) == expected()
    if "named" in name or "arrays" in name:
        assert Graph(tmp_path / name).weighted
    else:
        with pytest.raises(rp.InputError, match="weighted=True"):
            Graph(tmp_path / name).read_share(0, 1)


@pytest.mark.parametrize("name", PLAIN)
def test_ranks_can_compare_graphs_in_files(name, tmp_path):
    PLAIN[name](tmp_path / name)
    shutil.copytree(tmp_path, tmp_path / "other")
    digests = [value_of(Graph(folder / name)).digest for folder in (tmp_path, tmp_path, tmp_path / "other")]
    assert None not in digests and digests[0] == digests[1] != digests[2]


def test_several_files_are_one_graph(tmp_path):
    (tmp_path / "a.txt").write_text(lines(PAIRS[:150]))
    (tmp_path / "b.csv").write_text(lines(PAIRS[150:155], ","))
    np.save(tmp_path / "c.npy", PAIRS[155:])
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "part.txt").write_text("# nothing\n")
    (tmp_path / "part.txt.gz").write_bytes(gzip.compress(b""))
    np.save(tmp_path / "d.npy", PAIRS[:0])
    for source in (tmp_path, tmp_path / "*", [tmp_path / "c.npy", tmp_path / "a.txt", tmp_path / "b.csv"]):
        for world_size in (1, 2, 5):
            assert rows(Graph(source if isinstance(source, list) else str(source)), world_size) == expected()


def test_edges_in_memory_are_divided():
    for source in (PAIRS, (SOURCES, TARGETS)):
        assert rows(Graph(source), 3) == expected()
    assert rows(Graph((SOURCES, TARGETS, WEIGHTS)), 3) == expected(WEIGHTS)
    assert rows(Graph((SOURCES, TARGETS, WEIGHTS), weighted=False), 3) == expected()


FRAMES = {"arrow": lambda table: table, "pandas": lambda table: table.to_pandas(), "polars": pl.from_arrow}


@pytest.mark.parametrize("kind", FRAMES)
def test_columns_of_frames_are_found_as_in_files(kind):
    make = FRAMES[kind]
    two = make(pa.table({"a": SOURCES, "b": TARGETS}))
    swapped = make(pa.table({"dst": TARGETS, "weight": WEIGHTS, "src_id": SOURCES, "note": ["x"] * len(SOURCES)}))

    assert rows(Graph(two), 3) == expected()
    assert rows(Graph(swapped), 3) == expected(WEIGHTS)
    assert rows(Graph(swapped, weighted=False), 3) == expected()
    cycle = make(pa.table({"from": [0, 1, 2], "to": [1, 2, 0]}))
    np.testing.assert_allclose(rp.PageRank().fit(cycle).ranks_, np.full(3, 1 / 3))
    assert rp.BFS(1).fit(cycle).distances_.tolist() == [2, 0, 1]


NAMED = {"source": ["dora", "ann", "bob"], "target": [5, 7, 5], "weight": [0.5, 2.0, 1.0]}


def named_tables(folder):
    """Return the same edges between named vertices as files and frames."""
    table = pa.table(NAMED)
    pq.write_table(table, folder / "edges.parquet")
    lines = [",".join(map(str, row)) for row in zip(*NAMED.values(), strict=True)]
    (folder / "edges.csv").write_text("source,target,weight\n" + "\n".join(lines))
    (folder / "blanks.txt").write_text("\n".join(line.replace(",", " ") for line in lines))
    blanks = rp.input.TableFiles(folder / "blanks.txt", delimiter=" ", header=False)
    return {
        "parquet": Graph(folder / "edges.parquet"),
        "csv": Graph(folder / "edges.csv"),
        "blanks": Graph(blanks, weighted=True, format="csv"),
        "Arrow": Graph(table),
        "pandas categories": Graph(table.to_pandas().astype({"source": "category"})),
        "polars": Graph(pl.from_arrow(table)),
    }


def test_strings_are_numbered_by_name(tmp_path):
    for kind, graph in named_tables(tmp_path).items():
        assert list(graph.labels) == ["5", "7", "ann", "bob", "dora"], kind
        assert rows(graph, 2) == [(2, 1, 2.0), (3, 0, 1.0), (4, 0, 0.5)], kind
    several = Graph([tmp_path / "edges.parquet", tmp_path / "edges.csv"], weighted=False)
    assert rows(several, 1) == sorted([(2, 1, 1.0), (3, 0, 1.0), (4, 0, 1.0)] * 2)


def test_results_contain_the_ids_as_strings(tmp_path, world):
    graph = Graph(named_tables(tmp_path)["csv"].source.edges, directed=False)
    named = Graph(tmp_path / "edges.csv", directed=False)
    for model in (rp.ShortestPaths("dora", engine=world(2)), rp.BFS("dora")):
        found, by_number = model.fit(named), type(model)(4).fit(graph)
        assert found.vertices_.tolist() == ["5", "7", "ann", "bob", "dora"]
        assert found.distances_.tolist() == by_number.distances_.tolist()
    assert rp.ConnectedComponents().fit(named).labels_.tolist() == ["5", "7", "7", "5", "5"]
    ranks = rp.PageRank(personalization={"ann": 1.0}).fit(named)
    assert {name for name, _ in ranks.top(2)} == {"ann", "7"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: Graph(folder / "edges.csv", vertex_count=9), "vertex_count=9, but the 5 vertices have names"),
        (lambda folder: Graph(folder / "short.csv"), "the first line, 'ann, bob', may be a header or an edge"),
        (
            lambda folder: Graph([folder / "edges.csv", folder / "a.txt"], weighted=True),
            "a.txt has numbers of vertices",
        ),
        (lambda folder: rp.BFS("carl").fit(folder / "edges.csv"), "source='carl': the graph has no such vertex"),
    ],
)
def test_misuse_of_strings_is_reported(make, message, tmp_path):
    named_tables(tmp_path)
    (tmp_path / "short.csv").write_text("ann,bob\nbob,carl\n")
    (tmp_path / "a.txt").write_text("1 2 0.5\n")
    with pytest.raises(rp.InputError, match=message):
        make(tmp_path)


def test_vertices_of_archives_may_be_strings(tmp_path):
    np.savez(tmp_path / "edges.npz", src=np.array(["ann", "bob"]), dst=np.array(["bob", "7"]))
    graph = Graph(tmp_path / "edges.npz")
    assert graph.labels.tolist() == ["7", "ann", "bob"]


def test_a_row_of_an_archive_is_counted_in_the_arrays_of_edges(tmp_path):
    np.savez(tmp_path / "edges.npz", about=np.zeros(7), src=np.arange(4), dst=np.array([1, 2, 3, -4]))
    with pytest.raises(rp.InputError, match=r"edges\.npz, row 3, column 'dst': -4"):
        Graph(tmp_path / "edges.npz").read_share(1, 2)


def test_a_sparse_archive_with_one_number_as_indices_is_refused(tmp_path):
    np.savez(tmp_path / "s.npz", format=b"csr", shape=(2, 2), data=[1.0], indices=1, indptr=[0, 1, 1])
    with pytest.raises(rp.InputError, match=r"s\.npz is not a sparse matrix of SciPy: indices .* shape \(\)"):
        Graph(tmp_path / "s.npz").read_share(0, 1)


def test_partitions_of_strings_are_refused(tmp_path):
    named_tables(tmp_path)
    parts = rp.input.divide(tmp_path / "edges.csv", tmp_path / "parts", partitions=2)
    with pytest.raises(rp.InputError, match="whole numbers"):
        rp.BFS(0).fit(parts)


def test_the_index_of_a_frame_is_no_column():
    frame = pa.table({"source": SOURCES, "target": TARGETS}).to_pandas()

    assert rows(Graph(frame[frame["source"] >= 0].sort_values("source").set_index(SOURCES)), 2) == expected()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"source": [1]}, "one column, expected a source and a target"),
        (
            {"a": [1], "b": [2], "c": [3]},
            "has the columns 'a', 'b', 'c': the columns of sources and targets are unknown",
        ),
        ({"source": ["x", "y"], "target": ["y", None]}, "row 1, column 'target': a missing value: expected vertex ids"),
        ({"source": ["x"], "target": [0.5]}, "row 0, column 'target': the type double: expected vertex ids"),
        ({"source": [1, None], "target": [2, 3]}, "row 1, column 'source': a missing value: expected vertex ids"),
        ({"source": [0.5], "target": [2.0]}, "row 0, column 'source': the type double: expected vertex ids"),
        ({"source": [-1], "target": [2]}, "row 0, column 'source': -1: expected vertex ids"),
    ],
)
def test_frames_without_edges_are_reported(columns, message):
    with pytest.raises(rp.InputError, match=f"the pyarrow Table.*{message}"):
        Graph(pa.table(columns))


def test_sparse_matrices_keep_their_shape(tmp_path):
    dense = np.array([[0, 2.5, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    expected = [(0, 1, 2.5), (1, 0, 1.0), (2, 1, 1.0)]
    for make in (scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_array):
        scipy.sparse.save_npz(tmp_path / "matrix.npz", make(dense))
        for graph in (Graph(make(dense)), Graph(tmp_path / "matrix.npz")):
            assert rows(graph, 2) == expected
            assert (graph.vertex_count, graph.duplicates) == (4, "sum")
    with pytest.raises(rp.InputError, match="square"):
        Graph(scipy.sparse.csr_array(dense[:2]))


def test_networkx_graphs_keep_their_nodes_and_kind():
    graph = nx.Graph([("a", "b"), ("b", "c", {"weight": 2.0})])
    graph.add_node("alone")
    ours = Graph(graph)
    assert rows(ours, 1) == [(0, 1, 1.0), (1, 2, 2.0)]
    assert (list(ours.labels), ours.vertex_count, ours.directed) == (["a", "b", "c", "alone"], 4, False)
    assert not Graph(graph, weighted=False).weighted
    assert Graph(nx.MultiDiGraph([(0, 1), (0, 1)])).duplicates == "sum"


BAD = {
    "malformed.txt": ("# x\n1 2\n\n3 x\n4 5\n", "line 4: expected a vertex id, a whole number: '3 x'"),
    "negative.txt": ("1 2\n-3 1\n", "line 2: a negative vertex id"),
    "short.csv": ("src,dst\n1,2\n3\n", "line 3: 1 values, expected 2"),
    "huge.txt": ("99999999999999999999 1\n", "line 1: a vertex id above"),
    "third.txt": ("1 2 3\n", "weighted=False"),
    "words.txt": ("from to\n1 2\n", "line 1: expected a vertex id"),
}


def test_a_first_line_of_numbers_is_no_header(tmp_path):
    (tmp_path / "dates.csv").write_text("1,2,2020-01-01\n3,4,2020-01-02\n")
    assert rows(Graph(tmp_path / "dates.csv", weighted=False), 1) == [(1, 2, 1.0), (3, 4, 1.0)]


@pytest.mark.parametrize("names", [("id", "source", "end"), ("a", "b", "c"), ("weight", "source", "b")])
def test_ambiguous_column_names_are_refused(names, tmp_path):
    (tmp_path / "named.csv").write_text(f"{','.join(names)}\n1,2,3\n")
    parquet(**dict.fromkeys(names, SOURCES))(tmp_path / "named.parquet")
    np.savez(tmp_path / "named.npz", **dict.fromkeys(names, SOURCES))
    for path in tmp_path.iterdir():
        with pytest.raises(rp.InputError, match=f"the columns '{names[0]}', '{names[1]}', '{names[2]}'"):
            Graph(path)


def test_quoted_fields_hold_delimiters_and_line_ends_for_every_reader(tmp_path):
    rows_ = [f'"Hall, {i}, 9\n{i},5",{i},{i + 1},"a ""b"", 7",{i / 2}' for i in range(60)]
    content = '"Note, long",Source,Target,Label,Weight\n' + "\n".join(rows_) + "\n"
    (tmp_path / "g.csv").write_text(content)
    (tmp_path / "g.csv.gz").write_bytes(gzip.compress(content.encode()))
    expected = [(i, i + 1, i / 2) for i in range(60)]
    for path in tmp_path.iterdir():
        for count in (1, 2, 5, 40):
            assert rows(Graph(path), count) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Label\tFromNodeId\tToNodeId\nx y\t0\t1\nz\t1\t2\n", [(0, 1, 1.0), (1, 2, 1.0)]),
        ("0\t1\n1\t2,0\n", [(0, 1, 1.0), (1, 0, 1.0), (1, 2, 1.0)]),
    ],
)
def test_tabs_separate_columns_below_a_header_and_otherwise_neighbors(text, expected, tmp_path):
    (tmp_path / "g.tsv").write_text(text)
    (tmp_path / "g.tsv.gz").write_bytes(gzip.compress(text.encode()))
    assert rows(Graph(tmp_path / "g.tsv"), 1) == rows(Graph(tmp_path / "g.tsv.gz"), 1) == expected


def test_a_quote_within_a_field_is_an_ordinary_character(tmp_path):
    path = tmp_path / "g.csv"
    path.write_text('source,height 5",target\n0,"x\n1,2",1\n1,6,2\n')
    assert rows(Graph(path), 1) == [(0, 1, 1.0), (1, 2, 1.0)]


@pytest.mark.parametrize("name", ["m.mtx", "m.txt", "m.edges", "m.mtx.gz"])
def test_matrix_market_follows_its_banner(name, tmp_path):
    path = tmp_path / name

    def write(field, symmetry, body):
        content = f"%%MatrixMarket matrix coordinate {field} {symmetry}\n% a comment\n{body}".encode()
        path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        return path

    real = Graph(write("real", "general", "5 5 3\n1 2 0.5\n2 3 1.5\n5 1 2\n"))
    assert rows(real, 2) == [(0, 1, 0.5), (1, 2, 1.5), (4, 0, 2.0)]
    assert (real.vertex_count, real.weighted) == (5, True)
    assert rows(Graph(write("pattern", "symmetric", "5 5 2\n2 1\n5 5\n")), 2) == [(0, 1, 1.0), (1, 0, 1.0), (4, 4, 1.0)]
    assert rows(Graph(write("integer", "skew-symmetric", "2 2 1\n2 1 3\n")), 1) == [(0, 1, -3.0), (1, 0, 3.0)]
    for field, symmetry, body, message in (
        ("complex", "general", "2 2 1\n1 2 3 4\n", "of coordinate complex general: expected"),
        ("pattern", "skew-symmetric", "2 2 1\n2 1\n", "of coordinate pattern skew-symmetric: expected"),
        ("real", "general", "2 3 1\n1 2 3\n", "expected a square matrix"),
        ("real", "general", "2 2 900000000000\n1 2 3\n", "is damaged: 900,000,000,000 entries in"),
        ("real", "general", "2 2 1\n1 9 3\n", "is damaged"),
    ):
        with pytest.raises(rp.InputError, match=message):
            Graph(write(field, symmetry, body)).read_share(0, 1)
    with pytest.raises(rp.InputError, match="has no weights"):
        Graph(write("pattern", "general", "2 2 1\n1 2\n"), weighted=True)


@pytest.mark.parametrize(
    "names",
    ["source,target,weight", ":START_ID,:END_ID,weight:double", ":START_ID(City),:END_ID(City),Weight", "_start,_end,w",
     "startNode,endNode,weight", "from,to,weight", "Source Id,Target Id,weight", "FromNodeId,ToNodeId,weights"],
)  # fmt: skip
def test_column_names_of_other_programs_are_recognized(names, tmp_path):
    (tmp_path / "g.csv").write_text(f"{names}\n3,4,2.5\n")
    assert rows(Graph(tmp_path / "g.csv"), 1) == [(3, 4, 2.5)]


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("gz", ["", ".gz"])
def test_a_bad_line_is_named_with_its_file(name, gz, tmp_path):
    content, message = BAD[name]
    path = tmp_path / (name + gz)
    (packed if gz else text)(content)(path)
    with pytest.raises(rp.InputError) as found:
        Graph(path).read_share(0, 1)
    assert message in str(found.value) and str(found.value).startswith(str(path))


@pytest.mark.parametrize("line", ["3 1.5", "3 1-5 2"])
def test_a_fraction_is_no_vertex_and_its_digits_are_no_weight(line, tmp_path):
    (tmp_path / "edges.txt").write_text(f"0 1 2\n{line}\n")
    with pytest.raises(rp.InputError, match=f"line 2: expected a vertex id, a whole number: '{line}'"):
        Graph(tmp_path / "edges.txt", weighted=True).read_share(0, 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "is empty"),
        ("comments.txt", b"# nothing\n\n", "is empty"),
        ("empty.csv", b"", "is empty"),
        ("cut.txt.gz", gzip.compress(lines(PAIRS).encode(), mtime=0)[:100], "is damaged"),
        ("plain.txt.gz", b"1 2\n", "is damaged"),
        ("one.csv", b"a;\nb;\n", "line 2, column 'a'.*: 'b' is not a whole number: expected vertex ids"),
        ("bad.parquet", b"PAR1", "Parquet"),
        ("bad.npz", b"PK", ".npz"),
        ("bad.npy", b"1 2\n", ".npy"),
    ],
)
def test_an_unreadable_file_is_named(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(rp.InputError, match=message) as found:
        Graph(tmp_path / name).read_share(0, 1)
    assert name in str(found.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Graph("nowhere.txt"), "does not exist"),
        (lambda: Graph("none*.txt"), "no file matches"),
        (lambda: Graph(np.zeros((3, 2))), "whole numbers"),
        (lambda: Graph(np.array([[0, 1], [2, -5]])), "edge 1: vertex id -5"),
        (lambda: Graph(([0], [1, 2])), "1 sources and 2 targets"),
        (lambda: Graph(([0], [1], [np.nan])), "edge 0: the weight is nan"),
        (lambda: Graph(3), "cannot be made of int"),
        (lambda: Graph(PAIRS, weighted=True), "there are no weights"),
        (lambda: Graph(PAIRS, vertex_count=0), "vertex_count=0"),
        (lambda: Graph(PAIRS, duplicates="twice"), "duplicates='twice'"),
        (lambda: Graph((SOURCES, TARGETS, WEIGHTS), duplicates="once"), "the weight to keep"),
        (lambda: Graph(scipy.sparse.eye_array(5), vertex_count=2), "vertex_count=2, but the graph has 5 vertices"),
        (lambda: Graph(PAIRS, vertex_count=5).read_share(0, 1), "but vertex_count=5"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(rp.InputError, match=message):
        make()


def share(comm, graph):
    local = load(comm, graph)
    offsets, columns, weights = local.matrix.entries()
    ends = np.repeat(local.rows, np.diff(offsets.astype(np.int64)))
    edges = list(zip(local.columns[columns].tolist(), ends.tolist(), strict=True))
    assert np.array_equal(local.vertices.ids[: len(local.columns)], local.columns)
    known = set(local.vertices.ids.tolist())
    assert len(known) == len(local.vertices.ids) and known >= set(local.rows.tolist())
    # An owner without outgoing edges of the vertex is correct only if no rank has any.
    owned = local.vertices.ids[local.vertices.is_owned].tolist()
    without = set(local.vertices.ids[len(local.columns) :][local.vertices.is_owned[len(local.columns) :]].tolist())
    return edges, weights, owned, without, local.vertices.total, local.vertices.largest, local.edge_count


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_equal_edges_reach_one_rank_and_every_vertex_has_one_owner(world, workers):
    for graph, expected_edges in (
        (Graph(PAIRS), sorted(set(map(tuple, PAIRS.tolist())))),
        (Graph(PAIRS, duplicates="sum"), sorted(map(tuple, PAIRS.tolist()))),
        (
            Graph(PAIRS, directed=False),
            sorted({(a, b) for a, b in PAIRS.tolist()} | {(b, a) for a, b in PAIRS.tolist()}),
        ),
    ):
        shares = world(workers).run(share, graph)
        assert sorted(edge for edges, *_ in shares for edge in edges) == expected_edges
        vertices = sorted({vertex for edge in expected_edges for vertex in edge})
        assert sorted(vertex for _, _, owned, *_ in shares for vertex in owned) == vertices
        dangling = set(vertices) - {source for source, _ in expected_edges}
        assert set().union(*(without for _, _, _, without, *_ in shares)) == dangling
        assert all(
            tuple(rest) == (len(vertices), vertices[-1], len(expected_edges))
            for *_, rest in [(*share[:4], share[4:]) for share in shares]
        )
        if workers > 1:
            sizes = [len(edges) for edges, *_ in shares]
            assert max(sizes) < 2 * min(sizes), "edges are distributed evenly"


def test_declared_isolated_vertices_exist(world, tmp_path):
    graph = Graph(([0], [2]), vertex_count=7)
    (tmp_path / "lists.txt").write_text("0\t2\n1\t\n")
    lone = Edges(np.array([0]), np.array([2]), lone=np.array([9, 4]))
    for workers in (1, 3):
        shares = world(workers).run(share, Graph(lone))
        assert sorted(vertex for _, _, owned, *_ in shares for vertex in owned) == [0, 2, 4, 9]
        shares = world(workers).run(share, graph)
        assert sorted(vertex for _, _, owned, *_ in shares for vertex in owned) == list(range(7))
        shares = world(workers).run(share, Graph(tmp_path / "lists.txt"))
        assert sorted(vertex for _, _, owned, *_ in shares for vertex in owned) == [0, 1, 2]


def test_an_error_of_one_worker_is_raised_on_all(world, tmp_path):
    (tmp_path / "bad.txt").write_text(lines(PAIRS) + "oops\n")
    with pytest.raises(rp.InputError, match=f"bad.txt, line {len(PAIRS) + 1}"):
        world(3).run(share, Graph(tmp_path / "bad.txt"))


def test_inner_nuls_of_names_are_kept():
    names = np.array(["a", "a\0b", "a\0c"])

    assert rp.PageRank().fit((names, np.roll(names, 1))).vertices_.tolist() == names.tolist()
