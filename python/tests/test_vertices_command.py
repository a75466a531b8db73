"""``ripieno components``, ``bfs`` and other commands on vertices: the printed line and the written file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from ripieno.cli import main

pytestmark = pytest.mark.usefixtures("without_charts")

EDGES = "# a graph\n3 5\n5 8\n8 13\n20 21 0.5\n21 20 0.5\n"


@pytest.fixture
def edges(tmp_path) -> Path:
    path = tmp_path / "edges.txt"
    path.write_text(EDGES)
    return path


def test_components_are_written_to_a_table(edges, tmp_path, capsys):
    out = tmp_path / "components.parquet"
    assert main(["components", str(edges), "--workers", "2", "--out", str(out)]) == 0

    assert capsys.readouterr().out == "6 vertices, 2 components; the largest has 4 vertices\n"
    table = pq.read_table(out).to_pydict()
    assert table == {"vertex": [3, 5, 8, 13, 20, 21], "component": [3, 3, 3, 3, 20, 20]}


def test_partitions_of_edges_are_input(edges, tmp_path, capsys):
    parts = rp.input.divide(edges, tmp_path / "parts", partitions=2)
    out = tmp_path / "components.csv"
    assert main(["components", str(edges)]) == main(["components", str(parts), "--out", str(out)]) == 0
    printed, of_parts = capsys.readouterr().out.splitlines()
    assert printed == of_parts and out.exists()


def test_distances_are_written_for_directed_or_undirected_edges(edges, tmp_path, capsys):
    directed, undirected = tmp_path / "directed.csv", tmp_path / "undirected.csv"
    assert main(["bfs", str(edges), "--source", "5", "--out", str(directed)]) == 0
    assert main(["bfs", str(edges), "--source", "5", "--undirected", "-n", "2", "-o", str(undirected)]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "3 of 6 vertices are reached, in at most 2 steps",
        "4 of 6 vertices are reached, in at most 2 steps",
    ]
    table = pyarrow.csv.read_csv(directed).to_pydict()
    assert table["vertex"] == [3, 5, 8, 13, 20, 21]
    assert table["distance"] == [-1, 0, 1, 2, -1, -1]
    assert table["parent"] == [-1, -1, 5, 8, -1, -1]
    assert pyarrow.csv.read_csv(undirected).to_pydict()["distance"] == [1, 0, 1, 2, -1, -1]


def test_weighted_distances_are_written(tmp_path, capsys):
    edges, out = tmp_path / "edges.csv", tmp_path / "distances.csv"
    edges.write_text("source,target,weight\n3,5,0.5\n5,8,2\n3,8,4\n20,21,1\n")
    for words, distances in [([], [0, 0.5, 2.5, np.inf, np.inf]), (["--unweighted"], [0, 1, 1, np.inf, np.inf])]:
        command = ["shortest-paths", str(edges), "--source", "3", *words, "-n", "2", "-o", str(out), "--overwrite"]
        assert main(command) == 0
        assert capsys.readouterr().out == f"3 of 5 vertices are reached, at distances up to {distances[2]:g}\n"
        assert pyarrow.csv.read_csv(out).to_pydict() == {
            "vertex": [3, 5, 8, 20, 21],
            "distance": distances,
            "parent": [-1, 3, 3 if words else 5, -1, -1],
        }


@pytest.mark.parametrize("end", ["csv", "parquet", "npz"])
def test_names_of_vertices_are_written(end, tmp_path, capsys):
    edges, out = tmp_path / "edges.csv", tmp_path / f"distances.{end}"
    edges.write_text("source,target\nann,bob\nbob,7\ndora,dora\n")
    assert main(["bfs", str(edges), "--source", "ann", "--out", str(out)]) == 0
    assert capsys.readouterr().out == "3 of 4 vertices are reached, in at most 2 steps\n"

    names, parents = ["7", "ann", "bob", "dora"], ["bob", None, "ann", None]
    if end == "npz":
        table = {name: column.tolist() for name, column in np.load(out).items()}
        parents = [parent or "" for parent in parents]
    else:
        table = (pq.read_table(out) if end == "parquet" else pyarrow.csv.read_csv(
            out, convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True)
        )).to_pydict()  # fmt: skip
    assert table == {"vertex": names, "distance": [2, 0, 1, -1], "parent": parents}


def test_communities_and_coefficients_are_written(tmp_path, capsys):
    edges, out = tmp_path / "edges.txt", tmp_path / "out.csv"
    edges.write_text("2 3\n3 4\n4 2\n4 7\n7 8\n8 9\n9 7\n")
    assert main(["communities", str(edges), "--undirected", "--out", str(out)]) == 0
    assert capsys.readouterr().out == "6 vertices, 2 communities after 4 iterations; the largest has 3 vertices\n"
    table = pyarrow.csv.read_csv(out).to_pydict()
    assert table == {"vertex": [2, 3, 4, 7, 8, 9], "community": [2, 2, 2, 4, 4, 4]}

    assert main(["clustering", str(edges), "--out", str(out), "--overwrite"]) == 0
    assert capsys.readouterr().out == "6 vertices, 2 triangles; the mean coefficient is 0.3889\n"
    assert pyarrow.csv.read_csv(out).to_pydict() == {
        "vertex": [2, 3, 4, 7, 8, 9],
        "coefficient": [0.5, 0.5, 1 / 6, 1 / 6, 0.5, 0.5],
        "triangles": [1] * 6,
        "degree": [2, 2, 3, 3, 2, 2],
    }


def test_the_diameter_is_printed_and_its_pairs_are_written(edges, tmp_path, capsys):
    out = tmp_path / "pairs.npz"
    assert (
        main(["diameter", str(edges), "--undirected", "--n-strings", "512", "--share", "0.8", "--out", str(out)]) == 0
    )

    assert capsys.readouterr().out.startswith("effective diameter ")
    with np.load(out) as columns:
        assert columns["steps"].tolist() == [0, 1, 2, 3]
        # 6 vertices, and 16 + 4 pairs in all.
        assert abs(columns["pairs"][-1] - 20) < 2


def test_clusters_are_written_for_weighted_or_unweighted_edges(tmp_path, capsys):
    path, out = tmp_path / "square.csv", tmp_path / "clusters.csv"
    path.write_text("source,target,weight\n0,1,9\n1,2,1\n2,3,9\n3,0,1\n0,2,1\n")
    command = ["spectral-clustering", str(path), "--clusters", "2", "--out", str(out)]
    assert main(command) == 0
    assert pyarrow.csv.read_csv(out).to_pydict() == {"vertex": [0, 1, 2, 3], "cluster": [0, 0, 1, 1]}
    assert capsys.readouterr().out == "4 vertices in 2 clusters; the largest has 2 vertices\n"

    assert main([*command, "--unweighted", "--overwrite"]) == 0
    assert pyarrow.csv.read_csv(out).to_pydict()["cluster"] != [0, 0, 1, 1]


@pytest.mark.parametrize(
    "words",
    [
        ["components"],
        ["bfs", "--source", "5"],
        ["shortest-paths", "--source", "5"],
        ["communities"],
        ["clustering"],
        ["diameter"],
        ["pagerank", "--top", "0"],
        ["spectral-clustering", "-k", "2"],
    ],
    ids=" ".join,
)
def test_a_fit_resumes_from_a_folder(edges, tmp_path, capsys, words):
    edges.write_text("3 5\n5 8\n8 13\n20 21\n21 20\n")
    command = [*words, str(edges), "--checkpoint", str(tmp_path / "kept"), "--overwrite", "--out"]
    events = []
    for turn, workers in enumerate("12"):
        assert main([*command, str(tmp_path / f"{turn}.csv"), "-n", workers]) == 0
        events.append("it resumed after step" in capsys.readouterr().err)

    assert events == [False, True]
    first, resumed = (pyarrow.csv.read_csv(tmp_path / f"{turn}.csv").to_pydict() for turn in range(2))
    assert resumed.keys() == first.keys()
    for name in first:
        np.testing.assert_allclose(resumed[name], first[name], rtol=1e-12)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["components", "EDGES", "--out", "x.json"], "unknown kind of file"),
        (["bfs", "EDGES", "--source", "4"], "--source 4: the graph has no such vertex"),
        (["bfs", "EDGES", "--source", "ann"], "--source ann: expected the id of a vertex, a whole number >= 0"),
        (["diameter", "EDGES", "--n-strings", "5"], "--n-strings 5: expected an even number"),
        (["components", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_errors_are_reported_in_a_sentence(edges, capsys, words, says):
    assert main([str(edges) if word == "EDGES" else word for word in words]) == 2

    output = capsys.readouterr().err
    assert output.startswith("ripieno: ") and says in output


def test_ranks_of_a_launcher_run_the_command_together(edges, tmp_path, capfd):
    from ripieno.cli.run import run_command

    out = tmp_path / "components.csv"
    words = ["-n", "2", "-m", "ripieno.cli", "components", str(edges), "--out", str(out)]
    with pytest.raises(SystemExit) as end:
        run_command(words)
    assert not end.value.code
    assert "6 vertices, 2 components" in capfd.readouterr().out
    assert pyarrow.csv.read_csv(out).num_rows == 6
