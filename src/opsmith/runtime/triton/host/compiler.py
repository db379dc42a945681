"""Triton's compiler backend ``host``: kernels compiled for this processor by the compiler of C++.

Its target is any driver that launches such binaries, as sim's does.  A chip's own backend begins with this
one: ``class Compiler(HostCompiler): name = "mychip"``, and has its own stages in their place later.
"""

from __future__ import annotations

import hashlib
import importlib
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from triton._C.libtriton import ir, passes
from triton.backends.compiler import BaseBackend, GPUTarget, Language
from triton.compiler.errors import CompilationError

from opsmith.base.cache_folder import cache_root
from opsmith.build.toolchain import find_compiler
from opsmith.runtime.triton.device import backend_of_the_device, triton_device
from opsmith.runtime.triton.host.cpp import cpp_of_kernel

_FLAGS = (
    "-std=c++20",
    "-O2",
    "-fwrapv",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-w",
)
_BLOCK = Path(__file__).with_name("block.h")


@dataclass(frozen=True)
class Options:
    """The options of a launch, most of which are for GPUs and ignored here."""

    num_warps: int = 4
    num_ctas: int = 1
    num_stages: int = 2
    cluster_dims: tuple[int, int, int] = (1, 1, 1)
    warp_size: int = 1
    maxnreg: int | None = None
    enable_fp_fusion: bool = False
    launch_cooperative_grid: bool = False
    launch_pdl: bool = False
    supported_fp8_dtypes: tuple[str, ...] = ()
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple[str, ...] = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
    max_num_imprecise_acc_default: int = 0
    extern_libs: None = None
    debug: bool = False
    backend_name: str = "host"
    sanitize_overflow: bool = False
    instrumentation_mode: str = ""
    arch: str = ""

    def hash(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()


class HostCompiler(BaseBackend):  # type: ignore[misc]
    """A backend whose binaries are shared libraries with one function, ``cpp_of_kernel``'s."""

    name = "host"
    binary_ext = "so"

    @classmethod
    def supports_target(cls, target: GPUTarget) -> bool:
        # Inductor calls the target by the device's name.
        is_the_devices = backend_of_the_device() == cls.name
        return target.backend == cls.name or (
            is_the_devices and target.backend == triton_device().name
        )

    def hash(self) -> str:
        digest = hashlib.sha256(repr((_FLAGS, find_compiler(cache_root()).identity)).encode())
        for each in (_BLOCK, _BLOCK.with_name("cpp.py"), _BLOCK.with_name("ir.py"), Path(__file__)):
            digest.update(each.read_bytes())
        return digest.hexdigest()

    def parse_options(self, options: dict[str, Any]) -> Options:
        known = Options.__dataclass_fields__
        return Options(**{key: each for key, each in options.items() if key in known})

    def pack_metadata(self, metadata: Any) -> tuple[int, int, int]:
        return metadata.num_warps, metadata.num_ctas, metadata.shared

    def get_codegen_implementation(self, options: Options) -> dict[str, Any]:
        return {"min_dot_size": lambda left, right: (1, 1, 1)}

    def get_module_map(self) -> dict[str, ModuleType]:
        return {
            "triton.language.extra.libdevice": importlib.import_module(
                "opsmith.runtime.triton.host.libdevice"
            )
        }

    def load_dialects(self, context: Any) -> None:
        pass

    def add_stages(
        self, stages: dict[str, Any], options: Any, language: Any = Language.TRITON
    ) -> None:
        stages["ttir"] = self.ttir
        stages["cpp"] = self.cpp
        stages["so"] = self.library

    def ttir(self, module: Any, metadata: dict[str, Any]) -> Any:
        manager = ir.pass_manager(module.context)
        passes.common.add_inliner(manager)
        for name in ("add_rewrite_tensor_pointer", "add_rewrite_tensor_descriptor_to_pointer"):
            if hasattr(passes.ttir, name):  # the first of them until Triton 3.7
                getattr(passes.ttir, name)(manager)
        passes.common.add_canonicalizer(manager)
        passes.ttir.add_combine(manager)
        passes.ttir.add_reorder_broadcast(manager)
        passes.common.add_cse(manager)
        passes.common.add_symbol_dce(manager)
        manager.run(module, "make_ttir")
        metadata["name"] = module.get_entry_func_name()
        metadata["shared"] = 0
        return module

    def cpp(self, module: Any, metadata: dict[str, Any]) -> str:
        try:
            return cpp_of_kernel(module.str_nodebug(), metadata["name"])
        except NotImplementedError as error:
            raise CompilationError(
                f"Triton's backend `{self.name}` cannot compile {error}", None
            ) from error

    def library(self, source: str, metadata: dict[str, Any]) -> bytes:
        with tempfile.TemporaryDirectory(prefix="opsmith-triton-") as folder:
            written = Path(folder, "kernel.cpp")
            written.write_text(f'#include "{_BLOCK}"\n\n{source}')
            library = written.with_suffix(".so")
            command = [
                *find_compiler(cache_root()).command,
                *_FLAGS,
                str(written),
                "-o",
                str(library),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CompilationError(
                    f"{command[0]} cannot compile the C++ of `{metadata['name']}`: {done.stderr}",
                    None,
                )
            return library.read_bytes()
