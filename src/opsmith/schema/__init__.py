"""Operators and groups as data: what ATen and a description declare, read through torchgen."""

from typing import TYPE_CHECKING

from opsmith.base.on_demand import on_demand

if TYPE_CHECKING:
    from opsmith.schema.catalogue import Catalogue, read_catalogue
    from opsmith.schema.counterparts import Declaration, with_operators
    from opsmith.schema.custom import parse_operator
    from opsmith.schema.declared import declarations_of, group_declared
    from opsmith.schema.derivatives import Differentiable, differentiable
    from opsmith.schema.gradient import gradient_operator, result_names
    from opsmith.schema.host_readers import HostReaders, read_host_readers
    from opsmith.schema.installed_torch import (
        KNOWN_RELEASES,
        compiled_for,
        requirement,
        torch_release,
        torch_version,
    )
    from opsmith.schema.operator import (
        GENERATED,
        Composite,
        Group,
        Operator,
        Result,
        Variant,
        qualified,
    )
    from opsmith.schema.parts import PartsMap, read_parts
    from opsmith.schema.recorded import RecordedFactsWarning, releases_with
    from opsmith.schema.stubs import Caller, Stub, StubMap, Unfit, read_stubs
    from opsmith.schema.words import CPP_WORDS, reserved_in_cpp

__all__ = [
    "CPP_WORDS",
    "GENERATED",
    "KNOWN_RELEASES",
    "Caller",
    "Catalogue",
    "Composite",
    "Declaration",
    "Differentiable",
    "Group",
    "HostReaders",
    "Operator",
    "PartsMap",
    "RecordedFactsWarning",
    "Result",
    "Stub",
    "StubMap",
    "Unfit",
    "Variant",
    "compiled_for",
    "declarations_of",
    "differentiable",
    "gradient_operator",
    "group_declared",
    "parse_operator",
    "qualified",
    "read_catalogue",
    "read_host_readers",
    "read_parts",
    "read_stubs",
    "releases_with",
    "requirement",
    "reserved_in_cpp",
    "result_names",
    "torch_release",
    "torch_version",
    "with_operators",
]

__getattr__ = on_demand(
    __name__,
    {
        "catalogue": "read_catalogue Catalogue",
        "counterparts": "with_operators Declaration",
        "custom": "parse_operator",
        "declared": "declarations_of group_declared",
        "derivatives": "differentiable Differentiable",
        "gradient": "gradient_operator result_names",
        "host_readers": "read_host_readers HostReaders",
        "operator": "qualified Composite Group GENERATED Operator Result Variant",
        "parts": "read_parts PartsMap",
        "recorded": "releases_with RecordedFactsWarning",
        "stubs": "read_stubs Caller Stub StubMap Unfit",
        "installed_torch": "compiled_for requirement torch_release torch_version KNOWN_RELEASES",
        "words": "reserved_in_cpp CPP_WORDS",
    },
)
