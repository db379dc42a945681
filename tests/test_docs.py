"""The pages of docs/ are true: their code blocks run, and their links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs_page import blocks, is_run

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
RUN = [page for page in PAGES if any(is_run(block) for block in blocks(page))]

_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)  # a C++ lambda looks like a link
_LINK = re.compile(r"\]\((?P<target>[^)#:]+)(#[^)]*)?\)")


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("docs_page.py"), page],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == f"ran {sum(map(is_run, blocks(page)))} blocks"


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_a_page_that_runs_has_no_block_that_does_not(page: Path) -> None:
    idle = [block for block in blocks(page) if not (is_run(block) or block.fragment)]
    assert [f"{page.name}:{block.line}" for block in idle] == []


@pytest.mark.parametrize("page", [*PAGES, DOCS.parent / "README.md"], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    targets = [match["target"] for match in _LINK.finditer(text)]
    assert [target for target in targets if not (page.parent / target).exists()] == []
