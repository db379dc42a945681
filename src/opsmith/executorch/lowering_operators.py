"""Operators of the kernel libraries that come with opsmith, as a graph needs them while it is lowered.

ExecuTorch's passes ask an operator for its schema and for the shape of its result, and PyTorch knows those of
a backend once that is loaded.  Where it is not, they are defined here, so that nothing has to be built for
it.  ExecuTorch keeps what it has found of an operator, so they stay until the process ends; a backend that is
loaded later adds its kernels to them.  Called by ``export``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from opsmith.schema import Catalogue

OfResult = Callable[..., Any]

_libraries: list[torch.library.Library] = []


def define_for_lowering(
    namespace: str, results: Mapping[str, OfResult], catalogue: Catalogue
) -> None:
    """Has PyTorch know ``results``' operators of ``namespace``, each with its out variant.

    ``results`` has, by the functional operator's name, the function that makes an empty result of its
    arguments.
    """
    known = getattr(torch.ops, namespace)
    library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    _libraries.append(library)
    for name, of_result in results.items():
        packet, _, overload = name.partition(".")
        if hasattr(known, packet) and (overload or "default") in getattr(known, packet).overloads():
            continue
        functional = f"{namespace}::{name}"
        out = f"{functional}_out" if overload else f"{functional}.out"
        for each in (functional, out):
            library.define(catalogue.operators[each].schema)  # type: ignore[no-untyped-call]
        torch.library.register_fake(functional, of_result, lib=library)
