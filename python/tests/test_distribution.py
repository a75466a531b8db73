"""Dynamic broadcast on modeled clusters, from Python and from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from ripieno.cli.simulate import simulate_command
from ripieno.disciplines import DISCIPLINES
from ripieno.errors import InputError
from ripieno.simulation import Cluster, distribute, search_block_bytes

MIB = 1 << 20


def output_of(*words: str) -> str:
    result = CliRunner().invoke(simulate_command, ["broadcast", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_chain_in_another_order_crosses_more_uplinks():
    cluster = Cluster(nodes=8, racks=2, rate_bits_per_s=1e8, uplink_bits_per_s=1e8)
    order = [4, 1, 5, 2, 6, 3, 7]
    in_rack_order = distribute(cluster, nbytes=MIB, algorithm="chain")
    in_other_order = distribute(cluster, nbytes=MIB, algorithm="chain", order=order)
    assert in_other_order.seconds > 3 * in_rack_order.seconds
    assert distribute(cluster, nbytes=MIB, algorithm="chain", order=range(1, 8)).seconds == in_rack_order.seconds
    for wrong in ([1, 2], [0, 1, 2, 3, 4, 5, 6], [1, 1, 2, 3, 4, 5, 6, 7]):
        with pytest.raises(InputError, match="order="):
            distribute(cluster, nbytes=MIB, order=wrong)


@pytest.mark.parametrize("algorithm", DISCIPLINES)
def test_all_live_ranks_have_the_value_when_one_dies(algorithm: str) -> None:
    cluster = Cluster(nodes=9, rate_bits_per_s=1e8, dead=[(3, 0.2)])

    found = distribute(cluster, nbytes=8 * MIB, algorithm=algorithm, fetches=True)

    assert found.ranks("done") == [0, 1, 2, 4, 5, 6, 7, 8]
    assert found.ranks("lost") == [3] == found.reported_lost
    assert found.fetches is not None
    for rank in found.ranks("done")[1:]:
        assert sum(each.size_bytes for each in found.fetches if each.receiver == rank) == pytest.approx(8 * MIB, abs=99)


@pytest.mark.parametrize("algorithm", ["csb", "csb-llcf", "bittorrent"])
def test_the_degree_limits_the_receivers_of_a_source(algorithm: str) -> None:
    cluster = Cluster(nodes=9, rate_bits_per_s=1e8)

    def max_receivers(degree: int | None) -> int:
        found = distribute(cluster, nbytes=4 * MIB, algorithm=algorithm, fetches=True, degree=degree)
        assert len(found.ranks("done")) == 9 and found.fetches is not None
        begins = [(each.sender, each.start_s) for each in found.fetches]
        running = [
            sum(each.sender == sender and each.start_s <= at_s < each.end_s for each in found.fetches)
            for sender, at_s in begins
        ]
        return max(running)

    assert max_receivers(1) == 1 and max_receivers(2) == 2 < max_receivers(None)
    with pytest.raises(InputError, match='degree=2 with strategy="chain": only csb, csb-llcf and bittorrent use it'):
        distribute(cluster, nbytes=MIB, algorithm="chain", degree=2)


def test_a_wrong_block_is_fetched_again_and_its_source_named() -> None:
    found = distribute(Cluster(nodes=5), nbytes=4 * MIB, corrupted=[(0, 0.0)])
    assert [each.source for each in found.corruptions] == [0]
    assert len(found.ranks("done")) == 5


def test_a_root_that_dies_half_way_is_named_by_all_others() -> None:
    found = distribute(Cluster(nodes=4, rate_bits_per_s=1e8, dead=[(0, 0.1)]), nbytes=4 * MIB)
    assert found.ranks("failed") == [1, 2, 3]
    assert all("rank 0, the root of the broadcast, is lost" in found.ends[rank].cause for rank in (1, 2, 3))


def test_a_late_rank_is_served_and_a_hung_rank_is_reported() -> None:
    found = distribute(Cluster(nodes=6), nbytes=4 * MIB, late=[(2, 1.0)], stopped=[(4, 0.001)])
    assert found.ranks("done") == [0, 1, 2, 3, 5]
    assert found.reported_lost == [4]


def test_sizes_of_blocks_are_tried_from_4_mib_down() -> None:
    tried = search_block_bytes(Cluster(nodes=4, rate_bits_per_s=1e9), nbytes=16 * MIB, algorithm="csb")
    assert [size for size, _ in tried] == [4 * MIB >> halves for halves in range(9)]
    assert min(tried, key=lambda each: each[1])[0] < 4 * MIB


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"algorithm": "gossip"},
            "algorithm=gossip: expected one of chain, splitstream, tree, flat, csb, csb-llcf, bittorrent",
        ),
        ({"root": 4}, "root=4"),
        ({"late": [(0, 1.0)]}, "late=0: expected a rank other than the root"),
        ({"stopped": [(7, 1.0)]}, "stopped=7"),
        ({"corrupted": [(1, -1.0)]}, "corrupted=1@-1.0"),
        ({"block_bytes": 0}, "block_bytes=0"),
    ],
)
def test_impossible_requests_are_reported(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        distribute(Cluster(nodes=4), nbytes=MIB, **options)  # type: ignore[arg-type]


def test_the_command_simulates_state_machines_and_draws_them(tmp_path: Path) -> None:
    picture = tmp_path / "csb.svg"
    words = ("--nodes", "8", "--bytes", "4MiB", "--rate", "100mbit", "--kill", "3@50%", "--slow", "5@0.2")

    output = output_of(*words, "--algorithm", "csb", "--timeline", str(picture))

    assert "complete    7 of 8 ranks" in output
    assert "lost        rank 3" in output
    assert "block 0 from rank" in picture.read_text()
    found = json.loads(output_of(*words, "--algorithm", "chain", "--heal", "--json"))
    assert [end["kind"] for end in found["ends"]].count("done") == 7
    assert "wait forever" in output_of(*words, "--algorithm", "chain")


def test_the_command_names_options_of_state_machines() -> None:
    for words in (["broadcast", "--late", "1@1s"], ["allreduce", "--heal"]):
        result = CliRunner().invoke(simulate_command, [*words, "--nodes", "4"])
        assert isinstance(result.exception, InputError)
        assert "expected" in str(result.exception)
