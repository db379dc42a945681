"""Reads a manifest with ``abi: triton``: operators whose kernels are a Python module's, in Triton.

The module is named and not imported: whether it has what an entry says is found when the operator is first
called.  Called by ``manifest``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from opsmith.description.document import Document, Step
from opsmith.description.entries import FunctionEntry, FunctionManifest, library_of_functions
from opsmith.description.launch_expressions import obstacle_in_expression
from opsmith.description.model import Library, TritonForm, TritonLaunch
from opsmith.description.names import check_library_name
from opsmith.description.python_driver import python_source
from opsmith.errors import KernelRejected, SyntaxInvalid
from opsmith.schema import Catalogue, Operator, Variant

_Option = bool | int | float | str


class _Kernel(FunctionEntry):
    launcher: str = ""
    function: str = ""
    elements: str = ""
    arguments: dict[str, str | int] = msgspec.field(default_factory=dict)
    grid: list[str | int] = msgspec.field(default_factory=list)
    options: dict[str, _Option] = msgspec.field(default_factory=dict)


class _Manifest(FunctionManifest):
    kernels: list[_Kernel]
    abi: Literal["triton"] = "triton"


def read_triton_manifest(document: Document, catalogue: Catalogue | None) -> Library:
    """The library of a manifest of Triton's kernels.

    Raises a :class:`~opsmith.errors.DescriptionError` at the place of the first mistake.
    """
    raw = document.convert(_Manifest)
    check_library_name(raw.library, document.locate("library"))
    module = python_source(raw.module, document.path.parent, document.locate("module"))

    def launch(index: int, name: str) -> TritonLaunch:
        entry = raw.kernels[index]
        form = _form(document, index, entry)
        operator = catalogue.operators[name] if catalogue is not None else None
        _check_form(document, index, entry, form, operator)
        return TritonLaunch(
            module=str(module),
            name=getattr(entry, form.value),
            form=form,
            arguments=tuple((key, str(value)) for key, value in entry.arguments.items()),
            grid=tuple(map(str, entry.grid)),
            options=tuple(entry.options.items()),
        )

    return library_of_functions(document, catalogue, raw, module, launch)


def _form(document: Document, index: int, entry: _Kernel) -> TritonForm:
    given = [form for form in TritonForm if getattr(entry, form.value)]
    if len(given) != 1:
        raise SyntaxInvalid(
            "an entry names a Python function that launches (`launcher`), a function of Triton's on pointers "
            "(`function`) or one of elements (`elements`), and exactly one of them",
            location=document.locate("kernels", index),
            remedy=f"write `launcher: {entry.launcher or 'my_softmax'}`, or another of the three",
        )
    (form,) = given
    name = getattr(entry, form.value)
    if not name.isidentifier():
        raise SyntaxInvalid(
            f"`{name}` is not the name of a function in Python",
            location=document.locate("kernels", index, form.value),
            remedy="name it without its module, which the key `module` names for all entries",
        )
    return form


def _check_form(
    document: Document,
    index: int,
    entry: _Kernel,
    form: TritonForm,
    operator: Operator | None,
) -> None:
    if form is not TritonForm.LAUNCHER and operator and operator.variant is not Variant.OUT:
        raise KernelRejected(
            f"`{form.value}` writes its result to `out`, and `{operator.name}` has none",
            location=document.locate("kernels", index, "op"),
            remedy="name the operator's out variant, from which the others are derived, or a `launcher`",
        )
    for key in ("arguments", "grid"):
        if getattr(entry, key) and form is not TritonForm.FUNCTION:
            raise SyntaxInvalid(
                f"`{key}` is how a function on pointers is launched; {form.value} needs none",
                location=document.locate("kernels", index, key),
                remedy=f"remove `{key}`, or name the function with `function`",
            )
    if form is TritonForm.LAUNCHER and entry.options:
        raise SyntaxInvalid(
            "`options` are passed to a function of Triton's; a launcher passes its own",
            location=document.locate("kernels", index, "options"),
            remedy="remove `options`",
        )
    if form is TritonForm.FUNCTION and not 1 <= len(entry.grid) <= 3:
        raise SyntaxInvalid(
            "a function on pointers is launched over a grid of one to three axes",
            location=document.locate("kernels", index, "grid"),
            remedy="write the programs along each, such as `grid: ['cdiv(numel(out), BLOCK)']`",
        )
    names = None if operator is None else _names(operator, entry)
    _check_expressions(document, ("kernels", index, "arguments"), entry.arguments, names)
    _check_expressions(document, ("kernels", index, "grid"), dict(enumerate(entry.grid)), names)


def _check_expressions(
    document: Document,
    steps: Sequence[Step],
    given: Mapping[str, str | int] | Mapping[int, str | int],
    names: Collection[str] | None,
) -> None:
    for key, value in given.items():
        if obstacle := obstacle_in_expression(str(value), names):
            raise SyntaxInvalid(
                f"`{value}` is no expression of ints: {obstacle}",
                location=document.locate(*steps, key),
                remedy="write one like `cdiv(numel(out), BLOCK)`; docs/kernels/compilers.md says what it "
                "may have",
            )


def _names(operator: Operator, entry: _Kernel) -> Sequence[str]:
    """The names that an expression may have: the operator's arguments and the integers among the options."""
    from opsmith.description.python_kernel import parameters_of

    integers = [key for key, value in entry.options.items() if type(value) is int]
    return [*parameters_of(operator.schema).names, *integers]
