"""Edit distances of sequences: exactly one rank computes each distance, and the map equals the precomputed one."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from ripieno.algorithms.mds.sequences import Sequences, _own_half, edit_distances
from ripieno.cli import main
from ripieno.input.shares import even_range
from varied import exhaustively

random = np.random.default_rng(0)
SEQUENCES = ["".join(random.choice(list("ACGT"), length)) for length in random.integers(1, 40, 23)]


def wagner_fischer(a, b):
    """Return the edit distance with Wagner's and Fischer's table, row by row."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y)))
    return row[-1]


EXPECTED = np.array([[wagner_fischer(a, b) for b in SEQUENCES] for a in SEQUENCES])


@pytest.mark.parametrize("count", [2, 3, 5, 8, 23])
@pytest.mark.parametrize("world_size", range(1, 10))
def test_ranks_compute_or_get_every_distance_once(count, world_size):
    ranges = [even_range(count, rank, world_size) for rank in range(world_size)]
    times = np.zeros((count, count), int)
    for rank, (first, last) in enumerate(ranges):
        times[first:last, first:last] += 1
        for other in range(world_size):
            mine, theirs = _own_half(ranges, rank, other)
            times[mine, theirs] += 1
            times[theirs, mine] += 1

    assert np.all(times == 1)


def rows_of(comm, source, metric):
    rows, counts, first = edit_distances(comm, source, metric)
    assert (len(rows), sum(counts[: comm.rank])) == (counts[comm.rank], first)
    return rows


@pytest.mark.parametrize("count", [2, 3, 23])
def test_distances_match_the_table(everywhere, count):
    rows = np.concatenate(everywhere(rows_of, Sequences.of(SEQUENCES[:count]), "levenshtein"))
    shares = np.concatenate(everywhere(rows_of, Sequences.of(SEQUENCES[:count]), "normalized-levenshtein"))

    longer = np.maximum.outer(*2 * [[len(each) for each in SEQUENCES[:count]]])
    assert rows.dtype == np.int16 and shares.dtype == np.float32
    np.testing.assert_array_equal(rows, EXPECTED[:count, :count])
    np.testing.assert_allclose(shares, EXPECTED[:count, :count] / longer, rtol=1e-6)


def test_distances_beyond_small_numbers_are_exact(everywhere):
    rows = np.concatenate(everywhere(rows_of, Sequences.of(["A" * 40_000, "C", "A" * 39_999]), "levenshtein"))

    assert rows.dtype == np.float32 and rows.tolist() == [[0, 40_000, 1], [40_000, 0, 39_999], [1, 39_999, 0]]


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_a_map_of_sequences_matches_their_distances(world, workers):
    model = rp.MDS(2, metric="levenshtein", random_state=0, engine=world(workers)).fit(np.array(SEQUENCES))
    expected = rp.MDS(2, random_state=0).fit(EXPECTED.astype(np.int16))

    assert model.embedding_.tobytes() == expected.embedding_.tobytes()
    assert (model.report_.row_count, model.report_.dtype) == (23, "int16")


def write_fasta(folder):
    """Write two files: one compressed, one with lines of ten lower-case letters."""
    with gzip.open(folder / "a.fasta.gz", "wt") as file:
        file.writelines(f">first {number}\n{each}\n" for number, each in enumerate(SEQUENCES[:9]))
    lines = ["\n".join([f">{at}", *(each[i : i + 10].lower() for i in range(0, len(each), 10)), ""])
             for at, each in enumerate(SEQUENCES[9:])]  # fmt: skip
    (folder / "b.fasta").write_text("\n".join(lines))
    return [folder / "a.fasta.gz", folder / "b.fasta"]


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_sequences_of_files_are_read_as_they_were_written(world, workers, tmp_path):
    paths = write_fasta(tmp_path)
    expected = rp.MDS(2, metric="levenshtein", random_state=0, max_iter=5).fit(SEQUENCES)
    model = rp.MDS(2, metric="levenshtein", random_state=0, max_iter=5, engine=world(workers))

    assert model.fit(paths).embedding_.tobytes() == expected.embedding_.tobytes()
    assert model.fit(str(tmp_path / "*.fasta*")).embedding_.tobytes() == expected.embedding_.tobytes()


def test_the_command_maps_fasta(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_fasta(tmp_path)
    words = ["mds", "a.fasta.gz", "b.fasta", "--metric", "normalized-levenshtein", "-n", "2", "--max-iter", "5", "-q"]
    assert main(words) == 0

    expected = rp.MDS(metric="normalized-levenshtein", random_state=0, max_iter=5).fit(SEQUENCES)
    np.testing.assert_array_equal(np.load("result/embedding.npy"), expected.embedding_)
    report = json.loads((tmp_path / "result/model.json").read_text())
    assert ([Path(name).name for name in report["inputs"]], report["row_count"]) == (["a.fasta.gz", "b.fasta"], 23)
    assert main(["mds", "none.fasta", "--metric", "levenshtein", "--overwrite"]) == 2
    assert "none.fasta does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ACGT\n", "bad.fasta, line 1: expected FASTA, whose records begin with a line >NAME"),
        (">a\nAC\n>b\n\n>c\nA\n", "bad.fasta, line 3: an empty record"),
        (">a\nAC\n>b\n", "bad.fasta, line 3: an empty record"),
        (">a\nAC\n>b\nÄ\n", "bad.fasta, line 3: a record with other bytes than letters"),
        (">a\nAC\n", "bad.fasta: 1 sequences: expected at least two"),
        ("", "bad.fasta: 0 sequences: expected at least two"),
    ],
)
def test_errors_name_the_file_and_line(world, workers, tmp_path, text, message):
    (tmp_path / "bad.fasta").write_text(text)
    with pytest.raises(rp.InputError, match=message):
        rp.MDS(metric="levenshtein", engine=world(workers)).fit(tmp_path / "bad.fasta")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (["ACGT", 5], r"X\[1\] is 5: expected a string"),
        (["ACGT", None], r"X\[1\] is None: expected a string"),
        (["ACGT", b"AC"], r"X\[1\] is b'AC': expected a string"),
        (["ACGT", "", "A"], r"X\[1\] is an empty string"),
        (["ACGT"], "X: 1 sequences: expected at least two"),
        ([], "X: 0 sequences: expected at least two"),
        (np.eye(3), "X is a ndarray: expected a list of strings"),
        (7, "X is a int: expected a list of strings"),
        ("none.fasta", "none.fasta does not exist"),
    ],
)
def test_values_that_are_no_sequences_are_reported(bad, message):
    with pytest.raises(rp.InputError, match=message):
        rp.MDS(metric="levenshtein").fit(bad)


def test_sequences_without_a_metric_for_sequences_are_rejected():
    with pytest.raises(rp.InputError, match="metric='cosine': sequences require one of levenshtein"):
        rp.MDS(metric="cosine").fit(Sequences.of(SEQUENCES))


def test_missing_packages_are_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    with pytest.raises(rp.InputError, match=r"needs rapidfuzz, which is not installed: pip install 'ripieno\[seq"):
        rp.MDS(metric="levenshtein").fit(SEQUENCES)
