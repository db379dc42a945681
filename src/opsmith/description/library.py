"""Reads a kernel library from a file in any of the formats that hold one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from opsmith.description.document import Document, read_document
from opsmith.description.formats.executorch import ExecutorchHeader, read_executorch_entries
from opsmith.description.formats.known import YamlFormat, format_of
from opsmith.description.formats.torchgen import read_torchgen_yaml
from opsmith.description.manifest import read_manifest
from opsmith.description.model import Abi, Execution, Library
from opsmith.description.names import LIBRARY
from opsmith.errors import FormatUnknown
from opsmith.schema import Catalogue


def read_library(path: Path, catalogue: Catalogue | None) -> Library:
    """The kernel library described by the file ``path``; raises like :func:`read_backend`.

    The file is a manifest, a backend YAML of torchgen, or ExecuTorch's functions.yaml or custom_ops.yaml.
    """
    return read_document_as_library(read_document(path), catalogue)


def read_document_as_library(document: Document, catalogue: Catalogue | None) -> Library:
    """The kernel library that ``document`` describes."""
    return _READERS[format_of(document)](document, catalogue)


def _read_backend_as_library(document: Document, catalogue: Catalogue | None) -> Library:
    raise FormatUnknown(
        "this is a backend of opsmith, and a kernel library is wanted",
        location=document.locate(),
        remedy="name the manifests that it lists under `libraries`",
    )


def _read_executorch(document: Document, catalogue: Catalogue | None) -> Library:
    # The file has no name for what it holds, but its own.
    name = re.sub(r"[^\w.-]", "_", document.path.stem, flags=re.ASCII)
    name = name if LIBRARY.fullmatch(name) else f"_{name}"
    read = read_executorch_entries(document, ExecutorchHeader(name), catalogue)
    return Library(
        name=name,
        location=document.locate(),
        abi=Abi.EXECUTORCH,
        execution=Execution.HOST,
        kernels=read.kernels,
        executorch=read.operators,
        operators=read.declared,
    )


_READERS: Mapping[YamlFormat, Callable[[Document, Catalogue | None], Library]] = {
    YamlFormat.BACKEND: _read_backend_as_library,
    YamlFormat.MANIFEST: read_manifest,
    YamlFormat.TORCHGEN: read_torchgen_yaml,
    YamlFormat.EXECUTORCH: _read_executorch,
}
