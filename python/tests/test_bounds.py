"""Every bound that docs/security.md lists: a larger value is an error that names the bound."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import ripieno as rp
import scipy.sparse
from ripieno import plan
from ripieno._native import BlockFile
from ripieno.cli import COMMANDS, main
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


SPARSE = ["explain", "sparse", "--density", "0.1"]

#: A call that exceeds each bound, or the arguments of a command with ``FILE`` for a table of 100,001 columns.
BEYOND: dict[str, Callable[[], object] | list[str]] = {
    "threads of a rank": lambda: rp.launch(workers=1, threads=10**9),
    "starts of a fit (`n_init`)": lambda: rp.KMeans(2, n_init=10**9).fit(np.ones((3, 2))),
    "edge length of a layout (`k`), and coordinates of `init`": lambda: rp.FruchtermanReingold(k=1e300).fit([[0, 1]]),
    "penalty of `LogisticRegression` (1 / `C`)": lambda: rp.LogisticRegression(C=1e-320).fit(np.eye(2), [0, 1]),
    "factors of ALS (`rank`)": lambda: rp.ALS(rank=10**9).fit(scipy.sparse.eye(3)),
    "bit strings of `EffectiveDiameter` (`n_strings`)": lambda: rp.EffectiveDiameter(n_strings=10**9).fit([[0, 1]]),
    "event of `comm.emit`": lambda: on_rank(lambda comm: comm.emit({"text": "x" * (17 << 20)}), on_event=print),
    "timeouts of a job in seconds, such as `rendezvous_timeout_s`": lambda: rp.launch(rendezvous_timeout_s=2.0**63),
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
    "sizes that `ripieno bench`, `ripieno packets` and `ripieno tune broadcast` measure": [
        "bench",
        "allreduce",
        "--sizes",
        "1000000GB",
    ],
    "seconds that a command waits or measures": ["bench", "allreduce", "--timeout", "1e300"],
    "repetitions of a measurement": ["bench", "allreduce", "--repetitions", "1000000000"],
    "points of `ripieno bench threads`": ["bench", "threads", "--points", "1000000000"],
    "restarts of a JobSet": ["kubernetes", "FILE", "--image", "x", "-n", "2", "--jobset", "--restarts", "3000000000"],
    "ranks of `ripieno explain sparse`": [*SPARSE, "--ranks", "1000000000", "--exponent", "1", "--features", "9"],
    "features of `ripieno explain sparse`": [*SPARSE, "--ranks", "2", "--exponent", "1", "--features", "1e30"],
    "exponent of `ripieno explain sparse`": [*SPARSE, "--ranks", "2", "--exponent", "1e300", "--features", "9"],
    "vertices that `vertex_count` adds": lambda: rp.BFS(0).fit(rp.Graph(np.array([[0, 1]]), vertex_count=10**12)),
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


def test_the_rendezvous_timeout_of_a_launched_rank_is_bounded():
    variables = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999"}
    variables |= {"RIPIENO_TOKEN": "0123456789abcdef" * 4, "RIPIENO_RENDEZVOUS_TIMEOUT_S": str(2**63)}
    with pytest.raises(rp.InputError, match=r"rendezvous_timeout_s=9.2\d+e\+18: expected at most 1,000,000,000 s"):
        environment.from_environment(variables, threads=1)


@pytest.mark.parametrize("value", BEYOND)
def test_a_larger_value_is_an_error_that_names_the_bound(value, tmp_path, monkeypatch, capsys):
    beyond, bound = BEYOND[value], documented()[value]
    # Some commands write to a folder of the working directory.
    monkeypatch.chdir(tmp_path)
    if isinstance(beyond, list):
        file = tmp_path / "wide.csv"
        file.write_text(",".join(["0"] * 100_001))
        assert main([str(file) if word == "FILE" else word for word in beyond]) == 2
        text = capsys.readouterr().err
    else:
        with pytest.raises(ValueError) as raised:
            beyond()
        text = str(raised.value)
    assert (least := re.search(r"\d[\d,]*(\*\*\d+)?", bound)) is not None
    assert least[0].replace(",", "") in text.replace(",", "")


#: Names of options for numbers without an upper bound. A larger number only makes the command run longer.
ANY_NUMBER = {
    *("alpha", "c", "compute", "cooling", "contrast-floor", "delta", "every", "first", "gflops", "iterated-power", "k"),
    *("keep", "max-count", "max-iter", "n-oversamples", "reg", "seed", "theta", "threshold", "tol", "top", "verbose"),
}
#: Numbers that are compared with the data, with a file or with another option.
COMPARED = {
    "clusters",
    "components",
    "degree",
    "partitions",
    "patch",
    "port",
    "ranks-per-host",
    "record-bytes",
    "stride",
}
#: Numbers that are compared with a row of the page.
ON_PAGE = {"cores", "hosts", "nodes", "n-init", "racks", "ranks", "replicas", "root", "vertex-count", "workers"}


def options(path: list[str], command: click.Command) -> Iterator[tuple[str, click.Option]]:
    """Yield the command and each option for a number."""
    context = click.Context(command)
    parts = dict(getattr(command, "parts", {}))
    if isinstance(command, click.Group):
        parts |= {name: command.get_command(context, name) for name in command.list_commands(context)}
    for name, part in parts.items():
        yield from options([*path, name], part)
    for option in command.params:
        if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
            yield " ".join(path), option


def all_options() -> Iterator[tuple[str, click.Option]]:
    for name, (place, _) in COMMANDS.items():
        module, function = place.split(":")
        yield from options([name], getattr(import_module(f"ripieno.cli.{module}"), function))


def test_every_number_of_a_command_has_a_known_bound():
    unlimited = [each for each in all_options() if getattr(each[1].type, "max", None) is None]
    found = {(command, max(option.opts, key=len).lstrip("-")) for command, option in unlimited}
    assert len(found) > 50
    unknown = {each for each in found if each[1] not in ANY_NUMBER | COMPARED | ON_PAGE}
    assert not unknown


def test_every_range_of_whole_numbers_of_a_command_ends_below_2_to_the_63():
    ranges = [each for each in all_options() if isinstance(each[1].type, click.IntRange) and not each[1].count]
    assert len(ranges) > 100
    for command, option in ranges:
        with pytest.raises(click.BadParameter) as raised:
            option.type.convert(str(2**63), option, click.Context(click.Command(command)))
        text = raised.value.format_message()
        bound = "2**63" if option.type.max is None else str(option.type.max)
        assert bound in text, f"{command} {option.name}: {text}"


@pytest.mark.parametrize(
    "command", ["bench model --bytes 1000000GB --shapes 4", "bench strategies --bytes 1000000GB --hosts 4"]
)
def test_a_value_for_more_emulated_hosts_than_the_memory_holds_is_an_error(command, capsys):
    assert main(command.split()) == 2
    assert "the vectors of 4 ranks must fit into the memory of this machine" in capsys.readouterr().err


def test_more_clusters_than_patches_end_the_demo_at_once(tmp_path, capsys):
    assert main(["demo", "--clusters", "1000000000", "--out", str(tmp_path / "out")]) == 2
    text = capsys.readouterr().err
    assert re.search(r"--clusters 1000000000: expected at most \d+, the number of patches", text)
    assert "$ ripieno" not in text, "no features are extracted before"


@pytest.mark.parametrize(
    "command",
    [
        "bench allreduce --ranks 1000000000",
        "demo --workers 1000000000",
        "packets --workers 1000000000",
        "tune --workers 1000000000",
        "tune broadcast --workers 1000000000",
        "distribute FILE --out /none --workers 1000000000",
        "run --workers 1000000000 FILE",
        "wordcount FILE --workers 1000000000",
        "grep x FILE --workers 1000000000",
        "aggregate FILE --by a --count --workers 1000000000",
        "kmeans FILE --clusters 2 --workers 1000000000 --out /none/out",
        "pagerank FILE --workers 1000000000",
    ],
)
def test_more_ranks_than_the_memory_holds_are_an_error(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.csv").write_text("a,b\n1,2\n")
    assert main(["file.csv" if word == "FILE" else word for word in command.split()]) == 2
    assert "expected at most" in (text := capsys.readouterr().err) and "a process takes at least 20 MiB" in text
