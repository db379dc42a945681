"""Reads a kernel library from a file in any of the formats that hold one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from opsmith.description.document import Document, read_document
from opsmith.description.formats.executorch import ExecutorchHeader, read_executorch_entries
from opsmith.description.formats.flag_gems import FLAG_GEMS, read_flag_gems
from opsmith.description.formats.known import YamlFormat, format_of
from opsmith.description.manifest import read_manifest
from opsmith.description.model import Abi, Execution, Library
from opsmith.description.names import LIBRARY
from opsmith.errors import FormatUnknown
from opsmith.schema import Catalogue


def read_library(
    path: Path,
    catalogue: Catalogue | None,
    read: Callable[[Path], Document] = read_document,
) -> Library:
    """The kernel library described by the file ``path``; raises like :func:`read_backend`.

    The file is a manifest, has one of the formats of others, or is FlagGems' module with its table.
    """
    if path.suffix == ".py" and path.parent.name == FLAG_GEMS:
        return read_flag_gems(path, catalogue)
    return read_document_as_library(read(path), catalogue)


def read_document_as_library(
    document: Document, catalogue: Catalogue | None, keep_faults: bool = False
) -> Library:
    """The kernel library that ``document`` describes.

    With ``keep_faults``, mistakes in entries of others' formats are among its ``unserved``.
    """
    kind = format_of(document)
    if kind in _OTHERS:
        return _OTHERS[kind](document, catalogue, keep_faults)
    return _OWN[kind](document, catalogue)


def _read_backend_as_library(document: Document, catalogue: Catalogue | None) -> Library:
    raise FormatUnknown(
        "this is a backend of opsmith, and a kernel library is wanted",
        location=document.locate(),
        remedy="name the manifests that it lists under `libraries`",
    )


def _read_torchgen(document: Document, catalogue: Catalogue | None, keep_faults: bool) -> Library:
    from opsmith.description.formats.torchgen import read_torchgen_yaml  # few backends have one

    return read_torchgen_yaml(document, catalogue, keep_faults)


def _read_op_plugin(document: Document, catalogue: Catalogue | None, keep_faults: bool) -> Library:
    from opsmith.description.formats.op_plugin import read_op_plugin_yaml  # few backends have one

    return read_op_plugin_yaml(document, catalogue, keep_faults)


def _read_executorch(document: Document, catalogue: Catalogue | None, keep_faults: bool) -> Library:
    # The file has no name for what it holds, but its own.
    name = re.sub(r"[^\w.-]", "_", document.path.stem, flags=re.ASCII)
    name = name if LIBRARY.fullmatch(name) else f"_{name}"
    header = ExecutorchHeader(name, keep_faults=keep_faults)
    read = read_executorch_entries(document, header, catalogue)
    return Library(
        name=name,
        location=document.locate(),
        abi=Abi.EXECUTORCH,
        execution=Execution.HOST,
        kernels=read.kernels,
        executorch=read.operators,
        operators=read.declared,
        unserved=read.unserved,
    )


_OWN: Mapping[YamlFormat, Callable[[Document, Catalogue | None], Library]] = {
    YamlFormat.BACKEND: _read_backend_as_library,
    YamlFormat.MANIFEST: read_manifest,
}
_OTHERS: Mapping[YamlFormat, Callable[[Document, Catalogue | None, bool], Library]] = {
    YamlFormat.TORCHGEN: _read_torchgen,
    YamlFormat.OP_PLUGIN: _read_op_plugin,
    YamlFormat.EXECUTORCH: _read_executorch,
}
