"""Fixtures and markers of all test files: the loaded device, and backends written on the spot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

import device_memory
import fork_server
import isolation
import needs
import opinfo
import opsmith
import reruns
from opsmith.schema import Catalogue, read_catalogue
from sim_driver import SimDriver

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

# Packages of other devices in this environment have no business here; tests of autoload turn it on.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
# Threads of OpenMP that wait for each other would take the processor from the other tests.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Output of commands is compared; tests/schema/test_recorded.py has the warning that facts are missing.
os.environ.setdefault("PYTHONWARNINGS", "ignore:opsmith has no facts of torch")
# Most of the time goes into compiling: of what tests build, only kernels are optimised, and a little.
os.environ.setdefault("OPSMITH_OPTIMIZE", "0")
# In each process that compiles, Inductor would try instruction sets on the compiler, for six seconds, and
# start workers for Triton, which few tests need.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
os.environ.setdefault("TORCH_WARM_POOL", "0")

# Files in which only tests that say so, or ask for `sim`, need a compiler or a built backend.
WITHOUT_COMPILER = frozenset(
    """autograd bad_descriptions console custom description emit executorch_emit executorch_plan failover
    formats gen lean mutated_descriptions new ops plan rooms schema site stubs trusted_files whole""".split()
)

# With two processes, what takes longest starts first, or it would run alone at the end.
LONGEST_FIRST = (
    "variants kernels_on_a_device kernels_in_executorch fallback docs conform "
    "optimized_kernels".split()
)
# The latest results of sim are a file in the cache: who reads or writes them runs in one process.
RESULTS = frozenset(
    "commands conform report report_page docs[conformance] docs[report] docs[wrong-values]".split()
)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(isolation.Plugin(config), "isolation")
    config.pluginmanager.register(device_memory)
    config.pluginmanager.register(opinfo)
    reruns.register(config)
    config.addinivalue_line(
        "markers", f"needs(name): skipped where it is missing: {', '.join(needs.NEEDS)}"
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Says what is missing before the first test, since some run for minutes."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    for name, need in needs.missing().items():
        if terminal is not None:
            then = "fail" if needs.all_required() else "are skipped"
            terminal.write_line(
                f"missing: {name}: tests of {need.tested} {then}\n  remedy: {need.remedy}"
            )


@pytest.hookimpl(tryfirst=True)  # before -m looks for markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if _file(item) not in WITHOUT_COMPILER or "sim" in fixtures:
            item.add_marker("compiles")
    ranks = {file: rank for rank, file in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(_file(item), len(ranks)))


def _file(item: pytest.Item) -> str:
    return item.path.stem.removeprefix("test_")


@pytest.hookimpl(optionalhook=True)  # xdist's
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives each process groups of tests; xdist's own `loadgroup` does nothing with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(config.rootpath, nodeid)

    return Groups(config, log)


def _group(root: Path, nodeid: str) -> str:
    """The scheduling group of a test: its process, or the fixtures of its file; each page is by itself."""
    path, _, name = nodeid.partition("::")
    if process := isolation.process_name(root / path, name):
        return process
    file = Path(path).stem.removeprefix("test_")
    group = f"docs[{name.partition('[')[2]}" if file == "docs" else file
    return "results" if group in RESULTS else group


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            need = needs.NEEDS[name]
            if not need.is_there():
                refuse = pytest.fail if needs.all_required() else pytest.skip
                refuse(f"{name} is missing: {need.remedy}")


@pytest.fixture(scope="session")
def sim() -> LoadedBackend:
    """The simulated accelerator, loaded into this process: device ``sim`` works afterwards."""
    return opsmith.load("sim")


@pytest.fixture
def driver(sim: LoadedBackend) -> Iterator[SimDriver]:
    """sim's driver, without any faults before and after the test, when its devices have done their work."""
    import torch

    loaded = SimDriver(sim.built.driver)
    loaded.clear_faults()
    yield loaded
    loaded.clear_faults()
    for device in range(torch.accelerator.device_count()):
        torch.accelerator.synchronize(device)


@pytest.fixture
def runtime_in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """ExecuTorch's runtime is not loaded by a process that has to import torch first."""
    from opsmith.executorch import worker_process

    monkeypatch.setattr(worker_process, "subprocess", fork_server.AsForks)


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """All ATen operators of the installed torch."""
    return read_catalogue()


@pytest.fixture
def describe(tmp_path: Path) -> Callable[..., Path]:
    """Writes a backend ``chip`` with one library ``chiplib``; returns its ``backend.yaml``.

    ``kernels`` is the manifest's text below ``kernels:``, ``fallback`` the policy's YAML.
    """

    def write(
        kernels: str = "",
        fallback: str = "cpu",
        header: str = "",
        driver: str = "{sources: [driver.c]}",
    ) -> Path:
        (tmp_path / "driver.c").touch()
        (tmp_path / "kernels.cpp").touch()
        body = dedent(kernels).strip()
        entries = "\n".join(f"  {line}" for line in body.splitlines())
        (tmp_path / "kernels.yaml").write_text(
            f"library: chiplib\nsources: [kernels.cpp]\n{dedent(header).strip()}\n"
            f"kernels:{chr(10) + entries if body else ' []'}\n"
        )
        backend = tmp_path / "backend.yaml"
        backend.write_text(
            f"backend: chip\ndriver: {driver}\nlibraries: [kernels.yaml]\nfallback: {fallback}\n"
        )
        return backend

    return write
