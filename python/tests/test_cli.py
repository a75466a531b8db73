"""Commands write all or nothing, exit with 0, 1, 2 or 130, and report errors in one sentence."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ripieno.cli import cli, main
from varied import exhaustively

pytestmark = pytest.mark.usefixtures("without_charts")

COMMAND = [sys.executable, "-m", "ripieno.cli"]


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.npy"
    np.save(path, np.random.default_rng(0).random((200, 8), np.float32))
    return path


def names_in(folder):
    """Return the names in a folder, including hidden ones."""
    return sorted(entry.name for entry in folder.iterdir())


def used_s(pid):
    """Return the processor time of a process, also of one that has ended and was not waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_clustering_writes_centroids_labels_model_and_report(vectors, tmp_path):
    out = tmp_path / "result"

    done = subprocess.run(
        [*COMMAND, "kmeans", vectors, "--clusters", "5", "--workers", "2", "--out", out], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(out / "report.html")
    assert "iteration 1, inertia" in done.stderr and "200 rows in 5 clusters" in done.stderr
    assert names_in(out) == ["centroids.npy", "labels.npy", "model.json", "report.html"]
    centroids, labels = np.load(out / "centroids.npy"), np.load(out / "labels.npy")
    assert centroids.shape == (5, 8) and labels.shape == (200,) and labels.dtype == np.int32
    model = json.loads((out / "model.json").read_text())
    distances = np.square(np.load(vectors) - centroids[labels]).sum()
    assert model["inertia"] == pytest.approx(distances, rel=1e-5)
    assert model["cluster_sizes"] == np.bincount(labels, minlength=5).tolist()
    assert model["parameters"]["workers"] == 2
    assert names_in(tmp_path) == ["result", "vectors.npy"]


def test_the_same_command_gives_the_same_result(vectors, tmp_path):
    for name in ("a", "b"):
        assert main(["kmeans", str(vectors), "-k", "5", "-q", "-o", str(tmp_path / name)]) == 0

    for file in ("centroids.npy", "labels.npy"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_fit_starts_from_the_centroids_of_an_earlier_result(vectors, tmp_path):
    command = ["kmeans", str(vectors), "-k", "5", "-q"]
    assert main([*command, "-o", str(tmp_path / "a")]) == 0
    assert main([*command, "--start", str(tmp_path / "a" / "centroids.npy"), "-o", str(tmp_path / "b")]) == 0

    again = json.loads((tmp_path / "b" / "model.json").read_text())
    assert again["parameters"]["init"] == "centroids of a file"
    assert again["iteration_count"] <= 2
    np.testing.assert_array_equal(np.load(tmp_path / "a" / "labels.npy"), np.load(tmp_path / "b" / "labels.npy"))
    assert main([*command, "--start", str(tmp_path / "none.npy"), "-o", str(tmp_path / "c")]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{v}", "-k", "201"], "n_samples=200 should be >= --clusters 201"),
        (["{v}", "-k", "0"], "--clusters"),
        (["{v}"], "--clusters"),
        (["missing.npy", "-k", "2"], "missing.npy does not exist"),
        (["*.npz", "-k", "2"], "no file matches"),
        (["{v}", "-k", "2", "--weights", "none.txt"], "none.txt does not exist"),
        (["{v}", "-k", "2", "--patches", "none.csv"], "none.csv does not exist"),
        (["{v}", "-k", "2", "--init", "best"], "--init"),
    ],
)
def test_wrong_input_ends_with_2_and_writes_nothing(vectors, tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)

    code = main(["kmeans", *(each.format(v=vectors) for each in arguments), "--out", "result"])

    assert code == 2
    assert message in capsys.readouterr().err
    assert names_in(tmp_path) == ["vectors.npy"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p 0 0 1 2\np 0 1 1\n", "rows.txt, line 2: 4 values, expected 5"),
        ("p 0 0 1 2\np 0 x 1 2\n", "rows.txt, line 2, column 'col' (3 of 5): 'x' is not a whole number"),
    ],
)
def test_lines_of_patches_that_cannot_be_read_are_reported_by_number(tmp_path, capsys, text, message):
    (tmp_path / "rows.txt").write_text(text)

    assert main(["kmeans", str(tmp_path / "rows.txt"), "-k", "1", "-q", "-o", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert names_in(tmp_path) == ["rows.txt"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "weights.txt does not hold weights: it is empty"), ("1\nnan\n" + "1\n" * 198, "contains NaN")],
)
def test_invalid_weights_are_reported(vectors, tmp_path, capsys, text, message):
    (tmp_path / "weights.txt").write_text(text)
    weighted = ["kmeans", str(vectors), "-k", "2", "-q", "--weights", str(tmp_path / "weights.txt")]

    assert main([*weighted, "-o", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


def test_values_that_are_not_finite_are_reported_with_file_row_and_column(tmp_path, capfd):
    rows = np.ones((50, 3))
    rows[30, 2] = np.nan
    np.save(tmp_path / "bad.npy", rows)

    assert main(["kmeans", str(tmp_path / "bad.npy"), "-k", "2", "-n", "2", "-o", str(tmp_path / "out")]) == 2
    output = capfd.readouterr().err
    assert "bad.npy, row 30, column 2: NaN where a finite number is expected; leave such rows out" in output
    assert "Traceback" not in output
    assert names_in(tmp_path) == ["bad.npy"]


def test_warnings_are_printed_in_one_line(tmp_path):
    np.save(tmp_path / "equal.npy", np.ones((9, 2)))

    done = subprocess.run(
        [*COMMAND, "kmeans", "equal.npy", "-k", "2", "-q"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stderr.splitlines()[0].startswith("ripieno: Number of distinct clusters (1) found smaller than")
    assert ".py" not in done.stderr


def test_a_result_is_only_overwritten_on_request(vectors, tmp_path, capsys):
    out, command = tmp_path / "result", ["kmeans", str(vectors), "-q", "-o", str(tmp_path / "result"), "-k"]
    assert main([*command, "2"]) == 0

    assert main([*command, "3"]) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    assert len(np.load(out / "centroids.npy")) == 2
    assert main([*command, "3", "--overwrite"]) == 0
    assert len(np.load(out / "centroids.npy")) == 3
    assert names_in(tmp_path) == ["result", "vectors.npy"]
    (tmp_path / "ordinary").mkdir()
    assert out.stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_only_a_result_is_overwritten(vectors, tmp_path, capsys, monkeypatch):
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "precious").touch()
    command = ["kmeans", str(vectors), "-k", "2", "-q", "--overwrite", "-o"]

    assert main([*command, str(out)]) == 2
    assert "holds 'precious', which is not part of a result" in capsys.readouterr().err
    monkeypatch.chdir(out)
    assert main([*command, "."]) == main([*command, ".."]) == 2
    assert names_in(out) == ["precious"]
    assert names_in(tmp_path) == ["thesis", "vectors.npy"]


def test_a_full_disk_ends_with_1_and_leaves_nothing(vectors, tmp_path, capsys, monkeypatch):
    def write(path, *_, **__):
        path.write_bytes(b"part")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ripieno.algorithms.result_folder.save_array", write)
    out = tmp_path / "new" / "result"

    assert main(["kmeans", str(vectors), "-k", "2", "-q", "-o", str(out)]) == 1
    assert f"{out}: the disk is full" in capsys.readouterr().err
    assert names_in(tmp_path) == ["vectors.npy"]


@pytest.mark.parametrize("command", ["kmeans", *exhaustively("features")])
def test_input_that_cannot_be_written_is_reported_by_the_name_that_was_requested(tmp_path, command):
    np.save(tmp_path / "vectors.npy", np.random.default_rng(0).random((4000, 8), np.float32))
    arguments = {
        "kmeans": ["vectors.npy", "-k", "300", "--max-iter", "1", "-o", "out"],
        "features": ["--demo", "-n", "1", "-o", "out.npy"],
    }
    small = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000));"

    done = subprocess.run(
        [sys.executable, "-c", f"{small} from ripieno.cli import main; sys.exit(main())", command, *arguments[command]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert re.fullmatch(r"ripieno: .*\bout(\.npy)?: File too large", done.stderr.splitlines()[-1])
    assert names_in(tmp_path) == ["vectors.npy"]


def test_an_output_folder_that_is_not_writable_is_reported_before_any_work(vectors, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    for command in (["kmeans", str(vectors), "-k", "2", "-q"], ["features", "--demo", "-q"]):
        assert main([*command, "-o", str(tmp_path / "out.npy")]) == 2
        assert f"out.npy cannot be created: {tmp_path} is read-only" in capsys.readouterr().err


@pytest.mark.parametrize(("signals", "code"), [(signal.SIGINT, 130), *exhaustively((signal.SIGTERM, 143))])
def test_an_interrupted_command_leaves_nothing(tmp_path, signals, code):
    np.save(tmp_path / "vectors.npy", np.random.default_rng(0).random((20000, 64), np.float32))
    endless = ["--max-iter", "1000000", "--tol", "0", "-k", "500", "-n", "2", "-o", "result"]
    process = subprocess.Popen(
        [*COMMAND, "kmeans", "vectors.npy", "--init", "random", *endless],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for line in process.stderr:
        if line.startswith("iteration"):
            break

    before_s = used_s(process.pid)
    os.killpg(process.pid, signals) if signals == signal.SIGINT else process.send_signal(signals)

    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    # Processor time does not depend on other programs. On an idle machine it is nearly all of the time to the end.
    assert used_s(process.pid) - before_s < 0.15
    errors = process.communicate(timeout=250)[1]
    assert process.returncode == code
    assert "Traceback" not in errors
    assert names_in(tmp_path) == ["vectors.npy"]


def test_a_command_ends_with_exit_handlers_but_without_deleting_its_objects():
    program = """
import atexit, sys, threading, time
from ripieno.cli import run

class Kept:
    def __del__(self):
        print("deleted", flush=True)

kept = Kept()
atexit.register(print, "exit handler")
begun = threading.Event()
threading.Thread(target=lambda: (begun.wait(), print("thread"))).start()
sys.argv = ["ripieno", "grep", "--no-such-option"]
sys.stdout.write("buffered ")
begun.set()
run()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 2 and "No such option" in done.stderr
    assert sorted(done.stdout.split()) == ["buffered", "exit", "handler", "thread"]


def test_pictures_become_vectors_and_vectors_clusters_with_a_montage(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert main(["features", "demo:china", "demo:flower", "--out", "v.txt", "--dtype", "uint8", "-n", "1", "-q"]) == 0
    assert main(["kmeans", "v.txt", "-k", "6", "-q"]) == 0

    assert capsys.readouterr().out.split() == ["v.txt", "result/report.html"]
    assert np.load("result/centroids.npy").shape == (6, 512)
    assert "data:image/png" in (tmp_path / "result" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "v.npy"], "expected either pictures or --demo"),
        (["missing.jpg", "--out", "v.npy"], "missing.jpg does not exist"),
        (["text.jpg", "--out", "v.npy"], "text.jpg is not a readable picture"),
        (["--demo", "--out", "v.dat"], "expected a name that ends in"),
        (["--demo", "--out", "v.csv", "--format", "npy"], "v.csv: --format npy has names that end in .npy"),
        (["--demo", "--out", "none/v.npy"], "none is not a folder"),
        (["--demo", "--out", "text.jpg", "--format", "npy"], "text.jpg exists"),
        (["--demo", "--out", "v.npy", "--patch", "30"], "--patch 30"),
        (["--demo", "--out", "v.npy", "--stride", "0"], "--stride 0"),
    ],
)
def test_wrong_pictures_end_with_2_and_write_nothing(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.jpg").write_text("no picture")

    assert main(["features", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert names_in(tmp_path) == ["text.jpg"]


def test_every_command_has_help(capsys):
    for name in cli.list_commands(None):
        assert main([name, "--help"]) == 0
        assert f"Usage: ripieno {name}" in capsys.readouterr().out
    assert main(["dance"]) == 2


def test_the_list_of_commands_is_printed_without_large_libraries():
    program = (
        "import sys; from ripieno.cli import main; main(['--help']); "
        "print([name for name in ('sklearn', 'scipy', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "kmeans" in done.stdout and done.stdout.splitlines()[-1] == "[]"
