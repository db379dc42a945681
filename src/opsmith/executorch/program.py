"""What a ``.pte`` program calls: each kernel call with its operator and its Tensors' dtypes and dim orders.

Reads the file itself, and runs nothing.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TypeVar

from opsmith.errors import FileMissing, ProgramInvalid
from opsmith.executorch.flatbuffer import NotFlatbuffer, Table
from opsmith.plan.executorch.kernel_keys import Argument, CallForm, TensorMeta, dtype_name

T = TypeVar("T")

# A flatbuffer's identifier stands after the offset of its root (exir/_serialize/program.fbs: ET12).
_MAGIC = slice(4, 6)

# Then comes ExecuTorch's own header: its mark and length, the program's bytes, and where the segments
# begin and how many bytes they are (exir/_serialize/_program.py: _ExtendedHeader).
_HEADER = struct.Struct("<4sIQQQ")
_HEADER_MARK = b"eh00"

# The fields of program.fbs by their place in their table; a later version of it only appends.
_PROGRAM_PLANS = 1
_PLAN_NAME, _PLAN_VALUES, _PLAN_INPUTS = 0, 2, 3
_PLAN_CHAINS, _PLAN_OPERATORS, _PLAN_DELEGATES = 5, 6, 7
_CHAIN_INSTRUCTIONS = 2
_OPERATOR_NAME, _OPERATOR_OVERLOAD = 0, 1
_DELEGATE_ID = 0
_UNION_TYPE, _UNION = 0, 1  # of an instruction, and of a value
_CALL_INDEX, _CALL_ARGUMENTS = 0, 1  # of a kernel, and of a delegate
_LIST_ITEMS = 0
_TENSOR_DTYPE, _TENSOR_SIZES, _TENSOR_DIM_ORDER, _TENSOR_DYNAMISM = 0, 2, 3, 8
_STATIC = 0


class _Instruction(IntEnum):
    """Members of the union InstructionArguments."""

    KERNEL_CALL = 1
    DELEGATE_CALL = 2


class _Value(IntEnum):
    """Members of the union KernelTypes."""

    TENSOR = 5
    TENSOR_LIST = 10
    OPTIONAL_TENSOR_LIST = 11


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

    Raises :class:`~opsmith.errors.FileMissing`, and :class:`~opsmith.errors.ProgramInvalid` for a file that
    is none.
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
    try:
        _check_whole(content)
        plans = [_Plan(table) for table in Table.root(content).tables(_PROGRAM_PLANS)]
        calls = tuple(call for plan in plans for call in plan.calls())
        delegates = Counter(each for plan in plans for each in plan.delegates())
        inputs = {plan.name: plan.inputs() for plan in plans}
    except (NotFlatbuffer, UnicodeDecodeError) as error:
        raise _invalid(path, str(error)) from None
    return ExecutorchProgram(path, calls, dict(delegates), inputs)


def graph_beside(program: Path) -> Path:
    """Where the exported graph is kept that ``program`` was made of, with its example inputs."""
    return program.with_suffix(".pt2")


def _check_whole(content: bytes) -> None:
    if len(content) < 8 + _HEADER.size:
        raise NotFlatbuffer(f"it ends after {len(content)} bytes")
    mark, length, program, segments, segments_size = _HEADER.unpack_from(content, 8)
    if mark != _HEADER_MARK:
        return  # an old one: without segments, it is all flatbuffer
    # The segments' size came later than the rest of the header.
    size = max(program, segments + segments_size if length >= _HEADER.size else segments)
    if len(content) < size:
        raise NotFlatbuffer(f"it ends after {len(content):,} of {size:,} bytes")


class _Plan:
    """A method of a program, an ``ExecutionPlan``."""

    def __init__(self, table: Table) -> None:
        self.name = table.text(_PLAN_NAME)
        self._table = table
        self._values = table.tables(_PLAN_VALUES)
        self._instructions = [
            (each.byte(_UNION_TYPE), each)
            for chain in table.tables(_PLAN_CHAINS)
            for each in chain.tables(_CHAIN_INSTRUCTIONS)
        ]

    def calls(self) -> list[KernelCall]:
        operators = self._table.tables(_PLAN_OPERATORS)
        names = [
            ".".join(filter(None, (each.text(_OPERATOR_NAME), each.text(_OPERATOR_OVERLOAD))))
            for each in operators
        ]
        found = []
        for kind, instruction in self._instructions:
            if kind == _Instruction.KERNEL_CALL:
                call = instruction.table(_UNION)
                name = _item(names, call.integer(_CALL_INDEX))
                arguments = tuple(self._argument(place) for place in call.integers(_CALL_ARGUMENTS))
                found.append(KernelCall(CallForm(name, arguments), self.name))
        return found

    def delegates(self) -> list[str]:
        named = [each.text(_DELEGATE_ID) for each in self._table.tables(_PLAN_DELEGATES)]
        return [
            _item(named, instruction.table(_UNION).integer(_CALL_INDEX))
            for kind, instruction in self._instructions
            if kind == _Instruction.DELEGATE_CALL
        ]

    def inputs(self) -> tuple[ProgramInput | None, ...]:
        return tuple(self._input(place) for place in self._table.integers(_PLAN_INPUTS))

    def _input(self, place: int) -> ProgramInput | None:
        value = _item(self._values, place)
        if value.byte(_UNION_TYPE) != _Value.TENSOR:
            return None
        tensor = value.table(_UNION)
        dynamic = tensor.byte(_TENSOR_DYNAMISM) != _STATIC
        return ProgramInput(_meta(tensor), tensor.integers(_TENSOR_SIZES), dynamic)

    def _argument(self, place: int) -> Argument:
        value = _item(self._values, place)
        kind = value.byte(_UNION_TYPE)
        if kind == _Value.TENSOR:
            return _meta(value.table(_UNION))
        if kind in (_Value.TENSOR_LIST, _Value.OPTIONAL_TENSOR_LIST):
            # An absent Tensor of such a list stands at -1.
            places = [each for each in value.table(_UNION).integers(_LIST_ITEMS) if each >= 0]
            members = [_item(self._values, each) for each in places]
            return tuple(
                _meta(each.table(_UNION))
                for each in members
                if each.byte(_UNION_TYPE) == _Value.TENSOR
            )
        return None


def _item(items: Sequence[T], index: int) -> T:
    if not 0 <= index < len(items):
        raise NotFlatbuffer(f"it names number {index:,} of {len(items):,}")
    return items[index]


def _meta(tensor: Table) -> TensorMeta:
    return TensorMeta(dtype_name(tensor.byte(_TENSOR_DTYPE)), tensor.octets(_TENSOR_DIM_ORDER))


def _invalid(path: Path, why: str) -> ProgramInvalid:
    return ProgramInvalid(
        f"`{path}` is no program of ExecuTorch: {why}",
        remedy="export it anew; ExecutorchProgramManager.save() writes one",
    )
