"""The files of a project, made of the templates: text only, nothing is written.

A template is ``<folder>/<path>.jinja``, in which ``__name__`` stands for the device's name.  One that gives
no text is no file of the project.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from opsmith.vendor.scaffold.choices import Choices

TEMPLATES = Path(__file__).with_name("templates")
_SUFFIX = ".jinja"
_NAME = "__name__"


def opsmith_version() -> str:
    """The version of this opsmith."""
    return version("opsmith")


def rendered_files(choices: Choices) -> Mapping[str, str]:
    """The text of each file of the project, by its path in it."""
    environment = Environment(
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    facts = {
        "name": choices.name,
        "driver": choices.driver.value if choices.driver else "opencl",
        "kernels": choices.kernels.value,
        "executorch": choices.executorch,
        "opsmith": opsmith_version(),
    }
    files = {}
    for folder in choices.folders:
        for template in sorted((TEMPLATES / folder).rglob(f"*{_SUFFIX}")):
            path = template.relative_to(TEMPLATES / folder).as_posix()
            text = environment.from_string(template.read_text(encoding="utf-8")).render(facts)
            if text:
                files[path.replace(_NAME, choices.name).removesuffix(_SUFFIX)] = text
    return files
