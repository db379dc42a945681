"""Files that the build of a backend takes from the cache or makes anew, wherever things lie."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from damage import DAMAGE
from fake_builds import FakeBuild, fake_build
from opsmith.base.cache_folder import cache_root, sealed, unsealed
from opsmith.base.trusted_files import check_trusted
from opsmith.build import backend as backend_room
from opsmith.build import inputs as inputs_room
from opsmith.build import toolchain
from opsmith.build.backend import build_backend, find_built
from opsmith.build.cpu_operators import BRIDGE
from opsmith.build.driver_library import driver_library
from opsmith.build.stored import is_sound, seal, seal_of
from opsmith.description.found import PACKAGE
from opsmith.errors import CacheUnusable, CompilerMissing, FileUntrusted, SettingInvalid
from opsmith.executorch import runtime as executorch_runtime
from opsmith.plan import kept_plans as plan_room
from opsmith.plan import plan_backend
from opsmith.vendor.doctor.requirements import diagnose
from refusal import refusal

# As a process of another user, or in another namespace, has it.
LOAD = """
import os, sys
from pathlib import Path
from opsmith.build.backend import build_backend, find_built
from opsmith.base.cache_folder import cache_root
from opsmith.errors import OpsmithError
from opsmith.plan import plan_backend
from opsmith.base.trusted_files import check_trusted
description, user = Path(sys.argv[1]), int(sys.argv[2])
if user:
    find_built(description)  # what it imports may lie in a folder of root's own
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
try:
    built = build_backend(description)
    assert find_built(description) == built
    plan_backend(str(description), cache_root())
    print(built.library)
    print(built.driver)
except OpsmithError as error:
    print(f"{type(error).__name__}: {error}")
"""
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")


@pytest.fixture(autouse=True)
def optimised_as_a_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as the test backends are built."""
    monkeypatch.delenv("OPSMITH_OPTIMIZE", raising=False)


@pytest.fixture(scope="module")
def prebuilt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeBuild]:
    """A backend of which everything is built."""
    fake = fake_build(tmp_path_factory.mktemp("prebuilt"))
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("OPSMITH_OPTIMIZE", raising=False)
        for name, value in fake.environment.items():
            environment.setenv(name, value)
        fake.build()
    fake.made()
    yield fake


@pytest.fixture
def chip(prebuilt: FakeBuild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBuild:
    """A copy of it for one test, whose variables are this process's."""
    copy = replace(prebuilt, cache=shutil.copytree(prebuilt.cache, tmp_path / "cache"))
    for name, value in copy.environment.items():
        monkeypatch.setenv(name, value)
    prebuilt.made()
    # A plan that the process has once read is not read again.
    monkeypatch.setattr(plan_room, "_known", {})
    return copy


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.rglob(pattern)
    return found


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and the time of its last change."""
    every = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in every}


# ---- damage ------------------------------------------------------------------------------------


@DAMAGE
@pytest.mark.parametrize("which", ["libopsmith_chip.so", "libopsmith_chip_driver.so"])
def test_a_damaged_library_is_not_found_and_linked_again(
    damage: Callable[[Path], None], which: str, chip: FakeBuild
) -> None:
    before = find_built(chip.description)
    damage(only(chip.cache, which))
    assert find_built(chip.description) is None
    assert "not built yet" in diagnose(str(chip.description))[-1].found
    built, _ = chip.build()
    assert built == before
    assert is_sound(built.library) and is_sound(built.driver)
    assert chip.made() == ["library"]


def test_a_library_without_its_seal_is_linked_again(chip: FakeBuild) -> None:
    before = find_built(chip.description)
    seal_of(only(chip.cache, "libopsmith_chip.so")).unlink()
    assert find_built(chip.description) is None
    assert chip.build()[0] == before
    assert chip.made() == ["library"]


@DAMAGE
def test_a_damaged_record_is_written_again(damage: Callable[[Path], None], chip: FakeBuild) -> None:
    record = only(chip.cache / "backends", "*.json")
    content = record.read_bytes()
    before = find_built(chip.description)
    damage(record)
    assert find_built(chip.description) is None
    assert chip.build()[0] == before
    assert chip.made() == []
    assert record.read_bytes() == content


@DAMAGE
def test_a_damaged_plan_is_made_again(damage: Callable[[Path], None], chip: FakeBuild) -> None:
    record = only(chip.cache / "plans", "*.json")
    content = record.read_bytes()
    damage(record)
    plan = plan_backend(str(chip.description), chip.cache)
    assert record.read_bytes() == content
    assert plan == plan_backend(str(chip.description), None)


@DAMAGE
def test_a_damaged_generated_header_is_written_again(
    damage: Callable[[Path], None], chip: FakeBuild
) -> None:
    header = only(chip.cache / "generated", "ChipFunctions.h")
    content = header.read_bytes()
    damage(header)
    shutil.rmtree(chip.cache / "objects")
    only(chip.cache, "libopsmith_chip.so").unlink()
    chip.build()
    assert header.read_bytes() == content
    assert chip.made() == ["object"] * 9 + ["library"]


def test_only_damaged_objects_are_compiled_again(chip: FakeBuild) -> None:
    only(chip.cache / "objects", "runtime_1-*.o").write_text("made as something else\n")
    only(chip.cache, "libopsmith_chip.so").unlink()
    _, steps = chip.build()
    assert steps[3:] == ["[1/2] compiling runtime_1.cpp", "[2/2] linking libopsmith_chip.so"]


# ---- caches that others have written -----------------------------------------------------------


def loaded(
    chip: FakeBuild, user: int = 0, before: Sequence[str] = (), **environment: str
) -> list[str]:
    """The lines of a process that looks for the libraries, as ``user``, or started by ``before``."""
    done = subprocess.run(
        [*before, sys.executable, "-c", LOAD, str(chip.description), str(user)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def read_only(chip: FakeBuild) -> Iterator[list[str]]:
    """The command that starts a process whose cache is on a file system mounted read-only."""
    if os.geteuid():
        for path in (chip.cache, *chip.cache.rglob("*")):
            path.chmod(path.stat().st_mode & ~0o222)
        yield []
        for path in (chip.cache, *chip.cache.rglob("*")):
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
        return
    mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    start = ["unshare", "--mount", "sh", "-c", mount, str(chip.cache)]
    if subprocess.run([*start, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a folder read-only")
    yield start


def test_a_complete_cache_that_is_read_only(chip: FakeBuild, read_only: list[str]) -> None:
    found = find_built(chip.description)
    assert found is not None
    before = state_of(chip.cache)
    assert loaded(chip, before=read_only) == [str(found.library), str(found.driver)]
    assert state_of(chip.cache) == before


def test_what_a_read_only_cache_lacks_beside_libraries_is_made_without_it(
    chip: FakeBuild, tmp_path: Path
) -> None:
    """Of the compiler, of PyTorch's operators and of the plan."""
    found = find_built(chip.description)
    assert found is not None
    for folder in ("compilers", "catalogues", "plans"):
        # The operators may have been remembered before this cache was made.
        shutil.rmtree(chip.cache / folder, ignore_errors=folder == "catalogues")
    if os.geteuid():
        pytest.skip("as root: another user's cache is told from one that is mounted")
    assert loaded(chip) == [str(found.library), str(found.driver)]


def test_an_incomplete_cache_that_is_read_only(chip: FakeBuild, read_only: list[str]) -> None:
    parent = chip.cache.stat().st_mode
    chip.cache.chmod(parent | stat.S_IWUSR)
    library = only(chip.cache, "libopsmith_chip.so")
    library.parent.chmod(0o755)
    library.unlink()
    chip.cache.chmod(parent)
    first, second = loaded(chip, before=read_only)
    why = "Permission denied" if os.geteuid() else "Read-only file system"
    assert first == f"CacheUnusable: the cache directory {chip.cache} cannot be written: {why}"
    assert second == (
        "  remedy: free some space there, or set OPSMITH_CACHE_DIR to a directory of your own"
    )


def test_what_executorch_has_is_asked_again_where_it_cannot_be_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = executorch_runtime.RuntimeOperators(["aten::add.out"], ["XnnpackBackend"])
    monkeypatch.setattr(executorch_runtime, "ask", lambda task, doing: (asked, ""))
    # /proc refuses even root.
    runtime = executorch_runtime.installed_runtime(Path("/proc/1"))
    assert runtime.operators == frozenset(asked.names)


def folders_of(cache: Path) -> list[Path]:
    return [cache, *(path for path in cache.rglob("*") if path.is_dir())]


@pytest.fixture
def shared(prebuilt: FakeBuild) -> Iterator[FakeBuild]:
    """The backend in a folder that everybody may read."""
    if os.geteuid():
        pytest.skip("only root becomes another user")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copied = prebuilt.copied(Path(folder))
        for path in folders_of(copied.cache):
            path.chmod(0o755)
        yield copied


def test_a_second_user_uses_what_is_sound(
    shared: FakeBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in shared.environment.items():
        monkeypatch.setenv(name, value)
    # That of the fixture is in a folder of root's own.
    monkeypatch.setenv("CXX", "nowhere++")
    before = state_of(shared.cache)
    library, _ = loaded(shared, NOBODY)
    assert library.startswith(str(shared.cache)) and library.endswith("libopsmith_chip.so")
    assert state_of(shared.cache) == before
    only(shared.cache, "libopsmith_chip.so").unlink()
    assert loaded(shared, NOBODY)[0] == (
        f"CacheUnusable: the cache directory {shared.cache} cannot be written: Permission denied"
    )


def test_others_may_read_files_as_the_umask_says_and_no_folder(tmp_path: Path) -> None:
    for umask in (0o022, 0o077, 0o002):
        folder = tmp_path / f"{umask:o}"
        folder.mkdir()
        fake = fake_build(folder)
        program = f"import os; os.umask({umask}); from opsmith.build.backend import build_backend; "
        program += f"from pathlib import Path; build_backend(Path({str(fake.description)!r}))"
        done = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **fake.environment}
        )
        assert done.returncode == 0
        modes = {
            path.relative_to(fake.cache).parts[0]: stat.S_IMODE(path.stat().st_mode)
            for path in fake.cache.rglob("*")
            if path.is_file()
        }
        assert {"plans", "objects", "libraries", "backends", "generated", "locks"} <= set(modes)
        assert set(modes.values()) == {0o666 & ~umask}
        assert {stat.S_IMODE(path.stat().st_mode) for path in folders_of(fake.cache)} == {0o700}


def test_what_a_newer_opsmith_wrote_is_left_alone(chip: FakeBuild) -> None:
    record = only(chip.cache / "backends", "*.json")
    others = {
        chip.cache / "backends" / f"chip-{'0' * 32}" / record.name: '{"libraries": []}',
        record.with_name("0123456789abcdef.json"): '{"format": 2}',
        chip.cache / "plans" / f"{'0' * 64}.json": '{"format": 2}',
        chip.cache / "objects" / "kernels-0.o": "an object without a seal",
        chip.cache / "devices" / "chip": "a folder that this opsmith does not know",
    }
    for path, text in others.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    shutil.rmtree(chip.cache / "libraries")
    chip.build()
    assert {path: path.read_text() for path in others} == others


def test_a_record_with_a_field_that_is_not_known_is_not_trusted(chip: FakeBuild) -> None:
    record = only(chip.cache / "backends", "*.json")
    before = find_built(chip.description)
    fields = json.loads(unsealed(record.read_bytes()))
    record.write_bytes(sealed(json.dumps({**fields, "drivers": []}).encode()))
    assert find_built(chip.description) is None
    assert chip.build()[0] == before
    assert chip.made() == []


@pytest.mark.parametrize("place", ["../evil.so", "{}/evil.so"])
def test_a_record_names_only_what_is_in_the_cache(place: str, chip: FakeBuild) -> None:
    record = only(chip.cache / "backends", "*.json")
    before = find_built(chip.description)
    evil = chip.cache.parent / "evil.so"
    shutil.copyfile(only(chip.cache, "libopsmith_chip_driver.so"), evil)
    seal(evil, evil)
    fields = json.loads(unsealed(record.read_bytes()))
    fields["driver"] = place.format(evil.parent)
    record.write_bytes(sealed(json.dumps(fields).encode()))
    assert find_built(chip.description) is None
    assert chip.build()[0] == before


@as_root
def test_a_library_that_a_description_names_is_another_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = fake_build(tmp_path, "{library: lib.so}")
    library = fake.description.with_name("lib.so")
    library.write_bytes(b"\x7fELF")
    os.chown(library, NOBODY, NOBODY)
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    assert refusal(FileUntrusted, fake.build) == (
        f"{fake.description}:2:1: {library} is not loaded: {library} belongs to nobody, not to root\n"
        f"  remedy: if you trust what is there: chown root {library}; or let root name the folder in "
        "/etc/opsmith/trusted-folders"
    )
    assert fake.made() == []


@as_root
def test_a_library_in_a_folder_that_others_may_write_is_not_taken(chip: FakeBuild) -> None:
    """However right its seal is; the folder is not this build's to mend."""
    library = only(chip.cache, "libopsmith_chip.so")
    os.chown(library, NOBODY, NOBODY)
    library.write_bytes(b"evil")
    seal(library, library)
    library.parent.chmod(0o777)
    assert find_built(chip.description) is None
    built, _ = chip.build()
    assert built.library.read_bytes() != b"evil"
    assert refusal(FileUntrusted, check_trusted, built.library) == (
        f"{library} is not loaded: everybody may write to {library.parent}\n"
        f"  remedy: if you trust what is there: chmod go-w {library.parent}; or let root name the folder in "
        "/etc/opsmith/trusted-folders"
    )


# ---- no compiler -------------------------------------------------------------------------------


def test_what_is_built_needs_no_compiler(chip: FakeBuild, monkeypatch: pytest.MonkeyPatch) -> None:
    before = find_built(chip.description)
    monkeypatch.setenv("CXX", "nowhere++")
    assert chip.build() == (before, [])
    checks = {check.name: check for check in diagnose(str(chip.description))}
    assert not checks["compiler"].ok
    # It is found, and looked into: this one is text.
    assert "cannot be opened" in checks[f"driver of {chip.description}"].found


def test_what_is_not_built_needs_one(chip: FakeBuild, monkeypatch: pytest.MonkeyPatch) -> None:
    only(chip.cache, "libopsmith_chip_driver.so").unlink()
    monkeypatch.setenv("CXX", "nowhere++")
    assert refusal(CompilerMissing, chip.build) == (
        "the compiler `nowhere++` that CXX names was not found on PATH\n"
        "  remedy: apt-get install g++ (Debian, Ubuntu) or dnf install gcc-c++ (Fedora); or set CXX"
    )


def test_no_compiler_and_no_folder_for_temporary_files(
    chip: FakeBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler is asked who it is without a file."""
    before = find_built(chip.description)
    shutil.rmtree(chip.cache / "compilers")
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    assert find_built(chip.description) == before


# ---- wherever things lie -----------------------------------------------------------------------


def test_a_description_in_another_folder(chip: FakeBuild, tmp_path: Path) -> None:
    before = state_of(chip.cache)
    moved = shutil.copytree(chip.description.parent, tmp_path / "so $urces: it's é")
    elsewhere = replace(chip, description=moved / "backend.yaml")
    built, steps = elsewhere.build()
    assert (built.library, steps) == (build_backend(chip.description).library, [])
    assert built.driver_location.path == elsewhere.description
    plan = plan_backend(str(elsewhere.description), chip.cache)
    assert state_of(chip.cache) == before
    assert plan == plan_backend(str(elsewhere.description), None)
    text = msgspec.json.encode(plan, enc_hook=str).decode()
    assert f"{moved}/kernels.yaml:4:6" in text
    assert str(chip.description.parent) not in text
    (relu,) = (entry for entry in plan.entries if entry.name == "relu")
    assert relu.kernel is not None and relu.kernel.location.path == moved / "kernels.yaml"


def test_a_driver_that_came_ready_built_is_the_one_beside_the_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = fake_build(tmp_path, driver="{library: driver.so}")
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    (fake.description.parent / "driver.so").write_text("a driver")
    assert fake.build()[0].driver == fake.description.parent / "driver.so"
    moved = shutil.copytree(fake.description.parent, tmp_path / "moved")
    shutil.rmtree(fake.description.parent)
    built, steps = replace(fake, description=moved / "backend.yaml").build()
    assert (built.driver, steps) == (moved / "driver.so", [])


NAMES = """
import sys
from pathlib import Path
from opsmith.build import backend as room
from opsmith.build.compile import Compilation
from opsmith.build.driver_library import driver_library
from opsmith.description import find_backend, read_backend, read_plan_sources
from opsmith.plan import kept_plans as plans
cache = Path(sys.argv[1])
backend = read_backend(find_backend("sim"), None)
installed = room.Installed.found(cache)
print(room._record_path(backend, installed, cache))
print(plans._key(read_plan_sources(find_backend("sim"))))
library = room.library_of(backend, cache / "generated", installed, installed.compiler)
driver = driver_library(backend.name, backend.driver)
for library in Compilation([library, driver], installed.compiler, cache).objects():
    for source, path in library:
        print(path)
"""


def test_the_cache_does_not_tell_where_opsmith_lies(chip: FakeBuild, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, elsewhere / "opsmith", ignore=ignored)
    (chip.cache / "generated").mkdir(exist_ok=True)
    lines = [
        subprocess.run(
            [sys.executable, "-c", f"{NAMES}print(room.__file__)", str(chip.cache)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(folder)},
        ).stdout.splitlines()
        for folder in (PACKAGE.parent, elsewhere)
    ]
    assert lines[0][-1] != lines[1][-1]
    assert len(lines[0]) > 50
    assert lines[0][:-1] == lines[1][:-1]


def test_the_cache_does_not_tell_where_torch_lies(
    chip: FakeBuild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = names_of_sim(chip.cache)
    torch = replace(toolchain.find_torch(), root=tmp_path / "torch")
    monkeypatch.setattr(backend_room, "find_torch", lambda: torch)
    assert names_of_sim(chip.cache) == before
    patch = f"{torch.compiled_for}.9+cu130"
    monkeypatch.setattr(backend_room, "find_torch", lambda: replace(torch, version=patch))
    assert names_of_sim(chip.cache) == before
    for other in ("2.99.0", f"{torch.compiled_for}.0a0+git1234567"):
        another = replace(torch, version=other)
        monkeypatch.setattr(backend_room, "find_torch", lambda found=another: found)
        assert names_of_sim(chip.cache).isdisjoint(before)


def names_of_sim(cache: Path) -> set[Path]:
    """The record of sim and its objects of the package's sources that include PyTorch's headers."""
    backend = backend_room.read_backend(PACKAGE / "drivers" / "sim" / "backend.yaml", None)
    installed = backend_room.Installed.found(cache)
    assert installed.compiler is not None
    library = backend_room.library_of(backend, cache / "generated", installed, installed.compiler)
    compilation = backend_room.Compilation([library], installed.compiler, cache)
    runtime = {
        path
        for source, path in compilation.objects()[0]
        if source.is_relative_to(PACKAGE / "csrc" / "opsmith")
    }
    assert runtime
    return {backend_room._record_path(backend, installed, cache), *runtime}


# ---- what is compiled --------------------------------------------------------------------------


def test_a_users_own_sources_come_first(chip: FakeBuild) -> None:
    shutil.rmtree(chip.cache / "objects")
    shutil.rmtree(chip.cache / "libraries")
    _, steps = chip.build()
    assert steps[:3] == [
        "planning every operator",
        "generating C++",
        f"[0/11] compiling with {chip.compiler}",
    ]
    first = {step.rpartition(" ")[2] for step in steps if step.startswith(("[1/11]", "[2/11]"))}
    assert first == {"kernels.cpp", "driver.c"}
    assert [step for step in steps if "runtime_0.cpp" in step or "generated.cpp" in step]


def test_each_source_by_itself(chip: FakeBuild, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSMITH_UNITY", "0")
    before = find_built(chip.description)
    # Nothing is built for it.
    assert chip.build() == (before, [])
    shutil.rmtree(chip.cache / "libraries")
    _, steps = chip.build()
    runtime = {path.name for path in (PACKAGE / "csrc" / "opsmith").rglob("*.cpp")}
    compiled = {step.rpartition(" ")[2] for step in steps if "] compiling " in step}
    # Those that are by themselves in both ways were there.
    assert runtime - {"autocast.cpp", "collectives.cpp", "kineto.cpp"} < compiled
    assert not any(name.startswith(("runtime_", "generated")) for name in compiled)


def test_the_record_is_the_same_wherever_the_description_lies(
    chip: FakeBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the package's folder in the order of paths, or after it."""
    built = find_built(chip.description)
    inputs = inputs_room._inputs
    monkeypatch.setattr(inputs_room, "_inputs", lambda backend: sorted(inputs(backend)))
    assert find_built(chip.description) == built is not None
    monkeypatch.setattr(
        inputs_room, "_inputs", lambda backend: sorted(inputs(backend), reverse=True)
    )
    assert find_built(chip.description) == built


def test_a_level_of_optimisation_has_a_record_of_its_own(
    chip: FakeBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_OPTIMIZE", "1")
    assert find_built(chip.description) is None
    chip.build()
    # The kernel and the driver are compiled again; the rest is the package's.
    assert chip.made() == ["object"] * 2 + ["library"] * 2
    monkeypatch.delenv("OPSMITH_OPTIMIZE")
    assert chip.build()[1] == []
    monkeypatch.setenv("OPSMITH_OPTIMIZE", "max")
    with pytest.raises(SettingInvalid, match=r"^OPSMITH_OPTIMIZE is `max`, which is no level"):
        find_built(chip.description)


def test_an_edit_of_a_kernel_generates_nothing(
    chip: FakeBuild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = chip.copied(tmp_path / "copy")
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(copy.cache))

    def again(*_: object, **__: object) -> None:
        raise AssertionError("generated anew")

    source = copy.description.parent / "kernels.cpp"
    # Generated code gives places: another folder has its own.
    source.write_text("// edited\n")
    copy.build()
    monkeypatch.setattr("opsmith.emit.emit", again)
    chip.made()
    source.write_text("// edited again\n")
    copy.build()
    assert chip.made() == ["object", "library"]


def test_a_library_whose_messages_name_a_folder_serves_no_other(
    chip: FakeBuild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = chip.copied(tmp_path / "copy")
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(copy.cache))
    text = copy.description.read_text()
    copy.description.write_text(text.replace("fallback: cpu", "fallback: {deny: [cumsum]}"))
    built, _ = copy.build()
    assert find_built(copy.description) == built
    moved = shutil.copytree(copy.description.parent, tmp_path / "moved") / "backend.yaml"
    assert find_built(moved) is None
    again = replace(copy, description=moved).build()[0]
    assert again.library != built.library
    generated = "".join(path.read_text() for path in again.generated.glob("*.cpp"))
    assert str(moved) in generated and str(copy.description) not in generated


def every_library(folder: Path) -> Path:
    """A description with sim's driver and all libraries that come with opsmith."""
    names = sorted(path.parent.name for path in (PACKAGE / "kernels").glob("*/kernels.yaml"))
    sources = sorted((PACKAGE / "drivers" / "sim").rglob("*.cpp"))
    description = folder / "backend.yaml"
    description.write_text(
        f"backend: every\ndriver: {{sources: {json.dumps(list(map(str, sources)))}}}\n"
        f"libraries: [{', '.join(names)}]\nfallback: cpu\n"
    )
    return description


def test_every_source_that_comes_with_opsmith_is_built_and_in_the_digest(
    tmp_path: Path, chip: FakeBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    csrc = shutil.copytree(PACKAGE / "csrc", tmp_path / "csrc")
    for room in ("opsmith", "bridge", "lean"):
        (csrc / room / "deeper").mkdir()
        (csrc / room / "deeper" / "new.cpp").touch()
    monkeypatch.setattr(backend_room, "CSRC", csrc)
    monkeypatch.setattr(inputs_room, "CSRC", csrc)
    backend = backend_room.read_backend(every_library(tmp_path), None)
    installed = backend_room.Installed.found(chip.cache)
    assert installed.compiler is not None
    libraries = [
        backend_room.library_of(backend, chip.cache / "generated", installed, installed.compiler),
        driver_library(backend.name, backend.driver),
    ]
    compilation = backend_room.Compilation(libraries, installed.compiler, chip.cache)
    compiled = {source for library in compilation.objects() for source, _ in library}
    # Libraries of their own: of `opsmith trace`, of Python kernels, of kernels for the CPU or ExecuTorch.
    apart = {
        *(csrc / "trace").rglob("*.cpp"),
        *(csrc / "python").rglob("*.cpp"),
        *(csrc / "executorch_library").rglob("*.cpp"),
        *(csrc / path.relative_to(PACKAGE / "csrc") for path in BRIDGE),
    }
    ours = {
        path
        for folder in (csrc, PACKAGE / "kernels", PACKAGE / "drivers" / "sim")
        for path in folder.rglob("*.cpp")
    }
    assert ours - compiled - apart == set()
    assert ours <= set(inputs_room._inputs(backend))


def test_what_plans_and_generates_is_in_the_digest(chip: FakeBuild) -> None:
    backend = backend_room.read_backend(chip.description, None)
    inputs = set(inputs_room._inputs(backend))
    rooms = ("schema", "description", "plan", "emit", "build")
    code = {path for room in rooms for path in (PACKAGE / room).rglob("*.py")}
    assert code and code <= inputs
    assert not any(path.suffix == ".pyc" for path in inputs)


def test_a_full_disk_leaves_no_half_a_plan(
    chip: FakeBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(chip.cache / "plans")

    def full(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    plan = plan_backend(str(chip.description), cache_root())
    assert plan.backend == "chip"
    assert list((chip.cache / "plans").iterdir()) == []
    shutil.rmtree(chip.cache / "backends")
    with pytest.raises(CacheUnusable, match="No space left on device"):
        chip.build()
