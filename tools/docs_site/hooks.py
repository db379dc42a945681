"""Hooks of MkDocs, named in mkdocs.yml: they make pages of the site of docs/, which GitHub shows as it is.

Links that lead out of docs/ go to GitHub. The words of tests/docs after a fence's language become its title,
or nothing. ``<!-- header NAME -->`` becomes the reference of that header, ``<!-- figures -->`` the tables of
all benchmarks, ``<!-- all verdicts -->`` that of all operators. CHANGELOG.md is a page.
"""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from headers import header_page  # noqa: E402

_OUTSIDE = re.compile(
    r"\]\((?:\.\./)+(?P<path>(?:src|tests|tools|benchmarks|examples|[A-Z]+\.md)[^)]*)\)"
)
_FENCE = re.compile(
    r"^(?P<fence>```\w+)(?: fragment)? ?(?:from=)?(?P<title>\"[^\"]*\")?$", re.MULTILINE
)
_ROLE = re.compile(r":(?:attr|class|func|meth|mod):<code>~?(?:[\w.]+\.)?(?P<name>\w+)</code>")
_TABLES = {
    "<!-- figures -->": ("performance_tables.py", "all_tables"),
    "<!-- all verdicts -->": ("verdict_tables.py", "all_verdicts"),
}
_HEADER = re.compile(r"^<!-- header (?P<name>\S+) -->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the changelog."""
    from mkdocs.structure.files import File

    changelog = (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    changelog = re.sub(r"\]\((?=[A-Z]+\.md)", "](../", changelog).replace("](docs/", "](")
    files.append(File.generated(config, "changelog.md", content=changelog))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page's text as the site shows it."""
    source = f"{config.repo_url}/blob/main/"
    markdown = _OUTSIDE.sub(lambda link: f"]({source}{link['path']})", markdown)
    markdown = _FENCE.sub(
        lambda at: at["fence"] + (f" title={at['title']}" if at["title"] else ""), markdown
    )
    for mark, (tool, table) in _TABLES.items():
        if mark in markdown:
            made = runpy.run_path(str(_ROOT / "tools" / tool))[table]()
            markdown = markdown.replace(mark, made)
    include = _ROOT / "src" / "opsmith" / "csrc" / "include"
    return _HEADER.sub(lambda found: header_page(include / found["name"]), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with names in the place of the roles that docstrings give them."""
    return _ROLE.sub(r"<code>\g<name></code>", html)
