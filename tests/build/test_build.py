"""The build room: what is compiled when, what is kept, and what people are told when it fails."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from damage import DAMAGE
from opsmith.base.cache_folder import cache_root, mark_used
from opsmith.build import backend as backend_room
from opsmith.build import cache as cache_room
from opsmith.build import objects as objects_room
from opsmith.build.cache import prune, size_in_bytes, usable_cache, write_whole
from opsmith.build.compile import Compilation
from opsmith.build.etensor_headers import own_headers
from opsmith.build.progress import Progress
from opsmith.build.shared_library import LeanSources, SharedLibrary
from opsmith.build.stored import is_sound, make, seal, seal_of
from opsmith.build.toolchain import Compiler, find_compiler, find_torch, ninja_binary
from opsmith.build.work import work_directory
from opsmith.description.found import PACKAGE
from opsmith.errors import (
    BuildError,
    CacheUnusable,
    CompilationFailed,
    CompilerMissing,
    OpsmithError,
    SymbolUndefined,
)
from refusal import refusal
from small_builds import ANSWER, built, failure, library_of, script, written

INSTALL = "apt-get install g++ (Debian, Ubuntu) or dnf install gcc-c++ (Fedora); or set CXX"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of the test's own."""
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))
    return usable_cache()


@pytest.fixture
def compiler(cache: Path) -> Compiler:
    """The compiler of this machine."""
    return find_compiler(cache)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A directory for sources, whose name needs quoting in every language on the way."""
    folder = tmp_path / "so $urces: it's"
    folder.mkdir()
    return folder


@dataclass(frozen=True)
class Shop:
    """Where a test has its sources, its compiler and its cache."""

    sources: Path
    compiler: Compiler
    cache: Path

    def answer(self) -> Path:
        """A source with a function that returns 42."""
        return written(self.sources / "answer.cpp", ANSWER)

    def built(self, library: SharedLibrary) -> tuple[Path, list[str]]:
        return built(library, self.compiler, self.cache)

    def failure(self, library: SharedLibrary) -> OpsmithError:
        return failure(library, self.compiler, self.cache)


@pytest.fixture
def shop(sources: Path, compiler: Compiler, cache: Path) -> Shop:
    return Shop(sources, compiler, cache)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root mounts file systems")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """One compiler at a time, so that steps have an order."""
    monkeypatch.setenv("MAX_JOBS", "1")


def partial_files(cache: Path) -> list[Path]:
    return [*cache.rglob("*.partial"), *(cache / "work").glob("*")]


# ---- what is built -----------------------------------------------------------------------------


def test_a_library_is_built_and_works(shop: Shop) -> None:
    steps: list[Progress] = []
    library = library_of(shop.answer())
    compilation = Compilation([library], shop.compiler, shop.cache)
    compilation.run(shop.cache / "logs" / "test.log", steps.append)
    assert ctypes.CDLL(str(compilation.outputs()[0])).answer() == 42
    assert [str(step) for step in steps] == [
        f"[0/2] compiling with {shop.compiler.command[0]}",
        "[1/2] compiling answer.cpp",
        "[2/2] linking libtest.so",
    ]
    assert partial_files(shop.cache) == []


def test_a_second_build_runs_no_program(shop: Shop) -> None:
    library = library_of(shop.answer())
    first, _ = shop.built(library)
    changed = first.stat().st_mtime_ns
    second, steps = built(library, replace(shop.compiler, command=("/nonexistent",)), shop.cache)
    assert (second, steps) == (first, [])
    assert second.stat().st_mtime_ns == changed


def test_only_what_a_changed_header_reaches_is_compiled(shop: Shop) -> None:
    include = shop.sources / "include"
    include.mkdir()
    written(include / "outer.h", '#pragma once\n#  include "inner.h"\n')
    inner = written(include / "inner.h", "#pragma once\n#define VALUE 1\n")
    one = written(
        shop.sources / "one.cpp",
        """
        #include <outer.h>
        extern "C" __attribute__((visibility("default"))) int value() { return VALUE; }
        """,
    )
    two = written(shop.sources / "two.cpp", "int unrelated() { return 2; }\n")
    library = library_of(one, two, include_dirs=(include,))
    before, _ = shop.built(library)
    inner.write_text("#pragma once\n#define VALUE 7\n")
    after, steps = shop.built(library)
    assert steps == ["[1/2] compiling one.cpp", "[2/2] linking libtest.so"]
    assert ctypes.CDLL(str(before)).value() == 1
    assert ctypes.CDLL(str(after)).value() == 7
    inner.write_text("#pragma once\n#define VALUE 1\n")
    assert shop.built(library) == (before, [])


def test_an_include_that_only_the_compiler_can_resolve(shop: Shop) -> None:
    header = written(shop.sources / "chosen.h", "#define VALUE 1\n")
    source = written(
        shop.sources / "value.cpp",
        """
        #define CHOSEN "chosen.h"
        #include CHOSEN
        extern "C" __attribute__((visibility("default"))) int value() { return VALUE; }
        """,
    )
    shop.built(library_of(source))
    header.write_text("#define VALUE 7\n")
    path, _ = shop.built(library_of(source))
    assert ctypes.CDLL(str(path)).value() == 7


def test_an_include_that_a_flag_resolves(shop: Shop) -> None:
    header = written(shop.sources / "chosen.h", "#define VALUE 1\n")
    other = written(shop.sources / "other.h", "#define VALUE 2\n")
    source = written(
        shop.sources / "value.cpp",
        """
        #include CHOSEN
        extern "C" __attribute__((visibility("default"))) int value() { return VALUE; }
        """,
    )
    library = SharedLibrary("test", (source,), flags=('-DCHOSEN="chosen.h"',))
    before, _ = shop.built(library)
    other.write_text("#define VALUE 3\n")
    assert shop.built(library) == (before, [])
    header.write_text("#define VALUE 7\n")
    path, _ = shop.built(library)
    assert ctypes.CDLL(str(path)).value() == 7


def test_kernels_are_not_compiled_for_a_header_of_another_library(
    compiler: Compiler, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each asks selection.h, whose include only a selective build has."""
    monkeypatch.setattr(objects_room, "PACKAGE", tmp_path)
    kernels = shutil.copytree(PACKAGE / "kernels", tmp_path / "kernels")
    source = kernels / "portable" / "ops" / "sort.cpp"
    lean = LeanSources((source,), own_headers(find_torch()))
    library = SharedLibrary("test", (), lean=(lean,))
    before = Compilation([library], compiler, cache).objects()
    header = kernels / "optimized" / "threads.h"
    header.write_text(header.read_text() + "// changed\n")
    assert Compilation([library], compiler, cache).objects() == before


def test_another_compiler_means_other_objects(shop: Shop) -> None:
    library = library_of(shop.answer())
    first, _ = shop.built(library)
    second, steps = built(library, replace(shop.compiler, version="another 1.0"), shop.cache)
    assert first != second
    assert steps == ["[1/2] compiling answer.cpp", "[2/2] linking libtest.so"]


def test_the_same_text_elsewhere_is_not_compiled_again(tmp_path: Path, shop: Shop) -> None:
    first, _ = shop.built(library_of(shop.answer()))
    moved = written(tmp_path / "answer.cpp", ANSWER)
    assert shop.built(library_of(moved)) == (first, [])


def test_a_c_driver_is_compiled_as_c(shop: Shop) -> None:
    source = written(
        shop.sources / "driver.c",
        """
        #include <stdlib.h>
        __attribute__((visibility("default"))) int answer(void) {
          int *class = malloc(sizeof *class);  /* no C++ compiler takes this line */
          *class = 42;
          int value = *class;
          free(class);
          return value;
        }
        """,
    )
    path, _ = shop.built(library_of(source))
    assert ctypes.CDLL(str(path)).answer() == 42


def test_a_library_that_links_torch_finds_it_by_itself(shop: Shop) -> None:
    source = written(
        shop.sources / "linked.cpp",
        """
        #include <c10/core/Allocator.h>
        extern "C" __attribute__((visibility("default"))) int alignment() {
          return c10::GetAllocator(c10::kCPU) != nullptr ? 42 : 0;
        }
        """,
    )
    library = SharedLibrary("test", (source,), torch=find_torch())
    path, _ = shop.built(library)
    # In a process that has not imported torch, so that only the library's own rpath leads there.
    program = f"import ctypes; print(ctypes.CDLL({str(path)!r}).alignment())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("42\n", "")


def test_finding_torch_does_not_import_it() -> None:
    program = (
        "import sys; from opsmith.build.toolchain import find_torch; "
        "print(find_torch().version, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == f"{find_torch().version} False\n"


# ---- what its seal does not fit ----------------------------------------------------------------


@DAMAGE
@pytest.mark.parametrize("of_seal", [False, True], ids=["file", "seal"])
def test_a_damaged_library_is_linked_again(
    damage: Callable[[Path], None], of_seal: bool, shop: Shop
) -> None:
    library = library_of(shop.answer())
    path, _ = shop.built(library)
    damage(seal_of(path) if of_seal else path)
    again, steps = shop.built(library)
    assert steps == ["[1/1] linking libtest.so"]
    assert ctypes.CDLL(str(again)).answer() == 42
    assert shop.built(library) == (path, [])


@DAMAGE
@pytest.mark.parametrize("of_seal", [False, True], ids=["file", "seal"])
def test_a_damaged_object_is_compiled_again(
    damage: Callable[[Path], None], of_seal: bool, shop: Shop
) -> None:
    one = written(shop.sources / "one.cpp", ANSWER)
    two = written(shop.sources / "two.cpp", "int two() { return 2; }\n")
    path, _ = shop.built(library_of(one, two))
    (damaged,) = (shop.cache / "objects").glob("one-*.o")
    damage(seal_of(damaged) if of_seal else damaged)
    path.unlink()
    again, steps = shop.built(library_of(one, two))
    assert steps == ["[1/2] compiling one.cpp", "[2/2] linking libtest.so"]
    assert ctypes.CDLL(str(again)).answer() == 42


# ---- builds that are ended ---------------------------------------------------------------------


def is_running(pid: int) -> bool:
    """Whether the process lives, and is no zombie."""
    try:
        return " Z " not in f" {Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2]}"
    except FileNotFoundError:
        return False


@pytest.fixture
def ctrl_c_at(tmp_path: Path) -> Iterator[Path]:
    """A file; when something has been written to it, this process gets Ctrl-C's signal, once."""
    marker = tmp_path / "running"
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            if marker.exists() and marker.read_text().endswith("\n"):
                os.kill(os.getpid(), signal.SIGINT)
                return

    # Who is started in the background of a script ignores the signal, and so do those it starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=watch)
    thread.start()
    yield marker
    stop.set()
    thread.join()
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_the_compilers_and_leaves_the_store_sound(
    tmp_path: Path, ctrl_c_at: Path, shop: Shop
) -> None:
    slow = script(
        tmp_path / "slow-c++",
        f"""
        for argument; do case "$argument" in
          *.partial) echo half an object > "$argument";;
          *slow.cpp) waits=yes;;
        esac; done
        if test -z "$waits"; then exec {shlex.join(shop.compiler.command)} "$@"; fi
        echo $$ > {ctrl_c_at}
        exec sleep 300
        """,
    )
    library = library_of(
        # The longer one comes first.
        written(
            shop.sources / "quick.cpp",
            "int quick() { return 1; }\n" + ANSWER.replace("answer", "more"),
        ),
        written(shop.sources / "slow.cpp", ANSWER),
    )
    with pytest.raises(KeyboardInterrupt):
        built(library, replace(shop.compiler, command=(str(slow),)), shop.cache)
    pid = int(ctrl_c_at.read_text())
    # The signal has been sent; a loaded machine may take a moment to act on it.
    for _ in range(500):
        if not is_running(pid):
            break
        time.sleep(0.01)
    assert not is_running(pid)
    assert partial_files(shop.cache) == []
    path, steps = shop.built(library)
    assert steps == ["[1/2] compiling slow.cpp", "[2/2] linking libtest.so"]
    assert ctypes.CDLL(str(path)).answer() == 42


def test_what_a_killed_build_left_is_removed(shop: Shop) -> None:
    left = shop.cache / "work" / "build-0"
    left.mkdir(parents=True)
    (left / "lock").touch()
    (left / "answer-0.o.partial").write_text("half")
    shop.built(library_of(shop.answer()))
    assert partial_files(shop.cache) == []


def test_what_a_running_build_needs_is_left_alone(shop: Shop) -> None:
    with work_directory(shop.cache) as held:
        (held / "answer-0.o.partial").write_text("half")
        shop.built(library_of(shop.answer()))
        assert partial_files(shop.cache) == [held / "answer-0.o.partial", held]
    assert partial_files(shop.cache) == []


def test_a_file_system_without_locks(monkeypatch: pytest.MonkeyPatch, shop: Shop) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(fcntl, "lockf", refuse)
    another = shop.cache / "work" / "build-0"
    another.mkdir(parents=True)
    library = library_of(shop.answer())
    path, _ = shop.built(library)
    assert ctypes.CDLL(str(path)).answer() == 42
    # Nothing tells whether its build lives.
    assert list((shop.cache / "work").iterdir()) == [another]
    made = shop.cache / "objects" / "made"
    partial = shop.cache / "partial"
    assert make(made, shop.cache, partial, ["/bin/sh", "-c", 'echo made > "$0"', str(partial)]) == 0
    assert is_sound(made)


# ---- failures ----------------------------------------------------------------------------------


def test_a_source_that_does_not_compile(shop: Shop) -> None:
    # The longer one comes first.
    good = written(shop.sources / "good.cpp", ANSWER + "// and more\n" * 30)
    bad = written(
        shop.sources / "bad.cpp",
        """\
        int one() { return first; }
        int two() { return second; }
          int three() { return third; }
        int four() { return fourth; }
        int five() { return fifth; }
        """,
    )
    error = shop.failure(library_of(good, bad))
    assert isinstance(error, CompilationFailed)
    assert str(error) == (
        f"{bad}:1:20: the compiler rejects it\n"
        "  bad.cpp:1:20: 'first' was not declared in this scope\n"
        "  bad.cpp:2:20: 'second' was not declared in this scope\n"
        "  bad.cpp:3:24: 'third' was not declared in this scope\n"
        "  and 2 more\n"
        f"  remedy: mend the source; full log: {shop.cache}/logs/test.log"
    )
    assert "return fifth" in (shop.cache / "logs" / "test.log").read_text()
    assert partial_files(shop.cache) == []
    # Objects that compiled are kept.
    bad.write_text("")
    assert shop.built(library_of(good, bad))[1] == [
        "[1/2] compiling bad.cpp",
        "[2/2] linking libtest.so",
    ]


def test_symbols_that_no_source_defines(shop: Shop) -> None:
    source = written(
        shop.sources / "caller.cpp",
        """
        namespace chip { int add(int, const char*); void fill(); }
        extern "C" __attribute__((visibility("default"))) int both() {
          chip::fill();
          return chip::add(1, "") + chip::add(2, "");
        }
        """,
    )
    error = shop.failure(library_of(source))
    assert isinstance(error, SymbolUndefined)
    assert error.symbols == ("chip::fill()", "chip::add(int, char const*)")
    assert str(error) == (
        "the sources do not define `chip::fill()`, `chip::add(int, char const*)`\n"
        "  remedy: define them, or add the file that does to `sources`; "
        f"full log: {shop.cache}/logs/test.log"
    )
    assert list((shop.cache / "libraries").rglob("*.so*")) == []


@pytest.mark.parametrize(
    "said",
    [
        "/usr/bin/ld: a.o: undefined reference to `chip::add(int)'",
        "ld.lld: error: undefined symbol: chip::add(int)",
        "mold: error: undefined symbol: chip::add(int)",
    ],
)
def test_each_linker_is_understood(said: str, tmp_path: Path, shop: Shop) -> None:
    linker = script(tmp_path / "c++", f'cat <<"END"\n{said}\nEND\nexit 1\n')
    source = shop.answer()
    error = failure(library_of(source), replace(shop.compiler, command=(str(linker),)), shop.cache)
    assert isinstance(error, SymbolUndefined)
    assert error.symbols == ("chip::add(int)",)


@pytest.mark.parametrize(
    "said",
    [
        "bad.cpp:1:1: fatal error: error writing to /tmp/cc.s: No space left on device",
        "/usr/bin/ld: final link failed: No space left on device",
        "Fatal error: cannot write 'a.o': 'No space left on device'",
    ],
)
def test_a_full_disk(said: str, tmp_path: Path, shop: Shop) -> None:
    full = script(tmp_path / "c++", f'cat <<"END"\n{said}\nEND\nexit 1\n')
    library = library_of(shop.answer())
    error = failure(library, replace(shop.compiler, command=(str(full),)), shop.cache)
    assert isinstance(error, CacheUnusable)
    assert str(error) == (
        f"the cache directory {shop.cache} cannot be written: No space left on device\n"
        "  remedy: free some space there, or set OPSMITH_CACHE_DIR to a directory of your own"
    )
    # Once there is space, the same build succeeds.
    path, _ = shop.built(library)
    assert ctypes.CDLL(str(path)).answer() == 42


@pytest.mark.parametrize("free", [0, 256 << 10])
def test_a_disk_that_is_full(
    free: int, sources: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch, small_disk: Path
) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(small_disk))
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    os.truncate(filler, filler.stat().st_size - free)
    large = "extern const char text[2 << 20] = {1};\n" + ANSWER
    library = library_of(written(sources / "answer.cpp", large))
    error = failure(library, compiler, small_disk)
    assert isinstance(error, CacheUnusable)
    assert error.message == (
        f"the cache directory {small_disk} cannot be written: No space left on device"
    )
    with pytest.raises(CacheUnusable):
        write_whole(small_disk / "plans" / "plan.json", bytes(1 << 20))
    left = {path for path in small_disk.rglob("*") if path.is_file()}
    assert left <= {filler, small_disk / "work.lock", small_disk / "locks"}
    assert partial_files(small_disk) == []
    filler.unlink()
    path, _ = built(library, compiler, small_disk)
    assert ctypes.CDLL(str(path)).answer() == 42


def test_a_store_whose_folder_takes_no_file(shop: Shop) -> None:
    (shop.cache / "objects").write_text("")
    library = library_of(shop.answer())
    error = shop.failure(library)
    assert isinstance(error, CacheUnusable)
    assert error.message.startswith(f"the cache directory {shop.cache} cannot be written: ")


def test_a_source_that_only_speaks_of_a_full_disk(shop: Shop) -> None:
    source = written(
        shop.sources / "errors.cpp", 'const char* text = missing + "No space left on device\\\n";'
    )
    error = shop.failure(library_of(source))
    assert isinstance(error, CompilationFailed)


def test_a_compiler_that_is_killed(tmp_path: Path, shop: Shop) -> None:
    said = "c++: fatal error: Killed signal terminated program cc1plus"
    killed = script(tmp_path / "c++", f"echo '{said}'\nexit 1\n")
    library = library_of(shop.answer())
    error = failure(library, replace(shop.compiler, command=(str(killed),)), shop.cache)
    assert isinstance(error, CompilationFailed)
    assert str(error) == (
        f"a compiler was ended, most likely for want of memory: {said}\n"
        f"  remedy: build with fewer at a time: MAX_JOBS=1; full log: {shop.cache}/logs/test.log"
    )


def test_a_cache_directory_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "file", "")
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(file))
    assert refusal(CacheUnusable, usable_cache) == (
        f"the cache directory {file} cannot be written: it is a file, not a directory\n"
        "  remedy: free some space there, or set OPSMITH_CACHE_DIR to a directory of your own"
    )


def test_a_file_that_cannot_be_written_whole(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*paths: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = cache / "generated" / "file.cpp"
    write_whole(path, b"before")
    monkeypatch.setattr(os, "replace", full)
    assert refusal(CacheUnusable, write_whole, path, b"after") == (
        f"the cache directory {cache} cannot be written: No space left on device\n"
        "  remedy: free some space there, or set OPSMITH_CACHE_DIR to a directory of your own"
    )
    assert path.read_bytes() == b"before"
    assert list(path.parent.iterdir()) == [path]


def test_a_store_that_cannot_be_written(shop: Shop) -> None:
    # /proc refuses even root; a user without permission gets the same.
    library = library_of(shop.answer())
    compilation = Compilation([library], shop.compiler, Path("/proc/1"))
    with pytest.raises(CacheUnusable, match=r"^the cache directory /proc/1 cannot be written: "):
        compilation.run(shop.cache / "logs" / "test.log", lambda step: None)


# ---- the tools ---------------------------------------------------------------------------------


def test_no_compiler(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerMissing) as caught:
        find_compiler(cache)
    assert str(caught.value) == f"a C++ compiler was not found on PATH\n  remedy: {INSTALL}"


def test_a_compiler_named_by_cxx_that_is_not_there(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "clang++-99")
    assert refusal(CompilerMissing, find_compiler, cache) == (
        f"the compiler `clang++-99` that CXX names was not found on PATH\n  remedy: {INSTALL}"
    )


def test_a_compiler_that_is_too_old(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = script(
        tmp_path / "c++-4.8",
        "echo \"c++: error: unrecognized command line option '-std=c++20'\" >&2; exit 1",
    )
    monkeypatch.setenv("CXX", str(old))
    assert refusal(CompilerMissing, find_compiler, cache) == (
        f"{old} does not compile C++20: "
        "c++: error: unrecognized command line option '-std=c++20'\n"
        f"  remedy: gcc 11 or clang 16 and later do: {INSTALL}"
    )


def test_a_compiler_is_asked_once(
    cache: Path, compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    wrapper = script(
        tmp_path / "c++", f'echo >> {asked}; exec {shlex.join(compiler.command)} "$@"\n'
    )
    monkeypatch.setenv("CXX", str(wrapper))
    first = find_compiler(cache)
    times = len(asked.read_text())
    assert find_compiler(cache) == first
    assert len(asked.read_text()) == times
    wrapper.write_text(wrapper.read_text() + "# upgraded\n")
    find_compiler(cache)
    assert len(asked.read_text()) == 2 * times


def test_cxx_may_be_several_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: Shop
) -> None:
    used = tmp_path / "used"
    launcher = script(tmp_path / "ccache", f'echo >> {used}; exec "$@"\n')
    monkeypatch.setenv("CXX", f"{launcher} {shlex.join(shop.compiler.command)} -DVALUE=7")
    found = find_compiler(shop.cache)
    assert found.path == shop.compiler.path
    source = written(
        shop.sources / "value.cpp",
        'extern "C" __attribute__((visibility("default"))) int value() { return VALUE; }\n',
    )
    path, _ = built(library_of(source), found, shop.cache)
    assert ctypes.CDLL(str(path)).value() == 7
    assert used.exists()


def test_ninja_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ninja

    monkeypatch.setattr(ninja, "BIN_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    ninja_binary.cache_clear()
    assert refusal(BuildError, ninja_binary) == (
        "ninja, which runs the compiler, is missing from this environment\n"
        "  remedy: pip install --force-reinstall ninja"
    )
    monkeypatch.setattr(ninja, "BIN_DIR", "")
    systems = script(tmp_path / "ninja", "")
    assert ninja_binary() == systems
    ninja_binary.cache_clear()


@pytest.mark.parametrize("executable", ["", "/bin/false"])
def test_a_process_that_only_embeds_python(
    executable: str, monkeypatch: pytest.MonkeyPatch, shop: Shop
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    path, _ = shop.built(library_of(shop.answer()))
    assert ctypes.CDLL(str(path)).answer() == 42


def test_no_python_for_the_steps_of_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: Shop
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    error = shop.failure(library_of(shop.answer()))
    assert type(error) is BuildError
    assert str(error) == (
        "each step of a build runs Python, and there is none: `sys.executable` is ''\n"
        "  remedy: put a `python3` on PATH"
    )


@pytest.mark.parametrize("home", [None, sys.base_prefix])
def test_what_python_reads_from_the_environment_does_not_reach_the_steps(
    home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: Shop
) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit(1)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "sitecustomize.py"))
    if home:
        monkeypatch.setenv("PYTHONHOME", home)
    path, _ = shop.built(library_of(shop.answer()))
    assert ctypes.CDLL(str(path)).answer() == 42


def test_a_compiler_that_has_gone(shop: Shop) -> None:
    gone = replace(shop.compiler, command=("/nonexistent/c++",))
    error = failure(library_of(shop.answer()), gone, shop.cache)
    assert isinstance(error, CompilationFailed)
    assert "/nonexistent/c++: No such file or directory" in error.message


# ---- the cache directory -----------------------------------------------------------------------


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OPSMITH_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "opsmith"


def aged(path: Path, days: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(b"0123456789")
    then = time.time() - days * 24 * 3600
    os.utime(path, (then, then))
    return path


def test_pruning_removes_what_was_not_used_for_a_month(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_object = aged(cache / "objects" / "old.o", 31)
    used_object = aged(cache / "objects" / "used.o", 31)
    new_object = aged(cache / "objects" / "new.o", 29)
    old_library = aged(cache / "libraries" / "old" / "libold.so", 40).parent
    aged(old_library, 31)
    mark_used(used_object)
    prune(cache)
    assert old_object.exists() and old_library.exists()  # there is room for them
    monkeypatch.setattr(cache_room, "PRUNED_ABOVE_BYTES", 39)
    prune(cache)
    paths = (old_object, used_object, new_object, old_library)
    assert [path.exists() for path in paths] == [False, True, True, False]
    assert size_in_bytes(cache) == 20


def test_an_object_that_is_used_keeps_its_seal(monkeypatch: pytest.MonkeyPatch, shop: Shop) -> None:
    used = written(shop.sources / "used.cpp", ANSWER)
    shop.built(library_of(used))
    for path in (shop.cache / "objects").iterdir():
        aged(path, 31)
    # Another library of the same object, so that it is linked and not compiled.
    monkeypatch.setattr(cache_room, "PRUNED_ABOVE_BYTES", 0)
    shop.built(SharedLibrary("another", (used,)))
    _, steps = shop.built(SharedLibrary("third", (used,)))
    assert steps == ["[1/1] linking libthird.so"]


def test_a_cache_named_from_the_folder_of_the_process(
    sources: Path, compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPSMITH_CACHE_DIR", "near")
    path, _ = built(library_of(written(sources / "answer.cpp", ANSWER)), compiler, usable_cache())
    assert path.is_relative_to(tmp_path / "near")
    assert ctypes.CDLL(str(path)).answer() == 42


def test_comments_of_generated_code_compile_nothing(cache: Path) -> None:
    compiler = find_compiler(cache)
    folder = cache / "generated" / "Chip-1"
    folder.mkdir(parents=True)
    source = folder / "Register.cpp"

    def library(comment: str, code: str) -> Path:
        source.write_text(f"// {comment}\n{code}")
        compilation = Compilation([SharedLibrary("chip", (source,))], compiler, cache)
        return compilation.outputs()[0]

    first = library("kernels.yaml:9", ANSWER)
    assert library("kernels.yaml:10", ANSWER) == first
    assert library("a/folder/with/a/longer/name/\n// kernels.yaml:9", ANSWER) == first
    assert library("kernels.yaml:9", ANSWER.replace("42", "43")) != first


@pytest.mark.parametrize(
    ("included", "file"), [("../common.h", "common.h"), ("relu.cl", "kernels/relu.cl")]
)
def test_what_a_source_includes_is_no_reason_to_keep_a_library_once_edited(
    included: str,
    file: str,
    describe: Callable[..., Path],
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A header above the sources, as `opsmith/kernels` has, or the text of a kernel for the device."""
    path = describe()
    folder = path.parent / "kernels"
    folder.mkdir()
    (folder / "kernel.cpp").write_text('#include "kernel.h"\n')
    (folder / "kernel.h").write_text(f'#pragma once\n  # include "{included}"\n')
    (path.parent / file).write_text("// one\n")
    manifest = path.parent / "kernels.yaml"
    manifest.write_text(manifest.read_text().replace("kernels.cpp", "kernels/kernel.cpp"))
    built = []

    def build(backend: object, *rest: object) -> backend_room._Record:
        built.append(backend)
        library = Path("libraries") / "0" / "library.so"
        write_whole(cache / library, b"elf")
        seal(cache / library, cache / library)
        return backend_room._Record(str(library), str(library), "generated")

    monkeypatch.setattr(backend_room, "_build", build)
    for _ in range(2):
        backend_room.build_backend(path)
    assert len(built) == 1
    (path.parent / file).write_text("// two\n")
    assert backend_room.find_built(path) is None
    backend_room.build_backend(path)
    assert len(built) == 2


def test_what_is_no_source_by_its_name(compiler: Compiler, cache: Path, tmp_path: Path) -> None:
    notes = written(tmp_path / "notes.txt", "to do\n")
    text = refusal(CompilationFailed, built, library_of(notes), compiler, cache)
    assert str(notes) in text
    assert (
        "opsmith: nothing was made of it; the name of a source ends in .c, .cc, .cpp or .cxx\n"
        in text
    )
