"""``opsmith executorch check``."""

from __future__ import annotations

from opsmith.cli.console import Json, many, out, print_json, shown_progress
from opsmith.cli.executorch.served_forms import form_json, served_forms
from opsmith.cli.options import Libraries, Program, RuntimeKernels
from opsmith.executorch.check import ProgramCheck, check_program


def check(
    program: Program,
    libraries: Libraries = None,
    runtime_kernels: RuntimeKernels = True,
    json: Json = False,
) -> None:
    """Say who will serve each call of a program, who nobody, and how much memory it takes."""
    with shown_progress() as progress:
        checked = check_program(
            program, libraries or (), runtime_kernels=runtime_kernels, progress=progress
        )
    out.print(served_forms(checked.forms, checked.calls))
    if checked.program.delegates:
        names = ", ".join(sorted(checked.program.delegates))
        out.print(f"the rest is delegated: {names}", highlight=False)
    out.print(_served(checked), highlight=False)
    out.print(_memory(checked), highlight=False)
    if json:
        print_json(
            {
                "complete": checked.is_complete,
                "forms": [
                    {**form_json(form), "calls": calls}
                    for form, calls in zip(checked.forms, checked.calls, strict=True)
                ],
                "missing_delegates": checked.missing_delegates,
                "memory": {
                    "planned": checked.memory.planned,
                    "data": checked.memory.data,
                    "peak": checked.memory.peak,
                },
            }
        )
    checked.require_complete()


def _served(checked: ProgramCheck) -> str:
    served = sum(
        calls for form, calls in zip(checked.forms, checked.calls, strict=True) if form.is_served
    )
    return f"served   {served:,} of {many(sum(checked.calls), 'call')}"


def _memory(checked: ProgramCheck) -> str:
    memory = checked.memory
    planned = ", ".join(f"{size:,} for `{name}`" for name, size in memory.planned.items())
    return (
        f"memory   {many(memory.peak, 'byte')}: {planned or 'none'} to compute in, {memory.data:,} of "
        "weights and delegates' data"
    )
