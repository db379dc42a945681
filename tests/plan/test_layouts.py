"""How tensors that are not strided are served; nothing takes the place of what a description says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opsmith.description import read_backend
from opsmith.emit import emit
from opsmith.plan import Plan, Route, resolve
from opsmith.schema import Catalogue

Describe = Callable[..., Path]


def planned(path: Path, catalogue: Catalogue) -> Plan:
    return resolve(read_backend(path, catalogue), catalogue)


def layouts(plan: Plan) -> dict[str, dict[str, Route]]:
    return {
        entry.name: {each.key: each.route for each in entry.other_layouts}
        for entry in plan.entries
        if entry.other_layouts
    }


def test_kernels_that_are_made_of_other_operators(describe: Describe, catalogue: Catalogue) -> None:
    found = layouts(planned(describe(), catalogue))
    assert found["sum.dim_IntList"]["NestedTensorCPU"] is Route.FALLBACK
    assert found["native_layer_norm"] == {"NestedTensorCPU": Route.FALLBACK}
    assert found["mul.Tensor"] == {
        "NestedTensorCPU": Route.COMPOSITE,
        "SparseCPU": Route.COMPOSITE,
        "SparseCsrCPU": Route.COMPOSITE,
    }
    assert found["_nested_from_padded"] == {"CPU": Route.COMPOSITE}
    assert found["q_scale"] == {"QuantizedCPU": Route.COMPOSITE}


@pytest.mark.parametrize(("fallback", "route"), [("cpu", Route.FALLBACK), ("none", Route.MISSING)])
def test_composites_that_do_not_do_for_quantized_tensors(
    describe: Describe, catalogue: Catalogue, fallback: str, route: Route
) -> None:
    found = layouts(planned(describe(fallback=fallback), catalogue))
    assert found["clone"]["QuantizedCPU"] is route


def test_a_kernel_of_the_description_stands(describe: Describe, catalogue: Catalogue) -> None:
    kernels = "- {op: _nested_from_padded, kernel_name: chip::from_padded}"
    assert "_nested_from_padded" not in layouts(planned(describe(kernels), catalogue))


def test_what_is_denied_stays_so(describe: Describe, catalogue: Catalogue) -> None:
    plan = planned(describe(fallback="{deny: [_nested_from_padded]}"), catalogue)
    texts = "".join(file.text for file in emit(plan))
    # Once in its registration, once with the reason.
    assert texts.count('"_nested_from_padded"') == 2
