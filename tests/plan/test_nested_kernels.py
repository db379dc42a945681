"""Which kernels on nested tensors are PyTorch's own; none takes the place of what a description says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from opsmith.description import read_backend
from opsmith.emit import emit
from opsmith.plan import Plan, resolve
from opsmith.schema import Catalogue

Describe = Callable[..., Path]


def planned(path: Path, catalogue: Catalogue) -> Plan:
    return resolve(read_backend(path, catalogue), catalogue)


def nested(plan: Plan) -> dict[str, str]:
    return {entry.name: entry.nested for entry in plan.entries if entry.nested}


def test_kernels_that_are_made_of_other_operators(describe: Describe, catalogue: Catalogue) -> None:
    keys = nested(planned(describe(), catalogue))
    assert not keys.keys() & {"sum.dim_IntList", "native_layer_norm"}
    assert keys["add.Tensor"] == "NestedTensorCPU"
    assert keys["_nested_from_padded"] == "CPU"


def test_a_kernel_of_the_description_stands(describe: Describe, catalogue: Catalogue) -> None:
    kernels = "- {op: _nested_from_padded, kernel_name: chip::from_padded}"
    assert "_nested_from_padded" not in nested(planned(describe(kernels), catalogue))


def test_what_is_denied_stays_so(describe: Describe, catalogue: Catalogue) -> None:
    plan = planned(describe(fallback="{deny: [_nested_from_padded]}"), catalogue)
    texts = "".join(file.text for file in emit(plan))
    # Once in its registration, once with the reason.
    assert texts.count('"_nested_from_padded"') == 2
