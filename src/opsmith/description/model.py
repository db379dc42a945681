"""A backend as its author described it, validated and immutable.

Nothing here decides a route: that is the plan's.  Each value remembers the place in the YAML that it
came from, so that the plan can name it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from opsmith.description.rng import Rng
from opsmith.errors import Location
from opsmith.schema import Declaration


class Abi(Enum):
    """The form that a kernel has."""

    ATEN = "aten"
    """A C++ function on ``at::Tensor``."""
    EXECUTORCH = "executorch"
    """A C++ function on ExecuTorch's lean tensors, with its ``KernelRuntimeContext&`` first."""
    PYTHON = "python"
    """A Python callable."""
    TRITON = "triton"
    """A function of Triton's in a Python module, or one that launches such functions."""
    TVM_FFI = "tvm_ffi"
    """A function of tvm-ffi's C ABI on DLPack's Tensors, of a shared library or made in Python."""

    @property
    def is_python(self) -> bool:
        """Whether its kernels are called in Python, and registered when the device is loaded."""
        return self in (Abi.PYTHON, Abi.TRITON, Abi.TVM_FFI)


class Execution(Enum):
    """Where a kernel's code runs."""

    DEVICE = "device"
    """It enqueues work on the device's current stream."""
    HOST = "host"
    """It computes on the calling thread, through the driver's host window."""
    COPIES = "copies"
    """The plan's for ``HOST`` where the driver has no host window: it is given copies in host memory."""
    FALLBACK = "fallback"
    """It has the CPU compute, as the fallback does, and is the fallback policy's to allow."""


class DimOrder(Enum):
    """Which layouts of dense Tensors an ExecuTorch kernel takes where its ``arg_meta`` does not say."""

    CONTIGUOUS = "contiguous"
    """The last dimension innermost; others are copied for it."""
    ANY = "any"
    """Any order of the dimensions in memory: the kernel goes by strides."""


class Derive(Enum):
    """On which of a group's kernels its missing variants are built."""

    CHEAPEST = "cheapest"
    """The one that costs the least, by the plan's own order."""
    FUNCTIONAL = "functional"
    """The functional kernel, where there is one."""
    OUT = "out"
    """The out kernel, where there is one."""
    NOTHING = "nothing"
    """None: a variant without a kernel of its own is not built on this library's kernels."""


class Inductor(Enum):
    """The code that ``torch.compile`` generates for a device."""

    CPP = "cpp"
    """The C++ that it generates for the CPU, on the bytes behind the host window."""
    TRITON = "triton"
    """Kernels of Triton's, by a backend of Triton's for the device."""
    EAGER_KERNELS = "eager-kernels"
    """Fused kernels where a library has one for them; whatever else is called runs the backend's kernels."""


@dataclass(frozen=True)
class Triton:
    """The use of Triton by ``torch.compile``: the name of Triton's ``backend`` for the device, and classes.

    Each class is ``module:Class``, and Inductor's own where there is none: what schedules and writes
    kernels, what writes a graph's Python and its C++, and what it says in both to be on a device.
    """

    backend: str
    scheduling: str = "torch._inductor.codegen.triton:TritonScheduling"
    wrapper: str = "torch._inductor.codegen.wrapper:PythonWrapperCodegen"
    cpp_wrapper: str = ""
    device_ops: str = ""


class Precision(Enum):
    """In which dtype ``torch.autocast`` has an operator run."""

    LOWER = "lower_precision"
    """In that of the autocast: its floating Tensors are cast to it."""
    FLOAT32 = "float32"
    """In float32: they are cast to it, or the operator is told that its result has that dtype."""
    WIDEST = "widest"
    """In the widest dtype among them."""
    UNCHANGED = "unchanged"
    """As it is called."""


class FallbackDefault(Enum):
    """The default for operators that nothing else serves."""

    CPU = "cpu"
    NONE = "none"


class AttentionFeature(Enum):
    """A feature of scaled dot-product attention that a call may ask for and a kernel need not have."""

    DROPOUT = "dropout"
    """Weights that are left out at random."""
    MASK = "mask"
    """A mask, which comes as a Tensor that is added to the scores."""
    MASK_GRADIENT = "mask_gradient"
    """The gradient of such a Tensor."""
    CAUSAL = "causal"
    """Queries that see no later keys."""
    GROUPED_HEADS = "grouped_heads"
    """Fewer heads of keys and values than of queries."""
    OTHER_VALUE_DIM = "other_value_dim"
    """Values of another dim than the keys'."""


@dataclass(frozen=True)
class AttentionLimits:
    """Which calls of scaled dot-product attention a kernel takes, beside its dtypes.

    ``most_head_dim``, where given, and ``head_dim_multiple`` are of queries' and keys' last dimension;
    ``without`` is what the kernel has not.
    """

    most_head_dim: int | None = None
    head_dim_multiple: int = 1
    without: tuple[AttentionFeature, ...] = ()


@dataclass(frozen=True)
class ArgMeta:
    """The Tensors that an ExecuTorch kernel takes for one argument: one of ``dtypes``, in one dim order.

    Arguments of one kernel with the same ``tied`` number have the same dtype.
    """

    argument: str
    dtypes: tuple[str, ...]
    dim_order: tuple[int, ...]
    tied: int


@dataclass(frozen=True)
class StubKernel:
    """A function that fills the ``DispatchStub`` ``stub`` of PyTorch for the device.

    ``dtypes`` are those that it computes in, ``ScalarType`` names; empty: all.
    """

    stub: str
    symbol: str
    library: str
    location: Location
    dtypes: tuple[str, ...] = ()
    execution: Execution = Execution.DEVICE


class TritonForm(Enum):
    """The kind of function of Triton's that a manifest names for an operator."""

    LAUNCHER = "launcher"
    """A Python function with the operator's arguments, which launches Triton's functions."""
    FUNCTION = "function"
    """A ``@triton.jit`` function on pointers, launched over a grid."""
    ELEMENTS = "elements"
    """A ``@triton.jit`` function of one element of each operand, which returns the result's."""


@dataclass(frozen=True)
class TritonLaunch:
    """The launch of a kernel of Triton's: the object ``name`` of ``module``, a file or the name of a module.

    ``arguments`` are a function's parameters that are no arguments of the operator, and ``grid`` the
    programs along up to three axes, as expressions of ints (:mod:`opsmith.description.launch_expressions`).
    ``options`` are passed by keyword: ``constexpr`` parameters, and what Triton's compiler takes, such as
    ``num_warps``.
    """

    module: str
    name: str
    form: TritonForm
    arguments: tuple[tuple[str, str], ...] = ()
    grid: tuple[str, ...] = ()
    options: tuple[tuple[str, bool | int | float | str], ...] = ()


SHARED_LIBRARY = (".so", ".dylib", ".dll")
"""The ends of the names of shared libraries."""


@dataclass(frozen=True)
class TvmFunction:
    """The function ``name`` of tvm-ffi's in ``module``: a shared library, a file or a module of Python.

    Without a module it is one of the registry's.  ``arguments`` are those of the operator that it is given,
    in its order; empty: all.  ``device_type`` is DLPack's, of a device's Tensors.
    """

    module: str
    name: str
    arguments: tuple[str, ...] = ()
    device_type: str = "ext_dev"


@dataclass(frozen=True)
class Kernel:
    """One implementation of one operator.

    ``dtypes`` maps an argument to the c10 ``ScalarType`` names (``Float``, ``Long``, …) that the
    kernel takes there; the key ``""`` stands for the dtype in which the kernel computes, or, of an
    ExecuTorch kernel, for the one that all its Tensor arguments share.  Empty: all.
    ``device_guard``: the caller checks that all Tensors share a device and makes it current.
    ``derive`` says whether, and with which preference, other variants are built on it.
    ``symint``: the C++ signature takes ``c10::SymInt`` where the schema does.
    ``fails_over``: calls that it refuses at run time (``opsmith::unsupported``) run on the CPU.
    ``rng`` says which generator it draws from, if any: a backend with another one leaves it out.
    ``on_devices``: devices have it, and not ExecuTorch alone; ``device_dtypes``, where given, is what
    ``dtypes`` is on them.
    ``capture``: what it does on the host it hands to ``opsmith::on_host``, so that graphs can record it.

    Of a structured kernel, ``meta_symbol`` names the function that checks and shapes in the place of
    PyTorch's own; a kernel that ``casts`` takes a TensorIterator whose operands do not have the common
    dtype.

    ``autograd`` names a function for the autograd dispatch key (it calls a
    ``torch::autograd::Function``); ``backward`` one that computes the gradients of the inputs, around
    which such a function is generated; ``saves`` names the results that it is given, None standing for
    all of them.  ``symbol`` is empty where only ``autograd`` or ``backward`` is given.

    ``class_name``, where given, is the C++ class of which the functions are static members, as torchgen
    has it; their symbols begin with it.  ``arg_meta`` holds the arguments' dtypes and dim orders of an
    ExecuTorch kernel, and is empty for one that takes all that no other takes; ``dim_order`` says which
    layouts it takes then, and which a function of tvm-ffi's takes.

    ``through`` is not empty where the kernel is PyTorch's own and these do its work; ``symbol`` is then
    a function of libtorch or, where ``structured``, a class.

    ``attention`` is what a kernel for scaled dot-product attention says of the calls that it takes.
    ``launch`` is given for kernels of Triton's, ``function`` for those of tvm-ffi's.
    """

    operator: str
    symbol: str
    library: str
    location: Location
    abi: Abi = Abi.ATEN
    structured: bool = False
    meta_symbol: str = ""
    casts: bool = False
    dtypes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    execution: Execution = Execution.DEVICE
    device_guard: bool = True
    symint: bool = False
    autograd: str = ""
    backward: str = ""
    saves: tuple[str, ...] | None = None
    derive: Derive = Derive.CHEAPEST
    fails_over: bool = False
    rng: Rng | None = None
    capture: bool = False
    class_name: str = ""
    arg_meta: tuple[ArgMeta, ...] = ()
    dim_order: DimOrder = DimOrder.CONTIGUOUS
    through: tuple[StubKernel, ...] = ()
    attention: AttentionLimits | None = None
    on_devices: bool = True
    device_dtypes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    launch: TritonLaunch | None = None
    function: TvmFunction | None = None

    @property
    def resizes_out(self) -> bool:
        """Whether it can give ``out`` another shape; not a function that has no more than its memory."""
        on_pointers = self.launch is not None and self.launch.form is TritonForm.FUNCTION
        return not (on_pointers or self.function is not None)


@dataclass(frozen=True)
class ExecutorchOperator:
    """The facts about one operator in ExecuTorch's YAML, beside its kernels.

    ``schema`` is empty for an operator of ATen, named by ``op``; ``func`` gives it.
    """

    name: str
    location: Location
    schema: str = ""
    variants: tuple[str, ...] = ("function",)
    tags: tuple[str, ...] = ()
    cpp_no_default_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unserved:
    """Something in a description that opsmith reads and does not act on, and why.

    ``name`` is an operator's, or the key's where the whole key is meant.
    """

    name: str
    location: Location
    reason: str


@dataclass(frozen=True)
class GivenMeta:
    """The shapes of an operator's results that a description gives, for all its variants.

    For an operator of ATen it takes the place of PyTorch's meta kernel in derived code.  Either
    ``same_as``, the argument that each result is like, or ``symbols``, a C++ function that makes them of meta
    tensors, and another one for results that go into an ``out``, where these are other ones.
    """

    operator: str
    location: Location
    same_as: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExternalNamespace:
    """Who defines the operators of ``namespace``: Python ``modules``, where they are installed.

    The functional variants' meta kernels and gradients are theirs.
    """

    namespace: str
    modules: tuple[str, ...]
    location: Location


@dataclass(frozen=True)
class BuildOptions:
    """The options with which sources are compiled and linked, beside opsmith's own.

    ``libraries`` are names, as the linker takes them after ``-l``, or files.
    """

    compile_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    libraries: tuple[str | Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """The libraries that are files."""
        return tuple(each for each in self.libraries if isinstance(each, Path))


@dataclass(frozen=True)
class FusedKernel:
    """A library's kernel whose source Inductor writes: the operators that take it and that run it.

    ``dtypes`` are those of the elements that it reads and writes, as ``ScalarType`` names.
    """

    make: str
    run: str
    dtypes: tuple[str, ...]


@dataclass(frozen=True)
class Library:
    """A kernel library: a named set of kernels with the sources that define them.

    ``executorch`` is of files in ExecuTorch's format only.
    ``operators`` are the custom operators that it declares, with or without a kernel.  ``vectorised``
    are sources that are compiled once for each instruction set; ``meta_sources``, of a library whose
    kernels know nothing of PyTorch, define the functions that its ``metas`` name.
    ``external_namespaces`` are those of operators that it implements and others define.
    ``on_devices`` is whether devices have its kernels too, beside ExecuTorch.  ``modules`` are the files that
    kernels called in Python lie in.
    """

    name: str
    location: Location
    abi: Abi = Abi.ATEN
    execution: Execution = Execution.DEVICE
    on_devices: bool = True
    sources: tuple[Path, ...] = ()
    vectorised: tuple[Path, ...] = ()
    meta_sources: tuple[Path, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    executorch: tuple[ExecutorchOperator, ...] = ()
    unserved: tuple[Unserved, ...] = ()
    stubs: tuple[StubKernel, ...] = ()
    operators: tuple[Declaration, ...] = ()
    metas: tuple[GivenMeta, ...] = ()
    external_namespaces: tuple[ExternalNamespace, ...] = ()
    fused_kernel: FusedKernel | None = None
    options: BuildOptions = BuildOptions()
    modules: tuple[Path, ...] = ()


@dataclass(frozen=True)
class PythonDriver:
    """A driver's class in Python: ``name`` in a file, or in a module that can be imported."""

    source: Path | str
    name: str

    def __str__(self) -> str:
        return f"{self.source}:{self.name}"


@dataclass(frozen=True)
class Driver:
    """The device's C library: ready built (``library``), or from ``sources``.

    With ``python`` the sources are opsmith's own, which that class stands behind.
    """

    location: Location
    library: Path | None = None
    sources: tuple[Path, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    host_window: bool = True
    window_is_hidden: bool = False
    """Whether there would be one if ``OPSMITH_HOST_WINDOW`` were not off."""
    python: PythonDriver | None = None
    options: BuildOptions = BuildOptions()


@dataclass(frozen=True)
class NamedOperator:
    """An operator's name where the description mentions it."""

    name: str
    location: Location


@dataclass(frozen=True)
class Fallback:
    """The fallback policy: ``only``, where given, allows nothing else; ``deny`` forbids.

    ``intercept`` are composites that are to be run by one call of the fallback instead of being decomposed;
    ``intercept_auto``, where given, is the place that leaves it to the plan which others are.
    """

    location: Location
    default: FallbackDefault = FallbackDefault.CPU
    only: tuple[NamedOperator, ...] | None = None
    deny: tuple[NamedOperator, ...] = ()
    intercept: tuple[NamedOperator, ...] = ()
    intercept_auto: Location | None = None


@dataclass(frozen=True)
class HostKernels:
    """The policy for kernels that run on the host: all are denied, or those of the operators in ``deny``."""

    location: Location
    denies_all: bool = False
    deny: tuple[NamedOperator, ...] = ()


@dataclass(frozen=True)
class Autocast:
    """The behaviour of ``torch.autocast`` on the device where it is not that of PyTorch's own lists.

    ``dtypes`` are those to which it may cast, the default first, as ``ScalarType`` names.
    """

    dtypes: tuple[str, ...] = ("Half", "BFloat16")
    operators: tuple[tuple[NamedOperator, Precision], ...] = ()


@dataclass(frozen=True)
class Backend:
    """A device name, a driver, kernel libraries in order of preference, and a fallback policy.

    ``libraries`` ends with ``runtime``, the operators that every device needs.  ``rng`` and its place:
    which random numbers the device's generators give.  ``inductor`` is None where the plan chooses;
    ``triton`` is there with ``Inductor.TRITON``.  ``triton_is_interpreted``: Triton's kernels run on the
    host.
    """

    name: str
    location: Location
    driver: Driver
    libraries: tuple[Library, ...]
    fallback: Fallback
    host_kernels: HostKernels
    rng: Rng
    rng_location: Location
    inductor: Inductor | None
    inductor_location: Location
    triton: Triton | None = None
    triton_is_interpreted: bool = True
    autocast: Autocast = Autocast()
    files: tuple[Path, ...] = field(default=())
    """The YAML files that were read, for cache keys."""

    @property
    def lean_libraries(self) -> tuple[Library, ...]:
        """Its libraries with kernels on lean tensors, in order of preference."""
        return tuple(library for library in self.libraries if library.abi is Abi.EXECUTORCH)

    @property
    def executorch_libraries(self) -> tuple[Library, ...]:
        """Those that serve ExecuTorch too: its Tensors lie in host memory."""
        return tuple(each for each in self.lean_libraries if each.execution is Execution.HOST)

    @property
    def on_devices(self) -> Backend:
        """The backend with those of its libraries, and of their kernels, that devices have."""
        return replace(
            self,
            libraries=tuple(
                replace(
                    each,
                    kernels=tuple(
                        replace(k, dtypes=k.device_dtypes) if k.device_dtypes else k
                        for k in each.kernels
                        if k.on_devices
                    ),
                )
                for each in self.libraries
                if each.on_devices
            ),
        )

    @property
    def calls_python(self) -> bool:
        """Whether kernels of a library are called in Python."""
        return any(each.abi.is_python for each in self.libraries)

    @property
    def compiled(self) -> Backend:
        """The backend without the libraries whose kernels are called in Python."""
        return replace(
            self, libraries=tuple(each for each in self.libraries if not each.abi.is_python)
        )

    @property
    def operators(self) -> tuple[Declaration, ...]:
        """The custom operators that its libraries declare."""
        return tuple(declared for library in self.libraries for declared in library.operators)
