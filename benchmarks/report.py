"""The report: writing it, its size, and in Chromium opening it and searching its operators.

The peer of writing is `import torch` alone.  Results as large as those of a whole conformance run are
planted, so that nothing has to run for them.  The first report of a backend loads it for its dispatch tables;
what is measured is every later one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from opsmith.base.cache_folder import cache_root
from opsmith.observe.benchmarks.measurements import Measurement, measured, report
from opsmith.plan import plan_backend

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from chromium import EXECUTABLE, browser, opened
from planted_results import planted_results

ROUNDS = 7
_INTERACTIVE = "performance.getEntriesByName('opsmith:interactive')[0].startTime"
# From a key to the second frame after it, which shows what the key has changed.
_KEYSTROKES = """async (text) => {
  const input = document.querySelector("#operators input[type=search]");
  const taken = [];
  for (let length = 1; length <= text.length; length++) {
    const start = performance.now();
    input.value = text.slice(0, length);
    input.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    taken.push(performance.now() - start);
  }
  return taken;
}"""


def seconds(*command: str) -> float:
    """How long ``command`` takes."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def written(folder: Path) -> tuple[Path, list[Measurement]]:
    """A page in ``folder``, and what writing it took."""
    results, page = folder / "results.json", folder / "report.html"
    operators = [entry.name for entry in plan_backend("sim", cache_root()).entries]
    results.write_bytes(msgspec.json.encode(planted_results(operators)))
    python = sys.executable
    command = (python, "-m", "opsmith", "report", "-o", str(page), "--conform", str(results))
    seconds(*command)
    ours, peer = [], []
    for _ in range(ROUNDS):
        ours.append(seconds(*command))
        peer.append(seconds(python, "-c", "import torch"))
    megabytes = page.stat().st_size / 1e6
    return page, [
        measured("write the report of all ATen", "s", ours, peer, 2.0, is_absolute=True),
        measured("its size", "MB", [megabytes], goal=3.0),
    ]


def shown(page: Path) -> list[Measurement]:
    """The times of opening ``page`` and of typing into its search."""
    opening, keys = [], []
    with browser() as started:
        for _ in range(ROUNDS):
            with opened(started, page.as_uri()) as found:
                opening.append(found.page.evaluate(_INTERACTIVE))
            with opened(started, f"{page.as_uri()}#/operators") as found:
                keys += found.page.evaluate(_KEYSTROKES, "native_layer_norm")
    return [
        measured("open to interactive", "ms", opening, goal=500.0),
        measured("a key in the search, to the frame that shows it", "ms", keys, goal=50.0),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        page, measurements = written(Path(folder))
        if EXECUTABLE is not None:
            measurements += shown(page)
    report("the report; peer: import torch", measurements)


if __name__ == "__main__":
    main()
