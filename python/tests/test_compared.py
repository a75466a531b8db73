"""`ripieno report` compares results of runs side by side, with ratios, and rejects incomparable ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from ripieno.cli import main

random = np.random.default_rng(2)
X = random.normal(size=(300, 4))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", X)
    np.save("target.npy", X @ [1.0, 2, 3, 4])
    return tmp_path


def fitted(name, *words):
    assert main(["kmeans", "rows.npy", "-k", "5", "-q", "-o", name, *words]) == 0
    return json.loads(Path(name, "model.json").read_text())


def cells(page, name):
    """Return the cells in the row of a name."""
    [row] = re.findall(rf"<tr><th>{name}</th>(.*?)</tr>", page, re.DOTALL)
    return [re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<td.*?</td>", row)]


def test_runs_are_shown_side_by_side(folder, capfd):
    first, second = fitted("all", "--max-iter", "4"), fitted("two", "--seed", "7", "-n", "2")

    assert main(["report", "all", "two/"]) == 0

    assert capfd.readouterr().out.endswith("compared.html\n")
    page = (folder / "compared.html").read_text()
    assert "http" not in page.replace("http://www.w3.org", "")
    assert cells(page, "workers") == ["1", "", "2", ""] and cells(page, "rows") == ["300", "", "300", ""]
    counts = [len(each["iterations"]) for each in (first, second)]
    ratio = f"× {counts[1] / counts[0]:.3g}"
    assert cells(page, "iterations") == [str(counts[0]), "", str(counts[1]), ratio]
    assert cells(page, "inertia")[0] == f"{first['inertia']:.6g}"
    assert cells(page, "max_iter") == ["4", "300"] and cells(page, "random_state") == ["0", "7"]
    assert cells(page, "tol") == ["0.0001"] and "They read different inputs" not in page
    assert page.count('<svg class="wide"') == page.count('<svg class="narrow"') == 2


def test_stages_of_solvers_are_compared():
    for name, alpha in [("one", "1"), ("ten", "10"), ("more", "100")]:
        assert main(["ridge", "rows.npy", "--target", "target.npy", "--alpha", alpha, "-q", "-o", name]) == 0

    assert main(["report", "one", "ten", "more", "-o", "stages.html"]) == 0

    page = Path("stages.html").read_text()
    assert cells(page, "alpha") == ["1", "10", "100"] and len(cells(page, "r2")) == 6


def test_folders_of_the_same_name_are_shown_with_their_paths():
    fitted("a/result"), fitted("b/result")

    assert main(["report", "a/result", "b/result"]) == 0

    assert "a/result, " in re.sub(r"<.*?>", "", Path("compared.html").read_text())


def test_results_that_cannot_be_compared_are_reported(folder, capfd):
    fitted("all")
    assert main(["pca", "rows.npy", "-q", "-o", "axes"]) == 0
    (folder / "bare").mkdir()
    (folder / "bare" / "model.json").write_text('{"algorithm": "kmeans", "parameters": {}, "iterations": []}')

    for words, message in [
        (["all"], "1 results: expected 2 to 5"),
        (["all"] * 6, "6 results: expected 2 to 5"),
        (["all", "axes"], "axes is of pca, all of kmeans: expected results of one command"),
        (["all", "bare"], "bare/model.json has no iteration"),
        (["all", "nothing"], "nothing/model.json does not exist"),
    ]:
        assert main(["report", *words]) == 2
        assert message in capfd.readouterr().err
    assert not (folder / "compared.html").exists()
