"""Collects the wheels that opsmith needs and a machine with a device, but no network, lacks.

``python tools/gpu/pack [--python 3.12] [NAME…]``: what opsmith and its conformance tests import beyond what
comes with torch's own wheels and a machine of the field, in the versions of requirements-dev.txt; NAMEs are
further packages.  They go to build/gpu/wheels, where ``check`` finds them.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
WHEELS = ROOT / "build" / "gpu" / "wheels"
LACKING = ("clang-format", "expecttest", "msgspec")
MOST_BYTES = 60 << 20
# pip takes wheels of the platforms that it is told, and of no older one.
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux1")


def pinned(name: str) -> str:
    """``name==version`` as the files of requirements have it; ``name`` where they do not."""
    for file in ("requirements-demo.txt", "requirements-dev.txt"):
        text = (ROOT / file).read_text()
        if found := re.search(rf"^{re.escape(name)}==[^;\s]+", text, re.MULTILINE):
            return found.group()
    return name


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="packages beside the usual ones")
    parser.add_argument("--python", default="3.12", help="the machine's; its processor is x86-64")
    options = parser.parse_args()
    shutil.rmtree(WHEELS, ignore_errors=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--only-binary=:all:", "--implementation", "cp", "--python-version", options.python),
            *(f"--platform={platform}_x86_64" for platform in PLATFORMS),
            *("--dest", str(WHEELS)),
            *(pinned(name) for name in (*LACKING, *options.names)),
        ],
        check=True,
    )
    wheels = sorted(WHEELS.iterdir())
    size = sum(wheel.stat().st_size for wheel in wheels)
    for wheel in wheels:
        print(f"{wheel.stat().st_size / (1 << 20):6.1f} MiB  {wheel.name}")
    if size > MOST_BYTES:
        sys.exit(f"{size >> 20} MiB are more than the {MOST_BYTES >> 20} that may travel")


if __name__ == "__main__":
    main()
