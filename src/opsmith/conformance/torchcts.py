"""TorchCTS, a suite of tests for backends that others write, run against the device.

It is a package of test files for pytest.  They are run as PyTorch's own are (:mod:`upstream`), at its deepest
level, with a manifest that declares the device for all that TorchCTS knows to ask.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from opsmith.conformance.ledger import Ledger, ledger_beside
from opsmith.conformance.upstream import PytestCall
from opsmith.errors import ConformanceError, nearest

_LEVEL = 8
# Those of its tests that are of backends; the others are of TorchCTS itself.
_SUITES = (
    "device_api", "operators", "autograd", "errors", "strides", "dtypes", "memory", "rng",
    "serialization", "training", "stress", "workloads", "compiler", "multi_device", "generated", "opinfo",
)  # fmt: skip

# Two capabilities are not declared: names of dimensions, which torch no longer has, and an allocator's
# function that only TorchCTS knows of.  Decoders of quantized containers are the user's own.
_MANIFEST = """\
# Written by `opsmith upstream torchcts`.
import torch

manifest = {{
    "manifest_version": 1,
    "device_name": {device!r},
    "backend_import": None,
    "supported_dtypes": {{
        dtype: True
        for dtype in (
            torch.float16, torch.float32, torch.float64, torch.bfloat16,
            torch.int8, torch.int16, torch.int32, torch.int64,
            torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool,
            torch.complex32, torch.complex64, torch.complex128,
        )
    }},
    "device_count": getattr(torch, {device!r}).device_count(),
    "ieee754_seed": 67,
    "max_samples": 10,
    "max_samples_ieee754": 3,
    "semantic_level": {level},
    "hardware": {{
        "memory_model": "discrete",
        "device_memory_gb": "auto",
        "system_memory_gb": "auto",
        "oom_recoverable": True,
    }},
    "resource_limits": {{
        "max_device_memory_mb": None,
        "max_system_memory_mb": None,
        "max_tensor_size_mb": None,
        "cleanup_threshold_pct": 80,
    }},
    "capabilities": {{
        capability: capability not in ("named_tensor", "guard_alloc", "custom_quantized_decode")
        for capability in (
            "inference", "training", "serialization", "rng", "device_generator", "rng_distributions",
            "double_backward", "gradcheck", "gradient_checkpointing", "autocast", "fused_optimizer",
            "dataloader", "module_hooks", "channels_last", "sparse", "nested", "named_tensor", "foreach",
            "fp8", "quantized_container_plumbing", "native_quantization", "custom_quantized_decode",
            "compile", "pinned_memory", "streams", "events", "deterministic", "guard_alloc", "device_api",
            "multi_device", "ieee754",
        )
    }},
    "skip_ops": [],
    "tolerance_overrides": {{}},
    "supported_container_formats": {{}},
    "custom_container_decoders": {{}},
    "custom_test_dirs": [],
}}
"""


@dataclass(frozen=True)
class TorchCts:
    """The installed TorchCTS, whose package lies in ``root``."""

    root: Path

    def chosen(self, files: Iterable[str]) -> tuple[Path, ...]:
        """The test files by name, ``operators/test_sparse.py``, or all of them.

        A name without a file stands for those of its folder.  Raises
        :class:`~opsmith.errors.ConformanceError`.
        """
        known = {
            str(path.relative_to(self.root)): path
            for suite in _SUITES
            for path in sorted((self.root / suite).glob("test_*.py"))
        }
        found: dict[str, Path] = {}
        for name in files:
            of_folder = {key: path for key, path in known.items() if key.startswith(f"{name}/")}
            one = name.removesuffix(".py") + ".py"
            if not of_folder and one not in known:
                raise ConformanceError(
                    f"TorchCTS has no file `{one}`{nearest(one, known)}",
                    remedy="name a file, --file operators/test_sparse.py, or a folder, --file operators",
                )
            found |= of_folder or {one: known[one]}
        return tuple((found or known).values())

    def prefix(self, file: Path) -> str:
        """How the entries of a file's tests begin: ``torchcts/operators/test_sparse::``."""
        return f"torchcts/{file.relative_to(self.root).with_suffix('')}::"

    def call(self, file: Path, device: str, folder: Path) -> PytestCall:
        """How pytest runs ``file``; ``folder`` gets the manifest, and what TorchCTS writes."""
        (folder / "manifest.py").write_text(_MANIFEST.format(device=device, level=_LEVEL), "utf-8")
        return PytestCall(
            [
                "-p", "opsmith.conformance.torchcts_plugin",
                "--device", device, "--level", str(_LEVEL), "--results-dir", str(folder / "results"),
                # Each test that crashes ends one process, which is started again behind it.
                "--adaptive-isolation", "off", "--known-segfault-policy", "off",
            ],
            {"TORCHCTS_NON_INTERACTIVE": "1"},
            folder,
        )  # fmt: skip

    def filtered(self, file: Path, folder: Path) -> Mapping[str, str]:
        """The tests that contracts, levels and manifest left out, from the file that it writes at its end."""
        artifacts = importlib.import_module("torchcts.core.result_artifacts")
        return {
            name: f"TorchCTS: {skip['detail']}"
            for latest in (folder / "results").glob("*_latest.json")
            for test, skip in artifacts.load_result_artifact(str(latest))["skips"].items()
            for path, _, name in [test.partition("::")]
            if Path(path).name in {"", file.name}  # some are of OpInfo's files, whatever was run
        }

    def ledger(self, description: Path, named: Path | None) -> Ledger:
        """That in the file ``named``, or in ``torchcts_ledger.yaml`` beside ``description``, if any."""
        return ledger_beside(description, named, "torchcts_ledger.yaml", prefix="torchcts/")

    def on_the_cpu(self, test: str, device: str) -> str:
        """None: TorchCTS compares nothing where it runs on the CPU."""
        return ""


def find_torchcts() -> TorchCts:
    """The installed TorchCTS.  Raises :class:`~opsmith.errors.ConformanceError` where there is none."""
    spec = importlib.util.find_spec("torchcts")
    if spec is None or spec.origin is None or importlib.util.find_spec("psutil") is None:
        raise ConformanceError(
            "TorchCTS is not installed, or psutil, which it needs, is not",
            # It requires another torch than the newest one.
            remedy="pip install --no-deps torchcts, and pip install psutil pytest expecttest numpy",
        )
    return TorchCts(Path(spec.origin).parent.resolve())
