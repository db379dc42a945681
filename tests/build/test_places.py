"""Paths of the builder's machine in a file: those of messages and debug information, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith.build.places import places_in

DIGEST = "a" * 32


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # As they are where -ffile-prefix-map has shortened them.
        ("torch/include/ATen/core/ivalue.h", ()),
        ('FAILED at "torch/include/c10/core/SymInt.h":106', ()),
        ("executorch/include/executorch/runtime/core/error.h", ()),
        (f"cache/generated/Chip-{DIGEST}/RegisterChip_0.cpp", ()),
        ("opsmith/csrc/opsmith/device/guard.cpp", ()),
        # And where not.
        ("/opt/env/torch/include/c10/core/SymInt.h", ("/opt/env/torch/include/",)),
        ('at "/home/a b/torch/include/c10/core/SymInt.h":1', ("/home/a b/torch/include/",)),
        ("/opt/executorch/include/x.h", ("/opt/executorch/include/",)),
        (f"/c/generated/Chip-{DIGEST}/R.cpp", (f"/c/generated/Chip-{DIGEST}/",)),
        ("/src/opsmith/csrc/x.cpp", ("/src/opsmith/csrc/",)),
        # Folders that are named.
        ("/home/me/chip/kernels.cpp", ("/home/me/chip",)),
        ("/home/me/chipset/kernels.cpp", ()),
        ("/other/home/me/chip/kernels.cpp", ()),
    ],
)
def test_places(text: str, found: tuple[str, ...]) -> None:
    content = b"\x7fELF\0" + text.encode() + b"\0more"
    assert places_in(content, [Path("/home/me/chip")]) == found
