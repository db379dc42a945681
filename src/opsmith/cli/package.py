"""``opsmith package``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from opsmith.cli.console import Json, err, many, out, print_json, shown_progress
from opsmith.cli.options import BackendArgument, NamedBackend, flag, written_to
from opsmith.description import find_backend
from opsmith.vendor.package.packaging import Packaged, Wanted
from opsmith.vendor.package.packaging import package as packaged_of


def package(
    backend: BackendArgument = "",
    named: NamedBackend = "",
    output: Annotated[Path, written_to("The folder for the wheel.")] = Path("dist"),
    python: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROGRAM",
            help="The Python of another environment, with this opsmith and another torch: the wheel "
            "is for that torch too. May be given several times.",
        ),
    ] = None,
    torch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RELEASES",
            help="The releases of torch that the wheel is for, such as 2.13,2.14, where not those of the "
            "environments. One that no environment has is fetched by pip, without what it requires.",
        ),
    ] = None,
    sources: Annotated[
        bool,
        typer.Option(
            "--sources/--no-sources", help="Carry the kernels' and the driver's sources too."
        ),
    ] = True,
    python_kernels: Annotated[
        bool | None,
        typer.Option(
            "--python-kernels/--no-python-kernels",
            help="Carry what calls kernels in Python.",
            show_default="where the package's modules register any",
        ),
    ] = None,
    runtime: Annotated[
        bool,
        flag(
            "--runtime",
            "Make opsmith-runtime instead: objects of opsmith's own that first builds then link.",
        ),
    ] = False,
    version: Annotated[
        str, typer.Option(help="The wheel's version.", show_default="pyproject.toml's, or 0.0.0")
    ] = "",
    json: Json = False,
) -> None:
    """Make a wheel of a backend with its built libraries, which is used without a compiler."""
    if runtime:
        _package_runtime(output, _releases(torch or ()), json)
        return
    wanted = Wanted(
        output, tuple(python or ()), _releases(torch or ()), sources, python_kernels, version
    )
    with shown_progress() as progress:
        made = packaged_of(find_backend(backend), wanted, progress)
    for note in made.notes:
        err.print(f"note: {note}", highlight=False, soft_wrap=True, markup=False)
    if json:
        print_json(_as_json(made, sources))
        return
    contents = made.contents
    rows = {
        "wheel": f"{made.wheel}, {made.size / (1 << 20):.1f} MiB",
        "for": ", ".join(f"torch {each.torch} on {each.machine}" for each in contents.builds),
        "sources": f"{many(len(made.sources), 'file')}; --no-sources leaves them out"
        if sources
        else "left out",
        "install": f"pip install {made.wheel}",
    }
    for name, text in rows.items():
        out.print(f"{name:<8} {text}", highlight=False, soft_wrap=True, markup=False)


def _package_runtime(output: Path, torch: tuple[str, ...], json: bool) -> None:
    from opsmith.vendor.package.runtime_wheel import package_runtime

    with shown_progress() as progress:
        wheel, releases = package_runtime(output, torch, progress)
    if json:
        print_json({"wheel": str(wheel), "torch": list(releases)})
        return
    rows = {
        "wheel": f"{wheel}, {wheel.stat().st_size / (1 << 20):.1f} MiB",
        "for": ", ".join(f"torch {each}" for each in releases),
        "install": f"pip install {wheel}",
    }
    for name, text in rows.items():
        out.print(f"{name:<8} {text}", highlight=False, soft_wrap=True, markup=False)


def _releases(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(each.strip() for text in given for each in text.split(",") if each.strip())


def _as_json(made: Packaged, sources: bool) -> dict[str, object]:
    return {
        "wheel": str(made.wheel),
        "distribution": made.contents.distribution,
        "backend": made.contents.backend,
        "tag": made.tag.tag,
        "torch": [each.torch for each in made.contents.builds],
        "sources": list(made.sources) if sources else [],
        "notes": list(made.notes),
    }
