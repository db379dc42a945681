"""Values that are written once and named by their index from then on."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Interned(Generic[T]):
    """A table of distinct values, in the order in which they came."""

    def __init__(self) -> None:
        self._index: dict[T, int] = {}

    def __call__(self, value: T) -> int:
        """The index of ``value`` in the table."""
        return self._index.setdefault(value, len(self._index))

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, value: T) -> bool:
        return value in self._index

    @property
    def table(self) -> tuple[T, ...]:
        return tuple(self._index)
