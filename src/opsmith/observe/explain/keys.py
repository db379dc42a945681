"""The dispatch keys of a Tensor, in the order in which the dispatcher looks at them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from opsmith.errors import ExpressionInvalid, OperatorUnknown, nearest
from opsmith.observe.explain.explanation import dispatch_table
from opsmith.schema import Catalogue, qualified, torch_names

if TYPE_CHECKING:
    from torch import Tensor

# The functionality of each key, in words; keys of a backend end with its name.
_MEANINGS = {
    "Python": "a subclass or a mode of Python",
    "FuncTorch": "a transform of torch.func",
    "Autocast": "casts under torch.autocast",
    "Autograd": "records the gradient",
    "ADInplaceOrView": "version counters and views",
    "ZeroTensor": "known to be all zeros",
    "Conjugate": "lazily conjugated",
    "Negative": "lazily negated",
    "Functionalize": "makes changes in place functional",
    "BackendSelect": "finds the device of factory functions",
}


@dataclass(frozen=True)
class KeyRow:
    """One key: who brings it, whether this thread leaves it out, and what ``operator`` has there."""

    key: str
    meaning: str
    origin: str
    active: bool
    kernel: str


def keys_of(expression: str, operator: str, catalogue: Catalogue) -> tuple[KeyRow, ...]:
    """The keys of the Tensor that the Python ``expression`` gives, highest priority first.

    ``torch`` and ``opsmith`` may be used in it.  ``operator``, if not empty, fills ``kernel``.  Raises
    :class:`~opsmith.errors.ExpressionInvalid`.
    """

    own = torch_names._dispatch_keys(_tensor(expression))
    included = torch_names._dispatch_tls_local_include_set()
    excluded = torch_names._dispatch_tls_local_exclude_set()
    # A row for each key, the tensor's own and the thread's together in the dispatcher's order.
    left = own | included
    kernels = {}
    if operator:
        name = operator.removeprefix("aten::")
        if "::" not in name and name not in catalogue.operators:
            raise OperatorUnknown(
                f"torch {catalogue.torch} has no operator `{name}`{nearest(name, catalogue.operators)}",
                remedy="`opsmith ops` lists every operator",
            )
        table = dispatch_table(qualified(name))
        kernels = {
            row.key: f"{row.location}{f' [{row.kind}]' if row.kind else ''}" for row in table
        }
    rows = []
    while (key := left.highestPriorityTypeId()) != torch_names.DispatchKey.Undefined:
        left = left.remove(key)
        name = torch_names._dispatch_key_name(key)
        rows.append(
            KeyRow(
                name,
                next((words for start, words in _MEANINGS.items() if name.startswith(start)), ""),
                "the Tensor" if own.has(key) else "this thread",
                not excluded.has(key),
                kernels.get(name, ""),
            )
        )
    return tuple(rows)


def _tensor(expression: str) -> Tensor:
    import torch

    import opsmith

    try:
        value = eval(expression, {"torch": torch, "opsmith": opsmith})
    except Exception as error:
        raise ExpressionInvalid(
            f"`{expression}` raises {type(error).__name__}: {error}",
            remedy="write Python that gives a Tensor, such as \"torch.ones(2, device='sim')\"",
        ) from None
    if not isinstance(value, torch.Tensor):
        raise ExpressionInvalid(
            f"`{expression}` gives no Tensor, but {type(value).__name__}",
            remedy="write Python that gives a Tensor, such as \"torch.ones(2, device='sim')\"",
        )
    return value
