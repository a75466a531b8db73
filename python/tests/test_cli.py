"""Commands write everything or nothing, and end with 0, 1, 2 or 130 and a sentence."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from ripieno.cli import cli, main

COMMAND = [sys.executable, "-m", "ripieno.cli"]


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.npy"
    np.save(path, np.random.default_rng(0).random((200, 8), np.float32))
    return path


def left_behind(folder):
    """Names in a folder, hidden ones included."""
    return sorted(entry.name for entry in folder.iterdir())


def test_clustering_writes_centroids_labels_model_and_report(vectors, tmp_path):
    out = tmp_path / "result"

    done = subprocess.run(
        [*COMMAND, "kmeans", vectors, "--clusters", "5", "--workers", "2", "--out", out], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(out / "report.html")
    assert "iteration 1, inertia" in done.stderr and "200 rows in 5 clusters" in done.stderr
    assert left_behind(out) == ["centroids.npy", "labels.npy", "model.json", "report.html"]
    centroids, labels = np.load(out / "centroids.npy"), np.load(out / "labels.npy")
    assert centroids.shape == (5, 8) and labels.shape == (200,) and labels.dtype == np.int32
    model = json.loads((out / "model.json").read_text())
    distances = np.square(np.load(vectors) - centroids[labels]).sum()
    assert model["inertia"] == pytest.approx(distances, rel=1e-5)
    assert model["cluster_sizes"] == np.bincount(labels, minlength=5).tolist()
    assert model["parameters"]["workers"] == 2
    assert left_behind(tmp_path) == ["result", "vectors.npy"]


def test_the_same_command_gives_the_same_result(vectors, tmp_path):
    for name in ("a", "b"):
        assert main(["kmeans", str(vectors), "-k", "5", "-q", "-o", str(tmp_path / name)]) == 0

    for file in ("centroids.npy", "labels.npy"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{v}", "-k", "201"], "n_samples=200 should be >= n_clusters=201"),
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
    assert left_behind(tmp_path) == ["vectors.npy"]


def test_values_that_are_not_finite_are_told_with_file_row_and_column(tmp_path):
    rows = np.ones((50, 3))
    rows[30, 2] = np.nan
    np.save(tmp_path / "bad.npy", rows)

    done = subprocess.run(
        [*COMMAND, "kmeans", tmp_path / "bad.npy", "-k", "2", "-w", "2", "-o", tmp_path / "out"],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("bad.npy, row 30, column 2: NaN where a finite number is expected")
    assert "Traceback" not in done.stderr
    assert left_behind(tmp_path) == ["bad.npy"]


def test_a_result_is_not_overwritten_unless_asked(vectors, tmp_path, capsys):
    out = tmp_path / "result"
    out.mkdir()
    (out / "precious").touch()

    assert main(["kmeans", str(vectors), "-k", "2", "-q", "-o", str(out)]) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    assert left_behind(out) == ["precious"]
    assert main(["kmeans", str(vectors), "-k", "2", "-q", "-o", str(out), "--overwrite"]) == 0
    assert "precious" not in left_behind(out)
    assert left_behind(tmp_path) == ["result", "vectors.npy"]


def test_a_full_disk_ends_with_1_and_leaves_nothing(vectors, tmp_path, capsys, monkeypatch):
    def save(path, array):
        path.write_bytes(b"part")
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(np, "save", save)

    assert main(["kmeans", str(vectors), "-k", "2", "-q", "-o", str(tmp_path / "result")]) == 1
    assert "the disk is full" in capsys.readouterr().err
    assert left_behind(tmp_path) == ["vectors.npy"]


@pytest.mark.parametrize(("signals", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_leaves_nothing(tmp_path, signals, code):
    np.save(tmp_path / "vectors.npy", np.random.default_rng(0).random((20000, 64), np.float32))
    endless = ["--max-iter", "1000000", "--tol", "0", "-k", "2000", "-w", "2", "-o", "result"]
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

    os.killpg(process.pid, signals) if signals == signal.SIGINT else process.send_signal(signals)

    errors = process.communicate(timeout=30)[1]
    assert process.returncode == code
    assert "Traceback" not in errors
    assert left_behind(tmp_path) == ["vectors.npy"]


def test_pictures_become_vectors_and_vectors_clusters_with_a_montage(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert main(["features", "demo:china", "demo:flower", "--out", "v.txt", "--dtype", "uint8", "-w", "1", "-q"]) == 0
    assert main(["kmeans", "v.txt", "-k", "6", "-q"]) == 0

    assert capsys.readouterr().out.split() == ["v.txt", "result/report.html"]
    assert np.load("result/centroids.npy").shape == (6, 512)
    assert "data:image/png" in (tmp_path / "result" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "v.npy"], "give either pictures or --demo"),
        (["missing.jpg", "--out", "v.npy"], "missing.jpg does not exist"),
        (["text.jpg", "--out", "v.npy"], "text.jpg is not a readable picture"),
        (["--demo", "--out", "v.dat"], "expected a name that ends in"),
        (["--demo", "--out", "none/v.npy"], "none is not a folder"),
        (["--demo", "--out", "text.jpg"], "text.jpg exists"),
        (["--demo", "--out", "v.npy", "--patch", "30"], "patch=30"),
    ],
)
def test_wrong_pictures_end_with_2_and_write_nothing(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.jpg").write_text("no picture")

    assert main(["features", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert left_behind(tmp_path) == ["text.jpg"]


def test_every_command_explains_itself(capsys):
    for name in cli.list_commands(None):
        assert main([name, "--help"]) == 0
        assert f"Usage: ripieno {name}" in capsys.readouterr().out
    assert main(["dance"]) == 2
