"""Reads `triton` of ``backend.yaml``: Triton's backend for the device, for kernels and compiled graphs.

Whether Triton and the classes are there is not checked before a kernel or a graph is compiled.
"""

from __future__ import annotations

import os
import re

import msgspec

from opsmith.description.document import Document
from opsmith.description.model import Triton
from opsmith.errors import SyntaxInvalid

# A class: the module that has it, and its name in there.
_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_interpreted(triton: Triton | None) -> bool:
    """Whether Triton's interpreter runs its kernels, on the host: where no backend is named, or on demand."""
    return triton is None or os.environ.get("TRITON_INTERPRET") == "1"


class TritonKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`triton` as it is written; :class:`Triton` says what is meant."""

    backend: str
    scheduling: str | None = None
    wrapper: str | None = None
    cpp_wrapper: str | None = None
    device_ops: str | None = None


def triton(document: Document, inductor: str | None, raw: TritonKey | None) -> Triton | None:
    """The Triton support that ``raw`` describes; `inductor: triton` needs it.

    Raises :class:`SyntaxInvalid` where it is missing, and for names that cannot be one.
    """
    if raw is None and inductor == "triton":
        raise SyntaxInvalid(
            "`inductor: triton` needs to know Triton's backend for the device",
            location=document.locate("inductor"),
            remedy="name it, `triton: {backend: mychip}`, or leave out `inductor: triton`",
        )
    if raw is None:
        return None
    if not raw.backend.isidentifier():
        raise SyntaxInvalid(
            f"`{raw.backend}` is no name of a backend of Triton's, which is a package in triton.backends",
            location=document.locate("triton", "backend"),
            remedy="write the package's name, e.g. `backend: mychip`",
        )
    named = {key: each for key, each in msgspec.structs.asdict(raw).items() if each is not None}
    for key, each in named.items():
        if key != "backend" and not _CLASS.fullmatch(each):
            raise SyntaxInvalid(
                f"`{each}` names no class",
                location=document.locate("triton", key),
                remedy=f"write its module and its name, e.g. `{key}: mychip.inductor:Scheduling`",
            )
    return Triton(**named)
