"""Other environments of this machine, each with its own torch, that build libraries for one wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec

from opsmith.build.progress import OnProgress, Progress
from opsmith.errors import EnvironmentUnusable
from opsmith.vendor.package.libraries import Answer

_SHOWN_LINES = 4


def check_interpreter(python: str) -> str:
    """The program that ``python`` names; raises :class:`~opsmith.errors.EnvironmentUnusable` for none."""
    program = shutil.which(python)
    if program is None:
        raise EnvironmentUnusable(
            f"there is no Python `{python}`",
            remedy="name an environment's interpreter: --python path/to/venv/bin/python",
        )
    return program


def asked(
    python: str,
    module: str,
    request: msgspec.Struct,
    opsmith: str,
    progress: OnProgress,
    torch: Path | None = None,
) -> Answer:
    """The answer of ``module``, run by the environment of the interpreter ``python``, to ``request``.

    ``torch`` is a folder with a torch that stands in for the environment's own.  Raises
    :class:`~opsmith.errors.EnvironmentUnusable` where that has another opsmith than ``opsmith``, or
    none, or cannot build.
    """
    process = subprocess.Popen(
        [
            check_interpreter(python),
            "-m",
            module,
            msgspec.json.encode(request).decode(),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=_environment(torch),
    )
    said: list[str] = []
    assert process.stdout is not None and process.stderr is not None
    with process:
        try:
            for line in process.stderr:
                said.append(line.rstrip())
                progress(Progress(f"{python}: {line.rstrip()}"))
            output = process.stdout.read()
        except BaseException:
            process.terminate()
            raise
    return _answered(python, opsmith, output, said)


def _environment(torch: Path | None) -> dict[str, str]:
    # Its torch may have packages of its own that load a device.
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    if torch is not None:
        path = [str(torch), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return environment


def _answered(python: str, opsmith: str, output: str, said: list[str]) -> Answer:
    try:
        answer = msgspec.json.decode(output, type=Answer)
    except msgspec.DecodeError:
        lines = "".join(f"\n  {line}" for line in said[-_SHOWN_LINES:])
        raise EnvironmentUnusable(
            f"the environment of `{python}` does not run this opsmith:{lines}",
            remedy=f"{python} -m pip install opsmith=={opsmith}",
        ) from None
    if answer.opsmith != opsmith:
        raise EnvironmentUnusable(
            f"the environment of `{python}` has opsmith {answer.opsmith}, and this is {opsmith}: one wheel "
            "is made by one version",
            remedy=f"{python} -m pip install opsmith=={opsmith}",
        )
    if answer.message:
        raise EnvironmentUnusable(f"with `{python}`: {answer.message}", remedy=answer.remedy)
    return answer


def same_interpreter(python: str, other: str) -> bool:
    """Whether both run in one environment: links to one interpreter are environments of their own."""
    return Path(shutil.which(python) or python).absolute() == Path(other).absolute()
