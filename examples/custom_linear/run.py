"""The operator in PyTorch, exported, and in ExecuTorch, from the two libraries of one kernel.

python run.py libcustom_linear_torch.so libcustom_linear_executorch.so
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from executorch.exir import to_edge


class Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 3))
        self.bias = torch.nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.myop.custom_linear.default(self.weight, x, self.bias)


def main(for_torch: str, for_executorch: str) -> None:
    torch.ops.load_library(for_torch)
    model = Linear().eval()
    x = torch.randn(2, 3)
    with torch.no_grad():
        expected = torch.nn.functional.linear(x, model.weight, model.bias)
        torch.testing.assert_close(model(x), expected)
        print("eager: as torch.nn.functional.linear")

    exported = torch.export.export(model, (x,))
    assert any(node.target is torch.ops.myop.custom_linear.default for node in exported.graph.nodes)
    print("exported with myop.custom_linear.default")
    program = to_edge(exported).to_executorch()

    # The runtime first, then the library with its kernels, then the program.
    from executorch.extension.pybindings import portable_lib

    torch.ops.load_library(for_executorch)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "linear.pte"
        path.write_bytes(program.buffer)
        loaded = portable_lib._load_for_executorch(str(path))
        torch.testing.assert_close(loaded.forward([x])[0], expected)
    print("ExecuTorch: the same")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
