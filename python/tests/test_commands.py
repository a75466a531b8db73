"""What all commands do alike: results replace nothing unless that is asked for, and what is wrong is a sentence."""

from __future__ import annotations

import os

import pytest
from ripieno.cli import main

#: Each option that names a result, of each command, with input that is not there: that is found out later.
RESULTS = {
    "bench --json": ["bench", "barrier", "--json", "result.json"],
    "bench --plot": ["bench", "barrier", "--plot", "result.html"],
    "bfs --out": ["bfs", "none.txt", "--source", "0", "--out", "result.csv"],
    "bfs --trace": ["bfs", "none.txt", "--source", "0", "--trace", "result.json"],
    "components --out": ["components", "none.txt", "--out", "result.csv"],
    "components --trace": ["components", "none.txt", "--trace", "result.json"],
    "demo --trace": ["demo", "--trace", "result.json"],
    "diameter --out": ["diameter", "none.txt", "--out", "result.csv"],
    "diameter --trace": ["diameter", "none.txt", "--trace", "result.json"],
    "features --out": ["features", "none.png", "--out", "result.npy"],
    "features index": ["features", "none.png", "--out", "other.npy"],
    "kmeans --trace": ["kmeans", "none.npy", "--clusters", "2", "--trace", "result.json"],
    "packets --json": ["packets", "--json", "result.json"],
    "packets --plot": ["packets", "--plot", "result.svg"],
    "pagerank --out": ["pagerank", "none.txt", "--out", "result.csv"],
    "pagerank --report": ["pagerank", "none.txt", "--report", "result.json"],
    "pagerank --trace": ["pagerank", "none.txt", "--trace", "result.json"],
    "run --trace": ["run", "--trace", "result.json", "script.py"],
    "trace --out": ["trace", "flights", "--out", "result.json"],
    "wordcount --out": ["wordcount", "none.txt", "--out", "result.csv"],
    "wordcount --trace": ["wordcount", "none.txt", "--trace", "result.json"],
}
FOLDERS = {
    "demo": ["demo", "--out", "result"],
    "kmeans": ["kmeans", "none.npy", "--clusters", "2", "--out", "result"],
    "split": ["split", "none.txt", "--partitions", "2", "--out", "result"],
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("raise SystemExit('the work has begun')\n")
    (tmp_path / "flights").mkdir()
    return tmp_path


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("words", RESULTS.values(), ids=RESULTS)
def test_a_result_replaces_a_file_only_if_that_is_asked_for(folder, words, capfd):
    name = "other.patches.csv" if "other.npy" in words else next(word for word in words if word.startswith("result"))
    (folder / name).write_text("mine")

    assert main(words) == 2

    told = capfd.readouterr()
    assert told.err == f"ripieno: {name} exists: choose another name, or --overwrite it\n" and told.out == ""
    assert (folder / name).read_text() == "mine"
    if words[0] not in ("bench", "demo", "packets", "run"):
        # With the option the next thing that is wrong is told.
        assert main([*words, "--overwrite"]) == 2
        assert "--overwrite" not in capfd.readouterr().err
        # What a job that fails has done until then is drawn all the same.
        assert (folder / name).read_text() == "mine" or "--trace" in words


@pytest.mark.parametrize("words", FOLDERS.values(), ids=FOLDERS)
def test_a_result_replaces_a_folder_only_if_that_is_asked_for(folder, words, capfd):
    (folder / "result").mkdir()
    (folder / "result" / "model.json").write_text("mine")

    assert main(words) == 2

    assert "result exists and is not empty: choose another folder, or --overwrite it" in capfd.readouterr().err
    assert names(folder) == ["result/model.json", "script.py"]


@pytest.mark.parametrize("words", [words for words in RESULTS.values() if words[0] != "features"], ids=" ".join)
def test_a_device_is_never_replaced(folder, words, capfd):
    os.mkfifo(folder / "pipe.csv")
    at = next(at for at, word in enumerate(words) if word.startswith("result"))

    assert main([*words[:at], "pipe.csv", *words[at + 1 :], *["--overwrite"] * (words[0] != "run")]) == 2

    assert "pipe.csv is a pipe or a device, not a file: choose another name" in capfd.readouterr().err
    assert (folder / "pipe.csv").is_fifo()


def test_an_input_is_never_replaced(folder, capfd):
    (folder / "edges.csv").write_text("1,2\n")

    for words in (["pagerank", "edges.csv"], ["wordcount", "edges.csv"], ["components", "./edges.csv"]):
        assert main([*words, "--overwrite", "--out", "edges.csv"]) == 2
        assert "edges.csv is an input, too: choose another name" in capfd.readouterr().err
    assert (folder / "edges.csv").read_text() == "1,2\n"


def test_a_result_is_replaced_if_that_is_asked_for(folder, capfd):
    (folder / "edges.txt").write_text("1 2\n")
    (folder / "ranks.csv").write_text("mine")

    assert main(["pagerank", "edges.txt", "-q", "--overwrite", "--out", "ranks.csv"]) == 0
    assert (folder / "ranks.csv").read_text().startswith('"vertex","rank"\n')
