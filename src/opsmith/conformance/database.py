"""PyTorch's own operator database, OpInfo: its entries by name, their claims, samples and tolerances.

``op_db`` and the databases of the ``_foreach`` operators; not those of sparse tensors, which an
out-of-tree device has not, nor Python references, which are no operators.  Importing the database takes
seconds, so only workers do; what a command has to know of it beforehand is kept in the cache.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opsmith.base.trusted_files import read_trusted
from opsmith.build.cache import write_whole
from opsmith.errors import ConformanceError
from opsmith.schema import torch_version

if TYPE_CHECKING:
    import torch

FOREACH = "_foreach_"

TRIED = (
    "bfloat16", "bool", "complex64", "complex128", "float16", "float32", "float64", "int8", "int16", "int32",
    "int64", "uint8",
)  # fmt: skip
"""The dtypes that PyTorch's test_dtypes tries even where an entry does not claim them."""


@dataclass(frozen=True)
class EntryFacts:
    """Facts about an entry, known without its database, for choosing what to run.

    ``base`` is its name without variant, ``operator`` the ATen name without overload that it is about.
    ``dtypes`` are those that it claims for the CPU, ``backward_dtypes`` those for its gradient.
    """

    name: str
    base: str
    operator: str
    dtypes: tuple[str, ...]
    backward_dtypes: tuple[str, ...]
    out: bool
    in_place: bool


def known_entries(cache: Path) -> tuple[EntryFacts, ...]:
    """The facts of all entries, from ``cache`` where they are known; else a process of its own finds them.

    Raises :class:`~opsmith.errors.ConformanceError` where PyTorch's database cannot be imported.
    """
    code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]  # what the facts are made by
    path = cache / "conformance" / f"entries-{torch_version()}-{code}.json"
    try:
        return msgspec.json.decode(read_trusted(path), type=tuple[EntryFacts, ...])
    except (OSError, msgspec.DecodeError):
        pass
    done = subprocess.run([sys.executable, "-m", __name__], capture_output=True, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ConformanceError(
            f"PyTorch's operator database cannot be imported: {''.join(last)}",
            remedy='install what it needs: pip install "opsmith[conform]"',
        )
    facts = msgspec.json.decode(done.stdout, type=tuple[EntryFacts, ...])
    write_whole(path, done.stdout)
    return facts


@functools.cache
def entries() -> dict[str, Any]:
    """The ``OpInfo`` objects by name with variant, in the database's order."""
    from opsmith.schema.torch_names import common_methods_invocations as opinfo

    databases = [name for name in sorted(vars(opinfo)) if name.startswith("foreach_")]
    infos = itertools.chain(
        opinfo.op_db, *(getattr(opinfo, name) for name in databases if name.endswith("_op_db"))
    )
    return {_name(info): info for info in infos}


def _name(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else str(info.name)


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` of ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def samples_of(info: Any, dtype: torch.dtype, requires_grad: bool) -> Iterator[Any]:
    """The entry's samples on the CPU.  Raises what PyTorch's own generator raises."""
    # info.sample_inputs() looks through the stack for the test's name with each sample, which takes long.
    extra = {"noncontiguous": False} if info.name.startswith(FOREACH) else {}
    return iter(info.sample_inputs_func(info, "cpu", dtype, requires_grad, **extra))


def tolerances(info: Any, dtype: torch.dtype) -> tuple[float, float]:
    """The relative and the absolute tolerance that PyTorch's own tests grant the entry in ``dtype``.

    ``torch.testing``'s default for the dtype, or what the entry declares by ``toleranceOverride`` for any
    of its tests, on whatever device, where that is more.
    """
    from opsmith.schema.torch_names import default_tolerances, toleranceOverride

    relative, absolute = default_tolerances(dtype)
    for decorator in info.decorators:
        for each in getattr(decorator, "decorators", [decorator]):
            declared = each.d.get(dtype) if isinstance(each, toleranceOverride) else None
            if declared is not None:
                relative, absolute = max(relative, declared.rtol), max(absolute, declared.atol)
    return relative, absolute


def doubts_its_dtypes(info: Any) -> bool:
    """Whether PyTorch itself expects ``test_dtypes`` to fail for the entry on every device."""
    return any(
        getattr(each, "test_name", "") == "test_dtypes" and each.device_type is None
        for each in info.decorators
    )


def _aten_name(info: Any) -> str:
    """``softplus`` of ``nn.functional.softplus``, ``linalg_norm`` of ``linalg.norm``."""
    named = str(info.aten_name or info.name)
    return named.removeprefix("nn.functional.").replace(".", "_")


def _facts() -> Iterator[EntryFacts]:
    for name, info in entries().items():
        yield EntryFacts(
            name,
            info.name,
            _aten_name(info),
            tuple(sorted(map(dtype_name, info.supported_dtypes("cpu")))),
            tuple(sorted(map(dtype_name, info.supported_backward_dtypes("cpu")))),
            bool(info.supports_out) and not name.startswith(FOREACH),
            info.inplace_variant is not None,
        )


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(tuple(_facts())))
