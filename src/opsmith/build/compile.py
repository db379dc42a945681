"""C++ sources → shared libraries, through ninja and a content-addressed store.

An object's digest covers the compiler, the flags, torch's version, the source and every header of ours
that it includes, so an object is compiled once for all checkouts and backends.  ninja writes each
output under a temporary name and renames it: interrupted or failed builds leave the store sound.
Knows nothing of operators or descriptions.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from opsmith.build.cache import is_whole, mark_used, prune, unusable, write_whole
from opsmith.build.progress import Progress
from opsmith.build.toolchain import (
    Compiler,
    ExecutorchInstallation,
    PythonInstallation,
    TorchInstallation,
    ninja_binary,
)
from opsmith.errors import BuildError, CompilationFailed, Location, SymbolUndefined

Report = Callable[[Progress], None]

_PACKAGE = Path(__file__).resolve().parent.parent
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
# `#include NAME`: a flag says which header that is, or only the compiler knows.
_COMPUTED_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_FLAGS = (
    "-O3", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-Wall",
    # Without these gcc calls libm for sqrt and leaves loops with comparisons scalar.
    "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip
_STANDARD = {".c": "-std=c11"}
# As the wheel's own kernels are compiled; without the last but one `parallel_for` is silently serial.
# Errors that a kernel logs are what its caller is told.
_LEAN_FLAGS = (
    "-std=c++17", "-DC10_USING_CUSTOM_GENERATED_MACROS", "-DET_USE_THREADPOOL",
    "-DET_LOG_ENABLED=1", "-DET_MIN_LOG_LEVEL=Error",
)  # fmt: skip

_COMMENT_LINE = re.compile(rb"^([ \t]*//)[^\n]*", re.MULTILINE)
_STATUS = re.compile(r"^\[(?P<done>\d+)/(?P<total>\d+)\] (?P<action>.*)$")
_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\n]+?):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<message>.*)$",
    re.MULTILINE,
)
# What GNU ld and gold say, and what lld and mold say.
_UNDEFINED = re.compile(
    r"undefined reference to [`'](?P<gnu>[^\n]*)'$|undefined symbol: (?P<lld>[^\n]*)$", re.MULTILINE
)
# Said by a tool, at the end of its line, and not shown as a line of the source ("  12 | ...").
_DISK_FULL = re.compile(
    r"^(?! *\d* \|).*(?P<why>No space left on device|Disk quota exceeded)'?$", re.MULTILINE
)
# The kernel, short of memory, ends the largest process: a compiler.
_KILLED = re.compile(
    r"fatal error: Killed signal|\bKilled\b|out of memory|cannot allocate memory", re.I
)

# What one g++ takes at most for a file with PyTorch's headers.
_BYTES_PER_JOB = 3 << 29
_SECONDS_TO_STOP = 5


@dataclass(frozen=True)
class LeanSources:
    """Sources on ExecuTorch's lean tensors, compiled without PyTorch's headers and in C++17.

    Their objects do not depend on the library that they are part of: that of a PyTorch device and one
    for ExecuTorch's runtime share them.
    """

    sources: tuple[Path, ...]
    executorch: ExecutorchInstallation
    include_dirs: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class SharedLibrary:
    """A library to build: its name without ``lib``, sources, and where their headers lie.

    ``torch`` is None for a library that needs nothing of it; ``flags`` go to compiler and linker.
    ``executorch`` adds the headers of lean tensors to torch's, for the code that bridges the two; ``lean``
    are the sources that know lean tensors only.  ``python`` makes it an extension module of that Python;
    ``libraries`` are built ones that it calls.
    """

    name: str
    sources: tuple[Path, ...]
    include_dirs: tuple[Path, ...] = ()
    torch: TorchInstallation | None = None
    flags: tuple[str, ...] = ()
    executorch: ExecutorchInstallation | None = None
    lean: tuple[LeanSources, ...] = ()
    python: PythonInstallation | None = None
    libraries: tuple[Path, ...] = ()


@dataclass(frozen=True)
class _Object:
    """An object file: its source, what it is compiled with, and where it is kept."""

    source: Path
    flags: tuple[str, ...]
    path: Path


class Compilation:
    """The building of some libraries in one run of ninja."""

    def __init__(self, libraries: Sequence[SharedLibrary], compiler: Compiler, cache: Path) -> None:
        self._compiler = compiler
        self._cache = cache
        self._headers: dict[Path, tuple[bytes, tuple[str, ...]]] = {}
        self._libraries = [(library, self._objects(library)) for library in libraries]

    def outputs(self) -> list[Path]:
        """Where each library is, or will be."""
        return [self._library_path(library, objects) for library, objects in self._libraries]

    def objects(self) -> list[tuple[tuple[Path, Path], ...]]:
        """Of each library the sources, in the order in which it gives them, with their objects."""
        return [
            tuple((each.source, each.path) for each in objects) for _, objects in self._libraries
        ]

    def run(self, log: Path, report: Report) -> None:
        """Builds what the store lacks; ``log`` gets the tools' output.

        Raises :class:`CompilationFailed`, :class:`SymbolUndefined`, or
        :class:`~opsmith.errors.CacheUnusable`.
        """
        if self._is_built():
            return
        try:
            with self._lock(report):
                # Whoever held the lock may have built the same.
                if not self._is_built():
                    self._remove_partial()
                    with self._work_directory() as work:
                        self._run_ninja(work, log, report)
                    prune(self._cache)
        except OSError as error:
            raise unusable(self._cache, error.strerror or str(error)) from None

    def _is_built(self) -> bool:
        outputs = self.outputs()
        if not all(is_whole(path) for path in outputs):
            return False
        mark_used(*(path.parent for path in outputs))
        return True

    # ---- digests

    @cached_property
    def _generated(self) -> Path:
        return (self._cache / "generated").resolve()

    @cached_property
    def _common(self) -> str:
        return f"{self._compiler.identity} {' '.join(_FLAGS)}"

    def _objects(self, library: SharedLibrary) -> list[_Object]:
        """The object of each source; its digest names what its flags add to the package's own."""
        version = library.torch.version if library.torch else ""
        if library.python:
            version += f" {library.python}"
        objects = []
        for source in library.sources:
            own = " ".join((_standard(source), *library.flags))
            made_with = f"{version} {own}"
            path = self._object_path(source, library.include_dirs, made_with, library.executorch)
            objects.append(_Object(source, tuple(_compile_flags(source, library)), path))
        for lean in library.lean:
            own = " ".join((*_LEAN_FLAGS, *lean.flags))
            for source in lean.sources:
                path = self._object_path(source, lean.include_dirs, own, lean.executorch)
                objects.append(_Object(source, tuple(_lean_flags(lean)), path))
        return objects

    def _object_path(
        self,
        source: Path,
        include_dirs: Sequence[Path],
        made_with: str,
        executorch: ExecutorchInstallation | None,
    ) -> Path:
        digest = hashlib.sha256()
        digest.update(f"{self._common} {made_with}\n".encode())
        # Names count as well as contents: __FILE__ is part of error messages.
        waiting = [source.resolve()]
        seen = set(waiting)
        while waiting:
            path = waiting.pop()
            content, included = self._scanned(path)
            digest.update(f"{path.name} {len(content)}\n".encode())
            digest.update(content)
            # A source that does without ExecuTorch's headers is compiled once, whatever is installed.
            if any(name.startswith("executorch/") for name in included):
                digest.update(str(executorch).encode())
            headers = [_resolved(name, path, include_dirs) for name in included]
            for macro in _COMPUTED_INCLUDE.findall(content):
                if named := re.search(rf'-D{macro.decode()}="([^"]+)"', made_with):
                    headers.append(_resolved(named[1], path, include_dirs))
                elif not path.is_relative_to(
                    _PACKAGE
                ):  # ours ask for what flags define, and only that
                    headers += _every_header(path, include_dirs)
            for found in headers:
                if found is not None and found not in seen:
                    seen.add(found)
                    waiting.append(found)
        return self._cache / "objects" / f"{source.stem}-{digest.hexdigest()[:32]}.o"

    def _scanned(self, path: Path) -> tuple[bytes, tuple[str, ...]]:
        if path not in self._headers:
            content = path.read_bytes()
            if path.is_relative_to(self._generated):
                # Generated comments give places in manifests, which change when a line is added above them.
                content = _COMMENT_LINE.sub(rb"\1", content)
            names = tuple(name.decode() for name in _INCLUDE.findall(content))
            self._headers[path] = (content, names)
        return self._headers[path]

    def _library_path(self, library: SharedLibrary, objects: Sequence[_Object]) -> Path:
        names = (each.path.name for each in objects)
        text = "\n".join([library.name, *_link_flags(library), *names])
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        return self._cache / "libraries" / digest / f"lib{library.name}.so"

    # ---- ninja

    def _ninja(self) -> tuple[str, int]:
        """The build script, and of how many steps it consists."""
        from ninja import ninja_syntax

        text = io.StringIO()
        writer = ninja_syntax.Writer(text)  # type: ignore[arg-type]  # its stub says str, wrongly
        whole = "{ mv -f $out.partial $out || { rm -f $out.partial; false; }; }"
        for name, tool, verb in (
            ("compile", "-c $in", "compiling"),
            ("link", "-shared $in", "linking"),
        ):
            writer.rule(
                name,
                command=f"$compiler $flags {tool} -o $out.partial $libraries && {whole}",
                description=f"{verb} $shown",
            )
        steps = 0
        wanted: set[Path] = set()
        for library, objects in self._libraries:
            for each in objects:
                output = each.path
                if output not in wanted and is_whole(output):
                    mark_used(output)
                elif output not in wanted:
                    steps += 1
                    output.unlink(missing_ok=True)
                    variables = {
                        "compiler": _escaped(*self._compiler.command),
                        "flags": _escaped(*each.flags),
                        "shown": each.source.name,
                    }
                    source = [_path(each.source)]
                    writer.build([_path(output)], "compile", source, variables=variables)
                wanted.add(output)
            target_path = self._library_path(library, objects)
            if not is_whole(target_path):
                steps += 1
                target_path.unlink(missing_ok=True)
                writer.build(
                    [_path(target_path)],
                    "link",
                    [_path(each.path) for each in objects],
                    variables={
                        "compiler": _escaped(*self._compiler.command),
                        "flags": _escaped(*_symbol_flags(library), "-Wl,--gc-sections"),
                        "libraries": _escaped(*_link_flags(library)),
                        "shown": target_path.name,
                    },
                )
        return text.getvalue(), steps

    def _run_ninja(self, work: Path, log: Path, report: Report) -> None:
        text, steps = self._ninja()
        (work / "build.ninja").write_text(text)
        command = [str(ninja_binary()), "-C", str(work), "-j", str(_jobs())]
        # The compilers' own temporary files go with the directory, however they end.
        environment = {**os.environ, "NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C", "TMPDIR": str(work)}
        report(Progress(f"compiling with {self._compiler.command[0]}", 0, steps))
        output: list[str] = []
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                output.append(line)
                if step := _STATUS.match(line.rstrip()):
                    report(Progress(step["action"], int(step["done"]), int(step["total"])))
            failed = process.wait() != 0
        except BaseException:
            # Ctrl-C reaches only us: ninja is in a session of its own, and each compiler in a process
            # group of its own. So ninja is asked, and ends its compilers before itself.
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                process.wait(_SECONDS_TO_STOP)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._remove_partial()
            raise
        finally:
            process.stdout.close()
        if failed:
            self._remove_partial()
            raise self._failure("".join(output), log)

    def _remove_partial(self) -> None:
        for folder in ("objects", "libraries"):
            for path in (self._cache / folder).glob("**/*.partial"):
                path.unlink(missing_ok=True)

    def _failure(self, output: str, log: Path) -> BuildError:
        if full := _DISK_FULL.search(output):
            return unusable(self._cache, full["why"])
        write_whole(log, output.encode())
        undefined = list(dict.fromkeys(m["gnu"] or m["lld"] for m in _UNDEFINED.finditer(output)))
        if undefined:
            return SymbolUndefined(
                f"the sources do not define {', '.join(f'`{symbol}`' for symbol in undefined[:3])}"
                + (f" and {len(undefined) - 3} more" if len(undefined) > 3 else ""),
                symbols=undefined,
                remedy=f"define them, or add the file that does to `sources`; full log: {log}",
            )
        diagnostics = list(_DIAGNOSTIC.finditer(output))
        if not diagnostics:
            if killed := _KILLED.search(output):
                return CompilationFailed(
                    f"a compiler was ended, most likely for want of memory: {_line_of(killed)}",
                    remedy=f"build with fewer at a time: MAX_JOBS=1; full log: {log}",
                )
            last = output.strip().splitlines()[-8:]
            return CompilationFailed(
                "the compiler failed:\n  " + "\n  ".join(last), remedy=f"see {log}"
            )
        first = diagnostics[0]
        shown = "\n".join(
            f"  {Path(found['file']).name}:{found['line']}:{found['column']}: {found['message']}"
            for found in diagnostics[:3]
        )
        if len(diagnostics) > 3:
            shown += f"\n  and {len(diagnostics) - 3} more"
        return CompilationFailed(
            f"the compiler rejects it\n{shown}",
            location=Location(Path(first["file"]), int(first["line"]), int(first["column"])),
            remedy=f"mend the source; full log: {log}",
        )

    @contextmanager
    def _lock(self, report: Report) -> Iterator[None]:
        from filelock import FileLock, Timeout

        file = self._cache / "build.lock"
        # FileLock would wait for ever for a file that it may not open.
        file.open("a").close()
        lock = FileLock(file)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            report(Progress(f"waiting for another build, which holds {lock.lock_file}"))
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _work_directory(self) -> Iterator[Path]:
        folder = self._cache / "work"
        # The lock is ours, so what lies there is of a process that was killed.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _standard(source: Path) -> str:
    return _STANDARD.get(source.suffix, "-std=c++20")


def _compile_flags(source: Path, library: SharedLibrary) -> list[str]:
    language = ["-x", "c"] if source.suffix == ".c" else []
    flags = [*language, _standard(source), *_FLAGS, *library.flags]
    flags += [f"-ffile-prefix-map={_PACKAGE}=opsmith"]
    flags += [f"-I{folder}" for folder in library.include_dirs]
    if library.torch:
        for folder in library.torch.include_dirs:
            flags += ["-isystem", str(folder)]
    if library.executorch:
        # After torch's: what both have is then torch's.
        flags += ["-isystem", str(library.executorch.include_dir)]
    if library.python:
        flags += ["-isystem", str(library.python.include_dir)]
    return flags


def lean_flags() -> tuple[str, ...]:
    """The compiler's options for sources on lean tensors."""
    return (*_FLAGS, *_LEAN_FLAGS)


def lean_include_dirs(executorch: ExecutorchInstallation) -> tuple[Path, ...]:
    """Where the headers of lean tensors lie."""
    return executorch.include_dir, executorch.c10_include_dir


def _lean_flags(lean: LeanSources) -> list[str]:
    flags = [*lean_flags(), *lean.flags, f"-ffile-prefix-map={_PACKAGE}=opsmith"]
    flags += [f"-I{folder}" for folder in lean.include_dirs]
    for folder in lean_include_dirs(lean.executorch):
        flags += ["-isystem", str(folder)]
    return flags


def _symbol_flags(library: SharedLibrary) -> list[str]:
    # An extension module finds Python's own symbols in the process that loads it.
    return [] if library.python else ["-Wl,--no-undefined"]


def _link_flags(library: SharedLibrary) -> list[str]:
    flags = ["-pthread", "-ldl", *library.flags]
    if library.torch:
        folder = library.torch.library_dir
        flags += [f"-L{folder}", "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{folder}"]
        flags += ["-ltorch_python"] if library.python else []
    return [*flags, *map(str, library.libraries)]


def _resolved(name: str, includer: Path, include_dirs: Sequence[Path]) -> Path | None:
    """The header of ours that ``#include name`` means; None for the system's and torch's."""
    for folder in (includer.parent, *include_dirs):
        path = folder / name
        if path.is_file():
            return path.resolve()
    return None


def _every_header(includer: Path, include_dirs: Sequence[Path]) -> list[Path]:
    """All headers that a source could include from its own directory and the include directories."""
    folders = (includer.parent, *include_dirs)
    return [path.resolve() for folder in folders for path in sorted(folder.rglob("*.h*"))]


def _jobs() -> int:
    """How many compilers run at once: ``MAX_JOBS``, or as many as there are cores and memory for."""
    if (chosen := os.environ.get("MAX_JOBS", "")).isdigit():
        return max(1, int(chosen))
    cores = len(os.sched_getaffinity(0))
    available = re.search(r"^MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    return max(1, min(cores, int(available[1]) * 1024 // _BYTES_PER_JOB)) if available else cores


def _line_of(found: re.Match[str]) -> str:
    """The whole line in which something was found."""
    start = found.string.rfind("\n", 0, found.start()) + 1
    return found.string[start:].splitlines()[0]


def _path(path: Path) -> str:
    """A path for ninja's own syntax; its writer escapes spaces and colons, but not this."""
    return str(path).replace("$", "$$")


def _escaped(*arguments: str) -> str:
    """Arguments quoted for the shell and for ninja."""
    return " ".join(shlex.quote(argument) for argument in arguments).replace("$", "$$")
