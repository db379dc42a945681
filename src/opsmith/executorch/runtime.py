"""The installed ExecuTorch: its version, the operators that it has kernels of its own for, its delegates."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from opsmith.base.trusted_files import read_trusted
from opsmith.build.cache import write_whole
from opsmith.build.executorch import INSTALL, find_executorch
from opsmith.errors import CacheUnusable, ExecutorchMissing
from opsmith.executorch.tasks import ListOperators, RuntimeOperators
from opsmith.executorch.worker_process import ask
from opsmith.plan.executorch.resolver import Runtime


def installed_runtime(cache: Path) -> Runtime:
    """The runtime of the installed wheel, asked once and then read from ``cache``.

    Raises :class:`~opsmith.errors.ExecutorchMissing`.
    """
    installed = find_executorch()
    status = installed.runtime.stat() if installed.runtime.is_file() else None
    if status is None:
        raise ExecutorchMissing(
            f"ExecuTorch {installed.version} has no runtime for this Python: {installed.runtime.name} is "
            "missing",
            remedy=f"{INSTALL} --force-reinstall",
        )
    record = cache / "runtimes" / f"{installed.version}-{status.st_size}-{status.st_mtime_ns}.json"
    try:
        found = msgspec.json.decode(read_trusted(record), type=RuntimeOperators)
    except (OSError, msgspec.DecodeError):
        answer, _ = ask(ListOperators(), "loading ExecuTorch's runtime")
        assert isinstance(answer, RuntimeOperators)
        found = answer
        with suppress(CacheUnusable):  # it can be asked again
            write_whole(record, msgspec.json.encode(found))
    return Runtime(installed.version, frozenset(found.names), frozenset(found.delegates))
