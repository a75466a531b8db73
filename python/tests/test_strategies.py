"""The comparison of strategies of broadcast variables on modeled clusters."""

from __future__ import annotations

import json

import pytest
import ripieno.simulation as simulation
from click.testing import CliRunner
from ripieno.bench.strategies import StrategiesQuery, StrategyResults, StrategyRow, StrategyRun
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


def test_results_say_that_a_shared_file_is_not_compared_over_links(capsys):
    run = StrategyRun([0.0, 1.0], [0.1, 0.1], [3, 3], 0.0, [])
    rows = {name: StrategyRow(name, [run], [], 1.0, [], None, [], None, [], None) for name in ("chain", "shared-file")}
    request = StrategiesQuery(2, 1000, "100mbit", ("chain", "shared-file"))
    without, both = (StrategyResults(request, kept, (0.0, 0.0)) for kept in ([rows["chain"]], [*rows.values()]))

    assert "note" not in both.as_json()["rows"][0] and "over no link" in both.as_json()["rows"][1]["note"]
    assert "over no link" in both.page() and "over no link" not in without.page()
    both.show()
    assert "over no link" in " ".join(capsys.readouterr().out.split())
