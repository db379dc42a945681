"""Composites that are intercepted against the CPU: values, gradients, and when their parts are called.

Once for each mode of the fallback.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves, tree_map

import opsmith
from opsmith.plan import Route
from opsmith.runtime.records.calls import record_calls

sys.path.insert(0, str(Path(__file__).parents[3] / "tools" / "find_parts"))
from samples import calls_by_hand, databases

pytestmark = pytest.mark.isolated(
    OPSMITH_TEST_BACKEND=("windowed", "copying"), nightly=("copying",), opinfo=True
)

MODE = os.environ["OPSMITH_TEST_BACKEND"]
LOADED = opsmith.load(str(Path(__file__).with_name(f"{MODE}.yaml")))
INTERCEPTED = {entry.name for entry in LOADED.plan.entries if entry.interception}
DEVICE = "chip"


def counted(call: Callable[[], Any]) -> tuple[Any, dict[str, int], int]:
    """The result of ``call``, the composites intercepted in it, and how often it fell back."""
    with record_calls() as recorded:
        result = call()
    intercepted = {
        name: calls for name, calls in recorded.calls.by_operator.items() if name in INTERCEPTED
    }
    return result, intercepted, recorded.calls.by_route(LOADED.plan)[Route.FALLBACK]


def data(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) + 0.1


def on_device(*shape: int) -> Tensor:
    return data(*shape).to(DEVICE)


# ---- every composite that OpInfo reaches


def copied(arguments: Any, device: str) -> Any:
    def copy(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.detach().clone().to(device).requires_grad_(leaf.requires_grad)
        return torch.device(device) if isinstance(leaf, torch.device) else leaf

    return tree_map(copy, arguments)


def outcome(call: Callable[[], Any]) -> Any:
    """The result of the call, or the exception that it raises."""
    torch.default_generator.manual_seed(0)  # torch.manual_seed takes half a millisecond
    torch.get_device_module(DEVICE).manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except Exception as error:
        return error


def difference(
    expected: Any, result: Any, *, arguments: bool = False, devices: Sequence[str] = (DEVICE,)
) -> str:
    """How ``result`` differs from what the CPU gave; empty where it does not."""
    for one, other in zip(tree_leaves(expected), tree_leaves(result), strict=True):
        if not isinstance(one, Tensor):
            if one != other and one == one:
                return f"{other} for {one}"
            continue
        if (one.shape, one.stride()) != (other.shape, other.stride()):
            return f"{other.shape} {other.stride()} for {one.shape} {one.stride()}"
        if other.device.type not in devices:
            return f"a Tensor on {other.device}"
        # One call counts one change, where the parts may count several.
        if arguments and (one._version > 0) != (other._version > 0):
            return f"version {other._version} for {one._version}"
        try:
            torch.testing.assert_close(
                other.detach().cpu(), one.detach(), equal_nan=True, rtol=1e-4, atol=1e-4
            )
        except AssertionError as error:
            return str(error)
    return ""


def gradients(result: Any, arguments: Any) -> Any:
    leaves = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
    outputs = [leaf for leaf in outputs if leaf.requires_grad]
    if not wanted or not outputs:
        return None
    ones = [torch.ones_like(leaf) for leaf in outputs]
    return torch.autograd.grad(outputs, wanted, ones, allow_unused=True)


class Comparison:
    """Calls of OpInfo's entries on both devices, as far as they intercept a composite."""

    def __init__(self) -> None:
        self.differences: list[str] = []
        self.one_call: set[str] = set()
        self.seen: Counter[str] = Counter()

    def compare(
        self, name: str, call: Callable[..., Any], samples: list[Any], *, grad: bool
    ) -> None:
        """Compares the calls with ``samples``: with all, if one of the first two intercepted a composite."""
        if any([self._compare(name, call, sample, grad) for sample in samples[:2]]):
            for sample in samples[2:]:
                self._compare(name, call, sample, grad)

    def _compare(self, name: str, call: Callable[..., Any], arguments: Any, grad: bool) -> bool:
        here, there = copied(arguments, "cpu"), copied(arguments, DEVICE)
        with torch.set_grad_enabled(grad), ExitStack() as same_way:
            result, intercepted, falls = counted(lambda: outcome(lambda: call(*there)))
            if not intercepted:
                return False
            if "_scaled_dot_product_attention_math" in intercepted:
                # The CPU has a kernel for attention as a whole, whose gradients lie otherwise.
                same_way.enter_context(sdpa_kernel(SDPBackend.MATH))
            expected = outcome(lambda: call(*here))
        self.seen.update(intercepted)
        if falls == 1 and len(intercepted) == 1:
            self.one_call |= intercepted.keys()
        flaw = self._flaw(expected, result) or difference(here, there, arguments=True)
        if grad and not flaw and not isinstance(result, Exception):
            wanted = outcome(lambda: gradients(expected, here))
            found = outcome(lambda: gradients(result, there))
            flaw = self._flaw(wanted, found)
        if flaw:
            self.differences.append(f"{name}, {', '.join(intercepted)}, {grad=}: {flaw}")
        return True

    @staticmethod
    def _flaw(expected: Any, result: Any) -> str:
        if isinstance(expected, Exception) or isinstance(result, Exception):
            return "" if type(expected) is type(result) else f"{result!r} for {expected!r}"
        return difference(expected, result)


DTYPES = (torch.float32, torch.int64, torch.complex64)
SAMPLES = 4

# Composites that are only called by others.
WITHIN_OTHERS = {"_fused_rms_norm", "_scaled_dot_product_attention_math", "linalg_pinv"}

# With one dim, PyTorch's composite never writes to ``out``.
OUT_FORGOTTEN = {"fft.ihfft2", "fft.ihfftn"}


def called(function: Any) -> Callable[..., Any]:
    return lambda first, rest, options: function(first, *rest, **options)


def ways_to_call(info: Any, differentiable: bool) -> list[tuple[Callable[..., Any], bool]]:
    """The functions of an OpInfo entry and of its aliases; True where the gradient is wanted."""
    ways = [(called(info.op), True)] if differentiable else []
    for alias in (info, *info.aliases):
        ways.append((called(alias.op), False))
        if alias.inplace_variant is not None:
            ways.append((called(alias.inplace_variant), False))
    return ways


def with_out(info: Any, arguments: Any) -> Any:
    """``arguments`` with ``out=`` in the shape of the result; None where the CPU takes none."""
    first, rest, options = arguments
    result = outcome(lambda: info.op(first, *rest, **options))
    if isinstance(result, Exception):
        return None
    out = tree_map(
        lambda leaf: torch.zeros_like(leaf) if isinstance(leaf, Tensor) else leaf, result
    )
    return first, rest, {**options, "out": out}


def compare_entry(info: Any, comparison: Comparison) -> None:
    for dtype in DTYPES:
        if dtype not in info.supported_dtypes("cpu"):
            continue
        differentiable = dtype is torch.float32 and info.supports_autograd
        torch.manual_seed(0)
        # Not info.sample_inputs(), which looks through the stack for a test with each sample.
        samples = info.sample_inputs_func(info, "cpu", dtype, differentiable)
        arguments = [
            (s.input, s.args, s.kwargs) for _, s in zip(range(SAMPLES), samples, strict=False)
        ]
        for call, grad in ways_to_call(info, differentiable):
            comparison.compare(info.name, call, arguments, grad=grad)
        if info.supports_out and info.name not in OUT_FORGOTTEN:
            with torch.no_grad():
                outs = [with_out(info, each) for each in arguments]
            for alias in (info, *info.aliases):
                given = [each for each in outs if each is not None]
                comparison.compare(info.name, called(alias.op), given, grad=False)


def test_all_composites_that_opinfo_reaches() -> None:
    comparison = Comparison()
    for info in databases():
        compare_entry(info, comparison)
    assert comparison.differences == []
    assert len(comparison.seen) > 240
    # An intercepted composite that another one calls is seen for itself only where a gradient is needed.
    assert sorted(comparison.seen.keys() - comparison.one_call) == sorted(WITHIN_OTHERS)


def test_all_composites_that_opinfo_does_not_reach() -> None:
    differences = []
    one_call: set[str] = set()
    for here, there in zip(calls_by_hand("cpu"), calls_by_hand(DEVICE), strict=True):
        expected = outcome(here)
        result, intercepted, falls = counted(lambda there=there: outcome(there))
        # The samples' own making is counted too: a module's first state, a vector of zeros or of steps.
        one_call |= intercepted.keys() if falls <= 3 else set()
        if isinstance(expected, Exception) or isinstance(result, Exception):
            if type(expected) is not type(result):
                differences.append(f"{result!r} for {expected!r}")
        # Packed sequences have their lengths on the CPU.
        elif flaw := difference(expected, result, devices=("cpu", DEVICE)):
            differences.append(f"{', '.join(intercepted)}: {flaw}")
    assert differences == []
    assert {"gru.input", "lstm.input", "rnn_tanh.input", "quantile", "vander"} <= one_call


# ---- when the parts are called


def parts_of(call: Callable[[], Any]) -> tuple[Any, int]:
    """The result of ``call``, and how often it falls back."""
    result, _, falls = counted(call)
    return result, falls


def similarity(x: Tensor, y: Tensor) -> Tensor:
    return torch.cosine_similarity(x, y, dim=-1)


def test_gradients_come_from_the_parts() -> None:
    x, y = data(3, 4).double(), data(4, 3).mT.double()
    here = [each.clone().requires_grad_() for each in (x, y)]
    there = [each.to(DEVICE).requires_grad_() for each in (x, y)]
    result, falls = parts_of(lambda: similarity(*there))
    assert falls > 1
    assert result.requires_grad
    expected = torch.autograd.grad(similarity(*here).sum(), here)
    for one, other in zip(torch.autograd.grad(result.sum(), there), expected, strict=True):
        torch.testing.assert_close(one.cpu(), other)
    assert torch.autograd.gradcheck(similarity, there)
    assert torch.autograd.gradgradcheck(similarity, there)
    # One argument that needs a gradient is enough; none is, and no_grad() is as good.
    assert similarity(there[0], y.to(DEVICE)).requires_grad
    assert parts_of(lambda: similarity(x.to(DEVICE), y.to(DEVICE)))[1] == 1
    with torch.no_grad():
        result, falls = parts_of(lambda: similarity(*there))
    assert (falls, result.requires_grad) == (1, False)


def test_gradients_of_explicit_composites_are_pytorchs_formulas() -> None:
    tensors = [on_device(3).requires_grad_() for _ in range(4)]
    results, falls = parts_of(lambda: torch._foreach_mul(tensors, 3.0))
    assert falls == 1
    sum(result.square().sum() for result in results).backward()
    for tensor in tensors:
        torch.testing.assert_close(tensor.grad, 18 * tensor.detach())


def test_optimisers_with_lists_of_tensors() -> None:
    here = [data(3, 2).requires_grad_() for _ in range(3)]
    there = [each.detach().to(DEVICE).requires_grad_() for each in here]
    for optimiser, leaves in (
        (kind(each), each) for kind in (torch.optim.Adam,) for each in (here, there)
    ):
        for group in optimiser.param_groups:
            group["foreach"] = True
        for _ in range(3):
            optimiser.zero_grad()
            sum(leaf.square().sum() for leaf in leaves).backward()
            optimiser.step()
    for one, other in zip(there, here, strict=True):
        torch.testing.assert_close(one.detach().cpu(), other.detach())


def test_forward_mode_gradients() -> None:
    x, tangent = data(3, 4), data(3, 4) * 2

    def derivative(device: str) -> Tensor:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x.to(device), tangent.to(device))
            result = similarity(dual, data(3, 4).flip(0).to(device))
            return torch.autograd.forward_ad.unpack_dual(result).tangent

    torch.testing.assert_close(derivative(DEVICE).cpu(), derivative("cpu"))


@pytest.fixture
def autocast() -> Iterator[None]:
    """Lets operators that autocast has no rule for through, and has it cast for one, `mm`."""
    key = "AutocastPrivateUse1"
    fallback = torch.library.Library("_", "IMPL", key)
    if not torch._C._dispatch_has_backend_fallback(torch._C._parse_dispatch_key(key)):
        fallback.fallback(torch.library.fallthrough_kernel, key)
    rules = torch.library.Library("aten", "IMPL", key)
    if not torch._C._dispatch_has_kernel_for_dispatch_key("aten::mm", key):

        def mm(left: Tensor, right: Tensor) -> Tensor:
            with torch._C._ExcludeDispatchKeyGuard(
                torch._C.DispatchKeySet(torch._C._parse_dispatch_key(key))
            ):
                return torch.mm(left.bfloat16(), right.bfloat16())

        rules.impl("mm", mm)
    yield
    rules._destroy()
    fallback._destroy()


@pytest.mark.usefixtures("autocast")
def test_autocast_reaches_the_parts() -> None:
    x, y = on_device(3, 4), on_device(4, 3)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        result, falls = parts_of(lambda: torch.linalg.multi_dot([x, y, x]))
    assert result.dtype is torch.bfloat16
    assert falls > 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result, falls = parts_of(lambda: torch.linalg.multi_dot([x, y, x]))
    assert (result.dtype, falls) == (torch.float32, 1)


def test_vmap() -> None:
    x, y = data(5, 3, 4), data(3, 4)
    expected = torch.vmap(similarity, in_dims=(0, None))(x, y)
    result = torch.vmap(similarity, in_dims=(0, None))(x.to(DEVICE), y.to(DEVICE))
    torch.testing.assert_close(result.cpu(), expected)
    grads = torch.vmap(torch.func.grad(lambda a, b: similarity(a, b).sum()), in_dims=(0, None))
    torch.testing.assert_close(grads(x.to(DEVICE), y.to(DEVICE)).cpu(), grads(x, y))
    jacobian = torch.func.jacfwd(similarity)
    torch.testing.assert_close(jacobian(x[0].to(DEVICE), y.to(DEVICE)).cpu(), jacobian(x[0], y))


def test_tracers_see_the_parts() -> None:
    x, y = on_device(3, 4), on_device(4, 3).mT
    traced = make_fx(similarity)(x, y)
    called = {str(node.target) for node in traced.graph.nodes if node.op == "call_function"}
    assert "aten.cosine_similarity.default" not in called
    assert "aten.linalg_vector_norm.default" in called
    torch.testing.assert_close(traced(x, y), similarity(x, y))
    fake = make_fx(similarity, tracing_mode="fake")(x, y)
    assert {str(node.target) for node in fake.graph.nodes if node.op == "call_function"} == called
    functional = make_fx(torch.func.functionalize(similarity))(x, y)
    torch.testing.assert_close(functional(x, y), similarity(x, y))
    scripted = torch.jit.trace(similarity, (x, y), check_trace=False)
    torch.testing.assert_close(scripted(x + 1, y), similarity(x + 1, y))


def test_tracers_get_the_decompositions_that_are_written_in_python() -> None:
    def called(device: str) -> list[str]:
        indices = torch.arange(4, device=device)
        with enable_python_dispatcher():
            traced = make_fx(lambda x: torch.nn.functional.one_hot(x, 6), tracing_mode="fake")(
                indices
            )
        return [str(node.target) for node in traced.graph.nodes if node.op == "call_function"]

    assert called(DEVICE) == called("cpu") != []


def test_compiled_code_trains() -> None:
    compiled = torch.compile(similarity, backend="aot_eager", dynamic=True)
    for rows in (3, 5):
        here = [data(rows, 4).requires_grad_(), data(rows, 4).flip(0).requires_grad_()]
        there = [each.detach().to(DEVICE).requires_grad_() for each in here]
        expected, result = similarity(*here), compiled(*there)
        torch.testing.assert_close(result.detach().cpu(), expected.detach())
        wanted = torch.autograd.grad(expected.sum(), here)
        for one, other in zip(torch.autograd.grad(result.sum(), there), wanted, strict=True):
            torch.testing.assert_close(one.cpu(), other)
        with torch.no_grad():
            torch.testing.assert_close(compiled(*there).cpu(), expected.detach())


def test_exported_programs_keep_the_composite() -> None:
    """PyTorch takes what has a kernel for the device for a primitive, which runs whole."""

    class Module(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.linalg.multi_dot([x, x.mT, x])

    x = on_device(3, 4)
    program = torch.export.export(Module(), (x,)).run_decompositions()
    assert "linalg_multi_dot" in program.graph_module.code
    result, falls = parts_of(lambda: program.module()(x))
    torch.testing.assert_close(result, Module()(x))
    assert falls == 1


def test_a_subclass_of_tensor_sees_the_parts() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    pair = TwoTensor(on_device(3, 4), on_device(3, 4) + 1)
    result = similarity(pair, pair)
    assert isinstance(result, TwoTensor)
    torch.testing.assert_close(result.a.cpu(), similarity(data(3, 4), data(3, 4)))


def test_inference_mode() -> None:
    x = on_device(3, 4)
    with torch.inference_mode():
        result, falls = parts_of(lambda: similarity(x, x))
        assert (falls, result.is_inference()) == (1, True)
        version = x._version
        torch._foreach_add_([x, x], 1.0)
        assert x._version > version
        tensors = [on_device(2), on_device(3)]
        torch._foreach_add_(tensors, 1.0)
    with pytest.raises(
        RuntimeError, match="Inplace update to inference tensor outside InferenceMode"
    ):
        torch._foreach_add_(tensors, 1.0)


def test_changes_are_counted() -> None:
    x = on_device(3)
    doubled = (x.requires_grad_() * x).sum()
    with torch.no_grad():
        torch._foreach_add_([x], 1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        doubled.backward()
    out = torch.empty(0, device=DEVICE)
    factor = on_device(3).requires_grad_()
    product = (out.resize_(3) * factor).sum()
    left, right = on_device(3, 4), on_device(4)
    _, falls = parts_of(lambda: torch.linalg.multi_dot([left, left.mT, left, right], out=out))
    assert falls == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_out_takes_no_gradient() -> None:
    x = on_device(3, 3).requires_grad_()
    out = torch.empty(3, 3, device=DEVICE)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        torch.linalg.multi_dot([x, x, x], out=out)
    with torch.no_grad():
        assert parts_of(lambda: torch.linalg.multi_dot([x, x, x], out=out))[1] == 1
    torch.testing.assert_close(out.cpu(), torch.linalg.matrix_power(data(3, 3), 3))


def test_a_result_that_is_a_view_stays_one() -> None:
    x = on_device(3, 4)
    view = torch.einsum("ij->ji", x)
    assert view._is_view()
    assert view._base is x
    view.add_(1)
    assert x._version == view._version == 1
    torch.testing.assert_close(x.cpu(), data(3, 4) + 1)


def test_tensors_on_the_cpu_beside_the_devices() -> None:
    inputs, targets = data(6, 2, 5).log_softmax(2), torch.ones(2, 3, dtype=torch.long)
    lengths = torch.full((2,), 6), torch.full((2,), 3)
    expected = torch.nn.functional.ctc_loss(inputs, targets, *lengths)
    result = torch.nn.functional.ctc_loss(inputs.to(DEVICE), targets.to(DEVICE), *lengths)
    torch.testing.assert_close(result.cpu(), expected)
    with pytest.raises(RuntimeError, match="device"):
        similarity(on_device(3, 4), data(3, 4))
    with pytest.raises(RuntimeError, match=r"chip:0.*chip:1|same device"):
        similarity(on_device(3, 4), data(3, 4).to("chip:1"))


def test_dropout_draws_from_the_devices_generator() -> None:
    query = on_device(1, 2, 3, 4)

    def attention(dropout: float) -> Tensor:
        torch.get_device_module(DEVICE).manual_seed(3)
        return torch.nn.functional.scaled_dot_product_attention(
            query, query, query, dropout_p=dropout
        )

    state = torch.get_rng_state()
    first, falls = parts_of(lambda: attention(0.5))
    assert falls > 1
    assert torch.equal(first.cpu(), attention(0.5).cpu())
    assert torch.equal(torch.get_rng_state(), state)
    assert parts_of(lambda: attention(0.0))[1] == 1


def test_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    x = on_device(8, 4)
    expected = similarity(data(8, 4), data(8, 4).flip(0))

    def work(needs_grad: bool) -> bool:
        other = data(8, 4).flip(0).to(DEVICE).requires_grad_(needs_grad)
        results = [similarity(x, other) for _ in range(50)]
        return all(
            r.requires_grad is needs_grad and torch.allclose(r.detach().cpu(), expected)
            for r in results
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, [True, False] * 4))
