"""Functions of PyTorch that a loaded backend and a compiled program replace, beside the page on them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import fork_server
from opsmith.runtime import LoadedBackend

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "patches.md"
PROGRAM = '''
import json, sys
import multiprocessing.queues
import torch, torch._inductor.codegen.cpp, torch._inductor.compile_fx, torch.nn.parallel, torch.utils.dlpack

torch._inductor.config.force_disable_caches = True  # a graph that is found changes nothing
# Dynamo changes PyTorch, too, when it is first used.
torch.compile(lambda x: x + 1)(torch.ones(2))

def attributes():
    """Those of PyTorch's modules and classes, by name, None for what a class inherits."""
    found = {}
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] in ("torch", "multiprocessing"):
            for key, value in [*vars(module).items()]:
                found[f"{name}.{key}"] = value
                if isinstance(value, type) and value.__module__ == name:
                    of_class = dict.fromkeys(dir(value)) | {**vars(value)}
                    found |= {f"{name}.{key}.{inner}": each for inner, each in of_class.items()}
    return found

before = attributes()
import opsmith
opsmith.load("sim")
torch.compile(lambda x: x * 2 + 1)(torch.ones(2, device="sim"))
after = attributes()
is_function = lambda each: isinstance(each, staticmethod) or callable(each) and not isinstance(each, type)
replaced = [
    name for name, value in before.items()
    if (value is None or is_function(value)) and is_function(after.get(name)) and after[name] is not value
]
# Releases of torch lack some.
print(json.dumps({"replaced": replaced, "listed": [name for name in sys.argv[1:] if name in before]}))
'''
# PyTorch itself, when a device is named, and Inductor's modules that import a function of another.
_PYTORCH = re.compile(r"\.(DeviceType|ProfilerActivity|_C)\b|trace_rules|torch\.optim")
_IMPORTED = ("get_current_backend", "device_need_guard", "use_scatter_fallback")


def test_what_is_replaced_is_listed(sim: LoadedBackend) -> None:
    rows = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    ]
    names = {name for row in rows for name in re.findall(r"`([\w.]+)`", row.split("|")[1])}
    done = fork_server.run([sys.executable, "-c", PROGRAM, *sorted(names)])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    replaced = {name for name in found["replaced"] if not _PYTORCH.search(name)}
    imported = {name for name in replaced if name.rpartition(".")[2] in _IMPORTED} - names
    assert all(name.startswith("torch._inductor.") for name in imported)
    assert replaced - imported == {*found["listed"]}
