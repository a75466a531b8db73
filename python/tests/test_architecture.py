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
PACKAGES = (
    "errors",
    "log",
    "_checks",
    "_deferred",
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
    "plan",
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
    "checkpoints",
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
# Terms that have been replaced everywhere.
RETIRED_TERMS = [
    re.compile(term)
    for term in (
        r"\b[Cc]op(y|ies) of (a |the |each |every )?(logical )?ranks?\b",
        r"\branks (that )?have copies\b",
        r"how-manieth",
        r"\bpoints_per_s\b",
        r"\bLasting\b",
    )
]
# The same inside packages with many modules. The package's `__init__` may import all of them.
MODULES_OF = {
    "launch": (
        "limits",
        "deadline",
        "replicas",
        "supervisor",
        "racks",
        "binding",
        "encryption",
        "process",
        "job",
        "pool",
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
        "cuts",
        "records",
        "split",
        "columns",
        "formats",
        "matrix",
        "partitions",
        "cutting",
        "assigning",
        "reading",
        "aggregating",
        "dividing",
    ),
    "algorithms": (
        "methods",
        "domains",
        "parameters",
        "column_choice",
        "documentation",
        "checks",
        "clock",
        "thread_model",
        "inputs",
        "own_rows",
        "progress",
        "split_rows",
        "same_call",
        "predictions",
        "repeated",
        "row_sample",
        "data_facts",
        "reported",
        "iteration_log",
        "result_folder",
        "worker_estimator",
        "class_scores",
        "metrics",
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
        "fruchterman_reingold",
    ),
}
# Reasons for imports of later packages.
EXCEPTIONS = {
    ("algorithms", "report"): "a report renders its page on display",
    ("launch", "__init__"): "an actor of Ray reports the installed version of ripieno",
}

# Modules that change files without `ripieno.files.disk`, and why.
OWN_WRITERS = {
    "files/disk.py": "it provides the changes of files",
    "files/uploads.py": "it sends results to other file systems",
    "lab/kernel.py": "it sets options of the kernel",
    "lab/registry.py": "it removes empty folders of emulated clusters",
    "launch/script/token_file.py": "a file with a token is locked before it has its name",
    "mpi/windows.py": "it sizes memory without a name",
    "report/charts.py": "it draws into memory",
    "torch/rendezvous.py": "torch keeps its rendezvous in a temporary folder",
    "bench/processes.py": "programs write their output to a temporary folder",
}
# Functions of modules, and methods of any object, that change files.
CHANGES = {
    "os": "fsync link makedirs mkdir posix_fallocate remove rename renames replace rmdir symlink truncate unlink",
    "shutil": "copy copy2 copyfile copytree move rmtree",
    "tempfile": "NamedTemporaryFile TemporaryFile mkdtemp mkstemp",
    "": "hardlink_to mkdir rename rmdir savefig symlink_to to_csv to_parquet tofile unlink write_bytes write_text",
}
# Functions that write to a path or to an open file. Their argument must be a file of `ripieno.files.disk`.
FILE_WRITERS = ("CSVWriter", "OSFile", "ParquetWriter", "write_csv", "write_feather", "write_table")
FILE_WRITERS += ("np.save", "np.savetxt", "np.savez", "np.savez_compressed")

# Packages that take longer to import than all other imports of a worker together.
SLOW_PACKAGES = ("fsspec", "matplotlib", "pandas", "rich", "skimage", "sklearn")


class Import(NamedTuple):
    """One import between packages."""

    file: str
    line: int
    name: str
    imported: str


def test_every_package_is_in_the_list():
    assert _packages_in(PACKAGE) == {*PACKAGES, *ABOVE_ALL} - {"_native"}


@pytest.mark.parametrize("term", RETIRED_TERMS, ids=lambda term: term.pattern)
def test_a_retired_term_is_not_used(term):
    root = PACKAGE.parents[1]
    sources = [*root.glob("python/**/*.py"), *root.glob("crates/*/src/**/*.rs"), *root.glob("docs/**/*.md")]
    sources += [*root.glob("benches/*.py"), root / "README.md", root / "ARCHITECTURE.md"]

    assert [path.name for path in sources if term.search(path.read_text()) and path != Path(__file__)] == []


def test_imports_point_down():
    upward = [each for each in _imports() if each.name not in ABOVE_ALL and _comes_later(each)]

    assert [f"{each.file}:{each.line}: {each.name} imports {each.imported}" for each in upward] == []


@pytest.mark.parametrize(("name", "imported"), EXCEPTIONS, ids=EXCEPTIONS.values())
def test_a_listed_exception_is_still_imported(name: str, imported: str):
    assert any((each.name, each.imported) == (name, imported) for each in _imports())


@pytest.mark.parametrize("name", MODULES_OF)
def test_every_inner_package_is_in_its_list(name: str):
    assert _packages_in(PACKAGE / name) - {"__init__"} == set(MODULES_OF[name])


@pytest.mark.parametrize("name", MODULES_OF)
def test_imports_inside_a_package_point_down(name: str):
    order = (*MODULES_OF[name], "__init__")
    found = [each for each in _imports(f"ripieno.{name}", order) if each.name != "__init__"]

    upward = [each for each in found if order.index(each.imported) > order.index(each.name)]

    assert found
    assert [f"{each.file}:{each.line}: {each.name} imports {each.imported}" for each in upward] == []


def test_workers_start_without_slow_packages():
    programs = sorted(PACKAGE.glob("algorithms/*/*program.py"))
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in programs]
    source = f"import sys, {', '.join(names)}; print([name for name in {SLOW_PACKAGES} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=250)

    assert "ripieno.algorithms.logistic.program" in names
    assert done.stdout == "[]\n"


def test_warnings_are_raised_through_one_function():
    calls = {path for path in PACKAGE.rglob("*.py") if "warnings.warn(" in path.read_text()}
    assert calls == {PACKAGE / "log.py"}


def test_files_are_changed_through_one_module():
    changes = {
        str(path.relative_to(PACKAGE)): [call.lineno for call in _calls(path) if _changes_files(call)]
        for path in PACKAGE.rglob("*.py")
    }

    assert {file: lines for file, lines in changes.items() if lines and file not in OWN_WRITERS} == {}
    assert [file for file in OWN_WRITERS if not changes[file]] == []


@pytest.mark.parametrize(
    ("source", "is_change"),
    [
        ("open(path, 'w')", True),
        ("open(path, mode='ab')", True),
        ("path.open('x')", True),
        ("os.open(path, os.O_WRONLY)", True),
        ("np.save(path, array)", True),
        ("np.memmap(path, dtype, 'r+')", True),
        ("path.write_text(text)", True),
        ("figure.savefig(path)", True),
        ("os.replace(old, new)", True),
        ("pq.write_table(table, path)", True),
        ("pq.write_table(table, file)", False),
        ("disk.write_text(path, text)", False),
        ("name.replace('a', 'b')", False),
        ("open(path, 'rb')", False),
        ("write_table(columns, out)", False),
    ],
)
def test_a_change_of_files_is_recognized(source, is_change):
    assert _changes_files(ast.parse(source).body[0].value) == is_change


def _calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))


def _changes_files(call: ast.Call) -> bool:
    """Return whether a call can change files by a path, other than through `ripieno.files.disk`."""
    owner, _, name = ast.unparse(call.func).rpartition(".")
    arguments = [ast.unparse(each) for each in (*call.args, *(keyword.value for keyword in call.keywords))]
    if owner == "disk":
        return False
    if (owner, name) == ("os", "open"):
        flags = re.search("O_(WRONLY|RDWR|CREAT|APPEND|TRUNC)", " ".join(arguments))
        return flags is not None and "os.devnull" not in arguments
    if name in ("open", "memmap"):
        modes = [each for each in arguments if re.fullmatch("'[rwaxbt+]{1,3}'", each)]
        return any(set(mode) & set("wax+") for mode in modes)
    if not owner:
        # Functions of this package have such names, too.
        return False
    if {name, f"{owner}.{name}"} & set(FILE_WRITERS) and len(arguments) > 1:
        return "file" not in arguments
    return name in CHANGES.get(owner, "").split() or name in CHANGES[""].split()


def _packages_in(folder: Path) -> set[str]:
    return {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}


def _comes_later(found: Import) -> bool:
    if (found.name, found.imported) in EXCEPTIONS:
        return False
    return found.imported in ABOVE_ALL or PACKAGES.index(found.imported) > PACKAGES.index(found.name)


def _imports(package: str = "ripieno", packages: Collection[str] = PACKAGES) -> Iterator[Import]:
    """Return the imports between the parts of a package."""
    folder = PACKAGE.joinpath(*package.split(".")[1:])
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder)
        name = inside.parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            for module in _modules(node):
                imported = _package_of(module, package, packages)
                if imported is not None and imported != name:
                    yield Import(str(inside), node.lineno, name, imported)


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _package_of(module: str, package: str, packages: Collection[str]) -> str | None:
    """Return the part to which a module or name of the package belongs; None for others."""
    if not f"{module}.".startswith(f"{package}."):
        return None
    first = module.removeprefix(f"{package}.").partition(".")[0]
    return first if first in packages else "__init__"
