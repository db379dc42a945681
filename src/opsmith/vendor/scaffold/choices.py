"""The choices for a new project, and the folders of ``templates/`` that each brings.

A new choice is a member of an enum here and a folder there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from opsmith.errors import ChoicesRejected


class DriverLanguage(Enum):
    """The language of the driver."""

    C = "c"
    PYTHON = "python"


class KernelLanguage(Enum):
    """The language of the kernels."""

    CPP = "cpp"
    PYTHON = "python"
    OPENCL = "opencl"
    TRITON = "triton"


@dataclass(frozen=True)
class Choices:
    """The choices for a project; raises :class:`~opsmith.errors.ChoicesRejected` for those that do not fit.

    ``driver``: None for the driver `opencl` that comes with opsmith, which compiles kernels in OpenCL C.
    ``executorch``: its kernels serve programs of ExecuTorch too.
    """

    name: str
    driver: DriverLanguage | None = DriverLanguage.C
    kernels: KernelLanguage = KernelLanguage.CPP
    executorch: bool = False

    def __post_init__(self) -> None:
        if (self.driver is None) is not (self.kernels is KernelLanguage.OPENCL):
            raise ChoicesRejected(
                "kernels in opencl have opsmith's driver `opencl`, which compiles and launches them",
                remedy="leave out --driver; or write a driver and kernels of your own, --kernels cpp",
            )
        if self.driver is DriverLanguage.PYTHON and not (
            self.executorch or self.kernels in (KernelLanguage.PYTHON, KernelLanguage.TRITON)
        ):
            raise ChoicesRejected(
                f"kernels in {self.kernels.value} have nothing to call in a driver in Python",
                remedy="write them in Python too, --kernels python; or for the host, --executorch",
            )
        if self.executorch and self.kernels is not KernelLanguage.CPP:
            raise ChoicesRejected(
                f"ExecuTorch's runtime calls no kernels in {self.kernels.value}",
                remedy="write them in C++: --executorch with --kernels cpp, which is the default",
            )

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of templates that make the project."""
        kernels = "executorch" if self.executorch else self.kernels.value
        driver = () if self.driver is None else (f"driver_{self.driver.value}",)
        return ("project", *driver, f"kernels_{kernels}")


def chosen(
    name: str,
    driver: DriverLanguage | None = None,
    kernels: KernelLanguage | None = None,
    executorch: bool = False,
) -> Choices:
    """The choices with the ``driver`` and the ``kernels`` that suit each other, where they are not said.

    Raises :class:`~opsmith.errors.ChoicesRejected`.
    """
    if driver is None and kernels is not KernelLanguage.OPENCL:
        driver = DriverLanguage.C
    if kernels is None:
        in_python = driver is DriverLanguage.PYTHON and not executorch
        kernels = KernelLanguage.PYTHON if in_python else KernelLanguage.CPP
    return Choices(name, driver, kernels, executorch)
