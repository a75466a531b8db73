"""Every bound that docs/security.md lists: a larger value is an error that names the bound."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ripieno as rp
import scipy.sparse
from ripieno import plan
from ripieno._native import BlockFile
from ripieno.cli import main
from ripieno.files import npy
from ripieno.keyed.emitter import Emitter
from ripieno.lab import ClusterSpec
from ripieno.launch.kubernetes import names
from ripieno.launch.script import environment
from ripieno.simulation import Cluster, explain

PAGE = Path(__file__).parents[2] / "docs/security.md"

#: Bounds with tests of their own, in test_errors.py and in the native module.
ELSEWHERE = {"exception that the caller of `job.run` gets", "address of a rank in the store of rank 0"}


def documented() -> dict[str, str]:
    """Return the bounds of the page by their values."""
    section = PAGE.read_text().partition("\n## Bounds\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| (?!value|--)(.*?) \| (.*?) \|$", section, re.M))


def on_rank(program: Callable[[rp.Communicator], object], **options: Any) -> None:
    with rp.launch(workers=1, **options) as job:
        job.run(program)


def launched_by_variables(world_size: int) -> None:
    variables = {"RANK": "0", "WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999"}
    variables["RIPIENO_TOKEN"] = "0123456789abcdef" * 4
    environment.from_environment(variables, threads=1, rendezvous_timeout_s=1.0)


def read_header(length: int) -> None:
    npy.read_header(io.BytesIO(b"\x93NUMPY\x02\x00" + length.to_bytes(4, "little") + b" " * length))


#: A call that exceeds each bound, or the words of a command with ``FILE`` for a table of 100,001 columns.
BEYOND: dict[str, Callable[[], object] | list[str]] = {
    "threads of a rank": lambda: rp.launch(workers=1, threads=10**9),
    "starts of a fit (`n_init`)": lambda: rp.KMeans(2, n_init=10**9).fit(np.ones((3, 2))),
    "factors of ALS (`rank`)": lambda: rp.ALS(rank=10**9).fit(scipy.sparse.eye(3)),
    "bit strings of `EffectiveDiameter` (`n_strings`)": lambda: rp.EffectiveDiameter(n_strings=10**9).fit([[0, 1]]),
    "event of `comm.emit`": lambda: on_rank(lambda comm: comm.emit({"text": "x" * (17 << 20)}), on_event=print),
    "ranks of a job": lambda: launched_by_variables(1_000_001),
    "pods of a manifest": lambda: names.check_number("--workers", 100_001, names.PODS_MAX),
    "hosts of an emulated cluster": lambda: ClusterSpec(3, 200),
    "ranks and nodes of a simulated cluster, also of `ripieno explain`": lambda: Cluster(nodes=9, ranks_per_node=10**6),
    "bytes of a simulated message": lambda: explain("allreduce", Cluster(nodes=4), nbytes=2**50 + 1),
    "ranks of the plans of an algorithm": lambda: plan.catalogue(
        "allreduce", "ring", plan.Span("main", 0, 8, 8), 2**16 + 1
    ),
    "elements of a span of a plan": lambda: plan.Span("main", 0, 2**46 + 1, 4),
    "counts, such as `max_iter`, `degree` and `block_bytes`": lambda: on_rank(
        lambda comm: comm.broadcast_variable(1, strategy="csb", degree=2**63)
    ),
    "size of a Python integer in a sum": lambda: on_rank(lambda comm: comm.allreduce(2**72)),
    "tag of a message": lambda: on_rank(lambda comm: comm.recv(tag=2**62)),
    "color of a split": lambda: on_rank(lambda comm: comm.split(2**32)),
    "blocks of a file that is distributed": lambda: BlockFile.fill("/none", 2**40, 2**19, b""),
    "columns": lambda: rp.hash_features([{}], n_features=2**31),
    "columns in the first line of a text file": ["kmeans", "FILE", "--clusters", "2"],
    "workers that `ripieno split --workers` plans for": ["split", "FILE", "--out", "/none", "--workers", "100001"],
    "copies of a partition": ["split", "FILE", "--out", "/none", "-p", "2", "--replicas", "1001"],
    "header of an .npy file": lambda: read_header(10_001),
    "name of a Kubernetes object": lambda: names.check_length("--name", "a" * 64, "a" * 64),
    "script in a manifest": lambda: names.check_script("a.py", "#" * (2**20 + 1)),
}


def test_every_bound_of_the_page_is_tested():
    assert documented().keys() == BEYOND.keys() | ELSEWHERE


@pytest.mark.parametrize(
    "exceed",
    [
        lambda: rp.KMeans(2, threads=10**9).fit(np.ones((3, 2))),
        lambda: rp.MapReduce(len, threads=10**9),
        lambda: Emitter(1, threads=10**9),
        lambda: on_rank(lambda comm: comm.team(10**9)),
        lambda: environment.from_environment({"RIPIENO_THREADS": "1000000000"}, threads=None),
        lambda: environment.from_environment({}, threads=10**9),
    ],
)
def test_every_number_of_threads_is_bounded(exceed):
    with pytest.raises(rp.InputError, match=r"(?i)threads=1000000000: expected a whole number, 1 … 4096"):
        exceed()


@pytest.mark.parametrize("value", BEYOND)
def test_a_larger_value_is_an_error_that_names_the_bound(value, tmp_path, capsys):
    beyond, bound = BEYOND[value], documented()[value]
    if isinstance(beyond, list):
        file = tmp_path / "wide.csv"
        file.write_text(",".join(["0"] * 100_001))
        assert main([str(file) if word == "FILE" else word for word in beyond]) == 2
        text = capsys.readouterr().err
    else:
        with pytest.raises(ValueError) as raised:
            beyond()
        text = str(raised.value)
    least = re.search(r"\d[\d,]*(\*\*\d+)?", bound)
    assert least is not None and least[0].replace(",", "") in text.replace(",", "")
