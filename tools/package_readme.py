"""The description of the package on PyPI: README.md, with links and images that lead to GitHub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_GITHUB = "https://github.com/opsmith/opsmith"
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^]]*)\]\((?P<path>[^):]+)\)")


class PackageReadme(MetadataHookInterface):
    """Sets the key ``readme`` of pyproject.toml, which is dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": _LINK.sub(_absolute, readme)}


def _absolute(link: re.Match[str]) -> str:
    kind = "raw" if link["image"] else "blob"
    return f"{link['image']}[{link['text']}]({_GITHUB}/{kind}/main/{link['path']})"
