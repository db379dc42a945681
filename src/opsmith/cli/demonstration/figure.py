"""The demo's picture: the two loss curves in one PNG."""

from __future__ import annotations

from pathlib import Path

from opsmith.cli.demonstration.training import TrainingComparison
from opsmith.errors import OpsmithError


def save_loss_curves(comparison: TrainingComparison, path: Path) -> None:
    """Draws both losses by step into the PNG ``path``.

    Raises :class:`OpsmithError` when matplotlib is missing or the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise OpsmithError(
            "the demo needs matplotlib for its picture", remedy="pip install 'opsmith[demo]'"
        ) from None
    device, cpu = comparison.device, comparison.cpu
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(cpu.step_losses, color="#f28e2b", linewidth=4, alpha=0.5, label="cpu")
    axes.plot(device.step_losses, color="#1f4e79", linewidth=1.2, label=device.device)
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("cross-entropy loss")
    axes.set_title(
        f"Digits on {device.device} and on the CPU: "
        f"largest difference at any step {comparison.max_loss_difference:.1e}"
    )
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise OpsmithError(
            f"the picture cannot be written: {error}", remedy="name another file with --figure"
        ) from None
