"""Loads a built backend into this process and gives PyTorch its device.

Builds it first where that is needed.  PyTorch has one slot for an out-of-tree device (PrivateUse1), so
a process loads one backend, once.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from opsmith.base.cache_folder import cache_root
from opsmith.base.collector import collector_paused
from opsmith.base.trusted_files import check_named_libraries, check_trusted
from opsmith.description import Rng, find_backend
from opsmith.description.built import BuiltBackend, check_torch, fitting_backend, unchanged_backend
from opsmith.errors import DriverInvalid, LoadError
from opsmith.runtime.compile import compiled_graphs
from opsmith.runtime.defining_modules import import_defining_modules
from opsmith.runtime.integrations import are_wanted, follow_imports
from opsmith.runtime.loaded import (
    LoadedBackend,
    being_loaded,
    loaded_if_any,
    set_loaded_backend,
)
from opsmith.runtime.records import calls, fallback_policy, fallbacks, trace
from opsmith.runtime.slot import check_slot, taken_by
from opsmith.runtime.torch_import import explained_torch_import
from opsmith.runtime.triton.device import TritonDevice, set_triton_device
from opsmith.schema.torch_names import Feature, set_up

if TYPE_CHECKING:
    from opsmith.build.progress import OnProgress


def load(name: str = "sim", *, progress: OnProgress | None = None) -> LoadedBackend:
    """Makes the device of the backend ``name`` available to PyTorch, e.g. ``torch.ones(3, device="sim")``.

    ``name`` is a shipped or installed backend, or the path of a ``backend.yaml``.  The first call on a
    machine builds it, which takes a minute or two, and says so on stderr unless ``progress`` is told of each
    step.
    A second call with the same name returns at once.

    Raises :class:`~opsmith.errors.OpsmithError`: a mistake in the description, a failed build, a driver
    that does not fit, or a slot that another backend has taken.
    """
    description = find_backend(name)
    found = functools.partial(found_or_built, name, description, progress)
    return load_found(name, description, found, progress=progress)


def load_found(
    name: str,
    description: Path,
    found: Callable[[], BuiltBackend],
    *,
    by_package: bool = False,
    progress: OnProgress | None = None,
) -> LoadedBackend:
    """As :func:`load`, from the libraries that ``found`` returns; ``by_package`` where no program asked."""
    if (earlier := loaded_if_any()) is not None:
        if earlier.description == description:
            return earlier
        raise taken_by(earlier, name)
    # Before minutes go into a build; asked again once torch is imported.
    if "torch" in sys.modules:
        check_slot(name)
    override = fallback_policy.environment_override()
    integrations_wanted = are_wanted()
    with being_loaded(description):
        with explained_torch_import():  # before minutes go into a build
            importlib.import_module("torch")
        built = found()
        loaded = LoadedBackend(built.name, description, built, progress)
        fallback_policy.check(lambda: loaded.plan, override)
        _register(built)
    set_loaded_backend(loaded, by_package=by_package)
    set_triton_device(TritonDevice(built.name, built.driver, lambda: _tritons_backend(loaded)))
    if built.calls_python:
        loaded.serve_described_kernels()
    fallback_policy.start(lambda: loaded.plan, override)
    fallbacks.start()
    calls.start()
    compiled_graphs.start()
    if integrations_wanted:
        follow_imports(built.name)
    if os.environ.get(trace.VARIABLE):
        from opsmith.runtime.records.trace import recording

        recording.note_backend()
    return loaded


def _tritons_backend(loaded: LoadedBackend) -> str:
    described = loaded.opened.outline.triton
    return described.backend if described else ""


def found_or_built(name: str, description: Path, progress: OnProgress | None) -> BuiltBackend:
    """The libraries of the backend: those of its package, or built where that is needed."""
    # Without importing what could build them.
    if found := fitting_backend(description) or unchanged_backend(description):
        return found
    with collector_paused():
        from opsmith.build.backend import build_backend
        from opsmith.build.waiting import told

    with told(progress, f"the backend `{name}`") as report:
        return build_backend(description, progress=report)


def _check_preloaded() -> None:
    """Raises :class:`LoadError` for a sanitizer that would end the process, since it comes too late."""
    if not os.environ.get("OPSMITH_SANITIZE"):
        return
    from opsmith.build.own_options import preloads, run_hint
    from opsmith.build.toolchain import find_compiler

    compiler = find_compiler(cache_root())
    mapped = Path("/proc/self/maps").read_text()
    # By its name up to the version: what is loaded is called libasan.so.8.0.0.
    missing = [each for each in preloads(compiler) if each.name not in mapped]
    if missing:
        raise LoadError(
            f"OPSMITH_SANITIZE is set, and this process has not begun with {missing[0].name}",
            remedy=f"start it so: {run_hint(compiler)} python …",
        )


def _register(built: BuiltBackend) -> None:
    import torch

    check_slot(built.name)
    import_defining_modules(built.external_namespaces)
    _check_preloaded()
    check_trusted(built.library)
    check_trusted(built.driver, built.driver_location)
    check_named_libraries()
    check_torch(built)
    try:
        torch.ops.load_library(str(built.library))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise LoadError(
            f"the built library of `{built.name}` cannot be loaded: {error}",
            remedy=f"pip install --force-reinstall --no-deps {built.package}"
            if built.package
            else f"remove {built.library} and build again: opsmith build {built.name}",
        ) from None
    if (python := built.python_driver) is not None:
        # Here: only such a driver needs what calls it.
        from opsmith.driver.named import driver_class
        from opsmith.driver.served import serve

        serve(driver_class(python.source, python.name, built.driver_location), built.driver)
    try:
        torch.ops.opsmith.load_driver(str(built.driver), built.host_window)
    except RuntimeError as error:
        message, _, remedy = str(error).partition("\n  remedy: ")
        raise DriverInvalid(
            message,
            remedy=remedy.splitlines()[0] if remedy else "see docs/describe/driver.md",
            location=built.driver_location,
        ) from None
    if built.rng is Rng.CPU:
        torch.ops.opsmith.draw_numbers_of_the_cpu()
    # Naming the slot comes last of what can fail: it cannot be undone.
    _set_up_device(built)


def _set_up_device(built: BuiltBackend) -> None:
    """Has PyTorch know the device; what the installed torch lacks a name for is left out."""
    import torch
    from torch.utils.backend_registration import (
        generate_methods_for_privateuse1_backend,
        rename_privateuse1_backend,
    )

    from opsmith.runtime.compile import serve_compilers
    from opsmith.runtime.module.device_module import register_device_module
    from opsmith.runtime.module.tensor_types import accept_as_default_tensor_type
    from opsmith.runtime.patches.checked_operators import check_registrations
    from opsmith.runtime.patches.compressed_gradients import accept_bfloat16_hooks
    from opsmith.runtime.patches.data_parallel import serve_data_parallel
    from opsmith.runtime.patches.distributed import serve_collectives
    from opsmith.runtime.patches.dlpack import exchange_with_dlpack
    from opsmith.runtime.patches.fake_attention import shape_fake_attention
    from opsmith.runtime.patches.fake_convolutions import lay_out_fake_convolutions
    from opsmith.runtime.patches.fake_results import shape_fakes_as_on_cpu
    from opsmith.runtime.patches.higher_order_operators import let_autocast_through
    from opsmith.runtime.patches.profiled_names import name_times
    from opsmith.runtime.patches.restored_places import restore_to_an_index
    from opsmith.runtime.patches.sharded_attention import split_attention
    from opsmith.runtime.patches.sharing import share_between_processes
    from opsmith.runtime.patches.sharing_refused import refuse_to_share
    from opsmith.runtime.patches.storages import complete_storages
    from opsmith.runtime.patches.symmetric_memory import refuse_symmetric_memory
    from opsmith.runtime.patches.unpinned_batches import leave_batches_unpinned

    can_share = torch.ops.opsmith.can_share_memory()
    steps: tuple[tuple[Feature, Callable[[str], object]], ...] = (
        (Feature.LOADING, rename_privateuse1_backend),
        (
            Feature.LOADING,
            lambda name: register_device_module(name, built.driver, built.host_window),
        ),
        (Feature.LOADING, lambda _: generate_methods_for_privateuse1_backend(for_storage=True)),
        (Feature.TYPED_STORAGES, complete_storages),
        (Feature.TENSOR_TYPES, accept_as_default_tensor_type),
        (Feature.LOADING, exchange_with_dlpack),
        (Feature.RESTORED_PLACES, restore_to_an_index),
        (Feature.LOADING, name_times),
        (Feature.DATA_PARALLEL, serve_data_parallel),
        (Feature.DISTRIBUTED, serve_collectives),
        (Feature.DISTRIBUTED, split_attention),
        (Feature.COMPRESSED_GRADIENTS, accept_bfloat16_hooks),
        (Feature.SYMMETRIC_MEMORY, refuse_symmetric_memory),
        (Feature.OPCHECK, check_registrations),
        (Feature.AUTOCAST, let_autocast_through),
        (Feature.DYNAMO, serve_compilers),
        (Feature.SHARING, share_between_processes if can_share else refuse_to_share),
        (Feature.FAKE_RESULTS, lay_out_fake_convolutions),
        (Feature.FAKE_RESULTS, shape_fakes_as_on_cpu),
        (Feature.FAKE_RESULTS, shape_fake_attention),
    )
    if not torch.ops.opsmith.can_pin_memory():
        steps += ((Feature.LOADING, leave_batches_unpinned),)
    for feature, step in steps:
        set_up(feature, step, built.name)
