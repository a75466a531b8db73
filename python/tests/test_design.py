"""The design of degrees of sparse reductions from densities and packets, as in the paper."""

from __future__ import annotations

import json

import numpy as np
import pytest
import ripieno as rp
from ripieno._native import DensityCurve, PacketCurve
from ripieno.bench.pages import sparse as report
from ripieno.cli import main
from ripieno.sparse import design, packets

TWITTER = ["explain", "sparse", "--ranks", "64", "--features", "60e6", "--density", "0.21", "--exponent", "1.1"]


def explained(capsys, *options):
    assert main([*TWITTER, *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_densities_match_the_poisson_model():
    ranks = np.arange(1, 20_001.0)
    curve = DensityCurve.power_law(20_000, 1.3, 0.1)
    for set_count in (1, 2, 8, 64):
        exact = np.mean(-np.expm1(-set_count * curve.lambda_0 * ranks**-1.3))
        assert curve.density(set_count) == pytest.approx(exact, rel=1e-9)
    fitted, deviation = DensityCurve.fit(20_000, [(float(k), curve.density(k)) for k in (1, 4, 16)])
    assert fitted.alpha == pytest.approx(1.3, rel=1e-3) and deviation < 1e-6


def test_the_network_of_the_twitter_graph_is_8x4x2_with_packets_of_5_mb(capsys):
    found = explained(capsys, "--min-packet", "5MB", "--degrees", "16x4")

    designs = found["designs"]
    assert {name: designs[name]["degrees"] for name in ("by packet", "direct", "given")} == {
        "by packet": "8x4x2", "direct": "64", "given": "16x4",
    }  # fmt: skip
    assert designs["binary"]["degrees"] == "x".join("2" * 6)
    cheapest = designs["cheapest"]["seconds"]
    assert all(each["seconds"] >= cheapest for each in designs.values())
    layers = designs["by packet"]["layers"]
    assert [layer["down"]["packet_bytes"] / 1e6 for layer in layers] == pytest.approx([6.3, 5.0, 3.6], abs=0.05)


def test_the_network_of_the_yahoo_graph_depends_on_the_efficient_packet(capsys):
    graph = ["explain", "sparse", "--ranks", "64", "--features", "1.4e9", "--density", "0.035", "--exponent", "1.1"]
    for size, degrees in (("5MB", "32x2"), ("6.2MB", "16x4"), ("12.2MB", "16x4"), ("12.4MB", "8x8")):
        assert main([*graph, "--min-packet", size, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["designs"]["by packet"]["degrees"] == degrees, size


def test_the_gain_of_the_best_network_is_bounded():
    for features, density, more_bytes in ((60_000_000, 0.21, 1.6), (1_400_000_000, 0.035, 2.0)):
        data = design.DataDistribution(64, features, DensityCurve.power_law(features, 1.1, density), 4)

        def designs(alpha_s, latency_s, data=data):
            curve = PacketCurve([(size, alpha_s + 1e-10 * size) for size in (1.0, 1e12)], latency_s)
            return design.explain(data, curve).as_json()["designs"]

        def gain(found):
            return min(found[name]["seconds"] for name in ("direct", "binary")) / found["cheapest"]["seconds"]

        # With these costs, bytes cost nothing compared with packets.
        best = designs(1e6, 11.4e6)
        assert best["cheapest"]["degrees"] == "8x8" and gain(best) == pytest.approx(74.4 / 36.8, rel=1e-4)
        seconds = (0.0, *np.logspace(-5, 3, 9))
        assert max(gain(designs(alpha, latency)) for alpha in seconds for latency in seconds) < 74.4 / 36.8
        sent = {
            name: sum((layer["degree"] - 1) * layer["down"]["packet_bytes"] for layer in best[name]["layers"])
            for name in ("direct", "binary")
        }
        assert sent["binary"] / sent["direct"] == pytest.approx(more_bytes, abs=0.05)


def test_the_explanation_is_printed_as_text(capsys):
    assert main([*TWITTER, "--min-packet", "5MB"]) == 0

    out = capsys.readouterr().out
    assert "12,600,000 rows of 4 bytes" in out and "by packet: 8x4x2" in out
    assert all(word in out for word in ("cheapest", "direct", "binary", "bottom", "50.4 MB"))


def test_volumes_match_all_ranks():
    data = design.DataDistribution(64, 60_000_000, DensityCurve.power_law(60_000_000, 1.1, 0.21), 4)
    priced = design.price(data, PacketCurve.network(), "8x4x2")

    expected = [60e6 * 4 * 64 * data.out.density(k) / k for k in (1, 8, 32, 64)]
    assert design.volumes(priced, data) == pytest.approx(expected)


def test_a_number_of_ranks_without_factors_is_folded(capsys):
    found = explained(capsys, "--ranks", "61", "--min-packet", "5MB")

    assert found["designs"]["by packet"]["degrees"].endswith("+1")
    assert found["designs"]["by packet"]["fold"]["down"]["packet_bytes"] == pytest.approx(50.4e6)


def test_counted_densities_replace_a_power_law(capsys):
    words = ["explain", "sparse", "--ranks", "8", "--features", "1e6", "--densities", "1:0.1,2:0.18,8:0.45"]
    assert main([*words, "--packets", "memory"]) == 0
    assert "100,000 rows of 4 bytes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--degrees", "8x4"], "64 ranks: degrees"),
        (["--min-packet", "big"], "size 'big'"),
        (["--densities", "1:0.5"], "expected only one of them"),
        (["--features", "0"], "expected a whole number of 1 to 1e15"),
    ],
)
def test_invalid_arguments_are_reported(options, message, capsys):
    assert main([*TWITTER, *options]) == 2
    assert message in capsys.readouterr().err


def test_all_ranks_measure_the_same_packets(world):
    def program(comm: rp.Communicator):
        curve = comm.measure_packets([64, 4096], budget_s=0.02)
        return packets.as_json(curve)

    first, *others = world(4).run(program)
    assert all(other == first for other in others)
    assert [point["bytes"] for point in first["points"]] == [64, 4096]


def test_a_configured_reduction_is_explained_measured_against_predicted(world):
    def program(comm: rp.Communicator):
        features, alpha, density = 20_000, 1.1, 0.2
        lambda_0 = DensityCurve.power_law(features, alpha, density).lambda_0
        probabilities = -np.expm1(-lambda_0 * np.arange(1, features + 1.0) ** -alpha)
        own = np.flatnonzero(np.random.default_rng(comm.rank).random(features) < probabilities)
        configured = comm.sparse(own, own, size=features, degrees="2x2", dense_above=2.0)
        live = configured.explain(width=2)
        return str(live), live.as_json(), [each["out_rows"] for each in configured.volumes]

    results = world(4).run(program)

    text, described, _ = results[0]
    assert all(result[0] == text for result in results), "the same on every rank"
    assert "2x2: 4 ranks, 20,000 indices, rows of 8 bytes" in text and "predicted" in text
    assert described["measured"]["rows"]["down"] == pytest.approx(np.mean([held for *_, held in results], axis=0))
    given = described["designs"]["given"]
    levels = [*given["layers"], given["bottom"]]
    for level, down, up in zip(
        levels, described["measured"]["rows"]["down"], described["measured"]["rows"]["up"], strict=True
    ):
        assert level["down"]["rows"] == pytest.approx(down, rel=0.05) and up == down
    assert described["measured"]["deviation"]["down"] < 0.05 and described["measured"]["seconds"] > 0
    assert described["alpha"] == pytest.approx(1.1, abs=0.3)


def test_reductions_of_one_rank_without_rows_and_of_folded_ranks_are_explained(world):
    def program(comm: rp.Communicator):
        none = comm.sparse([], [], size=0)
        folded = comm.sparse(np.arange(10), np.arange(10), degrees="binary")
        return str(none.explain()), str(folded.explain(dtype=np.float64))

    assert "binary" in world(3).run(program)[0][1] and "fold" in world(3).run(program)[0][1]
    with rp.launch(workers=1) as job:
        assert "1 ranks" in job.run(program)[0][0]


def test_a_measurement_is_written_drawn_and_read(tmp_path, capsys):
    target, chart = tmp_path / "packets.json", tmp_path / "packets.svg"
    words = ["packets", "--workers", "2", "--sizes", "64B,4KiB", "--budget", "0.05"]
    assert main([*words, "--json", str(target), "--plot", str(chart)]) == 0

    assert "2 ranks on 1 nodes: efficient from" in capsys.readouterr().out
    assert chart.read_text().startswith("<svg xmlns=") and "efficient from" in chart.read_text()
    found = explained(capsys, "--packets", str(target))
    assert found["min_packet_bytes"] == pytest.approx(packets.read(target).efficient_bytes)


def test_a_file_that_holds_no_packets_is_reported(tmp_path, capsys):
    target = tmp_path / "packets.json"
    target.write_text("{}")
    assert main([*TWITTER, "--packets", str(target)]) == 2
    assert "expected a file of ripieno packets --json" in capsys.readouterr().err
    assert main([*TWITTER, "--packets", str(tmp_path / "none.json")]) == 2
    assert "none.json does not exist" in capsys.readouterr().err
    assert main([*TWITTER, "--packets", str(tmp_path)]) == 2
    assert "Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sizes", "64B"], "expected two sizes or more"),
        (["--json", "nowhere/packets.json"], "nowhere is not a folder"),
        (["--json", "same", "--plot", "./same"], "name the same file twice"),
    ],
)
def test_a_measurement_that_cannot_be_saved_is_not_started(words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ripieno.bench.packets.started", lambda *_: pytest.fail("the measurement has started"))
    assert main(["packets", *words]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_links_of_a_rate_have_the_efficient_packet_that_was_requested():
    assert packets.of_rate(10e9, 5e6).efficient_bytes == pytest.approx(5e6, rel=1e-3)


def test_charts_have_a_text_description():
    curve = PacketCurve.network()
    assert "efficient from" in report.throughput_chart({"network": curve})
    assert "alpha 0.5" in report.density_chart(1000, [0.5, 2.0])
    volumes = report.volume_chart({"twitter": ([4e6, 2e6], [4.1e6, 1.9e6])})
    assert "Eq. 5" in volumes and "4.1 MB" in volumes
    times = report.time_chart("64 hosts", [("8x4x2", 1.2, 0.44, 0.4), ("direct", 2.0, 2.2, None)])
    assert "8x4x2 440 ms" in times
    assert all("predicted" in chart and "measured" in chart for chart in (volumes, times))
