"""The house: a room of `python/ripieno` imports only rooms that stand before it in a list."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import ripieno

PACKAGE = Path(ripieno.__file__).parent

# From the ground up. A room imports what stands before it, in type checks and inside functions, too.
ROOMS = (
    "errors",
    "_checks",
    "_version",
    "units",
    "host",
    "_native",
    "kernels",
    "files",
    "output",
    "flight",
    "wire",
    "keyed",
    "sparse",
    "comm",
    "input",
    "launch",
    "doctor",
    "graph",
    "text",
    "features",
    "mapreduce",
    "lab",
    "algorithms",
    "spark",
    "report",
    "bench",
    "cli",
)
# The package itself is the face of all rooms, and `python -m ripieno` is a command.
ABOVE_ALL = ("__init__", "__main__")
# Why a room that stands later is named all the same.
EXCEPTIONS = {
    ("launch", "__init__"): "an actor of Ray asks which ripieno is installed where it runs",
}


class Import(NamedTuple):
    """One import between rooms."""

    file: str
    line: int
    room: str
    imported: str


def test_every_room_is_in_the_list():
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}

    assert rooms == {*ROOMS, *ABOVE_ALL} - {"_native"}


def test_arrows_point_down():
    upward = [each for each in _imports() if each.room not in ABOVE_ALL and _stands_later(each)]

    assert [f"{each.file}:{each.line}: {each.room} imports {each.imported}" for each in upward] == []


@pytest.mark.parametrize(("room", "imported"), EXCEPTIONS, ids=EXCEPTIONS.values())
def test_an_exception_is_needed(room: str, imported: str):
    assert any((each.room, each.imported) == (room, imported) for each in _imports())


def _stands_later(found: Import) -> bool:
    if (found.room, found.imported) in EXCEPTIONS:
        return False
    return found.imported in ABOVE_ALL or ROOMS.index(found.imported) > ROOMS.index(found.room)


def _imports() -> Iterator[Import]:
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE)
        room = inside.parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            for module in _modules(node):
                imported = _room_of(module)
                if imported is not None and imported != room:
                    yield Import(str(inside), node.lineno, room, imported)


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _room_of(module: str) -> str | None:
    """The room of a module or name of the package; None of others."""
    package, _, rest = module.partition(".")
    if package != "ripieno":
        return None
    first = rest.partition(".")[0]
    return first if first in ROOMS else "__init__"
