"""What a ``.pte`` program calls: each kernel call with its operator and its Tensors' dtypes and dim orders.

Reads the file with ExecuTorch's own deserializer, and runs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsmith.errors import ExecutorchMissing, FileMissing, ProgramInvalid
from opsmith.executorch.quiet import quiet
from opsmith.plan.executorch_keys import Argument, CallForm, TensorMeta, dtype_name

if TYPE_CHECKING:
    from executorch.exir.schema import ExecutionPlan

# A flatbuffer's identifier stands after the offset of its root (exir/_serialize/program.fbs: ET12).
_MAGIC = slice(4, 6)


@dataclass(frozen=True)
class KernelCall:
    """One instruction that calls a kernel in ``method``."""

    form: CallForm
    method: str


@dataclass(frozen=True)
class ProgramInput:
    """A Tensor that a method takes.

    ``sizes`` are those that it has, or, where it is ``dynamic``, those that it has at most: the export's
    bound.
    """

    meta: TensorMeta
    sizes: tuple[int, ...]
    dynamic: bool


@dataclass(frozen=True)
class ExecutorchProgram:
    """A program's calls in their order, and how many it makes to each delegate (``XnnpackBackend``).

    ``inputs`` are those of each method; None stands for one that is no Tensor.
    """

    path: Path
    calls: tuple[KernelCall, ...]
    delegates: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, tuple[ProgramInput | None, ...]] = field(default_factory=dict)


def read_program(path: Path | str) -> ExecutorchProgram:
    """The program in the file ``path``.

    Raises :class:`~opsmith.errors.FileMissing`, :class:`~opsmith.errors.ProgramInvalid` for a file that
    is none, and :class:`~opsmith.errors.ExecutorchMissing`.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileMissing(
            f"the program `{path}` cannot be read: {error.strerror}",
            remedy="name a .pte file, such as ExecutorchProgramManager.save() writes",
        ) from None
    if content[_MAGIC] != b"ET":
        raise _invalid(path, "it does not begin as one does")
    deserialize = _deserializer()
    try:
        plans = deserialize(content).program.execution_plan
        calls = tuple(call for plan in plans for call in _calls(plan))
        delegates = Counter(each for plan in plans for each in _delegates(plan))
        inputs = {plan.name: tuple(_input(plan, place) for place in plan.inputs) for plan in plans}
    except (
        Exception
    ) as error:  # flatbuffers, struct and IndexError: the bytes are not what they claim
        raise _invalid(path, f"{type(error).__name__}: {error}") from None
    return ExecutorchProgram(path, calls, dict(delegates), inputs)


def graph_beside(program: Path) -> Path:
    """Where the exported graph is kept that ``program`` was made of, with its example inputs."""
    return program.with_suffix(".pt2")


def _deserializer() -> Callable[[bytes], Any]:
    try:
        with quiet():
            from executorch.exir._serialize._program import deserialize_pte_binary
    except ImportError:
        raise ExecutorchMissing(
            "reading a program needs ExecuTorch, which is not installed",
            remedy="pip install executorch==1.4.1",
        ) from None
    found: Callable[[bytes], Any] = deserialize_pte_binary
    return found


def _calls(plan: ExecutionPlan) -> list[KernelCall]:
    from executorch.exir import schema

    names = [
        f"{operator.name}.{operator.overload}" if operator.overload else operator.name
        for operator in plan.operators
    ]
    found = []
    for chain in plan.chains:
        for instruction in chain.instructions:
            call = instruction.instr_args
            if isinstance(call, schema.KernelCall):
                arguments = tuple(_argument(plan, place) for place in call.args)
                found.append(KernelCall(CallForm(names[call.op_index], arguments), plan.name))
    return found


def _argument(plan: ExecutionPlan, place: int) -> Argument:
    from executorch.exir import schema

    value = plan.values[place].val
    if isinstance(value, schema.Tensor):
        return _meta(value)
    if isinstance(value, schema.TensorList | schema.OptionalTensorList):
        # An absent Tensor of such a list stands at -1.
        members = [plan.values[each].val for each in value.items if each >= 0]
        return tuple(_meta(each) for each in members if isinstance(each, schema.Tensor))
    return None


def _input(plan: ExecutionPlan, place: int) -> ProgramInput | None:
    from executorch.exir import schema

    value = plan.values[place].val
    if not isinstance(value, schema.Tensor):
        return None
    dynamic = value.shape_dynamism is not schema.TensorShapeDynamism.STATIC
    return ProgramInput(_meta(value), tuple(value.sizes), dynamic)


def _delegates(plan: ExecutionPlan) -> list[str]:
    from executorch.exir import schema

    return [
        plan.delegates[instruction.instr_args.delegate_index].id
        for chain in plan.chains
        for instruction in chain.instructions
        if isinstance(instruction.instr_args, schema.DelegateCall)
    ]


def _meta(tensor: Any) -> TensorMeta:
    return TensorMeta(dtype_name(int(tensor.scalar_type)), tuple(tensor.dim_order))


def _invalid(path: Path, why: str) -> ProgramInvalid:
    return ProgramInvalid(
        f"`{path}` is no program of ExecuTorch: {why}",
        remedy="export it anew; ExecutorchProgramManager.save() writes one",
    )
