"""``opsmith executorch export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opsmith.cli.console import Json, many, out, print_json, shown_progress
from opsmith.cli.executorch.served_forms import form_json, served_forms
from opsmith.cli.options import Backend, flag, written_to
from opsmith.description import find_backend
from opsmith.executorch.export import ExportPass, ModuleToExport, export_program
from opsmith.observe.programs.module import made_by_factory


def export_module(
    factory: Annotated[
        str, typer.Argument(help="MODULE:FUNCTION, which returns (model, example_inputs).")
    ],
    output: Annotated[Path, written_to("The program to write, a .pte.")],
    backend: Backend = "",
    without: Annotated[
        list[ExportPass] | None,
        typer.Option(help="What is not to be done to the graph on the way; repeatable."),
    ] = None,
    allow_unserved: Annotated[
        bool, flag("--allow-unserved", "Also where a library of your own is to serve some calls.")
    ] = False,
    json: Json = False,
) -> None:
    """Export a module as a program, and keep its example inputs beside it."""
    made = made_by_factory(factory, (), train=False)
    what = ModuleToExport(
        factory, made.placed("cpu"), made.inputs, made.keywords, made.dynamic_shapes
    )
    with shown_progress() as progress:
        exported = export_program(
            what,
            output,
            find_backend(backend),
            without=without or (),
            allow_unserved=allow_unserved,
            progress=progress,
        )
    out.print(served_forms(exported.forms))
    if exported.preserved:
        out.print(f"not decomposed: {', '.join(exported.preserved)}", highlight=False)
    if exported.folded:
        norms = many(exported.folded, "batch norm")
        out.print(f"folded into convolutions: {norms}", highlight=False)
    if exported.quantized:
        layers = many(exported.quantized, "quantized layer")
        out.print(f"on integers: {layers}", highlight=False)
    if exported.packed:
        followed = f", with {many(exported.fused, 'call')} that followed" if exported.fused else ""
        out.print(f"packed: {many(exported.packed, 'layer')}{followed}", highlight=False)
    out.print(f"program  {exported.program}", highlight=False, soft_wrap=True)
    out.print(f"graph    {exported.graph}", highlight=False, soft_wrap=True)
    if json:
        print_json(
            {
                "program": str(exported.program),
                "graph": str(exported.graph),
                "preserved": exported.preserved,
                "folded_batch_norms": exported.folded,
                "packed_layers": exported.packed,
                "fused_calls": exported.fused,
                "quantized_layers": exported.quantized,
                "forms": [form_json(each) for each in exported.forms],
            }
        )
