"""Every wrong description, with the exact text of its error: place, offending text, nearest word, remedy.

``bad_descriptions.txt`` has them one after the other: a line with the file, a name for the case and the kind
of its error; the file's text; and from ``DIR`` on the error.  A manifest that begins with ``- `` stands below
``HEAD``.  ``DIR`` is the folder, ``TORCH`` torch's version, ``RELEASE`` the first two numbers of it,
``KEYS(…)`` the keys of that struct.  The backend `chip` names the file as its library, unless it is the
backend itself.  Here are those that are computed.
"""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

import msgspec
import pytest

from opsmith.description import backend, manifest, read_backend
from opsmith.errors import OpsmithError
from opsmith.plan import resolve
from opsmith.schema import Catalogue, torch_release
from opsmith.schema.recorded import shown

HEAD = "library: chiplib\nkernels:\n"


class Case(NamedTuple):
    """A file that cannot be meant, and what is said of it."""

    name: str
    file: str
    text: str
    kind: str
    error: str


def written_cases() -> list[Case]:
    """Those of ``bad_descriptions.txt``."""
    text = Path(__file__).with_name("bad_descriptions.txt").read_text(encoding="utf-8")
    form = (
        r"^## (?P<file>\S+): (?P<name>[^\n]+) \((?P<kind>\w+)\)\n"
        r"(?P<text>.*?)(?P<error>^DIR.*?)\n(?=^## |\Z)"
    )
    found = [Case(**case.groupdict()) for case in re.finditer(form, text, re.MULTILINE | re.DOTALL)]
    assert len(found) == len(re.findall("^## ", text, re.MULTILINE))
    return found


def keys(struct: re.Match[str]) -> str:
    """The keys that a description may have where ``KEYS(struct)`` says so."""
    found = {**vars(backend), **vars(manifest)}[struct[1]]
    return ", ".join(field.encode_name for field in msgspec.structs.fields(found))


CASES = [
    *written_cases(),
    Case(
        "a NUL byte",
        "kernels.yaml",
        "library: chiplib\nkernels: []\x00\n",
        "SyntaxInvalid",
        "DIR/kernels.yaml:2:12: the character U+0000 cannot stand in YAML\n"
        '  remedy: remove it; in a text in double quotes it is written as an escape such as "\\x07"',
    ),
    Case(
        "not UTF-8",
        "kernels.yaml",
        "library: chip\xff\n",
        "FileMissing",
        "DIR/kernels.yaml cannot be read: 'utf-8' codec can't decode byte 0xff in position 13: invalid start "
        "byte\n  remedy: check its type, permissions and encoding (UTF-8)",
    ),
    # ---- names that become C++ or Python
    *(
        Case(
            f"device called {name}",
            "backend.yaml",
            f"backend: {name}\ndriver: sim\n",
            "SyntaxInvalid",
            f"DIR/backend.yaml:1:1: `{name}` cannot name a device: {why}\n"
            f"  remedy: choose another name, e.g. `{name}chip`",
        )
        for name, why in [
            ("class", "it is a word of C++, and generated code has a namespace `at::class`"),
            ("int", "it is a word of C++, and generated code has a namespace `at::int`"),
            ("errno", "it is a word of C++, and generated code has a namespace `at::errno`"),
            ("lambda", "it is a word of Python, and programs write `torch.lambda`"),
            ("nn", "PyTorch has something else called `torch.nn`, or a method `nn` or `is_nn`"),
            (
                "training",
                "PyTorch has something else called `torch.training`, or a method `training` or `is_training`",
            ),
            ("c10", "PyTorch has something else called `at::c10` in C++"),
        ]
    ),
    *(
        Case(
            f"executorch operator called {head}",
            "kernels.yaml",
            "library: chiplib\nabi: executorch\nkernels:\n"
            f'  - {{func: "{head}(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", kernel_name: f}}\n',
            "SchemaInvalid",
            f"DIR/kernels.yaml:4:6: `{head}` is not an operator's name\n"
            "  remedy: write it like mylib::scale.out: a namespace and two colons, the name, a dot "
            "and the overload",
        )
        for head in [
            "my:op.out",
            "::op.out",
            "my::op:out",
            "my::op..out",
            "my::.out",
            "my.op.out",
            "my::op out",
            "my:: op",
        ]
    ),
    # ---- YAML that stands for more than it says
    Case(
        "chain of aliases",
        "kernels.yaml",
        "library: chiplib\na0: &a0 [1]\n"
        + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 600)),
        "SyntaxInvalid",
        "DIR/kernels.yaml:2:5: more than 64 lists and mappings stand in each other here, counting what "
        "aliases (`*…`) stand for and `<<` merges\n"
        "  remedy: write the values out instead of aliases of aliases",
    ),
    Case(
        "chain of merges inside one another",
        "kernels.yaml",
        "library: chiplib\na0: &a0 {x: [1]}\n"
        + "".join(f"a{i}: &a{i} {{x: {{<<: *a{i - 1}}}}}\n" for i in range(1, 900)),
        "SyntaxInvalid",
        "DIR/kernels.yaml:2:13: more than 64 lists and mappings stand in each other here, counting what "
        "aliases (`*…`) stand for and `<<` merges\n"
        "  remedy: write the values out instead of aliases of aliases",
    ),
    Case(
        "merges of many keys",
        "kernels.yaml",
        "a: &a {"
        + ", ".join(f"k{i}: 0" for i in range(1000))
        + "}\nb: {<<: ["
        + "*a, " * 200
        + "]}\n",
        "SyntaxInvalid",
        "DIR/kernels.yaml:1:4: the aliases of this file stand for more than 200,000 values\n"
        "  remedy: write the values out, or fewer of them",
    ),
    *(
        Case(
            f"number of too many {what}",
            "functions.yaml",
            f"- op: add.out\n  dim_order_alias: {{Rows: [0, {number}]}}\n",
            "SyntaxInvalid",
            f"DIR/functions.yaml:2:31: the number `{shown}` does not fit into 64 bits\n"
            "  remedy: write a smaller one, or put it in quotes where it is meant as text",
        )
        for what, number, shown in [
            ("bits", "0x10000000000000000", "0x10000000000000000"),
            ("digits", "9" * 5000, "9" * 40 + "…"),
            ("sixties", "1" + ":59" * 50_000, "1" + ":59" * 13 + "…"),
            ("hexadecimal digits", "0x" + "f" * 5000, "0x" + "f" * 38 + "…"),
        ]
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_bad_description(case: Case, tmp_path: Path, catalogue: Catalogue) -> None:
    (tmp_path / "driver.c").touch()
    chip = tmp_path / "backend.yaml"
    chip.write_text(f"backend: chip\ndriver: sim\nlibraries: [{case.file}]\n")
    text = case.text
    if case.file == "kernels.yaml" and text.startswith("- "):
        text = HEAD + indent(text, "  ")
    (tmp_path / case.file).write_bytes(text.encode("latin-1" if "\xff" in text else "utf-8"))
    with pytest.raises(OpsmithError) as caught:
        resolve(read_backend(chip, catalogue), catalogue)
    versions = {"TORCH": catalogue.torch, "RELEASE": shown(torch_release())}
    expected = re.sub("TORCH|RELEASE", lambda found: versions[found[0]], case.error)
    expected = re.sub(r"KEYS\((\w+)\)", keys, expected)
    assert str(caught.value).replace(str(tmp_path), "DIR") == expected
    assert type(caught.value).__name__ == case.kind


def test_there_are_many_cases_and_each_has_a_place() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 60
    # Only a file that is empty, or that cannot be read, has no line.
    assert [case.name for case in CASES if not case.error.startswith(f"DIR/{case.file}:")] == [
        "not UTF-8"
    ]
