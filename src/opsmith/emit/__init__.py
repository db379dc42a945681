"""plan → C++ text."""

from opsmith.emit.custom import meta_declaration
from opsmith.emit.pytorch import EmittedFile, declaration, emit
from opsmith.emit.text import class_name

__all__ = ["EmittedFile", "class_name", "declaration", "emit", "meta_declaration"]
