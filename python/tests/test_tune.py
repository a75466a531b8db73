"""Link costs: measured by kind, stored for the cluster, and used in predictions."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import ripieno as rp
from click.testing import CliRunner
from ripieno.cli import main
from ripieno.cli.tune import tune_command
from ripieno.comm import block_sizes
from ripieno.comm.cost_probes import _concurrent_pairs, _pairs
from ripieno.lab import Lab, missing_requirement
from ripieno.simulation import Cluster, LinkCost, MeasuredCosts, explain, link_costs, simulate

cannot_emulate = missing_requirement()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Keep the cache of this process there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def costs_of_two_racks(**other):
    """Return costs of four hosts in two racks: 100 µs per message, links of 100 MB/s, an uplink of 50 MB/s."""
    return MeasuredCosts(
        **{
            "hosts": ["h0", "h0", "h1", "h2", "h3"],
            "nodes": [0, 0, 1, 2, 3],
            "racks": ["left", "left", "left", "right", "right"],
            "measured_at": time.time(),
            "memory": LinkCost(2e-6, 4e9),
            "network_link": LinkCost(100e-6, 100e6),
            "uplink": LinkCost(150e-6, 100e6),
            "uplink_bytes_per_s": 50e6,
            "add_s_per_byte": 1e-9,
            "copy_s_per_byte": 0.5e-9,
            **other,
        }
    )


def test_the_model_reproduces_the_measured_message_time():
    cluster = costs_of_two_racks().cluster()
    one_way = [
        simulate("point-to-point", Cluster(nodes=2, **by_kind), nbytes=size).seconds
        for by_kind, size in (
            ({"alpha_s": cluster.alpha_s, "rate_bits_per_s": cluster.rate_bits_per_s}, 8),
            ({"alpha_s": cluster.alpha_s, "rate_bits_per_s": cluster.rate_bits_per_s}, 64 << 20),
        )
    ]

    assert one_way == pytest.approx([100e-6, (64 << 20) / 100e6], rel=0.01)
    assert (cluster.nodes, cluster.rack_numbers, cluster.ranks) == (4, [0, 0, 1, 1], 5)
    assert (cluster.uplink_bits_per_s, cluster.gamma_s_per_byte) == (8 * 50e6, 1e-9)
    assert cluster.uplink_alpha_s == 150e-6


def test_a_latency_longer_than_segments_leaves_the_rate_as_measured():
    link = LinkCost(10e-3, 100e6)

    assert link.alpha_s == pytest.approx(0.5 * 65536 / 100e6)
    assert link.alpha_s / 65536 + link.beta_s_per_byte == pytest.approx(1 / 100e6)


def test_stored_costs_are_loaded_only_for_the_same_hosts(cache):
    costs = costs_of_two_racks()

    path = link_costs.store(costs)

    assert path is not None and path.is_relative_to(cache)
    assert link_costs.load_stored(["h3", "h2", "h1", "h0", "h0"]) == costs
    assert link_costs.load_stored(["h0", "h1", "h2"]) is None
    path.write_text('{"hosts": 3}')
    with pytest.raises(rp.InputError, match="expected a file of ripieno tune"):
        link_costs.load_stored(costs.hosts)


def test_costs_are_not_saved_without_a_folder(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    assert link_costs.store(costs_of_two_racks()) is None
    assert link_costs.load_stored(["h0", "h1", "h2", "h3"]) is None


def test_pairs_are_of_one_kind_each():
    costs = costs_of_two_racks()

    found = _pairs(costs.nodes, costs.racks)

    assert found == {"memory": [(0, 1)], "network_link": [(0, 2), (3, 4)], "uplink": [(0, 3)]}
    assert _concurrent_pairs(costs.nodes, costs.racks) == [(0, 3), (2, 4)]
    assert _concurrent_pairs([0, 1, 2], [None] * 3) == []


def tune_and_explain(comm, cache):
    import os

    os.environ["XDG_CACHE_HOME"] = cache
    before = comm.explain("allreduce", nbytes=1 << 20).costs
    found = comm.tune(budget_s=0.05)
    part = comm.split(comm.rank % 2)
    return before, found, comm.explain("allreduce", nbytes=1 << 20).costs, part.explain("barrier", nbytes=0).costs


def test_every_rank_has_the_same_costs_and_explains_with_them(cache):
    with rp.launch(workers=3, threads=1) as job:
        text = job.run(tune_and_explain, str(cache))
    (before, found, after, of_part), *others = text

    assert all(other[1:] == text[0][1:] for other in others)
    assert "measured, or defaults" in before
    assert after == of_part == found.source
    assert found.memory is not None and found.network_link is None and found.uplink is None
    assert len(list(cache.rglob("*.json"))) == 1


def test_costs_of_pairs_replace_the_defaults_of_memory():
    default = Cluster(nodes=1, ranks_per_node=2)
    unknown = {"line_s": None, "ring_s_per_byte": (None, None), "zero_copy_s_per_byte": (1e-12, None)}
    far = {**unknown, "line_s": 150e-9}
    by_ring = {"line_s": 25e-9, "ring_s_per_byte": (3e-10, 1e-10), "zero_copy_s_per_byte": (1e-12, 4e-10)}
    by_kernel = {**by_ring, "zero_copy_s_per_byte": (1e-12, 1.5e-10)}

    assert link_costs.with_pairs(default, [unknown]) == (default, "")
    found, text = link_costs.with_pairs(default, [far, unknown])
    assert (found.memory_s_per_byte, text) == (default.memory_s_per_byte, "a cache line takes 150 ns")
    assert found.memory_alpha_s == pytest.approx(356e-9, rel=0.01)
    # The ring copies twice, the kernel once; the slower pair counts.
    for pairs, s_per_byte in (([by_ring], 2e-10), ([by_kernel], 1.5e-10), ([by_kernel, by_ring], 2e-10)):
        found, text = link_costs.with_pairs(default, pairs)
        segment_s = simulate("point-to-point", found, nbytes=64 << 20).seconds / (64 << 20)
        assert segment_s == pytest.approx(s_per_byte, rel=0.01)
        assert found.memory_alpha_s == pytest.approx(147e-9, rel=0.01)
        assert text == f"a cache line takes 25 ns, long messages move at {1e-9 / s_per_byte:.3g} GB/s"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="links time themselves on x86-64")
def test_an_explanation_uses_the_measured_costs_of_pairs(cache):
    def program(comm, cache):
        os.environ["XDG_CACHE_HOME"] = cache
        number = np.zeros(1)
        for _ in range(500):
            comm.allreduce(number, out=number)
        # Links also measure during later calls.
        line_s, after_calls = comm._native.pair_costs()[0][1]["line_s"], comm.explain("allreduce", nbytes=8)
        comm.measure_packets(budget_s=0.01)
        return line_s, after_calls, comm.explain("allreduce", nbytes=8).costs

    with rp.launch(workers=2, threads=1) as job:
        for line_s, explained, with_packets in job.run(program, str(cache)):
            assert "in shared memory as its links have measured: a cache line takes" in explained.costs
            expected_s = link_costs.SHORT_S + link_costs.SHORT_LINE_COUNT * line_s
            assert explained.cluster.memory_alpha_s == pytest.approx(expected_s, rel=0.01)
            assert "links have measured" not in with_packets


def test_a_single_rank_measures_the_cost_of_adding(threads):
    (found,) = threads(1, lambda comm: comm.tune(budget_s=0.01))

    assert (found.memory, found.network_link) == (None, None)
    assert found.add_s_per_byte > 0
    assert "adding float32" in str(found)


def test_time_to_measure_is_positive(threads):
    def refused(comm):
        with pytest.raises(rp.InputError, match="budget_s=0: expected more than 0 seconds"):
            comm.tune(budget_s=0)

    threads(1, refused)


def test_the_command_writes_a_file_that_other_commands_read(tmp_path):
    target = tmp_path / "costs.json"
    output = CliRunner().invoke(tune_command, ["--workers", "2", "--budget", "0.05", "--out", str(target)])

    assert output.exit_code == 0, output.output
    assert "memory of a node" in output.output
    assert link_costs.read(target).memory is not None


def test_a_file_of_costs_replaces_defaults_but_not_options(tmp_path, capsys):
    target = tmp_path / "costs.json"
    costs = costs_of_two_racks()
    link_costs.write(costs, target)

    def explained(*words):
        assert main(["explain", "allreduce", "--bytes", "1MiB", "--json", *words]) == 0
        return json.loads(capsys.readouterr().out)

    measured = explained("--costs", str(target))
    assert measured["ranks"] == 5
    alike = explain("allreduce", costs.cluster(), nbytes=1 << 20)
    assert measured["candidates"] == json.loads(json.dumps(alike.as_json()))["candidates"]
    assert measured["costs"].startswith("measured on 4 hosts")
    more = explained("--costs", str(target), "--ranks", "16", "--rate", "1gbit")
    assert more["ranks"] == 16
    ring = next(each for each in more["candidates"] if each["algorithm"] == "ring")
    assert ring["terms_s"][0] == pytest.approx(30 * 100e-6)
    assert ring["terms_s"][1] == pytest.approx(2 * 15 / 16 * (1 << 20) * 8e-9)
    assert main(["explain", "allreduce", "--costs", str(target), "--racks", "2"]) == 2
    assert "expected --nodes, too" in capsys.readouterr().err
    assert main(["simulate", "broadcast", "--costs", str(tmp_path / "none.json")]) == 2
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.skipif(cannot_emulate is not None, reason=cannot_emulate or "")
def test_links_of_emulated_racks_are_measured_by_kind(tmp_path):
    target = tmp_path / "costs.json"
    words = [sys.executable, "-m", "ripieno", "tune", "--budget", "0.6", "--out", str(target)]

    with Lab(racks=2, hosts=2, rate="100mbit", uplink="50mbit") as lab:
        assert lab.run(words, timeout_s=60) == 0
    found = link_costs.read(target)

    # The rates of a busy machine mean nothing.
    assert found.memory is None and found.network_link is not None and found.uplink is not None
    assert len(set(found.racks)) == 2


def block_sizes_of(comm, folder):
    """Return the block sizes of broadcasts before and after a measurement that favors other blocks."""
    os.environ["XDG_CACHE_HOME"] = str(folder)
    comm = comm.split(0)

    def used(size_bytes, **options):
        value = np.zeros(size_bytes, np.uint8) if comm.rank == 0 else None
        with comm.broadcast_variable(value, record=True, per_host=False, **options) as variable:
            _ = variable.value
            return max((each.size_bytes for each in variable.recorded().fetches), default=0)

    before = used(300_000)
    found = comm.tune_broadcast(size_bytes=300_000, budget_s=0.01)
    assert found.seconds.keys() == {1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18}
    for fastest in (1 << 15, 1 << 16):
        # Another process may store a result while this one runs.
        if comm.rank == 0:
            seconds = {size: [1.0 if size == fastest else 2.0] for size in found.seconds}
            block_sizes.store(replace(found, seconds=seconds))
        largest = used(300_000)
        assert comm.rank == 0 or largest == fastest
    return before, used(300_000), used(2_000_000), used(300_000, block_bytes=1000), used(300_000, strategy="chain")


def test_broadcasts_use_the_measured_block_size_near_its_size_and_strategy(world, tmp_path):
    before, after, longer, given, other = world(2).run(block_sizes_of, tmp_path)[1]

    assert (before, after, longer, given, other) == (1 << 14, 1 << 16, 1 << 14, 1000, 1 << 14)


def test_stored_block_sizes_are_read_only_after_a_change(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stored = block_sizes.StoredBlockSizes(["a", "b", "a"])
    assert stored.current() == []
    found = block_sizes.BlockSizes("csb", 1 << 20, ["b", "a"], 1 << 14, {1 << 14: [2.0], 1 << 16: [1.0]})
    block_sizes.store(found)

    first = stored.current()
    assert first == [found] and stored.current() is first
    slower = replace(found, seconds={1 << 14: [1.0], 1 << 16: [2.0]})
    block_sizes.store(slower)
    assert stored.current() == [slower]
    next(tmp_path.rglob("*.json")).unlink()
    assert stored.current() == []


def test_block_sizes_measured_for_other_sizes_are_not_used_for_empty_files():
    found = block_sizes.BlockSizes("csb", 1 << 20, ["a"], 1 << 14, {1 << 14: [2.0]})
    assert block_sizes.tuned_block_bytes([found], "csb", 1 << 20) == 1 << 14
    assert block_sizes.tuned_block_bytes([found], "csb", 0) is None


def test_the_command_measures_block_sizes(capsys):
    words = ["tune", "broadcast", "--strategies", "flat,csb", "--bytes", "100KiB", "--budget", "0.01"]
    main(words)
    output = capsys.readouterr().out

    assert (
        "flat, 100 KiB to 2 ranks on 1 host" in output and "csb, 100 KiB to 2 ranks" in output and "default" in output
    )
    assert main(["tune", "broadcast", "--strategies", "fast"]) == 2
    assert "--strategies='fast': expected some of chain" in capsys.readouterr().err


def test_the_former_name_of_network_links_is_read_and_deprecated(tmp_path):
    costs = costs_of_two_racks()
    former = {"cable" if key == "network_link" else key: value for key, value in costs.as_json().items()}
    (tmp_path / "costs.json").write_text(json.dumps(former))

    found = link_costs.read(tmp_path / "costs.json")

    assert found == costs
    with pytest.warns(DeprecationWarning, match="use network_link"):
        assert found.cable == costs.network_link
