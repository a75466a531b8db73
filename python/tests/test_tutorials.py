"""The tutorials run as printed: each cell of a notebook prints the output that the notebook shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TUTORIALS = sorted((Path(__file__).resolve().parents[2] / "docs/tutorials").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", TUTORIALS, ids=lambda path: path.stem)
def test_every_cell_of_a_tutorial_prints_the_output_of_the_notebook(notebook, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # Functions of the module __main__ are sent to workers by value, as from a notebook.
    names = {"__name__": "__main__"}
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)
        shown = "".join(line for output in cell["outputs"] for line in output["text"])
        assert capsys.readouterr().out == shown, f"cell {number}"
    assert cells
