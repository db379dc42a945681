"""The pages of docs/ are true: their blocks run, their links lead somewhere, readers find them all."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

import fork_server
from docs_page import blocks, is_run
from vendor_environment import make_environment

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
RUN = [
    page for page in [ROOT / "README.md", *PAGES] if any(is_run(block) for block in blocks(page))
]

IN_ITS_OWN = "<!-- in an environment of its own -->"
"""On a page that installs packages; its programs run in processes of their own."""

NIGHTLY = frozenset(
    """autograd compile compilers composites conformance custom-operators device driver fallback tour
    importing lean libraries math-library packaging programs python python-drivers random-numbers stubs
    tracing wrong-values""".split()
)
"""Pages that compile for half a minute and longer, and tell of what other tests of the default run guard."""

NEEDS = {
    **dict.fromkeys(("python", "fallback", "ten-minutes", "wrong-values"), ("Python.h",)),
    "compilers": ("Triton", "tvm-ffi"),
    "math-library": ("oneDNN",),
}
"""The requirements of a page that does something only where they are there: see ``needs.py``."""

_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)  # a C++ lambda looks like a link
_LINK = re.compile(r"\]\((?P<target>[^)#:]*)(?:#(?P<heading>[^)]*))?\)")


def _with_marks(page: Path) -> ParameterSet:
    marks = [pytest.mark.needs(*NEEDS[page.stem])] if page.stem in NEEDS else []
    if page.stem in NIGHTLY:
        marks.append(pytest.mark.nightly)
    return pytest.param(page, id=page.stem, marks=marks)


@pytest.mark.parametrize("page", [_with_marks(page) for page in RUN])
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    text = page.read_text(encoding="utf-8")
    exports = "executorch" in text
    if IN_ITS_OWN in text:
        environment = make_environment(tmp_path / "environment")
    else:
        fork_server.write_commands(tmp_path / "bin")
        path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        # As in a reader's shell: `import torch` starts a trace.
        environment = {**os.environ, "PATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    done = fork_server.run(
        [sys.executable, Path(__file__).with_name("docs_page.py"), page],
        imports=fork_server.EXECUTORCH if exports else fork_server.TORCH,
        cwd=tmp_path / "page",
        env=environment,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == f"ran {sum(map(is_run, blocks(page)))} blocks"


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_a_page_that_runs_has_no_block_that_does_not(page: Path) -> None:
    idle = [block for block in blocks(page) if not (is_run(block) or block.fragment)]
    assert [f"{page.name}:{block.line}" for block in idle] == []


def _links(page: Path) -> list[tuple[Path, str | None]]:
    """The links of ``page`` within this repository: the file, and the heading in it."""
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    return [
        ((page.parent / (m["target"] or page.name)).resolve(), m["heading"])
        for m in _LINK.finditer(text)
    ]


def _headings(page: Path) -> list[str]:
    """The anchors of ``page``, as GitHub makes them of its headings."""
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    links = _links(page)
    assert [file for file, _ in links if not file.exists()] == []
    assert [each for each in links if each[1] and each[1] not in _headings(each[0])] == []


def test_every_page_is_in_the_navigation_once_and_on_a_path() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = [DOCS / name for name in re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)]
    assert sorted(listed) == sorted([*PAGES, DOCS / "changelog.md"])
    index = DOCS / "index.md"
    paths = [index, *(DOCS / "paths").glob("*.md"), DOCS / "reference" / "index.md"]
    reached = {file for page in paths for file, _ in _links(page)}
    assert sorted(set(PAGES) - reached) == [index]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tables_and_charts_are_those_of_the_kept_results(page: Path) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "performance_tables.py"))
    text = page.read_text(encoding="utf-8")
    assert tool["with_tables"](text) == text
    for file, svg in tool["charts"](text):
        assert file.read_text(encoding="utf-8") == svg


def test_the_tables_of_flag_gems_are_those_of_the_kept_results() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "flag_gems_table.py"))
    text = tool["PAGE"].read_text(encoding="utf-8")
    assert tool["with_tables"](text) == text
    causes = re.findall(
        r"^\| (.*?) \|", text.partition("## Causes")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert causes[1:] == list(tool["CAUSES"])


def test_the_summary_of_verdicts_is_that_of_the_kept_ones() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "verdict_tables.py"))
    text = tool["PAGE"].read_text(encoding="utf-8")
    assert tool["with_summary"](text) == text
    table = tool["all_verdicts"]()
    assert table.count("\n| `") > 3000
    assert "| `mul.out` | kernel, strict" in table


def test_the_table_of_releases_is_that_of_the_kept_results() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "tested_releases.py"))
    text = tool["PAGE"].read_text(encoding="utf-8")
    assert tool["with_table"](text) == text
    changed = text.replace("| 2.13.0+cpu |", "| 2.13.9 |")
    assert changed != text == tool["with_table"](changed)
