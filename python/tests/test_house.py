"""The architecture: a package of `python/ripieno` imports only packages that precede it in a list."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import ripieno

PACKAGE = Path(ripieno.__file__).parent

# Bottom to top. A package imports earlier packages only, also in type checks and inside functions.
ROOMS = (
    "errors",
    "log",
    "_checks",
    "_extras",
    "_threads",
    "_types",
    "units",
    "host",
    "_native",
    "_version",
    "disciplines",
    "kernels",
    "files",
    "output",
    "flight",
    "wire",
    "keyed",
    "sparse",
    "simulation",
    "topology",
    "comm",
    "input",
    "dashboard",
    "launch",
    "lightgbm",
    "mpi",
    "doctor",
    "graph",
    "text",
    "features",
    "mapreduce",
    "lab",
    "algorithms",
    "spark",
    "networkx",
    "torch",
    "xgboost",
    "report",
    "bench",
    "cli",
)
# The top-level package exports all packages, and `python -m ripieno` is a command.
ABOVE_ALL = ("__init__", "__main__")
# Words replaced by other terms everywhere: for replicas of ranks, ordinal numbers, rows per second, OwnedBuffers.
RETIRED = [
    re.compile(word)
    for word in (
        r"\b[Cc]op(y|ies) of (a |the |each |every )?(logical )?ranks?\b",
        r"\branks (that )?have copies\b",
        r"how-manieth",
        r"\bpoints_per_s\b",
        r"\bLasting\b",
    )
]
# The same inside packages with many modules; the package's `__init__` stands above all of them.
INNER_ROOMS = {
    "launch": (
        "limits",
        "racks",
        "binding",
        "encryption",
        "process",
        "job",
        "script",
        "engine",
        "member",
        "engines",
        "kubernetes",
    ),
    "input": (
        "shares",
        "checksums",
        "lines",
        "columns",
        "matrix",
        "split",
        "formats",
        "partitions",
        "cutting",
        "assigning",
        "dividing",
    ),
    "algorithms": (
        "checks",
        "clock",
        "inputs",
        "own_rows",
        "progress",
        "split_rows",
        "same_call",
        "reported",
        "journal",
        "fit_checkpoint",
        "worker_estimator",
        "result_folder",
        "class_scores",
        "classifier",
        "kmeans",
        "linear",
        "pca",
        "sgd",
        "logistic",
        "als",
        "mds",
        "vertices",
        "pagerank",
        "springs",
    ),
}
# Reasons for imports of later packages.
EXCEPTIONS = {
    ("algorithms", "report"): "a report makes its page when it is looked at",
    ("launch", "__init__"): "an actor of Ray asks which ripieno is installed where it runs",
}

# Packages that take longer to import than everything else that a worker needs at start.
SLOW_PACKAGES = ("fsspec", "matplotlib", "pandas", "rich", "skimage", "sklearn")


class Import(NamedTuple):
    """One import between packages."""

    file: str
    line: int
    room: str
    imported: str


def test_every_room_is_in_the_list():
    assert _rooms_in(PACKAGE) == {*ROOMS, *ABOVE_ALL} - {"_native"}


@pytest.mark.parametrize("word", RETIRED, ids=lambda word: word.pattern)
def test_one_word_is_used_for_a_thing(word):
    root = PACKAGE.parents[1]
    sources = [*root.glob("python/**/*.py"), *root.glob("crates/*/src/**/*.rs"), *root.glob("docs/**/*.md")]
    sources += [*root.glob("benches/*.py"), root / "README.md", root / "ARCHITECTURE.md"]

    assert [path.name for path in sources if word.search(path.read_text()) and path != Path(__file__)] == []


def test_arrows_point_down():
    upward = [each for each in _imports() if each.room not in ABOVE_ALL and _stands_later(each)]

    assert [f"{each.file}:{each.line}: {each.room} imports {each.imported}" for each in upward] == []


@pytest.mark.parametrize(("room", "imported"), EXCEPTIONS, ids=EXCEPTIONS.values())
def test_an_exception_is_needed(room: str, imported: str):
    assert any((each.room, each.imported) == (room, imported) for each in _imports())


@pytest.mark.parametrize("room", INNER_ROOMS)
def test_every_inner_room_is_in_its_list(room: str):
    assert _rooms_in(PACKAGE / room) - {"__init__"} == set(INNER_ROOMS[room])


@pytest.mark.parametrize("room", INNER_ROOMS)
def test_arrows_inside_a_room_point_down(room: str):
    order = (*INNER_ROOMS[room], "__init__")
    found = [each for each in _imports(f"ripieno.{room}", order) if each.room != "__init__"]

    upward = [each for each in found if order.index(each.imported) > order.index(each.room)]

    assert found
    assert [f"{each.file}:{each.line}: {each.room} imports {each.imported}" for each in upward] == []


def test_workers_start_without_slow_packages():
    programs = sorted(PACKAGE.glob("algorithms/*/*program.py"))
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in programs]
    source = f"import sys, {', '.join(names)}; print([name for name in {SLOW_PACKAGES} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=250)

    assert "ripieno.algorithms.logistic.program" in names
    assert done.stdout == "[]\n"


def _rooms_in(folder: Path) -> set[str]:
    return {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}


def _stands_later(found: Import) -> bool:
    if (found.room, found.imported) in EXCEPTIONS:
        return False
    return found.imported in ABOVE_ALL or ROOMS.index(found.imported) > ROOMS.index(found.room)


def _imports(package: str = "ripieno", rooms: Collection[str] = ROOMS) -> Iterator[Import]:
    """Return the imports between the parts of a package."""
    folder = PACKAGE.joinpath(*package.split(".")[1:])
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder)
        room = inside.parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            for module in _modules(node):
                imported = _room_of(module, package, rooms)
                if imported is not None and imported != room:
                    yield Import(str(inside), node.lineno, room, imported)


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _room_of(module: str, package: str, rooms: Collection[str]) -> str | None:
    """Return the part to which a module or name of the package belongs; None for others."""
    if not f"{module}.".startswith(f"{package}."):
        return None
    first = module.removeprefix(f"{package}.").partition(".")[0]
    return first if first in rooms else "__init__"
