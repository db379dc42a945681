"""Whether devices have host windows: not with ``OPSMITH_HOST_WINDOW=off`` (`make test-all`)."""

from __future__ import annotations

from opsmith.description import hides_host_windows

HAS_HOST_WINDOW = not hides_host_windows()
