"""Racks: detection from the rates of pairs, and output as trees and files."""

from __future__ import annotations

import json
import platform
import random
import sys
import tomllib
from xml.etree import ElementTree

import pytest
import ripieno as rp
from click.testing import CliRunner
from ripieno.cli.topology import topology_command
from ripieno.lab import Lab, missing_requirement
from ripieno.topology import Host, Topology, search

cannot_emulate = missing_requirement()


def rates_of(pairs, racks, uplinks, draw, noise):
    """Return rates of pairs: links have rate 1, pairs across racks share uplinks, and some are randomly slow."""
    crossing = [0] * len(uplinks)
    for pair in pairs:
        one, other = (racks[host] for host in pair)
        if one != other:
            crossing[one] += 1
            crossing[other] += 1
    found = []
    for one, other in pairs:
        rate = 1.0
        if racks[one] != racks[other]:
            rate = min(1.0, *(uplinks[racks[host]] / crossing[racks[host]] for host in (one, other)))
        found.append(rate * (1 - abs(draw.gauss(0, noise))) * (0.5 if draw.random() < noise / 3 else 1))
    return found


def search_result(racks, uplinks, seed, noise):
    """Return the result of a search among hosts of these racks."""
    draw, searching = random.Random(seed), search(len(racks), seed=seed)
    pairs = next(searching)
    while True:
        assert len({host for pair in pairs for host in pair}) == 2 * len(pairs), "a host exchanges with one other"
        try:
            pairs = searching.send(rates_of(pairs, racks, uplinks, draw, noise))
        except StopIteration as end:
            return end.value


def as_partition(numbers):
    return [numbers.index(number) for number in numbers]


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize(
    ("sizes", "oversubscription"),
    [([8] * 4, 2), ([8] * 4, 4), ([4] * 4, 2), ([4] * 4, 4), ([8] * 2, 4), ([3, 9, 5, 12], 3), ([4, 4, 4, 1, 1], 2)],
)
def test_racks_behind_full_uplinks_are_found_exactly_in_any_order_of_the_hosts(sizes, oversubscription, noise):
    for seed in range(3):
        racks = [rack for rack, size in enumerate(sizes) for _ in range(size)]
        random.Random(seed).shuffle(racks)

        found = search_result(racks, [max(1, size) / oversubscription for size in sizes], seed, noise)

        assert as_partition(found.numbers) == as_partition(racks), (seed, found)
        assert found.certainty > 0.998
        assert found.round_count <= 10 * 5 and found.probe_count <= found.round_count * len(racks) // 2


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("hosts", [3, 8, 32])
def test_one_rack_has_no_parts(hosts, noise):
    for seed in range(3):
        found = search_result([0] * hosts, [1.0], seed, noise)

        assert found.numbers == [0] * hosts and found.certainty > 0.998


@pytest.mark.parametrize("slow_share", [0.1, 0.2, 0.3])
def test_rates_of_a_busy_machine_are_one_rack(slow_share):
    for seed in range(5):
        draw, searching = random.Random(seed), search(32, seed=seed)
        pairs = next(searching)
        with pytest.raises(StopIteration) as end:
            while True:
                pairs = searching.send([0.6 if draw.random() < slow_share else 1.0 for _ in pairs])

        assert end.value.value.numbers == [0] * 32


def test_hosts_with_equal_rates_are_one_rack():
    # One host per rack: every pair crosses two uplinks, and all orders are equal.
    found = search_result(list(range(8)), [0.5] * 8, 1, 0.0)

    assert found.numbers == [0] * 8


def test_the_same_rates_lead_to_the_same_rounds():
    one, other = (search(12, seed=3) for _ in range(2))
    pairs = [next(one), next(other)]
    for number in range(9):
        assert pairs[0] == pairs[1]
        rates = [1.0 if (sum(pair) + number) % 3 else 0.5 for pair in pairs[0]]
        pairs = [one.send(rates), other.send(rates)]


def test_a_topology_is_a_tree_and_a_file_of_racks(tmp_path):
    hosts = [Host("h0", 2, 8, 2, 25e-9), Host("gpu-10", 1, 1, 1), Host("h2", 2, 8, 2)]
    found = Topology(hosts, ["north", "south", "north"], "measured", 0.9991, 20, 40)

    assert str(found).splitlines() == [
        "3 hosts in 2 racks, found by 40 probes in 20 rounds, certainty 99.9%",
        "├─ north",
        "│  ├─ h0      2 ranks, 8 cores, 2 NUMA nodes, a cache line takes 25 ns from core to core: they share a cache",
        "│  └─ h2      2 ranks, 8 cores, 2 NUMA nodes",
        "└─ south",
        "   └─ gpu-10  1 rank, 1 core, 1 NUMA node",
    ]
    assert tomllib.loads(found.toml()) == {"racks": {"north": ["h0", "h2"], "south": ["gpu-10"]}}
    assert json.loads(json.dumps(found.as_json()))["hosts"][1]["name"] == "gpu-10"


def test_ranks_of_one_host_have_its_rack_and_nothing_is_measured(world):
    def body(comm):
        found = comm.topology(measure=True)
        return found.source, [host.ranks for host in found.hosts], list(found.racks), found.hosts[0].cores >= 1

    assert world(3).run(body) == 3 * [("too few", [3], ["rack0"], True)]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="links read the time stamp counter of x86-64")
def test_ranks_of_one_host_know_the_longest_time_of_a_cache_line():
    with rp.launch(workers=2, threads=1) as job:
        first, second = job.run(lambda comm: comm.topology().hosts[0].line_s)

    assert first == second and 1e-9 <= first <= 1e-6


def test_a_picture_has_every_rack_and_host_once(tmp_path):
    hosts = [Host(f"n{number}", 1, 4, 1) for number in range(5)]
    picture = Topology(hosts, ["left", "left", "right", "right", "<odd>"], "given").picture()

    words = [text.text for text in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert [word for word in words if word in ("left", "right", "<odd>")] == ["left", "right", "<odd>"]
    assert [word.split(":")[0] for word in words if word and ": 1 rank" in word] == [host.name for host in hosts]
    target = tmp_path / "racks.html"
    shown = CliRunner().invoke(topology_command, ["--draw", str(target)], catch_exceptions=False)
    assert shown.exit_code == 0 and "<svg" in target.read_text()
    assert CliRunner().invoke(topology_command, ["--draw", str(tmp_path / "racks.png")]).exit_code != 0


@pytest.mark.skipif(cannot_emulate is not None, reason=cannot_emulate or "")
def test_emulated_hosts_are_measured_and_written_for_run(tmp_path):
    target = tmp_path / "racks.toml"
    words = [sys.executable, "-m", "ripieno", "topology", "--measure", "--round", "0.02", "--out", str(target)]
    with Lab(racks=1, hosts=3, rate="100mbit") as lab:
        assert lab.run(words, timeout_s=60) == 0
        names = [host.name for host in lab.hosts]

    # The racks found on a busy machine mean nothing.
    racks = tomllib.loads(target.read_text())["racks"]
    assert sorted(host for hosts in racks.values() for host in hosts) == names


def test_rounds_without_duration_are_rejected(world):
    def body(comm):
        with pytest.raises(rp.InputError, match=r"round_s=0: expected more than 0 seconds"):
            comm.topology(round_s=0)

    world(1).run(body)


def test_the_command_shows_this_host_and_writes_a_file_that_run_reads(tmp_path):
    target = tmp_path / "racks.toml"

    shown = CliRunner().invoke(topology_command, ["--out", str(target)], catch_exceptions=False)

    assert shown.exit_code == 0 and shown.output.startswith("1 host in 1 rack\n└─ rack0\n   └─ ")
    assert list(tomllib.loads(target.read_text())["racks"]) == ["rack0"]
    assert CliRunner().invoke(topology_command, ["--out", str(target)]).exit_code != 0
