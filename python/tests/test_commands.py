"""Common behavior of all commands: no overwriting by default, and one-sentence errors."""

from __future__ import annotations

import gzip
import os
import re
from functools import partial
from pathlib import Path

import click
import pytest
from ripieno.cli import COMMANDS, cli, main
from varied import exhaustively

pytestmark = pytest.mark.usefixtures("without_charts")

#: Every option that names a result, with nonexistent input, which is detected later.
RESULTS = {
    "bench --json": ["bench", "barrier", "--json", "result.json"],
    "bench strategies --json": ["bench", "strategies", "--json", "result.json"],
    "bench strategies --out": ["bench", "strategies", "--out", "result.html"],
    "bench threads --json": ["bench", "threads", "--json", "result.json"],
    "bench threads --out": ["bench", "threads", "--out", "result.html"],
    "bench --plot": ["bench", "barrier", "--plot", "result.html"],
    "bfs --out": ["bfs", "none.txt", "--source", "0", "--out", "result.csv"],
    "bfs --trace": ["bfs", "none.txt", "--source", "0", "--trace", "result.json"],
    "components --out": ["components", "none.txt", "--out", "result.csv"],
    "components --trace": ["components", "none.txt", "--trace", "result.json"],
    "als --trace": ["als", "none.parquet", "--trace", "result.json"],
    "demo --trace": ["demo", "--trace", "result.json"],
    "diameter --out": ["diameter", "none.txt", "--out", "result.csv"],
    "diameter --trace": ["diameter", "none.txt", "--trace", "result.json"],
    "features --out": ["features", "none.png", "--out", "result.npy"],
    "features index": ["features", "none.png", "--out", "other.npy"],
    "kmeans --trace": ["kmeans", "none.npy", "--clusters", "2", "--trace", "result.json"],
    "pca --trace": ["pca", "none.npy", "--trace", "result.json"],
    "ridge --trace": ["ridge", "none.csv", "--target", "y", "--trace", "result.json"],
    "logistic --trace": ["logistic", "none.svm", "--trace", "result.json"],
    "packets --json": ["packets", "--json", "result.json"],
    "packets --plot": ["packets", "--plot", "result.svg"],
    "pagerank --out": ["pagerank", "none.txt", "--out", "result.csv"],
    "pagerank --report": ["pagerank", "none.txt", "--report", "result.json"],
    "pagerank --trace": ["pagerank", "none.txt", "--trace", "result.json"],
    "predict --out": ["predict", "none", "none.npy", "--out", "result.npy"],
    "run --trace": ["run", "--trace", "result.json", "script.py"],
    "trace --out": ["trace", "flights", "--out", "result.json"],
    "aggregate --out": ["aggregate", "none.csv", "--by", "key", "--out", "result.csv"],
    "spectral-clustering --out": ["spectral-clustering", "none.txt", "-k", "2", "--out", "result.csv"],
    "spectral-clustering --trace": ["spectral-clustering", "none.txt", "-k", "2", "--trace", "result.json"],
    "wordcount --out": ["wordcount", "none.txt", "--out", "result.csv"],
    "wordcount --trace": ["wordcount", "none.txt", "--trace", "result.json"],
}
FOLDERS = {
    "bench threads": ["bench", "threads", "--draw", "result"],
    "als": ["als", "none.parquet", "--out", "result"],
    "demo": ["demo", "--out", "result"],
    "kmeans": ["kmeans", "none.npy", "--clusters", "2", "--out", "result"],
    "logistic": ["logistic", "none.svm", "--out", "result"],
    "pca": ["pca", "none.npy", "--out", "result"],
    "ridge": ["ridge", "none.csv", "--target", "y", "--out", "result"],
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
def test_a_result_replaces_a_file_only_if_that_is_requested(folder, words, capfd):
    name = "other.patches.csv" if "other.npy" in words else next(word for word in words if word.startswith("result"))
    (folder / name).write_text("mine")

    assert main(words) == 2

    output = capfd.readouterr()
    assert output.err == f"ripieno: {name} exists: choose another name, or pass --overwrite\n" and output.out == ""
    assert (folder / name).read_text() == "mine"
    if words[0] not in ("bench", "demo", "packets", "run"):
        # With the option, the next error is reported.
        assert main([*words, "--overwrite"]) == 2
        assert "--overwrite" not in capfd.readouterr().err
        # The trace of a failed job is written up to the failure.
        assert (folder / name).read_text() == "mine" or "--trace" in words


@pytest.mark.parametrize("words", FOLDERS.values(), ids=FOLDERS)
def test_a_result_replaces_a_folder_only_if_that_is_requested(folder, words, capfd):
    (folder / "result").mkdir()
    (folder / "result" / "model.json").write_text("mine")

    assert main(words) == 2

    assert "result exists and is not empty: choose another folder, or pass --overwrite" in capfd.readouterr().err
    assert names(folder) == ["result/model.json", "script.py"]


@pytest.mark.parametrize("words", [words for words in RESULTS.values() if words[0] != "features"], ids=" ".join)
def test_a_device_is_never_replaced(folder, words, capfd):
    at = next(at for at, word in enumerate(words) if word.startswith("result"))
    pipe = words[at].replace("result", "pipe")
    os.mkfifo(folder / pipe)

    assert main([*words[:at], pipe, *words[at + 1 :], *["--overwrite"] * (words[0] != "run")]) == 2

    assert f"{pipe} is a pipe or a device, not a file: choose another name" in capfd.readouterr().err
    assert (folder / pipe).is_fifo()


@pytest.mark.parametrize("words", RESULTS.values(), ids=RESULTS)
def test_a_name_of_another_format_is_refused_before_the_work(folder, words, capfd):
    named = [
        word.replace(Path(word).suffix, ".xlsx") if word.startswith(("result", "other")) else word for word in words
    ]

    assert main(named) == 2

    assert ".xlsx: " in (output := capfd.readouterr().err) and "expected" in output
    assert names(folder) == ["script.py"]


def test_an_input_is_never_replaced(folder, capfd):
    (folder / "edges.csv").write_text("1,2\n")

    for words in (["pagerank", "edges.csv"], ["wordcount", "edges.csv"], ["components", "./edges.csv"]):
        assert main([*words, "--overwrite", "--out", "edges.csv"]) == 2
        assert "edges.csv is an input, too: choose another name" in capfd.readouterr().err
    assert (folder / "edges.csv").read_text() == "1,2\n"


def test_a_result_is_replaced_if_that_is_requested(folder, capfd):
    (folder / "edges.txt").write_text("1 2\n")
    (folder / "ranks.csv").write_text("mine")

    assert main(["pagerank", "edges.txt", "-q", "--overwrite", "--out", "ranks.csv"]) == 0
    assert (folder / "ranks.csv").read_text().startswith('"vertex","rank"\n')


#: Commands that read files, with their other arguments; INPUT stands for the file.
READING = {
    "aggregate": ["aggregate", "INPUT", "--by", "0"],
    "als": ["als", "INPUT"],
    "bfs": ["bfs", "INPUT", "--source", "1"],
    "clustering": ["clustering", "INPUT"],
    "communities": ["communities", "INPUT"],
    "components": ["components", "INPUT"],
    "diameter": ["diameter", "INPUT"],
    "features": ["features", "INPUT", "--out", "vectors.npy"],
    "grep": ["grep", "pattern", "INPUT"],
    "kmeans": ["kmeans", "INPUT", "--clusters", "2"],
    "kubernetes": ["kubernetes", "INPUT", "--workers", "2", "--image", "image"],
    "logistic": ["logistic", "INPUT"],
    "pagerank": ["pagerank", "INPUT"],
    "pca": ["pca", "INPUT"],
    "ridge": ["ridge", "INPUT", "--target", "y"],
    "run": ["run", "INPUT"],
    "shortest-paths": ["shortest-paths", "INPUT", "--source", "1"],
    "spectral-clustering": ["spectral-clustering", "INPUT", "--clusters", "2"],
    "split": ["split", "INPUT", "--partitions", "2", "--out", "parts"],
    "split --plan": ["split", "--plan", "INPUT"],
    "trace": ["trace", "INPUT"],
    "wordcount": ["wordcount", "INPUT"],
}
NUMBERED = (
    "aggregate",
    "als",
    "bfs",
    "clustering",
    "communities",
    "components",
    "diameter",
    "grep",
    "kmeans",
    "logistic",
    "pagerank",
    "pca",
    "ridge",
    "run",
    "shortest-paths",
    "spectral-clustering",
    "wordcount",
)
WITHOUT_WORDS = [name for name in READING if " " not in name] + ["explain"]


@pytest.mark.parametrize(
    "given", ["missing.txt", "damaged.gz", *exhaustively("missing.npy", "emptyfolder", "pipe.txt", "/dev/null")]
)
@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_input_that_cannot_be_read_is_reported_and_leaves_nothing(folder, words, given, capfd):
    (folder / "emptyfolder").mkdir()
    os.mkfifo(folder / "pipe.txt")
    # A truncated file, which fails during decompression.
    (folder / "damaged.gz").write_bytes(gzip.compress(bytes(range(256)) * 400)[:-20])
    before = names(folder)
    if words[0] == "run" and given == "damaged.gz":
        pytest.skip("Python reports errors in scripts itself")

    code = main([given if word == "INPUT" else word for word in words])

    output = capfd.readouterr().err
    assert code == 2, output
    assert Path(given).name in output and "Traceback" not in output and len(output.splitlines()) <= 4
    assert names(folder) == before and not (folder / "parts").exists()


def test_a_file_without_ratings_is_named(folder, capfd):
    (folder / "empty.csv").write_text("user,item,rating\n")

    assert main(["als", "empty.csv"]) == 2
    assert "empty.csv: there are no ratings" in capfd.readouterr().err


@pytest.mark.parametrize("name", WITHOUT_WORDS)
def test_a_command_without_arguments_reports_the_missing_ones(name, capfd):
    assert main([name]) == 2
    assert "Missing" in (output := capfd.readouterr().err) or "Usage" in output


@pytest.mark.parametrize("value", ["0", "many", *exhaustively("-1", "1.5", "")])
@pytest.mark.parametrize("name", NUMBERED)
def test_invalid_number_of_workers_is_reported(folder, name, value, capfd):
    (folder / "a.txt").write_text("1 2\n")
    words = ["a.txt" if word == "INPUT" else word for word in READING[name]]

    assert main([words[0], "--workers", value, *words[1:]]) == 2
    assert "Invalid value for" in capfd.readouterr().err
    assert names(folder) == ["a.txt", "script.py"]


@pytest.mark.parametrize("out", ["nowhere/x.csv", "flights", "script.py/x.csv", "x.doc"])
@pytest.mark.parametrize(
    "name", ["aggregate", "bfs", "components", "diameter", "pagerank", "spectral-clustering", "wordcount"]
)
def test_a_path_that_cannot_hold_a_result_is_reported_before_any_work(folder, name, out, capfd):
    assert main([*READING[name], "--out", out]) == 2

    output = capfd.readouterr().err
    assert output.startswith("ripieno: ") and "INPUT" not in output and len(output.splitlines()) == 1
    assert names(folder) == ["script.py"]


def test_former_names_of_options_work_and_are_hidden(tmp_path, capsys):
    edges = tmp_path / "edges.txt"
    edges.write_text("0 1\n1 2\n")
    words = ["--tolerance", "0.5", "--max-iterations", "7", "--vertices", "3", "-w", "1", "-q"]
    assert main(["pagerank", str(edges), *words, "--out", str(tmp_path / "ranks.csv")]) == 0
    capsys.readouterr()
    assert main(["pagerank", "--help"]) == 0
    shown = capsys.readouterr().out
    assert {"--tol", "--max-iter", "--vertex-count", "-n,"} <= set(shown.split())
    assert not {"--tolerance", "--max-iterations", "--vertices", "-w,"} & set(shown.split())


#: Former names of options, and names of other programs: only hidden aliases, if they exist.
FORMER = {
    *(
        "--dim",
        "--eps",
        "--iterations",
        "--max-iterations",
        "--n-clusters",
        "--n-components",
        "--starts",
        "--threshold",
        "--tolerance",
    ),
    *("--block", "--force", "--jobs", "--n-jobs", "--output", "--processes", "--silent", "--vertices", "--write"),
}
SHORT = {"-o": "--out", "-n": "--workers", "-k": "--clusters", "-q": "--quiet", "-v": "--verbose", "-m": "--module"}
#: Options with the meaning that they have in programs of the same name, and a number of repetitions, not a limit.
OTHERS = {("grep", "-n"), ("grep", "-v"), ("grep", "-m"), ("bench threads", "--iterations")}
#: The options of each command that runs an estimator.
OF_FITS = {"--workers", "--threads", "--engine", "--on-failure", "--out", "--overwrite", "--quiet", "--verbose"}


def all_commands():
    """Yield the name and the options of every command and subcommand."""
    context = click.Context(cli)
    pending = [(name, cli.get_command(context, name)) for name in COMMANDS]
    while pending:
        name, command = pending.pop()
        below = dict(getattr(command, "parts", {})) | getattr(command, "commands", {})
        pending += [(f"{name} {word}", part) for word, part in below.items()]
        yield name, [each for each in command.params if isinstance(each, click.Option)]


def test_every_option_has_one_name_in_all_commands():
    for name, options in all_commands():
        shown = {word: option for option in options for word in option.opts}
        former = {word for word in FORMER & shown.keys() if (name, word) not in OTHERS}
        assert not former, f"ripieno {name} shows {former}"
        for short, long in SHORT.items():
            if short in shown and (name, short) not in OTHERS:
                names = {f"--{shown[short].name}", *shown[short].opts}
                assert long in names, f"ripieno {name} {short}"
            if long in shown and (name, short) not in OTHERS:
                assert short in shown[long].opts, f"ripieno {name} {long} has no {short}"
        if {"--engine", "--out"} <= shown.keys() and name != "aggregate":
            assert shown.keys() >= OF_FITS, f"ripieno {name} lacks {OF_FITS - shown.keys()}"
        if "--quiet" in shown:
            assert "--verbose" in shown, name


#: Options for rates and durations.
UNITS = ("--alpha", "--core", "--gamma", "--rate", "--uplink")
#: A command with options for rates and durations, up to these options.
WITH_UNITS = {
    "bench": ["bench", "allreduce", "--sizes", "8B"],
    "bench model": ["bench", "model"],
    "bench strategies": ["bench", "strategies"],
    "explain COLLECTIVE": ["explain", "allreduce", "--nodes", "4"],
    "explain sparse": [
        *("explain", "sparse", "--ranks", "8", "--features", "1e6", "--density", "0.1"),
        *("--exponent", "1", "--min-packet", "5MB"),
    ],
    "lab up": ["lab", "up", "--name", "never"],
    "simulate": ["simulate", "allreduce", "--nodes", "4"],
}


def test_rates_and_durations_need_a_unit_in_every_command(capsys):
    for name, options in all_commands():
        for option in options:
            if option.metavar in ("RATE", "TIME"):
                assert main([*WITH_UNITS[name], option.opts[-1], "10"]) == 2, (name, option.opts)
                text = " ".join(capsys.readouterr().err.split())
                assert re.search(r"10'?: expected .*such as (100mbit|5us)", text), (name, option.opts, text)
            # The --alpha of a regression and of ALS is a weight.
            if option.opts[-1] in UNITS and name not in ("ridge", "als"):
                assert option.metavar in ("RATE", "TIME"), (name, option.opts)


def test_numbers_of_seconds_may_have_a_unit_in_every_command():
    for name, options in all_commands():
        for option in options:
            is_duration = re.search(r"\bseconds\b|for this time", (option.help or "").lower())
            if is_duration and option.opts[-1] != "--rendezvous-timeout":
                convert = partial(option.type.convert, param=option, ctx=None)
                assert [convert("1500ms"), convert("2min"), convert("3")] == [1.5, 120.0, 3.0], (name, option.opts)
                with pytest.raises(click.BadParameter, match="expected seconds, such as 30, 500ms or 2min"):
                    convert("soon")


def test_split_prints_only_the_path_if_it_is_quiet_and_replaces_its_partitions(folder, capsys):
    (folder / "a.txt").write_text("1\n2\n")
    words = ["split", "a.txt", "--partitions", "2", "--out", "parts", "-q"]
    assert main(words) == 0
    assert capsys.readouterr().out == "parts/partitions.json\n"
    assert main([*words, "--overwrite"]) == 0


def test_errors_keep_the_names_of_folders_that_resemble_arguments(tmp_path, capsys):
    path = tmp_path / "target=3" / "none.csv"
    assert main(["ridge", str(path), "--target", "y", "--out", str(tmp_path / "result")]) != 0
    assert f"{path} does not exist" in "".join(capsys.readouterr().err.splitlines())


def test_an_unknown_command_names_the_most_similar_one(capsys):
    assert main(["kmean", "rows.npy"]) == 2
    assert "No such command 'kmean'. Did you mean 'kmeans'?" in capsys.readouterr().err
