"""Reads `autocast` of ``backend.yaml``: its dtypes, and what it changes of PyTorch's lists of operators.

Whether an operator can be cast is the plan's business, not checked here.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from opsmith.description.document import Document
from opsmith.description.model import Autocast, NamedOperator, Precision
from opsmith.description.names import operator_name
from opsmith.errors import SyntaxInvalid
from opsmith.schema import Catalogue


class AutocastKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`autocast` as it is written: dtypes, and a list of operators for each :class:`Precision`."""

    dtypes: tuple[Literal["Half", "BFloat16"], ...] = ("Half", "BFloat16")
    lower_precision: tuple[str, ...] = ()
    float32: tuple[str, ...] = ()
    widest: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()


def autocast(document: Document, raw: AutocastKey, catalogue: Catalogue | None) -> Autocast:
    """The autocast settings that ``raw`` describes.

    Raises :class:`SyntaxInvalid` where nothing is left to cast to, and for an operator or a dtype that stands
    there twice, :class:`OperatorUnknown` for one that ``catalogue``, if given, lacks.
    """
    if not raw.dtypes:
        raise SyntaxInvalid(
            "`dtypes` is empty: autocast has nothing to cast to",
            location=document.locate("autocast", "dtypes"),
            remedy="name Half, BFloat16 or both, the default first",
        )
    if len(set(raw.dtypes)) < len(raw.dtypes):
        raise SyntaxInvalid(
            f"`{raw.dtypes[-1]}` stands twice in `dtypes`",
            location=document.locate("autocast", "dtypes", len(raw.dtypes) - 1),
            remedy="name each dtype once, the default first",
        )
    found: dict[str, tuple[NamedOperator, Precision]] = {}
    for precision in Precision:
        for index, text in enumerate(getattr(raw, precision.value)):
            place = document.locate("autocast", precision.value, index)
            name = operator_name(text, place, catalogue)
            if name in found:
                earlier, list_ = found[name]
                raise SyntaxInvalid(
                    f"`{name}` stands in `{list_.value}` ({earlier.location}) too",
                    location=place,
                    remedy="name an operator in one list, once",
                )
            found[name] = NamedOperator(name, place), precision
    return Autocast(raw.dtypes, tuple(found.values()))
