"""The calls of a ``.pte`` program: each kernel call with its operator and its Tensors' dtypes and dim orders.

Reads the file itself, and runs nothing.  Whatever a program's parts name of each other is there, or the file
is refused: the runtime asks for less, and what it takes a damaged file for is anybody's guess.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TypeVar

from opsmith.base.trusted_files import MOST_BYTES_OF_BINARIES, read_regular
from opsmith.errors import FileMissing, ProgramInvalid
from opsmith.executorch.flatbuffer import NotFlatbuffer, Table
from opsmith.executorch.program_data import ProgramData, check_whole, read_data
from opsmith.plan.executorch.kernel_keys import (
    DTYPE_SIZES,
    Argument,
    CallForm,
    TensorMeta,
    dtype_name,
)

T = TypeVar("T")

FORMAT = "ET12"
"""The identifier of the flatbuffers that are read: what ExecuTorch 1.4 and 1.5 write (schema/program.fbs)."""

_SCHEMA_VERSION = 0
# A flatbuffer's identifier stands after the offset of its root.
_IDENTIFIER = slice(4, 8)
_BUNDLED = b"BP08"

# The fields of program.fbs by their place in their table; a later version of it only appends.
_PROGRAM_VERSION, _PROGRAM_PLANS = 0, 1
_PLAN_NAME, _PLAN_VALUES, _PLAN_INPUTS, _PLAN_OUTPUTS = 0, 2, 3, 4
_PLAN_CHAINS, _PLAN_OPERATORS, _PLAN_DELEGATES, _PLAN_BUFFERS = 5, 6, 7, 8
_CHAIN_INSTRUCTIONS = 2
_OPERATOR_NAME, _OPERATOR_OVERLOAD = 0, 1
_DELEGATE_ID, _DELEGATE_DATA = 0, 1
_DATA_LOCATION, _DATA_INDEX = 0, 1
_UNION_TYPE, _UNION = 0, 1  # of an instruction, and of a value
_CALL_INDEX, _CALL_ARGUMENTS = 0, 1  # of a kernel, and of a delegate
_MOVE_FROM, _MOVE_TO = 0, 1
_JUMP_CONDITION, _JUMP_DESTINATION = 0, 1
_FREED = 0
_LIST_ITEMS = 0
_TENSOR_DTYPE, _TENSOR_OFFSET, _TENSOR_SIZES, _TENSOR_DIM_ORDER = 0, 1, 2, 3
_TENSOR_DATA, _TENSOR_ALLOCATION, _TENSOR_DYNAMISM, _TENSOR_EXTRA = 5, 6, 8, 9
_ALLOCATION_ID, _ALLOCATION_LOW, _ALLOCATION_HIGH = 0, 1, 2
_EXTRA_MUTABLE, _EXTRA_LOCATION = 0, 2
_STATIC, _UNBOUND = 0, 2
_INLINE, _SEGMENT = 0, 1  # where a delegate's data are
_EXTERNAL = 1  # where a Tensor's data are


class _Instruction(IntEnum):
    """Members of the union InstructionArguments."""

    KERNEL_CALL = 1
    DELEGATE_CALL = 2
    MOVE_CALL = 3
    JUMP_FALSE_CALL = 4
    FREE_CALL = 5


class _Value(IntEnum):
    """Members of the union KernelTypes."""

    NULL = 1
    INT = 2
    BOOL = 3
    DOUBLE = 4
    TENSOR = 5
    STRING = 6
    INT_LIST = 7
    DOUBLE_LIST = 8
    BOOL_LIST = 9
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

    ``inputs`` are those of each method; None stands for one that is no Tensor.  ``buffers`` are the bytes
    that each method's Tensors are planned into, one number for each memory; ``data`` is what the file brings.
    """

    path: Path
    calls: tuple[KernelCall, ...]
    delegates: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, tuple[ProgramInput | None, ...]] = field(default_factory=dict)
    buffers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    data: ProgramData = field(default_factory=ProgramData)


def read_program(path: Path | str) -> ExecutorchProgram:
    """The program in the file ``path``.

    Raises :class:`~opsmith.errors.FileMissing`, and :class:`~opsmith.errors.ProgramInvalid` for a file that
    is none, is one of another version, or is damaged.
    """
    path = Path(path)
    try:
        content = read_regular(path, MOST_BYTES_OF_BINARIES)
    except OSError as error:
        raise FileMissing(
            f"the program `{path}` cannot be read: {error.strerror}",
            remedy="name a .pte file, such as ExecutorchProgramManager.save() writes",
        ) from None
    return parsed_program(path, content)


def parsed_program(path: Path, content: bytes) -> ExecutorchProgram:
    """The program of the bytes ``content``, which are or will be in the file ``path``.

    Raises :class:`~opsmith.errors.ProgramInvalid`.
    """
    _check_identifier(path, content[_IDENTIFIER])
    try:
        check_whole(content)
        root = Table.root(content)
        if (version := root.unsigned(_PROGRAM_VERSION)) != _SCHEMA_VERSION:
            raise _other_version(path, f"version {version} of its schema", str(_SCHEMA_VERSION))
        with _part("its data"):
            data = read_data(content, root)
        plans = [_Plan(table, data) for table in root.tables(_PROGRAM_PLANS)]
        calls = tuple(call for plan in plans for call in plan.calls())
        delegates = Counter(each for plan in plans for each in plan.delegates())
        inputs = {plan.name: plan.inputs() for plan in plans}
        buffers = {plan.name: plan.buffers for plan in plans}
    except (NotFlatbuffer, UnicodeDecodeError) as error:
        raise _invalid(path, str(error)) from None
    return ExecutorchProgram(path, calls, dict(delegates), inputs, buffers, data)


def graph_beside(program: Path) -> Path:
    """Where the exported graph is kept that ``program`` was made of, with its example inputs."""
    return program.with_suffix(".pt2")


def _check_identifier(path: Path, identifier: bytes) -> None:
    if identifier == FORMAT.encode():
        return
    if identifier == _BUNDLED:
        raise ProgramInvalid(
            f"`{path}` is a program bundled with inputs and outputs for a test of it",
            remedy="name the .pte file that it was bundled from",
        )
    if identifier[:2] != b"ET" or not identifier[2:].isdigit():
        raise _invalid(path, "it does not begin as one does")
    raise _other_version(path, f"the format {identifier.decode()}", FORMAT)


def _other_version(path: Path, theirs: str, ours: str) -> ProgramInvalid:
    return ProgramInvalid(
        f"`{path}` is a program for another version of ExecuTorch: it has {theirs}, and {ours} is read",
        remedy="export it with the ExecuTorch that is to run it",
    )


@contextmanager
def _part(name: str) -> Iterator[None]:
    """Says of what is wrong in which part of the program it is."""
    try:
        yield
    except (NotFlatbuffer, UnicodeDecodeError) as error:
        raise NotFlatbuffer(f"{name}: {error}") from None


class _Plan:
    """A method of a program, an ``ExecutionPlan``, of which all parts have been looked at."""

    def __init__(self, table: Table, data: ProgramData) -> None:
        with _part("a method's name"):
            self.name = table.text(_PLAN_NAME)
        self._table = table
        self._data = data
        with _part(f"the buffers of `{self.name}`"):
            # The first is none: memories are counted from one.
            sizes = table.longs(_PLAN_BUFFERS)
            if any(size < 0 for size in sizes):
                raise NotFlatbuffer(f"one has {min(sizes):,} bytes")
            self._sizes, self.buffers = sizes, sizes[1:]
        with _part(f"the values of `{self.name}`"):
            self._values = table.tables(_PLAN_VALUES)
            for place, value in enumerate(self._values):
                with _part(f"number {place}"):
                    self._check_value(value)
        with _part(f"the operators of `{self.name}`"):
            self._operators = [
                ".".join(filter(None, (each.text(_OPERATOR_NAME), each.text(_OPERATOR_OVERLOAD))))
                for each in table.tables(_PLAN_OPERATORS)
            ]
        with _part(f"the delegates of `{self.name}`"):
            self._delegates = [self._delegate(each) for each in table.tables(_PLAN_DELEGATES)]
        with _part(f"the inputs and outputs of `{self.name}`"):
            for place in (*table.integers(_PLAN_INPUTS), *table.integers(_PLAN_OUTPUTS)):
                _item(self._values, place)
        self._instructions: list[tuple[int, Table]] = []
        for chain in table.tables(_PLAN_CHAINS):
            with _part(f"the instructions of `{self.name}`"):
                instructions = chain.tables(_CHAIN_INSTRUCTIONS)
            for place, each in enumerate(instructions):
                with _part(f"instruction {place} of `{self.name}`"):
                    self._instructions.append(self._instruction(each, len(instructions)))

    def calls(self) -> list[KernelCall]:
        found = []
        for kind, call in self._instructions:
            if kind == _Instruction.KERNEL_CALL:
                name = self._operators[call.integer(_CALL_INDEX)]
                arguments = tuple(self._argument(place) for place in call.integers(_CALL_ARGUMENTS))
                found.append(KernelCall(CallForm(name, arguments), self.name))
        return found

    def delegates(self) -> list[str]:
        return [
            self._delegates[call.integer(_CALL_INDEX)]
            for kind, call in self._instructions
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

    # ---- what the parts name of each other

    def _check_value(self, value: Table) -> None:
        kind = value.byte(_UNION_TYPE)
        if kind not in set(_Value):
            raise NotFlatbuffer(f"it is of the kind {kind}, which programs of {FORMAT} have not")
        if kind == _Value.NULL:
            return
        held = value.table(_UNION)
        if kind == _Value.TENSOR:
            self._check_tensor(held)
        elif kind == _Value.STRING:
            held.text(0)
        elif kind == _Value.INT_LIST:
            for place in held.longs(_LIST_ITEMS):
                _item(self._values, place)
        elif kind in (_Value.DOUBLE_LIST, _Value.BOOL_LIST):
            held.length(_LIST_ITEMS, "d" if kind == _Value.DOUBLE_LIST else "B")
        elif kind in (_Value.TENSOR_LIST, _Value.OPTIONAL_TENSOR_LIST):
            for place in held.integers(_LIST_ITEMS):
                if place != -1 or kind == _Value.TENSOR_LIST:
                    _item(self._values, place)

    def _check_tensor(self, tensor: Table) -> None:
        sizes, dim_order = tensor.integers(_TENSOR_SIZES), tensor.octets(_TENSOR_DIM_ORDER)
        meta, dynamism = _meta(tensor), tensor.byte(_TENSOR_DYNAMISM)
        if not meta.is_known:
            raise NotFlatbuffer(f"a Tensor has {meta.dtype}, which ExecuTorch has not")
        if not _STATIC <= dynamism <= _UNBOUND:
            raise NotFlatbuffer(f"a Tensor's sizes are of the kind {dynamism}")
        if sorted(dim_order) != list(range(len(sizes))):
            raise NotFlatbuffer(
                f"a Tensor of the sizes {list(sizes)} has the dim order {list(dim_order)}"
            )
        if any(size < 0 for size in sizes) and dynamism != _UNBOUND:
            raise NotFlatbuffer(f"a Tensor has the sizes {list(sizes)}")
        if offset := tensor.integer(_TENSOR_OFFSET):
            raise NotFlatbuffer(f"a Tensor begins at element {offset:,} of its data")
        room = self._room(tensor)
        if room is None or dynamism == _UNBOUND:
            return
        size = DTYPE_SIZES[meta.dtype]
        for each in sizes:
            size *= each
        if size > room:
            raise NotFlatbuffer(f"a Tensor of {size:,} bytes has {max(room, 0):,} bytes of room")

    def _room(self, tensor: Table) -> int | None:
        """How many bytes there are for a Tensor; None where they are not the file's to say."""
        extra = tensor.table(_TENSOR_EXTRA) if tensor.has(_TENSOR_EXTRA) else None
        index = tensor.unsigned(_TENSOR_DATA)
        planned = self._planned_room(tensor)
        if extra is not None and extra.byte(_EXTRA_LOCATION) == _EXTERNAL:
            return planned
        if index and planned is None:
            return _item(self._data.constants, index)
        if index and planned is not None:
            states = extra.unsigned_long(_EXTRA_MUTABLE) if extra is not None else 0
            return min(planned, _item(_item(self._data.mutable, states), index))
        return planned

    def _planned_room(self, tensor: Table) -> int | None:
        if not tensor.has(_TENSOR_ALLOCATION):
            return None
        place = tensor.table(_TENSOR_ALLOCATION)
        memory = place.unsigned(_ALLOCATION_ID)
        offset = place.unsigned(_ALLOCATION_HIGH) << 32 | place.unsigned(_ALLOCATION_LOW)
        if not 0 < memory < len(self._sizes):
            raise NotFlatbuffer(f"a Tensor is planned into memory {memory} of {len(self.buffers)}")
        return self._sizes[memory] - offset

    def _delegate(self, delegate: Table) -> str:
        name = delegate.text(_DELEGATE_ID)
        with _part(f"`{name}`"):
            if delegate.has(_DELEGATE_DATA):
                data = delegate.table(_DELEGATE_DATA)
                location, index = data.byte(_DATA_LOCATION), data.unsigned(_DATA_INDEX)
                if location not in (_INLINE, _SEGMENT):
                    raise NotFlatbuffer(f"its data are in a place of the kind {location}")
                _item(self._data.delegates if location == _INLINE else self._data.segments, index)
        return name

    def _instruction(self, instruction: Table, count: int) -> tuple[int, Table]:
        """The instruction's kind and what it holds."""
        kind = instruction.byte(_UNION_TYPE)
        if kind not in set(_Instruction):
            raise NotFlatbuffer(f"it is of the kind {kind}, which programs of {FORMAT} have not")
        held = instruction.table(_UNION)
        if kind == _Instruction.KERNEL_CALL:
            with _part(_item(self._operators, held.integer(_CALL_INDEX))):
                self._check_values(held.integers(_CALL_ARGUMENTS))
        elif kind == _Instruction.DELEGATE_CALL:
            with _part(_item(self._delegates, held.integer(_CALL_INDEX))):
                self._check_values(held.integers(_CALL_ARGUMENTS))
        elif kind == _Instruction.MOVE_CALL:
            self._check_values((held.integer(_MOVE_FROM), held.integer(_MOVE_TO)))
        elif kind == _Instruction.JUMP_FALSE_CALL:
            self._check_values([held.integer(_JUMP_CONDITION)])
            if not 0 <= (target := held.integer(_JUMP_DESTINATION)) <= count:
                raise NotFlatbuffer(f"it jumps to instruction {target:,} of {count:,}")
        else:
            self._check_values([held.integer(_FREED)])
        return kind, held

    def _check_values(self, places: Sequence[int]) -> None:
        for place in places:
            _item(self._values, place)


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
