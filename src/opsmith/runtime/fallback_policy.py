"""The fallback policy of a process or a block, in the place of the description's.

``OPSMITH_FALLBACK=deny`` holds for the whole process, :func:`fallback` for a block.  The description's
own policy is the plan's, and compiled into the backend; the override is asked first, by
``csrc/opsmith/fallback/fallback_policy.cpp``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opsmith.errors import OperatorUnknown, PolicyInvalid, nearest

if TYPE_CHECKING:
    from opsmith.plan import Plan

VARIABLE = "OPSMITH_FALLBACK"

_MODES = ("cpu", "warn", "deny")


@dataclass(frozen=True, eq=False)
class Override:
    """A policy that a process sets; ``only`` empty: for all operators.

    ``origin`` is how the user wrote it, ``remedy`` how to take it back, both for error messages.
    """

    mode: str
    only: tuple[str, ...]
    origin: str
    remedy: str

    def operators(self, plan: Plan) -> list[str]:
        """The operators that the names in ``only`` stand for: as in a description, whole groups.

        Raises :class:`~opsmith.errors.OperatorUnknown`.
        """
        return sorted({member for name in self.only for member in plan.group_of(name)})


class _Overrides:
    """The overrides of this process: the one that was entered last holds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entered: list[Override] = []
        self._plan: Callable[[], Plan] | None = None  # reading it takes a while: for names only

    def enter(self, override: Override) -> None:
        with self._lock:
            self._entered.append(override)
            try:
                self._apply()
            except OperatorUnknown:
                self._entered.remove(override)
                raise

    def leave(self, override: Override) -> None:
        with self._lock:
            self._entered.remove(override)
            self._apply()

    def check(self, plan: Callable[[], Plan], override: Override | None) -> None:
        with self._lock:
            for each in (*self._entered, *([override] if override else [])):
                if each.only:
                    each.operators(plan())

    def backend_loaded(self, plan: Callable[[], Plan], override: Override | None) -> None:
        with self._lock:
            self._plan = plan
            if override is not None:
                self._entered.insert(0, override)
            self._apply()

    def _apply(self) -> None:
        if self._plan is None:
            return
        import torch

        set_override = torch.ops.opsmith.set_fallback_override
        if not self._entered:
            set_override("", [], "", "")
            return
        override = self._entered[-1]
        operators = override.operators(self._plan()) if override.only else []
        set_override(override.mode, operators, override.origin, override.remedy)


_overrides = _Overrides()


@contextmanager
def fallback(mode: str, only: Iterable[str] | None = None) -> Iterator[None]:
    """While the block runs, this process falls back as ``mode`` says, whatever the description does.

    ``"deny"``: operators that would fall back raise NotImplementedError.  ``"cpu"``: they run on the
    CPU.  ``"warn"``: they do, with a UserWarning each.  With ``only``, names of operators that stand for
    their whole groups, ``"deny"`` denies these and leaves the others to the description; the other modes
    allow these and deny all others, as ``only:`` does in a description.

    Holds for all threads, autograd's too.  Of nested blocks the one entered last holds.  May be entered
    before a backend is loaded.

    Raises :class:`~opsmith.errors.PolicyInvalid` for another mode, and
    :class:`~opsmith.errors.OperatorUnknown`.
    """
    names = _names(only)
    shown = f", only={list(names)}" if names else ""
    origin = f'`opsmith.fallback("{mode}"{shown})`'
    _check_mode(mode, origin)
    override = Override(mode, names, origin, "leave the `with` block that denies it.")
    _overrides.enter(override)
    try:
        yield
    finally:
        _overrides.leave(override)


def environment_override() -> Override | None:
    """The override in ``OPSMITH_FALLBACK``, if any: ``deny``, or ``deny:topk,sort`` for named operators only.

    Raises :class:`~opsmith.errors.PolicyInvalid`.
    """
    value = os.environ.get(VARIABLE, "")
    if not value:
        return None
    mode, _, names = value.partition(":")
    origin = f"`{VARIABLE}={value}`"
    _check_mode(mode, origin)
    only = _names(name.strip() for name in names.split(",") if name.strip())
    return Override(mode, only, origin, f"run without {VARIABLE}, or with another value.")


def check(plan: Callable[[], Plan], override: Override | None) -> None:
    """Raises :class:`~opsmith.errors.OperatorUnknown` for a name that ``plan`` does not have.

    Looks at ``override``, the environment's, and at the blocks that are entered already.
    """
    _overrides.check(plan, override)


def start(plan: Callable[[], Plan], override: Override | None) -> None:
    """Puts into force, for the backend that was loaded with ``plan``, what was said before.

    ``override`` is the environment's; blocks that are already entered win over it.
    """
    _overrides.backend_loaded(plan, override)


def _names(only: Iterable[str] | None) -> tuple[str, ...]:
    if isinstance(only, str):
        return (only,)
    return tuple(only or ())


def _check_mode(mode: str, origin: str) -> None:
    if mode not in _MODES:
        raise PolicyInvalid(
            f"{origin} is no fallback policy{nearest(mode, _MODES)}",
            remedy=f"write `deny`, `warn` or `cpu`; for named operators only, `{VARIABLE}=deny:topk,sort` "
            'or `opsmith.fallback("deny", only=["topk", "sort"])`',
        )
