"""The repository that `opsmith new` writes for a device, and what a newer opsmith would write otherwise.

``templates/`` has the files, in a folder for each choice.
"""

from opsmith.vendor.scaffold.choices import Choices, DriverLanguage, KernelLanguage, chosen
from opsmith.vendor.scaffold.project import check_project_name, write_project
from opsmith.vendor.scaffold.upgrade import FileChange, Upgrade, apply_upgrade, find_upgrade

__all__ = [
    "Choices",
    "DriverLanguage",
    "FileChange",
    "KernelLanguage",
    "Upgrade",
    "apply_upgrade",
    "check_project_name",
    "chosen",
    "find_upgrade",
    "write_project",
]
