"""Runs a program of ExecuTorch with kernel libraries, says who serves each call, and compares with eager.

What can go wrong is asked before anything is loaded; the rest happens in a process of its own.  Called by
``opsmith executorch run``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opsmith.base.cache_folder import cache_root
from opsmith.build.progress import OnProgress, Progress
from opsmith.errors import FileMissing, InputsRejected, OpsmithError, ProgramFailed, nearest
from opsmith.executorch.inputs import expected_inputs
from opsmith.executorch.named_libraries import (
    check_served,
    check_together,
    library_failure,
    logged_reasons,
    named_libraries,
)
from opsmith.executorch.program import ExecutorchProgram, graph_beside, read_program
from opsmith.executorch.runtime import installed_runtime
from opsmith.executorch.tasks import Failed, Ran, RunProgram
from opsmith.executorch.worker_process import ask
from opsmith.plan.executorch.built_libraries import serve_built
from opsmith.plan.executorch.kernel_keys import CallForm

RUNTIME = "executorch"
"""How the runtime's own kernels are called where libraries are named."""


@dataclass(frozen=True)
class ServedCall:
    """One instruction of a program: the call, and the library whose kernel serves it."""

    form: CallForm
    library: str


@dataclass(frozen=True)
class ProgramRun:
    """The results of running a program.

    ``difference`` is the largest absolute one of any element of any output from eager's, and None where
    there is nothing to compare with, as ``not_compared`` says.  ``ms`` and ``eager_ms`` are medians of
    ``calls`` calls in turns; eager ran on ``eager_device``, the CPU or, for operators of a backend's own, its
    device.
    """

    calls: tuple[ServedCall, ...]
    delegates: tuple[str, ...]
    outputs: tuple[str, ...]
    difference: float | None
    not_compared: str
    ms: float
    eager_ms: float | None
    eager_device: str
    timed: int
    threads: int

    @property
    def served_by(self) -> dict[str, str]:
        """The library that serves each operator; several, where its calls differ."""
        found: dict[str, dict[str, None]] = {}
        for call in self.calls:
            found.setdefault(call.form.operator, {})[call.library] = None
        return {operator: ", ".join(names) for operator, names in found.items()}


def run_program(
    path: Path,
    libraries: Sequence[Path] = (),
    inputs: Path | None = None,
    method: str = "forward",
    *,
    progress: OnProgress | None = None,
) -> ProgramRun:
    """Runs ``method`` of the program ``path`` with the kernels of ``libraries``, files or folders with one.

    A library that registers its kernels itself serves the operators that it brings.

    ``inputs`` is a file that ``torch.save`` wrote, of a Tensor or a tuple of them; without, the example
    inputs that were kept beside the program.  Raises :class:`~opsmith.errors.ProgramInvalid`,
    :class:`~opsmith.errors.LibraryRejected`, :class:`~opsmith.errors.OperatorsUnserved`,
    :class:`~opsmith.errors.InputsRejected` or :class:`~opsmith.errors.ProgramFailed`.
    """
    report = progress or (lambda step: None)
    report(Progress(f"reading {path.name}"))
    program = read_program(path)
    if method not in program.inputs:
        raise InputsRejected(
            f"`{path}` has no method `{method}`{nearest(method, program.inputs)}",
            remedy=f"its methods are {', '.join(program.inputs)}",
        )
    named = named_libraries(libraries)
    forms = [call.form for call in program.calls if call.method == method]
    runtime = installed_runtime(cache_root())
    check_together(named, runtime, forms)
    served = serve_built([each.description for each in named], runtime, forms)
    check_served(path, served, named, runtime)
    if inputs is not None and not inputs.is_file():
        raise FileMissing(
            f"there are no inputs `{inputs}`",
            remedy="write them with torch.save: a Tensor, or a tuple of them",
        )
    report(Progress(f"running {path.name}"))
    task = _task(path, program, method, [each.path for each in named], forms, inputs)
    answer, log = ask(task, f"running `{path}`")
    if isinstance(answer, Failed):
        raise _failure(answer, log)
    assert isinstance(answer, Ran)
    return ProgramRun(
        calls=tuple(
            ServedCall(form, server or RUNTIME)
            for form, server in zip(forms, answer.servers, strict=True)
        ),
        delegates=tuple(sorted(program.delegates)),
        outputs=tuple(answer.outputs),
        difference=answer.difference,
        not_compared=answer.not_compared,
        ms=answer.ms,
        eager_ms=answer.eager_ms,
        eager_device=answer.eager_device,
        timed=answer.calls,
        threads=answer.threads,
    )


def _task(
    path: Path,
    program: ExecutorchProgram,
    method: str,
    libraries: Sequence[Path],
    forms: Sequence[CallForm],
    inputs: Path | None,
) -> RunProgram:
    exported = graph_beside(path)
    return RunProgram(
        program=str(path.resolve()),
        method=method,
        libraries=[str(each.resolve()) for each in libraries],
        calls=[(form.operator, form.arguments) for form in forms],
        inputs=None if inputs is None else str(inputs),
        expected=expected_inputs(program.inputs[method]),
        exported=str(exported) if exported != path and exported.is_file() else None,
    )


# ---- what went wrong


def _failure(failed: Failed, log: str) -> OpsmithError:
    if failed.stage == "library":
        return library_failure(failed, log)
    if failed.stage == "inputs":
        return InputsRejected(f"`{failed.subject}`: {failed.reason}", remedy=failed.remedy)
    said = "".join(f"\n  {line}" for line in logged_reasons(log))
    return ProgramFailed(
        f"`{failed.subject}` {'failed' if failed.stage == 'run' else 'cannot be loaded'}: "
        f"{failed.reason}{said}",
        remedy=failed.remedy or "the lines above are what ExecuTorch's runtime said",
    )
