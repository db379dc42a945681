"""Which of the known formats a YAML file has, told by its keys and never by its name.

Called by ``library`` and ``imported``; the formats themselves are read elsewhere.
"""

from __future__ import annotations

from enum import Enum

from opsmith.description.document import Document
from opsmith.errors import FormatUnknown


class YamlFormat(Enum):
    """The kind of a YAML file, in words."""

    BACKEND = "a backend of opsmith"
    MANIFEST = "a manifest of opsmith"
    TORCHGEN = "a backend YAML of torchgen"
    OP_PLUGIN = "an op_plugin_functions.yaml of Ascend"
    EXECUTORCH = "a functions.yaml of ExecuTorch"


def format_of(document: Document) -> YamlFormat:
    """The format of ``document``.

    Raises :class:`FormatUnknown` for a file that has none of the formats' keys.
    """
    data = document.data
    if isinstance(data, list):
        if not data or any(
            isinstance(entry, dict) and {"op", "func"} & entry.keys() for entry in data
        ):
            return YamlFormat.EXECUTORCH
    elif isinstance(data, dict):
        # A key misspelt must not turn one format into another: any of its own keys tells it.
        for kind, keys in _OWN_KEYS.items():
            if keys & data.keys():
                return kind
    raise FormatUnknown(
        "this is no description of kernels in a format that opsmith reads",
        location=document.locate(),
        remedy="write a manifest of opsmith (`library`, `kernels`), a backend YAML of torchgen "
        "(`backend`, `cpp_namespace`, `supported`), Ascend's op_plugin_functions.yaml (`all_version`, "
        "`official`), or ExecuTorch's functions.yaml or custom_ops.yaml (a list of entries with `op` or "
        "`func`, and `kernels`)",
    )


_OWN_KEYS = {
    YamlFormat.TORCHGEN: frozenset(
        "cpp_namespace supported full_codegen ir_gen non_native use_out_as_primary".split()
    ),
    YamlFormat.OP_PLUGIN: frozenset("all_version official".split()),
    YamlFormat.MANIFEST: frozenset("library kernels abi sources type_alias".split()),
    YamlFormat.BACKEND: frozenset("backend driver libraries fallback".split()),
}
