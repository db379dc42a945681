"""Operators of the kernel libraries that come with opsmith, as a graph needs them while it is lowered.

ExecuTorch's passes ask an operator for its schema and for the shape of its result, and PyTorch knows those of
a backend once that is loaded.  Where it is not, they are defined for as long as the lowering takes, so that
nothing has to be built for it, and a backend may be loaded afterwards.  Called by ``export``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from opsmith.schema import Catalogue

OfResult = Callable[..., Any]


@contextmanager
def defined_for_lowering(
    namespace: str, results: Mapping[str, OfResult], catalogue: Catalogue
) -> Iterator[None]:
    """Has PyTorch know ``results``' operators of ``namespace``, each with its out variant.

    ``results`` has, by the functional operator's name, the function that makes an empty result of its
    arguments.
    """
    known = getattr(torch.ops, namespace)
    with torch.library._scoped_library(namespace, "FRAGMENT") as library:
        for name, of_result in results.items():
            packet, _, overload = name.partition(".")
            if (
                hasattr(known, packet)
                and (overload or "default") in known.__getattr__(packet).overloads()
            ):
                continue
            functional = f"{namespace}::{name}"
            out = f"{functional}_out" if overload else f"{functional}.out"
            for each in (functional, out):
                library.define(catalogue.operators[each].schema)
            torch.library.register_fake(functional, of_result, lib=library)
        try:
            yield
        finally:
            _forget(namespace)


def _forget(namespace: str) -> None:
    """Drops ExecuTorch's wrappers of the namespace's operators, which would outlive those."""
    from executorch.exir.dialects._ops import ops

    vars(ops.edge).pop(namespace, None)
