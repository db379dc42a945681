"""Without ExecuTorch, or with an unknown release: devices work, and commands say what to install."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from torchgen import local
from typer.testing import CliRunner

import fork_server
from opsmith.build import executorch as executorch_room
from opsmith.build.executorch import find_executorch
from opsmith.cli.main import app
from opsmith.emit.lean import lean_declaration
from opsmith.errors import ExecutorchMissing
from opsmith.schema import Variant, read_catalogue
from opsmith.schema.catalogue import torch_function

KERNELS = Path(__file__).parents[2] / "examples" / "custom_linear" / "custom_linear.cpp"
HIDING = """
import sys
from importlib.machinery import PathFinder
find_spec = PathFinder.find_spec
def found(name, path=None, target=None):
    hidden = name.partition(".")[0] in {"executorch", "flatbuffers", "torchao"}
    return None if hidden else find_spec(name, path, target)
PathFinder.find_spec = found
"""
LOADING = """
import opsmith, torch
from opsmith.build.backend import find_built
from opsmith.description import find_backend

assert find_built(find_backend("sim")), "what was built with ExecuTorch serves without it"
opsmith.load("sim")
torch.manual_seed(0)
x = torch.randn(33, 17)
for function in (
    lambda t: torch.softmax(t, -1),
    lambda t: t @ t.T,
    lambda t: t.sort(descending=True).values,
    lambda t: torch.nn.functional.layer_norm(t.bfloat16(), (17,)),
    lambda t: t.double().cumsum(0),
    lambda t: (t > 0).sum(1),
    lambda t: torch.complex(t, t).prod(0),
):
    torch.testing.assert_close(function(x.to("sim")).cpu(), function(x))
drawn = torch.bernoulli(torch.full((4000,), 0.25, device="sim"))
assert 800 < drawn.sum().item() < 1200
print("hidden" if "executorch" not in sys.modules else "imported")
"""


def python(script: str) -> tuple[int, str, str]:
    done = fork_server.run([sys.executable, "-c", script], timeout=600, env={**os.environ})
    return done.returncode, done.stdout, done.stderr


def test_a_device_loads_and_computes(sim: object) -> None:
    status, said, error = python(HIDING + LOADING)
    assert (status, said) == (0, "hidden\n"), error


@pytest.mark.parametrize(
    "command", ["build sim -o library", "export models:network -o network.pte"]
)
def test_commands_for_programs_say_what_to_install(command: str, tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(
        "import torch\ndef network():\n    return torch.nn.ReLU(), (torch.ones(2),)\n"
    )
    status, _, error = python(
        f"{HIDING}import os\nos.chdir({str(tmp_path)!r})\n"
        f"sys.argv = ['opsmith', 'executorch', *{command.split()}]\n"
        "from opsmith.cli.main import main\nmain()\n"
    )
    assert status == 1
    assert error.splitlines()[-2:] == [
        "error: libraries and programs for ExecuTorch's runtime need ExecuTorch, which is not installed",
        '  remedy: pip install "opsmith[executorch]"',
    ]


def test_another_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executorch_room, "executorch_version", lambda: "1.9.0")
    with pytest.raises(ExecutorchMissing) as refused:
        find_executorch()
    assert str(refused.value) == (
        "ExecuTorch 1.9.0 is installed, and opsmith knows the releases >=1.4,<1.6\n"
        '  remedy: pip install "opsmith[executorch]"'
    )


def test_kernels_for_the_cpu_are_built_for_pytorch_alone_beside_another_release(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(executorch_room, "executorch_version", lambda: "1.9.0")
    missing = "ExecuTorch 1.9.0 is installed, and opsmith knows the releases >=1.4,<1.6"
    built = ["build", str(KERNELS), "-o", str(tmp_path)]
    result = CliRunner().invoke(app, built)
    assert result.output.splitlines()[-1] == (
        f'for ExecuTorch  none: {missing} (pip install "opsmith[executorch]")'
    )
    answer = json.loads(CliRunner().invoke(app, [*built, "--json"]).output.splitlines()[-1])
    assert (answer["executorch"], answer["executorch_missing"]) == (None, missing)
    assert [path.name for path in tmp_path.iterdir()] == [Path(answer["torch"]).name]


def test_kernels_are_declared_as_executorch_declares_them() -> None:
    from executorch.codegen.api.types import ExecutorchCppSignature

    compared = 0
    for operator in read_catalogue().operators.values():
        if operator.variant is not Variant.OUT:
            continue
        function = torch_function(operator)
        with local.parametrize(
            use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False
        ):
            try:
                theirs = ExecutorchCppSignature.from_native_function(function).decl(name="kernel")
            except KeyError:  # a type that ExecuTorch does not have
                continue
        if "ArrayRef<const" not in theirs:  # no kernel can have it: a list of references
            assert lean_declaration(function, "kernel") == theirs
            compared += 1
    assert compared > 1000
