"""plan → C++ text."""

from opsmith.emit.pytorch import EmittedFile, class_name, declaration, emit

__all__ = ["EmittedFile", "class_name", "declaration", "emit"]
