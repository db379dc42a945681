"""Python kernels on sim: every derivation against the CPU with one Python call each, and every refusal."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

import opsmith
from fell_back import fell_back
from opsmith.build.toolchain import find_python
from opsmith.errors import (
    KernelDuplicate,
    KernelRejected,
    OperatorUnknown,
    OpsmithError,
    PythonHeadersMissing,
)
from opsmith.plan import Derivation, Route
from opsmith.schema import torch_version
from refusal import refusal

pytestmark = pytest.mark.needs("Python.h")

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

aten = torch.ops.aten
HERE = Path(__file__)


def to(device: str, value: Any) -> Any:
    """Tensors on the device, numbers and others as they are."""
    return value.to(device) if isinstance(value, Tensor) else value


class OnHost:
    """A kernel of any operator: the functional one, run on the CPU; it counts its calls.

    ``outputs`` names the arguments that it writes to; ``self`` is the first one.
    """

    def __init__(self, functional: Callable[..., Any], *outputs: str) -> None:
        self.functional = functional
        self.outputs = outputs
        self.calls = 0
        self.dtypes: tuple[torch.dtype, ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        written = [args[0] if name == "self" else kwargs.pop(name) for name in self.outputs]
        self.dtypes = tuple(value.dtype for value in args if isinstance(value, Tensor))
        results = self.functional(
            *(to("cpu", value) for value in args),
            **{name: to("cpu", value) for name, value in kwargs.items()},
        )
        results = results if isinstance(results, tuple) else (results,)
        if not written:
            moved = tuple(to("sim", result) for result in results)
            return moved if len(moved) > 1 else moved[0]
        for result, tensor in zip(results, written, strict=True):
            assert tensor.shape == result.shape
            # cumsum's meta function goes by the dtype of `out`.
            assert tensor.dtype == result.dtype or self.functional is aten.cumsum
            tensor.copy_(result)
        return None


@contextmanager
def registered(sim: LoadedBackend, name: str, kernel: OnHost, **options: Any) -> Iterator[OnHost]:
    register = sim.structured if options.pop("structured", False) else sim.kernel
    with register(name, **options)(kernel):
        yield kernel


def compare(call: Callable[..., Any], *arguments: Any) -> None:
    """The call does on the device what it does on the CPU: results, and what it leaves in the arguments."""
    on_cpu = [value.clone() if isinstance(value, Tensor) else value for value in arguments]
    on_sim = [to("sim", value) for value in arguments]
    error: Exception | None = None
    try:
        theirs = call(*on_cpu)
    except (RuntimeError, IndexError) as raised:
        error = raised
    if error is not None:
        with pytest.raises(type(error)):
            call(*on_sim)
        return
    ours = call(*on_sim)
    for mine, other in zip(flat((ours, on_sim)), flat((theirs, on_cpu)), strict=True):
        torch.testing.assert_close(mine.cpu(), other, equal_nan=True)


def flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return (
        [tensor for one in value for tensor in flat(one)]
        if isinstance(value, (tuple, list))
        else []
    )


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
ROW = Y[0].clone()
INT = torch.arange(12).reshape(3, 4)

# The kernel; then for each operator that it must serve: how, and calls with arguments made for the CPU.
CASES: dict[str, tuple[OnHost, dict[str, Any], dict[str, tuple[str, list[tuple[Any, ...]]]]]] = {
    "add.out": (
        OnHost(aten.add.Tensor, "out"),
        {},
        {
            "add.Tensor": (
                "FUNCTIONAL_FROM_OUT",
                [
                    (torch.add, X, Y),
                    (torch.add, X, ROW),
                    (torch.add, X, 2),
                    (torch.add, INT, 0.5),
                    (torch.add, INT, X),
                    (torch.add, X, Y.double()),
                    (torch.add, X.T, Y.T),
                ],
            ),
            "add_.Tensor": (
                "INPLACE_FROM_OUT",
                [
                    (Tensor.add_, X, Y),
                    (Tensor.add_, X, ROW),
                    (Tensor.add_, ROW, X),
                    (Tensor.add_, X, Y.double()),
                    (Tensor.add_, INT, X),
                    (Tensor.add_, X, 2),
                ],
            ),
            "add.out": (
                "KERNEL",
                [
                    (lambda x, y, out: torch.add(x, y, alpha=3, out=out), X, Y, torch.empty(3, 4)),
                    (
                        lambda x, y, out: torch.add(x, y, out=out),
                        X,
                        INT,
                        torch.empty(3, 4).double(),
                    ),
                    (lambda x, y, out: torch.add(x, y, out=out), X, ROW, torch.empty(0)),
                    (lambda x, y, out: torch.add(x, y, out=out), X, ROW, torch.empty(3, 4).int()),
                ],
            ),
        },
    ),
    "lt.Tensor_out": (
        OnHost(aten.lt.Tensor, "out"),
        {},
        {
            "lt.Tensor": (
                "FUNCTIONAL_FROM_OUT",
                [(torch.lt, X, Y), (torch.lt, INT, X), (torch.lt, X, ROW)],
            ),
            "lt_.Tensor": ("INPLACE_FROM_OUT", [(Tensor.lt_, X, Y), (Tensor.lt_, INT, X)]),
        },
    ),
    "addmm.out": (
        OnHost(aten.addmm, "out"),
        {},
        {
            "addmm": ("FUNCTIONAL_FROM_OUT", [(torch.addmm, torch.ones(3), X, torch.ones(4, 3))]),
            "addmm_": (
                "INPLACE_FROM_OUT_TEMPORARY",
                [(Tensor.addmm_, torch.ones(3, 3), X, Y.T.contiguous())],
            ),
        },
    ),
    "topk.values": (
        OnHost(aten.topk, "values", "indices"),
        {},
        {"topk": ("FUNCTIONAL_FROM_OUT", [(lambda x: tuple(torch.topk(x, 2)), X)])},
    ),
    "logit.out": (
        OnHost(aten.logit, "out"),
        {},
        {
            "logit": (
                "FUNCTIONAL_FROM_OUT",
                [(torch.logit, X.abs() / 4), (torch.logit, INT / 20, 0.1)],
            )
        },
    ),
    "mish": (
        OnHost(aten.mish),
        {},
        {
            "mish": ("KERNEL", [(aten.mish, X)]),
            "mish_": ("INPLACE_FROM_FUNCTIONAL", [(aten.mish_, X)]),
            "mish.out": (
                "OUT_FROM_FUNCTIONAL",
                [(lambda x, out: aten.mish.out(x, out=out), X, torch.empty(3, 4))],
            ),
        },
    ),
    "mul.Tensor": (
        OnHost(aten.mul.Tensor),
        {},
        {"mul.Tensor": ("KERNEL", [(torch.mul, X, Y), (torch.mul, X, 2), (torch.mul, INT, X)])},
    ),
    "std_mean.correction": (
        OnHost(aten.std_mean.correction),
        {},
        {
            "std_mean.correction": ("KERNEL", [(torch.std_mean, X, 0)]),
            "std_mean.correction_out": (
                "OUT_FROM_FUNCTIONAL",
                [
                    (
                        lambda x, a, b: aten.std_mean.correction_out(x, [1], out0=a, out1=b),
                        *(X, torch.empty(3), torch.empty(3)),
                    )
                ],
            ),
        },
    ),
    "erfinv_": (
        OnHost(aten.erfinv, "self"),
        {},
        {
            "erfinv": ("FUNCTIONAL_FROM_INPLACE", [(torch.erfinv, X / 5), (torch.erfinv, INT)]),
            "erfinv.out": (
                "OUT_FROM_INPLACE",
                [
                    (lambda x, out: torch.erfinv(x, out=out), X / 5, torch.empty(3, 4)),
                    (lambda x, out: torch.erfinv(x, out=out), X / 5, torch.empty(3, 4).double()),
                ],
            ),
            "erfinv_": ("KERNEL", [(Tensor.erfinv_, X / 5), (Tensor.erfinv_, INT)]),
        },
    ),
    "maximum": (
        OnHost(aten.maximum, "out"),
        {"structured": True},
        {
            "maximum": ("STRUCTURED", [(torch.maximum, X, Y), (torch.maximum, INT, X)]),
            "maximum.out": (
                "STRUCTURED",
                [(lambda x, y, out: torch.maximum(x, y, out=out), X, ROW, torch.empty(3, 4))],
            ),
        },
    ),
    "atan2": (
        OnHost(aten.atan2, "out"),
        {"structured": True},
        {
            "atan2": ("STRUCTURED", [(torch.atan2, X, Y), (torch.atan2, INT, INT)]),
            "atan2_": ("STRUCTURED", [(Tensor.atan2_, X, ROW), (Tensor.atan2_, INT, INT)]),
        },
    ),
    "cumsum": (
        OnHost(aten.cumsum, "out"),
        {"structured": True},
        {
            "cumsum": ("STRUCTURED", [(torch.cumsum, X, 1), (torch.cumsum, INT, 0)]),
            "cumsum_": ("STRUCTURED", [(Tensor.cumsum_, X, 1)]),
            "cumsum.out": (
                "STRUCTURED",
                [
                    (lambda x, out: torch.cumsum(x, 1, out=out), X, torch.empty(3, 4)),
                    (lambda x, out: torch.cumsum(x, 1, out=out), X, torch.empty(3, 4).double()),
                ],
            ),
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_each_variant_agrees_with_the_cpu_at_one_python_call(sim: LoadedBackend, name: str) -> None:
    kernel, options, served = CASES[name]
    with registered(sim, name, kernel, **dict(options)):
        for operator, (how, calls) in served.items():
            entry = sim.plan.entry(operator)
            assert (entry.derivation.name if entry.derivation else entry.route.name) == how
            for call, *arguments in calls:
                kernel.calls = 0
                raised = False
                try:
                    call(*(a.clone() if isinstance(a, Tensor) else a for a in arguments))
                except RuntimeError:
                    raised = True
                compare(call, *arguments)
                assert kernel.calls == (0 if raised else 1)


def test_the_cases_cover_every_derivation() -> None:
    tested = {how for _, _, served in CASES.values() for how, _ in served.values()}
    assert {one.name for one in Derivation} <= tested


def test_operands_arrive_in_the_common_dtype(sim: LoadedBackend) -> None:
    x, i = X.to("sim"), INT.to("sim")
    with registered(sim, "mul.out", OnHost(aten.mul.Tensor, "out")) as kernel:
        _ = i * x
        assert kernel.dtypes == (torch.float32, torch.float32)
        _ = i * 0.5
        assert kernel.dtypes == (torch.float32, torch.float32)
        _ = x * 2
        assert kernel.dtypes == (torch.float32, torch.float32)
    with registered(sim, "lt.Tensor_out", OnHost(aten.lt.Tensor, "out")) as kernel:
        _ = i < x
        assert kernel.dtypes == (torch.float32, torch.float32)
    with registered(sim, "mul.Tensor", OnHost(aten.mul.Tensor), casts=True) as kernel:
        _ = i * x
        assert kernel.dtypes == (torch.int64, torch.float32)


def test_an_operator_whose_result_nothing_foretells(sim: LoadedBackend) -> None:
    def index(self: Tensor, indices: list[Tensor | None]) -> Tensor:
        return self.cpu()[indices[0].cpu()].to(self.device)

    with sim.kernel("index.Tensor")(index):
        x = torch.arange(4.0, device="sim")
        assert x[torch.tensor([3, 1], device="sim")].tolist() == [3, 1]


def test_no_operand_is_conjugated_or_negated_or_a_zero_tensor(sim: LoadedBackend) -> None:
    def dot(self: Tensor, tensor: Tensor) -> Tensor:
        assert not any(each.is_conj() or each._is_zerotensor() for each in (self, tensor))
        return (self * tensor).sum()

    with sim.kernel("dot")(dot):
        values = torch.complex(X[0], Y[0])
        compare(lambda x: torch.dot(x.conj(), x), values)
        compare(lambda x: torch.dot(x, torch._efficientzerotensor(x.shape, device=x.device)), X[0])

    def solve(self: Tensor, B: Tensor, *, upper: bool, left: bool, unitriangular: bool) -> Tensor:  # noqa: N803
        assert not (self.is_neg() or B.is_neg())
        return torch.linalg.solve_triangular(self.cpu(), B.cpu(), upper=upper).to("sim")

    with sim.kernel("linalg_solve_triangular")(solve):
        triangle = torch.eye(3) + torch.ones(3, 3).triu()
        compare(
            lambda a, b: torch.linalg.solve_triangular(torch._neg_view(a), b, upper=True),
            triangle,
            X,
        )


def test_partial_overlap_is_refused(sim: LoadedBackend) -> None:
    base = torch.zeros(5, device="sim")
    with (
        registered(sim, "add.out", OnHost(aten.add.Tensor, "out")),
        pytest.raises(RuntimeError, match="unsupported operation: some elements of the input"),
    ):
        base[1:].add_(base[:-1])


def test_mixed_devices_are_refused(sim: LoadedBackend) -> None:
    x = X.to("sim")
    with registered(sim, "add.out", OnHost(aten.add.Tensor, "out")) as kernel:
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            torch.add(x, X)
        with pytest.raises(RuntimeError, match="at least two devices, sim:0 and sim:1"):
            torch.add(x, X.to("sim:1"))
        torch.add(X.to("sim:1"), 1)
    assert kernel.calls == 1


def test_the_device_of_the_operands_is_current(sim: LoadedBackend) -> None:
    seen = []

    with sim.kernel("relu")(lambda self: (seen.append(torch.sim.current_device()), self + 0)[1]):
        assert torch.relu(torch.ones(2, device="sim:1")).device == torch.device("sim:1")
    assert seen == [1]


def test_arguments_arrive_as_python_knows_them(sim: LoadedBackend) -> None:
    seen: list[Any] = []

    def keep(result: Any) -> Any:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            seen[:] = [args, kwargs]
            return result

        return kernel

    x = torch.ones(2, 3, device="sim")
    with sim.kernel("_to_copy")(keep(x.clone())):
        aten._to_copy(x, dtype=torch.float32, memory_format=torch.contiguous_format)
    assert seen[1]["dtype"] is torch.float32 and seen[1]["device"] is None
    assert seen[1]["memory_format"] is torch.contiguous_format and seen[1]["non_blocking"] is False
    with sim.kernel("cat")(keep(x.repeat(2, 1))):
        torch.cat([x, x], 0)
    assert [len(seen[0][0]), seen[0][1], seen[1]] == [2, 0, {}]
    with sim.kernel("native_group_norm")(keep((x, x, x))), pytest.raises(RuntimeError):
        aten.native_group_norm(x, None, None, 2, 3, 1, 1, 0.5)
    assert seen[0][1:] == (None, None, 2, 3, 1, 1, 0.5)


# ---- dtypes


def test_other_dtypes_fall_back(sim: LoadedBackend) -> None:
    with registered(sim, "sgn", OnHost(aten.sgn), dtypes=[torch.float32]) as kernel:
        compare(torch.sgn, X)
        compare(torch.sgn, INT)
        compare(Tensor.sgn_, X.double())
        assert kernel.calls == 1
        assert sim.plan.entry("sgn").other_dtypes is Route.FALLBACK
    with registered(
        sim, "maximum", OnHost(aten.maximum, "out"), structured=True, dtypes=["Float"]
    ) as kernel:
        compare(torch.maximum, X, INT)  # computes in Float
        compare(torch.maximum, INT, INT)
        assert kernel.calls == 1


def test_other_dtypes_are_the_kernels_in_compiled_code(sim: LoadedBackend) -> None:
    with (
        registered(sim, "tan.out", OnHost(aten.tan, "out"), dtypes=[torch.float32]) as kernel,
        opsmith.count_fallbacks(callers=False) as block,
    ):
        compare(torch.tan, X)
        compare(torch.tan, X.double())
        compare(Tensor.tan_, X.half())
        assert kernel.calls == 1
        behind = sim.plan.entry("tan").next
        assert behind is not None and behind.library == "portable"
    assert fell_back(block.fallbacks) == set()


# ---- registration


def test_a_kernel_is_still_a_function(sim: LoadedBackend) -> None:
    @sim.kernel("relu")
    def double(self: int) -> int:
        """Doubles."""
        return self * 2

    with double:
        assert (double(2), double.__name__, double.__doc__) == (4, "double", "Doubles.")
        assert double.operator == "relu"
        assert re.fullmatch(r"<Python kernel of relu: .*double \(.*:\d+\)>", repr(double))


def test_removal_restores_what_served_before(
    sim: LoadedBackend, capfd: pytest.CaptureFixture[str]
) -> None:
    x = X.to("sim")
    before = {name: sim.plan.entry(name) for name in ("add.out", "add.Tensor", "add_.Tensor")}
    kernel = OnHost(aten.add.Tensor, "out")
    handle = sim.kernel("add.out")(kernel)
    _ = x + x
    assert kernel.calls == 1
    assert sim.plan.entry("add.Tensor").source == "add.out"
    handle.remove()
    handle.remove()
    _ = x + x
    torch.testing.assert_close((x + x).cpu(), X + X)
    assert kernel.calls == 1
    assert {name: sim.plan.entry(name) for name in before} == before
    captured = capfd.readouterr()
    assert "Overriding" not in captured.out + captured.err


def test_an_explicit_kernel_wins_over_a_derived_one(sim: LoadedBackend) -> None:
    x = X.to("sim")
    out, inplace = OnHost(aten.add.Tensor, "out"), OnHost(aten.add.Tensor, "self")
    first = sim.kernel("add.out")(out)
    with sim.kernel("add_.Tensor")(inplace):
        x += x
        assert (out.calls, inplace.calls) == (0, 1)
        first.remove()
        x += x
        _ = x + x
        assert (out.calls, inplace.calls) == (
            0,
            2,
        )  # the compiled structured kernel serves the functional
    x += x
    assert inplace.calls == 2
    torch.testing.assert_close(x.cpu(), X * 8)


def test_replacing(sim: LoadedBackend) -> None:
    first, second = OnHost(aten.relu), OnHost(aten.relu)
    sim.kernel("relu")(first)
    with sim.kernel("relu", replace=True)(second):
        torch.relu(X.to("sim"))
    torch.relu(X.to("sim"))
    assert (first.calls, second.calls) == (0, 1)


def test_a_kernel_that_removes_itself_while_it_runs(sim: LoadedBackend) -> None:
    def once(self: Tensor) -> Tensor:
        handle.remove()
        return self + 1

    handle = sim.kernel("neg")(once)
    x = torch.ones(2, device="sim")
    assert torch.neg(x).tolist() == [2, 2]
    assert torch.neg(x).tolist() == [-1, -1]


# ---- refusals


def kernel_of_two(self, other):  # type: ignore[no-untyped-def]
    return self


def refused(sim: LoadedBackend, kind: type[OpsmithError], name: str, **options: Any) -> str:
    """The refusal of ``kernel_of_two`` as the kernel of ``name``, with its place as ``HERE``."""
    register = sim.structured if options.pop("structured", False) else sim.kernel
    place = f"{HERE}:{kernel_of_two.__code__.co_firstlineno}"
    said = refusal(kind, lambda: register(name, **options)(kernel_of_two))
    assert said.startswith(f"{place}: ")
    return said.replace(place, "HERE")


def test_an_operator_that_does_not_exist(sim: LoadedBackend) -> None:
    assert refused(sim, OperatorUnknown, "maxmum") == (
        f"HERE: torch {torch_version()} has no operator `maxmum` "
        "(did you mean maximum, maximum.out, max?)\n"
        "  remedy: name the overload too; `opsmith plan` lists every operator"
    )


def test_parameters_that_do_not_fit(sim: LoadedBackend) -> None:
    assert refused(sim, KernelRejected, "add.out") == (
        "HERE: `test_python_kernels.kernel_of_two(self, other)` cannot be called with the "
        "arguments of `add.out`: got an unexpected keyword argument 'alpha'\n"
        "  remedy: its schema is add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> "
        "Tensor(a!); write `def kernel_of_two(self, other, *, alpha, out):`"
    )
    assert "too many positional arguments" in refused(sim, KernelRejected, "addmm.out")
    assert "missing a required argument: 'other'" in refused(sim, KernelRejected, "relu")


def test_structured_where_pytorch_has_no_meta(sim: LoadedBackend) -> None:
    with pytest.raises(KernelRejected) as caught:
        sim.structured("relu")(lambda self, out: None)
    assert str(caught.value).partition(": ")[2] == (
        "`relu.out` is not structured in PyTorch: there is no meta function to write the variants around\n"
        "  remedy: register it with `backend.kernel` and give it the operator's own signature; the other "
        "variants are derived from it"
    )


def test_a_composite_implicit_operator(sim: LoadedBackend) -> None:
    assert refused(sim, KernelRejected, "matmul") == (
        "HERE: `matmul` is CompositeImplicitAutograd: a kernel for the device would take the place of the "
        "decomposition that makes it differentiable\n"
        "  remedy: give kernels for the operators it decomposes into"
    )
    assert sim.plan.entry("matmul").route is Route.COMPOSITE


def test_a_second_kernel(sim: LoadedBackend) -> None:
    with sim.kernel("maximum")(kernel_of_two):
        assert refused(sim, KernelDuplicate, "maximum") == (
            "HERE: `maximum` already has a Python kernel, `test_python_kernels.kernel_of_two` (HERE)\n"
            "  remedy: remove that one first, with `.remove()`, or pass `replace=True`"
        )


def test_an_unknown_dtype(sim: LoadedBackend) -> None:
    assert "unknown dtype `Flot` (did you mean Float" in refused(
        sim, KernelRejected, "maximum", dtypes=["Flot"]
    )


def test_python_without_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(PythonHeadersMissing) as caught:
        find_python()
    version = ".".join(map(str, __import__("sys").version_info[:2]))
    assert str(caught.value) == (
        f"Python kernels need Python's C headers, and {tmp_path}/Python.h does not exist\n"
        f"  remedy: apt-get install python{version}-dev (Debian, Ubuntu) or dnf install "
        f"python{version}-devel (Fedora)"
    )


# ---- what a kernel returns or raises


@pytest.mark.parametrize(
    ("result", "kind", "message"),
    [
        (lambda x: None, TypeError, "None where the schema has Tensor: aten::relu(Tensor self) -> Tensor"),
        (lambda x: (x, x), TypeError, "a tuple where the schema has Tensor"),
        (lambda x: x.double(), RuntimeError, "float64[2] on sim:0, but aten::relu must return float32[2] on"),
        (lambda x: x[:1], RuntimeError, "float32[1] on sim:0, but aten::relu must return float32[2] on"),
        (lambda x: x.cpu(), RuntimeError, "float32[2] on cpu, but aten::relu must return float32[2] on sim"),
    ],
)  # fmt: skip
def test_a_wrong_result(
    sim: LoadedBackend, result: Any, kind: type[Exception], message: str
) -> None:
    def wrong(self: Tensor) -> Any:
        return result(self)

    x = torch.ones(2, device="sim")
    with sim.kernel("relu")(wrong), pytest.raises(kind) as caught:
        torch.relu(x)
    text = str(caught.value)
    assert f"returned {message}" in text
    assert re.search(r"the Python kernel `.*wrong` \(.*test_python_kernels.py:\d+\)", text)


def test_a_wrong_number_of_results(sim: LoadedBackend) -> None:
    x = torch.ones(2, device="sim")
    with sim.kernel("native_layer_norm")(lambda *_: (x, x)), pytest.raises(TypeError) as caught:
        torch.native_layer_norm(x, (2,), None, None, 1e-5)
    assert "returned 2 values where the schema has 3" in str(caught.value)


class Trouble(Exception):
    """An exception that only this test knows."""


def test_an_exception_keeps_its_type_and_traceback(sim: LoadedBackend) -> None:
    def troubled(self: Tensor) -> Tensor:
        raise Trouble("deep inside")

    with sim.kernel("relu")(troubled), pytest.raises(Trouble, match="deep inside") as caught:
        torch.relu(torch.ones(2, device="sim"))
    assert "troubled" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    torch.testing.assert_close(torch.relu(torch.ones(2, device="sim")).cpu(), torch.ones(2))


def test_a_kernel_that_calls_itself(sim: LoadedBackend) -> None:
    def add_out(self: Tensor, other: Tensor, *, alpha: float, out: Tensor) -> None:
        out.copy_(self + other)

    x = torch.ones(2, device="sim")
    with sim.kernel("add.out")(add_out), pytest.raises(RecursionError) as caught:
        _ = x + x
    assert (
        ", the kernel of aten::add.out, has called itself 50 times: an operator that it calls is served by it"
        in (str(caught.value))
    )


# ---- beside the rest of PyTorch


def test_casts_where_nothing_is_cast(sim: LoadedBackend) -> None:
    assert "PyTorch's meta function of `mm` builds none: nothing is cast for the kernel" in refused(
        sim, KernelRejected, "mm", casts=True
    )


def test_threads(sim: LoadedBackend) -> None:
    kernel = OnHost(aten.add.Tensor, "out")
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            x = torch.full((8,), float(index), device="sim")
            for _ in range(50):
                assert (x + x).tolist() == [2.0 * index] * 8
        except BaseException as error:
            failures.append(error)

    with sim.kernel("add.out")(kernel):
        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def train(device: str, steps: int = 3) -> list[float]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(
        device
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (net(X.to(device)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_through_a_python_kernel(sim: LoadedBackend) -> None:
    with registered(sim, "relu", OnHost(aten.relu)) as kernel:
        assert train("sim") == pytest.approx(train("cpu"), rel=1e-5)
    assert kernel.calls == 3


def test_gradients(sim: LoadedBackend) -> None:
    x = X.double().to("sim").requires_grad_()
    y = Y.double().to("sim").requires_grad_()
    with registered(sim, "mul.out", OnHost(aten.mul.Tensor, "out")) as kernel:
        assert torch.autograd.gradcheck(lambda a, b: a * b, (x, y), fast_mode=True)
    assert kernel.calls > 0


def test_compiled_with_aot_eager(sim: LoadedBackend) -> None:
    with registered(sim, "relu", OnHost(aten.relu)) as kernel:
        compiled = torch.compile(lambda x: torch.relu(x) * 2, backend="aot_eager")
        x = X.to("sim").requires_grad_()
        result = compiled(x)
        result.sum().backward()
        torch.testing.assert_close(result.detach().cpu(), torch.relu(X) * 2)
        assert x.grad is not None
        torch.testing.assert_close(x.grad.cpu(), (X > 0) * 2.0)
    assert kernel.calls == 1


def test_vmap(sim: LoadedBackend) -> None:
    with registered(sim, "maximum", OnHost(aten.maximum, "out"), structured=True):
        ours = torch.vmap(torch.maximum)(X.to("sim"), Y.to("sim"))
    torch.testing.assert_close(ours.cpu(), torch.maximum(X, Y))
