"""C++ sources → shared libraries, through ninja and a content-addressed store.

Each output is made as :mod:`opsmith.build.stored` says: interrupted or failed builds leave the store
sound, and two that run side by side compile nothing twice.
Knows nothing of operators or descriptions.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

from opsmith.base.cache_folder import make_folder, mark_used, replace_file
from opsmith.build.cache import discard_untrusted, is_usable, prune, unusable
from opsmith.build.complaints import failure
from opsmith.build.flags import link_flags, symbol_flags
from opsmith.build.ninja import Step, run_script, write_script
from opsmith.build.objects import LEAN_PRELUDE, Object, Objects, Prelude
from opsmith.build.places import places_in
from opsmith.build.progress import OnProgress, Progress
from opsmith.build.shared_library import SharedLibrary
from opsmith.build.stored import is_being_made, seal_of
from opsmith.build.toolchain import Compiler
from opsmith.build.units import Unit
from opsmith.build.work import work_directory

# A precompiled header takes as long as two or three sources without it.
_LEAST_FOR_PRELUDE = 4


class Compilation:
    """The building of some libraries in one run of ninja, or of their objects alone."""

    def __init__(
        self,
        libraries: Sequence[SharedLibrary],
        compiler: Compiler,
        cache: Path,
        *,
        only_objects: bool = False,
    ) -> None:
        self._compiler = compiler
        self._cache = cache
        self._objects = Objects(compiler, cache)
        self._libraries = [(library, self._objects.of(library)) for library in libraries]
        self._linked_libraries = [] if only_objects else self._libraries

    def outputs(self) -> list[Path]:
        """Where each library is, or will be."""
        return [
            self._objects.library_path(library, objects)
            for library, objects in self._linked_libraries
        ]

    def named_objects(self) -> dict[str, Path]:
        """All objects, by the names that they have whichever compiler makes them."""
        return {each.name: each.path for _, objects in self._libraries for each in objects}

    def objects(self) -> list[tuple[tuple[Path, Path], ...]]:
        """Of each library the sources, in the order in which it gives them, with their objects."""
        return [
            tuple((source, each.path) for each in objects for source in each.unit.sources)
            for _, objects in self._libraries
        ]

    def run(self, log: Path, report: OnProgress) -> None:
        """Builds what the store lacks; ``log`` gets the tools' output.

        Raises :class:`CompilationFailed`, :class:`SymbolUndefined`, or
        :class:`~opsmith.errors.CacheUnusable`.
        """
        if self._is_built():
            return
        try:
            with work_directory(self._cache) as work:
                self._make(work, log, report)
            prune(self._cache)
        except OSError as error:
            raise unusable(self._cache, error.strerror or str(error)) from None

    def _is_built(self) -> bool:
        outputs = self.outputs()
        if not outputs or not all(map(self._is_usable, outputs)):
            return False
        mark_used(*(path.parent for path in outputs))
        # Who asked for it may look into its objects.
        for each in (each for _, objects in self._libraries for each in objects):
            mark_used(each.path, seal_of(each.path))
        return True

    def _steps(self, work: Path) -> list[Step]:
        """The steps that are left to do, a library after its objects."""
        missing: dict[Path, Object] = {}
        known: set[Path] = set()
        for each in (each for _, objects in self._libraries for each in objects):
            if each.path in known:
                continue
            known.add(each.path)
            if self._is_usable(each.path):
                mark_used(each.path, seal_of(each.path))
            else:
                missing[each.path] = each
        # A user's own first: that is where a mistake is. Then what takes long, so that no core waits for it.
        ordered = sorted(
            missing.values(),
            key=lambda each: (
                not self._objects.is_own(each.unit),
                each.prelude is LEAN_PRELUDE,
                -_size_of(each.unit),
            ),
        )
        preludes = self._preludes(ordered, work)
        steps = {step.path: step for step in preludes.values() if not step.path.exists()}
        for each in ordered:
            prelude = preludes.get((each.prelude, each.prelude_flags))
            steps[each.path] = self._compiled(each, work, prelude, steps)
        # Two libraries of the same name and objects are one step.
        targets = {
            self._objects.library_path(library, objects): (library, objects)
            for library, objects in self._linked_libraries
        }
        made = {*missing, *(target for target in targets if not self._is_usable(target))}
        for target, (library, objects) in targets.items():
            if target in made:
                steps[target] = self._linked(library, objects, target, made, work)
        return list(steps.values())

    @property
    def _hidden_folders(self) -> list[Path]:
        """The folders whose place nothing that is made may show: descriptions' that become packages."""
        found = {lib.relocatable.description for lib, _ in self._libraries if lib.relocatable}
        return sorted(found)

    @property
    def _place_flags(self) -> list[str]:
        """The flags that keep places out of messages and debug information: objects are for every place."""
        # gcc takes the last that fits: the cache may lie in the description's folder.
        return [
            *(f"-ffile-prefix-map={folder}=." for folder in self._hidden_folders),
            f"-ffile-prefix-map={self._cache}=cache",
        ]

    def _is_usable(self, path: Path) -> bool:
        """Whether ``path`` is made; of what is to be relocatable, without a word of where that was."""
        if not is_usable(path):
            discard_untrusted(path)
            return False
        hidden = self._hidden_folders
        if hidden and places_in(path.read_bytes(), hidden):
            # Made by an earlier opsmith, or for use at home.
            seal_of(path).unlink(missing_ok=True)
            return False
        return True

    def _compiled(
        self, each: Object, work: Path, prelude: Step | None, steps: Container[Path]
    ) -> Step:
        partial = work / f"{each.path.name}.partial"
        command = [*self._compiler.command, *self._place_flags, *each.flags]
        command += self._compiler.memory_flags
        command += ["-include", str(prelude.path.with_suffix(""))] if prelude else []
        command += ["-c", str(_written(each, work)), "-o", str(partial)]
        after = (prelude.path,) if prelude and prelude.path in steps else ()
        return Step("compile", each.unit.name, each.path, partial, command, after)

    def _preludes(
        self, missing: Iterable[Object], work: Path
    ) -> Mapping[tuple[Prelude | None, tuple[str, ...]], Step]:
        """The step that compiles a prelude ahead, by it and its flags, where it pays; or has done so already.

        Those of PyTorch stay in the cache, 300 MB each, since half of each later build's time goes into
        them; those of lean tensors are for this build alone.  A compiler that cannot do so reads the headers
        themselves.
        """
        if not self._compiler.precompiles:
            return {}
        often = Counter((each.prelude, each.prelude_flags) for each in missing if each.prelude)
        preludes: dict[tuple[Prelude | None, tuple[str, ...]], Step] = {}
        for (prelude, flags), count in often.items():
            text = f"{self._compiler.identity} {' '.join(flags)}\n{prelude.text}"
            name = hashlib.sha256(os.fsencode(text)).hexdigest()[:32]
            folder = self._cache / "preludes" if prelude.is_kept else work
            header = folder / f"{name}.h"
            path = header.with_name(f"{header.name}.gch")
            discard_untrusted(path)
            if count < _LEAST_FOR_PRELUDE and not path.exists():
                continue
            if header.exists():
                mark_used(header, path)
            else:
                replace_file(header, prelude.text.encode())
            partial = work / f"{path.name}.partial"
            command = [*self._compiler.command, *flags, "-x", "c++-header", str(header)]
            shown = f"the headers of {prelude.name}"
            step = Step("prelude", shown, path, partial, [*command, "-o", str(partial)])
            preludes[prelude, flags] = step
        return preludes

    def _linked(
        self,
        library: SharedLibrary,
        objects: Sequence[Object],
        target: Path,
        made: Container[Path],
        work: Path,
    ) -> Step:
        inputs = [each.path for each in objects]
        linked = [*inputs, *([library.driver] if library.driver else [])]
        partial = work / f"{target.parent.name}-{target.name}.partial"
        command = [*self._compiler.command, *symbol_flags(library), "-Wl,--gc-sections", "-shared"]
        command += [*map(str, inputs), "-o", str(partial), *link_flags(library)]
        if any(flag.startswith("-fsanitize=") for flag in library.own_link_flags):
            command += self._compiler.sanitizer_flags
        after = tuple(path for path in linked if path in made)
        return Step("link", target.name, target, partial, command, after)

    def _make(self, work: Path, log: Path, report: OnProgress) -> None:
        steps = self._steps(work)
        for step in steps:
            make_folder(step.path.parent)
        write_script(steps, work, self._cache)
        if waited_for := sum(is_being_made(step.path, self._cache) for step in steps):
            report(Progress(f"another build makes {waited_for} of the files, and is waited for"))
        report(Progress(f"compiling with {self._compiler.command[0]}", 0, len(steps)))
        if (said := run_script(work, report)) is not None:
            raise failure(said, self._cache, log)


def _written(each: Object, work: Path) -> Path:
    """The file that the compiler is given: the unit's source, or one that includes all of them."""
    if len(each.unit.sources) == 1:
        return each.unit.sources[0]
    path = work / each.path.with_suffix(".cpp").name
    path.write_bytes(b"".join(b'#include "%b"\n' % os.fsencode(s) for s in each.unit.sources))
    return path


def _size_of(unit: Unit) -> int:
    return sum(source.stat().st_size for source in unit.sources)
