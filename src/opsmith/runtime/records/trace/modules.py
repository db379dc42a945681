"""Which modules a trace is about: tells the recorder when their forward begins and ends.

Modules are named by their path in the outermost module that is called, with or without the variable that
holds that one: ``layers.3`` or ``model.layers.3``.  Modules that torch.compile or TorchScript has compiled
are not seen.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.utils.hooks import RemovableHandle


class WatchedModules:
    """Hooks on the forward of all modules, from :meth:`start` to :meth:`stop`.

    ``wanted`` are paths, which may hold wildcards, or modules themselves.  ``enter`` is given the path
    of a module that is wanted, ``leave`` whether it raised.  ``known`` holds the paths that were seen,
    ``met`` those of ``wanted`` that were called.
    """

    def __init__(
        self,
        wanted: Sequence[str | Module],
        enter: Callable[[str], None],
        leave: Callable[[bool], None],
    ) -> None:
        self.known: set[str] = set()
        self.met: set[str] = set()
        self._wanted = wanted
        self._enter = enter
        self._leave = leave
        self._here = _Stack()
        self._names: dict[int, tuple[Module, str]] = {}
        self._handles: list[RemovableHandle] = []

    def start(self) -> None:
        from torch.nn.modules import module as hooks

        self._handles = [
            hooks.register_module_forward_pre_hook(self._before),
            hooks.register_module_forward_hook(self._after, always_call=True),
        ]

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _before(self, module: Module, arguments: Any) -> None:
        if not self._here.modules:
            self._look_into(module)
        name = self._name(module)
        self._here.modules.append((module, name is not None))
        if name is not None:
            self._enter(name)

    def _after(self, module: Module, arguments: Any, result: Any) -> None:
        raised = sys.exc_info()[1] is not None and result is None
        # A KeyboardInterrupt passes by without this; then several end at once.
        while self._here.modules:
            last, is_wanted = self._here.modules.pop()
            if is_wanted:
                self._leave(raised)
            if last is module:
                return

    def _name(self, module: Module) -> str | None:
        """The path of ``module`` if it is wanted."""
        known = self._names.get(id(module))
        if known is not None and known[0] is module:
            return known[1]
        if any(module is each for each in self._wanted):
            return type(module).__name__
        return None

    def _look_into(self, root: Module) -> None:
        """Gives the modules in ``root``, which the program itself calls, their paths."""
        holder = _holder(root)
        for path, module in root.named_modules():
            full = ".".join(filter(None, (holder, path)))
            self.known.update(filter(None, (path, full)))
            for wanted in self._wanted:
                if isinstance(wanted, str):
                    if fnmatchcase(path, wanted) or (full and fnmatchcase(full, wanted)):
                        self.met.add(wanted)
                        self._names[id(module)] = (module, full or type(module).__name__)
                elif wanted is module:
                    self._names[id(module)] = (module, full or type(module).__name__)


class _Stack(threading.local):
    """The modules whose forward the thread is inside of, and whether each is wanted."""

    def __init__(self) -> None:
        self.modules: list[tuple[Module, bool]] = []


def _holder(root: Module) -> str:
    """The name of the variable that holds ``root`` where the program calls it; empty where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith(("torch.", "opsmith.")):
            for variables in (frame.f_locals, frame.f_globals):
                for name, value in variables.items():
                    if value is root and name.isidentifier():
                        return name
        frame = frame.f_back
    return ""
