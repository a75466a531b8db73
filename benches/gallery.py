"""Draw the pictures of scaling and of layouts in docs/: `gallery.py [--out FOLDER]`, or `make gallery`.

All data are seeded, or come with scikit-learn and networkx.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterable
from pathlib import Path

import click
import networkx
import numpy as np
import ripieno as rp
from numpy.typing import NDArray
from ripieno.report import scatter
from ripieno.report.charts import standalone
from sklearn.datasets import load_digits

ROOT = Path(__file__).resolve().parents[1]
FAMILIES, MEMBERS = 8, 40


@click.command()
@click.option("--quick", is_flag=True, help="Small and short.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=ROOT / "docs")
def main(quick: bool, out: Path) -> None:
    """Draw all pictures into OUT/mds and OUT/layout."""
    pictures = {
        "mds/digits": lambda: _digits(100 if quick else None),
        "mds/sequences": lambda: _sequences(5 if quick else MEMBERS),
        "layout/ring": lambda: _plane(networkx.connected_watts_strogatz_graph(60 if quick else 240, 6, 0.02, seed=1)),
        "layout/karate": lambda: _plane(networkx.karate_club_graph(), "club"),
        "layout/novel": lambda: _plane(networkx.les_miserables_graph()),
        "layout/lattice": lambda: _lattice(4 if quick else 10),
    }
    for name, picture in pictures.items():
        path = (out / name).with_suffix(".svg")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(standalone(picture()))
        click.echo(path)


def _digits(count: int | None) -> str:
    """Draw pictures of digits by the distances of their pixels; each digit has a color."""
    digits = load_digits()
    model = rp.MDS(3, metric="euclidean", random_state=0).fit(digits.data[:count])
    return scatter.turning_chart("digits", model.embedding_, groups=digits.target[:count])


def _sequences(members: int) -> str:
    """Draw the sequences of the example by their edit distances; each family has a color."""
    sequences = runpy.run_path(str(ROOT / "examples" / "sequences.py"))["tree"](FAMILIES, members)
    model = rp.MDS(3, metric="levenshtein", method="da-smacof", random_state=0).fit(sequences)
    return scatter.turning_chart("sequences", model.embedding_, groups=np.arange(len(sequences)) // members)


def _plane(graph: networkx.Graph, attribute: str | None = None) -> str:
    """Draw a graph in the plane, with groups from a vertex attribute or from greedy modularity."""
    nodes = list(graph)
    at = np.array(list(rp.layout(graph, iterations=200, seed=1).values()))
    if attribute is None:
        parts = networkx.community.greedy_modularity_communities(graph)
        groups = {node: number for number, part in enumerate(parts) for node in part}
    else:
        values = sorted({graph.nodes[node][attribute] for node in nodes})
        groups = {node: values.index(graph.nodes[node][attribute]) for node in nodes}
    ends = np.array([(nodes.index(a), nodes.index(b)) for a, b in graph.edges])
    return scatter.graph_chart("graph", at, ends, groups=_numbers(groups[node] for node in nodes))


def _lattice(side: int) -> str:
    """Draw a cube of vertices, reconstructed in space from its edges; each layer has a color."""
    graph = networkx.grid_graph((side, side, side))
    at = np.array(list(rp.layout(graph, dim=3, iterations=300, seed=1).values()))
    return scatter.turning_chart("lattice", at, groups=_numbers(layer for layer, _, _ in graph))


def _numbers(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, np.int64)


if __name__ == "__main__":
    main()
