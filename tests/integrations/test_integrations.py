"""The device in libraries that know devices by name: stand-ins of them, found and changed as the real ones.

``test_libraries.py`` has the real ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

import fork_server
from stand_ins import FILES, write_packages

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

HEAD = """
import json, sys, warnings
folder = FOLDER
sys.path.insert(0, folder)
import opsmith
caught = warnings.catch_warnings(record=True)
warned = caught.__enter__()
warnings.simplefilter("always")
def tell(**found):
    found["warned"] = [str(each.message) for each in warned]
    print(json.dumps(found, default=str))
"""
Told = Callable[..., dict[str, Any]]


@pytest.fixture
def told(sim: LoadedBackend, tmp_path: Path) -> Told:
    """Runs a program that finds the stand-ins, some files perhaps replaced, and returns what it tells."""

    def run(code: str, changes: dict[str, str] | None = None, **environment: str) -> dict[str, Any]:
        write_packages(tmp_path, changes)
        program = HEAD.replace("FOLDER", repr(str(tmp_path))) + dedent(code)
        done = fork_server.run(
            [sys.executable, "-c", program], env={**os.environ, **environment}, timeout=120
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


ACCELERATE = """
from accelerate import Accelerator
from accelerate.utils import get_balanced_memory, get_max_memory
accelerator = Accelerator("fp16")
memory = get_max_memory()
tell(
    device=accelerator.device,
    scaler=accelerator.scaler._device,
    keys=[str(key) for key in memory],
    free=memory[1],
    given=get_max_memory({1: "1KB", "cpu": 7}),
    shared=get_balanced_memory({0: 5, 1: 5, "cpu": 7}),
)
"""


@pytest.mark.parametrize("first", ['opsmith.load("sim")', "import accelerate"])
def test_accelerate_takes_the_device(told: Told, first: str) -> None:
    found = told(f'{first}\nopsmith.load("sim")\n{ACCELERATE}')
    assert found == {
        "device": "sim",
        "scaler": "sim",
        "keys": ["0", "1", "cpu"],
        "free": 8 << 30,
        "given": {"1": 1000, "cpu": 7},
        "shared": [0, 1],
        "warned": [],
    }


def test_the_cpu_can_be_asked_for(told: Told) -> None:
    found = told("""
        opsmith.load("sim")
        from accelerate import Accelerator
        from transformers.training_args import TrainingArguments
        tell(device=Accelerator(cpu=True).device, trainer=TrainingArguments(use_cpu=True).device)
        """)
    assert found == {"device": "cpu", "trainer": "cpu", "warned": []}


def test_random_states_are_in_checkpoints(told: Told, tmp_path: Path) -> None:
    found = told(f"""
        opsmith.load("sim")
        import torch
        from accelerate.checkpointing import load_accelerator_state, save_accelerator_state
        save_accelerator_state({str(tmp_path)!r}, [], [], [], [], 0)
        first = torch.rand(3, device="sim:1").tolist()
        load_accelerator_state({str(tmp_path)!r}, [], [], [], [], process_index=0)
        tell(same=first == torch.rand(3, device="sim:1").tolist())
        """)
    assert found == {"same": True, "warned": []}
    assert (tmp_path / "random_states_sim_0.pt").is_file()


def test_safetensors_loads_to_the_device(told: Told) -> None:
    found = told("""
        opsmith.load("sim")
        import torch
        from safetensors.torch import load_file
        torch.sim.set_device(1)
        places = ["sim", "sim:0", torch.device("sim:1"), "cpu", 0]
        try:
            load_file("file", device="simulated")
        except ValueError as error:
            refused = str(error)
        tell(devices=[load_file("file", device=place) for place in places], refused=refused)
        """)
    assert found == {
        "devices": [1, 0, 1, "cpu", 0],
        "refused": "device simulated is invalid",
        "warned": [],
    }


def test_transformers_takes_the_device(told: Told) -> None:
    found = told("""
        opsmith.load("sim")
        import torch
        from transformers import testing_utils
        from transformers.pipelines.base import Pipeline
        from transformers.training_args import TrainingArguments
        model = torch.nn.Linear(1, 1)
        placed = torch.nn.Linear(1, 1)
        placed.hf_device_map = {"": 1}
        tell(
            trainer=TrainingArguments().device,
            tests=testing_utils.torch_device,
            devices=testing_utils.BACKEND_DEVICE_COUNT["sim"](),
            pipelines=[Pipeline(model).device, Pipeline(model, device=1).device,
                       Pipeline(model, "", -1).device, Pipeline(placed).device],
        )
        """)
    assert found == {
        "trainer": "sim:0",
        "tests": "sim",
        "devices": 2,
        "pipelines": ["sim:0", "sim:1", "cpu", "sim:1"],
        "warned": [],
    }


def test_what_the_environment_names_comes_first(told: Told) -> None:
    found = told(
        """
        opsmith.load("sim")
        from transformers import testing_utils
        from transformers.training_args import TrainingArguments
        tell(trainer=TrainingArguments().device, tests=testing_utils.torch_device)
        """,
        ACCELERATE_TORCH_DEVICE="sim:1",
        TRANSFORMERS_TEST_DEVICE="cpu",
    )
    assert found == {"trainer": "sim:1", "tests": "cpu", "warned": []}


def test_lightning_takes_the_device(told: Told) -> None:
    found = told("""
        opsmith.load("sim")
        from pytorch_lightning import _AcceleratorConnector as Connector
        def refusal(devices):
            try:
                Connector("sim", devices)
            except opsmith.OpsmithError as error:
                return str(error)
        auto, second, cpu = Connector(precision="16-mixed"), Connector("sim", [1]), Connector("cpu")
        tell(
            auto=[auto.accelerator.name(), auto.strategy.root_device, auto.precision.device],
            second=second.strategy.root_device,
            cpu=cpu.strategy.root_device,
            refusals=[refusal(2), refusal("5,6")],
        )
        """)
    assert found == {
        "auto": ["sim", "sim:0", "sim"],
        "second": "sim:1",
        "cpu": "cpu",
        "refusals": [
            None,
            "devices=[5, 6] does not name any of the 2 devices of sim\n"
            "  remedy: devices=1, or a list of one index below 2",
        ],
        "warned": [],
    }


def test_off_leaves_libraries_as_they_are_until_one_is_named(told: Told) -> None:
    found = told(
        """
        opsmith.load("sim")
        from accelerate.state import PartialState
        before = str(PartialState().device)
        PartialState.shared.clear()
        from opsmith.runtime import integrations
        integrations.accelerate()
        integrations.accelerate()
        tell(before=before, after=PartialState().device)
        """,
        OPSMITH_INTEGRATIONS="off",
    )
    assert found == {"before": "cpu", "after": "sim", "warned": []}


def test_a_setting_that_means_nothing(told: Told) -> None:
    found = told(
        """
        try:
            opsmith.load("sim")
        except opsmith.OpsmithError as error:
            tell(error=str(error))
        """,
        OPSMITH_INTEGRATIONS="maybe",
    )
    assert found["error"] == (
        "OPSMITH_INTEGRATIONS is `maybe`, which is neither on nor off\n"
        "  remedy: set it to off, to leave libraries as they are, or unset it"
    )


CHANGED = (
    "accelerate of unknown version has no list of devices in Accelerator.__init__, so it cannot be told of "
    "the device and may take the CPU\n"
    "  remedy: install a version that docs/start/programs.md names, or name the device as it says"
)


def test_a_library_that_has_changed(told: Told) -> None:
    found = told(
        """
        opsmith.load("sim")
        import accelerate.accelerator
        from opsmith.runtime import integrations
        try:
            integrations.accelerate()
        except opsmith.OpsmithError as error:
            tell(error=str(error), kind=type(error).__name__)
        """,
        changes={
            "accelerate/accelerator.py": """
                class Accelerator:
                    def __init__(self):
                        pass
                """
        },
    )
    assert found == {"error": CHANGED, "kind": "LibraryChanged", "warned": [CHANGED]}


def test_what_a_library_needs_first(told: Told) -> None:
    found = told("""
        from opsmith.runtime import integrations
        def error_of(call):
            try:
                call()
            except opsmith.OpsmithError as error:
                return str(error)
        early = error_of(integrations.accelerate)
        opsmith.load("sim")
        sys.path.remove(folder)
        sys.modules["accelerate"] = None
        tell(early=early, missing=error_of(integrations.accelerate))
        """)
    assert found["early"] == (
        "no device is loaded that a library could be told of\n"
        '  remedy: call opsmith.load("sim"), or another backend, first'
    )
    assert found["missing"] == "accelerate is not installed\n  remedy: pip install accelerate"


def test_loading_imports_no_library(sim: LoadedBackend, tmp_path: Path) -> None:
    write_packages(tmp_path)
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import opsmith
opsmith.load("sim")
libraries = {"accelerate", "transformers", "lightning", "lightning_fabric", "pytorch_lightning"}
print(sorted(libraries & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_library_that_imports_torch_first(told: Told) -> None:
    """``import torch`` loads the backend while the library is half imported."""
    found = told(
        """
        from accelerate import Accelerator
        tell(device=Accelerator("fp16").device, autoloaded=hasattr(sys.modules["torch"], "sim"))
        """,
        changes={
            "accelerate/accelerator.py": 'import opsmith\nopsmith.load("sim")\n'
            + dedent(FILES["accelerate/accelerator.py"])
        },
    )
    assert found == {"device": "sim", "autoloaded": True, "warned": []}


def test_a_failed_import_can_be_repeated(told: Told) -> None:
    found = told(
        """
        opsmith.load("sim")
        import importlib.util
        assert importlib.util.find_spec("accelerate.state") is not None
        builtins = __import__("builtins")
        try:
            import accelerate.state
        except ImportError:
            builtins.is_ready = True
        from accelerate.state import PartialState
        tell(device=PartialState().device)
        """,
        changes={
            "accelerate/__init__.py": "",
            "accelerate/state.py": "import builtins\n"
            'if not hasattr(builtins, "is_ready"):\n    raise ImportError\n'
            + dedent(FILES["accelerate/state.py"]),
        },
    )
    assert found == {"device": "sim", "warned": []}
