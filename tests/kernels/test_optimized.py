"""The library ``optimized`` as the linker sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fork_server
import opsmith
from instruction_sets import SUPPORTED
from opsmith.build.cache import usable_cache
from opsmith.build.compile import Compilation
from opsmith.build.etensor_headers import ETensorHeaders, own_headers
from opsmith.build.executorch import find_executorch
from opsmith.build.lean import lean_sources
from opsmith.build.objects import Object, Objects
from opsmith.build.shared_library import SharedLibrary
from opsmith.build.toolchain import find_compiler, find_torch
from opsmith.plan import OpenedBackend

KERNELS = Path(opsmith.__file__).parent / "kernels"
LIBRARIES = sorted(folder.parent.name for folder in KERNELS.glob("*/simd"))

EXP = "import opsmith, torch; opsmith.load('sim'); torch.ones(3, device='sim').exp()"


@pytest.mark.usefixtures("sim")
def test_an_instruction_set_that_the_processor_lacks_is_refused() -> None:
    environment = {**os.environ, "OPSMITH_ISA": "avx10"}
    done = fork_server.run([sys.executable, "-c", EXP], env=environment)
    assert done.stderr.splitlines()[-1] == (
        "RuntimeError: aten::exp: its kernel `opsmith::optimized::native::exp_out` (library optimized) "
        f"refuses the call: OPSMITH_ISA is `avx10`, and this processor has {', '.join(SUPPORTED)}: "
        "set it to one of these, or unset it"
    )


@pytest.fixture(scope="module")
def vectorised(tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """The objects of the vectorised sources, for each instruction set."""
    backend = tmp_path_factory.mktemp("vectorised") / "backend.yaml"
    backend.write_text(f"backend: vectorised\ndriver: sim\nlibraries: [{', '.join(LIBRARIES)}]\n")
    cache = usable_cache()
    compiler = find_compiler(cache)
    libraries = OpenedBackend(backend, cache).description.libraries

    def compiled_with(headers: ETensorHeaders) -> SharedLibrary:
        groups = [lean for each in libraries for lean in lean_sources(each, headers)]
        return SharedLibrary("vectorised", (), lean=tuple(g for g in groups if g.is_vectorised))

    library = compiled_with(find_executorch().headers)
    Compilation([library], compiler, cache, only_objects=True).run(
        backend.with_name("log"), lambda step: None
    )
    objects = Objects(compiler, cache)
    made = objects.of(library)
    # A device and ExecuTorch share them.
    of_a_device = objects.of(compiled_with(own_headers(find_torch())))
    assert [each.path for each in made] == [each.path for each in of_a_device]
    return made


def isa_of(made: Object) -> str:
    """The instruction set that it is compiled for; empty for what all processors run."""
    options = (flag.partition("-DOPSMITH_ISA=") for flag in made.flags)
    return "".join(name for _, _, name in options)


@pytest.mark.needs("binutils")
@pytest.mark.parametrize("name", SUPPORTED)
@pytest.mark.parametrize("library", LIBRARIES)
def test_no_code_of_an_instruction_set_is_visible_outside_its_namespace(
    vectorised: list[Object], library: str, name: str
) -> None:
    """Else the linker could keep the wide one of two equal inline functions, and an old processor run it."""
    objects = {
        each.unit.sources[0]: each.path
        for each in vectorised
        if isa_of(each) == name and each.unit.sources[0].parts[-3] == library
    }
    assert sorted(objects) == sorted((KERNELS / library / "simd").glob("*.cpp"))
    for source, path in objects.items():
        listed = subprocess.run(
            ["nm", "-C", "--defined-only", "--extern-only", path],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        symbols = [line.split(maxsplit=2)[2] for line in listed.splitlines()]
        assert symbols, source
        namespace = f"opsmith::{library}::{name}::"
        assert [symbol for symbol in symbols if namespace not in symbol] == [], source
