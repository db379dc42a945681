"""Calls of ATen's out variants as a program of ExecuTorch, and what the runtime gives for them.

``torch.export`` takes a second for a module; a program is a table of values and instructions, so it is
written down directly: one method for each call, with one instruction.  Arguments in a layout in which the
runtime takes inputs are inputs, those in other dim orders constants, and each ``out`` is memory of the
method's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from aten_calls import OperatorCall, inputs_of, schema_of
from executorch.exir import schema
from executorch.exir._serialize._program import PTEFile, serialize_pte_binary
from executorch.exir.tensor import scalar_type_enum
from torch import Tensor
from torch.utils._pytree import tree_leaves

from opsmith.plan.executorch.kernel_keys import Argument, CallForm, TensorMeta, dtype_name

_ALIGNMENT = 64
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def dim_order(tensor: Tensor) -> tuple[int, ...]:
    """The dimensions of a dense Tensor, outermost first."""
    rank = tensor.dim()
    if tensor.is_contiguous():
        return tuple(range(rank))
    if rank in _CHANNELS_LAST and tensor.is_contiguous(memory_format=_CHANNELS_LAST[rank]):
        return (0, *range(2, rank), 1)
    return tuple(sorted(range(rank), key=lambda dim: (-tensor.stride(dim), -tensor.size(dim))))


def is_input(tensor: Tensor) -> bool:
    """Whether the runtime takes it as an input: contiguous, or an image with its channels innermost."""
    return dim_order(tensor) in (tuple(range(tensor.dim())), (0, 2, 3, 1))


def form_of(call: OperatorCall) -> CallForm:
    """The call as ExecuTorch's registry knows it."""
    arguments: list[Argument] = [_form(value) for value in call.arguments]
    outs = [_form(value) for value in call.results]
    # A single out is returned too, and stands in the key again.
    return CallForm(call.operator, (*arguments, *outs, *(outs if len(outs) == 1 else [None])))


def is_refused(call: OperatorCall) -> bool:
    """Whether ExecuTorch's own kernels refuse what ATen computes.

    Copies that do not block, statistics that change although no schema says so, and Tensors that are neither
    all contiguous nor all channels-last, which those of four and five dimensions can be; limits that integers
    of the dtype do not reach, which ATen takes since torch 2.15.
    """
    if call.operator == "aten::native_batch_norm.out" and call.arguments[5]:
        return any(each is not None for each in call.arguments[3:5])
    if call.operator == "aten::_to_copy.out" and True in call.arguments[1:2]:
        return True
    out = next(iter(tree_leaves(call.results)))
    if call.operator in {"aten::clamp.out", "aten::hardtanh.out"} and not out.is_floating_point():
        held = torch.iinfo(out.dtype)
        limits = [each for each in call.arguments[1:3] if each is not None]
        if not all(held.min <= each <= held.max for each in limits):
            return True
    orders = {dim_order(each) for each in (*call.tensors, out) if each.dim() == out.dim()}
    are_channels_last = out.dim() in {4, 5} and orders == {(0, *range(2, out.dim()), 1)}
    return orders != {tuple(range(out.dim()))} and not are_channels_last


def with_runtimes_results(call: OperatorCall) -> OperatorCall:
    """The call with what the runtime's rules give for it, where ATen has others: sign keeps NaN."""
    if call.operator != "aten::sign.out" or not call.arguments[0].is_floating_point():
        return call
    given, (result,) = call.arguments[0], call.results
    return replace(call, results=(given.where(given.isnan(), result),))


def _form(value: Any) -> Argument:
    if isinstance(value, Tensor):
        return TensorMeta(dtype_name(int(scalar_type_enum(value.dtype))), dim_order(value))
    if isinstance(value, list | tuple) and any(isinstance(each, Tensor) for each in value):
        metas = (_form(each) for each in value if isinstance(each, Tensor))
        return tuple(each for each in metas if isinstance(each, TensorMeta))
    return None


@dataclass
class _Method:
    """One method of the program while it is put together."""

    constants: list[schema.Buffer]
    values: list[schema.EValue] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    memory: int = 0

    def add(self, value: Any) -> int:
        self.values.append(schema.EValue(value))
        return len(self.values) - 1

    def argument(self, value: Any, kind: str) -> int:
        """The place of an argument whose type in the schema is ``kind``."""
        if isinstance(value, Tensor):
            return self.given(value)
        if isinstance(value, list | tuple):
            return self._list(list(value), kind)
        return self.add(_plain(value, kind))

    def _list(self, value: list[Any], kind: str) -> int:
        if "Tensor" in kind:
            items = [-1 if each is None else self.given(each) for each in value]
            return self.add(
                schema.OptionalTensorList(items) if "Optional" in kind else schema.TensorList(items)
            )
        if "float" in kind:
            return self.add(schema.DoubleList([float(each) for each in value]))
        if "bool" in kind:
            return self.add(schema.BoolList(value))
        return self.add(schema.IntList([self.add(schema.Int(each)) for each in value]))

    def given(self, tensor: Tensor) -> int:
        """An input, or, in a dim order that inputs cannot have, a constant."""
        if is_input(tensor):
            place = self.add(_tensor(tensor))
            self.inputs.append(place)
            return place
        laid = tensor.permute(dim_order(tensor)).contiguous()
        self.constants.append(schema.Buffer(bytes(laid.view(torch.uint8).numpy())))
        return self.add(_tensor(tensor, buffer=len(self.constants) - 1))

    def out(self, like: Any) -> int:
        """Memory for a result like ``like``, or the list of them."""
        if isinstance(like, list | tuple):
            return self.add(schema.TensorList([self.out(each) for each in like]))
        offset = self.memory
        self.memory += -(-like.numel() * like.element_size() // _ALIGNMENT) * _ALIGNMENT
        place = self.add(_tensor(like, allocation=schema.AllocationDetails(1, offset, 0)))
        self.outputs.append(place)
        return place


class Program(schema.Program):
    """A program that nobody uses once it is serialized, which copies it deeply otherwise."""

    def __deepcopy__(self, memo: Any) -> Program:
        return self


def program_of(calls: Sequence[OperatorCall]) -> bytes:
    """The program with a method for each call, ``call0``, ``call1``, …, which returns its results."""
    constants = [schema.Buffer(b"")]  # its place means: no constant
    plans = [_plan(f"call{place}", call, constants) for place, call in enumerate(calls)]
    program = Program(
        version=0,
        execution_plan=plans,
        constant_buffer=constants,
        backend_delegate_data=[],
        segments=[],
        constant_segment=schema.SubsegmentOffsets(segment_index=0, offsets=[]),
    )
    return bytes(serialize_pte_binary(PTEFile(program=program)))


def _plan(name: str, call: OperatorCall, constants: list[schema.Buffer]) -> schema.ExecutionPlan:
    method = _Method(constants)
    kinds = [str(argument.type) for argument in inputs_of(schema_of(call.operator))]
    places = [
        method.argument(value, kind) for value, kind in zip(call.arguments, kinds, strict=True)
    ]
    outs = [method.out(each) for each in call.results]
    # The returned value stands behind the outs: a single one again, several as a list.
    returned = outs[0] if len(outs) == 1 else method.add(schema.TensorList(list(method.outputs)))
    instruction = schema.KernelCall(0, [*places, *outs, returned])
    operator, _, variant = call.operator.partition(".")
    return schema.ExecutionPlan(
        name=name,
        container_meta_type=schema.ContainerMetadata("", ""),
        values=method.values,
        inputs=method.inputs,
        outputs=method.outputs,
        chains=[schema.Chain([], [], [schema.Instruction(instruction)], None)],
        operators=[schema.Operator(operator, variant)],
        delegates=[],
        non_const_buffer_sizes=[0, max(method.memory, _ALIGNMENT)],
    )


def _tensor(
    tensor: Tensor, buffer: int = 0, allocation: schema.AllocationDetails | None = None
) -> schema.Tensor:
    return schema.Tensor(
        scalar_type=scalar_type_enum(tensor.dtype),
        storage_offset=0,
        sizes=list(tensor.shape),
        dim_order=list(dim_order(tensor)),
        requires_grad=False,
        layout=0,
        data_buffer_idx=buffer,
        allocation_info=allocation,
        shape_dynamism=schema.TensorShapeDynamism.STATIC,
    )


_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}


def _plain(value: Any, kind: str) -> schema.KernelTypes:
    """A value that is neither Tensor nor list."""
    if value is None:
        return schema.Null()
    if isinstance(value, bool):
        return schema.Bool(value)
    if isinstance(value, str):
        return schema.String(value)
    if isinstance(value, torch.dtype):
        return schema.Int(int(scalar_type_enum(value)))
    if isinstance(value, torch.memory_format):
        return schema.Int(_FORMATS[value])
    if isinstance(value, float) or "float" in kind:
        return schema.Double(float(value))
    return schema.Int(int(value))


@dataclass(frozen=True)
class Outcome:
    """The outcome of a call in the runtime: Tensors, or the reason why there are none."""

    results: tuple[Tensor, ...] = ()
    written: dict[int, Tensor] = field(default_factory=dict)
    failure: str = ""


def run_calls(
    runtime: Any, calls: Sequence[OperatorCall], begins: Callable[[int], None] = lambda place: None
) -> Iterator[Outcome]:
    """The outcomes of ``calls`` in ``runtime``, ExecuTorch's extension module, with the kernels it has.

    Before each, ``begins`` is told its place: a kernel may end the process.
    """
    program = runtime._load_program_from_buffer(
        buffer := program_of(calls), program_verification=runtime.Verification.InternalConsistency
    )
    for place, call in enumerate(calls):
        begins(place)
        yield _run(program, f"call{place}", call)
    del buffer  # the program reads it as long as it lives


def _run(program: Any, name: str, call: OperatorCall) -> Outcome:
    given = [each.clone() for each in call.tensors]
    inputs = [each for each in given if is_input(each)]
    try:
        results = program.load_method(name).call(inputs)
    except RuntimeError as error:
        return Outcome(failure=str(error))
    written = {
        place: given[[tensor is call.arguments[place] for tensor in call.tensors].index(True)]
        for place in call.written
    }
    return Outcome(tuple(results), written)
