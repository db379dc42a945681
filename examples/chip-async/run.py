"""Trains a small network on chip beside the CPU, and shows when its work is done and when it fails."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import nn

import opsmith

backend = opsmith.load(str(Path(__file__).with_name("backend.yaml")))


def losses(device: str) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)).to(device)
    x = torch.randn(32, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    found = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x[:, :2])
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


torch.testing.assert_close(losses("chip"), losses("cpu"), rtol=1e-4, atol=1e-5)
print("losses: those of the CPU")

rows, column = torch.randn(5, 7), torch.randn(4, 1, 7)
for compute in (
    lambda a, b: a + b,  # broadcast
    lambda a, b: torch.add(a[:, ::2], b[..., ::2], alpha=3),  # with strides
    lambda a, b: a.t() * a.t()[:1],
    lambda a, b: 2 - a * torch.tensor(0.5),  # numbers, which stay on the host
):
    torch.testing.assert_close(
        compute(rows.to("chip"), column.to("chip")).cpu(), compute(rows, column)
    )
print("strided operands: as on the CPU")

stream = torch.chip.current_stream()
matrix = torch.eye(400, device="chip")
product = matrix @ matrix
print("the call returns before the work is done:", not stream.query())
assert torch.equal(product.cpu(), torch.eye(400))

driver = ctypes.CDLL(str(backend.built.driver))
driver.chip_launch.argtypes = (
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
)
nowhere = (ctypes.c_int64 * 15)()  # three matrices at address 0
status = driver.chip_launch(stream.native_handle, b"matmul", nowhere, ctypes.sizeof(nowhere))
print("a launch that will fail returns", status)
try:
    stream.synchronize()
except torch.AcceleratorError as error:
    print(str(error).splitlines()[0])
