"""``opsmith demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from opsmith.cli.console import Json, out, print_json, shown_progress
from opsmith.cli.options import BackendArgument


def demo(
    backend: BackendArgument = "",
    named: Annotated[
        str,
        typer.Option(
            "--device",
            "--backend",
            metavar="NAME|FILE",
            is_eager=True,
            help="The same by its name.",
        ),
    ] = "",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")] = 8,
    figure: Annotated[Path, typer.Option(help="Where the loss curves go.")] = Path("demo.png"),
    json: Json = False,
) -> None:
    """Train a small CNN on the device and on the CPU, side by side."""
    from opsmith.runtime.load import load

    with shown_progress() as progress:
        loaded = load(backend, progress=progress)

    from opsmith.cli.demonstration.figure import save_loss_curves
    from opsmith.cli.demonstration.training import Run, compare

    def report(epoch: int, device: Run, cpu: Run) -> None:
        if epoch == 0:
            out.print(f"[bold]epoch   loss on {device.device:<8} loss on cpu[/]")
        ours, theirs = device.epoch_losses[-1], cpu.epoch_losses[-1]
        out.print(f"{epoch + 1:>5}   {ours:<16.6f} {theirs:.6f}", highlight=False)

    comparison = compare(loaded.name, loaded.plan, epochs, report)
    save_loss_curves(comparison, figure)
    device, cpu = comparison.device, comparison.cpu

    summary = Table(title=None, show_header=True, header_style="bold")
    for column in ("", loaded.name, "cpu"):
        summary.add_column(column, justify="left" if not column else "right")
    summary.add_row("accuracy on held-out images", f"{device.accuracy:.1%}", f"{cpu.accuracy:.1%}")
    summary.add_row("median time per step", f"{device.step_ms:.2f} ms", f"{cpu.step_ms:.2f} ms")
    out.print(summary)
    out.print(f"largest loss difference at any step: {comparison.max_loss_difference:.2e}")
    out.print(f"first training step: {device.first_step_s:.1f} s after the start of the process")

    routes = Table(title="operator calls of the first epoch, by route", header_style="bold")
    routes.add_column("route")
    routes.add_column("calls", justify="right")
    for route, calls in comparison.calls_by_route.items():
        if calls:
            routes.add_row(route.value, f"{calls:,}")
    out.print(routes)
    out.print(f"loss curves: {figure}", highlight=False)
    if json:
        print_json(
            {
                "device": loaded.name,
                "accuracy": device.accuracy,
                "cpu_accuracy": cpu.accuracy,
                "max_loss_difference": comparison.max_loss_difference,
                "step_ms": device.step_ms,
                "cpu_step_ms": cpu.step_ms,
                "calls_by_route": {
                    route.value: calls for route, calls in comparison.calls_by_route.items()
                },
                "first_step_s": device.first_step_s,
            }
        )
