"""Each command as a real process, beside the same command in a fork: see ``fork_server.py``.

That both say the same is what lets the other tests of commands do with forks.  Commands that other tests
start as real processes, since they interrupt them, are missing here: bench, conform and fallbacks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import fork_server
from fork_server import obey_interrupts
from opsmith.runtime import LoadedBackend
from opsmith.schema import torch_version

OPSMITH = Path(sys.executable).with_name("opsmith")

# Each with what it says where it is given something to refuse, or little to do.
COMMANDS = {
    "build": (["build", "nowhere"], 1, "there is no backend `nowhere`"),
    "coverage": (["coverage", "nowhere.py"], 1, "nowhere.py"),
    "demo": (["demo", "--epochs", "none"], 2, "'--epochs'"),
    "doctor": (["doctor", "--json"], 0, '"python"'),
    "driver": (["driver", "check", "nowhere.so"], 2, "there is no library nowhere.so"),
    "executorch": (["executorch", "select", "nowhere.pte"], 1, "nowhere.pte"),
    "explain": (["explain", "add_.Tensr"], 1, "has no operator `add_.Tensr`"),
    "gen": (["gen", "nowhere", "-o", "out"], 1, "there is no backend `nowhere`"),
    "import": (["import", "chip.yaml"], 0, "library: chip"),
    "keys": (["keys", "torch.ones(2)", "--json"], 0, '"CPU"'),
    "new": (["new", "relu"], 1, "PyTorch has an operator `relu`"),
    "ops": (["ops", "show", "relu"], 0, "aten::relu(Tensor self) -> Tensor"),
    "package": (["package", "nowhere"], 1, "there is no backend `nowhere`"),
    "plan": (["plan", "--route", "nothing"], 2, "'nothing' is not one of"),
    "report": (["report", "--backend", "nowhere"], 1, "there is no backend `nowhere`"),
    "stubs": (["stubs", "abs_stub"], 0, "abs_stub"),
    "trace": (["trace", "nowhere.py"], 1, "nowhere.py"),
}

TORCHGEN = "backend: Chip\ncpp_namespace: chip\nsupported: [relu]\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_process_and_a_fork_say_the_same(name: str, sim: LoadedBackend, tmp_path: Path) -> None:
    """Once ``sim`` is built, or the first of both could say more than the second."""
    arguments, status, expected = COMMANDS[name]
    (tmp_path / "chip.yaml").write_text(TORCHGEN)
    environment = {**os.environ, "COLUMNS": "120"}
    real = subprocess.run(
        [OPSMITH, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        preexec_fn=obey_interrupts,
    )
    assert real.returncode == status, real.stdout + real.stderr
    assert expected in real.stdout + real.stderr
    fork = fork_server.run([OPSMITH, *arguments], cwd=tmp_path, env=environment)
    # The first of them may have had a tool of its own to build.
    steps = re.compile(r"^\[\d+/\d+\] .*\n", re.MULTILINE)
    said = [steps.sub("", text) for text in (real.stderr, fork.stderr)]
    # Tests that run beside this one fill the cache and the disk; a console script may name python3.11.
    varies = re.compile(r"[\d.]+ [KMG]iB|(?<=bin/python)[\d.]+")
    printed = [varies.sub("", text) for text in (real.stdout, fork.stdout)]
    assert (fork.returncode, printed[1], said[1]) == (status, printed[0], said[0])


# ---- the fork server itself

PROGRAM = """
import atexit, os, sys, torch
atexit.register(print, "at exit")
print(__name__, sys.argv[1:], sys.stdin.read(), os.getcwd(), os.environ.get("OPSMITH_TEST"), flush=True)
os.system("echo C: $OPSMITH_TEST")
def fail():
    raise ValueError("wrong")
fail()
"""


def test_a_program_finds_what_it_would_find_in_a_process(tmp_path: Path) -> None:
    environment = {**os.environ, "OPSMITH_TEST": "here"}
    for command in ([sys.executable, "-c", PROGRAM, "a b"], [sys.executable, "program.py", "a b"]):
        (tmp_path / "program.py").write_text(PROGRAM)
        real = subprocess.run(
            command, input="given", capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        fork = fork_server.run(command, input="given", cwd=tmp_path, env=environment)
        assert fork.stdout == f"__main__ ['a b'] given {tmp_path} here\nC: here\nat exit\n"
        assert (fork.returncode, fork.stdout, fork.stderr) == (1, real.stdout, real.stderr)


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("import sys; sys.exit(7)", 7),
        ("import os; os.abort()", -6),
        ("import os; os._exit(0)", 0),
        ("import sys; sys.exit('reason')", 1),
    ],
)
def test_the_status(program: str, status: int) -> None:
    assert fork_server.run([sys.executable, "-c", program]).returncode == status


def test_the_version() -> None:
    done = fork_server.run([OPSMITH, "--version"])
    assert done.stdout == f"opsmith {version('opsmith')}, torch {torch_version()}\n"


def test_a_program_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    program = f"import os; os.system('echo $$ > {tmp_path}/shell; sleep 60; true')"
    with pytest.raises(subprocess.TimeoutExpired):
        fork_server.run([sys.executable, "-c", program], timeout=2)
    shell = int((tmp_path / "shell").read_text())
    for _ in range(100):
        try:
            os.kill(shell, 0)
        except ProcessLookupError:
            return
        subprocess.run(["sleep", "0.05"], check=True)
    pytest.fail(f"the shell {shell} lives on")


@pytest.mark.parametrize(
    ("environment", "forked"),
    [({}, True), ({"TORCHINDUCTOR_CACHE_DIR": "x"}, True), ({"PYTHONOPTIMIZE": "1"}, False)],
    ids=["fork", "after torch.compile", "process"],
)
def test_what_is_read_at_the_start_gets_a_process(
    environment: dict[str, str], forked: bool
) -> None:
    program = "import sys; print('torch' in sys.modules)"
    done = fork_server.run([sys.executable, "-c", program], env={**os.environ, **environment})
    assert done.stdout == f"{forked}\n"


def test_shells_find_commands_that_run_as_forks(tmp_path: Path) -> None:
    fork_server.write_commands(tmp_path / "bin")
    program = "import sys; print('torch' in sys.modules); sys.exit(3)"
    command = f'python -c "{program}" | cat; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"},
    )
    assert (done.stdout, done.stderr) == ("True\n3\n", "")


def test_the_backend_of_a_command(tmp_path: Path) -> None:
    """It is named as an argument or by ``--backend``, or is the folder's own, which the command says."""

    def plan(*arguments: str) -> tuple[str, str]:
        done = fork_server.run(
            [sys.executable, "-m", "opsmith", "plan", *arguments], cwd=tmp_path, check=True
        )
        return done.stdout.partition(" ")[0], done.stderr

    assert plan() == ("sim", "")
    description = "backend: chip\ndriver: sim\nlibraries: []\n"
    for name in ("mychip", "other"):
        (tmp_path / "src" / name).mkdir(parents=True)
    (tmp_path / "src" / "mychip" / "backend.yaml").write_text(description)
    assert plan() == ("chip", "backend: ./src/mychip/backend.yaml\n")
    (tmp_path / "src" / "other" / "backend.yaml").write_text(description)
    done = fork_server.run([sys.executable, "-m", "opsmith", "plan"], cwd=tmp_path)
    assert done.returncode == 2
    assert "backends: src/mychip/backend.yaml, src/other/backend.yaml" in " ".join(
        done.stderr.replace("│", " ").split()
    )
    (tmp_path / "backend.yaml").write_text(description)
    assert plan() == ("chip", "backend: ./backend.yaml\n")
    assert plan("sim") == plan("--backend", "sim") == ("sim", "")
    assert plan("backend.yaml") == ("chip", "")


@pytest.mark.parametrize("command", "conform demo doctor gen package plan report".split())
def test_the_backend_as_an_argument_and_by_its_name(command: str) -> None:
    done = fork_server.run(
        [sys.executable, "-m", "opsmith", command, "sim", "--backend", "nosuch"],
        env={**os.environ, "COLUMNS": "200"},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "the backend is named twice: sim and --backend nosuch" in done.stderr
