"""Word counts and line searches: equal to `bytes.split` and `re`, with one process and with several."""

from __future__ import annotations

import gzip
import os
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from ripieno import _native
from ripieno.cli import main
from ripieno.input import Split, splits
from ripieno.text import Query
from ripieno.text.search import search
from varied import exhaustively

#: Text that comes with every interpreter and with NumPy.
REAL = [Path(re.__file__).parent / "_parser.py", Path(np.__file__).parent / "__init__.py"]


def counted(texts: list[bytes], lower: bool = False) -> dict[bytes, int]:
    table = _native.WordCounts(lower)
    for text in texts:
        table.add(text)
    (offsets, data), counts = table.take()
    assert len(table) == 0
    return {
        data[start:stop].tobytes(): int(count) for (start, stop), count in zip(pairwise(offsets), counts, strict=True)
    }


def pairs(rows: rp.KeyValues) -> list[tuple[bytes, int]]:
    return list(zip(rows.keys.cast("large_binary").to_pylist(), rows.values.tolist(), strict=True))


def ordered(text: bytes) -> list[tuple[bytes, int]]:
    return sorted(Counter(text.split()).items(), key=lambda word: (-word[1], word[0]))


@pytest.fixture
def corpus(tmp_path) -> tuple[list[str], bytes]:
    """Return files of every kind, and their whole text."""
    odd = b"no end\r\nCR LF\r\n\0zero \0\0 \xff\xfe bytes \x0bto\x0cbe\n\n  To be" + b" long" * 9 + b"word" * 9000
    texts = [REAL[0].read_bytes(), b"", odd, REAL[1].read_bytes(), b"\n"]
    paths = []
    for at, text in enumerate(texts):
        paths.append(tmp_path / f"{at}.txt{'.gz' * (at == 3)}")
        paths[-1].write_bytes(gzip.compress(text) if at == 3 else text)
    return [str(path) for path in paths], b"\n".join(texts)


def test_words_match_split():
    rng = np.random.default_rng(0)
    texts = [path.read_bytes() for path in REAL] + [b"", b" ", b"a", b"a\0b \0 \0"]
    for size in [*range(70), 5000, 20000]:
        few = rng.choice(np.frombuffer(b" \t\n\x0b\x0c\rAaBb\0\xff", np.uint8), size).tobytes()
        texts += [few, rng.integers(0, 256, size, np.uint8).tobytes()]
    for text in texts:
        assert counted([text]) == Counter(text.split())
        assert counted([text], lower=True) == Counter(text.lower().split())
    assert counted(texts) == sum((Counter(text.split()) for text in texts), Counter())


def test_no_division_of_a_file_splits_a_word_or_counts_it_twice(tmp_path):
    path = tmp_path / "small.txt"
    path.write_bytes(b"one two\n\nthree\r\n one\nlast line has no end")
    size = path.stat().st_size
    (whole,) = splits(path)
    expected = Counter(path.read_bytes().split())
    for at in range(size + 1):
        parts = [Split(whole.path, whole.format, start, stop, stop - start) for start, stop in ((0, at), (at, size))]
        assert counted([text for part in parts for text in part.blocks(1)]) == expected


@pytest.fixture(scope="module")
def job():
    with rp.launch(workers=3, threads=2) as job:
        yield job


@pytest.mark.parametrize("threads", [1, 3])
def test_words_of_files_are_counted_by_any_number_of_threads(corpus, threads):
    paths, text = corpus
    events = []
    rows = rp.count_words(paths, threads=threads, on_event=events.append)

    assert pairs(rows) == ordered(text)
    assert sum(event["bytes"] for event in events) == events[0]["total_bytes"] == sum(map(_size, paths))
    assert str(rows.keys.type) == "large_binary", "one of the files is no UTF-8"
    assert str(rp.count_words(str(REAL[0])).keys.type) == "large_string"
    assert pairs(rp.count_words(paths, lower=True)) == ordered(text.lower())


def _size(path: str) -> int:
    return Path(path).stat().st_size


def test_words_beyond_the_memory_limit_are_spilled_and_read_back(tmp_path):
    text = b"\n".join(b"word%d %d" % (i * i % 7919, i % 97) for i in range(100000))
    (tmp_path / "numbers.txt").write_bytes(text)
    spill = tmp_path / "spill"
    spill.mkdir()
    rows = rp.count_words(tmp_path / "numbers.txt", threads=2, memory_limit=1 << 18, spill_directory=spill)

    assert pairs(rows) == ordered(text)
    assert not list(spill.iterdir())


def _owners(comm, paths):
    rows = rp.count_words(paths, comm=comm)
    lines = rp.grep("import", paths, comm=comm)
    return rows, lines.num_rows


def test_existing_ranks_keep_the_words_that_they_own(corpus, job):
    paths, text = corpus
    shares, line_counts = zip(*job.run(_owners, paths), strict=True)

    assert sorted(pairs(rp.KeyValues.joined(shares))) == sorted(ordered(text))
    assert {str(rows.keys.type) for rows in shares} == {"large_binary"}
    assert line_counts == (rp.grep("import", paths).num_rows, 0, 0)


QUERIES = [
    Query("import"),
    Query("IMPORT", ignore_case=True),
    Query(r"^\s*$"),
    Query(r"^$", invert=True),
    Query(r"re\.", fixed=True),
    Query("a.c|[^ -~]"),
    Query(r"\bdef\b.*:$", max_count=3),
    Query("e", invert=True, max_count=5),
    Query("e", max_count=0),
]


def expected_lines(text: bytes, query: Query) -> list[tuple[int, bytes]]:
    pattern = re.escape(query.pattern) if query.fixed else query.pattern
    compiled = re.compile(pattern.encode(), re.IGNORECASE if query.ignore_case else 0)
    lines = text.removesuffix(b"\n").split(b"\n") if text else []
    found = [(at, line) for at, line in enumerate(lines, 1) if bool(compiled.search(line)) != query.invert]
    return found[: query.max_count]


def _searched(comm, paths, split_bytes):
    from ripieno.text import search as module

    module.SPLIT_BYTES, module.BLOCK_BYTES = split_bytes, 300
    for query in QUERIES:
        got = module._table(comm, paths, query)
        counts = Counter()
        for found in search(comm, paths, query):
            for split, count, _ in found:
                counts[split.path] += count
        yield got, counts


def _searched_all(comm, paths, split_bytes):
    return list(_searched(comm, paths, split_bytes))


def test_lines_match_the_re_module(corpus, job, monkeypatch):
    paths, _ = corpus
    for name in ("SPLIT_BYTES", "BLOCK_BYTES"):
        monkeypatch.setattr(f"ripieno.text.search.{name}", 0)
    with rp.launch(workers=1, threads=2) as alone:
        (of_one,) = alone.run(_searched_all, paths, 1 << 20)
    results = job.run(_searched_all, paths, 1000)

    for at, (table, counts) in enumerate(of_one):
        assert (table, counts) == results[0][at], "cuts change nothing"
    for query, (table, counts), *others in zip(QUERIES, *results, strict=True):
        expected = [(path, number, line) for path in paths for number, line in expected_lines(_text(path), query)]
        columns = table.to_pydict().values()
        got = [(path, number, _bytes(line)) for path, number, line in zip(*columns, strict=True)]
        assert got == expected, query
        assert +counts == Counter(path for path, _, _ in expected)
        assert all(other[1] == counts and other[0].num_rows == 0 for other in others)


def _bytes(line: str | bytes) -> bytes:
    return line if isinstance(line, bytes) else line.encode()


def _text(path: str) -> bytes:
    data = Path(path).read_bytes()
    return gzip.decompress(data) if path.endswith(".gz") else data


def test_the_command_writes_all_words_and_prints_the_first(corpus, tmp_path, capsys):
    paths, text = corpus
    want = ordered(text)
    outs = [tmp_path / name for name in ("counts.parquet", "counts.csv", "counts.npz")]
    real = str(REAL[0])
    for out, inputs in zip(outs, (paths, [real], paths), strict=True):
        options = ["--threads", "2", "--top", "3", "--memory-limit", "1MiB", "--out", str(out)]
        assert main(["wordcount", *inputs, *options]) == 0

    printed = capsys.readouterr()
    first = [line.split() for line in printed.out.splitlines()[:3]]
    assert first == [[f"{count:,}", word.decode()] for word, count in want[:3]]
    assert f"{sum(count for _, count in want):,} words, {len(want):,} distinct" in printed.err
    table = pq.read_table(outs[0]).to_pydict()
    assert list(zip(table["word"], table["count"], strict=True)) == want
    of_one = ordered(REAL[0].read_bytes())
    table = pyarrow.csv.read_csv(outs[1], parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True))
    assert table["word"].cast("binary").to_pylist() == [word for word, _ in of_one]
    with np.load(outs[2]) as columns:
        ends = columns["offsets"]
        assert [columns["data"][a:b].tobytes() for a, b in pairwise(ends)] == [w for w, _ in want]
        assert columns["count"].tolist() == [count for _, count in want]


def test_words_that_are_not_utf8_are_written_unchanged(tmp_path):
    text = b'caf\xe9 caf\xe9 "quoted",comma\n'
    (tmp_path / "latin1.txt").write_bytes(text)

    assert main(["wordcount", str(tmp_path / "latin1.txt"), "--out", str(tmp_path / "counts.csv")]) == 0
    table = pyarrow.csv.read_csv(tmp_path / "counts.csv")
    assert list(zip(table["word"].cast("binary").to_pylist(), table["count"].to_pylist(), strict=True)) == ordered(text)


def printed_by(capfdbinary, *words: object) -> tuple[int, bytes]:
    code = main(["grep", *map(str, words)])
    return code, capfdbinary.readouterr().out


def test_grep_prints_as_grep_does(tmp_path, capfdbinary):
    a, b = tmp_path / "a.log", tmp_path / "b.log.gz"
    a.write_bytes(b"ERROR 1\nfine\n\xffERROR 2")
    b.write_bytes(gzip.compress(b"fine\nerror (x)\n"))
    empty = tmp_path / "c.log"
    empty.touch()

    assert printed_by(capfdbinary, "ERROR", a) == (0, b"ERROR 1\n\xffERROR 2\n")
    assert printed_by(capfdbinary, "-n", "-m", 1, "ERROR", a) == (0, b"1:ERROR 1\n")
    both = (str(a).encode(), str(b).encode())
    assert printed_by(capfdbinary, "-i", "-n", "ERROR", a, b) == (
        0, b"%s:1:ERROR 1\n%s:3:\xffERROR 2\n%s:2:error (x)\n" % (both[0], *both)
    )  # fmt: skip
    assert printed_by(capfdbinary, "-w", 2, "-v", "(?i)error", a, b) == (0, b"%s:fine\n%s:fine\n" % both)
    assert printed_by(capfdbinary, "-F", "(x)", b) == (0, b"error (x)\n")
    counts = b"%s:2\n%s:0\n%s:0\n" % (*both, str(empty).encode())
    assert printed_by(capfdbinary, "-c", "ERROR", tmp_path / "*.log*") == (0, counts)
    assert printed_by(capfdbinary, "-m", 1, "ERROR", a, a) == (0, b"%s:ERROR 1\n" % both[0] * 2)
    assert printed_by(capfdbinary, "-c", "ERROR", a, a) == (0, b"%s:2\n" % both[0] * 2)
    assert printed_by(capfdbinary, "-c", "nowhere", a) == (1, b"0\n")
    assert printed_by(capfdbinary, "nowhere", a, b) == (1, b"")


@pytest.mark.parametrize("in_place", [False, *exhaustively(True)])
def test_the_partitions_of_a_partition_file_are_searched_as_files(tmp_path, capfdbinary, in_place):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {number}\n" for number in range(1000)))
    options = {"in_place": True} if in_place else {"replicas": 2, "nodes": ["a", "b"]}
    path = rp.input.divide(text, tmp_path / "parts", partitions=3, **options)
    files = [text] if in_place else [part.path for part in rp.input.open_partitions(path)]
    expected = printed_by(capfdbinary, "-n", "-m", 2, "9.$", *files)

    assert expected[1]
    for source in (path, path.parent):
        assert printed_by(capfdbinary, "-n", "-m", 2, "-w", 2, "9.$", source) == expected
        assert printed_by(capfdbinary, "-c", "9.$", source) == printed_by(capfdbinary, "-c", "9.$", *files)
    found = rp.grep("9.$", path)
    assert found.equals(rp.grep("9.$", files))
    assert rp.count_words(path).sorted().to_arrow().equals(rp.count_words(text).sorted().to_arrow())


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["grep", "a(b", "TEXT"], 'ripieno: pattern="a(b": unclosed group, at character 2\n'),
        (["grep", "a", "/dev/null"], "/dev/null is a pipe or a device"),
        (["wordcount", "PIPE"], "pipe is a pipe or a device, which only one reader can read: copy it to a file first"),
        (["wordcount", "/proc/self/status"], "/proc/self/status does not report its length"),
        (["grep", "a", "nowhere.txt"], "nowhere.txt does not exist"),
        (["grep", "a", "no*where"], "no file matches"),
        (["grep", "a", "DAMAGED"], "is damaged"),
        (["wordcount", "TEXT", "DAMAGED", "--workers", "2", "--out", "OUT"], "damaged.gz is damaged"),
        (["wordcount", "nowhere.txt", "--out", "OUT"], "nowhere.txt does not exist"),
        (["wordcount", "TEXT", "--out", "counts.json"], "unknown kind of file"),
        (["wordcount", "TEXT", "--out", "nowhere/counts.csv"], "nowhere is not a folder"),
        (["wordcount", "TEXT", "--memory-limit", "many"], "expected a size"),
        (["wordcount", "TEXT", "--memory-limit", "1000"], "--memory-limit 1000: expected 262,144 bytes or more"),
    ],
)
def test_errors_are_reported_and_leave_no_file(tmp_path, capsys, command, says):
    (tmp_path / "text.txt").write_text("a b\n")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "damaged.gz").write_bytes(gzip.compress(b"a b\n" * 100)[:-20])
    names = {"TEXT": "text.txt", "DAMAGED": "damaged.gz", "OUT": "counts.csv", "PIPE": "pipe"}
    before = set(tmp_path.iterdir())

    assert main([str(tmp_path / names[word]) if word in names else word for word in command]) == 2
    assert says in capsys.readouterr().err
    assert set(tmp_path.iterdir()) == before


def test_ranks_of_a_launcher_count_and_search_together(tmp_path, capfd):
    from ripieno.cli.run import run_command

    out = tmp_path / "counts.csv"
    for words_ in (
        ["wordcount", str(REAL[0]), "--out", str(out), "--top", "1"],
        ["grep", "-c", "import", str(REAL[0])],
    ):
        with pytest.raises(SystemExit) as end:
            run_command(["-n", "2", "-m", "ripieno.cli", *words_])
        assert not end.value.code
    text = REAL[0].read_bytes()
    (word, count), *_ = ordered(text)
    assert (
        capfd.readouterr().out
        == f"[rank 0] {count:,}  {word.decode()}\n[rank 0] {len(re.findall(rb'.*import.*', text))}\n"
    )
    assert out.exists()


ODD = {
    "bom.txt": b"\xef\xbb\xbfa b\na\n",
    "crlf.txt": b"a b\r\nc a\r\n",
    "empty.txt": b"",
    "latin1.txt": b"caf\xe9 a\n",
    "nothing.txt.gz": gzip.compress(b""),
    "one-line.txt": b"a b c",
    "zero.txt.gz": b"",
}


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_unusual_files_give_equal_results_on_any_number_of_ranks(world, tmp_path, workers):
    for name, content in ODD.items():
        (tmp_path / name).write_bytes(content)
    texts = {name: gzip.decompress(content) if name.endswith("gz") else content for name, content in ODD.items()}

    def program(comm, paths):
        words = [rp.count_words(path, comm=comm) for path in paths]
        lines = [rp.grep("a", path, comm=comm)["line"].to_pylist() for path in paths]
        shares = [rp.input.share(rp.input.splits(path, count=5), comm) for path in paths]
        return [dict(zip(w.keys.cast("large_binary").to_pylist(), w.values.tolist(), strict=True)) for w in words], (
            lines,
            [b"".join(part.read() for part in mine) for mine in shares],
        )

    paths = [str(tmp_path / name) for name in ODD] + [str(tmp_path)]
    parts = world(workers).run(program, paths)

    for at, text in enumerate([*texts.values(), b"\n".join(texts.values())]):
        counted = Counter()
        for words, _ in parts:
            counted.update(words[at])
        assert counted == Counter(text.split())
        lines = [number for _, (lines, _) in parts for number in lines[at]]
        if at < len(texts):
            assert lines == [number for number, line in enumerate(text.split(b"\n"), 1) if b"a" in line]
            read = b"".join(read[at] for _, (_, read) in parts)
            assert sorted(read.splitlines(keepends=True)) == sorted(text.splitlines(keepends=True))
