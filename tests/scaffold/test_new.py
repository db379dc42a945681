"""`opsmith new`: what it writes, what it refuses, and what a newer opsmith would write differently."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import clang_format
import pytest

import fork_server
from opsmith.description import read_backend
from opsmith.errors import FolderUnusable, OpsmithError, ProjectInvalid
from opsmith.plan import open_backend
from opsmith.vendor.scaffold import apply_upgrade, chosen, find_upgrade, write_project
from opsmith.vendor.scaffold.choices import DriverLanguage, KernelLanguage
from opsmith.vendor.scaffold.record import FILE, read_record, write_record
from opsmith.vendor.scaffold.rendering import opsmith_version

STYLE = Path(__file__).parents[2] / ".clang-format"

VARIANTS = {
    "default": chosen("mychip"),
    "kernels in Python": chosen("mychip", kernels=KernelLanguage.PYTHON),
    "all in Python": chosen("mychip", DriverLanguage.PYTHON),
    "kernels in Triton": chosen("mychip", kernels=KernelLanguage.TRITON),
    "kernels in OpenCL C": chosen("mychip", kernels=KernelLanguage.OPENCL),
    "for ExecuTorch": chosen("mychip", executorch=True),
    "for ExecuTorch, driver in Python": chosen("mychip", DriverLanguage.PYTHON, executorch=True),
}
variants = pytest.mark.parametrize("variant", VARIANTS)


def new(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`opsmith new` with ``arguments``, run in ``folder``."""
    command = [sys.executable, "-m", "opsmith", "new", *arguments]
    return fork_server.run(command, cwd=folder, env={**os.environ, "COLUMNS": "110"})


def refusal(folder: Path, *arguments: str) -> str:
    """The error of a command that is refused, as it is printed."""
    done = new(folder, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def written(folder: Path) -> dict[str, str]:
    """The text of each file in ``folder``, but for the record."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != FILE
    }


# ---- what is written


@variants
def test_a_project_is_described_and_planned(variant: str, tmp_path: Path) -> None:
    project = write_project(VARIANTS[variant], tmp_path)
    plan = open_backend(str(project / "src" / "mychip" / "backend.yaml")).plan
    own = [entry.name for entry in plan.entries if entry.library == "mychip_kernels"]
    in_python = VARIANTS[variant].kernels is KernelLanguage.PYTHON
    assert ({"mm", "mm.out", "relu", "relu_", "relu.out"} <= {*own}) is not in_python
    assert plan.entry("softmax.int").route.value != "missing"


@variants
def test_a_driver_without_host_window_is_described_so(variant: str, tmp_path: Path) -> None:
    project = write_project(VARIANTS[variant], tmp_path)
    backend = read_backend(project / "src" / "mychip" / "backend.yaml", None)
    assert backend.driver.host_window is False


@variants
def test_what_is_written_is_formatted_and_has_no_mistakes(variant: str, tmp_path: Path) -> None:
    project = write_project(VARIANTS[variant], tmp_path)
    for option in (["format", "--check"], ["check", "--select", "B,F,I,N,UP,W"]):
        ruff = [sys.executable, "-m", "ruff", *option, "--isolated", "--line-length", "100", "."]
        done = subprocess.run(ruff, cwd=project, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    sources = [path for path in project.rglob("*") if path.suffix in {".c", ".h", ".cpp"}]
    binary = clang_format.get_executable("clang-format")
    done = subprocess.run(
        [binary, f"--style=file:{STYLE}", "--dry-run", "-Werror", *sources],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@variants
def test_what_a_vendor_reads_is_short(variant: str, tmp_path: Path) -> None:
    project = write_project(VARIANTS[variant], tmp_path)
    lines = [line for text in written(project / "src").values() for line in text.splitlines()]
    assert sum(1 for line in lines if line.strip()) < 320


def test_the_name_stands_everywhere(tmp_path: Path) -> None:
    project = write_project(chosen("fastchip"), tmp_path)
    text = "".join(written(project).values())
    assert "mychip" not in text and "__name__" not in text
    assert (project / "src" / "fastchip" / "fastchip.h").is_file()


def test_the_command_says_what_it_wrote_and_what_comes_next(tmp_path: Path) -> None:
    done = new(tmp_path, "mychip")
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert "mychip/src/mychip/driver.c" in lines
    assert lines[-1] == 'next: cd mychip && pip install ".[test]" && opsmith build mychip && pytest'
    files = json.loads(new(tmp_path, "yourchip", "--json").stdout)
    assert files["folder"] == str(tmp_path / "yourchip")
    assert set(files["files"]) == {*written(tmp_path / "yourchip"), FILE}


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "mychip").mkdir()
    assert new(tmp_path, "mychip").returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["mychip"]


def test_kernels_in_opencl_c_have_the_driver_that_comes_with_opsmith(tmp_path: Path) -> None:
    done = new(tmp_path, "mychip", "--kernels", "opencl")
    assert (done.returncode, done.stderr) == (0, "")
    folder = tmp_path / "mychip" / "src" / "mychip"
    assert not [*folder.glob("*.c")] and (folder / "programs.cl").is_file()
    plan = open_backend(str(folder / "backend.yaml")).plan
    assert plan.entry("relu").library == "mychip_kernels"
    assert plan.entry("exp.out").library == "compute"
    assert new(tmp_path, "--upgrade", "mychip").stdout.endswith(
        "nothing would be written differently\n"
    )


# ---- what is refused


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cuda", "`cuda` cannot name a device\n"),
        ("My-Chip", "`My-Chip` cannot name a device\n"),
        ("1chip", "`1chip` cannot name a device\n"),
        ("class", "it is a word of C++"),
        ("lambda", "it is a word of Python"),
        ("nn", "PyTorch has something else called `torch.nn`"),
        ("relu", "PyTorch has an operator `relu`"),
        ("sim", "a backend of that name comes with opsmith"),
        ("json", "Python has a module `json`"),
        ("msgspec", "a package of that name is installed, msgspec"),
        ("yaml", "a module of that name is installed, "),
        ("read", "C has something else called `read`"),
        ("restrict", "C has something else called `restrict`"),
        ("tests", "a folder of the project is called that"),
        ("mychip_", "a package's name ends with a letter or a digit"),
    ],
)
def test_names_that_are_taken(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(OpsmithError) as caught:
        write_project(chosen(name), tmp_path)
    assert reason in str(caught.value) and "\n  remedy: " in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_how_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, "relu") == (
        "error: `relu` cannot name a new device: PyTorch has an operator `relu`\n"
        "  remedy: choose another name, e.g. `reluchip`\n"
    )


def test_a_folder_with_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "mychip").mkdir()
    (tmp_path / "mychip" / "mine").touch()
    assert refusal(tmp_path, "mychip") == (
        "error: `mychip` exists already\n"
        "  remedy: choose another name, or another folder to run this in; `opsmith new --upgrade` brings a "
        "project up to date\n"
    )


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*arguments: object, **options: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", denied)  # tests may run as root, who may write anywhere
    with pytest.raises(FolderUnusable) as caught:
        write_project(chosen("mychip"), tmp_path)
    assert str(caught.value) == (
        f"`{tmp_path}/mychip` cannot be written: Permission denied\n  remedy: run this in a folder of yours"
    )


def test_a_disk_that_is_full_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(FolderUnusable, match="cannot be written: No space left on device"):
        write_project(chosen("mychip"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_choices_that_do_not_go_together(tmp_path: Path) -> None:
    assert refusal(tmp_path, "mychip", "--driver", "python", "--kernels", "cpp") == (
        "error: kernels in cpp have nothing to call in a driver in Python\n"
        "  remedy: write them in Python too, --kernels python; or for the host, --executorch\n"
    )
    assert refusal(tmp_path, "mychip", "--executorch", "--kernels", "python") == (
        "error: ExecuTorch's runtime calls no kernels in python\n"
        "  remedy: write them in C++: --executorch with --kernels cpp, which is the default\n"
    )
    for driver in ("c", "python"):
        assert refusal(tmp_path, "mychip", "--kernels", "opencl", "--driver", driver) == (
            "error: kernels in opencl have opsmith's driver `opencl`, which compiles and launches them\n"
            "  remedy: leave out --driver; or write a driver and kernels of your own, --kernels cpp\n"
        )
    assert refusal(tmp_path, "mychip", "--kernels", "opencl", "--executorch").startswith(
        "error: ExecuTorch's runtime calls no kernels in opencl\n"
    )


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    for arguments, said in (
        ([], "name the device: opsmith new mychip"),
        (["mychip", "--apply"], "--apply goes with --upgrade"),
        (["--upgrade", "--executorch"], "--upgrade keeps the project's own choices"),
    ):
        done = new(tmp_path, *arguments)
        assert done.returncode == 2 and said in done.stderr
    assert list(tmp_path.iterdir()) == []


# ---- --upgrade

Older = Callable[[dict[str, str]], Path]


@pytest.fixture
def older(tmp_path: Path) -> Older:
    """Writes a project as an older opsmith would have, whose templates had other texts."""

    def write(texts: dict[str, str]) -> Path:
        project = write_project(chosen("mychip"), tmp_path)
        record = read_record(project)
        for path, text in texts.items():
            (project / path).parent.mkdir(exist_ok=True)
            (project / path).write_text(text)
        write_record(project, record.choices, {**record.files, **texts})
        kept = project / FILE
        kept.write_text(kept.read_text().replace('"opsmith": "', '"opsmith": "0.0.'))
        return project

    return write


def test_nothing_is_written_differently_by_the_same_version(tmp_path: Path) -> None:
    write_project(chosen("mychip"), tmp_path)
    done = new(tmp_path / "mychip", "--upgrade")
    assert done.stdout.splitlines()[1:] == ["nothing would be written differently"]


def test_what_a_newer_opsmith_writes_differently(older: Older) -> None:
    project = older({"README.md": "# mychip\n", ".gitignore": "old\n"})
    (project / "README.md").write_text("# my own words\n")
    before = written(project)
    said = new(project.parent, "--upgrade", "mychip").stdout
    assert written(project) == before
    assert said.startswith("written by opsmith 0.0.")
    assert ".gitignore would be brought up to date\n--- a/.gitignore\n+++ b/.gitignore\n" in said
    assert "\n-old\n" in said and "\n+dist/\n" in said
    assert (
        "README.md is edited, and would be left alone; the templates differ by\n--- a/README.md\n"
        in said
    )
    assert said.endswith("opsmith new --upgrade --apply changes 1 file\n")


def test_the_diff_is_one_that_patch_takes(older: Older, tmp_path: Path) -> None:
    project = older({".gitignore": "old\n"})
    said = new(project, "--upgrade").stdout
    (project / "change.patch").write_text(said[said.index("--- a/") : said.rindex("\n\n") + 1])
    subprocess.run(["git", "apply", "change.patch"], cwd=project, check=True)
    assert find_upgrade(project).changes == ()


def test_apply_changes_what_the_user_has_not_edited(older: Older) -> None:
    project = older({"README.md": "# mychip\n", ".gitignore": "old\n", "obsolete.py": "pass\n"})
    (project / "README.md").write_text("# my own words\n")
    said = new(project, "--upgrade", "--apply").stdout
    assert said.endswith("to take over by hand: 1 file, shown above and not again\n")
    now = written(project)
    assert now["README.md"] == "# my own words\n" and "dist/\n" in now[".gitignore"]
    assert "obsolete.py" not in now
    assert new(project, "--upgrade").stdout.endswith("nothing would be written differently\n")


def test_files_that_are_new_in_a_newer_opsmith(tmp_path: Path) -> None:
    project = write_project(chosen("mychip"), tmp_path)
    record = read_record(project)
    older = {path: text for path, text in record.files.items() if not path.startswith("tests/")}
    write_record(project, record.choices, older)
    for path in (project / "tests").iterdir():
        path.unlink()
    (project / "tests" / "test_training.py").write_text("# mine\n")
    changes = {change.path: change.edited for change in find_upgrade(project).changes}
    assert changes["tests/test_training.py"] is True and changes["tests/test_values.py"] is False
    apply_upgrade(find_upgrade(project))
    assert (project / "tests" / "test_training.py").read_text() == "# mine\n"
    assert "def test_" in (project / "tests" / "test_values.py").read_text()


def test_a_file_that_the_user_removed_stays_away(older: Older) -> None:
    project = older({".gitignore": "old\n"})
    (project / ".gitignore").unlink()
    (change,) = find_upgrade(project).changes
    assert (change.path, change.edited) == (".gitignore", True)
    apply_upgrade(find_upgrade(project))
    assert not (project / ".gitignore").exists()


def test_what_upgrade_says_to_programs(older: Older) -> None:
    project = older({".gitignore": "old\n"})
    said = json.loads(new(project, "--upgrade", "--json").stdout)
    assert (said["folder"], said["applied"]) == (str(project), False)
    assert [(each["path"], each["edited"]) for each in said["changes"]] == [(".gitignore", False)]


def test_a_project_of_a_newer_opsmith(tmp_path: Path) -> None:
    project = write_project(chosen("mychip"), tmp_path)
    path = project / FILE
    path.write_text(
        path.read_text().replace('"opsmith": "', '"opsmith": "9').replace('"c"', '"rust"')
    )
    now = opsmith_version()
    assert refusal(tmp_path, "--upgrade", "mychip") == (
        f"error: `mychip` was written by opsmith 9{now}, and this is opsmith {now}\n"
        "  remedy: update opsmith: pip install --upgrade opsmith\n"
    )


def test_a_folder_that_opsmith_new_did_not_write(tmp_path: Path) -> None:
    assert refusal(tmp_path, "--upgrade") == (
        f"error: the record of `opsmith new` cannot be read from `{FILE}`: No such file or directory\n"
        "  remedy: name the folder of a project that `opsmith new` wrote\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "\xff",
        '{"opsmith": 3}',
        '{"format": 1, "opsmith": "0.0.1"}',
        '{"format": 9}',
    ],
)
def test_a_record_that_is_none(text: str, tmp_path: Path) -> None:
    project = write_project(chosen("mychip"), tmp_path)
    (project / FILE).write_text(text, encoding="latin-1")
    with pytest.raises(OpsmithError) as caught:
        find_upgrade(project)
    assert FILE in str(caught.value) and "\n  remedy: " in str(caught.value)


@pytest.mark.parametrize("name", ["../elsewhere", "/elsewhere", ""])
def test_a_record_that_names_files_elsewhere(name: str, tmp_path: Path) -> None:
    project = write_project(chosen("mychip"), tmp_path)
    record = read_record(project)
    write_record(project, record.choices, {**record.files, name: "text"})
    with pytest.raises(ProjectInvalid, match=r"was altered: `.*` is no path in the project"):
        find_upgrade(project)


def test_a_record_that_names_no_device(tmp_path: Path) -> None:
    project = write_project(chosen("mychip"), tmp_path)
    path = project / FILE
    path.write_text(path.read_text().replace('"name": "mychip"', '"name": "../mychip"'))
    with pytest.raises(
        ProjectInvalid, match=r"was altered: `../mychip` cannot name a device\n  remedy: "
    ):
        find_upgrade(project)


def test_a_record_whose_texts_are_damaged(tmp_path: Path) -> None:
    project = write_project(chosen("mychip"), tmp_path)
    path = project / FILE
    path.write_text(path.read_text().replace('"README.md": "', '"README.md": "AAAA'))
    with pytest.raises(ProjectInvalid, match=r"was altered: (.|\n)*remedy: take it back"):
        find_upgrade(project)
