"""Runs Python programs as ``subprocess.run`` does, in forks of one process that has imported torch.

:func:`run` is for tests whose program is of interest, not its start: importing torch takes 3 s of a
processor and executorch.exir 6 s more, a fork 50 ms.  The program finds its own arguments, environment,
folder, ``__main__``, file descriptors and session, and at its end threads are waited for, ``atexit`` is
obeyed and buffers are flushed.  What it does not find:

- modules fresh from the disk: those of ``TORCH`` are imported already (none is opsmith's, and no backend is
  loaded).  A test of what is imported, or when, uses ``subprocess.run``.
- what is read once, at a process's start: where a variable in ``READ_AT_START`` differs, or the interpreter
  is given options, ``run`` starts a real process by itself.
- the end of the interpreter and of the libraries: theirs takes four times as long as all else about a fork.

Tests of signals, of Ctrl-C, of the start and of the end use real processes; so does one test of each command.

What a program starts with ``subprocess`` is a fork too, where the program of a test would be one.

The server is this file, started by the first ``run``.  It ends with the process that started it, and a
program with the process that asked for it.  Programs find the server by ``OPSMITH_FORK_SERVER``, so that
their own calls of ``run`` use it too; and so do shells, in which :func:`write_commands` puts an ``opsmith``
and a ``python`` that run as forks.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import hashlib
import importlib
import io
import json
import os
import random
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

VARIABLE = "OPSMITH_FORK_SERVER"
"""The folder of the servers' sockets."""

TORCH = (
    *("torch", "numpy", "pytest", "_pytest.pytester", "hypothesis", "expecttest", "markdown_it"),
    *("jinja2", "msgspec", "yaml", "filelock", "xml.etree.ElementTree"),
    *("typer", "rich.console", "rich.table", "rich.progress", "torchgen.model", "torchgen.gen"),
    "sympy",
)
"""The modules that a server has imported: other people's, of which none starts a thread."""

EXECUTORCH = (*TORCH, "executorch.exir")
"""For programs that export; ``opsmith executorch`` gets it by itself."""

OPINFO = (*TORCH, "torch.testing._internal.common_methods_invocations")
"""For programs that look into PyTorch's OpInfo; ``opsmith conform`` gets it by itself."""

OF_COMMANDS = {"executorch": EXECUTORCH, "conform": OPINFO, "fuzz": OPINFO}
"""Those of commands of opsmith that take others than ``TORCH``."""

# Prefixes of variables that the interpreter, the loader, torch or its libraries read once.
READ_AT_START = tuple("PYTHON LD_ OMP_ GOMP_ MKL_ ATEN_ TORCH PYTORCH_ MALLOC_".split())
# The first is set by torch.compile in its own process, and read whenever it is needed; `become` does what the
# others ask for.
READ_AT_USE = ("TORCHINDUCTOR_CACHE_DIR", "OMP_NUM_THREADS", "TORCH_DEVICE_BACKEND_AUTOLOAD")
AT_IMPORT = frozenset({"OPSMITH_AUTOLOAD", "OPSMITH_TRACE"})
"""For opsmith, when torch is imported."""
# A process with threads cannot fork safely, and OpenBLAS would start some; torch would import opsmith.
QUIET = {"OPENBLAS_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


# ---- the side that asks


def run(
    command: Sequence[object],
    *,
    imports: Sequence[str] | None = None,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    input: str = "",
    stderr: int = subprocess.PIPE,
    timeout: float = 300,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs a Python program as ``subprocess.run`` does with ``text`` and both outputs in pipes.

    ``command`` starts with ``sys.executable`` or with a script beside it; ``stderr`` may be
    ``subprocess.STDOUT``.  Raises ``subprocess.TimeoutExpired`` after ``timeout`` seconds, when the program
    and what it started in its session are killed, and ``subprocess.CalledProcessError`` if ``check``.
    """
    words = [os.fspath(word) if isinstance(word, Path) else str(word) for word in command]
    environment = dict(os.environ if env is None else env)
    if not _is_forked(words, environment):
        return subprocess.run(
            words,
            cwd=cwd,
            env=environment,
            input=input,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=timeout,
            check=check,
            preexec_fn=obey_interrupts,
        )
    request = {
        "command": words,
        "cwd": os.fspath(Path.cwd() / (cwd or "")),
        # The first call has just made the folder.
        "environment": {**environment, VARIABLE: os.environ[VARIABLE]},
    }
    done = _ask(_imports(words) if imports is None else imports, request, input, stderr, timeout)
    if check:
        done.check_returncode()
    return done


def write_commands(folder: Path) -> None:
    """Writes ``opsmith`` and ``python`` to ``folder``, for the PATH of a shell: they run as forks."""
    folder.mkdir()
    given = shlex.join(_asking([]))
    for name in ("opsmith", "python"):
        named = sys.executable if name == "python" else str(Path(sys.executable).with_name(name))
        (folder / name).write_text(f'#!/bin/sh\nexec {given} {shlex.quote(named)} "$@"\n')
        (folder / name).chmod(0o755)


def obey_interrupts() -> None:
    """For ``preexec_fn``: where tests run in the background, what they start ignores SIGINT too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_forked(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a server runs ``words`` with ``environment``, or a process of their own."""
    return _can_be_forked(words) and not _starts_otherwise(environment)


def _can_be_forked(words: Sequence[str]) -> bool:
    """Whether ``words`` are a Python program without options of the interpreter, but those of ``OPTIONS``."""
    if words[0] != sys.executable:
        return Path(words[0]).parent == Path(sys.executable).parent and _is_script(words[0])
    after = words[3:] if tuple(words[1:3]) in OPTIONS else words[1:]
    return bool(after) and (after[0] in {"-c", "-m"} or not after[0].startswith("-"))


class AsForks:
    """The stand-in for ``subprocess`` in a module of opsmith."""

    DEVNULL, PIPE = subprocess.DEVNULL, subprocess.PIPE

    @staticmethod
    def run(words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """``subprocess.run``, with a fork as the process."""
        return subprocess.run(_asking(words), **options)


def _is_script(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def _asking(words: Sequence[str]) -> list[str]:
    """The command that has a server run ``words``, with its own files and environment."""
    return [sys.executable, "-S", "-E", __file__, "ask", *words]


def _imports(words: Sequence[str]) -> Sequence[str]:
    """The modules that the program of ``words`` begins by importing."""
    is_module = list(words[1:3]) == ["-m", "opsmith"]
    if is_module or Path(words[0]).name == "opsmith":
        return OF_COMMANDS.get("".join(words[3:4] if is_module else words[1:2]), TORCH)
    # Processes that opsmith starts itself.
    workers = {"opsmith.conformance": OPINFO, "opsmith.executorch": EXECUTORCH}
    return next(
        (workers[word.rpartition(".")[0]] for word in words[:5] if word.endswith(".worker")), TORCH
    )


def _starts_otherwise(environment: Mapping[str, str]) -> bool:
    """Whether ``environment`` differs from the servers' in what is read once."""
    servers = _servers_environment(_folder())
    return any(
        environment.get(name) != servers.get(name)
        for name in {*environment, *servers}
        if name.startswith(READ_AT_START) and name not in READ_AT_USE
    )


_lock = threading.Lock()
_started: list[subprocess.Popen[bytes]] = []


def _folder() -> Path:
    """Where the servers' sockets are, and the environment that the servers start in: this process's."""
    with _lock:
        if VARIABLE not in os.environ:
            folder = Path(tempfile.mkdtemp(prefix="opsmith-forks-"))
            (folder / "environment.json").write_text(json.dumps(dict(os.environ)))
            os.environ[VARIABLE] = str(folder)
            atexit.register(_remove, folder, os.getpid())
        return Path(os.environ[VARIABLE])


def _servers_environment(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "environment.json").read_text())
    return found


def _remove(folder: Path, owner: int) -> None:
    """Ends the servers.  A fork of their owner leaves them alone."""
    if os.getpid() == owner:
        for server in _started:
            assert server.stdin is not None
            server.stdin.close()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _connected(imports: Sequence[str]) -> socket.socket:
    """A connection to the server that has ``imports``; one that is just ending refuses it."""
    for again in range(5):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(_server(imports, anew=again > 0))
            return connection
        except (ConnectionRefusedError, FileNotFoundError):
            connection.close()
    raise AssertionError("no server stays")


def _server(imports: Sequence[str], *, anew: bool) -> str:
    """The socket of the server that has ``imports``, which is started where there is none, or ``anew``."""
    folder = _folder()
    address = folder / hashlib.sha256("\n".join(imports).encode()).hexdigest()[:8]
    with _lock:
        if anew or not address.exists():
            with open(address.with_suffix(".log"), "wb") as log:
                server = subprocess.Popen(
                    [sys.executable, __file__, "serve", address, *imports],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env={**_servers_environment(folder), **QUIET, VARIABLE: str(folder)},
                )
            assert server.stdout is not None
            ready = server.stdout.readline()
            assert ready == b"ready\n", address.with_suffix(".log").read_text()
            _started.append(server)
    return str(address)


def _ask(
    imports: Sequence[str], request: dict[str, Any], input: str, stderr: int, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Has the server with ``imports`` run what ``request`` says; reads what is written until the end."""
    out_reader, out = os.pipe()
    err_reader, err = os.pipe()
    texts: dict[int, list[bytes]] = {out_reader: [], err_reader: []}
    deadline = time.monotonic() + timeout
    with (
        _connected(imports) as connection,
        tempfile.TemporaryFile() as given,
        selectors.DefaultSelector() as ready,
    ):
        given.write(input.encode())
        given.seek(0)
        files = [given.fileno(), out, out if stderr == subprocess.STDOUT else err]
        _send(connection, request, files)
        os.close(out)
        os.close(err)
        for reader in texts:
            ready.register(reader, selectors.EVENT_READ)
        ready.register(connection, selectors.EVENT_READ)
        status = b""
        while ready.get_map():
            events = ready.select(max(0.0, deadline - time.monotonic()))
            for key, _ in events:
                if key.fileobj is connection:
                    status = connection.recv(64)
                    ready.unregister(connection)
                elif chunk := os.read(key.fd, 1 << 16):
                    texts[key.fd].append(chunk)
                else:
                    ready.unregister(key.fd)
            if not events:
                break
        for reader in texts:
            os.close(reader)
    printed, complained = (b"".join(text).decode() for text in texts.values())
    if not status:
        # Closing the connection has ended the program.
        raise subprocess.TimeoutExpired(request["command"], timeout, printed, complained)
    told_apart = None if stderr == subprocess.STDOUT else complained
    return subprocess.CompletedProcess(request["command"], int(status), printed, told_apart)


def _send(connection: socket.socket, request: dict[str, Any], files: Sequence[int]) -> None:
    told = json.dumps(request).encode()
    socket.send_fds(connection, [len(told).to_bytes(4, "big")], files)
    connection.sendall(told)


def ask_in_place(words: Sequence[str]) -> int:
    """Runs ``words`` with this process's files, folder and environment, and ends as they do."""
    environment = dict(os.environ)
    if not _is_forked(words, environment):
        os.execv(words[0], list(words))
    request = {"command": words, "cwd": os.getcwd(), "environment": environment}
    with _connected(_imports(words)) as connection:
        _send(connection, request, [0, 1, 2])
        status = int(connection.recv(64))
    if status < 0:
        with suppress(OSError):  # SIGKILL cannot be handled otherwise
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


# ---- the server


def serve(address: str, imports: Sequence[str]) -> dict[str, Any]:
    """Forks for every request.  Returns in the forks, with the request; the server itself never does."""
    import torch

    # Some of the modules compute, which would start the pool of threads.
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    for name in imports:
        importlib.import_module(name)
    _parse_native_functions()
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"imports started {len(threads) - 1} threads, which forks would lack"
    gc.collect()
    gc.freeze()  # so that collections in the forks do not copy every page
    request = Server(address).wait()
    torch.set_num_threads(count)
    return request


def _parse_native_functions() -> None:
    """Has torchgen parse ATen's operators, which it does once in a process: a second for each that emits."""
    import torchgen.gen

    native = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    torchgen.gen.parse_native_yaml(str(native / "native_functions.yaml"), str(native / "tags.yaml"))


class Server:
    """Who forks, and the programs that it has become."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.listener = socket.socket(socket.AF_UNIX)
        # Nobody finds one that does not listen yet.
        unready = f"{address}.{os.getpid()}"
        self.listener.bind(unready)
        self.listener.listen()
        os.rename(unready, address)
        self.events = selectors.DefaultSelector()
        self.events.register(self.listener, selectors.EVENT_READ)
        self.events.register(
            0, selectors.EVENT_READ
        )  # at its end, who started the server has ended
        self.programs: dict[int, tuple[int, socket.socket]] = {}
        """By the descriptor of the process."""
        os.write(1, b"ready\n")

    def wait(self) -> dict[str, Any]:
        """Returns in the forks, with the request."""
        while True:
            for key, _ in self.events.select():
                if key.fd == 0:
                    with suppress(FileNotFoundError):
                        os.unlink(self.address)
                    for pid, _ in self.programs.values():
                        _kill(pid)
                    os._exit(0)
                elif key.fileobj is self.listener:
                    if request := self._fork():
                        return request
                elif key.fd in self.programs:
                    self._finish(key.fd)
                elif any(each is key.fileobj for _, each in self.programs.values()):
                    # Who asked is gone, and the program has not ended in this very round.
                    self.events.unregister(key.fileobj)
                    _kill(key.data)

    def _fork(self) -> dict[str, Any] | None:
        """Takes a request; returns it in the fork alone."""
        connection, _ = self.listener.accept()
        request, files = _receive(connection)
        pid = os.fork()
        if pid == 0:
            # Before anything is closed: what the server waits for must not change with it.
            os.setsid()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            for each in (self.events, self.listener, connection):
                each.close()
            for process, (_, other) in self.programs.items():
                os.close(process)
                other.close()
            return request
        for file in files:
            os.close(file)
        process = os.pidfd_open(pid)
        self.programs[process] = pid, connection
        self.events.register(process, selectors.EVENT_READ)
        self.events.register(connection, selectors.EVENT_READ, pid)
        return None

    def _finish(self, process: int) -> None:
        """Tells who asked how the program has ended."""
        pid, connection = self.programs.pop(process)
        self.events.unregister(process)
        os.close(process)
        if connection.fileno() in self.events.get_map():
            self.events.unregister(connection)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        # Perhaps nobody waits any more.
        with connection, suppress(ConnectionError):
            connection.sendall(str(status).encode())


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request, and the files that are to be its program's first three."""
    header, files, _, _ = socket.recv_fds(connection, 4, 3)
    size = int.from_bytes(header, "big")
    text = b""
    while len(text) < size:
        text += connection.recv(size - len(text))
    request: dict[str, Any] = json.loads(text)
    return request, files


def _kill(pid: int) -> None:
    """Ends the session of ``pid``, which may not have one yet, or none any more."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


# ---- the program


def become(request: dict[str, Any]) -> None:
    """Runs the program of ``request`` as the interpreter runs what its command line names."""
    os.chdir(request["cwd"])
    for name in set(os.environ) - set(request["environment"]):
        del os.environ[name]
    os.environ.update(request["environment"])
    obey_interrupts()
    _forget_the_server()
    _start_children_as_forks()

    words: list[str] = request["command"]
    sys.orig_argv = list(words)
    if words[0] == sys.executable:
        words = words[1:]
    if obey := OPTIONS.get(tuple(words[:2])):
        obey()
        words = words[2:]
    if threads := os.environ.get("OMP_NUM_THREADS"):
        sys.modules["torch"].set_num_threads(int(threads))
    if AT_IMPORT & os.environ.keys() and os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") != "0":
        sys.modules["torch"]._import_device_backends()
    kind = words[0] if words[0] in {"-c", "-m"} else None
    try:
        if kind == "-m":
            sys.path[0] = os.getcwd()
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif kind == "-c":
            sys.path[0] = ""
            sys.argv = ["-c", *words[2:]]
            _run_as_main(words[1], "<string>")
        elif os.path.isdir(words[0]):
            sys.path[0] = words[0]
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
        else:
            sys.path[0] = os.path.dirname(os.path.realpath(words[0]))
            sys.argv = words
            with open(words[0], "rb") as file:
                _run_as_main(file.read(), os.path.abspath(words[0]))
    except Exception as error:
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename in {__file__, runpy.__file__, _RUNPY}:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


def _ignore_warnings() -> None:
    sys.warnoptions.append("ignore")
    warnings.simplefilter("ignore")


OPTIONS = {("-W", "ignore"): _ignore_warnings, ("-X", "faulthandler"): faulthandler.enable}
"""The interpreter's options that a fork can obey."""


def _start_children_as_forks() -> None:
    start = subprocess.Popen.__init__

    def init(self: Any, args: Any, *others: Any, **options: Any) -> None:
        given = options.get("env")
        environment = dict(os.environ if given is None else given)
        # A fork has no other files than the standard ones.
        is_plain = isinstance(args, list | tuple) and not (
            options.get("shell") or options.get("pass_fds")
        )
        if is_plain and VARIABLE in environment:
            words = [os.fspath(word) for word in args]
            if _is_forked(words, environment):
                args = _asking(words)
        start(self, args, *others, **options)

    subprocess.Popen.__init__ = init  # type: ignore[method-assign]


def end(status: object) -> NoReturn:
    """Ends the program as the interpreter does after ``SystemExit(status)``, without taking it apart."""
    if not isinstance(status, int | None):
        print(status, file=sys.stderr)
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    ctypes.CDLL(None).fflush(None)
    os._exit((status or 0) & 0xFF)


_RUNPY = "<frozen runpy>"


def _run_as_main(source: str | bytes, file: str) -> None:
    main = ModuleType("__main__")
    if file != "<string>":
        main.__file__ = file
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    exec(compile(source, file, "exec", dont_inherit=True), main.__dict__)


def _forget_the_server() -> None:
    """Resets the state that the forks would share, or have found in the server's environment."""
    random.seed()
    tempfile.tempdir = None
    terminal = sys.stdout.encoding, sys.stdout.errors
    sys.stdin = _file(0, "r", *terminal)
    sys.stdout = _file(1, "w", *terminal)
    sys.stderr = _file(2, "w", sys.stderr.encoding, "backslashreplace")
    sys.stderr.reconfigure(line_buffering=True)
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)


def _file(number: int, mode: str, encoding: str, errors: str | None) -> io.TextIOWrapper:
    file = open(number, mode, encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115
    assert isinstance(file, io.TextIOWrapper)
    return file


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        try:
            become(serve(sys.argv[2], sys.argv[3:]))
        except SystemExit as exit:
            end(exit.code)
        end(0)
    else:
        sys.exit(ask_in_place(sys.argv[2:]))
