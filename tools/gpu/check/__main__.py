"""Checks a device on a machine that is there for minutes: build, driver, faults, demo, figures, values.

``python tools/gpu/check [BACKEND] [--peer cuda] [--from STEP] [--minutes 9] [--output FOLDER]``: each step
has a process and a time limit of its own, and the next one comes whatever became of it.  FOLDER/check.json
has what each step gave, written when it ends, and FOLDER/check.log what it printed.  Nothing but Python,
torch, a compiler and the wheels of ``pack`` is needed.

``--dry-run`` is for a machine without the device: cuda_driver runs against a stand-in of libcuda (stand_in/),
beside the CPU, with small sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import stand_in

ROOT = Path(__file__).parents[3]
MADE = ROOT / "build" / "gpu"
_GRACE_SECONDS = 10.0
# On two cores, with kernels that the host's compiler makes; more where others use them too.
_DRY_RUN_PATIENCE = 10.0
# The operators that training calls most, by OpInfo's names; the rest follows.
MOST_USED = """
add mul sub div addmm mm bmm matmul nn.functional.linear nn.functional.conv2d nn.functional.relu
nn.functional.gelu nn.functional.silu softmax log_softmax nn.functional.layer_norm native_layer_norm
nn.functional.batch_norm native_batch_norm nn.functional.embedding nn.functional.cross_entropy
nn.functional.nll_loss nn.functional.scaled_dot_product_attention nn.functional.max_pool2d
nn.functional.adaptive_avg_pool2d nn.functional.avg_pool2d nn.functional.group_norm
nn.functional.dropout sum mean amax argmax var exp log sqrt rsqrt tanh sigmoid sin cos pow neg abs clamp
maximum minimum where eq lt gt cat stack split clone contiguous to copysign addcmul addcdiv lerp
index_select gather scatter scatter_add index_put masked_fill cumsum sort topk tril triu arange full
zeros_like empty_like fill view_copy transpose permute expand
""".split()


@dataclass(frozen=True)
class Step:
    """A part of the check: a command of Python's, and the most seconds that it may take."""

    name: str
    seconds: float
    command: tuple[str, ...]


def steps(backend: str, peer: str, *, small: bool) -> list[Step]:
    """All of them, what the others need first."""
    opsmith = ("-m", "opsmith")
    figures = ("benchmarks/beside.py", "--peer", peer, "--json", *(("--small",) if small else ()))
    conform = (*opsmith, "conform", backend, "--timeout", "60", "--json")
    few = ("--samples", "1", "--dtype", "float32") if small else ("--samples", "4")
    most_used = MOST_USED[:1] if small else MOST_USED
    epochs = ("--epochs", "1") if small else ()
    figure = ("--figure", str(MADE / "demo.png"))
    demo = (*opsmith, "demo", "--device", backend, "--json", *figure)
    return [
        Step("build", 180, (*opsmith, "build", backend, "--json")),
        Step("driver", 60, (*opsmith, "driver", "check", backend, "--all", "--json")),
        Step("on device", 120, ("tools/gpu/check/on_device.py", backend)),
        Step("demo", 60, (*demo, *epochs)),
        # Its kernels are on disk: the result has the age of the process at the end of the first step.
        Step("demo again", 40, (*demo, "--epochs", "1")),
        Step("collectives", 30, ("tools/gpu/check/collectives.py", backend)),
        *(
            Step(part, seconds, (*figures, "--device", backend, part))
            for part, seconds in (
                ("calls", 30),
                ("bandwidth", 60),
                ("products", 45),
                ("overlap", 20),
                ("training", 90),
            )
        ),
        *(libraries(figures) if backend == "cuda_driver" else ()),
        *(
            tritons() if backend == "cuda_driver" and not small else ()
        ),  # ptxas makes no code for a stand-in
        Step(
            "conform",
            120,
            (*conform, *few, *(word for name in most_used for word in ("--op", name))),
        ),
        *([] if small else [Step("conform all", 600, (*conform, "--samples", "1"))]),
    ]


def libraries(figures: tuple[str, ...]) -> list[Step]:
    """The steps for NVIDIA's own libraries, in a backend that has them: values, then ``figures``."""
    backend = "tools/gpu/check/libraries.yaml"
    tests = "tests/kernels"
    return [
        Step("libraries", 90, ("-m", "opsmith", "build", backend, "--json")),
        Step("cublas", 40, (f"{tests}/cublas_backend/products.py", backend)),
        Step("cudnn", 60, (f"{tests}/cudnn_backend/convolutions.py", backend)),
        *(
            Step(f"{part} with libraries", seconds, (*figures, "--device", backend, part))
            for part, seconds in (
                ("products", 45),
                ("overlap", 20),
                ("training", 60),
                ("compiled", 120),
            )
        ),
    ]


def tritons() -> list[Step]:
    """The steps for kernels in Triton, compiled by its own backend for NVIDIA's devices."""
    backend = "tools/gpu/check/triton.yaml"
    return [
        Step("triton's device", 60, ("-m", "opsmith", "build", backend, "--json")),
        Step("triton", 60, ("tools/gpu/check/triton_kernels.py", backend)),
    ]


def environment(*, dry_run: bool) -> dict[str, str]:
    """In which steps run: opsmith from this tree, what it needs from the wheels of ``pack``."""
    site = MADE / "site"
    wheels = sorted((MADE / "wheels").glob("*.whl"))
    if wheels and not dry_run:
        shutil.rmtree(site, ignore_errors=True)
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"),
                *("--target", str(site), *map(str, wheels)),
            ],
            check=True,
        )
    added = {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *([str(site)] if site.exists() else [])]),
        "PYTHONUNBUFFERED": "1",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    if dry_run:
        added |= stand_in.built(MADE / "stand_in")
        # The stand-in may have changed, and has its kernels in a folder of its own.
        shutil.rmtree(MADE / "dry_run_cache" / "kernels", ignore_errors=True)
        added["OPSMITH_CACHE_DIR"] = str(MADE / "dry_run_cache")
    return {**os.environ, **added}


def machine(env: dict[str, str]) -> dict[str, Any]:
    """The machine and the software that the figures are of."""

    def said(*command: str) -> str:
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return ran.stdout.strip()

    query = "--query-gpu=name,driver_version,memory.total"
    return {
        "gpu": said("nvidia-smi", query, "--format=csv,noheader"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": said(sys.executable, "-c", "import torch; print(torch.__version__)"),
        "compiler": said("c++", "--version").partition("\n")[0],
        "commit": said("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"),
    }


def run_step(step: Step, limit: float, env: dict[str, str], log: Path) -> dict[str, Any]:
    """Runs a step to its end or its limit; its last line of JSON is its result."""
    start = time.monotonic()
    with log.open("a") as output:
        output.write(f"\n==== {step.name}: python {' '.join(step.command)}\n")
        output.flush()
        begins = output.tell()
        process = subprocess.Popen(
            [sys.executable, *step.command],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        ended = False
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(limit)
                ended = True
            if not ended:
                # Interrupted, a step tells what it has.
                os.killpg(process.pid, signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_GRACE_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    with log.open() as output:
        output.seek(begins)
        lines = output.read().splitlines()
    return {
        "seconds": round(time.monotonic() - start, 1),
        "limit": round(limit),
        "timed_out": not ended,
        "status": process.returncode,
        "result": next(filter(None, map(_as_json, reversed(lines))), None),
    }


def _as_json(line: str) -> Any:
    if not line.startswith("{"):
        return None
    try:
        return json.loads(line)
    except ValueError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "backend", nargs="?", default="cuda_driver", help="a name or a backend.yaml"
    )
    parser.add_argument("--peer", help="a device of torch's own; cuda, in a dry run cpu")
    parser.add_argument("--from", dest="first", metavar="STEP", help="go on from this step")
    parser.add_argument("--only", action="append", metavar="STEP", help="this step; repeatable")
    parser.add_argument("--minutes", type=float, default=9.0, help="for all steps together")
    parser.add_argument(
        "--output", type=Path, default=Path(os.environ.get("OUT", MADE / "results"))
    )
    parser.add_argument(
        "--patience", type=float, metavar="N", help="N times the limits; 10 for a dry run, else 1"
    )
    parser.add_argument("--dry-run", action="store_true", help="against a stand-in of libcuda")
    options = parser.parse_args()
    patience = options.patience or (_DRY_RUN_PATIENCE if options.dry_run else 1.0)
    peer = options.peer or ("cpu" if options.dry_run else "cuda")
    chosen = steps(options.backend, peer, small=options.dry_run)
    names = [step.name for step in chosen]
    for name in (*(options.only or ()), *([options.first] if options.first else ())):
        if name not in names:
            parser.error(f"there is no step {name!r}: {', '.join(names)}")
    if options.first:
        chosen = chosen[names.index(options.first) :]
    if options.only:
        chosen = [step for step in chosen if step.name in options.only]

    deadline = time.monotonic() + 60 * options.minutes * patience
    options.output.mkdir(parents=True, exist_ok=True)
    results, log = options.output / "check.json", options.output / "check.log"
    MADE.mkdir(parents=True, exist_ok=True)
    env = environment(dry_run=options.dry_run) | {"OPSMITH_CHECK_PATIENCE": str(patience)}
    # Those of steps that are not made again are kept.
    kept = json.loads(results.read_text())["steps"] if results.exists() else {}
    found = {"backend": options.backend, "dry_run": options.dry_run, "machine": machine(env)}
    bad = []
    for step in chosen:
        left = deadline - time.monotonic() - _GRACE_SECONDS
        if left < _GRACE_SECONDS:
            kept[step.name] = {"left_out": "no time was left"}
        else:
            kept[step.name] = run_step(step, min(step.seconds * patience, left), env, log)
        results.write_text(json.dumps({**found, "steps": kept}, indent=1) + "\n")
        made = kept[step.name]
        if made.get("status") != 0:
            bad.append(step.name)
        print(f"{step.name}: {_summary(made)}", flush=True)
    print(f"{results}, {log}")
    if bad:
        sys.exit(f"not passed: {', '.join(bad)}")


def _summary(made: dict[str, Any]) -> str:
    if "left_out" in made:
        return f"left out, {made['left_out']}"
    ending = "timed out" if made["timed_out"] else f"exit status {made['status']}"
    return f"{ending} after {made['seconds']} s"


if __name__ == "__main__":
    main()
