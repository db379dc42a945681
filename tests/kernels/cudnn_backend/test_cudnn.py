"""The library ``cudnn`` on the stand-in of NVIDIA's driver, its compiler and its cuDNN."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools" / "gpu"))
import stand_in

HERE = Path(__file__).parent
REMEDY = (
    "pip install nvidia-cudnn-cu13 (or -cu12), which a CUDA build of torch brings, name its libcudnn.so.9 in "
    "OPSMITH_CUDNN_LIBRARY, or leave the library `cudnn` out of the description"
)

# Compiles a backend that no test of the default run needs.
pytestmark = pytest.mark.nightly


class Stand:
    """The stand-in, on which programs run."""

    def __init__(self, folder: Path) -> None:
        self.settings = os.environ | stand_in.built(folder)

    def run(self, program: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(HERE / program)],
            capture_output=True,
            text=True,
            timeout=1800,
            env=self.settings | more,
        )


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Stand:
    return Stand(tmp_path_factory.mktemp("stand_in"))


def test_convolutions_and_gradients_are_those_of_the_cpu(stand: Stand) -> None:
    done = stand.run("convolutions.py")
    assert done.stdout.splitlines()[-1:] == ["0 of 528 differ; on the CPU: []"], (
        done.stdout + done.stderr
    )


def test_algorithms_are_chosen_by_pytorchs_settings_and_what_cudnn_lacks_goes_on(
    stand: Stand,
) -> None:
    done = stand.run("choices.py")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])

    def calls(*written: str, how: str) -> str:
        return "".join(f"{each} algorithm {how}\n" for each in written)

    assert found == {
        "TF32": calls("result", "image", "weight", how="0 math 0"),
        "float32": calls("result", "image", "weight", how="0 math 3"),
        "deterministic": calls("result", "image", "weight", how="1 math 3"),
        "bfloat16": calls("result", "image", "weight", how="0 math 1"),
        "channels-last": calls("result", "image", "weight", how="0 math 1 channels-last"),
        "transposed": calls("image", "result", "weight", how="0 math 3"),
        "groups": 1,
        "output_padding": 1,
        "dtype": "Input type (Float) and weight type (Double) should be the same",
        "disabled": 1,
        "not supported": 1,
        "failed": "cuDNN cannot compute a convolution (CUDNN_STATUS_EXECUTION_FAILED: as it was asked to)",
    }


@pytest.mark.parametrize(
    ("library", "said"),
    [
        ("/nowhere/libcudnn.so.9", "cuDNN, which computes convolutions, is missing"),
        ("libcuda.so.1", "the cuDNN here lacks cudnnCreate"),
    ],
)
def test_a_library_that_is_missing_or_another_is_said(
    stand: Stand, library: str, said: str
) -> None:
    done = stand.run("convolutions.py", OPSMITH_CUDNN_LIBRARY=library)
    assert f"NotImplementedError: {said}; {REMEDY}" in done.stderr
