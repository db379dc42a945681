"""Which sources are compiled together and how they are optimised, whatever their names are."""

from __future__ import annotations

import ctypes
import os
import platform
from dataclasses import replace
from pathlib import Path

import pytest

from opsmith.build import lean, objects
from opsmith.build.cache import usable_cache
from opsmith.build.compile import Compilation
from opsmith.build.csrc import PUBLIC_HEADERS
from opsmith.build.lean import compiled_instruction_sets
from opsmith.build.objects import torch_prelude
from opsmith.build.shared_library import SharedLibrary
from opsmith.build.toolchain import Compiler, TorchInstallation, find_compiler, find_torch
from opsmith.build.units import (
    CALLS,
    KERNELS,
    VECTORISED,
    generated_units,
    own_units,
    runtime_units,
    single,
    together,
)
from opsmith.description.found import PACKAGE
from opsmith.errors import SettingInvalid
from refusal import refusal
from small_builds import ANSWER, built, library_of, written

# Each is text in some language between a description and the compiler: ninja's, a shell's, C++'s.
NAMES = {
    "dollar": "so$urces ${out} $$",
    "space": "two  words",
    "quotes": 'it\'s "said" `so`',
    "backslash": "back\\slash\\n",
    "newline": "two\nlines",
    "colon": "a:b|c&d;e #f",
    "unicode": "naïve-部品",
    "undecodable": os.fsdecode(b"latin-\xe9"),
    "option": "-O0",
    "long": "long" * 60,
}
named = pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of the test's own, and one compiler at a time, so that steps have an order."""
    monkeypatch.setenv("MAX_JOBS", "1")
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))
    return usable_cache()


@pytest.fixture
def compiler(cache: Path) -> Compiler:
    """The compiler of this machine."""
    return find_compiler(cache)


def exported(name: str) -> str:
    return f'extern "C" __attribute__((visibility("default"))) int {name}() {{ return VALUE; }}\n'


# ---- names -------------------------------------------------------------------------------------


@named
def test_a_source_of_any_name(name: str, tmp_path: Path, compiler: Compiler, cache: Path) -> None:
    source = written(tmp_path / f"{name}.cpp", ANSWER)
    path, steps = built(library_of(source), compiler, cache)
    assert ctypes.CDLL(str(path)).answer() == 42
    shown = "".join(each if each.isprintable() else "?" for each in source.name)
    assert steps == [f"[1/2] compiling {shown}", "[2/2] linking libtest.so"]


def test_an_option_of_any_text(tmp_path: Path, compiler: Compiler, cache: Path) -> None:
    """No shell reads it."""
    text = (
        f"$(touch {tmp_path}/ran) `touch {tmp_path}/ran`; touch {tmp_path}/ran & 'two  words' $HOME"
    )
    source = written(
        tmp_path / "text.cpp",
        'extern "C" __attribute__((visibility("default"))) const char* text() { return TEXT; }\n',
    )
    units = own_units([source], [f'-DTEXT="{text}"'])
    path, _ = built(replace(library_of(), units=units), compiler, cache)
    library = ctypes.CDLL(str(path))
    library.text.restype = ctypes.c_char_p
    assert library.text() == text.encode()
    assert not (tmp_path / "ran").exists()


@named
def test_sources_and_headers_in_a_folder_of_any_name(
    name: str, tmp_path: Path, compiler: Compiler, cache: Path
) -> None:
    folder = tmp_path / name
    headers = folder / name
    headers.mkdir(parents=True)
    (headers / "value.h").write_text("#pragma once\n#define VALUE 5\n")
    sources = [
        written(folder / f"{each}.cpp", f"#include <value.h>\n{exported(each)}")
        for each in ("one", "two", "three")
    ]
    library = SharedLibrary("test", (), (headers,), units=together("all", sources, CALLS))
    path, _ = built(library, compiler, cache)
    assert [ctypes.CDLL(str(path))[each.stem]() for each in sources] == [5, 5, 5]
    (headers / "value.h").write_text("#pragma once\n#define VALUE 6\n")
    path, _ = built(library, compiler, cache)
    assert ctypes.CDLL(str(path)).two() == 6


@named
def test_a_cache_of_any_name(
    name: str, tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / name))
    sources = [
        written(tmp_path / "one.cpp", f"#define VALUE 1\n{exported('one')}"),
        written(tmp_path / "two.cpp", exported("two")),
    ]
    library = SharedLibrary("test", (), units=together("all", sources, CALLS))
    path, _ = built(library, compiler, usable_cache())
    assert path.is_relative_to(tmp_path / name)
    assert ctypes.CDLL(str(path)).two() == 1


def test_what_no_include_can_name_is_compiled_by_itself(tmp_path: Path) -> None:
    plain = [written(tmp_path / f"{name}.cpp", "") for name in ("one", "two")]
    odd = written(tmp_path / 'so"so.cpp', "")
    units = together("all", [plain[0], odd, plain[1]], CALLS)
    assert [unit.sources for unit in units] == [tuple(plain), (odd,)]


# ---- together, or each by itself ---------------------------------------------------------------


def test_sources_that_are_compiled_together_see_each_other(
    tmp_path: Path, compiler: Compiler, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [
        written(tmp_path / "one.cpp", "#define VALUE 1\n" + exported("one")),
        written(tmp_path / "two.cpp", "#ifndef VALUE\n#define VALUE 2\n#endif\n" + exported("two")),
    ]
    answers = {}
    for unity in ("1", "0"):
        monkeypatch.setenv("OPSMITH_UNITY", unity)
        library = SharedLibrary("test", (), units=together("all", sources, CALLS))
        path, steps = built(library, compiler, cache)
        answers[unity] = [step.partition(" ")[2] for step in steps], ctypes.CDLL(str(path)).two()
    assert answers == {
        "1": (["compiling all.cpp", "linking libtest.so"], 1),
        # The longer one first.
        "0": (["compiling two.cpp", "compiling one.cpp", "linking libtest.so"], 2),
    }


def test_what_units_include_of_pytorch_is_compiled_once(
    compiler: Compiler, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiler.precompiles:
        pytest.skip("the compiler has no precompiled headers that opsmith uses: clang")
    (cache / "generated").mkdir()
    monkeypatch.setattr(objects, "_TORCH_HEADERS", ("c10/macros/Macros.h",))

    def steps_of(name: str, count: int) -> list[str]:
        sources = [
            written(
                cache / "generated" / f"{name}{i}.cpp",
                "#define VALUE C10_WARP_SIZE\n" + exported(f"f{i}"),
            )
            for i in range(count)
        ]
        units = [unit for source in sources for unit in together(source.stem, [source], CALLS)]
        library = SharedLibrary("test", (), torch=find_torch(), units=tuple(units))
        path, steps = built(library, compiler, cache)
        assert ctypes.CDLL(str(path)).f0() == 32
        return [step.partition(" ")[2] for step in steps]

    # None of the sources includes what defines the macro.
    assert steps_of("first", 4)[0] == "compiling the headers of torch"
    (header,) = (cache / "preludes").glob("*.h")
    header.write_text("#error it is not read")
    assert steps_of("second", 1) == ["compiling second0.cpp", "linking libtest.so"]


def test_headers_of_a_torch_that_was_built_from_source_may_change() -> None:
    assert torch_prelude(TorchInstallation("2.13.0a0+git1234567", Path())) is None
    prelude = torch_prelude(TorchInstallation("2.13.0+cpu", Path()))
    assert prelude is not None
    assert prelude.text.startswith("// 2.13.0+cpu\n#include <ATen/core/Tensor.h>\n")


def test_units_are_of_about_the_same_size(tmp_path: Path) -> None:
    sources = [written(tmp_path / f"{i}.cpp", "x" * size) for i, size in enumerate((4, 1, 1, 1, 1))]
    assert [(unit.name, unit.sources) for unit in together("all", sources, CALLS, 2)] == [
        ("all_0.cpp", (sources[0],)),
        ("all_1.cpp", tuple(sources[1:])),
    ]


def test_a_header_of_ours_that_a_macro_names_is_part_of_what_is_compiled(
    tmp_path: Path, compiler: Compiler, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "PACKAGE", tmp_path)
    written(tmp_path / "each.h", "#include FUNCTIONS\n")
    source = written(
        tmp_path / "one.cpp", f'#define FUNCTIONS "value.h"\n#include "each.h"\n{exported("one")}'
    )
    library = SharedLibrary("test", (), units=(single(source, KERNELS),))
    for value in (5, 6):
        written(tmp_path / "value.h", f"#define VALUE {value}\n")
        path, _ = built(library, compiler, cache)
        assert ctypes.CDLL(str(path)).one() == value


def test_units_of_the_same_name_in_two_libraries(
    tmp_path: Path, compiler: Compiler, cache: Path
) -> None:
    libraries = []
    for i in (1, 2):
        folder = tmp_path / str(i)
        folder.mkdir()
        sources = [
            written(folder / "one.cpp", f"#define VALUE {i}\n"),
            written(folder / "two.cpp", exported("value")),
        ]
        libraries.append(SharedLibrary(f"test{i}", (), units=together("all", sources, CALLS)))
    compilation = Compilation(libraries, compiler, cache)
    compilation.run(cache / "log", lambda step: None)
    assert [ctypes.CDLL(str(path)).value() for path in compilation.outputs()] == [1, 2]


def test_two_libraries_that_are_one(tmp_path: Path, compiler: Compiler, cache: Path) -> None:
    source = written(tmp_path / "answer.cpp", ANSWER)
    steps: list[str] = []
    compilation = Compilation([library_of(source), library_of(source)], compiler, cache)
    compilation.run(cache / "log", lambda step: steps.append(str(step)))
    assert steps[1:] == ["[1/2] compiling answer.cpp", "[2/2] linking libtest.so"]
    assert len(set(compilation.outputs())) == 1


@pytest.mark.parametrize("value", ["yes", "2"])
def test_a_switch_that_is_neither_on_nor_off(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSMITH_UNITY", value)
    assert refusal(SettingInvalid, together, "all", [], CALLS) == (
        f"OPSMITH_UNITY is `{value}`\n  remedy: set it to 0, for one object a source, or unset it"
    )


# ---- optimisation ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["4", "fast", "-O2"])
def test_a_level_of_optimisation_that_there_is_not(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_OPTIMIZE", value)
    assert refusal(SettingInvalid, lambda: own_units([Path("kernel.cpp")])) == (
        f"OPSMITH_OPTIMIZE is `{value}`, which is no level of optimisation\n"
        "  remedy: set it to one of 0, 1, 2, 3, g, s, or unset it"
    )


def test_a_quick_build_optimises_kernels_less_and_the_rest_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated, runtime = written(tmp_path / "RegisterChip_0.cpp", ""), tmp_path / "kineto.cpp"
    runtime.touch()
    for level, of_calls, of_kernels in (("1", "-O1", "-O3"), ("0", "-O0", "-O1")):
        monkeypatch.setenv("OPSMITH_OPTIMIZE", level)
        assert single(runtime, KERNELS).optimize == of_kernels
        assert single(runtime, VECTORISED).optimize == "-O3"
        assert {unit.optimize for unit in generated_units([generated])} == {of_calls}
        assert {unit.optimize for unit in runtime_units([generated, runtime])} == {of_calls}


def test_a_quick_build_is_for_the_instruction_sets_of_this_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lean, "processor_features", lambda: {"sse2", "avx2", "fma"})
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.delenv("OPSMITH_OPTIMIZE", raising=False)
    assert list(compiled_instruction_sets()) == ["baseline", "avx2", "avx512"]
    monkeypatch.setenv("OPSMITH_OPTIMIZE", "0")
    assert list(compiled_instruction_sets()) == ["baseline", "avx2"]
    assert list(compiled_instruction_sets("x86_64")) == ["baseline", "avx2"]
    assert list(compiled_instruction_sets("aarch64")) == ["neon"]
    # Nothing is known of it: any may be this processor's.
    monkeypatch.setattr(lean, "processor_features", set)
    assert list(compiled_instruction_sets()) == ["baseline", "avx2", "avx512"]


def test_a_level_is_for_a_users_sources_only(
    tmp_path: Path, compiler: Compiler, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = written(
        tmp_path / "own.cpp",
        """
        extern "C" __attribute__((visibility("default"))) int optimised() {
        #ifdef __OPTIMIZE__
          return 1;
        #else
          return 0;
        #endif
        }
        """,
    )
    ours = PACKAGE / "drivers" / "sim" / "errors.cpp"
    folders = (PUBLIC_HEADERS,)
    objects = {}
    for level in ("", "3", "1", "0"):
        monkeypatch.setenv("OPSMITH_OPTIMIZE", level)
        library = SharedLibrary("test", (own,), folders, units=together("driver", [ours], KERNELS))
        ((of_own, of_ours),) = Compilation([library], compiler, cache).objects()
        objects[level] = of_own[1], of_ours[1]
    assert objects[""] == objects["3"]
    assert objects["0"][0] != objects["3"][0]
    assert objects["1"][0] != objects["3"][0]
    assert objects["1"][1] == objects["3"][1]
    path, _ = built(library_of(own), compiler, cache)
    assert ctypes.CDLL(str(path)).optimised() == 0
