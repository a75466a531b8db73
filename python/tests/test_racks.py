"""Racks: given by a file, a dict or the environment, and known on every rank."""

import json
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import ripieno as rp
from click.testing import CliRunner
from ripieno.cli.run import run_command
from ripieno.errors import InputError
from ripieno.lab import Lab, missing_requirement
from ripieno.launch.job import programs
from ripieno.launch.racks import found_racks, rack_of_this_host
from ripieno.topology import Host, Topology
from ripieno.topology.rack_names import read

HOST = socket.gethostname()


def _write(path, text):
    path.write_text(text)
    return str(path)


def test_a_file_names_racks_by_host_or_pattern(tmp_path):
    file = _write(tmp_path / "racks.toml", f'[racks]\nnorth = ["other-*"]\nsouth = ["x", "{HOST[:2]}*"]\n')

    assert read(file) == {"north": ["other-*"], "south": ["x", f"{HOST[:2]}*"]}
    assert rack_of_this_host(file, {}) == "south"
    assert rack_of_this_host(None, {"RIPIENO_RACKS": file}) == "south"


def test_an_argument_overrides_the_variable_and_the_variable_the_file():
    variables = {"RACK": "east", "RIPIENO_RACKS": "/no/such/file"}

    assert rack_of_this_host({"west": [HOST]}, variables) == "west"
    assert rack_of_this_host(None, variables) == "east"
    assert rack_of_this_host(None, {}) is None


@pytest.mark.parametrize(
    ("address", "pattern", "rack"),
    [
        ("s0.s1.node7", "switch.switch.node", "s1"),
        ("s1.node7.example.org", "switch.node", "s1"),
        ("node7", "node", None),
        ("node7", "", None),
        ("s0.s1", "switch.switch.node", None),
    ],
)
def test_the_leaf_switch_of_slurms_tree_is_the_rack_by_default(address, pattern, rack):
    variables = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}

    assert rack_of_this_host(None, variables) == rack
    assert rack_of_this_host(None, variables | {"RACK": "north"}) == "north"
    assert rack_of_this_host(None, variables, by_engine="/south") == (rack or "/south")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[racks]\n", "expected a table"),
        ("racks = 3\n", "expected a table"),
        ("[racks\n", "cannot be read"),
        ('[racks]\nnorth = "host"\n', "expected a list of host names"),
        ('[racks]\nnorth = ["other"]\n', "in none of north"),
        ('[racks]\nnorth = ["*"]\nsouth = ["*"]\n', "in north and south"),
    ],
)
def test_an_invalid_file_is_reported(tmp_path, text, message):
    file = _write(tmp_path / "racks.toml", text)

    with pytest.raises(InputError, match=message) as raised:
        rack_of_this_host(file, {})
    assert file in str(raised.value)


def test_every_rank_has_nodes_and_racks():
    with rp.launch(workers=3, threads=1, racks={"north": [HOST], "south": ["other"]}) as job:
        assert job.run(lambda comm: (comm.nodes, comm.racks)) == [([0, 0, 0], ["north"] * 3)] * 3
    with rp.launch(workers=1) as job:
        assert job.run(lambda comm: (comm.nodes, comm.racks)) == [([0], [None])]


def test_ripieno_run_passes_a_file_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RACK", "of the environment, which is weaker")
    _write(tmp_path / "racks.toml", '[racks]\nnorth = ["*"]\n')
    script = _write(tmp_path / "script.py", "import ripieno as rp\nprint(rp.init().racks)\n")

    result = CliRunner().invoke(run_command, ["-n", "2", "--racks", "racks.toml", script])

    assert result.exit_code == 0, result.output
    assert result.output.count("['north', 'north']") == 2


class RanksWithFoundRacks:
    """Ranks of one host each, whose racks a search finds with a probability."""

    def __init__(self, racks, certainty=1.0):
        self.hosts = [f"h{number}" for number in range(len(racks))]
        self.rank = 0
        self.searches = 0
        self._found = Topology([Host(name, 1, 1, 1) for name in self.hosts], racks, "measured", certainty, 1, 1)

    def broadcast(self, value):
        return value

    def topology(self):
        self.searches += 1
        return self._found


def test_found_racks_are_stored_and_used_if_they_are_certain(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    unsure, ranks = RanksWithFoundRacks(["a", "b", "a"], certainty=0.9), RanksWithFoundRacks(["a", "b", "a"])
    assert found_racks(unsure) is None and found_racks(unsure) is None
    assert unsure.searches == 2

    expected = {"a": ["h0", "h2"], "b": ["h1"]}
    assert found_racks(ranks) == found_racks(ranks) == expected
    assert ranks.searches == 1
    assert found_racks(RanksWithFoundRacks(["a"] * 4)) is None

    (stored,) = [path for path in (tmp_path / "ripieno" / "racks").iterdir() if "b" in path.read_text()]
    stored.write_text("{")
    with pytest.raises(InputError, match="delete it, so that racks are found again"):
        found_racks(ranks)


def adopt_and_describe(comm):
    comm.allreduce(np.ones(1000))
    known = comm.split(0)
    with pytest.raises(rp.InputError, match="in none of north"):
        comm.adopt_racks({"north": ["another"]})
    with pytest.raises(rp.CollectiveMismatch, match=r"rank 1: adopt_racks of \['east'"):
        comm.adopt_racks({"east" if comm.rank == 1 else "west": ["*"]})
    with pytest.raises(rp.InputError, match="of the hosts another: expected the hosts of these ranks"):
        comm.adopt_racks(Topology([Host("another", 1, 1, 1)], ["north"], "measured"))
    comm.adopt_racks(Topology([Host(comm.hosts[0], 3, 1, 1)], ["north"], "measured"))
    total = comm.allreduce(np.ones(1000))
    return comm.racks, comm.split(0).racks, known.racks, total[0], comm.racks == list(comm._native.racks)


def test_a_running_job_adopts_racks():
    with rp.launch(workers=3, threads=1) as job:
        north, unknown = ["north"] * 3, [None] * 3
        assert job.run(adopt_and_describe) == [(north, north, unknown, 3.0, True)] * 3
        # The next program of the job has them, too.
        assert job.run(lambda comm: comm.racks) == [north] * 3


def test_racks_found_when_ranks_connect_are_adopted(monkeypatch):
    found = {"north": [HOST]}
    monkeypatch.setattr(programs, "found_racks", lambda comm: found)

    def program(rank, exchange):
        comm = programs.connect(rank, 2, exchange, threads=1, on_event=print, racks="find", token=bytes(32))
        with comm:
            return comm.racks, comm.allreduce(1)

    texts, barrier = [None, None], threading.Barrier(2)

    def exchange_of(rank):
        def exchange(text):
            texts[rank] = text
            barrier.wait()
            received = list(texts)
            barrier.wait()
            return received

        return exchange

    with ThreadPoolExecutor(2) as pool:
        ranks = [pool.submit(program, rank, exchange_of(rank)) for rank in range(2)]
        assert [rank.result() for rank in ranks] == [(["north", "north"], 2)] * 2


# The lab names the racks of its hosts by RACK.
TIMES = """
import json, os, statistics, sys, time
del os.environ["RACK"]
import numpy as np
import ripieno as rp
comm = rp.init(threads=1)
vector = np.zeros(1 << 17)


def median_s(call):
    seconds = []
    for _ in range(5):
        comm.barrier()
        begin = time.perf_counter()
        call()
        seconds.append(comm.allreduce(time.perf_counter() - begin, "max"))
    return statistics.median(seconds)


def times():
    return {
        "chain": median_s(lambda: comm.broadcast(out=vector, algorithm="chain")),
        "ring": median_s(lambda: comm.allreduce(vector, out=vector, algorithm="ring")),
        "binomial": median_s(lambda: comm.broadcast(out=vector, algorithm="binomial")),
    }


found = {"unknown": times()}
comm.adopt_racks(comm.topology())
found["found"] = times()
comm.adopt_racks({"r0": ["h0", "h1", "h2"], "r1": ["h3", "h4", "h5"], "r2": ["h6", "h7", "h8"]})
found["named"] = times()
if comm.rank == 0:
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)
"""
cannot_emulate = missing_requirement()


@pytest.mark.exhaustive
@pytest.mark.timeout(240)
@pytest.mark.skipif(cannot_emulate is not None, reason=cannot_emulate or "")
def test_racks_found_by_a_running_job_give_the_plans_of_named_racks(tmp_path):
    round_robin = [f"h{3 * rack + host}" for host in range(3) for rack in range(3)]
    with Lab(racks=3, hosts=3, rate="40mbit", uplink="40mbit") as lab:
        lab.run(
            [sys.executable, "-c", TIMES, str(tmp_path / "times.json")], on=round_robin, timeout_s=200, prefix=False
        )
    times = json.loads((tmp_path / "times.json").read_text())

    for name, named_s in times["named"].items():
        assert times["found"][name] <= 1.15 * named_s, times
    assert times["found"]["chain"] <= 0.6 * times["unknown"]["chain"], times
