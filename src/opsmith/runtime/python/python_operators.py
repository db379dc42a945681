"""Custom operators whose kernel is a Python function.

Defines them with ``torch.library``, like any custom operator of PyTorch: the schema, the fake
implementation and the autograd formula are its.  Only the device's kernel and the variants derived from it
come from :mod:`opsmith.runtime.python.python_kernels`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from opsmith.description import check_callable, location_of, parameters_of
from opsmith.errors import KernelDuplicate, KernelRejected, Location, nearest
from opsmith.runtime.python.overloads import overload_of
from opsmith.runtime.python.python_kernels import PythonKernels
from opsmith.schema import Operator, Variant, declarations_of, group_declared, torch_names


class PythonOperator:
    """A custom operator; calling it calls the operator, as ``torch.ops.myop.scale`` does."""

    def __init__(self, function: Callable[..., Any], operator: Operator) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = operator.name
        self._backward: Callable[..., Any] | None = None
        self._setup_context: Callable[..., None] | None = None

    @property
    def overload(self) -> Any:
        """PyTorch's own object for it, e.g. ``torch.ops.myop.scale.default``."""
        return overload_of(self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.overload(*args, **kwargs)

    def backward(
        self,
        function: Callable[..., Any] | None = None,
        *,
        setup_context: Callable[..., None] | None = None,
    ) -> Callable[..., Any]:
        """Decorates the function that computes gradients, as ``torch.library.register_autograd`` takes it.

        ``function(ctx, *gradients)`` returns a gradient or None for each argument;
        ``setup_context(ctx, inputs, output)`` saves what it needs.
        """
        if function is None:
            return functools.partial(self.backward, setup_context=setup_context)
        self._backward, self._setup_context = function, setup_context
        return function

    def _saved(self, ctx: Any, inputs: tuple[Any, ...], output: Any, **keywords: Any) -> None:
        if self._setup_context is not None:
            self._setup_context(ctx=ctx, inputs=inputs, output=output, **keywords)

    def _gradients(self, ctx: Any, *gradients: Any) -> Any:
        if self._backward is None:
            raise NotImplementedError(
                f"derivative for {self.name} is not implemented\n"
                f"  remedy: give it one with `@{self.function.__name__}.backward`, or `autograd=` a "
                "torch.autograd.Function"
            )
        return self._backward(ctx, *gradients)


def declare(
    kernels: PythonKernels,
    schema: str,
    function: Callable[..., Any],
    same_as: str | None,
    fake: Callable[..., Any] | None,
    autograd: type[torch.autograd.Function] | None,
    inplace: bool,
) -> PythonOperator:
    """Defines the operator with its variants; see :meth:`LoadedBackend.operator`."""
    location = location_of(function)
    declarations = declarations_of(schema, inplace, location)
    _, operators = group_declared(kernels.catalogue, declarations)
    functional = operators[0]
    check_callable(function, functional.schema, functional.name, location)
    shaped = _fake(functional, same_as, fake, location)
    for operator in operators:
        if _exists(operator):
            raise KernelDuplicate(
                f"PyTorch already has an operator `{operator.name}`",
                location=location,
                remedy="choose another name, or give that one a kernel: "
                f'`@backend.kernel("{operator.name}")`',
            )
    library = torch.library.Library(functional.namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    _libraries.append(library)
    declared = PythonOperator(function, functional)
    try:
        for operator in operators:
            tags = tuple(getattr(torch.Tag, tag) for tag in operator.tags)
            library.define(operator.schema, tags=tags)  # type: ignore[no-untyped-call]
            _register_fake(operator, shaped, library)
            if operator is functional:
                _register_autograd(declared, autograd, library)
            else:
                _register_writing(operator, library)
        kernels.declare(declarations, function)
    except BaseException:
        _libraries.remove(library)
        library._destroy()  # type: ignore[no-untyped-call]
        raise
    return declared


# A Library that is collected takes its operators with it.
_libraries: list[torch.library.Library] = []


def _exists(operator: Operator) -> bool:
    base, _, overload = operator.name.partition(".")
    return bool(torch_names._get_operation_overload(base, overload))


# ---- shapes


def _fake(
    operator: Operator,
    same_as: str | None,
    fake: Callable[..., Any] | None,
    location: Location,
) -> Callable[..., Any]:
    """The fake implementation of ``operator``: it makes the results of tensors without data."""
    if (same_as is None) == (fake is None):
        raise KernelRejected(
            f"`{operator.name}` needs one thing to say which shape and dtype its result has",
            location=location,
            remedy='write `same_as="self"`, naming the argument that the result is like, or '
            "`fake=` a function that makes the result of tensors without data",
        )
    if fake is not None:
        check_callable(fake, operator.schema, operator.name, location_of(fake))
        return fake
    assert same_as is not None
    if same_as not in operator.tensor_arguments or len(operator.results or ()) != 1:
        raise KernelRejected(
            f"the result of `{operator.name}` cannot be like `{same_as}`"
            f"{nearest(same_as, operator.tensor_arguments)}",
            location=location,
            remedy=f"its schema is {operator.schema}; `same_as` takes a Tensor argument, for one result",
        )
    parameters = parameters_of(operator.schema)

    def like(*args: Any, **kwargs: Any) -> torch.Tensor:
        given = dict(zip(parameters.positional, args, strict=False)) | kwargs
        return torch.empty_like(given[same_as])

    return like


def _register_fake(
    operator: Operator, shaped: Callable[..., Any], library: torch.library.Library
) -> None:
    outputs = parameters_of(operator.schema).outs

    def fake(*args: Any, **kwargs: Any) -> Any:
        written = [kwargs.pop(name) for name in outputs]
        results = shaped(*args, **kwargs)
        if operator.variant is Variant.INPLACE:
            return args[0]
        if not written:
            return results
        for tensor, result in zip(written, _each(results), strict=True):
            if tensor.shape != result.shape:
                tensor.resize_(result.shape)
        return written[0] if len(written) == 1 else tuple(written)

    torch.library.register_fake(operator.name, fake, lib=library)


def _each(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


# ---- gradients


def _register_autograd(
    declared: PythonOperator,
    function: type[torch.autograd.Function] | None,
    library: torch.library.Library,
) -> None:
    if function is None:
        torch.library.register_autograd(
            declared.name, declared._gradients, setup_context=declared._saved, lib=library
        )
        return
    forward = function.forward

    def below_autograd(*args: Any, **kwargs: Any) -> Any:
        with torch_names._AutoDispatchBelowAutograd():
            return forward(*args, **kwargs)

    members = {"forward": staticmethod(below_autograd)}
    guarded: Any = type(function.__name__, (function,), members)
    _implement(library, declared.name, guarded.apply, "Autograd")


def _register_writing(operator: Operator, library: torch.library.Library) -> None:
    """Registers autograd and version counting as PyTorch's own in-place and out variants have them."""
    outputs = parameters_of(operator.schema).outs

    def reject_gradients(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in _tensors((*args, *kwargs.values()))
        ):
            raise RuntimeError(
                f"{operator.name}(): functions that write to their arguments don't support automatic "
                "differentiation, but one of the arguments requires grad."
            )
        with torch_names._AutoDispatchBelowAutograd():
            below = keys & torch_names._after_autograd_keyset
            return overload_of(operator.name).redispatch(below, *args, **kwargs)

    def count_versions(keys: Any, *args: Any, **kwargs: Any) -> Any:
        with torch_names._AutoDispatchBelowADInplaceOrView():
            below = keys & torch_names._after_ADInplaceOrView_keyset
            result = overload_of(operator.name).redispatch(below, *args, **kwargs)
        for tensor in [kwargs[name] for name in outputs] or [args[0]]:
            torch.autograd.graph.increment_version(tensor)
        return result

    _implement(library, operator.name, reject_gradients, "Autograd", with_keyset=True)
    _implement(library, operator.name, count_versions, "ADInplaceOrView", with_keyset=True)


def _implement(
    library: torch.library.Library,
    name: str,
    function: Callable[..., Any],
    key: str,
    with_keyset: bool = False,
) -> None:
    library.impl(name, function, key, with_keyset=with_keyset)  # type: ignore[no-untyped-call]


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += _tensors(value)
    return found
