"""Files that another user could have written are not loaded, and what is no file is not read."""

from __future__ import annotations

import grp
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opsmith.base import cache_folder, trusted_files
from opsmith.base.cache_folder import CacheWarning, cache_root, make_folder, replace_file
from opsmith.base.trusted_files import (
    check_named_libraries,
    check_trusted,
    fault_of,
    open_library,
    read_regular,
    read_text,
    read_trusted,
)
from opsmith.errors import FileUntrusted
from refusal import refusal

MALLORY = 4242  # a user, and a group, without a name
DAEMON = grp.getgrnam("daemon").gr_gid
# Debian's `staff`, to which /usr/local belongs.
NOBODYS = min(
    {group.gr_gid for group in grp.getgrall() if not group.gr_mem}
    - {user.pw_gid for user in pwd.getpwall()}
)
PACKAGE = Path(trusted_files.__file__).parents[1]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """As a process that begins, on a machine where root vouches for nothing."""
    monkeypatch.setattr(trusted_files, "VOUCHED", tmp_path / "etc" / "trusted-folders")
    trusted_files._named_by_root.cache_clear()
    trusted_files._sound.clear()
    cache_folder._trusted.cache_clear()
    yield
    trusted_files._named_by_root.cache_clear()


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """``shared/lib/libchip.so``, of this user's."""
    path = tmp_path / "shared" / "lib" / "libchip.so"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x7fELF")
    return path


def or_vouch(command: str) -> str:
    return f"if you trust what is there: {command}; or let root name the folder in {trusted_files.VOUCHED}"


# ---- whose it is


def of_mallory(path: Path) -> Path:
    os.chown(path, MALLORY, MALLORY)
    return path


def writable(path: Path, bits: int, group: int = 0) -> Path:
    os.chown(path, -1, group)
    path.chmod(path.stat().st_mode | bits)
    return path


def link_of_mallory(path: Path) -> Path:
    """In the place of ``path``, which lies elsewhere."""
    target = path.rename(path.with_suffix(".1"))
    path.symlink_to(target)
    os.lchown(path, MALLORY, MALLORY)
    return path


@as_root
@pytest.mark.parametrize(
    ("spoil", "why", "command"),
    [
        (lambda lib: of_mallory(lib), "{} belongs to 4242, not to root", "chown root"),
        (lambda lib: of_mallory(lib.parent), "{} belongs to 4242, not to root", "chown root"),
        (lambda lib: of_mallory(lib.parents[1]), "{} belongs to 4242, not to root", "chown root"),
        (lambda lib: link_of_mallory(lib), "{} belongs to 4242, not to root", "chown -h root"),
        (lambda lib: link_of_mallory(lib.parent), "{} belongs to 4242, not to root", "chown -h root"),
        (lambda lib: writable(lib, 0o002), "everybody may write to {}", "chmod go-w"),
        (lambda lib: writable(lib.parents[1], 0o022), "everybody may write to {}", "chmod go-w"),
        (lambda lib: writable(lib, 0o020, MALLORY), "the group 4242 may write to {}", "chmod g-w"),
        (lambda lib: writable(lib.parent, 0o020, 100), "the group users may write to {}", "chmod g-w"),
        # Of the system's groups, one that has a user.
        (lambda lib: writable(lib.parent, 0o020, DAEMON), "the group daemon may write to {}", "chmod g-w"),
    ],
)  # fmt: skip
def test_what_another_could_have_written_is_refused_and_the_remedy_mends_it(
    library: Path, spoil: Callable[[Path], Path], why: str, command: str
) -> None:
    place = spoil(library)
    command = f"{command} {place}"
    message = f"{library} is not loaded: {why.format(place)}\n  remedy: {or_vouch(command)}"
    assert refusal(FileUntrusted, check_trusted, library) == message
    assert refusal(FileUntrusted, open_library, library) == message
    assert refusal(PermissionError, read_trusted, library).endswith(
        f"{why.format(place)}: '{library}'"
    )
    subprocess.run(command, shell=True, check=True)
    check_trusted(library)
    assert read_trusted(library) == b"\x7fELF"


@as_root
@pytest.mark.parametrize(
    "spoil",
    [
        lambda lib: None,
        # As /tmp: nobody replaces what is another's.
        lambda lib: lib.parent.chmod(0o1777),
        # Debian's, Ubuntu's and Fedora's default: the group that only its user is in.
        lambda lib: writable(lib.parent, 0o020),
        lambda lib: writable(lib.parent, 0o2020, NOBODYS),
        # Its own, in the home of root's; what is not there yet.
        lambda lib: lib.unlink(),
    ],
)
def test_what_only_this_user_and_root_write_is_trusted(
    library: Path, spoil: Callable[[Path], object]
) -> None:
    spoil(library)
    check_trusted(library)


AS_NOBODY = """
import os, pwd, sys
from pathlib import Path
from opsmith.base.trusted_files import fault_of
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path in map(Path, sys.argv[1:]):
    print(fault_of(path))
"""


@as_root
def test_another_user_trusts_root_and_is_told_to_ask_for_its_rights(tmp_path: Path) -> None:
    shared = Path("/tmp") / f"opsmith-test-{os.getpid()}"  # nobody may enter tmp_path
    shared.mkdir(0o755)
    try:
        roots, mallorys, own = (shared / name for name in ("root", "mallory", "own"))
        for path, owner in ((roots, 0), (mallorys, MALLORY), (own, 65534)):
            path.touch()
            os.chown(path, owner, owner)
        own.chmod(0o666)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, roots, mallorys, own],
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        subprocess.run(["rm", "-r", str(shared)], check=True)
    of_root, of_another, of_self = done.stdout.splitlines()
    assert of_root == "None"
    assert f"{mallorys} belongs to 4242, not to nobody or root" in of_another
    assert f"there: sudo chown nobody {mallorys}; or" in of_another
    assert f"everybody may write to {own}" in of_self and f"there: chmod go-w {own}" in of_self


@as_root
def test_folders_that_root_names_are_trusted_and_others_are_not(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_mallory(library)
    of_mallory(library.parent).chmod(0o777)
    monkeypatch.setenv("OPSMITH_TRUSTED_FOLDERS", str(library.parent))
    assert fault_of(library)
    trusted_files.VOUCHED.parent.mkdir()
    trusted_files.VOUCHED.write_text(f"# of the laboratory\n{library.parents[1]}/\n")
    for owner, mode, is_trusted in ((MALLORY, 0o644, False), (0, 0o666, False), (0, 0o644, True)):
        os.chown(trusted_files.VOUCHED, owner, owner)
        trusted_files.VOUCHED.chmod(mode)
        trusted_files._named_by_root.cache_clear()
        assert (fault_of(library) is None) is is_trusted
    pipe = library.with_name("pipe")
    os.mkfifo(pipe)
    assert fault_of(pipe) == trusted_files.Fault(f"{pipe} is a pipe, not a file", f"rm {pipe}")
    assert fault_of(of_mallory(library.parents[2] / "etc" / "trusted-folders"))


@as_root
def test_the_environment_that_python_runs_from_is_trusted(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On clusters it often belongs to whoever installs software there."""
    of_mallory(library.parents[1])
    of_mallory(library)
    monkeypatch.setattr(trusted_files, "_environment", lambda: {str(library.parent)})
    check_trusted(library)


@as_root
def test_a_variable_does_not_name_what_another_could_have_written(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_mallory(library)
    monkeypatch.setenv("OPSMITH_NCCL_LIBRARY", "libnccl.so.2")  # where the system finds it
    monkeypatch.setenv("OPSMITH_COLLECTIVES", "off")
    check_named_libraries()
    for variable in ("OPSMITH_COLLECTIVES", "OPSMITH_NCCL_LIBRARY"):
        monkeypatch.setenv(variable, str(library))
        assert refusal(FileUntrusted, check_named_libraries) == (
            f"{variable} names {library}, which is not loaded: {library} belongs to 4242, not to root\n"
            f"  remedy: {or_vouch(f'chown root {library}')}"
        )
        monkeypatch.delenv(variable)


def test_each_library_is_opened_by_what_looks_at_its_file() -> None:
    opens = re.compile(r"\bctypes\.(CDLL|PyDLL|cdll)\b(?!\(None\))[.(]")
    found = {path.name for path in PACKAGE.rglob("*.py") if opens.search(path.read_text("utf-8"))}
    # The second in a process of its own, for a library that the compiler has just made.
    assert found == {"trusted_files.py", "registered.py"}


# ---- what is no file


def test_only_files_of_a_reasonable_size_are_read(tmp_path: Path) -> None:
    pipe, large, text = (tmp_path / name for name in ("pipe", "large", "text"))
    os.mkfifo(pipe)
    os.truncate(os.open(large, os.O_CREAT | os.O_WRONLY), 1 << 40)
    text.write_bytes(b"\xef\xbb\xbfone\r\ntwo\n")
    zeros = tmp_path / "zeros"
    zeros.symlink_to("/dev/zero")
    for path, why in (
        (pipe, "it is a pipe, not a file"),
        (zeros, "it is a device, not a file"),
        (tmp_path, "Is a directory"),
        (large, "it has 1,099,511,627,776 bytes, more than 1,073,741,824"),
        (tmp_path / "no", "No such file or directory"),
    ):
        with pytest.raises(OSError) as caught:
            read_regular(path)
        assert caught.value.strerror == why
    assert read_text(text, "utf-8-sig") == "one\ntwo\n"


# ---- the cache


@as_root
@pytest.mark.parametrize("inside", ["", "libraries"])
def test_an_untrusted_cache_is_left_for_the_users_own(
    inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, home = tmp_path / "asked", tmp_path / "home"
    folder = asked / inside
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(asked))
    with pytest.warns(CacheWarning) as warned:
        assert cache_root() == cache_root() == home / "opsmith"
    assert [str(each.message) for each in warned] == [
        f"the cache {asked} is not used: everybody may write to {folder}; {home / 'opsmith'} is used in its "
        f"place\n  remedy: {or_vouch(f'chmod go-w {folder}')}; or set OPSMITH_CACHE_DIR to a folder of your "
        "own"
    ]
    # For the processes that this one starts, and for drivers.
    assert os.environ["OPSMITH_CACHE_DIR"] == str(home / "opsmith")


@as_root
def test_where_no_cache_is_trusted_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home is another user's, as containers of continuous integration have it."""
    of_mallory(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("OPSMITH_CACHE_DIR", raising=False)
    with pytest.warns(CacheWarning, match="; /root/.cache/opsmith is used in its place"):
        assert cache_root() == Path("/root/.cache/opsmith")
    cache_folder._trusted.cache_clear()
    monkeypatch.delenv("OPSMITH_CACHE_DIR")
    monkeypatch.setattr(cache_folder.pwd, "getpwuid", {}.__getitem__)  # no user has a home
    assert refusal(FileUntrusted, cache_root) == (
        f"the cache {tmp_path}/opsmith is not used: {tmp_path} belongs to 4242, not to root\n"
        f"  remedy: {or_vouch(f'chown 0 {tmp_path}')}; or set OPSMITH_CACHE_DIR to a folder of your own"
    )


def test_folders_of_the_cache_have_its_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def modes(root: Path) -> list[int]:
        monkeypatch.setenv("OPSMITH_CACHE_DIR", str(root))
        replace_file(root / "libraries" / "0" / "record", b"")
        return [path.stat().st_mode & 0o7777 for path in (root, root / "libraries" / "0")]

    readable = tmp_path / "readable"
    readable.mkdir()
    readable.chmod(0o755)
    assert modes(tmp_path / "above" / "cache") == [0o700, 0o700]
    assert (tmp_path / "above").stat().st_mode & 0o7777 == 0o700
    assert modes(readable) == [0o755, 0o755]
    make_folder(readable / "libraries" / "0")  # what is there is left as it is
