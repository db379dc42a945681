"""The operators that get conjugated, negated and zero tensors, compared with PyTorch's dispatcher."""

from __future__ import annotations

import re

import pytest
import torch

from opsmith.plan.lazy_operands import CONJUGATED, NEGATED, ZERO_TENSORS

# What makes, views, copies or describes Tensors, of which opsmith's own heed the bits.
_ON_TENSORS = re.compile(
    r"alias|as_strided|chunk|_?clone|_?conj|contiguous|_?copy(_from)?|detach|diagonal|[dhv]split|empty.*|expand(_as)?"
    r"|flatten|(full|ones|rand|randint|randn|zeros)_like|_has_same_storage_numel|is_\w+|imag|movedim|narrow"
    r"|_neg_view|neg|_new_zeros_with_same_feature_meta|permute|real|requires_grad|_?reshape\w*|resize|resolve_\w+"
    r"|select|set|size|split\w*|squeeze|stride|swapaxes|swapdims|t|to|transpose|unbind|unflatten|unfold"
    r"|unsqueeze|(_unsafe_)?view\w*"
)


@pytest.mark.parametrize(
    ("key", "names"),
    [("Conjugate", CONJUGATED), ("Negative", NEGATED), ("ZeroTensor", ZERO_TENSORS)],
)
def test_they_are_those_of_the_dispatcher(key: str, names: frozenset[str]) -> None:
    found = set()
    for qualified in torch._C._dispatch_get_all_op_names():
        name = qualified.removeprefix("aten::")
        is_passed_on = re.search(
            rf"^{key}: fallthrough .*\[kernel\]",
            torch._C._dispatch_dump_table(qualified),
            re.MULTILINE,
        )
        base = name.partition(".")[0].removesuffix("_")
        if is_passed_on and qualified != name and not _ON_TENSORS.fullmatch(base):
            found.add(name)
    assert found
    assert found <= names, "of another release of torch: add them"
