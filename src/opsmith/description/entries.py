"""The rules that entries of every manifest keep, whatever form their kernels have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from opsmith.description.document import Document
from opsmith.description.dtypes import expand_dtypes
from opsmith.description.model import Kernel, Unserved
from opsmith.description.other_releases import left_out
from opsmith.errors import KernelDuplicate, KernelRejected
from opsmith.schema import Catalogue


def kernels_of_entries(
    document: Document, catalogue: Catalogue | None, kernel_of: Callable[[int], Kernel]
) -> tuple[tuple[Kernel, ...], tuple[Unserved, ...]]:
    """The kernels of a manifest each of whose entries is one, and the entries that are left out.

    ``kernel_of`` reads the entry with a number.  Raises :class:`KernelDuplicate`.
    """
    kernels: dict[str, Kernel] = {}
    unserved = []
    for index in range(len(document.data["kernels"])):
        if other := left_out(document, catalogue, "kernels", index):
            unserved.append(other)
            continue
        add_unique(kernel_of(index), kernels)
    return tuple(kernels.values()), tuple(unserved)


def is_shaped_by_pytorch(operator: str, catalogue: Catalogue | None) -> bool:
    """Whether PyTorch's meta function shapes ``out`` before a kernel of ``operator`` is called."""
    group = catalogue.group_of.get(operator) if catalogue is not None else None
    return group is not None and group.structured and group.out == operator


def declared_dtypes(
    document: Document,
    index: int,
    operator: str,
    dtypes: Sequence[str] | Mapping[str, Sequence[str]],
    aliases: Mapping[str, Sequence[str]],
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The ``dtypes`` of the kernel for ``operator`` at ``kernels[index]``, by argument.

    Raises :class:`KernelRejected` for an empty list.
    """
    declared = dtypes if isinstance(dtypes, Mapping) else {"": dtypes}
    location = document.locate("kernels", index, "dtypes")
    if "dtypes" in document.data["kernels"][index] and not all([declared, *declared.values()]):
        raise KernelRejected(
            f"this kernel for `{operator}` takes nothing: a list of dtypes is empty",
            location=location,
            remedy="name the dtypes that it takes, or leave `dtypes` out where it takes all",
        )
    return tuple(
        (argument, expand_dtypes(names, aliases, location))
        for argument, names in declared.items()
        if names
    )


def add_unique(kernel: Kernel, kernels: dict[str, Kernel]) -> None:
    """Adds ``kernel`` to those of its library, by operator.

    Raises :class:`KernelDuplicate` where one of them is for its operator.
    """
    earlier = kernels.setdefault(kernel.operator, kernel)
    if earlier is not kernel:
        raise KernelDuplicate(
            f"two kernels for `{kernel.operator}` in library `{kernel.library}`; the first is "
            f"`{earlier.symbol or earlier.autograd}` at {earlier.location}",
            location=kernel.location,
            remedy="keep one; another library can hold the other, in order of preference",
        )
