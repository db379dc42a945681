"""Does what one page of docs/ tells its reader to do, block by block, in the current folder.

``python docs_page.py PAGE`` writes each block with a ``title`` to that file, looks for each block with a
``from`` in that file, here or in the repository, runs each ``$`` line of a ``console`` block and compares
what it prints, and runs each ``python`` block, all in order and in one process; ``…`` stands for anything.
A page that says ``<!-- files of PAGE -->`` begins with the files of that other page.  A line ``$ cd FOLDER``,
here or in the repository, is for all blocks after it.  A block marked ``fragment`` is for reading only.
Started by ``test_docs.py``, since a process can load one backend; ``PATH`` says whose ``opsmith`` and
``python`` run.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

_ROOT = Path(__file__).parents[2]
_TITLE = re.compile(r'title="(?P<file>[^"]+)"')
_SOURCE = re.compile(r'from="(?P<file>[^"]+)"')
_BUILDING = "opsmith: building"
_FILES_OF = re.compile(r"^<!-- files of (?P<page>\S+) -->$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the file that it is the text or a part of, its text, its first line."""

    language: str
    title: str | None
    source: str | None
    fragment: bool
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of ``page``."""
    found = []
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "fence" and token.map is not None:
            language, _, rest = token.info.partition(" ")
            title, source = _TITLE.search(rest), _SOURCE.search(rest)
            found.append(
                Block(
                    language,
                    title["file"] if title else None,
                    source["file"] if source else None,
                    "fragment" in rest.split(),
                    token.content,
                    token.map[0] + 2,
                )
            )
    return found


def is_run(block: Block) -> bool:
    """Whether running a page does anything with ``block``."""
    named = block.title is not None or block.source is not None
    runnable = named or block.language in {"console", "python"}
    return runnable and not block.fragment


def run(block: Block, page: Path, namespace: dict[str, object]) -> None:
    """Does what ``block`` says.  Raises what its Python raises, or AssertionError for other output."""
    if block.fragment:
        return
    if block.title is not None:
        target = Path(block.title)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text, encoding="utf-8")
    elif block.source is not None:
        here = Path(block.source)
        file = here if here.exists() else _ROOT / here
        text = " ".join(file.read_text(encoding="utf-8").split())
        assert re.search(_pattern(block.text), text), (
            f"{page.name}:{block.line}: {block.source} does not hold\n{block.text}"
        )
    elif block.language == "console":
        run_console(block, page)
    elif block.language == "python":
        # Blank lines first, so that a traceback names the page's own line.
        source = "\n" * (block.line - 1) + block.text
        exec(compile(source, str(page), "exec"), namespace)


def run_console(block: Block, page: Path) -> None:
    """Runs the commands of a ``console`` block and compares their output."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        if command.startswith("cd "):
            folder = Path(command.removeprefix("cd "))
            os.chdir(folder if folder.exists() else _ROOT / folder)
            continue
        done = subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "COLUMNS": "110"},
        )
        # A build that takes longer than the page's own tells how far it is.
        told = [line for line in done.stdout.splitlines() if not line.startswith(_BUILDING)]
        printed = " ".join(" ".join(told).split())
        assert re.fullmatch(_pattern(expected), printed), (
            f"{page.name}:{block.line}: $ {shlex.quote(command)} printed\n{done.stdout}\n"
            f"and the page says\n{expected.strip()}"
        )


def _pattern(text: str) -> str:
    # Lines are wrapped as the length of this folder's name wants it.
    # A build that finds all of it in the cache says nothing before its result.
    pattern = re.escape(" ".join(text.split())).replace(re.escape("… "), "(?:.*? )?")
    return pattern.replace(re.escape("…"), ".*?")


if __name__ == "__main__":
    this = Path(sys.argv[1]).resolve()
    for other in _FILES_OF.findall(this.read_text(encoding="utf-8")):
        for each in blocks(this.parent / other):
            if each.title is not None:
                run(each, this, {})
    shared: dict[str, object] = {"__name__": "__main__"}
    for each in blocks(this):
        run(each, this, shared)
    print(f"ran {sum(is_run(block) for block in blocks(this))} blocks")
