"""The pages: valid links, complete navigation, and a reference that lists every public name once."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import ripieno
import yaml
from ripieno.cli import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[2]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
BUILT = ROOT / "target/site"
ELSEWHERE: dict[str, str] = SITE["extra"]["from_repository"]
MARKDOWN = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benches/README.md"])

CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)

# Packages with a public `__all__`.
PUBLIC = ["", "features", "graph", "input", "keyed", "lab", "launch", "launch.engine", "mapreduce", "output", "report"]
PUBLIC += ["text"]
# Names that packages of the library share among themselves.
SHARED = {"graph": {"LocalGraph", "Vertices", "load"}, "keyed": {"KeyedSchema"}}


def _pages_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "tools/site/pages.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _anchors(page: Path) -> set[str]:
    """Return the ids of a page's headings for which repository browsers and the site agree."""
    headings = [re.sub(r"[`*]", "", each) for each in HEADING.findall(_without_fences(page))]
    lower = [re.sub(r"[^\w\s-]", "", each).strip().lower() for each in headings]
    return {each.replace(" ", "-") for each in lower} & {re.sub(r"[-\s]+", "-", each) for each in lower} | set(
        DIRECTIVE.findall(page.read_text())
    )


def _without_fences(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_has_a_target(page: Path):
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}: no such file"
        assert target.is_relative_to(ROOT / "docs") or str(target.relative_to(ROOT)) in ELSEWHERE.values(), (
            f"{page.name} links to {link}, which is not a page of the site: name it in mkdocs.yml"
        )
        assert not anchor or anchor in _anchors(target), f"{page.name} links to {link}: no such heading"


def _named(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for each in (nav.values() if isinstance(nav, dict) else nav) for page in _named(each)]


def test_the_navigation_has_every_page_once():
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]

    assert sorted(_named(SITE["nav"])) == sorted([*pages, *ELSEWHERE])


def test_linked_pages_of_the_repository_exist():
    assert [source for source in ELSEWHERE.values() if not (ROOT / source).exists()] == []


def _documented() -> list[str]:
    return [
        name for page in sorted((ROOT / "docs/reference").glob("*.md")) for name in DIRECTIVE.findall(page.read_text())
    ]


def _resolved(path: str) -> Any:
    """Return the object of a dotted name, importing the longest prefix that is a module."""
    words = path.split(".")
    for length in range(len(words) - 1, 0, -1):
        try:
            found = import_module(".".join(words[:length]))
        except ModuleNotFoundError:
            continue
        for word in words[length:]:
            found = getattr(found, word)
        return found
    raise AssertionError(f"{path} is nothing that can be imported")


def test_the_reference_has_every_public_name_once():
    elsewhere = ("ripieno.spark.", "ripieno.lightgbm.")  # need packages that `make setup` does not install
    documented = [_resolved(name) for name in _documented() if not name.startswith(elsewhere)]
    public = {
        id(getattr(package, name)): f"{package.__name__}.{name}"
        for part in PUBLIC
        for package in [import_module(f"ripieno.{part}".removesuffix("."))]
        for name in {*package.__all__} - SHARED.get(part, set())
    }

    assert [public[key] for key in public if key not in map(id, documented)] == []
    assert len(set(map(id, documented))) == len(documented)


def test_the_reference_has_every_name_for_spark_once():
    documented = [name for name in _documented() if name.startswith("ripieno.spark.")]

    assert sorted(documented) == sorted(f"ripieno.spark.{name}" for name in ripieno.spark.__all__)


def test_the_page_of_commands_matches_help():
    tool = _pages_tool()
    described, page = dict(tool.helps(cli, "ripieno")), tool.commands_page()

    assert {f"ripieno {name}" for name in COMMANDS} < set(described)
    assert "ripieno lab up" in described
    assert described["ripieno run"].startswith("Usage: ripieno run ")
    assert re.search(r"-h, --help +Show this message and exit", described["ripieno lab up"])
    assert all(f"## {name}\n\n```text\n{text}\n```" in page for name, text in described.items())


def test_a_page_of_a_notebook_has_every_kind_of_output(tmp_path):
    printed = {"output_type": "stream", "name": "stdout", "text": ["1\n", "2\n"]}
    value = {"output_type": "execute_result", "data": {"text/plain": "3", "text/html": "<b>3</b>"}, "metadata": {}}
    picture = {"output_type": "display_data", "data": {"image/png": ""}, "metadata": {}}
    error = {"output_type": "error", "traceback": ["\x1b[31mKeyError\x1b[0m: 4"]}
    cells = [
        {"cell_type": "markdown", "source": ["# Title"]},
        {"cell_type": "code", "source": ["f()"], "outputs": [printed, value]},
        {"cell_type": "code", "source": "g()", "outputs": [picture]},
        {"cell_type": "code", "source": "h()", "outputs": [error]},
        {"cell_type": "raw", "source": "as it is"},
    ]
    (tmp_path / "notebook.ipynb").write_text(json.dumps({"cells": cells}))
    assert _pages_tool().content_of(tmp_path / "notebook.ipynb").split("\n\n") == [
        "# Title",
        "```python\nf()\n```", "```text\n1\n2\n3\n```",
        "```python\ng()\n```",
        "```python\nh()\n```", "```text\nKeyError: 4\n```",
        "```text\nas it is\n```\n",
    ]  # fmt: skip


def test_links_of_pages_from_elsewhere_match_the_site():
    pages = {"README.md": "index.md", "benches/README.md": "benches.md"}
    linked = _pages_tool().linked

    assert linked("[a](docs/keyed.md#b) `c`", "README.md", "index.md", pages) == "[a](keyed.md#b) `c`"
    assert linked("[a](../README.md)", "docs/engines/x.md", "engines/x.md", pages | {"docs/README.md": "home.md"}) == (
        "[a](../home.md)"
    )
    assert linked("[a](../docs/x.md)", "benches/README.md", "benches.md", pages) == "[a](x.md)"
    assert linked("```\n[a](b.md)\n```\n[c](#d)", "README.md", "index.md", pages) == "```\n[a](b.md)\n```\n[c](#d)"
    with pytest.raises(ValueError, match=r"README\.md links to crates, which is not a page of the site"):
        linked("[a](crates)", "README.md", "index.md", pages)


def test_a_hidden_command_has_no_section():
    group = click.Group("all", commands=[click.Command("shown"), click.Command("secret", hidden=True)])

    assert [name for name, _ in _pages_tool().helps(group, "all")] == ["all", "all shown"]


def _reason_to_skip(built: Path, sources: list[Path]) -> str | None:
    """Return the reason why a built site is outdated or incomplete, or None."""
    if not (built / "index.html").exists():
        return "needs the site: make docs"
    changed = [each for each in sources if each.stat().st_mtime > (built / "index.html").stat().st_mtime]
    return f"the site is older than {changed[0].relative_to(built.parent.parent)}: make docs" if changed else None


def test_a_site_that_is_older_than_a_source_is_not_checked(tmp_path):
    built, pages = tmp_path / "target/site", [tmp_path / "first.md", tmp_path / "second.md"]
    built.mkdir(parents=True)
    for page in pages:
        page.touch()
    missing = _reason_to_skip(built, pages)
    (built / "index.html").touch()
    for page in pages:
        os.utime(page, (0, 0))
    fresh = _reason_to_skip(built, pages)
    os.utime(pages[1], (2**33, 2**33))

    assert (missing, fresh) == ("needs the site: make docs", None)
    assert _reason_to_skip(built, pages) == "the site is older than second.md: make docs"


def test_a_missing_picture_fails_the_build(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the packages of make docs")
    command = re.search(r"-m (mkdocs build.*)", (ROOT / "Makefile").read_text())[1].split()
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump({"site_name": "small", "validation": SITE["validation"]}))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("![a picture](lost.png)\n")

    done = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and "lost.png" in done.stderr


def test_the_site_has_every_page_and_fetches_nothing():
    # `make check` builds it just before, and fails on warnings.
    folders = [ROOT / "docs", ROOT / "tools/site", ROOT / "python/ripieno"]
    found = [each for folder in folders for each in folder.rglob("*") if each.suffix not in (".pyc", ".so")]
    reason = _reason_to_skip(BUILT, [ROOT / "mkdocs.yml", *MARKDOWN, *(each for each in found if each.is_file())])
    if reason is not None:
        pytest.skip(reason)

    pages = list(BUILT.rglob("*.html"))
    assert len(pages) > len(_named(SITE["nav"]))
    fetched = re.compile(r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(?:https?:)?//[^>]*""")
    assert [found for page in pages for found in fetched.findall(page.read_text())] == []
