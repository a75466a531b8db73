"""The comparison of strategies of broadcast variables on modeled clusters."""

from __future__ import annotations

import json

import pytest
import ripieno.simulation as simulation
from click.testing import CliRunner
from ripieno.cli.explain import explain_command
from ripieno.disciplines import DISCIPLINES
from ripieno.errors import InputError

MIB = 1 << 20


def test_a_chain_is_fastest_for_equal_receivers_and_sharing_with_a_slow_one():
    found = simulation.explain_strategies(
        simulation.Cluster(nodes=8, rate_bits_per_s=1e8, alpha_s=5e-5), nbytes=4 * MIB
    )
    by_name = {each.strategy: each for each in found.strategies}
    assert found.strategies[0].strategy == "chain" and set(by_name) == {*DISCIPLINES}
    assert by_name["csb"].slow_receiver_s < 1.3 * by_name["csb"].at_once_s
    assert by_name["chain"].slow_receiver_s > 4 * by_name["chain"].at_once_s
    assert by_name["flat"].max_sent_bytes >= 7 * 4 * MIB > by_name["tree"].max_sent_bytes


def test_the_command_explains_the_choice_of_auto():
    words = ["broadcast", "--ranks", "5", "--bytes", "1MiB", "--rate", "100mbit", "--strategies"]
    text = CliRunner().invoke(explain_command, words, catch_exceptions=False).output
    assert "auto uses chain for files" in text and "It uses csb for" in text
    found = json.loads(CliRunner().invoke(explain_command, [*words, "--json"], catch_exceptions=False).output)
    assert found["reason"] in text.replace("\n", " ")
    refused = CliRunner().invoke(explain_command, ["allreduce", *words[1:]])
    assert refused.exit_code == 2 and "--strategies: expected broadcast" in refused.output


@pytest.mark.parametrize(("nodes", "nbytes"), [(2, 1000), (3, 0)])
def test_too_few_ranks_or_bytes_are_reported(nodes, nbytes):
    with pytest.raises(InputError, match="strategies: expected a byte or more, and three ranks"):
        simulation.explain_strategies(simulation.Cluster(nodes=nodes), nbytes=nbytes)
