"""Fixtures that several test files share: the loaded device, and backends written on the spot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

import opsmith
from opsmith.schema import Catalogue, read_catalogue

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend


@pytest.fixture(scope="session")
def sim() -> LoadedBackend:
    """The simulated accelerator, loaded into this process: device ``sim`` works afterwards."""
    return opsmith.load("sim")


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """All ATen operators of the installed torch."""
    return read_catalogue()


@pytest.fixture
def describe(tmp_path: Path) -> Callable[..., Path]:
    """Writes a backend ``chip`` with one library ``chiplib``; returns its ``backend.yaml``.

    ``kernels`` is the manifest's text below ``kernels:``, ``fallback`` the policy's YAML.
    """

    def write(
        kernels: str = "",
        fallback: str = "cpu",
        header: str = "",
        driver: str = "{sources: [driver.c]}",
    ) -> Path:
        (tmp_path / "driver.c").touch()
        (tmp_path / "kernels.cpp").touch()
        body = dedent(kernels).strip()
        entries = "\n".join(f"  {line}" for line in body.splitlines())
        (tmp_path / "kernels.yaml").write_text(
            f"library: chiplib\nsources: [kernels.cpp]\n{dedent(header).strip()}\n"
            f"kernels:{chr(10) + entries if body else ' []'}\n"
        )
        backend = tmp_path / "backend.yaml"
        backend.write_text(
            f"backend: chip\ndriver: {driver}\nlibraries: [kernels.yaml]\nfallback: {fallback}\n"
        )
        return backend

    return write
