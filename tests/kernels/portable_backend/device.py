"""The device on which the portable library is checked.

``sim`` in the default run, where its kernels stand behind those of other libraries and take what these do
not; with ``OPSMITH_PORTABLE_BACKEND=portsim``, the device of ``backend.yaml``, where they stand alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import opsmith

DEVICE = os.environ.get("OPSMITH_PORTABLE_BACKEND", "sim")
LOADED = opsmith.load("sim" if DEVICE == "sim" else str(Path(__file__).with_name("backend.yaml")))
ALONE = DEVICE != "sim"
