"""`divide` and `ripieno split`: even partitions that hold every record once, on the stated nodes."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from ripieno.cli import main
from ripieno.comm.agreement import agreement, on_root
from ripieno.files.sources import opened
from ripieno.input import checksums, divide, open_partitions, splits
from ripieno.input.dividing.replicas import place_replicas

pytestmark = pytest.mark.usefixtures("without_charts")

COUNTS = [1, 2, 3, 7, 20]
LINES = [b"line %d" % i for i in range(300)]
TABLE = pa.table({"n": range(100), "word": [f'"{i}",\n{i}' for i in range(100)], "x": np.arange(100) / 4})
ROWS = np.arange(300.0).reshape(100, 3)


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "big.txt"
    path.write_bytes(b"\n".join(LINES) + b"\n")
    return path


@pytest.fixture
def sources(tmp_path):
    """Return files of each format with the same records in two parts."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "a.log").write_bytes(b"\r\n".join(LINES[:200]))
    (folder / "b.log.gz").write_bytes(gzip.compress(b"\n".join(LINES[200:]) + b"\n"))
    for at, part in enumerate((TABLE[:70], TABLE[70:])):
        # The second file has integers where the first has fractions.
        whole = part.set_column(2, "x", part["x"].cast(pa.int64(), safe=False)) if at else part
        pa.csv.write_csv(whole, folder / f"{at}.csv")
        pq.write_table(part, folder / f"{at}.parquet", row_group_size=8)
        np.save(folder / f"{at}.npy", ROWS[:70] if at == 0 else ROWS[70:])
    (folder / "1.csv.bz2").write_bytes(bz2.compress((folder / "1.csv").read_bytes()))
    (folder / "1.csv").unlink()
    return folder


def joined(kind, parts):
    """Return all records, in the order of the partitions, and the bytes of each (rows for arrays and tables)."""
    read = [part.read() for part in parts]
    if kind == "text":
        lines = [text.replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n") if text else [] for text in read]
        return list(chain.from_iterable(lines)), [len(text) for text in read]
    if kind == "npy":
        return np.concatenate(read).tolist(), [len(rows) for rows in read]
    sizes = [len(table) if kind == "parquet" else part.size_bytes for table, part in zip(read, parts, strict=True)]
    return pa.concat_tables(read), sizes


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("pattern", ["*.log*", "*.csv*", "*.npy", "*.parquet"])
def test_partitions_are_even_and_hold_all_records_once_and_in_order(sources, tmp_path, pattern, count):
    path = divide(str(sources / pattern), tmp_path / "parts", partitions=count)

    parts = open_partitions(path)
    kind = parts[0].format.name
    records, sizes = joined(kind, parts)
    expected = {"text": LINES, "npy": ROWS.tolist(), "parquet": TABLE}.get(kind)
    if kind == "csv":
        cut = pa.chunked_array([np.concatenate([np.arange(70) / 4, np.arange(70, 100) // 4])])
        expected = TABLE.set_column(2, "x", cut)
    assert records == expected
    longest = {"text": 10, "csv": 20}.get(kind, 1)
    assert len(parts) == count and max(sizes) - min(sizes) <= 2 * (sum(sizes) / count / 64 + longest)
    # The written files are valid for any program.
    again = splits(sorted(str(file) for file in (tmp_path / "parts").glob("part-*")), bytes=1 << 30)
    assert joined(kind, again)[0] == expected
    assert names(tmp_path / "parts") == [*(Path(part.path).name for part in parts), "partitions.json"]


@pytest.mark.parametrize("name", ["a.npy", "a.parquet", "a.csv", "a.txt", "a.bin", "a.txt.gz"])
def test_no_partition_is_empty(tmp_path, name):
    np.save(tmp_path / "a.npy", ROWS[:3])
    pq.write_table(TABLE[:3], tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("n\n1\n2\n3")
    (tmp_path / "a.txt").write_text("1\n2\n3")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"1\n2\n3"))
    (tmp_path / "a.bin").write_bytes(ROWS[:3].tobytes())
    described = {"record_bytes": 24} if name == "a.bin" else {}

    for count in (4, 100_000, 10**18):
        expected = f"partitions={count}: there are records for 3, the others would be empty: expected 3 or fewer"
        with pytest.raises(rp.InputError, match=expected):
            divide(tmp_path / name, tmp_path / "parts", partitions=count, **described)
    assert not (tmp_path / "parts").exists()
    path = divide(tmp_path / name, tmp_path / "parts", partitions=3, **described)
    assert [len(part.read()) > 0 for part in open_partitions(path)] == [True] * 3


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "", "1e3"])
@pytest.mark.parametrize("option", ["--partitions", "--replicas", "--workers", "--record-bytes"])
def test_invalid_counts_are_reported(text, tmp_path, capsys, option, value):
    assert main(["split", str(text), "-p", "2", "--out", str(tmp_path / "parts"), option, value]) == 2
    assert f"Invalid value for '-{option[2]}' / '{option}'" in (output := capsys.readouterr().err) or option in output
    assert names(tmp_path) == ["big.txt"]


def test_counts_beyond_any_memory_are_reported(text, tmp_path, capsys):
    out = tmp_path / "parts"
    for words, message in [
        (["-p", "2", "--replicas", str(10**12)], "--replicas 1000000000000: expected 1000 or fewer"),
        (["-p", str(10**18), "--nodes", "a,b"], "--partitions 1000000000000000000: there are records for 300"),
        (
            ["-p", "2", "--record-bytes", str(10**30)],
            "'--record-bytes': 1000000000000000000000000000000: expected a whole number >= 1, and below 2**63",
        ),
    ]:
        assert main(["split", str(text), "--out", str(out), *words]) == 2
        assert message in capsys.readouterr().err
    assert main(["split", str(text), "--out", str(out), "-p", str(10**18), "--in-place"]) == 0
    plan = ["split", "--plan", str(out / "partitions.json"), "--workers", str(10**18)]
    assert main(plan) == 2
    assert "is not in the range 1<=x<=100000" in capsys.readouterr().err


@pytest.mark.parametrize("pattern", ["big.txt", "big.txt.gz", "*.csv*", "*.npy", "*.parquet"])
@pytest.mark.parametrize("count", [1, 5])
def test_partitions_in_place_copy_no_bytes_and_end_with_records(sources, text, tmp_path, pattern, count):
    shutil.move(text, sources / "big.txt")
    (sources / "big.txt.gz").write_bytes(gzip.compress((sources / "big.txt").read_bytes()))

    path = divide(str(sources / pattern), tmp_path / "parts", partitions=count, in_place=True)

    parts = open_partitions(path)
    before = splits(str(sources / pattern), count=count)
    assert names(tmp_path / "parts") == ["partitions.json"] and len(parts) == len(before)
    assert all(Path(part.path).parent == sources and part.hosts == () for part in parts)
    for part, other in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part.read(), other.read())
    if pattern == "big.txt":
        ranges = [(sources / "big.txt").read_bytes()[part.start : part.stop] for part in parts]
        assert [hashlib.sha256(lines).hexdigest() for lines in ranges] == [part.checksum.sha256 for part in parts]


def test_names_of_partitions_describe_them(text, tmp_path):
    for name, ending in [("a", ".txt"), ("a.log", ".log"), ("a.npy", ".txt")]:
        shutil.copy(text, tmp_path / name)
        path = divide(tmp_path / name, tmp_path / f"parts-{name}", partitions=1, format="text")
        assert names(path.parent) == [f"part-00000{ending}", "partitions.json"]


def test_replicas_without_nodes_have_a_folder_each(text, tmp_path):
    path = divide(text, tmp_path / "parts", partitions=2, replicas=2)

    assert [path for path in names(path.parent) if "00001" in path] == [f"copy-{i}/part-00001.txt" for i in range(2)]
    shutil.rmtree(path.parent / "copy-0")
    assert joined("text", open_partitions(path))[0] == LINES


def damage(path, at=0):
    """Change a byte of a file and its modification time, even if the clock is coarse."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    # Write a new file: copies may be hard links to the same one.
    path.unlink()
    path.write_bytes(content)
    os.utime(path, ns=(0, damage.count))
    damage.count += 1


damage.count = 1


def all_records(part):
    return part.read()


def first_block(part):
    return next(part.blocks(1))


@pytest.mark.parametrize("read", [all_records, first_block])
@pytest.mark.parametrize("pattern", ["*.npy", "*.parquet", "a.log", "b.log.gz", "0.csv"])
@pytest.mark.parametrize("in_place", [False, True])
def test_no_record_of_a_damaged_partition_is_returned(sources, tmp_path, pattern, in_place, read):
    path = divide(str(sources / pattern), tmp_path / "parts", partitions=3, in_place=in_place)
    first = open_partitions(path)[0]
    read(first)

    damage(Path(first.path), first.checksum.ranges[0][1] - 1)

    expected = rf"{Path(first.path).name} on {socket.gethostname()} is damaged: SHA-256 \w{{64}}, expected \w{{64}}"
    with pytest.raises(rp.InputError, match=expected):
        read(first)
    with pytest.raises(rp.InputError, match=expected):
        first.verify()


def test_a_damaged_footer_of_a_partition_in_place_is_detected(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=8)
    path = divide(tmp_path / "a.parquet", tmp_path / "parts", partitions=3, in_place=True)

    damage(tmp_path / "a.parquet", (tmp_path / "a.parquet").stat().st_size - 40)

    for part in open_partitions(path):
        with pytest.raises(rp.InputError, match=r"a.parquet .* is damaged: SHA-256"):
            part.read()


@pytest.mark.parametrize("change", [lambda text: text[:-1], lambda text: text + b"more\n"])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_partition_of_another_length_is_damaged(text, tmp_path, in_place, change):
    path = divide(text, tmp_path / "parts", partitions=2, in_place=in_place)
    part = open_partitions(path)[1]
    before = Path(part.path).read_bytes()

    Path(part.path).write_bytes(change(before))

    with pytest.raises(rp.InputError, match=rf"is damaged: [\d,]+ bytes, expected {len(before):,}; no other copy"):
        part.read()


def test_a_good_copy_replaces_a_damaged_one_with_a_warning(text, tmp_path):
    path = divide(text, tmp_path / "parts", partitions=4, replicas=3, nodes=["a", "b", "c"])
    part = open_partitions(path)[0]
    expected = part.read()
    first, second, third = map(Path, (part.path, *part.copies))

    damage(first)
    with pytest.warns(UserWarning) as warned:
        assert part.read() == expected
    assert [str(warning.message) for warning in warned] == [
        f"{first} on a is damaged: SHA-256 {hashlib.sha256(first.read_bytes()).hexdigest()}, "
        f"expected {part.checksum.sha256}; {second} is read instead"
    ]
    shutil.rmtree(second.parent)
    second.parent.symlink_to(tmp_path / "nowhere")
    with pytest.warns(UserWarning, match=f"{third} is read instead"):
        assert b"".join(part.blocks(100)) == expected

    third.unlink()
    os.mkfifo(third)
    with pytest.raises(
        rp.InputError, match=rf"{first} on a is damaged: .*; {third} is a pipe .*; no other copy is here"
    ):
        part.read()


def test_a_partition_is_read_for_its_checksum_once(text, tmp_path, monkeypatch):
    path = divide(text, tmp_path / "parts", partitions=5, in_place=True)
    read = []
    monkeypatch.setattr(checksums, "opened", lambda path: read.append(path) or opened(path))
    checksums.sha256.cache_clear()

    for _ in range(3):
        parts = open_partitions(path)
        assert joined("text", parts)[0] == joined("text", [pickle.loads(pickle.dumps(part)) for part in parts])[0]
        assert all(list(part.blocks(10)) for part in parts)

    # Each of the five reads a different range of the file.
    assert read == [str(text)] * 5


def test_partitions_are_read_without_verification_on_request(text, tmp_path):
    path = divide(text, tmp_path / "parts", partitions=2)
    damage(tmp_path / "parts" / "part-00000.txt")

    for parts in (open_partitions(path, verify=False), splits(path.parent, verify=False)):
        assert parts[0].read().startswith(b"mine 0\n")
        with pytest.raises(rp.InputError, match="has no checksum"):
            parts[0].verify()


def test_the_command_names_every_damaged_copy(text, tmp_path, capsys):
    path = divide(text, tmp_path / "parts", partitions=3, replicas=2, nodes=["a", "b"])
    plan = ["split", "--plan", str(path), "--verify"]
    assert main(plan) == 0
    damage(path.parent / "b" / "part-00000.txt")
    damage(path.parent / "a" / "part-00001.txt")
    damage(path.parent / "b" / "part-00001.txt")
    capsys.readouterr()

    assert main(plan) == 2

    output = capsys.readouterr()
    assert output.out == "" and "2 of 3 partitions are damaged" in output.err
    for name, count in {"b/part-00000.txt on b": 1, "a/part-00001.txt on a": 1, "b/part-00001.txt on b": 1}.items():
        assert output.err.count(f"{name} is damaged: SHA-256") == count


class Unpicklable(Exception):
    def __reduce__(self):
        raise TypeError("no pickle")


def fail_on_root(comm):
    def compute():
        raise Unpicklable("mine")

    with pytest.raises(rp.RipienoError, match=r"^Unpicklable: mine$") as caught:
        on_root(comm, compute)
    return type(caught.value.__cause__)


def test_an_error_of_the_root_that_cannot_be_pickled_reaches_all_ranks(world):
    cause, *others = world(2).run(fail_on_root)
    assert cause.__name__ == "Unpicklable" and others == [type(None)]


def test_no_reader_of_partitions_accepts_a_damaged_one(world, text, tmp_path):
    path = divide(text, tmp_path / "parts", partitions=4)
    damage(path.parent / "part-00002.txt")

    def shared(comm, folder):
        with agreement(comm):
            return [part.read() for part in rp.input.share(rp.input.splits(folder), comm)]

    def counted(comm, folder):
        return rp.count_words(folder, comm=comm)

    def searched(comm, folder):
        return rp.grep("line", folder, comm=comm)

    for program in (shared, counted, searched):
        with pytest.raises(rp.RipienoError, match=r"part-00002.txt .* is damaged: SHA-256"):
            world(2).run(program, str(path.parent))
    with (
        rp.MapReduce(lambda text, emit: emit("bytes", len(text)), job=world(2)) as job,
        pytest.raises(rp.RipienoError, match=r"part-00002.txt .* is damaged: SHA-256"),
    ):
        job.cache(rp.input.open_partitions(path))


def test_nodes_have_folders_and_a_partition_is_read_where_it_is_found(text, tmp_path):
    path = divide(text, tmp_path / "parts", partitions=6, replicas=2, nodes=["a", "b", "c"])

    parts = open_partitions(path)
    assert Counter(host for part in parts for host in part.hosts) == {"a": 4, "b": 4, "c": 4}
    for at, part in enumerate(parts):
        assert all((tmp_path / "parts" / host / f"part-{at:05}.txt").is_file() for host in part.hosts)
    shutil.rmtree(tmp_path / "parts" / "b")
    moved = shutil.move(tmp_path / "parts", tmp_path / "elsewhere") / "partitions.json"
    parts = open_partitions(moved)
    assert joined("text", parts)[0] == LINES
    shutil.rmtree(tmp_path / "elsewhere" / "a")
    lost = next(part for part in parts if set(part.hosts) == {"a", "b"})
    with pytest.raises(rp.InputError, match=r"part-\d+.txt and .* do not exist here; expected on [ab], [ab]"):
        lost.read()


@pytest.mark.parametrize("seed", range(20))
def test_replicas_are_spread_over_nodes_and_racks(seed):
    random = np.random.default_rng(seed)
    nodes = [f"n{at}" for at in range(random.integers(2, 9))]
    racks = {node: f"r{at % 3}" for at, node in enumerate(nodes)} if seed % 2 else None
    replicas = int(random.integers(1, len(nodes) + 1))

    holders = place_replicas(len(nodes) * 12, nodes, replicas, racks)

    assert all(len(set(holder)) == replicas for holder in holders)
    assert set(Counter(holder[0] for holder in holders).values()) == {12}
    if racks is None:
        assert set(Counter(node for holder in holders for node in holder).values()) == {12 * replicas}
    else:
        most = min(replicas, len(set(racks.values())))
        assert all(len({racks[node] for node in holder}) == most for holder in holders)


def test_input_that_cannot_be_divided_is_reported(sources, text, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.touch()
    (tmp_path / "head.csv").write_text("a,b\n")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    np.save(tmp_path / "wide.npy", np.ones((2, 4)))
    pq.write_table(pa.table({"other": [1]}), tmp_path / "other.parquet")
    out = tmp_path / "parts"
    for source, options, message in [
        (empty, {}, "nothing to divide"),
        (empty, {"in_place": True}, "nothing to divide"),
        (tmp_path / "head.csv", {}, "head.csv has no records"),
        ([text, sources / "0.npy"], {}, "read in different ways"),
        ([sources / "0.csv", tmp_path / "other.csv"], {}, "other.csv has other columns than"),
        ([sources / "0.npy", tmp_path / "wide.npy"], {}, r"wide.npy has rows of shape \(4,\)"),
        ([sources / "0.parquet", tmp_path / "other.parquet"], {}, "other.parquet has other columns than"),
        (text, {"partitions": 0}, "partitions=0"),
        (text, {"replicas": 3, "nodes": ["a", "b"]}, "replicas=3, but there are 2 nodes"),
        (text, {"nodes": ["a", "a"]}, "nodes=a,a: expected different"),
        (text, {"nodes": ["../a"]}, "'../a' is not a name of a host"),
        (text, {"replicas": 2, "in_place": True}, "expected nodes, the hosts"),
        (text, {"nodes": ["a", "b"], "racks": {"a": "r"}}, "the rack of b is missing"),
        (tmp_path / "none.txt", {}, "does not exist"),
    ]:
        with pytest.raises(rp.InputError, match=message):
            divide(source, out, **{"partitions": 2} | options)
        assert not out.exists()


def test_a_partition_file_or_its_folder_is_a_valid_source(text, tmp_path):
    path = divide(text, tmp_path / "parts", partitions=3, nodes=["a", "b"])

    assert splits(path) == splits(path.parent, count=100) == open_partitions(path)
    assert splits([path, path.parent]) == open_partitions(path) * 2
    assert splits(path, format="text") == open_partitions(path)
    with pytest.raises(rp.InputError, match=r"format='csv': .*part-00000.txt is listed as text"):
        splits(path, format="csv")
    for source, options, message in [
        ([path, text], {}, "expected partition files, or files without them"),
        (path, {"columns": ["n"]}, "options apply when files are divided"),
    ]:
        with pytest.raises(rp.InputError, match=rf"partitions.json.*{message}"):
            splits(source, **options)


def test_a_file_that_is_not_a_partition_file_is_rejected(text, tmp_path):
    path = divide(text, tmp_path / "parts", partitions=2)
    good = path.read_text()
    for content, message in [
        ("{", "is not a partition file"),
        ("[]", "is not a partition file: expected JSON that says kind"),
        (good.replace('"version": 2', '"version": 1'), "version 1, expected 2: divide them again"),
        (good.replace('"start"', '"begin"'), "is damaged: KeyError 'start'"),
        (good.replace('"name": "text"', '"name": "video"'), "is damaged: KeyError 'video'"),
        (good[: len(good) // 2], "is not a partition file"),
    ]:
        path.write_text(content)
        with pytest.raises(rp.InputError, match=message):
            open_partitions(path)


def test_the_command_divides_and_shows_the_reader_of_each_partition(text, tmp_path, capsys):
    racks = tmp_path / "racks.toml"
    racks.write_text('[racks]\nnorth = ["a", "b"]\nsouth = ["c"]\n')
    out = tmp_path / "parts"

    arguments = ["split", str(text), "-p", "6", "--replicas", "2", "--nodes", "a, b,c", "--racks", str(racks)]
    assert main([*arguments, "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"6 partitions of 423 to 438 bytes: {out}/partitions.json\n"

    assert all("c" in part.hosts for part in open_partitions(out / "partitions.json"))
    plan = ["split", "--plan", str(out / "partitions.json")]
    assert main([*plan, "--verify"]) == 0
    assert "6 splits, 2,590 bytes; 6 of 6 local; the largest load: 8" in capsys.readouterr().out
    assert main([*plan, "--workers", "4", "--hosts", "a,x"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in printed[1:5]] == [
        ["0", "a", "2", "1"],
        ["1", "a", "2", "2"],
        ["2", "x", "1", "0"],
        ["3", "x", "1", "0"],
    ]

    assert main([*arguments, "--out", str(out)]) == 2
    assert "parts exists and is not empty: choose another folder, or pass --overwrite" in capsys.readouterr().err
    assert main([*arguments[:2], "-p", "2", "--out", str(out), "--overwrite"]) == 0
    assert names(out) == ["part-00000.txt", "part-00001.txt", "partitions.json"]
    (out / "mine.txt").touch()
    assert main([*arguments, "--out", str(out), "--overwrite"]) == 2
    assert "holds 'mine.txt', which is not a partition" in capsys.readouterr().err
    assert (out / "part-00000.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in.txt", "-p", "2"], "Missing option '--out'"),
        (["in.txt", "--out", "x"], "Missing option '--partitions'"),
        (["--out", "x", "-p", "2"], "Missing argument 'INPUTS...'"),
        (["in.txt", "--plan", "x"], "INPUTS has no effect with --plan"),
        (["--plan", "x", "--in-place"], "--in-place has no effect with --plan"),
        (["in.txt", "-p", "2", "--out", "x", "--hosts", "a"], "--hosts has no effect with --out"),
        (["in.txt", "-p", "2", "--out", "x"], "in.txt does not exist"),
        (["--plan", "x"], "x does not exist"),
    ],
)
def test_wrong_usage_is_reported(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert main(["split", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert names(tmp_path) == []


def test_a_failed_division_leaves_no_file(text, tmp_path, monkeypatch, capsys):
    (tmp_path / "big.txt.gz").write_bytes(gzip.compress(np.random.default_rng(0).bytes(100_000))[:50_000])
    out = tmp_path / "new" / "parts"

    assert main(["split", str(tmp_path / "big.txt.gz"), "-p", "3", "--out", str(out)]) == 2
    assert "big.txt.gz is damaged" in capsys.readouterr().err
    assert names(tmp_path) == ["big.txt", "big.txt.gz"] and not out.parent.exists()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ripieno.input.dividing.sinks.LineSink.close", full)
    assert main(["split", str(text), "-p", "3", "--out", str(out)]) == 1
    assert f"{out}: the disk is full\n" in capsys.readouterr().err
    assert names(tmp_path) == ["big.txt", "big.txt.gz"] and not out.parent.exists()


def test_an_interrupted_division_leaves_no_file(tmp_path):
    # The source is endless, so the command never finishes.
    program = (
        "import os, signal, sys\n"
        "from ripieno.cli import main\n"
        "from ripieno.input.dividing.record_streams import TextLines\n"
        "def pieces(self, size):\n"
        "    yield 1, b'line\\n'\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    yield 1, b'line\\n'\n"
        "TextLines.pieces = pieces\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    (tmp_path / "a.txt").write_text("line\n" * 9)

    done = subprocess.run([sys.executable, "-c", program, "split", "a.txt", "-p", "2", "--out", "parts"], cwd=tmp_path)

    assert done.returncode == 128 + 15
    assert names(tmp_path) == ["a.txt"] and [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_partitions_are_shared_among_ranks(world, text, tmp_path):
    path = divide(text, tmp_path / "parts", partitions=7)
    assert json.loads(path.read_text())["partitions"][6]["id"] == 6

    def program(comm, path):
        return [part.read() for part in rp.input.share(rp.input.open_partitions(path), comm)]

    assert b"".join(chain.from_iterable(world(3).run(program, str(path)))) == text.read_bytes()
