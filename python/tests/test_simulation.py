"""Collectives on modeled clusters, from commands and from programs."""

from __future__ import annotations

import functools
import json
import re
import time
import tomllib
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import ripieno as rp
from ripieno import _native
from ripieno._native import design_estimate
from ripieno.bench.paper_figures import MEASURED
from ripieno.cli import main
from ripieno.cli.explain import PLANS_BYTES
from ripieno.simulation import (
    Cluster,
    explain,
    kylix,
    papers,
    pictures,
    simulate,
    spark_broadcasts,
    spark_report,
    strategy_table,
)
from ripieno.simulation.curves import price_curves
from ripieno.simulation.reproduction import ASSUMPTION, Kind
from ripieno.units import bits_per_s, seconds_of
from varied import exhaustively

PAGE = Path(__file__).resolve().parents[2] / "docs/simulator.md"
GIB = 1 << 30
# Some take seconds.
reproduction_of = functools.cache(lambda name: papers.REPRODUCTIONS[name]())


def printed(capsys, *words):
    code = main([*words, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_command_predicts_a_chain_by_equation_3(capsys):
    found = printed(
        capsys,
        *("simulate", "broadcast", "--nodes", "1000", "--racks", "24", "--rate", "10gbit", "--uplink", "40gbit"),
        *("--bytes", "1GiB", "--algorithm", "chain", "--alpha", "5us", "--relay", "64KiB"),
    )

    segment_s = 5e-6 + (64 << 10) * 8 / 10e9
    assert found["seconds"] == pytest.approx((1000 - 2 + GIB / (64 << 10)) * segment_s, rel=1e-9)
    assert found["bytes"] == {"memory": 0, "network_link": (999 - 23) * GIB, "uplink": 23 * GIB}
    assert found["message_count"] == 999 and found["unfinished"] == []


def test_a_simulated_iteration_of_kmeans_is_an_assignment_and_an_allreduce(capsys):
    words = ("--points", "1e6", "--dim", "100", "--clusters", "1000", "--nodes", "8", "--cores", "4", "--rate", "1gbit")
    found = printed(capsys, "simulate", "kmeans", *words, "--gflops", "10")
    summed = printed(
        capsys, "simulate", "allreduce", "--nodes", "8", "--rate", "1gbit", "--bytes", f"{1000 * 101 * 8}B"
    )
    sent = printed(capsys, "simulate", "broadcast", "--nodes", "8", "--rate", "1gbit", "--bytes", f"{1000 * 100 * 4}B")

    by_name = {stage["name"]: stage["seconds"] for stage in (*found["stages"], *found["once"])}
    assert by_name["assign"] == pytest.approx(2 * 125_000 * 1000 * 100 / (4 * 10e9))
    assert (by_name["allreduce"], by_name["broadcast"]) == (summed["seconds"], sent["seconds"])
    assert found["seconds"] == pytest.approx(by_name["assign"] + by_name["allreduce"])


def test_divided_centroids_are_gathered_and_their_sums_scattered(capsys):
    words = ("--points", "1e6", "--dim", "100", "--clusters", "1000", "--nodes", "8", "--cores", "4", "--rate", "1gbit")
    found = printed(capsys, "simulate", "kmeans", *words, "--gflops", "10", "--compared", "0.25", "--divided")
    where = ("--nodes", "8", "--rate", "1gbit")
    of_collectives = {
        name: printed(capsys, "simulate", name, *where, "--bytes", f"{count}B")["seconds"]
        for name, count in {"allgather": 125 * 400, "reduce_scatter": 1000 * 800, "allreduce": 1000 * 8}.items()
    }

    by_name = {stage["name"]: stage["seconds"] for stage in found["stages"]}
    assert by_name == of_collectives | {"assign": pytest.approx(2 * 125_000 * 250 * 100 / (4 * 10e9))}
    assert found["once"] == []


def test_without_a_rate_the_kernel_of_this_machine_is_measured(capsys):
    words = ["simulate", "kmeans", "--points", "1000", "--dim", "8", "--clusters", "20", "--nodes", "2"]
    assert main(words) == 0

    out = capsys.readouterr().out
    assert "GFLOP/s a core, measured on this machine" in out and re.search(r"^in all +\d", out, re.M)
    assert main([*words[:-1], "2", "--clusters", "2.5"]) == 2
    assert "expected a whole number" in capsys.readouterr().err


def test_the_command_includes_the_time_of_headers_and_packets(capsys):
    words = ("simulate", "broadcast", "--nodes", "3", "--rate", "1gbit", "--bytes", "1MB", "--algorithm", "chain")

    found = printed(capsys, *words, "--alpha", "0us", "--relay", "16KiB", "--packet", "1448", "--headers", "66")

    # A relay forwards units of whole packets, and each of two switches stores one packet.
    behind = -(-(16 << 10) // 1448) * 1448 + 2 * 1448
    assert found["seconds"] == pytest.approx((1_000_000 + behind) * (1448 + 66) / 1448 * 8 / 1e9, rel=1e-9)


@pytest.mark.exhaustive
def test_a_cluster_of_100_000_nodes_is_simulated(capsys):
    words = ("simulate", "broadcast", "--nodes", "100000", "--racks", "2400", "--uplink", "40gbit")

    found = printed(capsys, *words, "--bytes", "1GiB", "--algorithm", "chain")

    assert found["message_count"] == 99_999 and found["bytes"]["uplink"] == 2399 * GIB


def test_an_explanation_of_many_ranks_prices_plans_that_are_too_large():
    start_s = time.process_time()
    found = explain("allreduce", Cluster(nodes=20_000), nbytes=1 << 20)
    assert time.process_time() - start_s < 5.0
    ring = next(each for each in found.candidates if each.algorithm == "ring")
    assert ring.unsimulated_operations > 10**9
    assert ring.seconds == pytest.approx(sum(ring.terms_s))
    assert re.search(r"ring +~\d+ ms", str(found))
    assert "the time comes from the formula" in str(found)


def test_a_suitable_algorithm_replaces_the_default():
    found = simulate("allgather", Cluster(nodes=2400, racks=2), nbytes=8)
    assert found.algorithm == "recursive-doubling"
    assert next(name for name, _ in found.left_out) == "ring"
    assert re.search(r"left out +ring: about \d+ operations, the maximum is 10000000", str(found))


def test_one_rank_represents_all_ranks_of_a_large_ring():
    cluster = Cluster(nodes=2500, alpha_s=1e-6, rate_bits_per_s=8e9, gamma_s_per_byte=0.0)
    found = simulate("allreduce", cluster, nbytes=2_500_000, algorithm="ring")

    assert found.seconds == pytest.approx(2 * 2499 * (1e-6 + 1000 * 1e-9))
    assert found.finish_s == [found.seconds] * 2500
    assert found.message_count == 2 * 2499 * 2500
    assert found.bytes == {"memory": 0, "network_link": 2 * 2499 * 2_500_000, "uplink": 0}
    with pytest.raises(rp.InputError, match=r"expected at most about 1\d\d\d for ring: about \d+ operations"):
        simulate("allreduce", cluster, nbytes=2_500_000, algorithm="ring", transfers=True)
    with pytest.raises(rp.InputError, match=r"expected at most about 1\d\d\d for ring: about \d+ operations"):
        simulate("allreduce", Cluster(nodes=100_000, racks=2), nbytes=5_000_000, algorithm="ring")


def test_the_text_of_a_simulation_names_its_results(capsys):
    assert main(["simulate", "broadcast", "--nodes", "4", "--racks", "2", "--bytes", "1MB"]) == 0

    out = capsys.readouterr().out
    assert re.search(r"^broadcast of 1 MB by \S+, 4 nodes in 2 racks, links 10 Gbit/s, uplinks never full$", out, re.M)
    assert re.search(r"^time +\d", out, re.M) and re.search(r"^by uplinks +1 MB$", out, re.M)


def test_ranks_behind_a_dead_node_never_finish(capsys):
    found = printed(
        capsys,
        *("simulate", "broadcast", "--nodes", "9", "--rate", "1gbit", "--bytes", "1GB", "--algorithm", "chain"),
        *("--dead", "4@0.5s"),
    )

    assert found["seconds"] is None and found["unfinished"] == [4, 5, 6, 7, 8]


def test_slow_nodes_drawn_by_a_seed_slow_all_ranks(capsys):
    words = ("simulate", "broadcast", "--nodes", "40", "--rate", "1gbit", "--bytes", "1GB", "--algorithm", "chain")
    even, slow, again = (
        printed(capsys, *words, *more)["seconds"] for more in ((), ("--slow", "2:3"), ("--slow", "2:3"))
    )
    assert slow == again == pytest.approx(3 * even, rel=0.05)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["simulate", "unknown", "--nodes", "4"], 'collective="unknown": expected one of broadcast'),
        (["simulate", "broadcast"], "expected --nodes or --ranks"),
        (["simulate", "broadcast", "--nodes", "4", "--algorithm", "ring"], "--algorithm ring: expected one of flat"),
        (["simulate", "broadcast", "--nodes", "4", "--rate", "fast"], "--rate='fast': expected a number and kbit"),
        (["simulate", "broadcast", "--nodes", "4", "--alpha", "soon"], "--alpha='soon': expected a number and s, ms"),
        (["simulate", "broadcast", "--nodes", "4", "--root", "4"], "--root 4: expected a whole number, 0 … 3"),
        (["simulate", "broadcast", "--nodes", "4", "--racks", "5"], "--racks 5: expected 1 to 4"),
        (
            ["simulate", "broadcast", "--nodes", "4", "--ranks", "6"],
            "--ranks 6: expected the same number on each of 4 nodes",
        ),
        (["simulate", "broadcast", "--nodes", "4", "--slow", "x"], "--slow='x': expected COUNT:FACTOR"),
        (["simulate", "broadcast", "--nodes", "4", "--dead", "9@1s"], "--dead 9: expected a node, 0 to 3"),
        (["simulate", "broadcast", "--nodes", "4", "--bytes", "many"], "expected a size, such as 500MB"),
        (["simulate", "broadcast", "--nodes", "4", "--racks", "none.toml"], "none.toml"),
        (["simulate", "broadcast", "--nodes", "4", "--timeline", "x.pdf"], "x.pdf: unknown kind of picture"),
        (["simulate", "alltoall", "--nodes", "90000", "--racks", "2"], "expected at most about "),
        (["simulate", "allgather", "--nodes", "5", "--algorithm", "neighbour-exchange"], "an even number of ranks"),
        (["explain", "COLLECTIVE", "--ranks", "4"], "expected the name of one, such as allreduce"),
        (["explain", "allreduce", "--ranks", "65", "--draw", "p.svg"], "ranks=65: expected at most 64"),
        (["explain", "allreduce", "--ranks", "4", "--curves", "p.pdf"], "p.pdf: unknown kind of picture"),
        (["explain", "allreduce", "--ranks", "4", "--curves", "p.svg", "--draw", "q.svg"], "--curves: expected no"),
        (["explain", "plans", "--ranks", "5", "--draw", "plans"], "--ranks 5: expected an even number"),
        (["simulate", "broadcast", "--nodes", "4", "--heal", "--loads", "x.svg"], "--loads: expected an algorithm"),
        (["reproduce", "twister-table-8", "--out", "x.md"], "--out: expected ripieno reproduce all"),
        (["reproduce", "twister-table-8", "--measured"], "--measured: expected ripieno reproduce all"),
        (["reproduce", "twister-table-9"], "expected one of harp-figure-4"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else None,
)
def test_wrong_input_is_reported_and_leaves_no_file(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert names(tmp_path) == []


def test_every_algorithm_is_priced_term_by_term_and_the_fastest_is_named(capsys):
    found = printed(capsys, "explain", "allreduce", "--ranks", "64", "--bytes", "64MiB")

    by_name = {each["algorithm"]: each for each in found["candidates"]}
    assert sorted(by_name) == sorted(_native.algorithms("allreduce"))
    times = [each["seconds"] for each in found["candidates"]]
    assert times == sorted(times) and found["fastest"] == found["candidates"][0]["algorithm"]
    ring, beta = by_name["ring"], 8 / 10e9
    assert ring["terms_s"][1] == pytest.approx(2 * 63 / 64 * (64 << 20) * beta)
    assert found["chosen"] in found["reason"] and found["fastest"] in found["reason"]


def test_racks_are_read_from_a_file(tmp_path, capsys):
    file = tmp_path / "racks.toml"
    file.write_text('[racks]\nnorth = ["n1", "n2", "n3"]\nsouth = ["s1", "s2", "s3"]\n')
    assert set(tomllib.loads(file.read_text())["racks"]) == {"north", "south"}

    found = printed(
        capsys, "explain", "broadcast", "--ranks", "12", "--racks", str(file), "--uplink", "1gbit", "--bytes", "8MB"
    )

    by_name = {each["algorithm"]: each for each in found["candidates"]}
    assert by_name["chain"]["uplink_bytes"] == 8_000_000
    assert by_name["flat"]["uplink_bytes"] == 6 * 8_000_000
    file.write_text('[racks]\nnorth = ["n*"]\n')
    assert main(["explain", "broadcast", "--ranks", "4", "--racks", str(file)]) == 2
    assert "expected a list of host names, without patterns" in capsys.readouterr().err


def test_a_plan_is_drawn_with_an_arrow_for_each_message(tmp_path):
    picture = tmp_path / "plan.svg"

    assert main(["explain", "broadcast", "--ranks", "8", "--draw", str(picture), "--algorithm", "binomial"]) == 0

    root = ElementTree.parse(picture).getroot()
    groups = list(root.iter("{http://www.w3.org/2000/svg}g"))
    assert len(groups) == 7
    words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "round 3" in words and "round 4" not in words and "rank 7" in words
    assert names(tmp_path) == ["plan.svg"]


def test_a_timeline_has_a_bar_for_each_message_and_pages_fetch_nothing(tmp_path, capsys):
    words = ["simulate", "allreduce", "--nodes", "8", "--racks", "2", "--bytes", "1MB", "--algorithm", "ring"]
    svg, page = tmp_path / "time.svg", tmp_path / "time.html"

    assert main([*words, "--timeline", str(svg)]) == main([*words, "--timeline", str(page)]) == 0

    root = ElementTree.parse(svg).getroot()
    bars = [each for each in root.iter("{http://www.w3.org/2000/svg}rect") if len(each)]
    assert len(bars) == 8 * 14
    assert "http://www.w3.org/2000/svg" in page.read_text()
    assert re.findall(r"(?:src|href)=", page.read_text()) == []
    capsys.readouterr()
    assert main([*words, "--timeline", str(svg)]) == 2
    assert "time.svg" in capsys.readouterr().err


def test_concurrent_blocks_are_drawn_below_each_other(tmp_path):
    svg = tmp_path / "time.svg"
    words = [
        "simulate",
        "broadcast",
        "--nodes",
        "6",
        "--bytes",
        "4MiB",
        "--algorithm",
        "csb",
        "--block-bytes",
        "128KiB",
    ]
    assert main([*words, "--timeline", str(svg)]) == 0
    bars = defaultdict(list)
    for each in ElementTree.parse(svg).getroot().iter("{http://www.w3.org/2000/svg}rect"):
        if len(each) and each[0].text.startswith("block"):
            bars[each.get("y")].append((float(each.get("x")), float(each.get("width"))))
    assert sum(len(lane) for lane in bars.values()) == 5 * 32
    assert len(bars) > 5
    for lane in bars.values():
        lane.sort()
        assert all(x + width <= after + 0.02 for (x, width), (after, _) in pairwise(lane))


def test_a_timeline_of_many_ranks_shows_some_with_a_note():
    found = simulate("broadcast", Cluster(nodes=500), nbytes=1 << 20, algorithm="chain", transfers=True)

    assert "64 ranks shown" in pictures.timeline(found)


def test_impossible_clusters_are_reported():
    for parameters, described in (
        ({"nodes": 0}, "nodes=0"),
        ({"nodes": 4, "racks": [0, 1]}, "racks: 2 numbers for 4 nodes"),
        ({"nodes": 4, "rate_bits_per_s": 0.0}, "rate_bits_per_s=0.0"),
        ({"nodes": 4, "alpha_s": -1.0}, "alpha_s=-1.0"),
        ({"nodes": 4, "segment_bytes": 0}, "segment_bytes=0"),
        ({"nodes": 4, "relay_bytes": 0}, "relay_bytes=0"),
        ({"nodes": 4, "packet_bytes": -1}, "packet_bytes=-1"),
        ({"nodes": 4, "header_bytes": 66}, "header_bytes=66: expected packet_bytes, too"),
        ({"nodes": 4, "slow": (1, 0.5, 0)}, "slow=0.5"),
    ):
        with pytest.raises(rp.InputError, match=re.escape(described)):
            Cluster(**parameters)


def test_rates_and_durations_are_read_in_their_units():
    assert {bits_per_s("rate", text) for text in ("40gbit", "40Gbit/s", "40 Gbps", "40Gb/s")} == {40 * 10**9}
    assert [seconds_of("t", text) for text in ("5us", "0.2 s", "0", "1.5ms", "2min")] == [5e-6, 0.2, 0.0, 1.5e-3, 120]
    for parse, text in ((bits_per_s, "40"), (bits_per_s, "40GBps"), (seconds_of, "3")):
        with pytest.raises(rp.InputError, match="expected a number and"):
            parse("name", text)


def test_a_communicator_explains_a_call_for_its_own_ranks(world):
    def body(comm):
        return str(comm.explain("allreduce", nbytes=1 << 20)), comm.explain("allreduce", nbytes=8).chosen

    (text, chosen), *others = world(3).run(body)

    assert text.startswith("allreduce of 1 MiB among 3 ranks: 1 node with 3 ranks")
    assert chosen in _native.algorithms("allreduce") and all(each == (text, chosen) for each in others)


def test_round_robin_ranks_are_in_the_racks_of_their_nodes():
    cluster = Cluster.of_ranks([0, 1, 0, 2], ["a", "b", "a", "b"], 1e-5, 1e-9)

    assert (cluster.ranks, cluster.rack_numbers) == (4, [0, 1, 1])
    assert cluster.rate_bits_per_s == pytest.approx(8e9)
    assert explain("broadcast", cluster, nbytes=1000).fastest.seconds is not None


#: Largest deviations from printed numbers, or from formulas.
DEVIATIONS = {
    "harp-table-1": 0.02,
    "spark-table-2": 0.55,
    "twister-table-5": 0.3,
    "twister-table-8": 0.03,
    "twister-table-8-simple": 0.1,
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_deviations_from_the_papers_are_within_their_bounds(name):
    found = reproduction_of(name)

    deviations = [row.deviation for row in found.rows]
    assert all(deviation is not None and abs(deviation) < DEVIATIONS[name] for deviation in deviations)
    assert str(found).startswith(found.title)


#: Simulations with state machines, and of a shuffle of 125 nodes, take seconds each.
QUICK = [
    name
    for name, make in papers.REPRODUCTIONS.items()
    if make.__module__ != spark_broadcasts.__name__ and name != "twister-figure-9"
]


@pytest.mark.parametrize("name", [*QUICK, *exhaustively(*papers.REPRODUCTIONS.keys() - QUICK)])
def test_every_figure_states_its_kind_its_inputs_and_its_comparison(name):
    found = reproduction_of(name)

    assert found.name == name and found.kind in (Kind.SIMULATED, Kind.FORMULA)
    assert any(row.printed is not None for row in found.rows) or found.claims
    # No input comes from the figure that it explains. Figures share only assumptions, sections and other figures.
    own = " ".join(name.split("-")[1:3])
    for each in found.inputs:
        assert re.match(rf"({ASSUMPTION}|section|equation|chosen)", each.source), each
        assert not re.search(rf"{own}\b", each.source), each


def test_the_slowdown_by_the_order_of_switches_follows_from_the_uplinks():
    factors = [row.value for row in reproduction_of("twister-figure-6").rows]

    assert factors[0] == pytest.approx(1, rel=0.01)
    assert factors == sorted(factors) and 2 < factors[-1] < 5


def test_broadcasts_of_spark_by_a_tree_match_table_2():
    rows = {row.label: row for row in reproduction_of("spark-table-2").rows}

    deviations = [rows[f"{nodes} nodes, tree of degree 2"].deviation for nodes in (1, 5, 10, 20, 30, 40)]
    assert all(deviation is not None and abs(deviation) < 0.15 for deviation in deviations)
    assert rows["40 nodes, chain"].value < 0.65 * 20


def test_broadcasts_without_a_central_source_hardly_grow_as_figure_4_requires():
    rows = {row.label: row.value for row in reproduction_of("spark-figure-4").rows}

    grown = [rows[f"{way}, 60 nodes"] / rows[f"{way}, 5 nodes"] for way in spark_report.MECHANISMS.values()]
    assert all(factor < 2 for factor in grown)


@pytest.mark.exhaustive
def test_relative_durations_of_broadcasts_of_spark_match_table_1_and_figures_6_and_7():
    seconds = spark_broadcasts.seconds_to_nodes
    gb, mib = spark_broadcasts.GB, 1 << 20

    by_block = {size: seconds("csb-llcf", 30, gb, size * mib) for size in (1, 4, 16, 64)}
    assert min(by_block, key=lambda size: by_block[size]) == 4
    few, more, many = (seconds("csb-llcf", nodes, gb) for nodes in (5, 20, 60))
    assert few < more < many < 1.1 * few
    rows = {row.label: row for row in reproduction_of("spark-table-1").rows}
    assert rows["chain"].value < rows["CSB"].value < rows["BTB"].value
    assert rows["CSB"].printed is not None and rows["BTB"].printed is not None
    ratio = rows["BTB"].printed / rows["CSB"].printed
    assert 1 < rows["BTB"].value / rows["CSB"].value < ratio


def test_designed_networks_follow_equation_5_and_win_with_small_packets():
    for graph in (kylix.TWITTER, kylix.TWITTER_HALVED, kylix.YAHOO):
        sets = (graph.curve(), graph.density * graph.features / graph.scale)
        for degrees in (kylix.DIRECT, graph.degrees, kylix.BINARY):
            seconds, sent_bytes = kylix.simulated_reduction(graph, degrees)
            priced = design_estimate(64, degrees, sets, sets, graph.row_bytes, kylix.packet_curve())
            assert sent_bytes == pytest.approx(priced["sent_bytes"], rel=0.01)
            # In a simulation, packets of one layer are sent while rows of another are added.
            assert priced["seconds"] * 0.85 < seconds < priced["seconds"] * 1.05

    rows = {row.label: row.value for row in reproduction_of("kylix-figure-6").rows if "times" in row.label}
    assert all(factor > 1.1 for name, factor in rows.items() if name != "Yahoo, direct, times as long")
    assert 1.9 < rows["Twitter, values of 2 bytes, direct, times as long"] < 2.6


def test_reproductions_are_listed(capsys):
    assert main(["reproduce", "list"]) == 0

    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines]
    assert set(names) == {*papers.REPRODUCTIONS, *MEASURED}
    assert names.index("spark-figure-9") < names.index("spark-figure-11")
    assert [line.split()[0] for line in lines if " Measured" in line] == [name for name in names if name in MEASURED]


@pytest.mark.parametrize("name", [*QUICK, *exhaustively(*papers.REPRODUCTIONS.keys() - QUICK)])
def test_the_page_of_figures_is_generated(name):
    committed = (PAGE.parent / "papers.md").read_text("utf-8")

    assert reproduction_of(name).as_markdown() in committed + "\n", (
        "run ripieno reproduce all --measured --out docs/papers.md --overwrite"
    )


@pytest.mark.exhaustive
def test_the_table_of_strategies_on_the_page_of_broadcasts_is_generated():
    page = (PAGE.parent / "broadcast.md").read_text("utf-8")

    assert strategy_table.table() in page, "paste the output of python -m ripieno.simulation.strategy_table"


def test_the_page_of_figures_has_all_of_them():
    committed = (PAGE.parent / "papers.md").read_text("utf-8")

    assert set(re.findall(r"^## (.*)$", committed, re.M)) == {*papers.REPRODUCTIONS, *MEASURED}
    assert committed.count("*Measured here.*") == len(MEASURED)


def test_kylix_figures_follow_from_the_rated_links_only():
    table_1 = reproduction_of("kylix-table-1").rows
    assert all(row.deviation is not None and -0.75 < row.deviation < -0.55 for row in table_1)
    speedups = {row.label: row.value for row in reproduction_of("kylix-figure-9").rows}
    assert 2 < speedups["Twitter, 64 nodes, 8x4x2"] < speedups["Yahoo, 64 nodes, 16x4"] < 16


def test_pictures_of_the_page_on_algorithms_are_the_plans():
    folder = PAGE.parent / "algorithms"
    drawn = pictures.all_plans(8, PLANS_BYTES)

    assert {path.stem for path in folder.glob("*.svg")} == set(drawn)
    stale = [name for name, picture in drawn.items() if (folder / f"{name}.svg").read_text("utf-8") != picture]
    assert stale == [], "run ripieno explain plans --draw docs/algorithms --overwrite"
    page = (PAGE.parent / "algorithms.md").read_text("utf-8")
    assert all(f"(algorithms/{name}.svg)" in page for name in drawn)


def test_a_crossing_matches_the_cost_formulas(tmp_path, capsys):
    cluster = Cluster(nodes=8, rate_bits_per_s=8e9, alpha_s=1e-5, gamma_s_per_byte=0.0, segment_bytes=None)
    found = price_curves("allgather", cluster, max_bytes=1 << 20)

    # Recursive doubling sends 3 messages, neighbor exchanges on the ring 7 with the same bytes: never faster.
    assert found.fastest(0) == "recursive-doubling" and found.crossings == []
    found = price_curves("allreduce", cluster, max_bytes=1 << 24)
    first = found.crossings[0]
    # 3(alpha + n beta) against 6 alpha + 7/4 n beta: clearly faster from a difference of 3 % on.
    assert (first.before, first.after) == ("bidirectional-exchange", "halving-doubling")
    exact = next(n for n in range(10_000, 80_000, 10) if 1.03 * (6e-5 + 1.75e-9 * n) < 3e-5 + 3e-9 * n)
    assert first.size_bytes == pytest.approx(exact, rel=0.06)
    target = tmp_path / "curves.svg"
    words = ["explain", "allreduce", "--ranks", "8", "--bytes", "1MiB", "--curves", str(target)]
    assert main(words) == 0
    assert "fastest" in capsys.readouterr().out
    ElementTree.parse(target)


def test_the_best_segments_of_a_chain_match_its_formula(tmp_path, capsys):
    target = tmp_path / "segments.svg"
    words = ["--ranks", "64", "--bytes", "64MiB", "--algorithm", "chain", "--alpha", "5us", "--segments", str(target)]
    found = printed(capsys, "explain", "broadcast", *words)

    # (p-2+k)(alpha + n/k beta) is minimal for segments of sqrt(n alpha / ((p-2) beta)) bytes.
    exact = ((64 << 20) * 5e-6 / (62 * 8e-10)) ** 0.5
    assert exact / 2 < found["best_bytes"] < exact * 2
    by_size = {each["segment_bytes"]: each["seconds"] for each in found["points"]}
    for size, seconds in by_size.items():
        count = (64 << 20) // size
        assert seconds == pytest.approx((62 + count) * (5e-6 + size * 8e-10), rel=0.01)
    ElementTree.parse(target)


def test_loads_are_the_sums_of_messages_of_each_port_and_uplink(tmp_path):
    target = tmp_path / "loads.svg"
    words = ["simulate", "broadcast", "--nodes", "4", "--racks", "2", "--rate", "1gbit", "--uplink", "1gbit"]
    assert main([*words, "--bytes", "1MB", "--algorithm", "flat", "--loads", str(target)]) == 0

    described = [each.text for each in ElementTree.parse(target).iter("{http://www.w3.org/2000/svg}title")]
    # The root sends three times, twice through its rack's uplink.
    assert any(each.startswith("rank 0 out: 3 MB, 99%") for each in described)
    assert any(each.startswith("rack 0 out: 2 MB") for each in described)
    assert any(each.startswith("rack 1 in: 2 MB") for each in described)


@pytest.mark.exhaustive
def test_the_commands_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    commands = re.findall(r"^    (ripieno .*)$", PAGE.read_text(), re.M)
    assert len(commands) >= 6
    # The page measures them under a launcher.
    assert main(["tune", "--budget", "0.01", "--out", "costs.json"]) == 0
    for command in commands:
        words = command.split()[1:]
        assert main(words) == 0, (command, capsys.readouterr().err)
