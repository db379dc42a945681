"""Does what one page of docs/ tells its reader to do, block by block, in the current folder.

``python docs_page.py PAGE`` writes each block with a ``title`` to that file, runs each ``$`` line of a
``console`` block and compares what it prints (``…`` stands for anything), and runs each ``python`` block,
all in order and in one process.  A block marked ``fragment`` is for reading only.  Started by
``test_docs.py``, since a process can load one backend.
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

_TITLE = re.compile(r'title="(?P<file>[^"]+)"')


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the file that it is the text of, its text and its first line."""

    language: str
    title: str | None
    fragment: bool
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of ``page``."""
    found = []
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "fence" and token.map is not None:
            language, _, rest = token.info.partition(" ")
            title = _TITLE.search(rest)
            found.append(
                Block(
                    language,
                    title["file"] if title else None,
                    "fragment" in rest.split(),
                    token.content,
                    token.map[0] + 2,
                )
            )
    return found


def is_run(block: Block) -> bool:
    """Whether running a page does anything with ``block``."""
    runnable = block.title is not None or block.language in {"console", "python"}
    return runnable and not block.fragment


def run(block: Block, page: Path, namespace: dict[str, object]) -> None:
    """Does what ``block`` says.  Raises what its Python raises, or AssertionError for other output."""
    if block.fragment:
        return
    if block.title is not None:
        target = Path(block.title)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text, encoding="utf-8")
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
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PATH": path, "COLUMNS": "110"},
        )
        # Lines are wrapped as the length of this folder's name wants it.
        pattern = re.escape(" ".join(expected.split())).replace(re.escape("…"), ".*?")
        printed = " ".join(done.stdout.split())
        assert re.fullmatch(pattern, printed), (
            f"{page.name}:{block.line}: $ {shlex.quote(command)} printed\n{done.stdout}\n"
            f"and the page says\n{expected.strip()}"
        )


if __name__ == "__main__":
    this = Path(sys.argv[1]).resolve()
    shared: dict[str, object] = {"__name__": "__main__"}
    for each in blocks(this):
        run(each, this, shared)
    print(f"ran {sum(is_run(block) for block in blocks(this))} blocks")
