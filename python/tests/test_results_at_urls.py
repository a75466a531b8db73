"""Results at URLs appear as a whole or not at all, without leftovers."""

from __future__ import annotations

import fsspec
import numpy as np
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from click.testing import CliRunner
from fsspec.implementations.memory import MemoryFileSystem
from ripieno.cli import cli
from ripieno.files.results import check_new_folder, new_file, new_folder, save_array

ROOT = "memory://results"


@pytest.fixture(autouse=True)
def memory():
    system = fsspec.filesystem("memory")
    system.pipe("/results/other.txt", b"other")
    yield system
    system.rm("/results", recursive=True)


def names(memory):
    found = memory.find("/results", withdirs=True)
    return sorted(path.removeprefix("/results/") for path in found if path != "/results")


def test_a_file_takes_its_name_when_it_is_complete(memory):
    with new_file(f"{ROOT}/deep/a.npy") as part:
        save_array(part, np.arange(5))
        assert names(memory) == ["other.txt"]

    with fsspec.open(f"{ROOT}/deep/a.npy") as file:
        assert np.load(file).tolist() == [0, 1, 2, 3, 4]
    assert names(memory) == ["deep", "deep/a.npy", "other.txt"]
    assert not part.exists()


def test_a_file_replaces_an_older_one(memory):
    for text in ("old and longer", "new"):
        with new_file(f"{ROOT}/a.txt") as part:
            part.write_text(text)

    assert memory.cat("/results/a.txt") == b"new"
    assert names(memory) == ["a.txt", "other.txt"]


def test_a_folder_takes_its_name_when_it_is_complete(memory):
    for text in ("old", "new"):
        with new_folder(f"{ROOT}/folder", ["a.txt", "inner"]) as part:
            (part / "a.txt").write_text(text)
            (part / "inner").mkdir()
            (part / "inner" / "b.txt").write_text("b")

    assert memory.cat("/results/folder/a.txt") == b"new"
    assert names(memory) == ["folder", "folder/a.txt", "folder/inner", "folder/inner/b.txt", "other.txt"]


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_an_error_leaves_no_file(memory, new):
    with pytest.raises(ZeroDivisionError), new(f"{ROOT}/a.txt") as part:
        raise ZeroDivisionError

    assert names(memory) == ["other.txt"]
    assert not part.parent.exists()


class Fails(MemoryFileSystem):
    """Fails to rename without an error, as WebHDFS does for existing names."""

    protocol = "fails"

    def mv(self, path1, path2, **options):
        pass


def test_output_that_cannot_be_renamed_is_an_error_and_leaves_no_file(memory):
    fsspec.register_implementation("fails", Fails, clobber=True)

    with (
        pytest.raises(rp.InputError, match=r"fails://results/a\.txt cannot be written"),
        new_file("fails://results/a.txt") as part,
    ):
        part.write_text("a")

    assert names(memory) == ["other.txt"]


@pytest.mark.parametrize("lost", [(".part",), (".part", ".old")])
def test_an_older_result_is_restored_or_named_if_the_new_one_cannot_be_renamed(memory, monkeypatch, lost):
    def mv(system, path1, path2, **options):
        if path1.endswith(lost):
            raise OSError("connection lost")
        move(system, path1, path2, **options)

    move = MemoryFileSystem.mv
    monkeypatch.setattr(MemoryFileSystem, "mv", mv)
    memory.pipe("/results/a.txt", b"old")

    with (
        pytest.raises(rp.InputError, match=r"a\.txt cannot be written: .*lost") as caught,
        new_file(f"{ROOT}/a.txt") as part,
    ):
        part.write_text("new")

    older, other = names(memory)
    assert other == "other.txt" and memory.cat(f"/results/{older}") == b"old"
    assert older == "a.txt" or f"the older result is now /results/{older}, because restoring" in str(caught.value)
    assert (older == "a.txt") == (".old" not in lost)


@pytest.mark.parametrize(
    ("url", "replaceable", "message"),
    [
        (ROOT, (), "memory://results exists and is not empty"),
        (ROOT, ("labels.npy",), "memory://results holds 'other.txt', which is not part of a result"),
        (f"{ROOT}/other.txt", (), "memory://results/other.txt is not a folder"),
        ("nosuch://results", (), "nosuch://results: Protocol not known: nosuch"),
    ],
)
def test_a_folder_that_cannot_be_written_is_rejected_before_any_work(url, replaceable, message):
    with pytest.raises(rp.InputError, match=message):
        check_new_folder(url, replaceable)


def test_commands_read_and_write_at_urls(memory, tmp_path):
    memory.pipe("/results/words.txt", b"one two two\n")
    with memory.open("/results/x.npy", "wb") as file:
        np.save(file, np.arange(20.0).reshape(10, 2))

    counted = CliRunner().invoke(cli, ["wordcount", f"{ROOT}/words.txt", "--out", f"{ROOT}/counts.parquet"])
    clustered = CliRunner().invoke(cli, ["kmeans", f"{ROOT}/x.npy", "--clusters", "2", "--out", f"{ROOT}/model"])

    assert counted.exit_code == clustered.exit_code == 0, counted.output + clustered.output
    with memory.open("/results/counts.parquet", "rb") as file:
        assert pq.read_table(file).to_pydict() == {"word": ["two", "one"], "count": [2, 1]}
    assert sorted(entry.rpartition("/")[2] for entry in memory.ls("/results/model", detail=False)) == [
        "centroids.npy",
        "labels.npy",
        "model.json",
        "report.html",
    ]


@pytest.mark.parametrize("command", [["split", "a.txt", "-p", "2", "--out"], ["kmeans", "a.npy", "-k", "2", "--trace"]])
def test_a_url_is_rejected_where_a_path_is_required(command):
    refused = CliRunner().invoke(cli, [*command, f"{ROOT}/new"])

    assert refused.exit_code == 2
    assert f"{ROOT}/new: expected a path on this machine, not a URL" in refused.output.replace("\n", " ")
