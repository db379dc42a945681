"""The fallback policy of a process or a block, in the place of the description's.

``OPSMITH_FALLBACK=deny`` holds for the whole process, :func:`fallback` for a block, and both for kernels that
run on the host, on copies, too, unless ``OPSMITH_HOST_KERNELS`` allows them.  The description's
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

HOST_KERNELS = "OPSMITH_HOST_KERNELS"

_MODES = ("cpu", "warn", "deny")
_HOST_KERNELS_MODES = ("allow", "deny")


@dataclass(frozen=True, eq=False)
class Override:
    """A policy that a process sets; ``only`` empty: for all operators.

    With ``host_kernels`` it holds for kernels that run on the host, on copies, too.  ``origin`` is how the
    user wrote it, ``remedy`` how to take it back, both for error messages.
    """

    mode: str
    only: tuple[str, ...]
    host_kernels: bool
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
            set_override("", [], False, "", "")
            return
        override = self._entered[-1]
        operators = override.operators(self._plan()) if override.only else []
        set_override(
            override.mode, operators, override.host_kernels, override.origin, override.remedy
        )


_overrides = _Overrides()


@contextmanager
def fallback(
    mode: str, only: Iterable[str] | None = None, *, host_kernels: str | None = None
) -> Iterator[None]:
    """While the block runs, this process falls back as ``mode`` says, whatever the description does.

    ``"deny"``: operators that would fall back raise NotImplementedError, and so do those whose kernels run on
    the host, on copies, unless ``host_kernels`` is ``"allow"``; where it is None, ``OPSMITH_HOST_KERNELS``
    says it.  ``"cpu"``: they run on the
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
    shown += f', host_kernels="{host_kernels}"' if host_kernels is not None else ""
    origin = f'`opsmith.fallback("{mode}"{shown})`'
    _check_mode(mode, origin)
    override = Override(
        mode,
        names,
        _covers_host_kernels(host_kernels, origin),
        origin,
        "leave the `with` block that denies it.",
    )
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
    return Override(
        mode,
        only,
        _covers_host_kernels(None, origin),
        origin,
        f"run without {VARIABLE}, or with another value.",
    )


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


def _covers_host_kernels(mode: str | None, origin: str) -> bool:
    """Whether a policy holds for kernels on copies; without ``mode``, as the environment says."""
    if mode is None and (mode := os.environ.get(HOST_KERNELS)):
        origin = f"`{HOST_KERNELS}={mode}`"
    if (mode or "deny") not in _HOST_KERNELS_MODES:
        raise PolicyInvalid(
            f"{origin} is no policy for kernels that run on the host"
            f"{nearest(str(mode), _HOST_KERNELS_MODES)}",
            remedy="write `allow`, which lets them run on copies where the fallback is denied, or `deny`",
        )
    return mode != "allow"


def _check_mode(mode: str, origin: str) -> None:
    if mode not in _MODES:
        raise PolicyInvalid(
            f"{origin} is no fallback policy{nearest(mode, _MODES)}",
            remedy=f"write `deny`, `warn` or `cpu`; for named operators only, `{VARIABLE}=deny:topk,sort` "
            'or `opsmith.fallback("deny", only=["topk", "sort"])`',
        )
