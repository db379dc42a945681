"""plan → C++ text."""

from opsmith.emit.custom import meta_declaration
from opsmith.emit.pytorch import EmittedFile, declaration, emit
from opsmith.emit.structured_metas import emit_structured_metas
from opsmith.emit.text import class_name

__all__ = [
    "EmittedFile",
    "class_name",
    "declaration",
    "emit",
    "emit_structured_metas",
    "meta_declaration",
]
