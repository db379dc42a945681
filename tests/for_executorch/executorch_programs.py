"""Programs of ExecuTorch for tests: modules, and how they are exported and served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from opsmith.executorch.build import BuiltLibrary, build_library
from opsmith.executorch.export import Exported, ModuleToExport, export_program
from opsmith.executorch.program import read_program


class Mixed(nn.Module):
    """Float calls of four operators, of which ``chip`` serves three, and one product in double."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sigmoid(torch.relu(x + y) * y), x.double() * y.double()


class Small(nn.Module):
    """One addition."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Silu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.silu(x)


class Largest(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = torch.max(x, dim=1)
        return values, indices


def matrices(count: int = 2, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Random matrices of 3 × 4."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(3, 4, generator=generator).to(dtype) for _ in range(count))


def export(
    module: nn.Module,
    inputs: tuple[Any, ...],
    path: Path,
    backend: Path,
    dynamic_shapes: Any = None,
    **options: Any,
) -> Exported:
    """Exports ``module`` for the kernels of ``backend``."""
    what = ModuleToExport(type(module).__name__, module.eval(), inputs, {}, dynamic_shapes)
    return export_program(what, path, backend, **options)


def build(backend: Path, folder: Path, *programs: Path) -> BuiltLibrary:
    """Builds the library of ``backend`` for ``programs``, or the whole one."""
    return build_library(backend, [read_program(path) for path in programs], folder)
