"""Behaviour that PyTorch's CPU leaves open, so that another device may differ: each rule with its reason."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan

import torch
from torch import Tensor

from opsmith.conformance.comparison import SampleOutcome, equal, shares_elements, tensors_in
from opsmith.conformance.fuzzing.execution import bound, written_by
from opsmith.conformance.fuzzing.program import GRAD, SETITEM, Step, refs_in

Rule = Callable[[Step, str, SampleOutcome, SampleOutcome], bool]


def is_undefined(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """Whether the CPU leaves open what ``step`` gives where it differs in ``kind``."""
    return any(rule(step, kind, ours, theirs) for rule in _RULES)


def _strided_anew(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """The CPU's kernels of paddings and pools give ``out`` new strides, though it has the right size."""
    base = step.operator.partition(".")[0]
    return kind == "stride" and bool(written_by(step)) and ("_pad" in base or "_pool" in base)


def _with_its_storage(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """PyTorch's composites that write into a copy copy all of the storage, in front of the tensor too."""
    return kind == "storage_offset" and "_scatter" in step.operator


def _casts_out_of_range(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """A float that the integer type does not hold becomes any integer: C++ says nothing of it."""
    if kind != "values":
        return False
    given = theirs.tensors[: len(theirs.versions)]
    floats = [tensor for tensor in given if tensor.is_floating_point() or tensor.is_complex()]
    integers = [
        other
        for mine, other in zip(ours.tensors, theirs.tensors, strict=True)
        if not other.is_floating_point()
        and not other.is_complex()
        and other.dtype is not torch.bool
    ]
    return any(not _holds(other.dtype, tensor) for tensor in floats for other in integers)


_PRODUCTS = {
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bilinear", "bmm", "chain_matmul", "conv1d", "conv2d",
    "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution", "cov",
    "corrcoef", "dot", "inner", "linalg_matmul", "linalg_multi_dot", "linalg_vecdot", "linear", "matmul",
    "mm", "mv", "tensordot", "vdot", "ger", "outer", "grad",
}  # fmt: skip


def _zero_of_a_sum(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """Whether a sum of products begins with zero or with the first product, BLAS leaves open.

    An element that is its mean is a zero after rounding, of either sign.
    """
    base = step.operator.partition(".")[0].rstrip("_")
    sums = _sums_products(base) or base.endswith(("_norm", "pinv", "pinverse"))
    return kind == "sign of zero" and sums


def _sums_products(base: str) -> bool:
    """Whether results of the operator are sums of products: matrices', interpolations' and transforms'."""
    return base in _PRODUCTS or base.startswith(("upsample", "fft_", "_fft_"))


def _largest_zero(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """Which of two zeros is the larger one, nothing says: not even the CPU's loops agree."""
    name = step.operator.partition(".")[0].rstrip("_")
    return kind == "sign of zero" and any(
        part in name for part in ("max", "min", "clamp", "clip", "sort")
    )


def _cast_before_strided(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """On its CPU only, PyTorch casts operands before it chooses a result's strides: casts have no gaps."""
    given = theirs.tensors[: len(theirs.versions)]
    return kind == "stride" and any(
        not tensor.is_contiguous() and tensor.dtype is not result.dtype
        for tensor in given
        for result in theirs.tensors[len(given) :]
    )


def _statistics_of_halves(
    step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome
) -> bool:
    """Saved statistics of halves are Float on all devices but the CPU: FakeTensor says so, and CUDA does."""
    return kind == "dtype" and step.operator == "native_layer_norm"


def _grown_versions(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """``out`` is written in one step or in several: that its version grows is all that autograd asks."""
    return (
        kind == "versions"
        and bool(written_by(step) & {*refs_in(step.keywords)})
        and all(
            mine > 0 or other == 0
            for mine, other in zip(ours.versions, theirs.versions, strict=True)
        )
    )


def _filled_by_a_host_scalar(
    step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome
) -> bool:
    """``a[i] = b`` fills from a ``b`` of no dimensions on the CPU, and copies from one on another device.

    ``fill_`` has what has no gradient require one.
    """
    return (
        step.operator == SETITEM
        and kind in {"requires_grad", "is_leaf"}
        and not ours.tensors[0].requires_grad
    )


_REFUSED_ELSEWHERE = (
    # Some of the CPU's kernels write one element of an expanded tensor over another.
    "more than one element of the written-to",
    # With a mask and a value of one element on the CPU, PyTorch fills, and need not look for an overlap.
    "some elements of the input tensor and the written-to tensor refer to a single memory location",
    "Index put requires the source and destination dtypes match",
    # max.unary_out does not ask for elements, as max does, and gives what the memory held.
    "Expected reduction dim to be specified for input.numel() == 0",
    # native_batch_norm on the CPU reads parameters beyond their end; batch_norm refuses them everywhere.
    " elements not ",
    # PyTorch's CPU fails an assertion of its own, where there are elements.
    "at least one index is needed",
    # An in-place comparison makes whole numbers require a gradient; assigning them is copying on any device,
    # and filling on the CPU, where nothing asks for their dtype.
    "Autograd not support dtype",
)


def _gradient_of_a_filled_tensor(
    step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome
) -> bool:
    """``a[i] = 0`` fills on the CPU and copies elsewhere, as above: gradients are zeros with the strides of
    what came in, or contiguous ones.
    """
    return (
        kind == "stride"
        and step.operator == GRAD
        and all(
            mine.stride() == other.stride() or (mine.is_contiguous() and not other.any())
            for mine, other in zip(ours.tensors, theirs.tensors, strict=True)
        )
    )


def _formatted_by_one_dnn(
    step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome
) -> bool:
    """Of images with three dimensions, the CPU keeps channels last where oneDNN computes: it is left large
    batches and windows.  PyTorch's meta kernel says that they are kept.
    """
    return (
        kind == "stride"
        and step.operator.partition(".")[0] in {"conv3d", "conv_transpose3d", "convolution", "grad"}
        and theirs.tensors[-1].is_contiguous()
        and any(_has_channels_last(tensor) for tensor in ours.tensors[len(ours.versions) :])
    )


def _has_channels_last(tensor: Tensor) -> bool:
    image = tensor if tensor.dim() == 5 else tensor[None]
    return image.dim() == 5 and image.is_contiguous(memory_format=torch.channels_last_3d)


def _gradient_of_a_group_norm(
    step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome
) -> bool:
    """PyTorch's formula makes what it is given contiguous, on any device but the CPU and CUDA."""
    return (
        kind == "stride"
        and step.operator == GRAD
        and "NativeGroupNormBackward0" in _formulas(theirs.tensors[0])
        and all(
            mine.stride() == other.stride() or mine.is_contiguous()
            for mine, other in zip(ours.tensors, theirs.tensors, strict=True)
        )
    )


def _formulas(tensor: Tensor) -> set[str]:
    """The names of what autograd calls for the gradient of ``tensor``."""
    waiting, seen = [tensor.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
    return {node.name() for node in seen}


def _strides_over_one_element(
    step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome
) -> bool:
    """The CPU convolves one spatial dimension as two, one of which has one element: a gradient's strides over
    dimensions of one element are what comes of that.
    """
    return (
        kind == "stride"
        and step.operator == GRAD
        and "ConvolutionBackward0" in _formulas(theirs.tensors[0])
        and all(
            size == 1 or mine_stride == other_stride
            for mine, other in zip(ours.tensors, theirs.tensors, strict=True)
            for size, mine_stride, other_stride in zip(
                other.shape, mine.stride(), other.stride(), strict=True
            )
        )
    )


_OTHERWISE_RAISED = (
    # One of PyTorch's own assertions.
    "Could this error message be improved?",
    # An index out of range, which index_select finds in another way where all is contiguous.
    "INDICES element is out of DATA bounds",
)


def _asserted(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """Where the CPU's error is of a type that says nothing of the call."""
    return kind == "type of error" and any(text in str(theirs.result) for text in _OTHERWISE_RAISED)


def _refused_with_reason(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """PyTorch refuses such calls on any device; its CPU does not notice, or not before another error.

    Among them are numbers that a dtype does not hold, which fill tensors of one element only.
    """
    one = step.operator.startswith("fill") and theirs.tensors[0].numel() == 1
    if kind == "error only on the device" and one and "without overflow" in str(ours.result):
        return True
    return kind in {"error only on the device", "type of error"} and any(
        text in str(ours.result) for text in _REFUSED_ELSEWHERE
    )


_TAKEN_ELSEWHERE = (
    # PyTorch fills where a mask has one value for all, on its CPU: filling refuses the masks of bytes that
    # index assignment takes.
    "masked_fill_ only supports boolean masks, but got mask with dtype unsigned char",
    # The gradient of a real number that is filled into a complex tensor.
    "input_is_complex == grad_is_complex",
    # A Fourier transform of no elements, over a dimension that has some.
    "MKL FFT error",
    # The gradient of group_norm without a weight and without elements: a bug of its own.
    "tensor does not have a device",
)


def _taken_with_reason(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """Only PyTorch's CPU refuses such calls.

    Among them are histograms of whole numbers, which are for devices, and gradients of a layer norm with a
    bias of another dtype and no weight, which its own forward kernel takes.
    """
    if kind != "error only on the CPU":
        return False
    counts = (
        step.operator.partition(".")[0] == "histc" and not theirs.tensors[0].is_floating_point()
    )
    mixed = step.operator == GRAD and "NativeLayerNormBackward0" in _formulas(theirs.tensors[0])
    return (
        counts
        or (mixed and "expected scalar type" in str(theirs.result))
        or any(text in str(theirs.result) for text in _TAKEN_ELSEWHERE)
    )


def _composed_elsewhere(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """PyTorch has kernels of its CPU's own for these, and composes them elsewhere: other strides, fewer
    checks of dimensions and numbers, and ``ldexp`` by a power of two, which may be infinite where the product
    is not.
    """
    base = step.operator.partition(".")[0].rstrip("_")
    if base == "ldexp":
        return kind in {"stride", "values", "sign of zero", "error only on the CPU"}
    if base == "linear":  # into an `out` that is not contiguous
        return kind == "error only on the CPU" and bool(written_by(step))
    if base == "addr":
        return kind in {"stride", "error only on the CPU"}
    return kind == "stride" and base == "max_pool1d"


def _negative_of_the_least_integer(
    step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome
) -> bool:
    """PyTorch's CPU subtracts by adding ``-alpha``, which no integer holds where alpha is the least one."""
    return kind == "values" and -(2**63) in (*step.arguments, *dict(step.keywords).values())


def _scaled_otherwise_than_sized(
    step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome
) -> bool:
    """Where a scale and a size contradict each other, the CPU's kernels for two layouts do too."""
    given = (*step.arguments, *dict(step.keywords).values())
    return (
        kind == "values"
        and step.operator.startswith("upsample_nearest")
        and any(isinstance(value, float) for value in given)
    )


def _written_twice(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """Of two results that are to go into one tensor, either may be the last."""
    written = [ref for ref in refs_in(step.keywords) if ref in written_by(step)]
    return len(written) > len({*written})


def _overlaps_itself(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """Elements that share their memory are written in any order, and read before or after."""
    return kind in {"values", "sign of zero", "bytes around"} and any(
        shares_elements(theirs.tensors[index])
        for index in range(len(theirs.versions))
        if theirs.versions[index]
    )


def _median_of_expanded(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """PyTorch's CPU looks for the median of an expanded tensor in memory beside it."""
    found = kind in {"values", "sign of zero"}
    return found and "median" in step.operator and shares_elements(theirs.tensors[0])


def _padded_by_what_is_padded(
    step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome
) -> bool:
    """A circular padding that is longer than what its negative other side has left is copied from memory that
    nothing was written to yet.
    """
    given = (*step.arguments, *dict(step.keywords).values())
    circular = step.operator == "_pad_circular" or "circular" in given
    pads = next((value for value in given if isinstance(value, list)), [])
    return (
        kind in {"values", "sign of zero"}
        and circular
        and any(
            low < 0 < high or high < 0 < low
            for low, high in zip(pads[::2], pads[1::2], strict=False)
        )
    )


def _polynomial_of_no_number(
    step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome
) -> bool:
    """PyTorch's CPU returns of NaN, in some of its polynomials, a variable that nothing was assigned to."""
    given = (*step.arguments, *dict(step.keywords).values())
    return (
        kind == "values"
        and "_polynomial_" in step.operator
        and (
            any(bool(tensor.isnan().any()) for tensor in theirs.tensors[: len(theirs.versions)])
            or any(isinstance(value, float) and isnan(value) for value in given)
        )
    )


def _beyond_its_memory(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """PyTorch's CPU gives what these operators write contiguous strides without a look at its memory."""
    return kind == "unreadable" and any(
        part in step.operator for part in ("log_sigmoid_forward", "_pad")
    )


def _first_of_nothing(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """The first 0 elements of a tensor without dimensions are one: whatever the memory held."""
    return (
        kind in {"values", "unreadable"}
        and step.operator.partition(".")[0] == "topk"
        and theirs.tensors[0].dim() == 0
    )


def _order_of_equals(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """Elements that are equal come in any order, unless the sort is to be stable."""
    base = step.operator.partition(".")[0]
    given = bound(step) if base in {"sort", "argsort", "topk"} else {}
    if kind != "values" or not given or given.get("stable") or theirs.versions[0]:
        return False
    (*_, mine), (*_, other) = (tensors_in(each.result) for each in (ours, theirs))
    dim, mine = given["dim"], mine.cpu()
    once = mine.dim() == 0 or bool((mine.sort(dim).values.diff(dim=dim) > 0).all())
    operand = theirs.tensors[0].detach()
    return once and equal(operand.gather(dim, mine), operand.gather(dim, other))


def _inverse_of_rounding(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """A pseudo-inverse whose tolerance lets in singular values that are rounding errors, is made of these."""
    return (
        kind == "values"
        and step.operator == GRAD
        and "LinalgPinvBackward0" in _formulas(theirs.tensors[0])
        and any(
            bool((tensor.abs() > 1 / torch.finfo(tensor.dtype).eps).any())
            for tensor in tensors_in(theirs.result)
        )
    )


def _root_of_a_cancelled_sum(
    step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome
) -> bool:
    """A distance by products of matrices, the CPU's too, is the root of what squares leave of each other: of
    points that are near each other, the root of their rounding errors.
    """
    if kind != "values" or step.operator != "cdist" or bound(step)["p"] != 2:
        return False
    mine, other = (each.tensors[-1].detach().cpu().double() for each in (ours, theirs))
    points = [each.detach() for each in theirs.tensors[:2] if each.numel()]
    squares = max((float(each.abs().amax()) ** 2 for each in points), default=0.0)
    error = 64 * torch.finfo(theirs.tensors[-1].dtype).eps * squares
    return bool(torch.isclose(mine.square(), other.square(), 1e-4, error, equal_nan=True).all())


def _truth_of_a_cast(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """Whether all, or any, of some fractions are true: into an ``out`` of bytes, PyTorch's CPU
    makes bytes of the fractions first.
    """
    return (
        kind == "values"
        and step.operator.partition(".")[0] in {"all", "any"}
        and theirs.tensors[-1].dtype is torch.uint8
        and theirs.tensors[0].dtype not in {torch.uint8, torch.bool}
    )


def _moments_of_infinity(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """The mean and deviation of infinite numbers are infinite or no numbers, by the way they are summed."""
    return (
        kind == "values"
        and any(part in step.operator for part in ("norm", "var", "std"))
        and _are_close_where_finite(ours, theirs)
    )


def _products_that_are_no_numbers(
    step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome
) -> bool:
    """Whether NaN and infinity meet a zero of the padding, of alpha, of an interpolation or of a root of
    unity, or are left out, BLAS and Fourier transforms leave open.
    """
    base = step.operator.partition(".")[0].rstrip("_")
    return kind == "values" and _sums_products(base) and _are_close_where_finite(ours, theirs)


def _place_that_is_no_number(
    step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome
) -> bool:
    """Which pixel a place is at that is no number, C++ leaves open: it is a cast out of range."""
    return (
        kind in {"values", "sign of zero"}
        and "grid_sampler" in step.operator
        and not all(bool(tensor.isfinite().all()) for tensor in theirs.tensors[:2])
    )


def _are_close_where_finite(ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    return all(
        _close_where_finite(mine.detach().cpu(), other.detach())
        for mine, other in zip(ours.tensors, theirs.tensors, strict=True)
    )


def _close_where_finite(mine: Tensor, other: Tensor) -> bool:
    if other.is_complex():
        mine, other = (
            torch.view_as_real(mine.resolve_conj()),
            torch.view_as_real(other.resolve_conj()),
        )
    if not other.is_floating_point():
        return torch.equal(mine, other)
    close = torch.isclose(mine.double(), other.double(), 1e-2, 1e-2)
    return bool((close | ~(mine.isfinite() & other.isfinite())).all())


def _gelu_of_infinity(step: Step, kind: str, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
    """It is infinite; oneDNN, which computes it on some CPUs, multiplies infinity by a zero."""
    is_gelu = step.operator.partition(".")[0].rstrip("_") == "gelu"
    return kind == "values" and is_gelu and _are_close_where_finite(ours, theirs)


def _holds(dtype: torch.dtype, tensor: Tensor) -> bool:
    info = torch.iinfo(dtype)
    numbers = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    numbers = numbers.detach().double()
    return bool(((numbers > float(info.min) - 1) & (numbers < float(info.max) + 1)).all())


_RULES: tuple[Rule, ...] = (
    _strided_anew,
    _with_its_storage,
    _casts_out_of_range,
    _zero_of_a_sum,
    _largest_zero,
    _cast_before_strided,
    _statistics_of_halves,
    _gelu_of_infinity,
    _grown_versions,
    _filled_by_a_host_scalar,
    _gradient_of_a_filled_tensor,
    _formatted_by_one_dnn,
    _gradient_of_a_group_norm,
    _asserted,
    _strides_over_one_element,
    _refused_with_reason,
    _taken_with_reason,
    _composed_elsewhere,
    _negative_of_the_least_integer,
    _scaled_otherwise_than_sized,
    _written_twice,
    _overlaps_itself,
    _median_of_expanded,
    _padded_by_what_is_padded,
    _polynomial_of_no_number,
    _beyond_its_memory,
    _first_of_nothing,
    _order_of_equals,
    _inverse_of_rounding,
    _truth_of_a_cast,
    _root_of_a_cancelled_sum,
    _products_that_are_no_numbers,
    _place_that_is_no_number,
    _moments_of_infinity,
)
