"""Packages whose names are imported when they are asked for."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import pytest

PACKAGES = (
    "conformance description description.built executorch plan runtime runtime.integrations "
    "schema".split()
)


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(f"opsmith.{request.param}")


def test_every_name_of_a_package_is_found(package: ModuleType) -> None:
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


def test_no_name_is_that_of_a_module(package: ModuleType) -> None:
    assert {each.name for each in pkgutil.iter_modules(package.__path__)} & {
        *package.__all__
    } == set()
