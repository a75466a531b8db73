"""Input from a real HDFS and results to it, by WebHDFS, with ranks on this machine."""

from __future__ import annotations

import http.server
import json
import socket
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from hadoop import Hadoop
from ripieno.files import sources as files
from ripieno.files.results import new_file, new_folder, save_array
from varied import exhaustively

pytestmark = pytest.mark.timeout(300)

ROWS = np.random.default_rng(0).normal(size=(3000, 4))


@pytest.fixture
def folder(mini_hadoop: Hadoop):
    """A new folder in HDFS, by its URL."""
    files = mini_hadoop.files
    files.makedirs("/test")
    yield mini_hadoop.variables["WEBHDFS"] + "/test"
    files.rm("/test", recursive=True)


def put(mini_hadoop: Hadoop, name: str, write) -> None:
    with mini_hadoop.files.open(f"/test/{name}", "wb") as file:
        write(file)


def names(mini_hadoop: Hadoop) -> list[str]:
    return sorted(path.removeprefix("/test/") for path in mini_hadoop.files.find("/test"))


def written(mini_hadoop: Hadoop, kind: str) -> str:
    """Write the rows there and return the suffix of the folder's URL that names them."""
    if kind == "npy":
        for number, part in enumerate(np.array_split(ROWS, 3)):
            put(mini_hadoop, f"{number}.npy", lambda file, part=part: np.save(file, part))
        return "/*.npy"
    columns = pa.table({f"f{at}": column for at, column in enumerate(ROWS.T)})
    writers = {
        "npz": lambda file: np.savez_compressed(file, vectors=ROWS),
        "parquet": lambda file: pq.write_table(columns, file, row_group_size=700),
        "csv": lambda file: np.savetxt(file, ROWS, "%.17g", ","),
    }
    put(mini_hadoop, f"rows.{kind}", writers[kind])
    return ""


@pytest.mark.parametrize("kind", ["npy", "parquet", *exhaustively("npz", "csv")])
def test_kmeans_of_files_in_hdfs_has_the_bits_of_kmeans_of_the_array(mini_hadoop, folder, kind):
    source = folder + written(mini_hadoop, kind)
    options = {"n_clusters": 5, "random_state": 0, "max_iter": 5, "tol": 0, "workers": 2, "threads": 1}

    model = rp.KMeans(**options).fit(source)

    expected = rp.KMeans(**options).fit(ROWS)
    # Text is divided by bytes, so its rows are summed in another order.
    if kind == "csv":
        np.testing.assert_allclose(model.cluster_centers_, expected.cluster_centers_, rtol=1e-12)
    else:
        assert model.cluster_centers_.tobytes() == expected.cluster_centers_.tobytes()


@pytest.mark.parametrize(("kind", "count"), [("npy", 6), ("parquet", 4), ("csv", 7)])
def test_splits_of_files_in_hdfs_hold_every_row_once(mini_hadoop, folder, kind, count):
    source = folder + written(mini_hadoop, kind)

    parts = [part.read() for part in rp.input.splits(source, count=count, header=False)]

    assert len(parts) == count
    if kind == "npy":
        np.testing.assert_array_equal(np.concatenate(parts), ROWS)
    else:
        np.testing.assert_array_equal(np.stack([column.to_numpy() for column in pa.concat_tables(parts)], 1), ROWS)


def test_a_result_in_hdfs_replaces_an_older_one_as_a_whole(mini_hadoop, folder):
    for text in ("old", "new"):
        with new_file(f"{folder}/deep/a.txt") as part:
            part.write_text(text)
            assert (text == "new") == ("deep/a.txt" in names(mini_hadoop))
        with new_folder(f"{folder}/model", ["b.txt", "c.npy"]) as part:
            (part / "b.txt").write_text(text)
            # More than fits into one request.
            save_array(part / "c.npy", np.arange(5_000_000.0))

    assert names(mini_hadoop) == ["deep/a.txt", "model/b.txt", "model/c.npy"]
    assert mini_hadoop.files.cat("/test/deep/a.txt") == mini_hadoop.files.cat("/test/model/b.txt") == b"new"
    (split,) = rp.input.splits(f"{folder}/model/c.npy", count=1)
    np.testing.assert_array_equal(split.read(), np.arange(5_000_000.0))


def test_a_failed_result_leaves_nothing_in_hdfs(mini_hadoop, folder):
    with pytest.raises(ZeroDivisionError), new_file(f"{folder}/a.txt") as part:
        part.write_text("a")
        raise ZeroDivisionError

    assert names(mini_hadoop) == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("{hdfs}/none.npy", r"/none.npy does not exist"),
        ("{hdfs}/*.none", r"no file matches"),
        ("webhdfs://127.0.0.1:1/a.npy", r"webhdfs://127.0.0.1:1/a.npy cannot be read: .*refused"),
        ("hdfs://127.0.0.1:1/a.npy", r"libhdfs, which cannot be loaded here: expected webhdfs://NAMENODE:9870/"),
    ],
)
@pytest.mark.parametrize("read", [rp.KMeans(2).fit, rp.input.splits], ids=["fit", "splits"])
def test_unreadable_files_are_reported(folder, url, message, read):
    with pytest.raises(rp.InputError, match=message):
        read(url.format(hdfs=folder))


def test_unwritable_results_are_reported_before_any_work(mini_hadoop, folder):
    put(mini_hadoop, "a.txt", lambda file: file.write(b"a"))
    for place, new, message in (
        (folder, new_file, "is a folder"),
        (folder, new_folder, "exists and is not empty"),
        (f"{folder}/a.txt", new_folder, "is not a folder"),
        ("webhdfs://127.0.0.1:1/a", new_file, "cannot be written: .*refused"),
    ):
        with pytest.raises(rp.InputError, match=message), new(place):
            pytest.fail("work has begun")


class Refusing(http.server.BaseHTTPRequestHandler):
    """A name node with a data node that refuses reads."""

    def do_GET(self) -> None:
        status = {"FileStatus": {"length": 100, "type": "FILE", "pathSuffix": ""}}
        code = 200 if "GETFILESTATUS" in self.path else 307 if "at=data" not in self.path else 403
        body = json.dumps(status).encode() if code == 200 else b"x" * 100
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        if code == 307:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/?at=data")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize("chained", ["", "simplecache::"])
def test_an_error_page_of_a_data_node_is_not_read_as_the_file(chained):
    pytest.importorskip("requests", reason="needs requests: pip install 'ripieno[hdfs]'")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            (split,) = rp.input.splits(f"{chained}webhdfs://127.0.0.1:{server.server_port}/a.txt", count=1)
            with pytest.raises(rp.InputError, match=r"a\.txt cannot be read.*403"):
                split.read()
        finally:
            server.shutdown()


def test_a_silent_node_runs_into_a_timeout(monkeypatch):
    pytest.importorskip("requests", reason="needs requests: pip install 'ripieno[hdfs]'")
    monkeypatch.setattr(files, "WEBHDFS_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"webhdfs://127.0.0.1:{silent.getsockname()[1]}/a.npy"
        with pytest.raises(rp.InputError, match=r"a\.npy cannot be read: .*timed out"):
            rp.input.splits(url, count=1)
        with pytest.raises(rp.InputError, match=r"a\.npy cannot be written: .*timed out"), new_file(url):
            pass
