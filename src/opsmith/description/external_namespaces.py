"""The namespaces of operators that a library implements and others define: a manifest's ``defined_by``.

Called by ``manifest``.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence

from opsmith.description.document import Document
from opsmith.description.model import ExternalNamespace
from opsmith.description.names import IDENTIFIER, obstacle_in_cpp
from opsmith.errors import SyntaxInvalid

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def read_external_namespaces(
    document: Document, given: Mapping[str, Sequence[str]]
) -> tuple[ExternalNamespace, ...]:
    """The namespaces that ``defined_by`` names.  Raises :class:`SyntaxInvalid` at the first mistake."""
    for namespace, modules in given.items():
        location = document.locate("defined_by", namespace)
        obstacle = "" if namespace == "aten" else obstacle_in_cpp(namespace, IDENTIFIER)
        if obstacle is not None:
            raise SyntaxInvalid(
                f"`{namespace}` is no namespace of custom operators{obstacle}",
                location=location,
                remedy="write `defined_by: {their_namespace: [python.module]}`",
            )
        for module in modules:
            if not _MODULE.fullmatch(module) or any(map(keyword.iskeyword, module.split("."))):
                raise SyntaxInvalid(
                    f"`{module}` cannot be the name of a Python module",
                    location=location,
                    remedy="name the modules whose import defines the operators, like "
                    "torch.ao.quantization.fx._decomposed",
                )
    return tuple(
        ExternalNamespace(namespace, tuple(modules), document.locate("defined_by", namespace))
        for namespace, modules in given.items()
    )
