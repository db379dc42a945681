"""Reads ExecuTorch's functions.yaml and custom_ops.yaml as a kernel library.

The format is that of ``executorch/codegen`` (1.4.1): a list of operators, named by ``op`` or declared by
``func``, each with kernels for some dtypes and dim orders of its arguments.  The same entries stand under
``kernels`` in a manifest with ``abi: executorch``, where an entry may name its one kernel itself and say
which dtypes and layouts that takes.  Called by ``library``, ``manifest`` and ``imported``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from opsmith.description.attention import DescribedAttention, attention_limits
from opsmith.description.custom import DescribedMeta, read_declaration, read_meta, schema_name
from opsmith.description.document import Document, Step
from opsmith.description.dtypes import expand_dtypes
from opsmith.description.formats.notes import Notes, shown_name
from opsmith.description.model import (
    Abi,
    ArgMeta,
    DimOrder,
    Execution,
    ExecutorchOperator,
    GivenMeta,
    Kernel,
    Unserved,
)
from opsmith.description.names import IDENTIFIER, OPERATOR, obstacle_in_function, unknown_operator
from opsmith.description.other_releases import left_out
from opsmith.description.rng import Rng
from opsmith.errors import (
    KernelDuplicate,
    KernelRejected,
    Location,
    OperatorUnknown,
    SchemaInvalid,
    SyntaxInvalid,
    nearest,
)
from opsmith.schema import Catalogue, Declaration


class _Kernel(msgspec.Struct, forbid_unknown_fields=True):
    kernel_name: str
    arg_meta: dict[str, list[str]] | None = None


class FunctionsEntry(msgspec.Struct, forbid_unknown_fields=True):
    """An entry as ExecuTorch's own files have it."""

    op: str = ""
    func: str = ""
    kernels: list[_Kernel] = []
    type_alias: dict[str, list[str]] = {}
    dim_order_alias: dict[str, list[int | str]] = {}
    variants: str = "function"
    tags: str | list[str] = []
    cpp_no_default_args: list[str] = []
    # The older form of `kernels`, with one kernel for everything; `{}` says nothing.
    dispatch: dict[str, str] = {}
    # Of native_functions.yaml, for PyTorch's own code generator; they say nothing of the kernels.
    namespace: str = ""
    autogen: str = ""
    device_check: str = ""
    device_guard: bool = True
    python_module: str = ""
    category_override: str = ""
    use_const_ref_for_mutable_tensors: bool = False
    manual_cpp_binding: bool = False
    manual_kernel_registration: bool = False


class ManifestEntry(FunctionsEntry, forbid_unknown_fields=True):
    """An entry of a manifest, with what opsmith adds: one kernel for certain dtypes of any rank.

    ``autograd`` names a function for PyTorch's autograd, which ExecuTorch has no need of.  ``on_devices`` is
    whether devices have the kernel too, or for which dtypes.
    """

    kernel_name: str = ""
    autograd: str = ""
    on_devices: bool | list[str] | dict[str, list[str]] = True
    dtypes: list[str] | dict[str, list[str]] = []
    dim_order: Literal["contiguous", "any"] | None = None
    rng: Literal["philox"] | None = None
    attention: DescribedAttention | None = None
    meta: str | DescribedMeta | None = None


@dataclass(frozen=True)
class ExecutorchHeader:
    """The settings of a file for all its entries: all but ``library`` is a manifest's.

    ``external_namespaces`` are the namespaces that others define.  ``keep_faults``: mistakes in entries are
    noted, and raise nothing.
    """

    library: str
    entry: type[FunctionsEntry] = FunctionsEntry
    dim_order: DimOrder = DimOrder.CONTIGUOUS
    type_alias: Mapping[str, Sequence[str]] = field(default_factory=dict)
    external_namespaces: frozenset[str] = frozenset()
    keep_faults: bool = False


@dataclass(frozen=True)
class ExecutorchEntries:
    """The contents of a list of entries; ``declared`` are those of the ``operators`` that are not ATen's."""

    kernels: tuple[Kernel, ...]
    operators: tuple[ExecutorchOperator, ...]
    declared: tuple[Declaration, ...]
    metas: tuple[GivenMeta, ...]
    unserved: tuple[Unserved, ...]


# NamespaceHelper(max_level=3) of executorch/codegen/parse.py.
_MOST_NAMESPACES = 3
_VARIANTS = ("function", "method")


def read_executorch_entries(
    document: Document, header: ExecutorchHeader, catalogue: Catalogue | None, *steps: Step
) -> ExecutorchEntries:
    """Reads the list of entries at ``steps``.

    A kernel's C++ function is in the namespace ``native`` of the one that its name has, as ExecuTorch's
    generated code calls it.  Raises a :class:`DescriptionError` at the place of the first mistake, unless the
    header keeps them.
    """
    data = document.at(*steps)
    if not isinstance(data, list):
        raise SyntaxInvalid(
            "ExecuTorch's entries are a list",
            location=document.locate(*steps),
            remedy="write `- op: add.out` with its `kernels`",
        )
    kernels: list[Kernel] = []
    operators: dict[str, ExecutorchOperator] = {}
    declared: list[Declaration] = []
    metas: list[GivenMeta] = []
    notes = Notes(header.keep_faults)
    for index, entry in enumerate(data):
        if other := left_out(document, catalogue, *steps, index):
            notes.unserved.append(other)
            continue
        with notes.fault_of(shown_name(entry), document.locate(*steps, index)):
            reader = _EntryReader(document, header, catalogue, (*steps, index))
            operator = reader.operator
            if earlier := operators.get(operator.name):
                raise KernelDuplicate(
                    f"two entries for `{operator.name}`; the first is at {earlier.location}",
                    location=operator.location,
                    remedy="write all kernels of an operator below one entry",
                )
            own = reader.kernels()
            # ExecuTorch's files also declare what another library implements. The functional variants of
            # others' operators have names that no rule tells.
            if own or operator.name.partition("::")[0] in header.external_namespaces:
                declared += reader.declared()
            metas += reader.metas()
            kernels += own
            operators[operator.name] = operator
    return ExecutorchEntries(
        tuple(kernels),
        tuple(operators.values()),
        tuple(declared),
        tuple(metas),
        tuple(notes.unserved),
    )


class _EntryReader:
    def __init__(
        self,
        document: Document,
        header: ExecutorchHeader,
        catalogue: Catalogue | None,
        steps: tuple[Step, ...],
    ) -> None:
        self.document = document
        self.header = header
        self.catalogue = catalogue
        self.steps = steps
        self.raw = document.convert(header.entry, *steps)
        self.operator, self.arguments = self._operator()

    def kernels(self) -> list[Kernel]:
        kernels = [
            self._kernel(kernel.kernel_name, self._arg_meta(kernel, index), ("kernels", index))
            for index, kernel in enumerate(self.raw.kernels)
        ]
        for key, name in self.raw.dispatch.items():
            kernels.append(self._kernel(name, (), ("dispatch", key)))
        if isinstance(self.raw, ManifestEntry):
            kernels += self._own_kernel(self.raw)
        for index, kernel in enumerate(kernels):
            for earlier in kernels[:index]:
                if _overlap(kernel.arg_meta, earlier.arg_meta):
                    what = (
                        "some dtypes and dim orders"
                        if kernel.arg_meta
                        else "what no `arg_meta` takes"
                    )
                    raise KernelDuplicate(
                        f"two kernels for `{self.operator.name}` take {what}; the first is "
                        f"`{earlier.symbol}` at {earlier.location}",
                        location=kernel.location,
                        remedy="give each dtype and dim order to one kernel, and leave `arg_meta: null` "
                        "to one",
                    )
        if isinstance(self.raw, ManifestEntry) and self.raw.autograd:
            kernels.append(self._differentiation(self.raw.autograd))
        return kernels

    def declared(self) -> list[Declaration]:
        """The operator, where it is none of ATen's; its schema is parsed with a catalogue only."""
        if self.catalogue is None or "::" not in self.operator.name:
            return []
        tags = self.operator.tags
        return [read_declaration(self.document, self.steps, self.raw.func, tags)]

    def metas(self) -> list[GivenMeta]:
        """The shapes of the operator's results that a manifest gives, if any."""
        meta = self.raw.meta if isinstance(self.raw, ManifestEntry) else None
        if meta is None:
            return []
        return [read_meta(self.document, self.steps, self.operator.name, meta)]

    def _locate(self, *steps: Step) -> Location:
        return self.document.locate(*self.steps, *steps)

    # ---- the operator

    def _operator(self) -> tuple[ExecutorchOperator, tuple[str, ...] | None]:
        """The operator and the names of its Tensor arguments, None where they are not known."""
        raw = self.raw
        if bool(raw.op) == bool(raw.func):
            raise SyntaxInvalid(
                "an entry names an operator of ATen (`op`) or declares one (`func`), and exactly one of "
                "them",
                location=self._locate(),
                remedy="write `op: add.out`, or `func: myop::scale.out(Tensor self, *, Tensor(a!) out) -> "
                "Tensor(a!)`",
            )
        variants = tuple(variant.strip() for variant in raw.variants.split(","))
        for variant in variants:
            if variant not in _VARIANTS:
                raise SyntaxInvalid(
                    f"`{variant}` is no variant{nearest(variant, _VARIANTS)}",
                    location=self._locate("variants"),
                    remedy="it takes function, method or both, with a comma between them",
                )
        name, schema, arguments = self._declared() if raw.func else self._named()
        return (
            ExecutorchOperator(
                name=name,
                location=self._locate("func" if raw.func else "op"),
                schema=schema,
                variants=variants,
                tags=(raw.tags,) if isinstance(raw.tags, str) else tuple(raw.tags),
                cpp_no_default_args=tuple(raw.cpp_no_default_args),
            ),
            arguments,
        )

    def _named(self) -> tuple[str, str, tuple[str, ...] | None]:
        location = self._locate("op")
        name = self.raw.op.removeprefix("aten::")
        if "(" in name:
            raise SchemaInvalid(
                f"`{self.raw.op}` is a schema where an operator's name belongs",
                location=location,
                remedy=f"write `op: {name.partition('(')[0]}`, or `func:` with the schema",
            )
        if "::" in name:
            raise OperatorUnknown(
                f"`{name}` is no operator of ATen, which `op` names",
                location=location,
                remedy=f"declare it with its schema: `func: {name}(…) -> …`",
            )
        if self.catalogue is None:
            return name, "", None
        operator = self.catalogue.operators.get(name)
        if operator is None:
            raise unknown_operator(
                name,
                self.catalogue,
                location,
                "name the overload too; an operator that is not ATen's is declared with `func:` and "
                "its schema",
            )
        return name, "", operator.tensor_arguments

    def _declared(self) -> tuple[str, str, tuple[str, ...] | None]:
        # Of the head only: a default such as `str mode="a::b"` holds no namespace.
        head = schema_name(self.raw.func)
        namespace, colons, name = head.rpartition("::")
        schema = self.raw.func.strip().removeprefix(f"{namespace}{colons}")
        location = self._locate("func")
        if namespace and not IDENTIFIER.fullmatch(namespace):
            raise SchemaInvalid(
                f"`{namespace}` is no operator's namespace",
                location=location,
                remedy="write one word before `::`, like mylib::scale.out",
            )
        if not OPERATOR.fullmatch(name) or (colons and not namespace):
            raise SchemaInvalid(
                f"`{head}` is not an operator's name",
                location=location,
                remedy="write it like mylib::scale.out: a namespace and two colons, the name, a dot and the "
                "overload",
            )
        arguments = None if self.catalogue is None else _tensor_arguments(schema, location)
        return (
            (f"{namespace}::{name}" if namespace not in {"", "aten"} else name),
            schema,
            arguments,
        )

    # ---- its kernels

    def _differentiation(self, symbol: str) -> Kernel:
        """The entry for the function that differentiates the operator, on PyTorch's Tensors."""
        location = self._locate("autograd")
        if (obstacle := obstacle_in_function(symbol)) is not None:
            raise SyntaxInvalid(
                f"`{symbol}` is not a C++ function's qualified name{obstacle}",
                location=location,
                remedy="write it like my_namespace::my_autograd",
            )
        return Kernel(
            operator=self.operator.name,
            symbol="",
            library=self.header.library,
            location=location,
            autograd=symbol,
        )

    def _own_kernel(self, raw: ManifestEntry) -> list[Kernel]:
        """The kernel that the entry itself names."""
        of_the_kernel = {
            "dtypes": raw.dtypes,
            "dim_order": raw.dim_order,
            "rng": raw.rng,
            "attention": raw.attention,
        }
        for key, given in of_the_kernel.items():
            if given and not raw.kernel_name:
                raise SyntaxInvalid(
                    f"`{key}` describes the kernel of this entry, and none is named",
                    location=self._locate(key),
                    remedy=f"add `kernel_name: …` here, or remove `{key}`",
                )
        if not raw.kernel_name:
            return []
        if raw.kernels or raw.dispatch:
            raise SyntaxInvalid(
                "an entry names one kernel (`kernel_name`) or lists them (`kernels`)",
                location=self._locate("kernel_name"),
                remedy="move it to `kernels`, with `arg_meta: null`",
            )
        kernel = self._kernel(raw.kernel_name, (), ("kernel_name",))
        order = DimOrder(raw.dim_order) if raw.dim_order else self.header.dim_order
        rng = Rng(raw.rng) if raw.rng else None
        attention = attention_limits(self.document, self.steps, raw.attention)
        dtypes = self._declared_dtypes("dtypes", raw.dtypes)
        own = replace(kernel, dtypes=dtypes, dim_order=order, rng=rng, attention=attention)
        if isinstance(raw.on_devices, bool):
            return [replace(own, on_devices=raw.on_devices)]
        on_devices = self._declared_dtypes("on_devices", raw.on_devices)
        return [replace(own, device_dtypes=on_devices)]

    def _declared_dtypes(
        self, key: str, given: list[str] | dict[str, list[str]]
    ) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The dtypes that the kernel takes, as ``key`` declares them."""
        if key not in self.document.at(*self.steps):
            return ()
        raw = self.raw
        location = self._locate(key)
        declared = given if isinstance(given, dict) else {"": given}
        if not all([declared, *declared.values()]):
            raise KernelRejected(
                f"this kernel for `{self.operator.name}` takes nothing: a list of dtypes is empty",
                location=location,
                remedy=f"name the dtypes that it takes, or leave `{key}` out where it takes all",
            )
        for argument in declared:
            if argument:
                self._check_argument(argument, self._locate(key, argument))
        aliases = {**self.header.type_alias, **raw.type_alias}
        return tuple(
            (argument, expand_dtypes(names, aliases, location))
            for argument, names in declared.items()
        )

    def _check_argument(self, argument: str, location: Location) -> None:
        if self.arguments is not None and argument not in self.arguments:
            raise KernelRejected(
                f"`{self.operator.name}` has no Tensor argument `{argument}`"
                f"{nearest(argument, self.arguments)}",
                location=location,
                remedy=f"its Tensor arguments are {', '.join(self.arguments) or 'none'}",
            )

    def _kernel(self, name: str, arg_meta: tuple[ArgMeta, ...], steps: tuple[Step, ...]) -> Kernel:
        where = ("kernel_name",) if steps[0] == "kernels" else ()
        location = self._locate(*steps, *where)
        *namespaces, function = name.split("::")
        obstacle = obstacle_in_function(name)
        if obstacle is not None or len(namespaces) > _MOST_NAMESPACES:
            raise SyntaxInvalid(
                f"`{name}` is not a kernel's name with at most {_MOST_NAMESPACES} namespaces"
                f"{obstacle or ''}",
                location=location,
                remedy="write it like torch::executor::add_out; the function itself is then "
                "torch::executor::native::add_out",
            )
        return Kernel(
            operator=self.operator.name,
            symbol="::".join([*(namespaces or ["at"]), "native", function]),
            library=self.header.library,
            location=location,
            abi=Abi.EXECUTORCH,
            execution=Execution.HOST,
            arg_meta=arg_meta,
        )

    def _arg_meta(self, kernel: _Kernel, index: int) -> tuple[ArgMeta, ...]:
        if kernel.arg_meta is None:
            return ()
        steps: tuple[Step, ...] = ("kernels", index, "arg_meta")
        if not kernel.arg_meta:
            raise KernelRejected(
                f"this kernel of `{self.operator.name}` takes nothing: `arg_meta` names no argument",
                location=self._locate(*steps),
                remedy="write `arg_meta: null` for a kernel that takes what no other takes",
            )
        numbers: dict[str, int] = {}
        metas = []
        for argument, spec in kernel.arg_meta.items():
            location = self._locate(*steps, argument)
            self._check_argument(argument, location)
            if len(spec) != 2:
                raise SyntaxInvalid(
                    f"`{argument}` needs a name from type_alias and one from dim_order_alias, and has "
                    f"{len(spec)} names",
                    location=location,
                    remedy=f"write `{argument}: [T0, D0]`",
                )
            dtype, order = spec
            metas.append(
                ArgMeta(
                    argument=argument,
                    dtypes=self._dtypes(dtype, location),
                    dim_order=self._dim_order(order, location),
                    tied=numbers.setdefault(dtype, len(numbers)),
                )
            )
        return tuple(metas)

    def _dtypes(self, alias: str, location: Location) -> tuple[str, ...]:
        names = self._aliased(alias, self.raw.type_alias, "type_alias", "[Float]", location)
        return expand_dtypes(names, {}, self._locate("type_alias", alias))

    def _dim_order(self, alias: str, location: Location) -> tuple[int, ...]:
        dims = self._aliased(alias, self.raw.dim_order_alias, "dim_order_alias", "[0, 1]", location)
        try:
            order = tuple(int(dim) for dim in dims)
        except ValueError:
            order = ()
        if sorted(order) != list(range(len(dims))):
            raise KernelRejected(
                f"`{alias}` is no dim order: [{', '.join(str(dim) for dim in dims)}]",
                location=self._locate("dim_order_alias", alias),
                remedy="write each dimension from 0 on once, outermost first: [0, 1, 2, 3], or "
                "[0, 2, 3, 1] for channels last",
            )
        return order

    def _aliased(
        self,
        alias: str,
        aliases: Mapping[str, Sequence[Any]],
        key: str,
        example: str,
        location: Location,
    ) -> Sequence[Any]:
        if alias not in aliases:
            raise KernelRejected(
                f"this entry's {key} has no `{alias}`{nearest(alias, aliases)}",
                location=location,
                remedy=f"write `{key}: {{{alias}: {example}}}` in the same entry",
            )
        if not aliases[alias]:
            raise KernelRejected(
                f"`{alias}` stands for nothing, so this kernel takes nothing",
                location=self._locate(key, alias),
                remedy=f"write something like `{alias}: {example}`",
            )
        return aliases[alias]


def _overlap(first: tuple[ArgMeta, ...], second: tuple[ArgMeta, ...]) -> bool:
    """Whether some call could go to either kernel."""
    if {each.argument: each.dim_order for each in first} != {
        each.argument: each.dim_order for each in second
    }:
        return False
    # Arguments tied in either kernel have one dtype, which every one of them must take.
    kinds = {
        (side, each.tied): set(each.dtypes) for side in (0, 1) for each in (first, second)[side]
    }
    sets: list[tuple[set[tuple[int, int]], set[str]]] = [({key}, kinds[key]) for key in kinds]
    matching = {each.argument: each for each in second}
    for each in first:
        pair = {(0, each.tied), (1, matching[each.argument].tied)}
        joined = [group for group in sets if group[0] & pair]
        sets = [group for group in sets if not group[0] & pair]
        sets.append(
            (
                set().union(*(keys for keys, _ in joined)),
                set.intersection(*(dtypes for _, dtypes in joined)),
            )
        )
    return all(dtypes for _, dtypes in sets)


def _tensor_arguments(schema: str, location: Location) -> tuple[str, ...]:
    from opsmith.schema.torch_names import FunctionSchema

    try:
        parsed = FunctionSchema.parse(schema)
    except Exception as error:  # torchgen reports a bad schema by assertions and by ValueErrors
        reason = str(error).strip().splitlines()
        raise SchemaInvalid(
            f"`{schema}` is no schema" + (f": {reason[0]}" if reason else ""),
            location=location,
            remedy="write it as native_functions.yaml does: scale.out(Tensor self, float factor, *, "
            "Tensor(a!) out) -> Tensor(a!)",
        ) from None
    return tuple(
        argument.name for argument in parsed.arguments.flat_all if argument.type.is_tensor_like()
    )
