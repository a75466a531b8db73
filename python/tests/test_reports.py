"""Reports of fits: every estimator has a page with the outcome and the cost of a fit; and progress."""

from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import ripieno as rp
from ripieno import log
from ripieno.algorithms.predictions import of_classes, of_targets
from ripieno.cli import main
from ripieno.comm.rank import CallBase
from ripieno.errors import InputError
from sklearn.metrics import confusion_matrix, r2_score, roc_auc_score
from test_commands import all_commands
from test_report import PageReader
from test_saved_models import MODELS, fitted
from varied import exhaustively

RNG = np.random.default_rng(0)
CENTERS = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0], [0.0, 9.0, 5.0]])
TABLE = pd.DataFrame(
    np.concatenate([RNG.normal(center, 0.3, (40, 3)) for center in CENTERS]), columns=["height", "width", "age"]
)
LABELS = (TABLE["height"] > 4).astype(int).to_numpy()
RATINGS = (np.array([0, 1, 2, 0]), np.array([0, 1, 2, 2]), np.array([1.0, 2.0, 3.0, 4.0]))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", MODELS)
def test_every_report_is_a_page(name, tmp_path):
    model = fitted(name)

    model.report_.save(tmp_path / "fit.html")

    page = (tmp_path / "fit.html").read_text()
    reader = PageReader()
    reader.feed(page)
    assert reader.open == [] and len(reader.ids) == len(set(reader.ids))
    assert "http" not in re.sub(r"http://www\.w3\.org/\S+", "", page)
    for text in (f"rp.{name}(", "Each rank", "Serialization", "Parameters"):
        assert text in page
    (facts,) = model.report_.ranks
    assert facts.computing_s > 0 and facts.memory_bytes > 1e7 and facts.bytes_sent == 0


@pytest.mark.parametrize("name", ["BFS", "KMeans", "PCA"])
def test_every_kind_of_report_shows_itself_in_a_notebook(name, without_charts):
    assert fitted(name).report_._repr_html_().startswith("<iframe srcdoc=")


def test_time_of_ranks_is_listed_separately():
    model = rp.KMeans(3, workers=2, random_state=0).fit(TABLE)

    for facts in model.report_.ranks:
        parts = facts.computing_s + facts.waiting_s + facts.transfer_s + facts.serializing_s
        assert parts == pytest.approx(facts.program_s, rel=0.01)
        assert facts.bytes_sent > 0 and facts.bytes_received > 0


def test_a_report_covers_its_own_fit_only(world):
    rows = RNG.normal(size=(300, 8))

    def counts(model):
        names = ("call_count", "bytes_sent", "bytes_received")
        kernels = [sum(each["kernels"] for each in rank["threads"]) for rank in model.report_.traffic]
        return [tuple(rank[name] for name in names) for rank in model.report_.traffic], kernels

    first, longer, last = (
        rp.KMeans(3, init=rows[:3], max_iter=count, tol=0, engine=world(2)).fit(rows) for count in (2, 20, 2)
    )
    assert counts(first) == counts(last)
    assert longer.report_.traffic[0]["bytes_sent"] > first.report_.traffic[0]["bytes_sent"] > 0
    assert [each.bytes_sent for each in last.report_.ranks] == [each["bytes_sent"] for each in last.report_.traffic]
    for rank in last.report_.traffic:
        assert all(
            each["running_s"] is None or each["running_s"] < last.report_.total_s + 1 for each in rank["threads"]
        )


def test_existing_ranks_have_a_report(world):
    def program(comm):
        model = rp.KMeans(3, random_state=0).fit(TABLE, comm=comm)
        return len(model.report_.ranks), model.report_.about.outcome

    assert [count for count, _ in world(2).run(program)] == [2, 2]


@pytest.mark.parametrize(
    ("max_iter", "words"), [(300, "converged after "), (1, "hit max_iter: stopped after 1 iteration, and may not")]
)
def test_the_report_states_how_the_fit_ended(max_iter, words):
    model = rp.KMeans(3, init="random", max_iter=max_iter, random_state=1).fit(RNG.random((300, 2)))

    assert model.report_.about.outcome.startswith(words)


def test_clusters_have_profiles_by_named_columns_and_positions_in_the_plane():
    about = rp.KMeans(3, random_state=0).fit(TABLE).report_.about

    assert list(about.profiles) == ["height", "width", "age"]
    np.testing.assert_allclose(np.sort(about.profiles["height"]), [0, 0, 9], atol=0.3)
    assert about.points.shape == (3, 2) and about.sizes.sum() == len(TABLE)
    assert about.rows.shape == (len(TABLE), 2)
    means = [about.rows[about.row_clusters == cluster].mean(axis=0) for cluster in range(3)]
    np.testing.assert_allclose(means, about.points, atol=1e-6)


def test_coefficients_have_the_names_of_columns_and_shares_of_the_variance_are_drawn():
    ridge = rp.Ridge(1e-6).fit(TABLE[["height", "width"]], 3 * TABLE["height"] - TABLE["width"])
    assert list(ridge.report_.about.coefficients) == ["height", "width"]
    page = ridge.report_._repr_html_()
    assert "height  3" in page and "width  -1" in page and "Coefficients" in page

    classes = np.repeat(["low", "mid", "far"], 40)
    several = rp.LogisticRegression().fit(TABLE, classes).report_.about
    assert several.coefficient_count == 9 and "far: height" in several.coefficients
    largest = [abs(value) for value in several.coefficients.values()]
    assert largest == sorted(largest, reverse=True)
    many = rp.Ridge().fit(RNG.normal(size=(60, 50)), RNG.normal(size=60)).report_.about
    assert (len(many.coefficients), many.coefficient_count) == (30, 50)
    assert "Variance along the axes" in rp.PCA(2).fit(TABLE).report_._repr_html_()


def test_the_code_of_a_report_repeats_the_fit(tmp_path):
    model = rp.KMeans(3, random_state=0, workers=1).fit(TABLE)

    np.testing.assert_array_equal(repeated(model, X=TABLE).cluster_centers_, model.cluster_centers_)
    start = TABLE.to_numpy()[[0, 40, 80]]
    model = rp.KMeans(3, init=start).fit(TABLE, columns=["height", "width", "age"], id=None)
    assert "# init: ndarray of shape (3, 3)" in model.report_.about.code
    np.testing.assert_array_equal(repeated(model, X=TABLE, init=start).labels_, model.labels_)
    TABLE.to_csv(tmp_path / "table.csv", index=False)
    files = rp.input.TableFiles([tmp_path / "table.csv"], missing="drop", ignore=["width"])
    model = rp.Ridge().fit(files, "age")
    np.testing.assert_array_equal(repeated(model).coef_, model.coef_)
    model = rp.LogisticRegression(C=np.inf, tol=1.0).fit(TABLE, LABELS)
    assert np.inf == repeated(model, X=TABLE, y=LABELS).C

    edges = tmp_path / "the edges.txt"
    edges.write_text("0 1\n1 2\n2 3\n")
    model = rp.BFS(3).fit(rp.Graph(str(edges), directed=False))
    np.testing.assert_array_equal(repeated(model).distances_, [3, 2, 1, 0])


#: Each command with a report: its inputs and options. The report is in a folder, or in a file.
WITH_FOLDER = {
    "als": ["my ratings.csv", "--rank", "2", "--max-iter", "2"],
    "kmeans": ["my rows.csv", "--clusters", "2"],
    "layout": ["--max-iter", "2", "--", "my graph.txt"],
    "logistic": ["my rows.csv", "--target", "a name", "--ignore", "height"],
    "mds": ["my rows.csv", "--metric", "euclidean", "--max-iter", "2"],
    "pca": ["my rows.csv", "--components", "2"],
    "ridge": ["my rows.csv", "--target", "a name"],
}
WITH_FILE = {
    "bfs": ["my graph.txt", "--source", "0"],
    "clustering": ["my graph.txt"],
    "communities": ["my graph.txt"],
    "components": ["my graph.txt"],
    "diameter": ["my graph.txt"],
    "pagerank": ["my graph.txt"],
    "shortest-paths": ["my graph.txt", "--source", "0"],
    "spectral-clustering": ["my graph.txt", "--clusters", "2", "--components", "2"],
}


def test_every_command_on_rows_or_graphs_has_a_report():
    with_report = {name for name, options in all_commands() if {"--checkpoint", "--target"} & names_of_all(options)}
    assert with_report == WITH_FOLDER.keys() | WITH_FILE.keys()
    for name, options in all_commands():
        if name in WITH_FOLDER | WITH_FILE:
            assert ("--report" in names_of_all(options)) == (name in WITH_FILE), name


def names_of_all(options):
    return {word for option in options for word in option.opts}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "name",
    ["layout", "bfs", *exhaustively(*(name for name in WITH_FOLDER | WITH_FILE if name not in ("layout", "bfs")))],
)
def test_the_command_in_a_report_runs_when_it_is_pasted(tmp_path, monkeypatch, name):
    folder = tmp_path / "a folder's data"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "my graph.txt").write_text("0 1\n1 2\n2 0\n2 3\n")
    (folder / "my ratings.csv").write_text("user,item,rating\n0,0,1.0\n1,1,2.0\n0,1,3.0\n")
    TABLE.rename(columns={"age": "a name"}).assign(**{"a name": LABELS}).to_csv(folder / "my rows.csv", index=False)
    out = {"--out": "my result"} if name in WITH_FOLDER else {"--out": "my result.csv", "--report": "my report.html"}
    assert main([name, *(word for pair in out.items() for word in pair), *(WITH_FOLDER | WITH_FILE)[name]]) == 0
    page = folder / ("my result/report.html" if name in WITH_FOLDER else "my report.html")
    shown = html.unescape(re.search(r"To repeat it</h2>\s*<pre[^>]*>(.*?)</pre>", page.read_text(), re.DOTALL)[1])
    first = page.read_text()
    page.unlink()
    monkeypatch.chdir("/")

    change, line = shown.strip().splitlines()
    assert shlex.split(change) == ["cd", str(folder)]
    monkeypatch.chdir(shlex.split(change)[1])
    assert shlex.split(line)[0] == "ripieno" and main(shlex.split(line)[1:]) == 0
    assert page.exists() and "To repeat it" in first


def test_reports_are_numbers_or_pages_by_their_name(tmp_path, capsys):
    (tmp_path / "graph.txt").write_text("0 1\n1 2\n2 0\n")
    line = ["components", str(tmp_path / "graph.txt"), "--report"]
    assert main([*line, str(tmp_path / "report.json")]) == 0
    assert json.loads((tmp_path / "report.json").read_text())["ranks"][0]["program_s"] > 0
    assert main([*line, str(tmp_path / "report.txt")]) == 2
    assert "expected one of .html, .htm, .json" in " ".join(capsys.readouterr().err.split())


def repeated(model, **names):
    exec(model.report_.about.code, names)
    return names["model"]


def test_reports_show_the_predictions_of_their_rows():
    regression = rp.LinearRegression().fit(TABLE, target="age").report_
    predicted, residuals = regression.about.predictions.residuals
    np.testing.assert_allclose(predicted + residuals, TABLE["age"])
    page = regression._repr_html_()
    assert "Residuals" in page and "R² on these rows" in page and "Target: &lt;b&gt;age" in page

    classes = np.repeat(["low", "mid", "far"], 40)
    model = rp.LogisticRegression().fit(TABLE, classes)
    found = model.report_.about.predictions
    np.testing.assert_array_equal(found.confusion, confusion_matrix(classes, model.predict(TABLE)))
    assert found.score == model.score(TABLE, classes)
    noisy = TABLE.assign(age=RNG.normal(size=120))
    model = rp.LogisticRegression().fit(noisy[["age"]], LABELS)
    (curve,) = model.report_.about.predictions.curves.values()
    assert curve.area == pytest.approx(roc_auc_score(LABELS, model.decision_function(noisy[["age"]])))
    page = model.report_._repr_html_()
    assert "Confusion matrix" in page and "ROC curve" in page


def test_reports_of_fits_on_splits_show_their_rows(tmp_path):
    TABLE.assign(tall=LABELS).to_parquet(tmp_path / "table.parquet")
    splits = rp.input.splits(tmp_path / "table.parquet")
    assert rp.LogisticRegression().fit(splits, "tall").report_.about.predictions.count == 120
    assert rp.KMeans(3, random_state=0).fit(splits).report_.about.rows.shape == (120, 2)
    assert rp.PCA(2).fit(splits).report_.about.points.shape == (120, 2)


def test_predictions_of_a_report_are_bounded():
    rows = RNG.normal(size=(20_000, 2))
    found = rp.Ridge().fit(rows, rows[:, :1]).report_.about.predictions
    assert (found.count, found.total, len(found.residuals[0])) == (10_000, 20_000, 1500)
    assert "R² on 10,000 of these rows" in rp.Ridge().fit(rows, rows[:, 0]).report_._repr_html_()


def test_the_r_squared_of_constant_targets_is_that_of_scikit_learn():
    actual = np.column_stack([np.arange(4.0), np.full(4, 2.0), np.full(4, 3.0)])
    predicted = np.column_stack([[0, 1, 2, 4.0], np.full(4, 2.0), [3, 3, 3, 3.5]])

    found = of_targets(actual, predicted, 4)

    assert found.score == pytest.approx(r2_score(actual, predicted))


def test_a_class_without_predicted_rows_has_no_roc_curve():
    scores = np.random.default_rng(0).normal(size=(30, 3))
    numbers = np.arange(30) % 2

    found = of_classes(numbers, scores, np.array(["a", "b", "c"]), 900)

    assert {name: curve.area for name, curve in found.curves.items()} == pytest.approx(
        {name: roc_auc_score(numbers == at, scores[:, at]) for at, name in enumerate("ab")}
    )


def test_ratings_held_out_are_compared():
    model = rp.ALS(3, random_state=0).fit(RATINGS, test=RATINGS)
    assert model.test_error_ == model.rmse(RATINGS)
    assert "test error" in model.report_._repr_html_()
    assert not hasattr(model.fit(RATINGS), "test_error_")


def test_charts_have_a_form_for_narrow_pages():
    page = rp.KMeans(3, random_state=0).fit(TABLE).report_._repr_html_()
    assert page.count("svg class=&quot;narrow&quot;") == page.count("svg class=&quot;wide&quot;") == 3


def test_the_report_of_a_command_has_its_line(tmp_path):
    np.save(tmp_path / "x.npy", TABLE.to_numpy())
    line = ["kmeans", "x.npy", "--clusters", "3", "--quiet"]
    done = subprocess.run([sys.executable, "-m", "ripieno.cli", *line], cwd=tmp_path, capture_output=True, timeout=250)

    assert done.returncode == 0
    page = (tmp_path / "result/report.html").read_text()
    code = html.unescape(re.search(r'<pre class="scroll">(.*?)</pre>', page, re.DOTALL)[1])
    assert code == f"cd {tmp_path}\nripieno kmeans x.npy --clusters 3 --quiet --overwrite"
    # Clusters have their rows, as in a report from Python.
    assert "The small points are 120 of the rows" in page


def test_serialization_is_counted_where_objects_travel(world):
    def program(comm):
        before = comm.stats()["seconds_serializing"]
        comm.broadcast({"many": list(range(20000))} if comm.rank == 0 else None)
        objects = comm.stats()["seconds_serializing"] - before
        comm.broadcast(None, out=np.ones(20000))
        return objects, comm.stats()["seconds_serializing"] - before - objects

    for objects, arrays in world(2).run(program):
        assert objects > 0 == arrays


def test_progress_reports_iterations(capsys):
    rp.KMeans(3, random_state=0, on_iteration=rp.Progress(every_s=0)).fit(TABLE)

    lines = capsys.readouterr().err.splitlines()
    assert lines and re.match(r"iteration 1, inertia [\d.e+]+, squared shift ", lines[0])


# Spans and the log


def test_flight_records_become_spans(world):
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from ripieno.flight.spans import export

    def program(comm):
        for _ in range(3):
            comm.allreduce(np.ones(5000))
        return comm.flight()

    records = world(2).run(program)[0]
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))

    following = export(records, rank=0, provider=provider)

    timed = [each for each in records if each["start_s"] is not None]
    spans = kept.get_finished_spans()
    assert [span.name for span in spans] == [each["collective"] for each in timed] and len(spans) >= 3
    for span, each in zip(spans, timed, strict=True):
        assert span.end_time - span.start_time == pytest.approx(1e9 * (each["end_s"] - each["start_s"]), abs=1e3)
        assert span.attributes["ripieno.rank"] == 0 and span.attributes["ripieno.bytes"] == each["bytes"]
    export(records, rank=0, provider=provider, since=following)
    assert len(kept.get_finished_spans()) == len(spans)


def test_jobs_are_logged_under_the_name_of_their_package(caplog):
    caplog.set_level("INFO", "ripieno")

    with rp.launch(workers=1) as job:
        job.run(lambda comm: comm.checkpoint("state", 1, shared=True))

    output = [(record.name, record.getMessage()) for record in caplog.records]
    assert ("ripieno.launch", "InlineJob: 1 rank is in this process") in output
    assert any(name == "ripieno.comm" and "checkpoint 'state', version 1" in text for name, text in output)


def test_fits_log_their_input_output_and_checkpoint(tmp_path, caplog):
    caplog.set_level("INFO", "ripieno")
    np.save(tmp_path / "rows.npy", TABLE.to_numpy())

    fits = [
        rp.KMeans(3, random_state=0, checkpoint=tmp_path / "kept").fit(str(tmp_path / "rows.npy")) for _ in range(2)
    ]
    fits[1].report_.save(tmp_path / "fit.html")

    output = "\n".join(f"{record.name}: {record.getMessage()}" for record in caplog.records)
    for text in (
        f"ripieno.input: {tmp_path}/rows.npy: {len(TABLE)} rows of 3 columns",
        f"ripieno.input: rank 0 of 1 has read {len(TABLE)} rows in ",
        f"ripieno.checkpoints: checkpoint of iteration 1 in {tmp_path}/kept",
        f"ripieno.checkpoints: resumes from iteration {fits[1].resumed_from_}, saved in {tmp_path}/kept",
        f"KMeans on 1 rank: converged after {fits[0].n_iter_} iterations",
        f"ripieno.files: {tmp_path}/fit.html is written",
    ):
        assert text in output


def test_rows_written_to_disk_are_reported(caplog):
    caplog.set_level("INFO", "ripieno")

    def many(comm):
        rows = rp.KeyValues(np.arange(200_000), np.ones(200_000))
        return comm.regroup(rows, combine="sum", memory_limit=200_000)

    with rp.launch(workers=1) as job:
        job.run(many)

    assert any(each.name == "ripieno.keyed" and "of rows went to" in each.getMessage() for each in caplog.records)


class TcpInsteadOfSharedMemory:
    """A native communicator that could not use shared memory with rank 2."""

    def fallback_links(self) -> list[tuple[int, str]]:
        return [(2, "TCP, cause: no memfd")]


def test_a_link_that_was_not_the_first_choice_is_reported_at_the_end(caplog):
    rank = object.__new__(CallBase)
    rank.rank = 1
    with caplog.at_level("INFO", logger="ripieno"):
        rank._log_links(TcpInsteadOfSharedMemory())
    assert caplog.messages == ["rank 1 uses a fallback link to rank 2: TCP, cause: no memfd"]


def test_the_level_of_the_log_is_one_of_four():
    with pytest.raises(InputError, match="RIPIENO_LOG=loud: expected one of DEBUG, INFO, WARNING, ERROR"):
        log.show("loud")


def test_verbose_runs_show_the_log_of_ranks(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import ripieno as rp\nrp.init().checkpoint('state', 1, shared=True)\n")
    command = [sys.executable, "-m", "ripieno.cli", "run", "-n", "2", "-v", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)

    assert done.returncode == 0 and "ripieno.launch: " in done.stderr
    assert "ripieno.comm: rank 0 checkpoint 'state', version 1" in done.stderr


def test_the_pagerank_command_writes_its_report_as_json(tmp_path):
    (tmp_path / "graph.txt").write_text("0 1\n1 2\n2 0\n")
    line = ["pagerank", "graph.txt", "--report", "report.json", "--quiet"]
    command = [sys.executable, "-m", "ripieno.cli", *line]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)

    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["ranks"][0]["program_s"] > 0 and "about" not in report


def test_charts_fit_their_data():
    from ripieno.report import charts

    stages = rp.PCA(2).fit(TABLE).report_.iterations
    assert "Seconds per stage and rank" in charts.time_chart(stages, "stage")
    # Few points are drawn larger than many.
    assert charts.point_area(10) > charts.point_area(500) > charts.point_area(10_000) == charts.point_area(10**6)
    # A logarithmic scale would label this range as 1.9 × 10¹.
    values = [21.0, 18.0, 17.0]
    assert charts.line_chart("x", {"loss": values}, log=True) == charts.line_chart("x", {"loss": values})
    assert charts.line_chart("x", {"loss": [210.0, 1.0]}, log=True) != charts.line_chart("x", {"loss": [210.0, 1.0]})


def test_a_stand_alone_chart_is_a_file_of_one_svg():
    from ripieno.report import charts

    pages = charts.line_chart("x", {"loss": [3.0, 1.0]})

    assert pages.count("<svg") == 2, "one for each width"
    assert ElementTree.fromstring(charts.standalone(pages)).tag.endswith("svg")
