"""Splits hold every record once for any boundaries; ranks read local data, in equal amounts."""

from __future__ import annotations

import bz2
import functools
import gzip
import http.server
import importlib.util
import io
import itertools
import lzma
import pickle
import threading
from collections import Counter

import fsspec
import networkx as nx
import numpy as np
import pytest
import ripieno as rp
from hypothesis import given, settings
from hypothesis import strategies as st
from ripieno.input import Split, assign, share, splits
from ripieno.input.formats.text import Text
from varied import exhaustively

COUNTS = [1, 2, 7, 20, *exhaustively(*(count for count in range(3, 20) if count != 7))]
TEXTS = {
    "lines.txt": b"".join(b"line %d\n" % i for i in range(50)),
    "crlf.txt": b"".join(b"line %d\r\n" % i for i in range(50)),
    "no-end.txt": b"one\ntwo\nthree",
    "blank.txt": b"\n\n\none\n\n\ntwo\n\n",
    "giant.txt": b"a\n" + b"x" * 5000 + b"\nb\nc\n",
    "only-one.txt": b"y" * 3000,
    "one-byte.txt": b"z",
    "feed.txt": b"\n",
    "not-utf8.txt": b"\xff\xfe\n\x00\x01\n\xe4\n",
}


@pytest.fixture
def texts(tmp_path):
    for name, content in TEXTS.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "empty.txt").touch()
    return tmp_path


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("count", COUNTS)
def test_splits_of_text_are_all_lines_once_and_in_order(texts, name, count):
    parts = splits(texts / name, count=count)

    read = [part.read() for part in parts]
    assert b"".join(read) == TEXTS[name]
    assert 1 <= len(parts) <= count
    assert all(text.endswith(b"\n") for text in list(filter(None, read))[:-1])
    assert [b"".join(part.blocks(7)) for part in parts] == read
    assert sum(part.size_bytes for part in parts) == len(TEXTS[name])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([b"\n", b"\r\n", b"word", b"\x00\xff"]), min_size=1), st.integers(1, 20), st.integers(1, 9)
)
def test_any_text_is_read_once(tmp_path_factory, words, count, block_bytes):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(b"".join(words))

    parts = splits(path, count=count)

    assert b"".join(part.read() for part in parts) == b"".join(words)
    lines = [line for part in parts for block in part.blocks(block_bytes) for line in io.BytesIO(block)]
    assert lines == list(io.BytesIO(b"".join(words)))


def test_blocks_are_whole_lines_and_exceed_the_limit_by_less_than_a_line(texts):
    blocks = list(splits(texts / "lines.txt", count=1)[0].blocks(20))

    assert len(blocks) > 10
    with pytest.raises(rp.InputError, match="block_bytes=0"):
        splits(texts / "lines.txt")[0].blocks(0)
    assert all(block.endswith(b"\n") and len(block) < 20 + len(b"line 49\n") for block in blocks)


@pytest.mark.parametrize("count", COUNTS)
def test_several_files_are_split_by_their_length(texts, count):
    parts = splits([texts / "lines.txt", texts / "empty.txt", texts / "giant.txt"], count=count)

    assert b"".join(part.read() for part in parts) == TEXTS["lines.txt"] + TEXTS["giant.txt"]
    assert len(parts) == max(count, 2)
    if count >= 14:
        assert max(part.size_bytes for part in parts) < 1.2 * sum(part.size_bytes for part in parts) / count


def test_splits_are_not_larger_than_the_requested_bytes(texts):
    parts = splits(str(texts / "*.txt"), bytes=100)

    assert max(part.size_bytes for part in parts) == 100
    assert b"".join(part.read() for part in parts) == b"".join(TEXTS[name] for name in sorted(TEXTS))


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_a_compressed_file_is_one_split_unpacked_while_it_is_read(tmp_path, ending, pack):
    content = TEXTS["lines.txt"] * 100
    path = tmp_path / f"a.txt.{ending}"
    # Two concatenated archives are also one archive.
    path.write_bytes(pack(content) + pack(b"more"))

    (part,) = splits(path, count=8)

    assert part.read() == content + b"more"
    blocks = list(part.blocks(1000))
    assert b"".join(blocks) == content + b"more" and len(blocks) > 30
    assert part.size_bytes == path.stat().st_size and str(part) == f"{path}, whole"


def test_a_split_is_small_and_survives_pickling(texts):
    part = splits(texts / "lines.txt", count=3)[1]

    assert len(pickle.dumps(part)) < 500
    assert pickle.loads(pickle.dumps(part)) == part
    assert str(part) == f"{texts}/lines.txt, bytes 130 … 260"


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_urls_are_read_by_fsspec(texts, kind):
    root = "memory://texts" if kind == "memory" else f"file://{texts}"
    if kind == "memory":
        for name in TEXTS:
            with fsspec.open(f"{root}/{name}", "wb") as file:
                file.write(TEXTS[name])

    for source in (root, f"{root}/*.txt"):
        parts = splits(source, count=20)
        assert b"".join(part.read() for part in parts) == b"".join(TEXTS[name] for name in sorted(TEXTS))


def test_input_that_cannot_be_read_is_reported(texts):
    damaged = texts / "damaged.gz"
    damaged.write_bytes(gzip.compress(np.random.default_rng(0).bytes(100_000))[:60_000])
    with pytest.raises(rp.InputError, match=r"damaged.gz is damaged from byte .* of the decompressed text"):
        list(splits(damaged)[0].blocks(1000))
    part = splits(texts / "lines.txt", count=2)[1]
    (texts / "lines.txt").write_bytes(b"short\n")
    with pytest.raises(rp.InputError, match=r"lines.txt has 6 bytes, but had 390 when it was split"):
        part.read()
    (texts / "lines.txt").unlink()
    with pytest.raises(rp.InputError, match=r"lines.txt does not exist"):
        part.read()
    for source, message in [
        (texts / "lines.txt", "does not exist"),
        (texts / "not-*.csv", "no file matches"),
        ("memory://nowhere/a.txt", "does not exist"),
        ("memory://nowhere/*.txt", "no file matches"),
        ("nope://a/b", "nope://a/b: Protocol not known: nope"),
        ([], "no file is given"),
        (texts / "a.zip", "archives"),
    ]:
        if str(source).endswith("zip"):
            source.touch()
        with pytest.raises(rp.InputError, match=message):
            splits(source)
    for wrong in ({"count": 0}, {"bytes": -1}, {"count": 1, "bytes": 1}, {"format": "pdf"}):
        with pytest.raises(rp.InputError, match=next(iter(wrong))):
            splits(texts / "no-end.txt", **wrong)


def test_http_is_read_or_reports_the_missing_package(texts):
    served = functools.partial(http.server.SimpleHTTPRequestHandler, directory=texts)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), served) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/lines.txt"
        try:
            if importlib.util.find_spec("aiohttp") is None:
                with pytest.raises(rp.InputError, match=r'lines.txt cannot be opened: .* "aiohttp" to be installed'):
                    splits(url)
            else:
                assert splits(url)[0].read() == TEXTS["lines.txt"]
                with pytest.raises(rp.InputError, match=r"lines.txt cannot be read .*range requests"):
                    splits(url, count=2)[1].read()
        finally:
            server.shutdown()
            thread.join()


def split_at(hosts, size_bytes=100):
    return Split("a", Text(), 0, size_bytes, size_bytes, tuple(hosts))


def brute_force(near, hosts):
    """Return the maximum number of local splits with at most ceil(n / p) per rank, and the most even loads for it."""
    n, p = len(near), len(hosts)
    best = (-1, 0)
    for ranks in itertools.product(range(p), repeat=n):
        loads = Counter(ranks)
        if max(loads.values()) <= -(-n // p):
            local = sum(hosts[rank] in near[at] for at, rank in enumerate(ranks))
            difference = max(loads.values()) - min(loads[rank] for rank in range(p))
            best = max(best, (local, -max(difference, 1)))
    return best


@pytest.mark.parametrize("seed", [*range(10), *exhaustively(*range(10, 60))])
def test_most_data_is_read_locally_with_even_loads(seed):
    random = np.random.default_rng(seed)
    hosts = [f"h{random.integers(3)}" for _ in range(random.integers(1, 5))]
    near = [[f"h{host}" for host in range(4) if random.random() < 0.4] for _ in range(random.integers(1, 7))]

    assignment = assign([split_at(at) for at in near], hosts)

    assert sorted(at for numbers in assignment for at in numbers) == list(range(len(near)))
    loads = [len(numbers) for numbers in assignment]
    assert (assignment.local_count, -max(1, max(loads) - min(loads))) == brute_force(near, hosts)


@pytest.mark.parametrize("seed", range(5))
def test_the_number_of_local_splits_is_the_maximum_flow(seed):
    random = np.random.default_rng(seed)
    hosts = [f"h{at % 17}" for at in range(40)]
    near = [{f"h{host}" for host in random.zipf(1.5, 3) % 19} for _ in range(500)]

    assignment = assign([split_at(sorted(at)) for at in near], hosts)

    network = nx.DiGraph()
    for at, names in enumerate(near):
        network.add_edge("source", at, capacity=1)
        network.add_edges_from(((at, ("rank", rank)) for rank, host in enumerate(hosts) if host in names), capacity=1)
    for rank in range(len(hosts)):
        network.add_edge(("rank", rank), "sink", capacity=13)
    assert assignment.local_count == nx.maximum_flow_value(network, "source", "sink")
    assert max(map(len, assignment)) <= 13


@pytest.mark.parametrize("seed", [*range(4), *exhaustively(*range(4, 20))])
def test_splits_of_different_sizes_are_balanced_by_bytes(seed):
    random = np.random.default_rng(seed)
    hosts = [f"h{at % 3}" for at in range(random.integers(1, 8))]
    parts = [split_at([f"h{at % 3}"], int(size)) for at, size in enumerate(random.zipf(1.3, 60) % 1000 * 10**9 + 1)]

    assignment = assign(parts, hosts)

    assert sorted(at for numbers in assignment for at in numbers) == list(range(60))
    sizes = [part.size_bytes for part in parts]
    loads = [assignment.size_bytes(rank) for rank in range(len(hosts))]
    assert max(loads) <= 1.05 * sum(sizes) / len(hosts) + max(sizes)
    assert assign(parts, hosts) == assignment


def test_different_sizes_stay_local_if_loads_are_even():
    parts = [split_at([f"h{at % 4}", f"h{(at + 1) % 4}"], 10 + at // 4 * 10) for at in range(40)]

    assignment = assign(parts, ["h0", "h1", "h2", "h3"])

    assert assignment.local_count == 40
    assert max(assignment.size_bytes(rank) for rank in range(4)) <= 1.1 * sum(part.size_bytes for part in parts) / 4


def test_without_hosts_ranks_have_neighboring_splits():
    assert list(assign([split_at([])] * 7, ["a", "b", "c"])) == [[0, 1, 2], [3, 4], [5, 6]]


def test_an_assignment_is_printed_as_a_table():
    parts = [split_at(["a", "b"]), split_at(["a"]), split_at(["c"]), split_at(["x"]), split_at([])]

    table = str(assign(parts, ["a", "b"]))

    assert table.splitlines() == [
        "rank  host  splits  local       bytes  which",
        "   0  a          3      2         300  0 … 2",
        "   1  b          2      0         200  3, 4",
        "5 splits, 500 bytes; 2 of 4 local; the largest load: 300 bytes, 20.0% above the mean",
    ]


def test_ranks_share_splits_and_get_an_error_if_these_differ(world, texts):
    def program(comm, path):
        parts = splits(path, count=7)
        mine = share(parts, comm)
        try:
            share(parts[: 7 - comm.rank // 2], comm)
        except rp.InputError as error:
            return [part.read() for part in mine], str(error)

    results = world(3).run(program, str(texts / "lines.txt"))

    assert b"".join(text for mine, _ in results for text in mine) == TEXTS["lines.txt"]
    assert {error for _, error in results} == {
        "rank 2 has other splits (6) than rank 0 (7): cut the files on one rank and broadcast the splits"
    }
